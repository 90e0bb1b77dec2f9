"""Reading one shard, without any I/O: where to ask, what belongs to whoever reads, how often to call."""
