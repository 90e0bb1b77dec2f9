"""What a worker knows of the former owner of a lease, by what it saw before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shardway.core.assignment import views
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.core.leases.worker_row import WorkerRow
from shardway.leases import MemoryLeaseTable
from shardway.runtime.worker import sight
from shardway.runtime.worker.sight import MOVING_FAILOVERS, SeenTables
from tests.core.worker.round_kit import worker_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.assignment.views import LeaseView

F = 10.0


class Eyes:
    """A worker's sight, with a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.table = MemoryLeaseTable()
        self.sight = SeenTables(
            worker_of("ours", F, process="1"), self.table, streams={None}, clock=lambda: self.now_s, kcl=None
        )

    def saw(self, owner: str | None, counter: int, **more: str) -> None:
        self.sight.saw(LeaseRow(key="s", checkpoint=Checkpoint.TRIM_HORIZON, owner=owner, counter=counter, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(("waited_s", "lived"), [(0.3 * F, True), (F * (MOVING_FAILOVERS + 0.1), False)])
def test_whether_the_former_owner_lived_is_told_by_its_counter(waited_s: float, lived: bool) -> None:
    eyes = Eyes()
    eyes.saw("kcl", 7)
    eyes.now_s += 5 * F
    eyes.saw("kcl", 8)
    eyes.now_s += waited_s
    eyes.saw("ours", 9)
    assert eyes.sight.came_from_living("s") is lived


def test_one_that_hands_over_while_the_leader_has_named_this_worker_lived() -> None:
    eyes = Eyes()
    eyes.saw("kcl", 7)
    eyes.now_s += 0.9 * F
    eyes.saw("ours", 8, checkpoint_owner="kcl")  # still read by its owner, which renews it
    eyes.now_s += 0.2 * F
    eyes.saw("ours", 9)
    assert eyes.sight.came_from_living("s") is True


def test_a_lease_may_be_seen_while_another_thread_counts_those_that_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    eyes = Eyes()
    eyes.saw(None, 1)
    startable = views.startable

    def seen_meanwhile(given: Iterable[LeaseView]) -> list[LeaseView]:
        found = iter(given)
        first = next(found)
        eyes.sight.saw(LeaseRow(key="another", checkpoint=Checkpoint.TRIM_HORIZON, owner=None, counter=1))
        return startable([first, *found])

    monkeypatch.setattr(sight, "startable", seen_meanwhile)
    assert eyes.sight.without_owner() == 1
    monkeypatch.undo()
    assert eyes.sight.without_owner() == 2


def test_a_lease_that_was_free_came_from_no_owner() -> None:
    eyes = Eyes()
    eyes.saw(None, 0)
    eyes.saw("ours", 7)
    assert eyes.sight.came_from_living("s") is None


def test_a_shardway_worker_that_shows_itself_lived() -> None:
    eyes = Eyes()
    eyes.saw("theirs", 7)
    eyes.sight.members.look([replace(WorkerRow(worker_id="theirs", failover_s=F), counter=1)], 0.0)
    eyes.now_s += 3 * F
    eyes.saw("ours", 8)
    assert eyes.sight.came_from_living("s") is True


class Leader:
    """Names this worker as the owner of one lease."""

    is_asleep = False

    async def owned_keys(self) -> list[str]:
        return ["child"]


@pytest.mark.parametrize("in_sight", [True, False])
async def test_an_assigned_lease_whose_parent_is_not_in_sight_needs_a_scan(in_sight: bool) -> None:
    """A parent that is not in sight counts as read to its end; it may be younger than the last scan."""
    eyes = Eyes()
    eyes.sight._kcl = Leader()  # type: ignore[assignment]
    await eyes.table.ensure()
    parent = LeaseRow(key="parent", checkpoint=Checkpoint.TRIM_HORIZON)
    if in_sight:
        await eyes.table.create(parent)
    await eyes.sight.scan()
    if not in_sight:
        await eyes.table.create(parent)
    child = LeaseRow(key="child", checkpoint=Checkpoint.TRIM_HORIZON, owner="ours", parents=frozenset({"parent"}))
    await eyes.table.create(child)
    assert await eyes.sight._glance() is in_sight
    assert ("child" in eyes.sight.leases) is in_sight
    await eyes.sight.scan()
    assert eyes.sight.leases.keys() == {"parent", "child"}
    assert await eyes.sight._glance()


@pytest.mark.parametrize("process", ["2/ours", None], ids=["another process", "not told"])
async def test_a_lease_of_a_former_process_of_the_name_is_the_workers_once_it_is_silent(process: str | None) -> None:
    """Whatever the plan says: the other workers see an owner that lives, and leave it the lease (seed 3007310)."""
    eyes = Eyes()
    await eyes.table.ensure()
    row = LeaseRow(key="s", checkpoint=Checkpoint.TRIM_HORIZON, owner="ours", counter=7, process=process)
    await eyes.table.create(row)
    await eyes.sight.scan()
    mine = []
    for waited_s in (0.9 * F, 0.2 * F):
        eyes.now_s += waited_s
        await eyes.sight.scan()
        mine.append(eyes.sight.is_mine(eyes.sight.leases["s"]))
    assert mine == [False, True]
    assert not eyes.sight.is_mine(replace(row, counter=8))  # it has moved since
    assert not eyes.sight.is_mine(replace(row, owner="theirs"))


async def test_a_lease_has_no_owner_once_its_worker_is_silent_and_not_while_the_table_is_away() -> None:
    eyes = Eyes()
    position = Checkpoint.TRIM_HORIZON
    for key, owner, parents in (("a", "dead", ()), ("b", "ours", ()), ("c", None, ()), ("child", None, ("a",))):
        await eyes.table.create(LeaseRow(key=key, checkpoint=position, owner=owner, parents=frozenset(parents)))
    await eyes.table.put_worker(WorkerRow(worker_id="dead", counter=1, failover_s=F))
    await eyes.sight.look(closely=True)
    assert eyes.sight.without_owner() == 1, "c has none; the child of a shard that is read waits for it"
    eyes.now_s += 1.1 * F
    assert eyes.sight.without_owner() == 1, "no look has shown since that the worker is silent"
    await eyes.sight.look(closely=True)
    assert eyes.sight.without_owner() == 2
