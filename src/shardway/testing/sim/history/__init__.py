"""Keep what happened in a simulation, and check the rules that it must not break.

The history sees everything at once: what was put, each write to the lease table as it is applied, each batch as it is
delivered, each settlement as it is said. None of the processes knows as much.

Read `shard_story` first: the records of one shard, and how far they are done. `history` takes the facts and keeps them
in a `journal`. It has each write to a lease checked by `lease_rules`, each batch by `delivery_rules`, and the programs'
two-phase output by `transactions`. `promises` says what the consumers' options promise of a record.
"""
