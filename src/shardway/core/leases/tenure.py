"""A tenure is one worker's hold on one lease from the take to the end: here are its inputs, commands, state, and
machine.

Three rules keep two workers from reading one shard, whatever is slow, lost, repeated or asleep:

1. **Fence.** Records are delivered only until the earlier of (send time of the last confirmed write to the lease, or
   to the worker's own row) + F - margin, on the owner's own clock. No other worker takes the lease before F has passed
   since it *saw* that write. A fallen fence is lifted only by a write to the lease that was sent after it fell, and, if
   a write to the worker's row was missing, after such a write was confirmed.
2. **One write at a time.** A write without an answer is repeated as it was until its outcome is known: the answer to
   a repetition shows it, since a row that shows the write's own changes proves that it was applied. Then it counts from
   the first time it was sent. So an applied write that was answered with an error costs nothing.
3. **Token.** The token is the counter that the take (or the former owner's give) wrote. It grows with every owner.

A row that was deleted under its owner is written anew by it (`writes.restore`), while the fence stands. Once it has
fallen, or a write that gives the lease away may have been applied, another worker may have had the lease: it may
deliver still, or have read the shard to its end, after which the row was deleted rightly. So the tenure is over then,
and what its owner knew goes into a new row only where the list of shards says that one is missing (`Lost.known`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.leases import writes
from shardway.core.leases.row import CHECKPOINT, Checkpoint
from shardway.core.leases.writes import Done, Kind, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.writes import Outcome, Write

# --- times ----------------------------------------------------------------------------------------
# The times that rule leases are all multiples of one: the failover time F.

FAILOVER_S = 10.0
"""The failover time by default, in seconds; the KCL has the same default (``failoverTimeMillis``)."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease in seconds. An owner obeys its own F; a worker that waits for an owner's silence obeys the
    larger of both.
    """

    failover_s: float = FAILOVER_S
    """Another worker may take a lease whose counter has not moved for longer than this."""
    renew_interval_s: float = FAILOVER_S / 2
    """The time from one confirmed write of an owner to the next."""
    margin_s: float = FAILOVER_S / 20
    """An owner stops delivering this much earlier. The margin covers clocks that do not run alike, and a delivery that
    is under way.
    """
    retry_s: float = FAILOVER_S / 40
    """The time after which an owner repeats a write whose outcome is unknown."""
    unconfirmed_max_s: float = FAILOVER_S * 2
    """An owner gives up a lease of which no write was confirmed for this long, even if no other worker is known to have
    it.
    """

    def __post_init__(self) -> None:
        faults = [name for name in self.__slots__ if getattr(self, name) < 0]
        if faults:
            raise ValueError(f"a time is not negative: {', '.join(faults)}")
        if not self.renew_interval_s < self.failover_s - self.margin_s:
            raise ValueError("a lease is renewed before its fence falls: renew_interval_s < failover_s - margin_s")
        if self.unconfirmed_max_s < self.failover_s:
            raise ValueError("unconfirmed_max_s is at least failover_s: until then no worker may have taken the lease")

    @classmethod
    def of(cls, failover_s: float) -> LeaseTimes:
        """Return all times for a failover time, in the proportions of the defaults."""
        return cls(failover_s, failover_s / 2, failover_s / 20, failover_s / 40, failover_s * 2)


# --- inputs, commands, state ----------------------------------------------------------------------


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
    """The reasons for which a lease was lost."""

    TAKEN = "taken"
    """Another worker has the lease."""
    GONE = "gone"
    """The row was deleted."""
    UNCONFIRMED = "unconfirmed"
    """No write was confirmed for `LeaseTimes.unconfirmed_max_s`."""


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: it is told by `Tenure.wake_at_s` at the latest."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The write that was sent last has an outcome."""

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
    """All up to the checkpoint is settled. The checkpoint is stored with the next renewal, or at once."""

    checkpoint: Checkpoint
    at_once: bool = False
    commit: bool = False
    """True: store the checkpoint also while a prepared one is pending, which this removes. False: it waits until none
    is.
    """


