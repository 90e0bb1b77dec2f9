"""One shard in one tenure, as pure machines: values in, values out, and time is an argument.

Read `machine` first: it has the stages of the shard, and handles `events` by giving `commands`. `drain` is the time in
which a shard is about to go. `checkpoints` says how far a checkpoint goes and when it is stored, and `duplicates` which
records are left out.
"""
