"""Leases: rows, their conditional writes, tenures, and workers' rows. Time is an argument, stores are elsewhere."""

from shardway.core.leases.row import Checkpoint, LeaseKey, LeaseRow, NotALeaseError, StreamKey, is_lease, lease_row
from shardway.core.leases.writes import Done, Kind, Outcome, Refused, Unknown, Write

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
