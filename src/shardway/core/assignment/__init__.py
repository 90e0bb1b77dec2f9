"""Assignment decides which worker reads which shard, and which leases there are, from what a worker sees, without any
I/O.

Read `views` first: leases and workers as they are seen. `strategies` say which worker should hold which lease, and
`balance` places and moves them. `shardway_fleet` makes one worker's plan of that, `kcl` has the rules among KCL
workers, and `decide` has one decision for every kind of fleet. `lease_births` finds the leases to create, and `upkeep`
those to delete.
"""
