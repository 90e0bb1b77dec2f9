"""The core computes and never connects: the standard library and our own values, with time and chance as arguments.

Consumers: `log` reads one shard, `ledger` keeps its records until they are settled, `shard` is one shard in one tenure,
`leases` has the rows and their writes, `assignment` says which worker reads which shard, `handoff` moves a lease
between two workers, and `worker` is one worker's round. Producers: `aggregation` packs records, and `producer` makes
requests of them and outcomes of the answers.

Below these are `lineage` (shards and their parents), `sequence`, `hashkeys`, `pacing`, `histogram`, `service_clock`,
`protobuf`, `unicode`, and `options` with `signatures`: the class of all options, and how it checks and shows them.
"""
