"""What runs on Spark's driver for one query that reads: it plans each batch, down to the last record of each shard.

Read the modules in this order:

- `driver`: answers Spark's synchronous calls; `pace` says how often a plan is made, `connection` how AWS is reached.
- `planner`: one plan, from the looks to the offset.
- `shard_book`, `shard_state`: all shards, how far each is read, and which may start; `stream_summary` is the stream.
- `loss_check`: what was stored is compared with what the stream still holds.
- `shard_looks`: which shards a plan looks at.
- `shard_ends`: where each shard ends at a cut.
- `cut_choice`, `batch_size`: the cut of a capped batch, by estimates from samples.
- `cut_step`, `cut_wait`, `cut_lag`: the cut moves back for silences and reshards, and stays a little behind now.
- `offset_draft`: both ends of each range become an offset.
- `grouping`: ranges become chains of parents and children, and chains become tasks.
- `carried_records`: small records that were seen go to the tasks.

`shardway.spark.lookahead` has the looks at one shard.
"""
