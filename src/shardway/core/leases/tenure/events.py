"""The events of a tenure: what its machine learns of the table, of the worker and of the shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.conditional_write import Outcome
    from shardway.core.leases.row import LeaseRow


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Time has passed: it comes at `Tenure.wake_at_s` at the latest."""


@dataclass(frozen=True, slots=True)
class WriteAnswered:
    """The write that was sent last has an outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WorkerRowConfirmed:
    """A write to this worker's own row was confirmed, which was sent at ``sent_s``."""

    sent_s: float


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The lease's row, as a look at the table showed it. It may be old."""

    row: LeaseRow


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """All up to the checkpoint is settled. The checkpoint is stored with the next renewal, or at once."""

    checkpoint: Checkpoint
    at_once: bool = False
    commit: bool = False
    """True: store the checkpoint also while a prepared one is pending, which this removes. False: it waits until none
    is.
    """


@dataclass(frozen=True, slots=True)
class StorePending:
    """Store a checkpoint that is to be committed later."""

    checkpoint: Checkpoint
    state: bytes | None = None


@dataclass(frozen=True, slots=True)
class StoreMeasurements:
    """Store these measurements with the next renewal, without a write of their own."""

    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    """The time up to which all is read; see `LeaseRow`. It must hold for the checkpoint that is stored by now."""


@dataclass(frozen=True, slots=True)
class EndTenure:
    """End the tenure with a write: give the lease to a worker, or free it; with what was settled last.

    The caller has stopped delivering before it says so.
    """

    to: str | None = None
    process: str | None = None
    """The process of that worker's name, as its row shows it."""


@dataclass(frozen=True, slots=True)
class AbandonTenure:
    """End the tenure at once, without a write."""


Event: TypeAlias = (
    TimerFired
    | WriteAnswered
    | WorkerRowConfirmed
    | LeaseSeen
    | StoreCheckpoint
    | StorePending
    | StoreMeasurements
    | EndTenure
    | AbandonTenure
)
"""The events of a tenure."""
