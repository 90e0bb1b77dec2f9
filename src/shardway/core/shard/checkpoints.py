"""One machine for a tenure decides how far the checkpoint of a shard goes, and when it is stored.

The shard's machine asks it by `step`: an input, how far the ledger is (`Progress`), and the time. Its answers are
events of the lease's machine (`shardway.core.leases.tenure`): `StoreCheckpoint`, which a renewal carries or a write of
its own, and `StorePending`; and `Answer` for the caller that waits. What the lease's machine says of its writes,
`CheckpointStored` and `PendingStored`, are inputs here. So a checkpoint is on its way from the ledger to the lease in
one step.

A checkpoint in two phases is first stored as pending, in the KCL's columns, and then committed. Each ordinary
checkpoint clears those columns. So none is stored while one is pending:

| state | what is settled | `Prepare` | `Commit` | `Abandon` | `PendingStored` | `CheckpointStored`, none pending |
|---|---|---|---|---|---|---|
| `FREE` | is stored | PREPARING | refused | refused | - | FREE |
| `CLEARING` | is stored, and clears | PREPARING | refused | refused | - | FREE |
| `PREPARING` | waits | refused | refused | refused | PREPARED, answer | PREPARING |
| `PREPARED` | waits | PREPARING | COMMITTING | ABANDONING | - | PREPARED |
| `COMMITTING` | waits | refused | refused | refused | - | FREE, answer |
| `ABANDONING` | is stored, and clears | refused | refused | refused | - | FREE, answer |

What is refused raises CheckpointError, and changes nothing. `Close` keeps the state: what was asked for before the end
is still stored with the tenure's last write, but callers are refused, and the caller that waits has its answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.options.base import Options
from shardway.errors import CheckpointError
from shardway.policies import PendingChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.row import LeaseRow

# --- when: the cadence ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Riding:
    """Checkpoints are written only with the renewals of the leases, and when the worker lets a shard go as planned."""


class Every(Options, frozen=True, kw_only=True):
    """Checkpoints are also written when ``records`` records were settled since the last one, or when ``seconds``
    seconds have passed since it and any record was settled.
    """

    records: Annotated[int, Meta(gt=0)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None

    def _rules(self) -> Iterator[str]:
        if self.records is self.seconds is None:
            yield "Every: give records or seconds or both"


@dataclass(frozen=True, slots=True)
class Prompt:
    """Checkpoints also go whenever a record was settled, one write at a time: a crash repeats what is unsettled and
    little else.
    """


Cadence: TypeAlias = Riding | Every | Prompt


def due_at_s(cadence: Cadence, records: int, stored_at_s: float) -> float:
    """Return when a write of its own is due for what is settled and not stored. ``records`` were settled since the last
    checkpoint, which was stored at ``stored_at_s``. Infinity: it is not due before more is settled.
    """
    if isinstance(cadence, Riding):
        return math.inf
    if isinstance(cadence, Prompt) or (cadence.records is not None and records >= cadence.records):
        return -math.inf
    return math.inf if cadence.seconds is None else stored_at_s + cadence.seconds


# --- values ---------------------------------------------------------------------------------------


class State(StrEnum):
    """The states of the checkpoints: what becomes of what is settled, and of a checkpoint in two phases."""

    FREE = "free"
    """What is settled is stored, by the cadence."""
    CLEARING = "clearing"
    """What is settled is stored, by the cadence. The former owner has left a pending checkpoint, which the next write
    clears.
    """
    PREPARING = "preparing"
    """A checkpoint is on its way to be pending. Nothing else is stored."""
    PREPARED = "prepared"
    """A checkpoint is pending. Nothing else is stored."""
    COMMITTING = "committing"
    """The pending checkpoint is on its way to be the checkpoint."""
    ABANDONING = "abandoning"
    """The pending checkpoint does not count any more, and a write that clears it is on its way. What is settled
    meanwhile may go along.
    """


IDLE = (State.FREE, State.CLEARING, State.ABANDONING)
"""The states without a pending checkpoint that counts: what is settled is stored."""
CLEARS = (State.CLEARING, State.ABANDONING)
"""The states whose next write clears the columns of a pending checkpoint, also where nothing new is settled."""
ASKED = (State.PREPARING, State.COMMITTING, State.ABANDONING)
"""The states in which a caller waits for a write."""


class Pending(NamedTuple):
    """A prepared checkpoint."""

    checkpoint: Checkpoint
    state: bytes | None
    """The application's own bytes, which the next owner is given."""


