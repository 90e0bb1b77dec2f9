"""The calls to Amazon Kinesis Data Streams, typed.

`client` makes them: those that Shardway makes often as methods, any other by `KinesisClient.call`. `shapes` has what
goes out and comes back.
"""
