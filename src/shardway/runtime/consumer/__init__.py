"""Consumers: workers that share the shards of a stream through a lease table.

Read `consumer` first, the face for tasks, then `core`, which stands behind it and behind `sync_consumer`, the face for
threads. `shards` and `lifecycle` are the shards as the program sees them come and go; `streams` is a stream with its
registration. `concurrency` and `handlers` call the program's functions, and `collection` gathers records by a key.
`statistics`, `counted_source`, `counted_table` and `metering` have the numbers.
"""
