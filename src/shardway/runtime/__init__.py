"""The runtime runs the core on an event loop, behind the ports (`shardway.ports`); it knows no AWS.

Read `producer` for records into a stream. For consumers read from the bottom: `feeds` bring a shard's records, `shard`
drives one shard in one tenure, `worker` shares shards with other workers, and `consumer` is what programs use.
`dead_letters` writes records that are given up, and reads them back. `threads` says on which loop and in which thread
all of it runs, `clocks` keeps its time, and `background` reports what fails beside the reading. `arguments` has what
all constructors take by name.
"""
