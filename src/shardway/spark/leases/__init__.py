"""A query's share in an application's lease table: the query begins where its leases say, and writes what is committed.

Read the modules in this order:

- `lease_position`: a position as a lease says it, and back.
- `claim`: at the start, no living worker may own the leases.
- `starts`: where the query begins in each shard.
- `mirror`: what Spark has committed is written to the table, in the background.
"""
