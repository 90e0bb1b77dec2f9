"""Workers that share the shards of a stream through a lease table."""
