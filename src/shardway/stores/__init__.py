"""Lease tables outside of AWS (`shardway.ports.LeaseTable`).

`memory` is for tests, `sqlite` for the processes of one machine, `postgres` for those of several; `sql` has what the
last two share. `dsn` takes the URL of a PostgreSQL server apart, for each part that is given one, and is the one place
that shows it. Whatever asyncpg raises becomes one of our errors in `postgres`, and a connection is used again only
after an answer that its server went on from.
"""