class Progress(NamedTuple):
    """The progress of a ledger."""

    safe: Checkpoint
    """The checkpoint up to which all is settled, and may be stored."""
    records: int
    """The number of records that were settled in this tenure, up to ``safe``; any number where the cadence does not
    count them.
    """


class Writing(NamedTuple):
    """A write of its own that the lease's machine was asked for."""

    checkpoint: Checkpoint
    records: int
    """The records that `Progress` counted."""


class Checkpoints(NamedTuple):
    """The checkpoints of one tenure. No write that they ask for is known to have failed: the lease's machine repeats
    each until it is stored, or the tenure is over.
    """

    where: str
    """The stream and the shard, for errors."""
    cadence: Cadence
    stored: Checkpoint
    """The checkpoint that the lease is known to hold."""
    stored_at_s: float
    told: Checkpoint
    """The furthest checkpoint that the lease's machine was told. It never goes back, as that machine would not either:
    not with a seek, and not with a bound that is set back. It is never before ``stored``.
    """
    state: State = State.FREE
    bound: Checkpoint | None = None
    """The checkpoint behind which nothing is checkpointed, settled or not, nor is the shard stored as ended. None: what
    is settled is checkpointed.
    """
    pending: Pending | None = None
    """The checkpoint that is pending, from `Prepare` on, until it is committed or abandoned."""
    writing: Writing | None = None
    """The write of its own that is on its way; there is at most one."""
    records: int = 0
    """The records that `Progress` counted when the last write of its own that is stored was asked for."""
    closed: str | None = None
    """The reason why the tenure is over; None: it is not."""

    @property
    def idle(self) -> bool:
        """True when no checkpoint is pending, or on its way to be."""
        return self.state in IDLE

    @property
    def counts(self) -> bool:
        """True when it matters how many records are settled."""
        return type(self.cadence) is Every

    def safe(self, progress: Progress) -> Checkpoint:
        """Return the furthest checkpoint that may be stored."""
        return progress.safe if self.bound is None else min(progress.safe, self.bound)

    def wanted(self, progress: Progress) -> Checkpoint | None:
        """Return the checkpoint that a renewal carries, or the tenure's last write; None: there is nothing new."""
        if self.state not in IDLE:
            return None
        safe = self.safe(progress)
        if safe > self.stored:
            return safe
        return self.stored if self.state in CLEARS else None

    def wake_at_s(self, progress: Progress) -> float:
        """Return when `Look` may lead to a write though nothing else happens; infinity: never."""
        if self.writing is not None or type(self.cadence) is Riding or self.wanted(progress) is None:
            return math.inf
        return due_at_s(self.cadence, progress.records - self.records, self.stored_at_s)


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """More may be settled, or time has passed."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Store what is settled by now, new or not: at once, or with the next write, whatever that is."""

    at_once: bool = False


@dataclass(frozen=True, slots=True)
class SetBound:
    """Let checkpoints go up to this bound, and no further."""

    bound: Checkpoint


@dataclass(frozen=True, slots=True)
class Prepare:
    """Store a checkpoint as pending. It takes the place of a checkpoint that is pending."""

    checkpoint: Checkpoint
    state: bytes | None
    came_to: Checkpoint
    """The checkpoint at which the records that came end: none may be prepared behind it."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Make the pending checkpoint the checkpoint."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Abandon:
    """Let the pending checkpoint go: what is settled is stored again."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Close:
    """The tenure is over, or reading is: the next owner is told what is pending."""

    reason: str


Input: TypeAlias = (
    Look
    | Flush
    | SetBound
    | Prepare
    | Commit
    | Abandon
    | tenure_commands.CheckpointStored
    | tenure_commands.PendingStored
    | Close
)

# --- outputs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """The write that a caller asked for last is done; or the error says why it is not known to be."""

    error: CheckpointError | None = None


Output: TypeAlias = tenure_events.StoreCheckpoint | tenure_events.StorePending | Answer
Result: TypeAlias = tuple[Checkpoints, tuple[Output, ...]]
Rule: TypeAlias = "Callable[[Checkpoints, Any, Progress, float], Result]"


class Begun(NamedTuple):
    """The checkpoints of a new tenure, and the places from which it goes on."""

    checkpoints: Checkpoints
    settled: Checkpoint
    """The checkpoint up to which all is settled."""
    wanted: Checkpoint
    """The checkpoint up to which nothing is to be delivered."""