@dataclass(frozen=True, slots=True)
class Prepared:
    """Store a checkpoint that is to be committed later."""

    checkpoint: Checkpoint
    state: bytes | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Store these measurements with the next renewal, without a write of their own."""

    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    """The time up to which all is read; see `LeaseRow`. It must hold for the checkpoint that is stored by now."""


@dataclass(frozen=True, slots=True)
class End:
    """End the tenure with a write: give the lease to a worker, or free it; with what was settled last.

    The caller has stopped delivering before it says so.
    """

    to: str | None = None
    process: str | None = None
    """The process of that worker's name, as its row shows it."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """End the tenure at once, without a write."""


Input: TypeAlias = "Tick | Answered | Alive | Saw | Settled | Prepared | Measured | End | Abandon"
"""The inputs of a tenure."""

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
    """Drain, then tell `End` with this worker's name: a KCL leader wants the lease handed to it."""

    to: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The checkpoint is in the table."""

    checkpoint: Checkpoint
    pending: bool = False
    """True: a prepared checkpoint is there as well, and waits to be committed."""


@dataclass(frozen=True, slots=True)
class PendingStored:
    """The prepared checkpoint is in the table."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The take failed. ``row`` is what was found instead; None if that is not known, or nothing was found."""

    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is lost, and the tenure is over. It comes once."""

    why: Loss
    row: LeaseRow | None
    """The row as it was found, if it was found."""
    known: LeaseRow | None = None
    """The lease without an owner, as far as this owner had come, where the row was deleted, or may be."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The tenure has ended as the worker asked. ``row`` is None when it is not known whether the last write was
    done.
    """

    row: LeaseRow | None


Command: TypeAlias = Send | Began | Fenced | Lifted | HandoffAsked | Stored | PendingStored | NotTaken | Lost | Ended
"""The commands of a tenure. Do them in their order."""


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The one write that has no outcome yet."""

    write: Write
    first_s: float
    last_s: float
    """The times at which the write was sent first (``first_s``) and last."""
    first_lifts: bool = True
    last_lifts: bool = True
    """True if the write was sent last after the fence fell, or never fell: such a write lifts it."""
    doubtful: bool = False
    """True from an answer without an outcome until the write is sent again."""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class WantedWrites:
    """The things that the next writes should store."""

    checkpoint: Checkpoint | None = None
    at_once: bool = False
    commit: bool = False
    prepare: Prepared | None = None
    throughput_kib_s: float | None = None
    read_until_ms: int | None = None
    to: str | None = None
    """The worker that gets the lease in `State.ENDING`. None: the lease is freed."""
    process: str | None = None
    """The process of that worker's name that gets the lease."""


_NOTHING = WantedWrites()


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
    wish: WantedWrites = _NOTHING

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
        """The time at which the next `Tick` is due; None when nothing is waited for."""
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


# --- the machine ----------------------------------------------------------------------------------
# The machine of a tenure is a table: (state, input) -> (state, commands).
#
# Values go in and come out: nothing is changed, and the runtime does what the commands say.

Result: TypeAlias = tuple[Tenure, tuple[Command, ...]]
Rule: TypeAlias = "Callable[[Tenure, Any, float], Result]"


def claim(
    row: LeaseRow,
    worker: str,
    times: LeaseTimes,
    now_s: float,
    alive_s: float | None = None,
    process: str | None = None,
    start_ms: int | None = None,
) -> Result:
    """Try to take the lease as ``row`` shows it. ``alive_s``: see `Tenure`; ``process`` and ``start_ms``: see
    `writes.take`.

    It is also for a lease that has this worker's name already, from a former life or a write that came late.
    """
    tenure = Tenure(State.CLAIMING, worker, times, row, now_s, alive_s)
    return _send(tenure, writes.take(row, worker, process, start_ms), now_s)


def receive(
    row: LeaseRow,
    worker: str,
    times: LeaseTimes,
    now_s: float,
    unmoved_s: float,
    alive_s: float | None = None,
    process: str | None = None,
) -> Result:
    """Begin with a lease that its former owner gave to this worker, without a take. Where the row does not say that it
    was given to this process, a take tells which process of the name has it.

    ``unmoved_s`` is the send time of a consistent read that still showed the former counter: no worker has seen the new
    one for longer, so the fence counts from there. A worker that has not made such a read calls `claim`.
    """
    if row.owner != worker or row.checkpoint_owner is not None:
        raise ValueError(f"the lease {row.key} was not given to this worker")
    tenure = Tenure(State.HELD, worker, times, row, unmoved_s, alive_s, row.counter)
    if now_s >= tenure.fence_s or row.process != process:
        return claim(row, worker, times, now_s, alive_s, process)
    tenure, commands = _send(tenure, _next_write(tenure), now_s)
    return tenure, (Began(tenure.token, row), *commands)


