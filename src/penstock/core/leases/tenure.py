"""A tenure, one worker's hold on one lease from the take to the end: its inputs, its commands, and its state.

`penstock.core.leases.steps` is the machine over these values. Three rules keep two workers from reading one shard,
whatever is slow, lost, repeated or asleep:

1. **Fence.** Records are delivered only until the earlier of (send time of the last confirmed write to the lease, or
   to the worker's own row) + F - margin, on the owner's own clock. No other worker takes the lease before F has passed
   since it *saw* that write. A fallen fence is lifted only by a write to the lease that was sent after it fell, and, if
   a write to the worker's row was missing, after such a write was confirmed.
2. **One write at a time.** A write without an answer is repeated as it was until its outcome is known: the answer to
   a repetition tells, since a row that shows the write's own changes proves that it was applied. Then it counts from
   the first time it was sent. So an applied write that was answered with an error costs nothing.
3. **Token.** The counter that the take (or the former owner's give) wrote. It grows with every owner.

A row that was deleted under its owner is written anew by it (`writes.restore`), while the fence stands. Once it has
fallen, or a write that gives the lease away may have been applied, another worker may have had the lease: it may
deliver still, or have read the shard to its end, after which the row was deleted rightly. So the tenure is over then,
and what its owner knew goes into a new row only where the list of shards says that one is missing (`Lost.known`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.core.leases.row import LeaseRow
    from penstock.core.leases.times import LeaseTimes
    from penstock.core.leases.writes import Outcome, Write


class State(StrEnum):
    """Where a tenure is."""

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
    """Nothing follows."""


class Loss(StrEnum):
    """Why a tenure ended against its will."""

    TAKEN = "taken"
    """Another worker has the lease."""
    GONE = "gone"
    """The row was deleted."""
    UNCONFIRMED = "unconfirmed"
    """No write was confirmed for `LeaseTimes.unconfirmed_max_s`."""


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: by `Tenure.wake_at_s` at the latest."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of the write that was sent last."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Alive:
    """A write to this worker's own row was confirmed, which was sent at ``sent_s``."""

    sent_s: float


@dataclass(frozen=True, slots=True)
class Saw:
    """The lease's row, as a look at the table showed it. It may be old."""

    row: LeaseRow


@dataclass(frozen=True, slots=True)
class Settled:
    """All up to the checkpoint is settled. It is stored with the next renewal, or at once."""

    checkpoint: Checkpoint
    at_once: bool = False
    commit: bool = False
    """True: store it also while a prepared checkpoint is pending, which this removes. False: it waits until none is."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Store a checkpoint that is to be committed later."""

    checkpoint: Checkpoint
    state: bytes | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What to store with the next renewal, without a write of its own."""

    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    """See `LeaseRow`: it must hold for the checkpoint that is stored by now."""


@dataclass(frozen=True, slots=True)
class End:
    """End the tenure with a write: give the lease to a worker, or free it; with what was settled last.

    The caller has stopped delivering before it says so.
    """

    to: str | None = None
    process: str | None = None
    """Which process of that worker's name, as its row tells."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """End the tenure here and now, without a write."""


Input: TypeAlias = "Tick | Answered | Alive | Saw | Settled | Prepared | Measured | End | Abandon"
"""All that a tenure is told."""

# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Write to the table, and answer with `Answered`. The time of the step counts as the send time."""

    write: Write


@dataclass(frozen=True, slots=True)
class Began:
    """The lease is held: read from the row's checkpoint on."""

    token: int
    row: LeaseRow


@dataclass(frozen=True, slots=True)
class Fenced:
    """Stop delivering: writes are not confirmed."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """Go on delivering: no other worker had the lease meanwhile."""


@dataclass(frozen=True, slots=True)
class HandoffAsked:
    """A KCL leader wants the lease handed to this worker: drain, then `End` with its name."""

    to: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The checkpoint is in the table."""

    checkpoint: Checkpoint
    pending: bool = False
    """True: a prepared one is there as well, and waits to be committed."""


@dataclass(frozen=True, slots=True)
class PendingStored:
    """The prepared checkpoint is in the table."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The take failed: ``row`` is what was found in place of it, None if that is not known, or nothing was."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The tenure is over against its will. Comes once."""

    why: Loss
    row: LeaseRow | None
    """As it was found, if it was."""
    known: LeaseRow | None = None
    """Where the row was deleted, or may be: a lease without an owner, as far as this one had come."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The tenure is over as it was asked for. ``row`` is None when it is not known whether the last write was done."""

    row: LeaseRow | None


Command: TypeAlias = Send | Began | Fenced | Lifted | HandoffAsked | Stored | PendingStored | NotTaken | Lost | Ended
"""All that a tenure says. Do them in their order."""


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """The one write that has no outcome yet."""

    write: Write
    first_s: float
    last_s: float
    """When it was sent for the first and for the last time."""
    first_lifts: bool = True
    last_lifts: bool = True
    """True if it was sent after the fence fell, or never fell: such a write lifts it."""
    doubtful: bool = False
    """True from an answer that told nothing until it is sent again."""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What the next writes should store."""

    checkpoint: Checkpoint | None = None
    at_once: bool = False
    commit: bool = False
    prepare: Prepared | None = None
    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    to: str | None = None
    """With `State.ENDING`: the worker that gets the lease. None: the lease is freed."""
    process: str | None = None
    """The process of that worker's name that gets the lease."""


_NOTHING = Wish()


@dataclass(frozen=True, slots=True)
class Tenure:
    """See the module. Times are the owner's monotonic seconds."""

    state: State
    worker: str
    times: LeaseTimes
    row: LeaseRow
    """As it was last confirmed, or as the take found it."""
    lease_s: float
    """Send time of the last confirmed write to the lease; of the take, while there is none."""
    alive_s: float | None
    """Send time of the last confirmed write to the worker's row; None where no other worker looks at such rows."""
    token: int = 0
    """0 until it has begun."""
    sent: Sent | None = None
    wish: Wish = _NOTHING

    @property
    def base_s(self) -> float:
        """What the fence counts from."""
        return self.lease_s if self.alive_s is None else min(self.lease_s, self.alive_s)

    @property
    def fence_s(self) -> float:
        """When the fence falls, unless a write is confirmed."""
        return self.base_s + self.times.failover_s - self.times.margin_s

    def may_deliver(self, now_s: float) -> bool:
        """True while records may be delivered. The reader asks before each delivery."""
        return self.state is State.HELD and now_s < self.fence_s

    @property
    def renew_at_s(self) -> float:
        """When the next write is due, if none is under way."""
        return self.lease_s + self.times.renew_interval_s

    @property
    def alive_fence_s(self) -> float:
        """When the part of the fence falls that the worker's own row holds up."""
        if self.alive_s is None:
            return float("inf")
        return self.alive_s + self.times.failover_s - self.times.margin_s

    @property
    def wake_at_s(self) -> float | None:
        """When the next `Tick` is due; None when nothing is waited for."""
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
