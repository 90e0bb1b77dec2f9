"""Lease tables outside of AWS (`penstock.ports.LeaseTable`): in memory, SQLite, PostgreSQL."""
