"""Feeding reads one shard, without any I/O: where to ask, which records are new to the reader, how often to call."""
