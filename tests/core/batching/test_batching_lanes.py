"""Lanes: each record waits for the shard that will take it, also after a reshard; with order by key, behind it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.core.batching.chunk import Run
from penstock.core.batching.lanes import Lane, Lanes, PaceLimits, holds_all
from penstock.core.hashkeys import HASH_KEY_MAX, hash_key
from tests.core.batching.batching_kit import halves_of, keys_of, make_chunk, make_shard, make_shards, some
from tests.put_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.core.batching.lanes import Load
    from penstock.model import Shard


def make_lanes(shards: Iterable[Shard] | None = None, *, ordered: bool = False) -> Lanes:
    lanes = Lanes(Entry, None, Random(1), ordered=ordered)
    if shards is not None:
        lanes.set_shards(shards, 0.0)
    return lanes


def add(lanes: Lanes, *records: tuple[str, bytes], **given: Any) -> None:
    lanes.add(make_chunk(records, **given), [key for key, _ in records], [data for _, data in records])


def waiting(lanes: Lanes) -> dict[str | None, list[bytes]]:
    return {
        lane.shard_id: [data for run in lane.everything() for data in run.datas[run.at :]]
        for lane in lanes
        if lane.waiting
    }


def lane_of(lanes: Lanes, shard: Shard) -> Lane:
    return next(lane for lane in lanes if lane.shard == shard)


def take(lane: Lane) -> Load:
    """As if a request took one record; it is on its way then."""
    load = some(lane.take_plain(1, 1_000, first_any=True))
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
    assert lanes.is_gone(former)
    assert former not in lanes.active
    assert not any(lanes.is_gone(lane) for lane in lanes)


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
    lanes.put_again(runs, first=True)
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
    take(former)
    lanes.set_shards([left, right], 0.0)
    assert [lane_of(lanes, shard).behind for shard in (left, right)] == [{former}, {former}]
    lanes.active.clear()
    lanes.came_back(former)
    assert [lane_of(lanes, shard).behind for shard in (left, right)] == [set(), set()]
    assert lane_of(lanes, left) in lanes.active
    assert former not in lanes


def test_other_shards_do_not_wait_for_a_reshard() -> None:
    shards = make_shards(2)
    lanes = make_lanes(shards, ordered=True)
    (a,) = keys_of(shards[1], 1)
    add(lanes, (a, b"1"))
    take(lane_of(lanes, shards[1]))
    lanes.set_shards([shards[0], *halves_of(shards[1], 2)], 0.0)
    assert lane_of(lanes, shards[0]).behind == set()


def test_grandchildren_stay_behind_too() -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent], ordered=True)
    add(lanes, ("a", b"1"))
    former = lane_of(lanes, parent)
    take(former)
    left, right = halves_of(parent, 1)
    lanes.set_shards([left, right], 0.0)
    merged = make_shard(3, 0, HASH_KEY_MAX, left.shard_id, right.shard_id)
    lanes.set_shards([merged], 0.0)
    assert lane_of(lanes, merged).behind == {former}


def test_what_went_without_a_prediction_is_before_all_that_is_predicted() -> None:
    lanes = make_lanes(ordered=True)
    lanes.set_shards(None, 0.0)
    add(lanes, ("a", b"1"), ("b", b"2"))
    former = lanes.elsewhere
    take(former)
    shards = make_shards(2)
    lanes.set_shards(shards, 0.0)
    assert all(lane.behind == {former} for lane in lanes if lane is not former)


@pytest.mark.parametrize("listing", [[], None])
def test_keys_that_the_listing_has_a_hole_for_stay_behind_their_former_shard(listing: list[Shard] | None) -> None:
    (parent,) = make_shards(1)
    lanes = make_lanes([parent], ordered=True)
    add(lanes, ("a", b"1"), ("a", b"2"))
    former = lane_of(lanes, parent)
    take(former)
    lanes.set_shards(listing, 0.0)
    assert waiting(lanes) == {None: [b"2"]}
    assert lanes.elsewhere.behind == {former}
    lanes.came_back(former)
    assert lanes.elsewhere.behind == set()


def test_each_shard_has_a_pace_of_its_own_and_keeps_it() -> None:
    lanes = Lanes(Entry, PaceLimits(10, 1_000), Random(1), ordered=False)
    lanes.set_shards(make_shards(2), 0.0)
    elsewhere, *paced = [lane.pace for lane in lanes]
    assert elsewhere is None
    assert None not in paced
    assert len(set(paced)) == 2
    lanes.set_shards(make_shards(2), 0.0)
    assert [lane.pace for lane in lanes] == [None, *paced]
