"""A tenure as a value: the lease as last confirmed, the write under way, and what the next writes should store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.conditional_write import Write
    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.tenure import events
    from shardway.core.leases.tenure.times import LeaseTimes


class State(StrEnum):
    """The states of a tenure."""

    CLAIMING = "claiming"
    """The take is under way, or was answered so late, or so badly, that a renewal has to follow. Nothing is
    delivered.
    """
    HELD = "held"
    """Records may be delivered, while `Tenure.may_deliver` says so."""
    FENCED = "fenced"
    """The fence fell. Nothing is delivered until it is lifted; the lease may be another's by now."""
    ENDING = "ending"
    """The lease is being given or freed. Nothing is delivered any more."""
    OVER = "over"
    """The tenure is over, and nothing follows."""


class Loss(StrEnum):
    """Why a lease was lost."""

    TAKEN = "taken"
    """Another worker has the lease."""
    GONE = "gone"
    """The row was deleted."""
    UNCONFIRMED = "unconfirmed"
    """No write was confirmed for `LeaseTimes.unconfirmed_max_s`."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The one write that has no outcome yet."""

    write: Write
    first_s: float
    last_s: float
    """The times at which the write was sent first (``first_s``) and last."""
    first_lifts: bool = True
    last_lifts: bool = True
    """True when no fence has fallen since the write was sent first (``first_lifts``), or last. Only such a write lifts
    a fence, because it was sent after the fence fell.
    """
    doubtful: bool = False
    """True from an answer without an outcome until the write is sent again."""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class WantedWrites:
    """The things that the next writes should store."""

    checkpoint: Checkpoint | None = None
    at_once: bool = False
    commit: bool = False
    prepare: events.StorePending | None = None
    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    to: str | None = None
    """The worker that gets the lease in `State.ENDING`. None: the lease is freed."""
    process: str | None = None
    """The process of that worker's name that gets the lease."""


_NO_WRITES = WantedWrites()


@dataclass(frozen=True, slots=True)
class Tenure:
    """The state of one tenure; see the module. Times are the owner's monotonic seconds."""

    state: State
    worker: str
    times: LeaseTimes
    row: LeaseRow
    """The row as it was last confirmed, or as the take found it."""
    lease_s: float
    """The send time of the last confirmed write to the lease; of the take, while there is none."""
    alive_s: float | None
    """The send time of the last confirmed write to the worker's row; None where no other worker looks at such rows."""
    token: int = 0
    """The token of the tenure; 0 until it has begun."""
    sent: PendingWrite | None = None
    wish: WantedWrites = _NO_WRITES

    @property
    def base_s(self) -> float:
        """The time that the fence counts from."""
        return self.lease_s if self.alive_s is None else min(self.lease_s, self.alive_s)

    @property
    def fence_s(self) -> float:
        """The time at which the fence falls, unless a write is confirmed."""
        return self.base_s + self.times.failover_s - self.times.margin_s

    def may_deliver(self, now_s: float) -> bool:
        """True while records may be delivered. The reader asks before each delivery."""
        return self.state is State.HELD and now_s < self.fence_s

    @property
    def renew_at_s(self) -> float:
        """The time at which the next write is due, if none is under way."""
        return self.lease_s + self.times.renew_interval_s

    @property
    def alive_fence_s(self) -> float:
        """The time at which the part of the fence falls that the worker's own row holds up."""
        if self.alive_s is None:
            return float("inf")
        return self.alive_s + self.times.failover_s - self.times.margin_s

    @property
    def wake_at_s(self) -> float | None:
        """The time at which the next `events.TimerFired` is due; None when nothing is waited for."""
        if self.state is State.OVER:
            return None
        times = [self.base_s + self.times.unconfirmed_max_s]
        if self.state is State.HELD:
            times.append(self.fence_s)
        if self.sent is None:
            times.append(self.renew_at_s)
        elif self.sent.doubtful:
            times.append(self.sent.last_s + self.times.retry_s)
        return min(times)
