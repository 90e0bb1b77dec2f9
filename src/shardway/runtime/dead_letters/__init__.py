"""Dead letters: records that were given up are written to a destination, and read back from there.

A dead letter goes to a stream, a file, or a function, as the consumer's options choose (`shardway.policies`). Its
record counts as settled once the letter is written there. `writers` has a writer for each destination, `shard_letters`
writes the letters of one shard, `reading` reads letters and their records back, and `replay` gives the records on once
more: to a stream, or to a function.
"""