def begin(
    row: LeaseRow, choice: PendingChoice, *, where: str, cadence: Cadence, bound: Checkpoint | None, now_s: float
) -> Begun:
    """Begin a tenure with the lease as ``row`` has it. ``choice``: what becomes of a checkpoint that is pending."""
    stored, pending = row.checkpoint, row.pending
    checkpoints = Checkpoints(where, cadence, stored, now_s, told=stored, bound=bound)
    if pending is None:
        return Begun(checkpoints, stored, stored)
    if choice is PendingChoice.KEEP:
        kept = checkpoints._replace(state=State.PREPARED, pending=Pending(pending, row.pending_state))
        return Begun(kept, stored, stored)
    clearing = checkpoints._replace(state=State.CLEARING)
    if choice is PendingChoice.ABANDON or pending < stored:
        return Begun(clearing, stored, stored)
    # A pending checkpoint at the shard's end does not end it: its children have to be found first, by reading to it.
    return Begun(clearing, stored if pending.is_end else pending, pending)


def step(checkpoints: Checkpoints, given: Input, progress: Progress, now_s: float) -> Result:
    """Return what follows from an input. Raises CheckpointError for what a caller may not ask for now."""
    return TABLE[checkpoints.state, type(given)](checkpoints, given, progress, now_s)


# --- what is settled ------------------------------------------------------------------------------


def _look(one: Checkpoints, given: Look, progress: Progress, now_s: float) -> Result:
    safe = one.safe(progress)
    # This is done for each record that is settled alone. So what is further than was told is not compared with what is
    # stored as well, and what does not change is not made anew.
    is_news = safe > one.told
    wanted = safe if is_news else one.wanted(progress)
    if wanted is None:
        return one, ()
    due = one.writing is None and now_s >= due_at_s(one.cadence, progress.records - one.records, one.stored_at_s)
    # Nothing follows a shard's end, and its children wait for it.
    at_once = due or safe.is_end
    if not is_news and not at_once:
        return one, ()
    if at_once and one.writing is None:
        one = one._replace(writing=Writing(wanted, progress.records))
    if is_news:
        one = one._replace(told=wanted)
    return one, (tenure_events.StoreCheckpoint(wanted, at_once, one.state in CLEARS),)


def _flush(one: Checkpoints, given: Flush, progress: Progress, now_s: float) -> Result:
    wanted = one.wanted(progress)
    return (one, ()) if wanted is None else _tell(one, wanted, at_once=given.at_once)


def _tell(one: Checkpoints, to: Checkpoint, *, at_once: bool) -> Result:
    after = one if to <= one.told else one._replace(told=to)
    return after, (tenure_events.StoreCheckpoint(to, at_once=at_once, commit=one.state in CLEARS),)


def _set_bound(one: Checkpoints, given: SetBound, progress: Progress, now_s: float) -> Result:
    return one._replace(bound=given.bound), ()


def _stored(one: Checkpoints, given: tenure_commands.CheckpointStored, progress: Progress, now_s: float) -> Result:
    """Note that a write has taken a checkpoint along: a write that was asked for, or a renewal that was due anyway."""
    own = one.writing if one.writing is not None and one.writing.checkpoint <= given.checkpoint else None
    settles = not given.pending and (one.state in CLEARS or _is_committed(one, given.checkpoint))
    if own is None and not settles and given.checkpoint <= one.stored:
        return one, ()
    stored = max(one.stored, given.checkpoint)
    after = one._replace(stored=stored, stored_at_s=now_s, told=max(one.told, stored))
    if own is not None:
        after = after._replace(writing=None, records=own.records)
    if not settles:
        return after, ()
    return after._replace(state=State.FREE, pending=None), (Answer(),) if one.state in ASKED else ()


def _is_committed(one: Checkpoints, stored: Checkpoint) -> bool:
    return one.state is State.COMMITTING and one.pending is not None and stored >= one.pending.checkpoint


# --- two phases -----------------------------------------------------------------------------------


def _prepare(one: Checkpoints, given: Prepare, progress: Progress, now_s: float) -> Result:
    _check_open(one)
    to = given.checkpoint
    if to < one.told:
        raise CheckpointError(
            f"{one.where}: a checkpoint at {_shown(to)} would go back, as all up to {_shown(one.told)} is settled and "
            "checkpointed: prepare before it is settled"
        )
    if to > given.came_to:
        raise CheckpointError(
            f"{one.where}: a checkpoint at {_shown(to)} lies behind the last record, {_shown(given.came_to)}"
        )
    after = one._replace(state=State.PREPARING, pending=Pending(to, given.state))
    return after, (tenure_events.StorePending(to, given.state),)