def step(tenure: Tenure, given: Input, now_s: float) -> Result:
    """Return what an input makes of a tenure, and what is to be done now. ``now_s`` does not go back."""
    tenure, fallen = _fence(tenure, now_s)
    after, commands = TABLE[tenure.state, type(given)](tenure, given, now_s)
    return after, fallen + commands


# --- the fence ------------------------------------------------------------------------------------


def _fence(tenure: Tenure, now_s: float) -> Result:
    """Let a fence fall whose time has come, before anything else: an input that comes late must not hold it up."""
    if tenure.state is not State.HELD or now_s < tenure.fence_s:
        return tenure, ()
    return replace(tenure, state=State.FENCED, sent=_from_before(tenure.sent)), (Fenced(),)


def _from_before(sent: PendingWrite | None) -> PendingWrite | None:
    return None if sent is None else replace(sent, first_lifts=False, last_lifts=False)


def _alive(tenure: Tenure, given: Alive, now_s: float) -> Result:
    missing = tenure.alive_fence_s <= now_s
    after = replace(tenure, alive_s=given.sent_s if tenure.alive_s is None else max(tenure.alive_s, given.sent_s))
    if tenure.state is not State.FENCED or not missing:
        return after, ()
    # While this row stood still the lease could be taken by its counter as it was then: only a write to the lease that
    # is sent after this shows whether it was.
    after = replace(after, sent=_from_before(after.sent))
    return _send(after, _next_write(after), now_s) if after.sent is None else (after, ())


# --- sending --------------------------------------------------------------------------------------


def _next_write(tenure: Tenure) -> Write:
    row, wish, to = tenure.row, tenure.wish, _storable(tenure)
    if tenure.state is State.ENDING:
        if wish.to is None:
            return writes.free(row, to, wish.read_until_ms)
        return writes.give(row, wish.to, to, wish.process, wish.read_until_ms)
    if wish.prepare is not None:
        return writes.prepare(row, wish.prepare.checkpoint, wish.prepare.state)
    if to is not None:
        return writes.checkpoint(row, to, wish.throughput_kib_s, wish.read_until_ms)
    return writes.renew(row, wish.throughput_kib_s, wish.read_until_ms)


def _storable(tenure: Tenure) -> Checkpoint | None:
    """Return the checkpoint that may be written. It would remove what is pending: that is the application's to
    decide.
    """
    return tenure.wish.checkpoint if tenure.row.pending is None or tenure.wish.commit else None


def _is_due(tenure: Tenure, now_s: float) -> bool:
    if tenure.state is State.ENDING or now_s >= tenure.renew_at_s or tenure.wish.prepare is not None:
        return True
    return tenure.wish.at_once and _storable(tenure) is not None


def _send(tenure: Tenure, write: Write, now_s: float) -> Result:
    return replace(tenure, sent=PendingWrite(write, now_s, now_s)), (Send(write),)


def _work(tenure: Tenure, now_s: float) -> Result:
    """Send what is due: a repetition, or the next write."""
    sent = tenure.sent
    if sent is None:
        return _send(tenure, _next_write(tenure), now_s) if _is_due(tenure, now_s) else (tenure, ())
    if not sent.doubtful or now_s < sent.last_s + tenure.times.retry_s:
        return tenure, ()
    if sent.write.kind is Kind.RESTORE and now_s >= tenure.fence_s:
        return _over(tenure, _lost(Loss.GONE, tenure, sent))
    again = replace(sent, last_s=now_s, last_lifts=True, doubtful=False, repeated=True)
    return replace(tenure, sent=again), (Send(sent.write),)


