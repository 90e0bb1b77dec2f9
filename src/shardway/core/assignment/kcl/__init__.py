"""The rules of a fleet that has KCL workers.

Shardway workers are alone, or with KCL 2.x workers, and do as those do (`kcl2`); or they are with KCL 3.x workers, of
which one leads, and do as that one says (`kcl3`). `fleet` finds out which of these it is, by the `rows` that a KCL
fleet keeps beside its leases.
"""
