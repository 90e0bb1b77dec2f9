"""The Spark data source ``format("shardway")``: exact micro-batches from a Kinesis stream, and writes to one.

Nothing is imported here, so that looking at a part does not load PySpark. The parts, in the order in which to read
them:

- `source`: the classes that Spark asks for; `options`: what a user may set.
- `positions`, `offsets`: where a query stands in a shard and in a stream, as Spark's offset log holds it.
- `columns`, `ranges`: what a task reads, and what it needs for that.
- `lookahead`: looks at one shard.
- `driver`: plans batches.
- `leases`: a query's share in an application's lease table.
- `task`: reads the ranges of one partition.
- `sink`, `stamps`: writes rows into a stream, in envelopes if a reader is to drop duplicates.
- `plain_errors`, `termination`: one message in place of a stack, and what SIGTERM does.
"""
