"""Every state that two workers can get into over one lease, by the real tables, searched through.

Safety: no two deliver at the same time. Liveness: whatever has happened, if nothing more goes wrong, a worker comes to
read the shard. The same search, with a rule of the tables broken, must find the fault.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import Any

import pytest

from tests.core.handoff import handoff_world
from tests.core.handoff.handoff_world import KCL, OC, OE, RC, RE, O, R, World, begin, calm, faults

pytestmark = pytest.mark.search

Rules = dict[tuple[Any, Any], Any]
"""By state and input: the state and the commands that follow, of either side; None: there is no such rule."""


class Search:
    """All worlds that can be reached from one, each with how it was reached first."""

    def __init__(self, start: World) -> None:
        self.reached: dict[World, tuple[World, str] | None] = {start: None}
        self.calmly_before: dict[World, list[World]] = {}
        queue = deque([start])
        while queue:
            world = queue.popleft()
            assert not all(worker.delivers for worker in world.workers), "two deliver:\n" + self.story(world)
            steps = list(calm(world))
            for _, after in steps:
                self.calmly_before.setdefault(after, []).append(world)
            for name, after in (*steps, *faults(world)):
                if after not in self.reached:
                    self.reached[after] = (world, name)
                    queue.append(after)

    def check_liveness(self) -> None:
        """Backwards from the worlds in which the shard is read, by steps that are no faults, all are reached."""
        good = [world for world in self.reached if is_read(world)]
        seen = set(good)
        while good:
            for world in self.calmly_before.get(good.pop(), ()):
                if world not in seen:
                    seen.add(world)
                    good.append(world)
        stuck = next((world for world in self.reached if world not in seen), None)
        assert stuck is None, "no worker ever gets the shard:\n" + self.story(stuck)

    def story(self, world: World) -> str:
        steps: list[str] = []
        while (before := self.reached[world]) is not None:
            steps.append(f"{before[1]:40} {world}")
            world = before[0]
        return "\n".join(reversed(steps))


def is_read(world: World) -> bool:
    """A worker reads the shard, or none is left that could."""
    if any(worker.delivers for worker in world.workers) or (world.row == KCL and world.kcl == "there"):
        return True
    return all(worker.up == "dead" for worker in world.workers)


SCENES: dict[str, dict[str, Any]] = {
    "nothing goes wrong": {},
    "workers pause": {"pauses": True},
    "a worker dies": {"crashes": 1},
    "the owner leaves": {"leaves": (True, False)},
    "the owner leaves, one dies": {"leaves": (True, False), "crashes": 1},
    "the receiver leaves": {"leaves": (False, True)},
    "a KCL worker steals": {"kcl": "away"},
    "both leave, one dies": {"crashes": 1, "leaves": (True, True)},
}
LARGE_SCENES: dict[str, dict[str, Any]] = {
    "a KCL worker steals, one leaves, one dies": {"crashes": 1, "leaves": (True, False), "kcl": "away"},
    "workers pause, one dies": {"pauses": True, "crashes": 1},
    "workers pause, the owner leaves, one dies": {"pauses": True, "crashes": 1, "leaves": (True, False)},
    "workers pause, the receiver leaves": {"pauses": True, "leaves": (False, True)},
    "a KCL worker steals, workers pause": {"kcl": "away", "pauses": True},
}


def searched(scene: dict[str, Any]) -> None:
    search = Search(begin(**scene))
    search.check_liveness()
    print(f"{len(search.reached)} states")


@pytest.mark.parametrize("name", SCENES)
def test_no_two_deliver_and_one_does(name: str) -> None:
    searched(SCENES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE_SCENES)
def test_no_two_deliver_and_one_does_with_more_going_on(name: str) -> None:
    searched(LARGE_SCENES[name])


# --- a rule broken must be found ----------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, table: str, rules: Rules) -> None:
    """Give rules of a table other outcomes; None takes them out."""
    changed = {**getattr(handoff_world, table), **rules}
    monkeypatch.setattr(
        handoff_world, table, MappingProxyType({pair: one for pair, one in changed.items() if one is not None})
    )


UNSAFE: dict[str, tuple[str, Rules]] = {
    "the owner goes on after the last write is sent": (
        "OWNER",
        {(O.GIVING, OE.RECEIVER_GONE): (O.HOLDING, (OC.UNNAME, OC.RESUME))},
    ),
    "a lease that has been its own for an unknown time is read without a write": (
        "RECEIVER",
        {
            (state, RE.MINE_UNSEEN): (R.HOLDING, (RC.UNSAY, RC.RECEIVE, RC.DELIVER))
            for state in (R.WARMING, R.WARM, R.PARTING)
        },
    ),
    "a take that was not applied counts": (
        "RECEIVER",
        {(R.TAKING, RE.NOT_TAKEN): (R.HOLDING, (RC.UNSAY, RC.DELIVER))},
    ),
    "a worker that is warm delivers when it is named no more": (
        "RECEIVER",
        {(R.WARM, RE.UNNAMED): (R.HOLDING, (RC.UNSAY, RC.RECEIVE, RC.DELIVER))},
    ),
}
DEAD_ENDS: dict[str, tuple[str, Rules]] = {
    "what comes to a worker that waits for nothing is not adopted": (
        "RECEIVER",
        {(R.IDLE, given): None for given in (RE.MINE, RE.MINE_UNSEEN)},
    ),
    "a worker that asks does not look whether the owner is dead": ("RECEIVER", {(R.ASKING, RE.TAKEABLE): None}),
    "the drain has no end without a receiver": ("OWNER", {(O.DRAINING_TO_FREE, OE.DRAINED): None}),
    "the owner does not hear that its tenure is over": ("OWNER", {(O.GIVING, OE.ENDED): None}),
    "a take that fails is waited for": ("RECEIVER", {(R.TAKING, RE.NOT_TAKEN): None}),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_a_fault_by_which_two_deliver_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    broken(monkeypatch, *UNSAFE[name])
    with pytest.raises(AssertionError, match="two deliver"):
        searched({"pauses": True})


@pytest.mark.parametrize("name", DEAD_ENDS)
def test_a_fault_by_which_no_worker_delivers_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    broken(monkeypatch, *DEAD_ENDS[name])
    with pytest.raises(AssertionError, match="no worker ever gets the shard"):
        searched(SCENES["the owner leaves, one dies"])


def test_a_state_that_delivers_and_must_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoff_world, "DELIVERS", handoff_world.DELIVERS | {O.GIVING})
    with pytest.raises(AssertionError, match="two deliver"):
        searched({})
