"""A lane holds what waits for one shard, in order, and gives it out as loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.aggregation import Aggregator, open_aggregate
from penstock.core.batching.lanes import note_taken, remember
from tests.core.batching.batching_kit import datas_of, make_lane, make_run, some

if TYPE_CHECKING:
    from penstock.core.batching.chunk import Run
    from penstock.core.batching.lanes import Lane


def lane_with(*runs: Run) -> Lane:
    lane = make_lane()
    for run in runs:
        lane.add(run)
    return lane


def take(
    lane: Lane,
    records_max: int = 500,
    bytes_max: int = 1_000,
    *,
    by_key: bool = False,
    first_any: bool = False,
    looks_max: int = 100,
) -> list[bytes]:
    if by_key:
        load = lane.take_by_key(records_max, bytes_max, first_any=first_any, looks_max=looks_max)
    else:
        load = lane.take_plain(records_max, bytes_max, first_any=first_any)
    return [] if load is None else datas_of(load.entries)


def run_of(*datas: bytes, key: str = "k", **given: Any) -> Run:
    return make_run(*[(key, data) for data in datas], **given)


def is_empty(lane: Lane) -> bool:
    return lane.idle and (lane.waiting, lane.waiting_bytes, lane.held, lane.ready) == (0, 0.0, {}, {})


def test_records_are_given_out_in_order_within_the_bounds() -> None:
    lane = lane_with(run_of(b"1", b"2"), run_of(b"3", b"4", b"5"))
    assert lane.waiting == 5
    assert take(lane, records_max=3) == [b"1", b"2", b"3"]
    assert take(lane, bytes_max=2) == [b"4"]
    assert take(lane, bytes_max=1) == []
    assert take(lane) == [b"5"]
    assert is_empty(lane)


@pytest.mark.parametrize("by_key", [False, True])
def test_a_record_that_is_larger_than_a_request_goes_alone(by_key: bool) -> None:
    lane = lane_with(make_run(("a", b"x" * 50), ("b", b"2")))
    assert take(lane, bytes_max=20, by_key=by_key) == []
    assert take(lane, bytes_max=20, by_key=by_key, first_any=True) == [b"x" * 50]
    assert take(lane, bytes_max=20, by_key=by_key, first_any=True) == [b"2"]


def test_what_was_withdrawn_is_not_given_out() -> None:
    run = run_of(b"1", b"2", b"3")
    run.chunk.withdrawn = {0, 2}
    lane = lane_with(run)
    assert take(lane) == [b"2"]
    assert is_empty(lane)


def test_an_aggregate_takes_what_fits_and_is_sent_where_its_first_record_goes() -> None:
    lane = lane_with(*[run_of(b"x" * 30, key=str(number)) for number in range(5)])
    load = some(lane.take_aggregate(Aggregator(bytes_max=150)))
    assert (len(load.entries), load.user_records, lane.waiting) == (1, 3, 2)
    assert load.is_aggregate
    entry = load.entries[0]
    assert [record.partition_key for record in open_aggregate(entry.data) or ()] == ["0", "1", "2"]
    assert entry.partition_key == "a"
    assert load.payload_bytes == entry.payload_bytes <= 151
    single = some(lane_with(run_of(b"x", key="only")).take_aggregate(Aggregator()))
    assert (single.entries[0].data, single.entries[0].partition_key) == (b"x", "only")


def test_an_aggregate_of_what_was_withdrawn_is_none() -> None:
    run = run_of(b"1")
    run.chunk.withdrawn = {0}
    lane = lane_with(run)
    assert lane.take_aggregate(Aggregator()) is None
    assert is_empty(lane)


def test_explicit_hash_keys_go_along() -> None:
    lane = lane_with(make_run(("a", b"1"), ("b", b"2"), hash_keys={1: 99}))
    load = some(lane.take_plain(500, 1_000, first_any=False))
    assert [entry.explicit_hash_key for entry in load.entries] == [None, "99"]


# --- in order by key ------------------------------------------------------------------------------


def test_in_order_a_key_has_one_record_on_its_way() -> None:
    lane = lane_with(make_run(("a", b"a1"), ("a", b"a2"), ("b", b"b1")), make_run(("b", b"b2"), ("a", b"a3")))
    assert take(lane, by_key=True) == [b"a1", b"b1"]
    assert lane.idle
    assert lane.waiting == 0
    assert take(lane, by_key=True) == []
    lane.release(["a"])
    assert (lane.waiting, lane.idle) == (1, False)
    assert take(lane, by_key=True) == [b"a2"]
    lane.release(["b", "a"])
    assert take(lane, by_key=True) == [b"b2", b"a3"]
    lane.release(["b", "a"])
    assert is_empty(lane)


def test_in_order_so_many_records_are_looked_at_and_the_next_step_goes_on_behind_them() -> None:
    runs = [make_run(*[("a", b"a%d" % number) for number in range(first, first + 4)]) for first in (0, 4)]
    lane = lane_with(*runs, make_run(("b", b"b1"), ("a", b"a8")))
    taken, looked_at = [], []
    while lane.runs:
        taken += take(lane, by_key=True, looks_max=3)
        looked_at.append(lane.looked_at)
    assert taken == [b"a0", b"b1"]
    assert looked_at == [3, 3, 3, 1]
    for number in range(1, 9):
        lane.release(["a"])
        assert take(lane, by_key=True) == [b"a%d" % number]


def test_what_waits_for_its_key_goes_before_what_came_later() -> None:
    lane = lane_with(make_run(("a", b"a1"), ("a", b"a2")))
    assert take(lane, by_key=True) == [b"a1"]
    lane.release(["a"])
    lane.add(make_run(("a", b"a3"), ("b", b"b1")))
    assert take(lane, records_max=1, by_key=True) == [b"a2"]
    assert take(lane, by_key=True) == [b"b1"]
    lane.release(["a"])
    assert take(lane, by_key=True) == [b"a3"]


def test_the_bounds_hold_for_what_waited_for_its_key() -> None:
    lane = lane_with(*[make_run(*[(key, b"%d" % number) for key in "abc"]) for number in range(2)])
    assert len(take(lane, by_key=True)) == 3
    lane.release("abc")
    assert take(lane, records_max=1, by_key=True) == [b"1"]
    assert lane.next_bytes() == 2
    assert take(lane, bytes_max=3, by_key=True) == [b"1"]
    assert take(lane, bytes_max=1, by_key=True) == []
    assert take(lane, bytes_max=1, by_key=True, first_any=True) == [b"1"]
    assert is_empty(lane)


def test_the_next_of_a_key_goes_when_the_one_before_it_was_withdrawn_or_has_expired() -> None:
    second, third = run_of(b"2", time_to_live_s=5), run_of(b"3", b"4")
    lane = lane_with(run_of(b"1"), second, third)
    assert take(lane, by_key=True) == [b"1"]
    assert take(lane, by_key=True) == []
    lane.release(["k"])
    assert [list(run.datas) for run in lane.expire(5.0)] == [[b"2"]]
    assert lane.waiting == 1
    third.chunk.withdrawn = {0}
    assert take(lane, by_key=True) == [b"4"]
    lane.release(["k"])
    assert is_empty(lane)


def test_what_is_cleared_comes_in_the_order_of_each_key() -> None:
    lane = lane_with(run_of(b"1", b"2", b"3"))
    load = some(lane.take_by_key(500, 1_000, first_any=False, looks_max=100))
    assert take(lane, by_key=True) == []
    lane.add(run_of(b"4"))
    lane.retry.append(load)
    load.attempts, load.reason = 1, "why"
    runs = lane.clear()
    assert [data for run in runs for data in run.datas] == [b"1", b"2", b"3", b"4"]
    assert [(run.attempts, run.reason) for run in runs] == [(1, "why"), (0, ""), (0, ""), (0, "")]
    assert is_empty(lane)
    assert not lane.busy


def test_a_key_that_is_on_its_way_stays_so_when_what_waits_is_cleared() -> None:
    lane = lane_with(run_of(b"1", b"2"))
    assert take(lane, by_key=True) == [b"1"]
    lane.add(run_of(b"4", key="refused"))
    lane.retry.append(some(lane.take_by_key(500, 1_000, first_any=False, looks_max=100)))
    assert [list(run.datas) for run in lane.clear()] == [[b"4"], [b"2"]]
    lane.add(run_of(b"3"))
    lane.add(run_of(b"5", key="refused"))
    assert take(lane, by_key=True) == [b"5"]
    lane.release(["k"])
    assert take(lane, by_key=True) == [b"3"]


# --- times-to-live --------------------------------------------------------------------------------


def test_what_expires_is_taken_out_wherever_it_stands() -> None:
    early, late, short = run_of(b"1", time_to_live_s=1), run_of(b"2", time_to_live_s=9), run_of(b"3", time_to_live_s=1)
    lane = lane_with(early, late)
    assert lane.expire(0.9) == []
    assert lane.expire(1.0) == [early]
    lane.add(short)
    assert lane.expire(1.0) == [short]
    assert lane.waiting == 1
    lane.add(run_of(b"0", time_to_live_s=20), first=True)
    assert lane.expire(9.0) == [late]
    assert take(lane) == [b"0"]


def test_what_expires_of_a_load_leaves_it_and_the_rest_stays_a_load() -> None:
    lane = lane_with(make_run(("a", b"1"), time_to_live_s=1), make_run(("b", b"2"), time_to_live_s=9))
    load = some(lane.take_plain(500, 1_000, first_any=False))
    load.attempts, load.doubtful, load.reason, load.not_before_s = 3, True, "why", 7.0
    lane.retry.append(load)
    (gone,) = lane.expire(5.0)
    assert (list(gone.datas), gone.attempts, gone.doubtful, gone.reason) == ([b"1"], 3, True, "why")
    (left,) = lane.retry
    assert datas_of(left.entries) == [b"2"]
    assert (left.attempts, left.doubtful, left.not_before_s, left.payload_bytes) == (3, True, 7.0, 2)


def test_an_aggregate_with_an_expired_record_is_taken_apart_and_keeps_its_place() -> None:
    former = [
        lane_with(run_of(b"%d1" % number, time_to_live_s=1), run_of(b"%d2" % number, time_to_live_s=9))
        for number in (1, 2)
    ]
    lane = lane_with(run_of(b"31"))
    for load in [some(each.take_aggregate(Aggregator())) for each in former]:
        load.attempts = 1
        lane.retry.append(load)
    assert sorted(data for run in lane.expire(5.0) for data in run.datas) == [b"11", b"21"]
    assert take(lane) == [b"12", b"22", b"31"]
    assert not lane.retry


@pytest.mark.parametrize("by_key", [False, True])
def test_what_was_withdrawn_is_let_go_of_before_its_turn(by_key: bool) -> None:
    runs = [run_of(b"1", b"2"), run_of(b"3"), run_of(b"4")]
    lane = lane_with(*runs)
    assert take(lane, records_max=1, by_key=by_key) == [b"1"]
    if by_key:
        assert take(lane, by_key=True) == []
        lane.release(["k"])
    runs[0].chunk.withdrawn, runs[1].chunk.withdrawn = {1}, {0}
    lane.drop_withdrawn()
    assert next(iter(lane.everything())).datas == [b"4"]
    assert lane.waiting == 1
    assert take(lane, by_key=by_key) == [b"4"]


# --- books ----------------------------------------------------------------------------------------


def test_a_chunk_counts_records_that_go_out_for_the_first_time() -> None:
    run = run_of(b"1", b"2")
    note_taken([run])
    assert run.chunk.taken == 2
    run.attempts = 1
    note_taken([run])
    assert run.chunk.taken == 2


def test_runs_remember_what_their_load_went_through() -> None:
    load = some(lane_with(run_of(b"1")).take_plain(500, 1_000, first_any=False))
    load.attempts, load.doubtful, load.reason = 2, True, "why"
    remember(load, *load.runs)
    assert [(run.attempts, run.doubtful, run.reason) for run in load.runs] == [(2, True, "why")]
