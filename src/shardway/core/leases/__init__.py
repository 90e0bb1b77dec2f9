"""Leases: rows, their conditional writes, tenures, and workers' rows. Time is an argument, stores are elsewhere.

Read the modules in this order:

- `checkpoint`, `row`, `lease_key`, `stream_mark`: one lease as the table holds it.
- `listing`: a scan of the table.
- `conditional_write`: a write under a condition as a value, with three outcomes.
- `writes`: each write that an owner, another worker or an operator makes.
- `tenure`: one worker's hold on one lease, from the take to the end.
- `counters`, `worker_row`, `membership`: the workers' own rows, and what a worker knows of the others by them.
- `continuation`: whether reading ahead goes on once the lease stands elsewhere.
- `mirror`: rows that follow a reader without a lease.
"""

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.conditional_write import Done, Kind, Outcome, Refused, Unknown, Write
from shardway.core.leases.lease_key import LeaseKey, StreamKey
from shardway.core.leases.row import LeaseRow, NotALeaseError, is_lease, lease_row

__all__ = [
    "Checkpoint",
    "Done",
    "Kind",
    "LeaseKey",
    "LeaseRow",
    "NotALeaseError",
    "Outcome",
    "Refused",
    "StreamKey",
    "Unknown",
    "Write",
    "is_lease",
    "lease_row",
]
