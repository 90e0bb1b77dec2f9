"""A worker: its part of the shards, beside others, through a lease table.

Read the modules in this order:

- `worker`: it looks, has `shardway.core.worker` decide what follows, and does it.
- `presence`: it shows a row of its own to the others.
- `sight`: it sees the leases and the workers' rows; `kcl_watch` says which fleet it is in, and shows a KCL leader by
  `processors` how busy it is.
- `holding`: it has tenures from the claim to the end, and drains a shard.
- `reading_ahead`: it reads shards ahead of their handoff.
- `sharded_stream`: it knows a stream by these calls; `shard_leases` creates and completes the stream's leases.
"""