def _tick(tenure: Tenure, given: Tick, now_s: float) -> Result:
    if now_s < tenure.base_s + tenure.times.unconfirmed_max_s:
        return _work(tenure, now_s)
    if tenure.token == 0:
        return _over(tenure, NotTaken(None))
    if tenure.state is State.ENDING:
        return _over(tenure, Ended(None))
    return _over(tenure, _lost(Loss.UNCONFIRMED, tenure, tenure.sent))


# --- answers --------------------------------------------------------------------------------------


def _answered(tenure: Tenure, given: Answered, now_s: float) -> Result:
    sent, outcome = tenure.sent, given.outcome
    if sent is None:
        raise ValueError(f"no write to the lease {tenure.row.key} is under way")
    if isinstance(outcome, Done):
        if outcome.row is None:
            raise ValueError(f"a write to the lease {tenure.row.key} was answered without a row")
        if sent.write.kind is Kind.RESTORE:
            # The row may have been there with the same counter since the first time, and been deleted once more.
            return _confirmed(tenure, sent, outcome.row, sent.first_s, sent.first_lifts, now_s)
        return _confirmed(tenure, sent, outcome.row, sent.last_s, sent.last_lifts, now_s)
    if isinstance(outcome, Refused):
        return _refused(tenure, sent, outcome.row, now_s)
    return _work(replace(tenure, sent=replace(sent, doubtful=True)), now_s)


def _confirmed(tenure: Tenure, sent: PendingWrite, row: LeaseRow, since_s: float, lifts: bool, now_s: float) -> Result:
    """Go on after a write that is in the table, and was sent at ``since_s`` or later."""
    kind = sent.write.kind
    wish, stored = _fulfilled(tenure.wish, row, kind)
    after = replace(tenure, row=row, lease_s=since_s, sent=None, wish=wish)
    if tenure.state is State.CLAIMING and lifts and now_s < after.fence_s:
        after = replace(after, state=State.HELD, token=row.counter)
        return _and_work(after, (Began(after.token, row), *_handoff(row)), now_s)
    commands: tuple[Command, ...] = (*stored, *_asked(tenure, row))
    if tenure.state is State.ENDING:
        if kind in (Kind.GIVE, Kind.FREE):
            return _over(after, *commands, Ended(row))
        return _and_work(after, commands, now_s)
    if tenure.state is State.FENCED and lifts and now_s < after.fence_s:
        return _and_work(replace(after, state=State.HELD), (*commands, Lifted()), now_s)
    if tenure.state in (State.CLAIMING, State.FENCED) and now_s < after.alive_fence_s:
        # The answer comes too late: another may have the lease already. A new write shows it.
        after, more = _send(after, _next_write(after), now_s)
        return after, commands + more
    return _and_work(after, commands, now_s)


def _refused(tenure: Tenure, sent: PendingWrite, row: LeaseRow | None, now_s: float) -> Result:
    if row is not None and writes.applied(sent.write, row):
        # The write was applied, and answered with an error: at some time since it was first sent. A take may be a
        # former life's of the same name, which came late: it proves nothing of the time, so a renewal has to.
        lifts = sent.first_lifts and sent.write.kind is not Kind.TAKE
        return _confirmed(tenure, sent, row, sent.first_s, lifts, now_s)
    known = tenure.row
    if row is not None and _is_of_same_owner(row, known):
        if sent.write.allowed_on(row.attributes()):  # Nothing that can be seen refused it.
            return replace(tenure, sent=replace(sent, doubtful=True)), ()
        # A handoff was asked for meanwhile, which a look may have shown before. The write is made anew for it.
        if tenure.state is not State.CLAIMING:
            after = replace(tenure, row=row, sent=None)
            after, commands = _send(after, _next_write(after), now_s)
            return after, _asked(tenure, row) + commands
    if tenure.token == 0:
        return _over(tenure, NotTaken(row))
    if _was_deleted(sent, known, row):
        # A hand, or a TTL, has deleted it. Made anew by others it would begin where an application does, and records
        # were passed over.
        return _deleted(tenure, sent, row, now_s)
    if tenure.state is State.ENDING and sent.repeated and row is not None and _is_stored(tenure.wish, row):
        return _over(tenure, Ended(row))  # It was given, and written over by the next owner.
    return _over(tenure, Lost(Loss.GONE if row is None else Loss.TAKEN, row))


