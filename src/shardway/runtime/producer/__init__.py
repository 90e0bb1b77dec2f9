"""A producer at work: records into a stream, from an event loop or from threads.

Read the modules in this order:

- `producer`, `sync_producer`: the two faces; `errands` is what other threads ask of the loop's.
- `handles`: what callers hold of their records.
- `arguments`, `spec`, `session`: what a program asked for, and one producer at work, from its first record to its end.
- `room`, `record_check`, `intake`: the way in for records, within the buffer's bound.
- `driver`: the steps of the batcher (`shardway.core.producer`), which are whole or mended.
- `send_loop`, `sender`: what runs on the event loop, and the task of each request.
- `listing`: the stream's shards, and the task that follows them.
- `flushes`: the flushes that wait.
- `meter`, `reporter`: what counts and makes snapshots (`shardway.events.producer_snapshot`), and what emits events.
- `processes`: forks, and the end of the process.
"""
