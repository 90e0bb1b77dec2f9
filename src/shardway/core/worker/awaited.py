"""The leases that may come to this worker: what it takes, asks for and warms up, and what the receiver's side of each
has done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.kcl.kcl3 import Step
from shardway.core.assignment.views import is_free, startable
from shardway.core.handoff.receiver import ReceiverCommand, ReceiverEvent, ReceiverSide, ReceiverState
from shardway.core.worker import actions
from shardway.core.worker.events import LeaseSeen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardway.core.assignment.decide import Decision
    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import ChildFound, TakeAnswered, View, WarmUpDone, WarmUpFailed
    from shardway.core.worker.state import WorkerState


class _RoundFacts(NamedTuple):
    """The facts that a round knows besides the worker's own."""

    view: View
    part: Decision
    planned: Collection[str]
    """The leases that are taken unasked."""
    avoided: Collection[str]
    at_s: float


def receive(worker: WorkerState, part: Decision, view: View, now_s: float) -> Iterator[Action]:
    """Take, ask, warm up; look closely at the leases that are on their way here."""
    me, failover_s = worker.terms.worker_id, worker.terms.failover_s
    unasked: list[str] = []
    if not (worker.leaving or worker.retreats):
        yield from _disinherit(worker, view)
        unasked = _unasked_leases(worker, view, now_s)
    offered = [key for owner in worker.workers.values() for key, to in owner.gives.items() if to == me]
    coming = [key for key, one in part.follow.items() if one is Step.WARM_UP]
    for key in (*part.take, *part.ask, *unasked, *coming, *offered):
        if key not in worker and key not in worker.receiving:
            worker.receiving[key] = ReceiverSide(key, me, failover_s=failover_s)
    facts = _RoundFacts(view, part, {*part.take, *unasked}, worker.avoided(now_s), now_s)
    by_scan = worker.waits_for_many(len(view.leases)) and view.scan_sent_s > worker.awaited_scan_sent_s
    if by_scan:
        worker.awaited_scan_sent_s = view.scan_sent_s
    for side in list(worker.receiving.values()):
        yield from _approach(worker, side, facts)
        if side.polls and by_scan:
            yield from _look(worker, side, _seen_by_scan(view, side.key), now_s)
        elif side.polls:
            # The read comes after the owner's row was: what that row does not name any more may be given by now.
            yield actions.LookAt(side.key)
        _drop_idle(worker, side)


def _disinherit(worker: WorkerState, view: View) -> Iterator[Action]:
    """Drop the children that others have taken: they are not to be taken any more, nor read ahead."""
    for key in sorted(worker.heirs & view.leases.keys()):
        if view.leases[key].ended or view.leases[key].owner is not None:
            worker.heirs.discard(key)
            if key not in worker and key not in worker.receiving:
                yield actions.Discard(key)


def _unasked_leases(worker: WorkerState, view: View, now_s: float) -> list[str]:
    """Return the leases to take although no plan says so: those that have this worker's name and that it does not hold,
    and children of shards that have ended here.
    """
    readable = {lease.key: lease for lease in startable(view.leases.values())}
    next_owners, leases_max = (None, worker.terms.worker_id), worker.terms.leases_max
    avoided = worker.avoided(now_s)
    named = [key for key, one in readable.items() if key in view.named and one.next_owner in next_owners]
    has_room = leases_max is None or len(worker.held) + len(worker.claims) < leases_max
    heirs = sorted(worker.heirs & readable.keys()) if has_room and view.fleet is not Fleet.KCL3 else []
    return [key for key in (*named, *heirs) if key not in worker and key not in avoided]


def _approach(worker: WorkerState, side: ReceiverSide, facts: _RoundFacts) -> Iterator[Action]:
    """Pass on to a side what the round decided and what the rows show. It may have to read its lease closely then."""
    key, view, part, leaving = side.key, facts.view, facts.part, worker.leaving
    lease, is_planned, is_robbed = view.leases.get(key), key in facts.planned, key in view.robbed
    if key in part.ask and lease is not None and lease.owner is not None and not leaving:
        yield from _obey(worker, side, side.want(lease.owner))
    elif leaving or (side.state is ReceiverState.ASKING and not is_planned):
        # What an owner offers is taken, whatever the plan: the owner may be leaving.
        yield from _obey(worker, side, side.drop())
    owner = worker.workers.get(side.owner or (lease.owner if lease is not None else None) or "")
    refuses = leaving or key in facts.avoided  # The owner gives what this worker cannot read to another one.
    yield from _obey(worker, side, side.look_at_owner(owner, facts.at_s, leaving=refuses), is_robbed=is_robbed)
    if side.polls or lease is None or not (is_planned or part.follow.get(key) is Step.WARM_UP):
        return
    commands = side.look_at_lease(
        lease,
        sent_s=view.scanned_s,
        now_s=facts.at_s,
        # What is to be taken is free, or a KCL worker has too much of it.
        free=key in part.take or is_free(lease, worker.workers, worker.terms.failover_s),
        planned=is_planned,
        leaving=leaving,
    )
    yield from _obey(worker, side, commands, is_robbed=is_robbed)