def _is_of_same_owner(row: LeaseRow, known: LeaseRow) -> bool:
    """True where at most a handoff was asked for. Another process of the owner's name may have restored the row, with
    the same counter.
    """
    same = row.counter == known.counter and row.actual_owner == known.actual_owner
    return same and row.process == known.process


def _deleted(tenure: Tenure, refused: PendingWrite, row: LeaseRow | None, now_s: float) -> Result:
    """Write the row anew, as long as no other worker can have had the lease. One that had it may have read the shard to
    its end: then the row had served and was deleted rightly, and written anew it would have the shard read again.
    """
    gave = refused.repeated and refused.write.kind in (Kind.GIVE, Kind.FREE)
    if gave or now_s >= tenure.fence_s:
        return _over(tenure, _lost(Loss.GONE, tenure, refused))
    return _send(tenure, writes.restore(tenure.row, row, _maybe_stored(refused)), now_s)


def _lost(why: Loss, tenure: Tenure, sent: PendingWrite | None) -> Lost:
    """Return the loss of a lease whose row is not to be seen, with what is known of the lease."""
    return Lost(why, None, writes.as_known(tenure.row, None if sent is None else _maybe_stored(sent)))


def _maybe_stored(sent: PendingWrite) -> Write | None:
    """Return the write, where it may have been applied before the row was deleted: a write that was repeated, for want
    of an answer.
    """
    return sent.write if sent.repeated or sent.write.kind is Kind.RESTORE else None


def _was_deleted(sent: PendingWrite, known: LeaseRow, row: LeaseRow | None) -> bool:
    """True when the row is gone, or another row without an owner is in its place. It is False once the shard has ended:
    then the row has served.
    """
    if known.ended or sent.write.change_of(CHECKPOINT) == Checkpoint.SHARD_END.text:
        return False
    if row is None:
        return True
    return row.actual_owner is None and row.counter < known.counter and not row.ended


def _is_stored(wish: WantedWrites, row: LeaseRow) -> bool:
    return wish.checkpoint is None or wish.checkpoint <= row.checkpoint


def _fulfilled(wish: WantedWrites, row: LeaseRow, kind: Kind) -> tuple[WantedWrites, tuple[Command, ...]]:
    """Return what is left to be wished after a write, and the commands for what it stored."""
    if kind is Kind.PREPARE:
        if wish.prepare is None or wish.prepare.checkpoint != row.pending:
            return wish, ()  # Another one was asked for meanwhile.
        return replace(wish, prepare=None), (PendingStored(wish.prepare.checkpoint),)
    left = replace(wish, throughput_kib_s=None, read_until_ms=None) if kind in (Kind.RENEW, Kind.CHECKPOINT) else wish
    stored = (Stored(row.checkpoint, row.pending is not None),)
    if wish.checkpoint is None or not _is_stored(wish, row) or (wish.commit and row.pending is not None):
        return left, stored if kind is Kind.CHECKPOINT else ()
    return replace(left, checkpoint=None, at_once=False, commit=False), stored


def _asked(tenure: Tenure, row: LeaseRow) -> tuple[Command, ...]:
    """Return the command for a handoff. A tenure that has not begun says nothing: it says so right after the
    beginning.
    """
    return () if tenure.token == 0 or row.handoff_to == tenure.row.handoff_to else _handoff(row)


def _handoff(row: LeaseRow) -> tuple[Command, ...]:
    to = row.handoff_to
    return () if to in (None, row.actual_owner) else (HandoffAsked(to),)


def _and_work(tenure: Tenure, before: tuple[Command, ...], now_s: float) -> Result:
    after, commands = _work(tenure, now_s)
    return after, before + commands


def _over(tenure: Tenure, *commands: Command) -> Result:
    return replace(tenure, state=State.OVER, sent=None, wish=WantedWrites()), commands


# --- what the worker wants ------------------------------------------------------------------------


def _saw(tenure: Tenure, given: Saw, now_s: float) -> Result:
    row, known, sent = given.row, tenure.row, tenure.sent
    if row.counter > known.counter:
        own = row.actual_owner == tenure.worker and row.process == known.process
        if own or (sent is not None and writes.applied(sent.write, row)):
            return tenure, ()
        return _over(tenure, Lost(Loss.TAKEN, row))
    # An older look may show the time before the handoff was asked for.
    if _is_of_same_owner(row, known) and known.handoff_to is None and row.checkpoint_owner == tenure.worker:
        return replace(tenure, row=row), _asked(tenure, row)
    return tenure, ()


