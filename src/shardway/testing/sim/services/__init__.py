"""The services of a simulation, Kinesis and a lease table, and a way to them from each simulated process.

Read `link` first: one process's connection to one service, and its faults. `stream` is what is put and resharded, and
`stream_wire` how a process reads it; `table` has the leases, and how a process reads and writes them.
"""
