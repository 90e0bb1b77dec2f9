"""A worker: its part of the shards, beside others, through a lease table."""
