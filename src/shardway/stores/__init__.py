"""Lease tables outside of AWS (`shardway.ports.LeaseTable`): in memory, SQLite, PostgreSQL."""
