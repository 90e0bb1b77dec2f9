"""Spark's driver looks ahead into the unread part of a shard's log: where may a batch end in it, and what was lost?

Read the modules in this order:

- `lookahead`: the records that were seen, and the bounds that they give.
- `shard_probe`: the looks at one shard.
- `stream_calls`: the calls of all probes, with their repetitions.
- `losses`: whether records were lost before what was seen.
"""
