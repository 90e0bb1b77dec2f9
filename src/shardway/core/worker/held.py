"""The leases that the worker holds: which of them go to other workers, and what the owner's side of each has done."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shardway.core.assignment.shardway_fleet import receiver_for
from shardway.core.handoff.owner import OwnerCommand, OwnerEvent, OwnerSide
from shardway.core.worker import actions
from shardway.core.worker.state import HeldLease

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardway.core.assignment.decide import Decision
    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import LeaderNamedReceiver, OwnerSideLearned, ReadingBegan, TenureOver, View
    from shardway.core.worker.state import WorkerState

STOPS_AT_ONCE = 64
"""The most leases that a worker hands over to other workers at the same time."""
STOPPING_TURNS_MAX = 16
"""A worker hands over more at the same time, where it would otherwise need more turns than this to let go of its
leases.
"""
STOP_COUNTS_S = 0.25
"""A handoff that has lasted longer counts no more against that limit: it does not wait for the table."""


def begin(worker: WorkerState, event: ReadingBegan, now_s: float) -> Iterator[Action]:
    """Hold a lease from now on, and have its shard delivered."""
    key, terms = event.key, worker.terms
    worker.claims.discard(key)
    worker.stolen.discard(key)
    worker.receiving.pop(key, None)
    side = OwnerSide(key, warm_deadline_s=terms.warm_deadline_s, drain_deadline_s=terms.drain_deadline_s)
    worker.held[key] = HeldLease(side)
    yield actions.Deliver(key)
    yield actions.PublishRow()
    yield actions.Wake()


def end(worker: WorkerState, event: TenureOver, now_s: float) -> Iterator[Action]:
    """Hold a lease no more, and remember it where it was given to another worker."""
    key, row = event.key, event.row
    worker.claims.discard(key)
    worker.stolen.discard(key)
    worker.receiving.pop(key, None)
    lease = worker.held.pop(key, None)
    if lease is not None and lease.given_to is not None and row.actual_owner == lease.given_to:
        # The receiver may have left since its row was looked at: then no worker waits for the lease.
        worker.given[key] = row
    worker.gives.pop(key, None)
    yield actions.PublishRow()
    yield actions.Wake()


def offer(worker: WorkerState, part: Decision, view: View, now_s: float) -> Iterator[Action]:
    """Offer leases to the workers that are to have them."""
    load = Counter(lease.owner for lease in view.leases.values() if lease.owner and not lease.ended)
    me, workers, avoided = worker.terms.worker_id, worker.workers, worker.avoided(now_s)
    for key, lease in worker.held.items():
        side = lease.side
        if worker.leaving or key in avoided or key in view.given_up:
            receiver = part.give.get(key)
            if receiver is None or receiver in side.tried:
                receiver = receiver_for(key, load, workers.values(), me, side.tried)
            if receiver is None:
                yield from _obey(worker, key, side.handle(OwnerEvent.FREE, now_s), now_s)
            else:
                yield from _obey(worker, key, side.offer(receiver, now_s), now_s)
                load[receiver] += 1
        elif (wanting := part.give.get(key)) is not None and key in workers[wanting].wants:
            yield from _obey(worker, key, side.offer(wanting, now_s), now_s)
        elif key in part.free and not worker.retreats:  # While it retreats, others ask for what they are to have.
            yield from _obey(worker, key, side.handle(OwnerEvent.FREE, now_s), now_s)


def let_go(worker: WorkerState, now_s: float) -> Iterator[Action]:
    """Stop what is to go once its receiver is ready, few at a time: a shard waits without a reader for all that stop
    together with it. A shard that takes long to be settled keeps no other from stopping.
    """
    ages_s = [now_s - lease.stopped_s for lease in worker.held.values() if lease.stopped_s is not None]
    most = max(STOPS_AT_ONCE, len(worker.held) // STOPPING_TURNS_MAX)
    room = most - sum(age_s < STOP_COUNTS_S for age_s in ages_s)
    for key, lease in worker.held.items():
        before, may_stop = lease.stopped_s, room > 0
        yield from _obey(worker, key, lease.side.look(worker.workers, now_s, may_stop=may_stop), now_s)
        yield from _obey(worker, key, lease.side.tick(now_s, may_stop=may_stop), now_s)
        if before is None and lease.stopped_s is not None:
            room -= 1


def inform_side(worker: WorkerState, event: OwnerSideLearned, now_s: float) -> Iterator[Action]:
    """Pass on to the owner's side what it waits for."""
    if (lease := worker.held.get(event.key)) is not None:
        yield from _obey(worker, event.key, lease.side.handle(event.event, now_s), now_s)


def follow_leader(worker: WorkerState, event: LeaderNamedReceiver, now_s: float) -> Iterator[Action]:
    """Hand a lease to the worker that a KCL leader has named."""
    if (lease := worker.held.get(event.key)) is not None:
        yield from _obey(worker, event.key, lease.side.leader_named(event.receiver, now_s), now_s)


def _obey(worker: WorkerState, key: str, commands: Iterable[OwnerCommand], now_s: float) -> Iterator[Action]:
    """Carry the commands of an owner's side into the own row, and into actions."""
    for command in commands:
        lease = worker.held[key]
        receiver = lease.side.receiver
        if command is OwnerCommand.NAME:
            assert receiver is not None
            worker.gives[key] = receiver
            yield actions.PublishRow()
        elif command is OwnerCommand.UNNAME:
            worker.gives.pop(key, None)
            yield actions.PublishRow()
        elif command is OwnerCommand.STOP:
            assert lease.side.due_s is not None
            lease.stopped_s = now_s
            yield actions.StopDelivering(key, lease.side.due_s)
        elif command is OwnerCommand.RESUME:
            lease.stopped_s = None
            yield actions.ResumeDelivering(key)
        elif command is OwnerCommand.GIVE:
            known = None if receiver is None else worker.workers.get(receiver)
            lease.given_to = None if known is None else receiver
            yield actions.EndTenure(key, receiver, None if known is None else known.process)
        elif command is OwnerCommand.FREE:
            lease.given_to = None
            yield actions.EndTenure(key, None, None)
