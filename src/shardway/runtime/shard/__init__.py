"""One shard in one tenure: what is fetched, delivered, settled and checkpointed.

Read `shard_reader` first, which drives the shard's machine, then `batch`: what a program has of it, and settles by the
rules of `settleable`. `pending` has checkpoints in two phases, `tenure_keeper` writes the lease, `listener` is what the
worker and the consumer hear of a shard, and `window_reading` reads the window of duplicates again.
"""
