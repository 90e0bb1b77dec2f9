"""One shard in one tenure: what is fetched, delivered, settled and checkpointed.

Read `shard_reader` first, which has the parts, and `reader_context`, what the consumer gives to each reader. `driver`
gives the shard's machine what happens and performs what that commands; `letter_tasks` and `revocation` are two of the
works that it begins. Three parts reach the machine through the driver: `fetcher` reads pages into it, `delivery` takes
batches from it, and `checkpointing` asks it for the checkpoints that the program wants. `handle` is what the worker has
of a shard.

Then read `batch`: what a program has of a shard, and settles by the rules of `settleable`. `pending` has checkpoints in
two phases, `tenure_keeper` writes the lease, and `window_reading` reads the window of duplicates again. `listener` is
what the worker and the consumer hear of a shard, and `listeners` are those of one shard.
"""
