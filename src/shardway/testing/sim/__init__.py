"""Simulations run whole consumers in virtual time. The names for users are in `shardway.testing`.

Read the modules in this order:

- `virtual_time`, `loop`: time that jumps to what is due next, and an event loop on it. `loop_options` has what asyncio
  lets a program set on each loop, and `outside` what a virtual loop refuses.
- `plan`: what a seed draws, the faults among it.
- `services`: Kinesis, the lease table, and the way to them.
- `process`: a worker with a loop, a clock and connections of its own. It runs one of the `programs` with a
  `recorded_consumer`.
- `history`: what happened, and the rules that it must not break.
- `simulator`: a simulation from its beginning to its report.
"""
