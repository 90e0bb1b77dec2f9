"""A lane holds what waits for one shard, in order, and gives it out as loads, of which a request is made. All lanes:
each record waits for the shard that will take it, also after a reshard; with order by key, behind it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.writer import Aggregator
from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.core.producer.lane import Lane
from shardway.core.producer.lanes import Lanes, holds_all
from shardway.core.producer.limits import PaceLimits
from shardway.core.producer.loads import aggregate_load, plain_load, plain_load_by_key
from shardway.core.producer.request import Request, note_history
from shardway.core.producer.run import Run, note_taken
from tests.core.producer.producer_kit import (
    datas_of,
    halves_of,
    keys_of,
    make_chunk,
    make_lane,
    make_run,
    make_shard,
    make_shards,
    some,
)
from tests.put_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.producer.lane import Lane
    from shardway.core.producer.request import Load
    from shardway.model import ListedShard


def make_load() -> Load:
    lane = make_lane()
    for records in ([("a", b"1"), ("b", b"22")], [("c", b"333")], [("d", b"4"), ("e", b"5"), ("f", b"6")]):
        lane.add(make_run(*records))
    return some(plain_load(lane, 500, 1_000, first_any=False))


@pytest.mark.parametrize(
    ("places", "found"),
    [([], []), ([0], [[b"1"]]), ([1, 2], [[b"22"], [b"333"]]), ([0, 3, 5], [[b"1"], [b"4", b"6"]]), (range(6), None)],
)
def test_records_are_picked_by_the_places_of_their_entries(
    places: Sequence[int], found: list[list[bytes]] | None
) -> None:
    load = make_load()
    picked = [list(run.datas) for run in load.pick(places)]
    assert picked == ([list(run.datas) for run in load.runs] if found is None else found)


def test_a_request_adds_up_its_loads_and_counts_their_attempts() -> None:
    request = Request(1.5)
    loads = [make_load(), make_load()]
    for load in loads:
        request.add(load)
    assert request.entries == loads[0].entries + loads[1].entries
    assert (request.user_records, request.payload_bytes, request.sent_at_s) == (12, 2 * (9 + 6), 1.5)
    assert [load.attempts for load in loads] == [1, 1]


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
        load = plain_load_by_key(lane, records_max, bytes_max, first_any=first_any, records_examined_max=looks_max)
    else:
        load = plain_load(lane, records_max, bytes_max, first_any=first_any)
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
    load = some(aggregate_load(lane, Aggregator(bytes_max=150)))
    assert (len(load.entries), load.user_records, lane.waiting) == (1, 3, 2)
    assert load.is_aggregate
    entry = load.entries[0]
    assert [record.partition_key for record in open_aggregate(entry.data) or ()] == ["0", "1", "2"]
    assert entry.partition_key == "a"
    assert load.payload_bytes == entry.payload_bytes <= 151
    single = some(aggregate_load(lane_with(run_of(b"x", key="only")), Aggregator()))
    assert (single.entries[0].data, single.entries[0].partition_key) == (b"x", "only")


def test_an_aggregate_of_what_was_withdrawn_is_none() -> None:
    run = run_of(b"1")
    run.chunk.withdrawn = {0}
    lane = lane_with(run)
    assert aggregate_load(lane, Aggregator()) is None
    assert is_empty(lane)


def test_explicit_hash_keys_go_along() -> None:
    lane = lane_with(make_run(("a", b"1"), ("b", b"2"), hash_keys={1: 99}))
    load = some(plain_load(lane, 500, 1_000, first_any=False))
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
        looked_at.append(lane.records_examined)
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
    second, third = run_of(b"2", record_ttl_s=5), run_of(b"3", b"4")
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
    load = some(plain_load_by_key(lane, 500, 1_000, first_any=False, records_examined_max=100))
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
    lane.retry.append(some(plain_load_by_key(lane, 500, 1_000, first_any=False, records_examined_max=100)))
    assert [list(run.datas) for run in lane.clear()] == [[b"4"], [b"2"]]
    lane.add(run_of(b"3"))
    lane.add(run_of(b"5", key="refused"))
    assert take(lane, by_key=True) == [b"5"]
    lane.release(["k"])
    assert take(lane, by_key=True) == [b"3"]


# --- times to live --------------------------------------------------------------------------------


def test_what_expires_is_taken_out_wherever_it_stands() -> None:
    early, late, short = run_of(b"1", record_ttl_s=1), run_of(b"2", record_ttl_s=9), run_of(b"3", record_ttl_s=1)
    lane = lane_with(early, late)
    assert lane.expire(0.9) == []
    assert lane.expire(1.0) == [early]
    lane.add(short)
    assert lane.expire(1.0) == [short]
    assert lane.waiting == 1
    lane.add(run_of(b"0", record_ttl_s=20), first=True)
    assert lane.expire(9.0) == [late]
    assert take(lane) == [b"0"]


def test_what_expires_of_a_load_leaves_it_and_the_rest_stays_a_load() -> None:
    lane = lane_with(make_run(("a", b"1"), record_ttl_s=1), make_run(("b", b"2"), record_ttl_s=9))
    load = some(plain_load(lane, 500, 1_000, first_any=False))
    load.attempts, load.doubtful, load.reason, load.not_before_s = 3, True, "why", 7.0
    lane.retry.append(load)
    (gone,) = lane.expire(5.0)
    assert (list(gone.datas), gone.attempts, gone.doubtful, gone.reason) == ([b"1"], 3, True, "why")
    (left,) = lane.retry
    assert datas_of(left.entries) == [b"2"]
    assert (left.attempts, left.doubtful, left.not_before_s, left.payload_bytes) == (3, True, 7.0, 2)


def test_an_aggregate_with_an_expired_record_is_taken_apart_and_keeps_its_place() -> None:
    former = [
        lane_with(run_of(b"%d1" % number, record_ttl_s=1), run_of(b"%d2" % number, record_ttl_s=9)) for number in (1, 2)
    ]
    lane = lane_with(run_of(b"31"))
    for load in [some(aggregate_load(each, Aggregator())) for each in former]:
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
    assert next(iter(lane.all_runs())).datas == [b"4"]
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
    load = some(plain_load(lane_with(run_of(b"1")), 500, 1_000, first_any=False))
    load.attempts, load.doubtful, load.reason = 2, True, "why"
    note_history(load, *load.runs)
    assert [(run.attempts, run.doubtful, run.reason) for run in load.runs] == [(2, True, "why")]


def make_lanes(shards: Iterable[ListedShard] | None = None, *, ordered: bool = False) -> Lanes:
    lanes = Lanes(Entry, None, Random(1), ordered=ordered)
    if shards is not None:
        lanes.set_shards(shards, 0.0)
    return lanes


def add(lanes: Lanes, *records: tuple[str, bytes], **given: Any) -> None:
    lanes.add(make_chunk(records, **given), [key for key, _ in records], [data for _, data in records])


def waiting(lanes: Lanes) -> dict[str | None, list[bytes]]:
    return {
        lane.shard_id: [data for run in lane.all_runs() for data in run.datas[run.at :]]
        for lane in lanes
        if lane.waiting
    }


def lane_of(lanes: Lanes, shard: ListedShard) -> Lane:
    return next(lane for lane in lanes if lane.shard == shard)


def take_one(lane: Lane) -> Load:
    """As if a request took one record; it is on its way then."""
    load = some(plain_load(lane, 1, 1_000, first_any=True))
    load.attempts, lane.in_flight = 1, lane.in_flight + 1
    return load


def test_records_are_spread_by_shard_and_keep_their_order() -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards)
    (a, b), (c,) = keys_of(shards[0], 2), keys_of(shards[1], 1)
    add(lanes, (a, b"1"), (c, b"2"), (b, b"3"), (a, b"4"), (c, b"5"))
    assert waiting(lanes) == {shards[0].shard_id: [b"1", b"3", b"4"], shards[1].shard_id: [b"2", b"5"]}
    assert [lane.shard for lane in lanes.active] == shards


def test_all_waits_elsewhere_until_the_shards_are_known() -> None:
    lanes = make_lanes()
    add(lanes, ("a", b"1"), ("b", b"2"))
    assert (lanes.known, waiting(lanes)) == (False, {None: [b"1", b"2"]})
    (shard,) = make_shards(1)
    assert lanes.set_shards([shard], 0.0) == ((shard.shard_id,), ())
    assert (lanes.known, waiting(lanes)) == (True, {shard.shard_id: [b"1", b"2"]})


def test_what_waits_for_a_shard_that_is_gone_goes_to_those_that_took_its_place() -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent])
    left, right = halves_of(parent, 1)
    (a,), (b,) = keys_of(left, 1), keys_of(right, 1)
    add(lanes, (a, b"1"), (b, b"2"), (a, b"3"))
    former = lane_of(lanes, parent)
    assert lanes.set_shards([left, right], 0.0) == ((left.shard_id, right.shard_id), (parent.shard_id,))
    assert waiting(lanes) == {left.shard_id: [b"1", b"3"], right.shard_id: [b"2"]}
    assert lanes.is_former(former)
    assert former not in lanes.active
    assert not any(lanes.is_former(lane) for lane in lanes)


def test_a_shard_that_stays_keeps_its_lane() -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards)
    before = lane_of(lanes, shards[0])
    lanes.set_shards([shards[0], *halves_of(shards[1], 2)], 0.0)
    assert lane_of(lanes, shards[0]) is before
    assert lanes.set_shards([shards[0], *halves_of(shards[1], 2)], 0.0) == ((), ())


def test_a_listing_that_shows_shards_that_overlap_changes_nothing() -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards)
    with pytest.raises(ValueError, match="overlap"):
        lanes.set_shards([make_shard(8, 0, HASH_KEY_MAX), make_shard(9, 5, 6)], 0.0)
    assert [lane.shard for lane in lanes] == [None, *shards]


def test_what_comes_back_goes_before_what_waits() -> None:
    (shard,) = make_shards(1)
    lanes = make_lanes([shard])
    add(lanes, ("c", b"3"))
    chunk = make_chunk([("a", b"1"), ("b", b"2")])
    runs = [Run(chunk, ["a"], [b"1"], [0]), Run(chunk, ["b"], [b"2"], [1])]
    lanes.requeue(runs, first=True)
    assert waiting(lanes) == {shard.shard_id: [b"1", b"2", b"3"]}


def test_shard_ids_rise_so_that_an_unknown_one_is_new_or_closed() -> None:
    lanes = make_lanes([make_shard(4, 0, HASH_KEY_MAX)])
    assert lanes.may_come("shardId-000000000005")
    assert not lanes.may_come("shardId-000000000003")
    lanes.set_shards(None, 0.0)
    assert not lanes.may_come("shardId-000000000005")


def test_the_kcl_asks_that_an_aggregates_records_all_lie_in_the_shards_range() -> None:
    left, right = make_shards(2)
    (a, b), (c,) = keys_of(left, 2), keys_of(right, 1)
    inside = Run(make_chunk([(a, b"1"), (b, b"2")]), [a, b], [b"1", b"2"], [0, 1])
    mixed = Run(make_chunk([(a, b"1"), (c, b"2")]), [a, c], [b"1", b"2"], [0, 1])
    pinned = Run(make_chunk([(a, b"1"), (c, b"2")], hash_keys={1: hash_key(b)}), [a, c], [b"1", b"2"], [0, 1])
    assert [holds_all(left, [run]) for run in (inside, mixed, pinned)] == [True, False, True]


# --- in order by key ------------------------------------------------------------------------------


def test_in_order_children_stay_behind_what_is_on_its_way_to_their_parent() -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent], ordered=True)
    left, right = halves_of(parent, 1)
    (a,) = keys_of(left, 1)
    add(lanes, (a, b"1"), (a, b"2"))
    former = lane_of(lanes, parent)
    take_one(former)
    lanes.set_shards([left, right], 0.0)
    assert [lane_of(lanes, shard).predecessors for shard in (left, right)] == [{former}, {former}]
    lanes.active.clear()
    lanes.end_load(former)
    assert [lane_of(lanes, shard).predecessors for shard in (left, right)] == [set(), set()]
    assert lane_of(lanes, left) in lanes.active
    assert former not in lanes


def test_other_shards_do_not_wait_for_a_reshard() -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards, ordered=True)
    (a,) = keys_of(shards[1], 1)
    add(lanes, (a, b"1"))
    take_one(lane_of(lanes, shards[1]))
    lanes.set_shards([shards[0], *halves_of(shards[1], 2)], 0.0)
    assert lane_of(lanes, shards[0]).predecessors == set()


def test_grandchildren_stay_behind_too() -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent], ordered=True)
    add(lanes, ("a", b"1"))
    former = lane_of(lanes, parent)
    take_one(former)
    left, right = halves_of(parent, 1)
    lanes.set_shards([left, right], 0.0)
    merged = make_shard(3, 0, HASH_KEY_MAX, left.shard_id, right.shard_id)
    lanes.set_shards([merged], 0.0)
    assert lane_of(lanes, merged).predecessors == {former}


@pytest.mark.parametrize("at_the_end", [True, False], ids=["its last key", "its first key"])
def test_a_shard_that_has_one_hash_key_of_a_former_one_stays_behind_it(at_the_end: bool) -> None:
    """Two reshards between two listings: the shard that takes the key now is no child of the one that had it."""
    middle = HASH_KEY_MAX // 2
    former_shard = make_shard(0, 0, middle) if at_the_end else make_shard(0, middle, HASH_KEY_MAX)
    lanes = make_lanes([former_shard], ordered=True)
    former = lane_of(lanes, former_shard)
    former.add(make_run(("a", b"1")))
    take_one(former)
    if at_the_end:
        now = [make_shard(5, 0, middle - 1), make_shard(6, middle, HASH_KEY_MAX)]
    else:
        now = [make_shard(5, 0, middle), make_shard(6, middle + 1, HASH_KEY_MAX)]
    lanes.set_shards(now, 0.0)
    assert [lane_of(lanes, shard).predecessors for shard in now] == [{former}, {former}]


@pytest.mark.parametrize("first", [True, False])
def test_a_shard_that_begins_behind_a_former_one_does_not_wait_for_it(first: bool) -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards, ordered=True)
    former = lane_of(lanes, shards[0 if first else 1])
    former.add(make_run(("a", b"1")))
    take_one(former)
    stays = shards[1 if first else 0]
    halves = halves_of(shards[0 if first else 1], 2)
    lanes.set_shards([*halves, stays], 0.0)
    assert lane_of(lanes, stays).predecessors == set()
    assert [lane_of(lanes, shard).predecessors for shard in halves] == [{former}, {former}]


def test_what_went_without_a_prediction_is_before_all_that_is_predicted() -> None:
    lanes = make_lanes(ordered=True)
    lanes.set_shards(None, 0.0)
    add(lanes, ("a", b"1"), ("b", b"2"))
    former = lanes.unmapped
    take_one(former)
    shards = make_shards(2)
    lanes.set_shards(shards, 0.0)
    assert all(lane.predecessors == {former} for lane in lanes if lane is not former)


@pytest.mark.parametrize("listing", [[], None])
def test_keys_that_the_listing_has_a_hole_for_stay_behind_their_former_shard(listing: list[ListedShard] | None) -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent], ordered=True)
    add(lanes, ("a", b"1"), ("a", b"2"))
    former = lane_of(lanes, parent)
    take_one(former)
    lanes.set_shards(listing, 0.0)
    assert waiting(lanes) == {None: [b"2"]}
    assert lanes.unmapped.predecessors == {former}
    lanes.end_load(former)
    assert lanes.unmapped.predecessors == set()


def test_each_shard_has_a_pace_of_its_own_and_keeps_it() -> None:
    lanes = Lanes(Entry, PaceLimits(10, 1_000), Random(1), ordered=False)
    lanes.set_shards(make_shards(2), 0.0)
    elsewhere, *paced = [lane.pace for lane in lanes]
    assert elsewhere is None
    assert None not in paced
    assert len(set(paced)) == 2
    lanes.set_shards(make_shards(2), 0.0)
    assert [lane.pace for lane in lanes] == [None, *paced]
