"""Leases are left to others: the worker leaves for good, could not keep a lease, or the program gives one up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.worker import actions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.worker.actions import Action
    from shardway.core.worker.events import LeaseGivenUp, LeaseUnconfirmed, LeaveAsked, View
    from shardway.core.worker.state import WorkerState


def leave(worker: WorkerState, event: LeaveAsked, now_s: float) -> Iterator[Action]:
    """Leave for good: the rounds that follow hand over what is held."""
    worker.leaving = True
    yield actions.PublishRow()
    yield actions.Wake()


def lose_unconfirmed(worker: WorkerState, event: LeaseUnconfirmed, now_s: float) -> Iterator[Action]:
    """Leave the leases to others for the failover time: this worker could not write to the table."""
    worker.retreats_until_s = now_s + worker.terms.failover_s
    yield from ()


def retreat(worker: WorkerState, view: View, now_s: float) -> Iterator[Action]:
    """Show the worker as leaving after a time without any confirmed write, if there are others to take its leases."""
    others = any(not one.leaving for one in view.workers.values())
    retreats = now_s < worker.retreats_until_s and others
    if retreats != worker.retreats:
        worker.retreats = retreats
        yield actions.PublishRow()


def give_up(worker: WorkerState, event: LeaseGivenUp, now_s: float) -> Iterator[Action]:
    """Leave one lease to others for its cool-down."""
    worker.avoid(event.key, now_s + event.cool_down_s)
    yield actions.PublishRow()
    yield actions.Wake()
