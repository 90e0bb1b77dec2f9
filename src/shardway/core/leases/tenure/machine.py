"""The machine of a tenure is a table: (state, event) -> (state, commands).

Values go in and come out: nothing is changed, and the runtime does what the commands say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.leases import conditional_write, writes
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.conditional_write import Done, Kind, Refused
from shardway.core.leases.row import CHECKPOINT
from shardway.core.leases.tenure import commands, events
from shardway.core.leases.tenure.state import Loss, PendingWrite, State, Tenure, WantedWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shardway.core.leases.conditional_write import Write
    from shardway.core.leases.row import LeaseRow
    from shardway.core.leases.tenure.times import LeaseTimes


Result: TypeAlias = tuple[Tenure, tuple[commands.Command, ...]]
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
    tenure, follows = _send(tenure, _next_write(tenure), now_s)
    return tenure, (commands.TenureBegan(tenure.token, row), *follows)


def step(tenure: Tenure, event: events.Event, now_s: float) -> Result:
    """Return what an event makes of a tenure, and what is to be done now. ``now_s`` does not go back."""
    tenure, fallen = _fence(tenure, now_s)
    after, follows = TABLE[tenure.state, type(event)](tenure, event, now_s)
    return after, fallen + follows


def _fence(tenure: Tenure, now_s: float) -> Result:
    """Let a fence fall whose time has come, before anything else: an event that comes late must not hold it up."""
    if tenure.state is not State.HELD or now_s < tenure.fence_s:
        return tenure, ()
    return replace(tenure, state=State.FENCED, sent=_without_lifting(tenure.sent)), (commands.FenceFell(),)


def _without_lifting(sent: PendingWrite | None) -> PendingWrite | None:
    return None if sent is None else replace(sent, first_lifts=False, last_lifts=False)


def _confirm_worker_row(tenure: Tenure, event: events.WorkerRowConfirmed, now_s: float) -> Result:
    missing = tenure.alive_fence_s <= now_s
    after = replace(tenure, alive_s=event.sent_s if tenure.alive_s is None else max(tenure.alive_s, event.sent_s))
    if tenure.state is not State.FENCED or not missing:
        return after, ()
    # While this row stood still the lease could be taken by its counter as it was then: only a write to the lease that
    # is sent after this shows whether it was.
    after = replace(after, sent=_without_lifting(after.sent))
    return _send(after, _next_write(after), now_s) if after.sent is None else (after, ())


def _next_write(tenure: Tenure) -> Write:
    row, wish, to = tenure.row, tenure.wish, _storable(tenure)
    if tenure.state is State.ENDING:
        if wish.to is None:
            return writes.free(row, to, wish.read_until_ms)
        return writes.give(row, wish.to, to, wish.process, wish.read_until_ms)
    if wish.prepare is not None and not _commits_first(tenure):
        return writes.prepare(row, wish.prepare.checkpoint, wish.prepare.state)
    if to is not None:
        return writes.checkpoint(row, to, wish.throughput_kib_s, wish.read_until_ms)
    return writes.renew(row, wish.throughput_kib_s, wish.read_until_ms)


def _storable(tenure: Tenure) -> Checkpoint | None:
    """Return the checkpoint that may be written. It would remove what is pending: that is the application's to
    decide.
    """
    return tenure.wish.checkpoint if tenure.row.pending is None or tenure.wish.commit else None


def _commits_first(tenure: Tenure) -> bool:
    """Return whether a checkpoint that is pending in the row has to be committed before another one becomes pending.
    Its transaction is done. The columns have room for one: overwritten, a next owner would begin before it, and do it
    again.
    """
    wish, row = tenure.wish, tenure.row
    return wish.commit and row.pending is not None and wish.checkpoint is not None and wish.checkpoint > row.checkpoint


def _is_due(tenure: Tenure, now_s: float) -> bool:
    if tenure.state is State.ENDING or now_s >= tenure.renew_at_s or tenure.wish.prepare is not None:
        return True
    return tenure.wish.at_once and _storable(tenure) is not None


def _send(tenure: Tenure, write: Write, now_s: float) -> Result:
    return replace(tenure, sent=PendingWrite(write, now_s, now_s)), (commands.SendWrite(write),)


def _work(tenure: Tenure, now_s: float) -> Result:
    """Send what is due: a repetition, or the next write."""
    sent = tenure.sent
    if sent is None:
        return _send(tenure, _next_write(tenure), now_s) if _is_due(tenure, now_s) else (tenure, ())
    if not sent.doubtful or now_s < sent.last_s + tenure.times.retry_s:
        return tenure, ()
    if sent.write.kind is Kind.RESTORE and now_s >= tenure.fence_s:
        return _finish(tenure, _loss_of(Loss.GONE, tenure, sent))
    again = replace(sent, last_s=now_s, last_lifts=True, doubtful=False, repeated=True)
    return replace(tenure, sent=again), (commands.SendWrite(sent.write),)


def _look_at_time(tenure: Tenure, event: events.TimerFired, now_s: float) -> Result:
    if now_s < tenure.base_s + tenure.times.unconfirmed_max_s:
        return _work(tenure, now_s)
    if tenure.token == 0:
        return _finish(tenure, commands.TakeFailed(None))
    if tenure.state is State.ENDING:
        return _finish(tenure, commands.TenureEnded(None))
    return _finish(tenure, _loss_of(Loss.UNCONFIRMED, tenure, tenure.sent))


def _answer_write(tenure: Tenure, event: events.WriteAnswered, now_s: float) -> Result:
    sent, outcome = tenure.sent, event.outcome
    if sent is None:
        raise ValueError(f"no write to the lease {tenure.row.key} is under way")
    if isinstance(outcome, Done):
        if outcome.row is None:
            raise ValueError(f"a write to the lease {tenure.row.key} was answered without a row")
        if sent.write.kind is Kind.RESTORE:
            # The row may have been there with the same counter since the first time, and been deleted once more.
            return _confirm(tenure, sent, outcome.row, sent.first_s, sent.first_lifts, now_s)
        return _confirm(tenure, sent, outcome.row, sent.last_s, sent.last_lifts, now_s)
    if isinstance(outcome, Refused):
        return _refuse(tenure, sent, outcome.row, now_s)
    return _work(replace(tenure, sent=replace(sent, doubtful=True)), now_s)


def _confirm(tenure: Tenure, sent: PendingWrite, row: LeaseRow, since_s: float, lifts: bool, now_s: float) -> Result:
    """Go on after a write that is in the table, and was sent at ``since_s`` or later."""
    kind = sent.write.kind
    wish, stored = _fulfil(tenure.wish, row, kind)
    after = replace(tenure, row=row, lease_s=since_s, sent=None, wish=wish)
    if tenure.state is State.CLAIMING and lifts and now_s < after.fence_s:
        after = replace(after, state=State.HELD, token=row.counter)
        return _and_work(after, (commands.TenureBegan(after.token, row), *_handoff(row)), now_s)
    follows: tuple[commands.Command, ...] = (*stored, *_new_handoff(tenure, row))
    if tenure.state is State.ENDING:
        if kind in (Kind.GIVE, Kind.FREE):
            return _finish(after, *follows, commands.TenureEnded(row))
        return _and_work(after, follows, now_s)
    if tenure.state is State.FENCED and lifts and now_s < after.fence_s:
        return _and_work(replace(after, state=State.HELD), (*follows, commands.FenceLifted()), now_s)
    if tenure.state in (State.CLAIMING, State.FENCED) and now_s < after.alive_fence_s:
        # The answer comes too late: another may have the lease already. A new write shows it.
        after, more = _send(after, _next_write(after), now_s)
        return after, follows + more
    return _and_work(after, follows, now_s)


def _refuse(tenure: Tenure, sent: PendingWrite, row: LeaseRow | None, now_s: float) -> Result:
    if row is not None and conditional_write.applied(sent.write, row):
        # The write was applied, and answered with an error: at some time since it was first sent. A take may be a
        # former life's of the same name, which came late: it proves nothing of the time, so a renewal has to.
        lifts = sent.first_lifts and sent.write.kind is not Kind.TAKE
        return _confirm(tenure, sent, row, sent.first_s, lifts, now_s)
    known = tenure.row
    if row is not None and _is_of_same_owner(row, known):
        if sent.write.allowed_on(row.attributes()):  # Nothing that can be seen refused it.
            return replace(tenure, sent=replace(sent, doubtful=True)), ()
        # A handoff was asked for meanwhile, which a look may have shown before. The write is made anew for it.
        if tenure.state is not State.CLAIMING:
            after = replace(tenure, row=row, sent=None)
            after, follows = _send(after, _next_write(after), now_s)
            return after, _new_handoff(tenure, row) + follows
    if tenure.token == 0:
        return _finish(tenure, commands.TakeFailed(row))
    if _was_deleted(sent, known, row):
        # A hand, or a TTL, has deleted it. Made anew by others it would begin where an application does, and records
        # were passed over.
        return _restore(tenure, sent, row, now_s)
    if tenure.state is State.ENDING and sent.repeated and row is not None and _is_stored(tenure.wish, row):
        return _finish(tenure, commands.TenureEnded(row))  # It was given, and written over by the next owner.
    return _finish(tenure, commands.LeaseLost(Loss.GONE if row is None else Loss.TAKEN, row))


def _is_of_same_owner(row: LeaseRow, known: LeaseRow) -> bool:
    """True where at most a handoff was asked for. Another process of the owner's name may have restored the row, with
    the same counter.
    """
    same = row.counter == known.counter and row.actual_owner == known.actual_owner
    return same and row.process == known.process


def _restore(tenure: Tenure, refused: PendingWrite, row: LeaseRow | None, now_s: float) -> Result:
    """Write the row anew, as long as no other worker can have had the lease. One that had it may have read the shard to
    its end: then the row had served and was deleted rightly, and written anew it would have the shard read again.
    """
    gave = refused.repeated and refused.write.kind in (Kind.GIVE, Kind.FREE)
    if gave or now_s >= tenure.fence_s:
        return _finish(tenure, _loss_of(Loss.GONE, tenure, refused))
    return _send(tenure, writes.restore(tenure.row, row, _maybe_stored(refused)), now_s)


def _loss_of(why: Loss, tenure: Tenure, sent: PendingWrite | None) -> commands.LeaseLost:
    """Return the loss of a lease whose row is not to be seen, with what is known of the lease."""
    return commands.LeaseLost(why, None, writes.as_known(tenure.row, None if sent is None else _maybe_stored(sent)))


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


def _fulfil(wish: WantedWrites, row: LeaseRow, kind: Kind) -> tuple[WantedWrites, tuple[commands.Command, ...]]:
    """Return what is left to be wished after a write, and the commands for what it stored."""
    if kind is Kind.PREPARE:
        if wish.prepare is None or wish.prepare.checkpoint != row.pending:
            return wish, ()  # Another one was asked for meanwhile.
        return replace(wish, prepare=None), (commands.PendingStored(wish.prepare.checkpoint),)
    # Nothing is left to be committed where nothing is pending: the wish must not outlast that, as it would be taken for
    # one to commit what is prepared next.
    left = replace(wish, commit=wish.commit and row.pending is not None)
    if kind in (Kind.RENEW, Kind.CHECKPOINT):
        left = replace(left, throughput_kib_s=None, read_until_ms=None)
    stored = (commands.CheckpointStored(row.checkpoint, row.pending is not None),)
    if wish.checkpoint is None or not _is_stored(wish, row) or left.commit:
        return left, stored if kind is Kind.CHECKPOINT else ()
    return replace(left, checkpoint=None, at_once=False, commit=False), stored


def _new_handoff(tenure: Tenure, row: LeaseRow) -> tuple[commands.Command, ...]:
    """Return the command for a handoff. A tenure that has not begun says nothing: it says so right after the
    beginning.
    """
    return () if tenure.token == 0 or row.handoff_to == tenure.row.handoff_to else _handoff(row)


def _handoff(row: LeaseRow) -> tuple[commands.Command, ...]:
    to = row.handoff_to
    return () if to in (None, row.actual_owner) else (commands.HandoffAsked(to),)


def _and_work(tenure: Tenure, before: tuple[commands.Command, ...], now_s: float) -> Result:
    after, follows = _work(tenure, now_s)
    return after, before + follows


def _finish(tenure: Tenure, *follows: commands.Command) -> Result:
    return replace(tenure, state=State.OVER, sent=None, wish=WantedWrites()), follows


def _see_lease(tenure: Tenure, event: events.LeaseSeen, now_s: float) -> Result:
    row, known, sent = event.row, tenure.row, tenure.sent
    if row.counter > known.counter:
        own = row.actual_owner == tenure.worker and row.process == known.process
        if own or (sent is not None and conditional_write.applied(sent.write, row)):
            return tenure, ()
        return _finish(tenure, commands.LeaseLost(Loss.TAKEN, row))
    # An older look may show the time before the handoff was asked for.
    if _is_of_same_owner(row, known) and known.handoff_to is None and row.checkpoint_owner == tenure.worker:
        return replace(tenure, row=row), _new_handoff(tenure, row)
    return tenure, ()


def _store_checkpoint(tenure: Tenure, event: events.StoreCheckpoint, now_s: float) -> Result:
    wish = tenure.wish
    furthest = event.checkpoint if wish.checkpoint is None else max(wish.checkpoint, event.checkpoint)
    commit = wish.commit or event.commit
    if furthest <= tenure.row.checkpoint and not (commit and tenure.row.pending is not None):
        return tenure, ()
    wish = replace(
        wish,
        checkpoint=max(furthest, tenure.row.checkpoint),
        commit=commit,
        at_once=wish.at_once or event.at_once or event.commit,
    )
    return _work(replace(tenure, wish=wish), now_s)


def _store_pending(tenure: Tenure, event: events.StorePending, now_s: float) -> Result:
    floor = max(tenure.row.checkpoint, tenure.wish.checkpoint or tenure.row.checkpoint)
    if event.checkpoint < floor:
        raise ValueError(f"{event.checkpoint.text} of {tenure.row.key} cannot be prepared: {floor.text} is settled")
    # A wish to commit was for the checkpoint that was pending before this one. It is kept only where that one is stored
    # first. Else it would clear this one with the write after next: the next owner would not be told of what was
    # prepared, and a commit would wait for ever.
    return _work(replace(tenure, wish=replace(tenure.wish, prepare=event, commit=_commits_first(tenure))), now_s)


def _store_measurements(tenure: Tenure, event: events.StoreMeasurements, now_s: float) -> Result:
    wish = tenure.wish
    throughput_kib_s = wish.throughput_kib_s if event.throughput_kib_s is None else event.throughput_kib_s
    read_until_ms = wish.read_until_ms if event.read_until_ms is None else event.read_until_ms
    return replace(tenure, wish=replace(wish, throughput_kib_s=throughput_kib_s, read_until_ms=read_until_ms)), ()


def _store_with_last_write(tenure: Tenure, event: events.StoreCheckpoint, now_s: float) -> Result:
    """Let the last write take a checkpoint along if it is not sent yet."""
    if tenure.token == 0:  # It never began: nothing was delivered.
        return tenure, ()
    furthest = event.checkpoint if tenure.wish.checkpoint is None else max(tenure.wish.checkpoint, event.checkpoint)
    if furthest < tenure.row.checkpoint:
        return tenure, ()
    wish = replace(tenure.wish, checkpoint=furthest, commit=tenure.wish.commit or event.commit)
    return replace(tenure, wish=wish), ()


def _end(tenure: Tenure, event: events.EndTenure, now_s: float) -> Result:
    if event.to == tenure.worker:
        raise ValueError(f"the lease {tenure.row.key} cannot be given to its owner")
    return _work(
        replace(tenure, state=State.ENDING, wish=replace(tenure.wish, to=event.to, process=event.process)), now_s
    )


def _abandon(tenure: Tenure, event: events.AbandonTenure, now_s: float) -> Result:
    return _finish(tenure)


def _ignore(tenure: Tenure, event: events.Event, now_s: float) -> Result:
    return tenure, ()


_HOLDING_RULES: dict[type[Any], Rule] = {
    events.TimerFired: _look_at_time,
    events.WriteAnswered: _answer_write,
    events.WorkerRowConfirmed: _confirm_worker_row,
    events.LeaseSeen: _see_lease,
    events.StoreCheckpoint: _store_checkpoint,
    events.StorePending: _store_pending,
    events.StoreMeasurements: _store_measurements,
    events.EndTenure: _end,
    events.AbandonTenure: _abandon,
}
_RULES: dict[State, dict[type[Any], Rule]] = {
    # Nothing was delivered yet, so nothing can be settled.
    State.CLAIMING: _HOLDING_RULES
    | {events.LeaseSeen: _ignore, events.StoreCheckpoint: _ignore, events.StorePending: _ignore},
    State.HELD: _HOLDING_RULES,
    State.FENCED: _HOLDING_RULES,
    State.ENDING: _HOLDING_RULES
    | {
        events.LeaseSeen: _ignore,
        events.StoreCheckpoint: _store_with_last_write,
        events.StorePending: _ignore,
        events.EndTenure: _ignore,
    },
    State.OVER: dict.fromkeys(_HOLDING_RULES, _ignore),
}
TABLE: Mapping[tuple[State, type[Any]], Rule] = {
    (state, event): rule for state, rules in _RULES.items() for event, rule in rules.items()
}
"""The rules by state and event, which are complete: every state has a rule for every event."""