def _seen_by_scan(view: View, key: str) -> LeaseSeen:
    """Return an awaited lease as the last scan showed it, which was made just now, for this."""
    return LeaseSeen(
        key=key,
        row=view.rows.get(key),
        lease=view.leases.get(key),
        known=view.before.get(key),
        sent_s=view.scan_sent_s,
        is_robbed=key in view.robbed,
    )


def see_lease(worker: WorkerState, event: LeaseSeen, now_s: float) -> Iterator[Action]:
    """Have the side of a lease look at its row, which was read by itself."""
    if (side := worker.receiving.get(event.key)) is not None:
        yield from _look(worker, side, event, now_s)
        _drop_idle(worker, side)


def finish_warm_up(worker: WorkerState, event: WarmUpDone, now_s: float) -> Iterator[Action]:
    """Show the owner that the lease is warm."""
    if (side := worker.receiving.get(event.key)) is not None:
        yield from _obey(worker, side, side.handle(ReceiverEvent.WARMED, now_s))


def fail_warm_up(worker: WorkerState, event: WarmUpFailed, now_s: float) -> Iterator[Action]:
    """Leave a lease that cannot be read here to others for the failover time."""
    worker.avoid(event.key, now_s + worker.terms.failover_s)
    yield actions.PublishRow()
    if (side := worker.receiving.get(event.key)) is not None:
        yield from _obey(worker, side, side.drop())


def answer_take(worker: WorkerState, event: TakeAnswered, now_s: float) -> Iterator[Action]:
    """Note whether a tenure has begun. The side stays until the lease is delivered from: without it the same lease
    would be taken twice.
    """
    side = worker.receiving.get(event.key)
    if side is not None and side.state is ReceiverState.TAKING:
        outcome = ReceiverEvent.BEGAN if event.began else ReceiverEvent.NOT_TAKEN
        yield from _obey(worker, side, side.handle(outcome, now_s))


def expect_child(worker: WorkerState, event: ChildFound, now_s: float) -> Iterator[Action]:
    """Take the child of a shard that ended here in the next round, and read it ahead until then."""
    worker.heirs.add(event.key)
    if event.may_start and event.key not in worker.receiving:
        yield actions.ReadAhead(event.key)


def _look(worker: WorkerState, side: ReceiverSide, event: LeaseSeen, now_s: float) -> Iterator[Action]:
    row, known, lease = event.row, event.known, event.lease
    if row is not None:
        yield actions.Follow(event.key, row.checkpoint)
    # The owner's silence was looked at before this read: it counts only if the lease has not moved since the scan.
    moved = row is not None and row.owner is not None and (known is None or row.counter != known.counter)
    free = lease is not None and not moved and is_free(lease, worker.workers, worker.terms.failover_s)
    commands = side.look_at_lease(lease, sent_s=event.sent_s, now_s=now_s, free=free, leaving=worker.leaving)
    yield from _obey(worker, side, commands, is_robbed=event.is_robbed)


def _obey(
    worker: WorkerState,
    side: ReceiverSide,
    commands: Iterable[ReceiverCommand],
    *,
    is_robbed: bool = False,
) -> Iterator[Action]:
    """Carry the commands of a receiver's side into the own row, and into actions."""
    key = side.key
    for command in commands:
        if command is ReceiverCommand.SAY_WANTED:
            worker.wanted.add(key)
            yield actions.PublishRow()
        elif command is ReceiverCommand.SAY_WARM:
            worker.warm.add(key)
            yield actions.PublishRow()
            yield actions.Wake()
        elif command is ReceiverCommand.UNSAY:
            worker.wanted.discard(key)
            worker.warm.discard(key)
            yield actions.PublishRow()
        elif command is ReceiverCommand.WARM_UP:
            yield actions.WarmUp(key)
        elif command is ReceiverCommand.DISCARD:
            yield actions.Discard(key)
        elif command in (ReceiverCommand.TAKE, ReceiverCommand.RECEIVE):
            worker.claims.add(key)
            if is_robbed:
                worker.stolen.add(key)
            receives = command is ReceiverCommand.RECEIVE
            yield actions.Take(key, receives, side.unmoved_s if receives else None)
        elif command is ReceiverCommand.READ:
            yield actions.Wake()


def _drop_idle(worker: WorkerState, side: ReceiverSide) -> None:
    if side.state is ReceiverState.IDLE and worker.receiving.get(side.key) is side:
        del worker.receiving[side.key]
