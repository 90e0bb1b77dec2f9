"""Consumers for users' tests, over a stream and leases in memory.

`consumer` has `TestConsumer`, and `sync_consumer` its twin for threads. `passing_time` lets time pass without waiting,
`whereabouts` says which shards another consumer is to have, `readers` watches the shards' readers, and `progress` says
how far they are.
"""