def _settled(tenure: Tenure, given: Settled, now_s: float) -> Result:
    wish = tenure.wish
    furthest = given.checkpoint if wish.checkpoint is None else max(wish.checkpoint, given.checkpoint)
    commit = wish.commit or given.commit
    if furthest <= tenure.row.checkpoint and not (commit and tenure.row.pending is not None):
        return tenure, ()
    wish = replace(
        wish,
        checkpoint=max(furthest, tenure.row.checkpoint),
        commit=commit,
        at_once=wish.at_once or given.at_once or given.commit,
    )
    return _work(replace(tenure, wish=wish), now_s)


def _prepared(tenure: Tenure, given: Prepared, now_s: float) -> Result:
    floor = max(tenure.row.checkpoint, tenure.wish.checkpoint or tenure.row.checkpoint)
    if given.checkpoint < floor:
        raise ValueError(f"{given.checkpoint.text} of {tenure.row.key} cannot be prepared: {floor.text} is settled")
    # A wish to commit was for the checkpoint that was pending before this one. Kept, it would clear this one with the
    # write after next: the next owner would not be told of what was prepared, and a commit would wait for ever.
    return _work(replace(tenure, wish=replace(tenure.wish, prepare=given, commit=False)), now_s)


def _measured(tenure: Tenure, given: Measured, now_s: float) -> Result:
    wish = tenure.wish
    throughput_kib_s = wish.throughput_kib_s if given.throughput_kib_s is None else given.throughput_kib_s
    read_until_ms = wish.read_until_ms if given.read_until_ms is None else given.read_until_ms
    return replace(tenure, wish=replace(wish, throughput_kib_s=throughput_kib_s, read_until_ms=read_until_ms)), ()


def _settled_late(tenure: Tenure, given: Settled, now_s: float) -> Result:
    """Let the last write take a checkpoint along if it is not sent yet."""
    if tenure.token == 0:  # It never began: nothing was delivered.
        return tenure, ()
    furthest = given.checkpoint if tenure.wish.checkpoint is None else max(tenure.wish.checkpoint, given.checkpoint)
    if furthest < tenure.row.checkpoint:
        return tenure, ()
    wish = replace(tenure.wish, checkpoint=furthest, commit=tenure.wish.commit or given.commit)
    return replace(tenure, wish=wish), ()


def _end(tenure: Tenure, given: End, now_s: float) -> Result:
    if given.to == tenure.worker:
        raise ValueError(f"the lease {tenure.row.key} cannot be given to its owner")
    return _work(
        replace(tenure, state=State.ENDING, wish=replace(tenure.wish, to=given.to, process=given.process)), now_s
    )


def _abandon(tenure: Tenure, given: Abandon, now_s: float) -> Result:
    return _over(tenure)


def _ignored(tenure: Tenure, given: Input, now_s: float) -> Result:
    return tenure, ()


_HOLDING: dict[type[Any], Rule] = {
    Tick: _tick,
    Answered: _answered,
    Alive: _alive,
    Saw: _saw,
    Settled: _settled,
    Prepared: _prepared,
    Measured: _measured,
    End: _end,
    Abandon: _abandon,
}
_RULES: dict[State, dict[type[Any], Rule]] = {
    # Nothing was delivered yet, so nothing can be settled.
    State.CLAIMING: _HOLDING | {Saw: _ignored, Settled: _ignored, Prepared: _ignored},
    State.HELD: _HOLDING,
    State.FENCED: _HOLDING,
    State.ENDING: _HOLDING | {Saw: _ignored, Settled: _settled_late, Prepared: _ignored, End: _ignored},
    State.OVER: dict.fromkeys(_HOLDING, _ignored),
}
TABLE: Mapping[tuple[State, type[Any]], Rule] = {
    (state, given): rule for state, rules in _RULES.items() for given, rule in rules.items()
}
"""The rules by state and input, which are complete: every state has a rule for every input."""
