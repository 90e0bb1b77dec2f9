"""Since when a counter stands still, on the observer's clock; and whose leases may be taken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardway.core.assignment.views import is_free, lease_view
from shardway.core.leases import LeaseRow
from shardway.core.leases.counters import ObservedCounters
from shardway.core.leases.membership import FORGET_AFTER_FAILOVERS, WorkerRows
from shardway.core.leases.worker_row import NotAWorkerError, WorkerRow, worker_row

F = 10.0
ROW = LeaseRow(key="a", counter=5, owner="w1")


def may_take(observed: ObservedCounters, row: LeaseRow, now_s: float) -> bool:
    return is_free(lease_view(row, observed.unmoved_s(row.key, now_s)), {}, F)


def test_an_owned_lease_is_waited_for_from_the_first_look_on() -> None:
    observed = ObservedCounters()
    assert not may_take(observed, ROW, 1000.0), "never looked at"
    observed.look_at_leases([ROW], 100.0)
    assert not may_take(observed, ROW, 110.0)
    assert may_take(observed, ROW, 110.001)


def test_a_free_lease_may_be_taken_at_once() -> None:
    assert may_take(ObservedCounters(), replace(ROW, owner=None), 0.0)


def test_a_handoff_that_waits_belongs_to_the_worker_that_still_reads() -> None:
    asked = replace(ROW, owner="w2", checkpoint_owner="w1")
    observed = ObservedCounters()
    observed.look_at_leases([asked], 100.0)
    assert not may_take(observed, asked, 105.0)
    assert may_take(observed, asked, 111.0)


@pytest.mark.parametrize("moved", [replace(ROW, counter=6), replace(ROW, owner="w2"), replace(ROW, counter=4)])
def test_any_movement_starts_the_wait_anew(moved: LeaseRow) -> None:
    observed = ObservedCounters()
    observed.look_at_leases([ROW], 100.0)
    observed.look_at_leases([moved], 109.0)
    assert not may_take(observed, moved, 111.0)
    assert observed.unmoved_s("a", 111.0) == 2.0
    observed.look_at_leases([moved], 119.0)
    assert may_take(observed, moved, 119.5)


def test_what_is_gone_is_forgotten() -> None:
    observed = ObservedCounters()
    observed.look_at_leases([ROW], 100.0)
    observed.look_at_leases([], 105.0)
    observed.look_at_leases([ROW], 111.0)
    assert not may_take(observed, ROW, 112.0)
    observed.forget("a")
    assert observed.unmoved_s("a", 200.0) == 0.0


# --- workers --------------------------------------------------------------------------------------


def worker(name: str, counter: int = 0, failover_s: float = F) -> WorkerRow:
    return WorkerRow(worker_id=name, counter=counter, failover_s=failover_s)


def test_a_worker_is_silent_when_its_row_stands_still_for_its_failover_time() -> None:
    members = WorkerRows("me", F)
    members.look([worker("me"), worker("w1", 3), worker("w2", 8)], 100.0)
    assert set(members.rows) == {"w1", "w2"}, "its own row tells nothing"
    members.look([worker("w1", 3), worker("w2", 9)], 110.5)
    assert members.quiet(110.5) == ["w1"]
    assert members.silent(leases_answered_s=110.2, look_sent_s=110.3, now_s=110.5) == ["w1"]


def test_the_leases_are_read_before_the_workers() -> None:
    members = WorkerRows("me", F)
    members.look([worker("w1", 3)], 100.0)
    with pytest.raises(ValueError, match="after the leases were read"):
        members.silent(leases_answered_s=111.0, look_sent_s=110.9, now_s=111.1)


def test_a_worker_with_another_failover_time_is_waited_for_as_long_as_it_needs() -> None:
    members = WorkerRows("me", F)
    members.look([worker("slow", 3, 60.0), worker("fast", 3, 2.0)], 100.0)
    assert members.quiet(111.0) == ["fast"], "a shorter time than ours is ours: it may have changed"
    assert sorted(members.quiet(160.5)) == ["fast", "slow"]
    assert members.failover_s("slow") == 60.0
    assert members.failover_s("unknown") == members.failover_s(None) == F


def test_a_row_that_seems_to_go_back_is_waited_for_anew() -> None:
    members = WorkerRows("me", F)
    members.look([worker("w1", 4)], 100.0)
    members.look([worker("w1", 3)], 105.0)  # a stale read
    members.look([worker("w1", 4)], 106.0)
    assert members.quiet(111.0) == []
    assert members.quiet(116.5) == ["w1"]


def test_a_process_that_came_back_under_its_id_is_not_taken_for_the_former_one() -> None:
    """Old copies of the table show the former process, and the count of the new one comes to the same number."""
    members = WorkerRows("me", F)
    former, living = replace(worker("w1", 7), process="w1#1"), replace(worker("w1", 7), process="w1#2")
    members.look([former], 100.0)
    members.look([former], 110.5)
    assert members.quiet(110.5) == ["w1"], "a reason to look closer"
    members.look([living], 110.6)  # the consistent read
    assert members.silent(leases_answered_s=110.5, look_sent_s=110.55, now_s=110.6) == []
    members.look([living], 120.7)
    assert members.quiet(120.7) == ["w1"]


def test_a_worker_that_went_and_came_back_is_new() -> None:
    members = WorkerRows("me", F)
    members.look([worker("w1", 4)], 100.0)
    members.look([], 105.0)
    members.look([worker("w1", 4)], 109.0)
    assert members.quiet(111.0) == []


def test_rows_of_the_long_dead_are_removed() -> None:
    members = WorkerRows("me", F)
    members.look([worker("w1", 4)], 100.0)
    assert members.forgettable(100.0 + FORGET_AFTER_FAILOVERS * F) == []
    assert members.forgettable(100.5 + FORGET_AFTER_FAILOVERS * F) == [worker("w1", 4)]


@pytest.mark.parametrize(
    "row",
    [
        worker("w1"),
        WorkerRow(
            worker_id="w1",
            counter=9,
            failover_s=2.5,
            version="1",
            held=frozenset("ab"),
            wanted=frozenset("c"),
            given={"a": "w2"},
            warm=frozenset("d"),
        ),
    ],
)
def test_a_workers_row_is_read_as_it_is_written(row: WorkerRow) -> None:
    assert worker_row(row.attributes()) == row
    assert row.next() == replace(row, counter=row.counter + 1)


@pytest.mark.parametrize("spoilt", [{"counter": None}, {"leaseCounter": "x"}, {"given": "["}, {"failoverMillis": None}])
def test_a_workers_row_that_cannot_be_read(spoilt: dict[str, object]) -> None:
    attributes = {**worker("w1").attributes(), **spoilt}
    if "counter" in spoilt:
        del attributes["leaseCounter"]
    with pytest.raises(NotAWorkerError, match="w1"):
        worker_row(attributes)
