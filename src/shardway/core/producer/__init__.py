"""The producer without any I/O: user records become PutRecords requests, and requests become outcomes.

Records go in as a `Chunk`; the `Batcher` says what to send now and when to ask again, takes what the service answered,
and settles every record with exactly one outcome. Time and chance are arguments, so that the simulator can run it, and
the producer and the Spark sink share it.

Read the modules in this order:

- `outcome`, `chunk`, `run`: records that were put together, what became of each, and a stretch of them.
- `routes`: the way from a partition key to the lane of its shard.
- `request`: a PutRecords call, and its loads.
- `lane`, `loads`: what waits for one shard, and what leaves it together.
- `lanes`: the lanes of all shards; records move between them at a reshard.
- `pace`: how much one producer may write to one shard, learnt from what the shard refuses.
- `facts`, `settling`: the one outcome of each record, and what a meter counts of it.
- `answers`, `withdrawal`: what an answer means for each record, and what a caller takes back.
- `limits`, `request_builder`, `batcher`: the whole, with its bounds: it makes requests, and takes their answers.
- `mending`: what puts a batcher in order after a step that was broken off.
"""