def _pending_stored(one: Checkpoints, given: tenure_commands.PendingStored, progress: Progress, now_s: float) -> Result:
    return one._replace(state=State.PREPARED), (Answer(),)


def _commit(one: Checkpoints, given: Commit, progress: Progress, now_s: float) -> Result:
    _check_current(one, given.pending)
    to = given.pending.checkpoint
    safe = one.safe(progress)
    if to > safe:
        raise CheckpointError(
            f"{one.where}: records up to {_shown(to)} were prepared, but only those up to {_shown(safe)} are settled: "
            "settle the others, then commit"
        )
    return one._replace(state=State.COMMITTING, told=max(one.told, to)), (
        tenure_events.StoreCheckpoint(to, commit=True),
    )


def _abandon(one: Checkpoints, given: Abandon, progress: Progress, now_s: float) -> Result:
    _check_current(one, given.pending)
    after = one._replace(state=State.ABANDONING, pending=None)
    wanted = after.wanted(progress)
    assert wanted is not None  # There is always a checkpoint to clear the columns with.
    return _tell(after, wanted, at_once=False)


def _busy(one: Checkpoints, given: Prepare, progress: Progress, now_s: float) -> Result:
    _check_open(one)
    if one.state is State.ABANDONING:
        raise CheckpointError(f"{one.where}: the one before is being abandoned: wait for that")
    raise CheckpointError(
        f"{one.where}: another prepared checkpoint is on its way ({one.state.value}): wait for its answer"
    )


def _not_now(one: Checkpoints, given: Commit | Abandon, progress: Progress, now_s: float) -> Result:
    _check_current(one, given.pending)
    raise CheckpointError(f"{one.where}: that checkpoint is on its way ({one.state.value}): wait for its answer")


def _check_current(one: Checkpoints, pending: Pending) -> None:
    """Raise CheckpointError where the pending checkpoint is not the one that the caller means."""
    _check_open(one)
    if one.pending is not pending:
        raise CheckpointError(f"{one.where}: that checkpoint is not pending any more: prepare another one")


def _check_open(one: Checkpoints) -> None:
    if one.closed is not None:
        raise _gone(one.where, one.closed)


def _close(one: Checkpoints, given: Close, progress: Progress, now_s: float) -> Result:
    if one.closed is not None:
        return one, ()
    answer = (Answer(_gone(one.where, given.reason)),) if one.state in ASKED else ()
    return one._replace(closed=given.reason), answer


def _gone(where: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{where}: the shard is not held any more ({reason}): its next owner is told")


def _shown(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.text}/{checkpoint.sub_sequence_number}" if checkpoint.is_position else checkpoint.text


def _ignored(one: Checkpoints, given: Input, progress: Progress, now_s: float) -> Result:
    return one, ()


_ALWAYS: dict[type[Any], Rule] = {
    SetBound: _set_bound,
    tenure_commands.CheckpointStored: _stored,
    tenure_commands.PendingStored: _ignored,
    Close: _close,
}
_STORES: dict[type[Any], Rule] = _ALWAYS | {Look: _look, Flush: _flush, Commit: _not_now, Abandon: _not_now}
_WAITS: dict[type[Any], Rule] = _ALWAYS | {Look: _ignored, Flush: _ignored}
_RULES: dict[State, dict[type[Any], Rule]] = {
    State.FREE: _STORES | {Prepare: _prepare},
    State.CLEARING: _STORES | {Prepare: _prepare},
    State.PREPARING: (
        _WAITS | {Prepare: _busy, Commit: _not_now, Abandon: _not_now, tenure_commands.PendingStored: _pending_stored}
    ),
    State.PREPARED: _WAITS | {Prepare: _prepare, Commit: _commit, Abandon: _abandon},
    State.COMMITTING: _WAITS | {Prepare: _busy, Commit: _not_now, Abandon: _not_now},
    State.ABANDONING: _STORES | {Prepare: _busy},
}
TABLE: Mapping[tuple[State, type[Any]], Rule] = {
    (state, given): rule for state, rules in _RULES.items() for given, rule in rules.items()
}
"""The rules by state and input, which are complete: every state has a rule for every input."""
