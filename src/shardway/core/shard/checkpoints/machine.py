"""The machine of a tenure's checkpoints is a table: (state, event) -> (checkpoints, commands)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.shard.checkpoints import commands, events
from shardway.core.shard.checkpoints.cadence import due_at_s
from shardway.core.shard.checkpoints.state import ASKED, CLEARS, Checkpoints, Pending, State, Writing
from shardway.errors import CheckpointError
from shardway.policies import PendingChoice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.row import LeaseRow
    from shardway.core.shard.checkpoints.cadence import Cadence
    from shardway.core.shard.checkpoints.state import Progress

Result: TypeAlias = tuple[Checkpoints, tuple[commands.Command, ...]]
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


def step(checkpoints: Checkpoints, event: events.Event, progress: Progress, now_s: float) -> Result:
    """Return what follows from an event. Raises CheckpointError for what a caller may not ask for now."""
    return TABLE[checkpoints.state, type(event)](checkpoints, event, progress, now_s)


def _look(one: Checkpoints, event: events.Look, progress: Progress, now_s: float) -> Result:
    safe = one.safe(progress)
    # This runs for each record that is settled alone. `told` is never before `stored`, so a `safe` that is beyond
    # `told` needs no second comparison; and `one` is copied only where a field changes.
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


def _flush(one: Checkpoints, event: events.Flush, progress: Progress, now_s: float) -> Result:
    wanted = one.wanted(progress)
    return (one, ()) if wanted is None else _ask_to_store(one, wanted, at_once=event.at_once)


def _ask_to_store(one: Checkpoints, to: Checkpoint, *, at_once: bool) -> Result:
    after = one if to <= one.told else one._replace(told=to)
    return after, (tenure_events.StoreCheckpoint(to, at_once=at_once, commit=one.state in CLEARS),)


def _set_bound(one: Checkpoints, event: events.SetBound, progress: Progress, now_s: float) -> Result:
    return one._replace(bound=event.bound), ()


def _note_stored(one: Checkpoints, event: tenure_commands.CheckpointStored, progress: Progress, now_s: float) -> Result:
    """Note that a write has taken a checkpoint along: a write that was asked for, or a renewal that was due anyway."""
    own = one.writing if one.writing is not None and one.writing.checkpoint <= event.checkpoint else None
    settles = not event.pending and (one.state in CLEARS or _is_committed(one, event.checkpoint))
    if own is None and not settles and event.checkpoint <= one.stored:
        return one, ()
    stored = max(one.stored, event.checkpoint)
    after = one._replace(stored=stored, stored_at_s=now_s, told=max(one.told, stored))
    if own is not None:
        after = after._replace(writing=None, records=own.records)
    if not settles:
        return after, ()
    return after._replace(state=State.FREE, pending=None), (commands.Answer(),) if one.state in ASKED else ()


def _is_committed(one: Checkpoints, stored: Checkpoint) -> bool:
    return one.state is State.COMMITTING and one.pending is not None and stored >= one.pending.checkpoint


def _prepare(one: Checkpoints, event: events.Prepare, progress: Progress, now_s: float) -> Result:
    _check_open(one)
    to = event.checkpoint
    if to < one.told:
        raise CheckpointError(
            f"{one.where}: a checkpoint at {_shown(to)} would go back, as all up to {_shown(one.told)} is settled and "
            "checkpointed: prepare before it is settled",
            goes_back=True,
        )
    if to > event.came_to:
        raise CheckpointError(
            f"{one.where}: a checkpoint at {_shown(to)} cannot be prepared: the last record that came is "
            f"{_shown(event.came_to)}; prepare at that one or before it"
        )
    after = one._replace(state=State.PREPARING, pending=Pending(to, event.state))
    return after, (tenure_events.StorePending(to, event.state),)


def _note_pending(one: Checkpoints, event: tenure_commands.PendingStored, progress: Progress, now_s: float) -> Result:
    return one._replace(state=State.PREPARED), (commands.Answer(),)


def _commit(one: Checkpoints, event: events.Commit, progress: Progress, now_s: float) -> Result:
    _check_current(one, event.pending)
    to = event.pending.checkpoint
    safe = one.safe(progress)
    if to > safe:
        raise CheckpointError(
            f"{one.where}: records up to {_shown(to)} were prepared, but only those up to {_shown(safe)} are settled: "
            "settle the others, then commit"
        )
    return one._replace(state=State.COMMITTING, told=max(one.told, to)), (
        tenure_events.StoreCheckpoint(to, commit=True),
    )


def _abandon(one: Checkpoints, event: events.Abandon, progress: Progress, now_s: float) -> Result:
    _check_current(one, event.pending)
    after = one._replace(state=State.ABANDONING, pending=None)
    wanted = after.wanted(progress)
    assert wanted is not None  # There is always a checkpoint to clear the columns with.
    return _ask_to_store(after, wanted, at_once=False)


def _refuse_busy(one: Checkpoints, event: events.Prepare, progress: Progress, now_s: float) -> Result:
    _check_open(one)
    if one.state is State.ABANDONING:
        raise CheckpointError(
            f"{one.where}: the former pending checkpoint is still being abandoned: await its abandon() first"
        )
    raise CheckpointError(
        f"{one.where}: another prepared checkpoint is on its way ({one.state.value}): wait for its answer"
    )


def _refuse_now(one: Checkpoints, event: events.Commit | events.Abandon, progress: Progress, now_s: float) -> Result:
    _check_current(one, event.pending)
    raise CheckpointError(f"{one.where}: that checkpoint is on its way ({one.state.value}): wait for its answer")


def _check_current(one: Checkpoints, pending: Pending) -> None:
    """Raise CheckpointError where the pending checkpoint is not the one that the caller means."""
    _check_open(one)
    if one.pending is not pending:
        raise CheckpointError(f"{one.where}: that checkpoint is not pending any more: prepare another one")


def _check_open(one: Checkpoints) -> None:
    if one.closed is not None:
        raise _error_gone(one.where, one.closed)


def _close(one: Checkpoints, event: events.Close, progress: Progress, now_s: float) -> Result:
    if one.closed is not None:
        return one, ()
    answer = (commands.Answer(_error_gone(one.where, event.reason)),) if one.state in ASKED else ()
    return one._replace(closed=event.reason), answer


def _error_gone(where: str, reason: str) -> CheckpointError:
    return CheckpointError(f"{where}: the shard is not held any more ({reason}): its next owner is told")


def _shown(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.text}/{checkpoint.sub_sequence_number}" if checkpoint.is_position else checkpoint.text


def _ignore(one: Checkpoints, event: events.Event, progress: Progress, now_s: float) -> Result:
    return one, ()


_ALWAYS: dict[type[Any], Rule] = {
    events.SetBound: _set_bound,
    tenure_commands.CheckpointStored: _note_stored,
    tenure_commands.PendingStored: _ignore,
    events.Close: _close,
}
_STORES: dict[type[Any], Rule] = _ALWAYS | {
    events.Look: _look,
    events.Flush: _flush,
    events.Commit: _refuse_now,
    events.Abandon: _refuse_now,
}
_WAITS: dict[type[Any], Rule] = _ALWAYS | {events.Look: _ignore, events.Flush: _ignore}
_RULES: dict[State, dict[type[Any], Rule]] = {
    State.FREE: _STORES | {events.Prepare: _prepare},
    State.CLEARING: _STORES | {events.Prepare: _prepare},
    State.PREPARING: (
        _WAITS
        | {
            events.Prepare: _refuse_busy,
            events.Commit: _refuse_now,
            events.Abandon: _refuse_now,
            tenure_commands.PendingStored: _note_pending,
        }
    ),
    State.PREPARED: _WAITS | {events.Prepare: _prepare, events.Commit: _commit, events.Abandon: _abandon},
    State.COMMITTING: _WAITS | {events.Prepare: _refuse_busy, events.Commit: _refuse_now, events.Abandon: _refuse_now},
    State.ABANDONING: _STORES | {events.Prepare: _refuse_busy},
}
TABLE: Mapping[tuple[State, type[Any]], Rule] = {
    (state, event): rule for state, rules in _RULES.items() for event, rule in rules.items()
}
"""The rules by state and event, which are complete: every state has a rule for every event."""
