"""A consumer at work: records of streams, whose shards it shares with other workers through a lease table.

Read the modules in this order:

- `consumer`, `sync_consumer`: the two faces, for tasks and for threads; `shards` is a shard as the program sees it.
- `arguments`, `option_arguments`: what a program may ask for; the second is written from the options by a script.
- `spec`, `session`: what a program asked for, and one consumer at work, from its start to its end.
- `placement`, `loop_watch`: the event loop of the consumer's own work, and the watch over the program's.
- `stream_set`, `streams`: the streams together, and one of them with its registration.
- `worker_run`: the lease table, and the worker that shares the shards.
- `held_shards`, `lifecycle`: the shards as they come and go, and the callbacks that are awaited meanwhile.
- `iterations`, `turns`: the ways to take records, and the shard whose turn it is.
- `concurrency`, `handlers`, `collection`: what calls the program's handlers, and gathers records by a key.
- `seeks`, `pending_checkpoints`: other places to read from, and checkpoints in two phases.
- `closing`: the end.
- `reporter`, `figures`: the events, and the figures; `statistics` are those of one moment, `metering` has those that
  add up, and `counted_source` and `counted_table` count calls.
"""
