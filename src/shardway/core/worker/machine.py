"""The machine of a worker: `step` changes what the worker knows by an event, and returns the actions that follow.

A rule is a generator of actions. It changes the state as it goes, so only `step` runs it: at once, and to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.worker import awaited, departure, events, given, held, upkeep
from shardway.core.worker.round import decide_round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from shardway.core.worker.actions import Action
    from shardway.core.worker.state import WorkerState


def step(worker: WorkerState, event: events.Event, now_s: float) -> list[Action]:
    """Change ``worker`` by an event, and return what follows. The same state, event and time always lead to the same
    actions.
    """
    return list(RULES[type(event)](worker, event, now_s))


RULES: Mapping[type[Any], Callable[[WorkerState, Any, float], Iterator[Action]]] = {
    events.View: decide_round,
    events.WorkersSeen: given.see_workers,
    events.RowsFreed: given.forget_freed,
    events.LeaseSeen: awaited.see_lease,
    events.WarmUpDone: awaited.finish_warm_up,
    events.WarmUpFailed: awaited.fail_warm_up,
    events.TakeAnswered: awaited.answer_take,
    events.ReadingBegan: held.begin,
    events.TenureOver: held.end,
    events.LeaseUnconfirmed: departure.lose_unconfirmed,
    events.LeaderNamedReceiver: held.follow_leader,
    events.OwnerSideLearned: held.inform_side,
    events.LeaseGivenUp: departure.give_up,
    events.ChildFound: awaited.expect_child,
    events.LeaveAsked: departure.leave,
    events.UpkeepDone: upkeep.finish,
}
"""The rules of the machine, which are complete: there is a rule for every event."""
