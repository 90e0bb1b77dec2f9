"""SplitShard, MergeShards, UpdateShardCount."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.model.scaling import Piece, scale
from shardway.local.model.stream import even_ranges
from tests.local.model_kit import HASH_KEYS, World, shard_id

UNIFORM = {"StreamName": "s", "ScalingType": "UNIFORM_SCALING"}


@pytest.fixture
def world() -> World:
    made = World()
    made.create(shards=3)
    return made


def parents(shard: dict[str, str]) -> tuple[str | None, str | None]:
    return shard.get("ParentShardId"), shard.get("AdjacentParentShardId")


def test_new_streams_are_divided_as_aws_does(world: World) -> None:
    assert [tuple(s["HashKeyRange"].values()) for s in world.shards()] == [
        ("0", "113427455640312821154458202477256070484"),
        ("113427455640312821154458202477256070485", "226854911280625642308916404954512140969"),
        ("226854911280625642308916404954512140970", "340282366920938463463374607431768211455"),
    ]


def test_a_split_makes_two_children_at_the_new_starting_key(world: World) -> None:
    world.split(1, 170141183460469231731687303715884105728)
    shards = world.shards()
    assert [parents(s) for s in shards] == [(None, None)] * 3 + [(shard_id(1), None)] * 2
    assert shards[3]["HashKeyRange"] == {
        "StartingHashKey": "113427455640312821154458202477256070485",
        "EndingHashKey": "170141183460469231731687303715884105727",
    }
    assert shards[4]["HashKeyRange"] == {
        "StartingHashKey": "170141183460469231731687303715884105728",
        "EndingHashKey": "226854911280625642308916404954512140969",
    }
    assert ["EndingSequenceNumber" in s["SequenceNumberRange"] for s in shards] == [False, True, False, False, False]
    key = "113427455640312821154458202477256070485"
    assert world.put(ExplicitHashKey=key)["ShardId"] == shard_id(3)


def test_a_merge_makes_one_child_of_two_parents(world: World) -> None:
    world.merge(0, 1)
    child = world.shards()[3]
    assert parents(child) == (shard_id(0), shard_id(1))
    assert child["HashKeyRange"] == {
        "StartingHashKey": "0",
        "EndingHashKey": "226854911280625642308916404954512140969",
    }
    assert world.summary()["OpenShardCount"] == 2
    assert world.put(ExplicitHashKey="0")["ShardId"] == shard_id(3)


@pytest.mark.parametrize("key", [0, 1, 113427455640312821154458202477256070484, HASH_KEYS - 1])
def test_where_a_shard_cannot_be_split(world: World, key: int) -> None:
    fault = world.fails("SplitShard", StreamName="s", ShardToSplit="shard-0", NewStartingHashKey=str(key))
    assert fault.code == "InvalidArgumentException"
    assert fault.message == (
        f"NewStartingHashKey {key} used in SplitShard() on shard shardId-000000000000 in stream s under account "
        "000000000000 is not both greater than one plus the shard's StartingHashKey 0 and less than the shard's "
        "EndingHashKey 113427455640312821154458202477256070484."
    )


@pytest.mark.parametrize(("lower", "upper"), [(0, 2), (1, 0), (0, 0)])
def test_what_cannot_be_merged(world: World, lower: int, upper: int) -> None:
    fault = world.fails("MergeShards", StreamName="s", ShardToMerge=f"x-{lower}", AdjacentShardToMerge=f"x-{upper}")
    assert fault.code == "InvalidArgumentException"
    assert fault.message == (
        f"Shards {shard_id(lower)} and {shard_id(upper)} in stream s under account 000000000000 "
        "are not an adjacent pair of shards eligible for merging"
    )


def test_closed_shards_are_not_split_or_merged_again(world: World) -> None:
    world.split(0)
    again = "has already been merged or split, and thus is not eligible for merging or splitting."
    fault = world.fails("SplitShard", StreamName="s", ShardToSplit="0", NewStartingHashKey="1000")
    assert fault.code == "InvalidArgumentException"
    assert str(fault.message).endswith(again)
    fault = world.fails("MergeShards", StreamName="s", ShardToMerge="0", AdjacentShardToMerge="1")
    assert str(fault.message).endswith(again)


def test_shards_and_streams_that_do_not_exist(world: World) -> None:
    merge = {"StreamName": "s", "ShardToMerge": "0"}
    fault = world.fails("MergeShards", AdjacentShardToMerge="shardId-5", **merge)
    assert fault.message == "Could not find shard shardId-000000000005 in stream s under account 000000000000."
    fault = world.fails("SplitShard", StreamName="none", ShardToSplit="ABKLFD8", NewStartingHashKey="0")
    assert fault.message == "Could not find shard ABKLFD8 in stream none under account 000000000000."
    fault = world.fails("SplitShard", StreamName="none", ShardToSplit="0", NewStartingHashKey="0")
    assert fault.message == "Stream none under account 000000000000 not found."


def test_the_quota_holds_for_splits_and_scaling() -> None:
    world = World(shard_quota=4)
    world.create(shards=3)
    world.split(0)
    fault = world.fails("SplitShard", StreamName="s", ShardToSplit="1", NewStartingHashKey=str(HASH_KEYS // 2))
    assert fault.code == "LimitExceededException"
    assert "Current shard count for the account: 4. Limit: 4. Number of additional shards" in str(fault.message)
    fault = world.fails("UpdateShardCount", TargetShardCount=5, **UNIFORM)
    assert fault.code == "LimitExceededException"


def test_on_demand_streams_are_not_resharded_by_hand() -> None:
    world = World()
    world.call("CreateStream", StreamName="s", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    message = "Request is invalid. Stream s under account 000000000000 is in On-Demand mode."
    for operation, more in (
        ("UpdateShardCount", {"TargetShardCount": 8, "ScalingType": "UNIFORM_SCALING"}),
        ("SplitShard", {"ShardToSplit": "0", "NewStartingHashKey": "5"}),
        ("MergeShards", {"ShardToMerge": "0", "AdjacentShardToMerge": "1"}),
    ):
        fault = world.fails(operation, StreamName="s", **more)
        assert (fault.code, fault.message) == ("ValidationException", message)


# --- while the stream is UPDATING -----------------------------------------------------------------


def test_a_split_happens_when_the_stream_has_settled() -> None:
    world = World(settle_s=5)
    world.create()
    world.advance(5)
    world.split()
    assert world.summary()["StreamStatus"] == "UPDATING"
    assert world.ids() == [0]
    assert world.put(b"during")["ShardId"] == shard_id(0)
    fault = world.fails("SplitShard", StreamName="s", ShardToSplit="0", NewStartingHashKey="5")
    assert (fault.code, fault.message) == (
        "ResourceInUseException",
        "Stream s under account 000000000000 not ACTIVE, instead in state UPDATING",
    )
    world.advance(5)
    assert world.put(b"after")["ShardId"] != shard_id(0)
    assert world.ids() == [0, 1, 2]
    assert world.summary()["StreamStatus"] == "ACTIVE"
    assert world.read() == [b"during"]


# --- UpdateShardCount -----------------------------------------------------------------------------


def test_doubling_splits_each_shard_and_answers_with_both_counts(world: World) -> None:
    answer = world.call("UpdateShardCount", TargetShardCount=6, **UNIFORM)
    assert answer == {
        "StreamName": "s",
        "StreamARN": world.summary()["StreamARN"],
        "CurrentShardCount": 3,
        "TargetShardCount": 6,
    }
    shards = world.shards()
    assert [parents(s)[0] for s in shards[3:]] == [shard_id(i) for i in (0, 0, 1, 1, 2, 2)]
    assert world.summary()["OpenShardCount"] == 6


def test_halving_merges_neighbours() -> None:
    world = World()
    world.create(shards=4)
    world.call("UpdateShardCount", TargetShardCount=2, **UNIFORM)
    assert [parents(s) for s in world.shards()[4:]] == [(shard_id(0), shard_id(1)), (shard_id(2), shard_id(3))]


def test_four_to_three_goes_as_it_was_seen_on_the_service() -> None:
    world = World()
    world.create(shards=4)
    for key in map(str, range(40)):
        world.put(key=key)
    world.call("UpdateShardCount", TargetShardCount=3, **UNIFORM)
    assert [int(s["ShardId"][-12:]) for s in world.shards() if len(s["SequenceNumberRange"]) == 1] == [6, 9, 10]
    lineage = {int(s["ShardId"][-12:]): [int(p[-12:]) for p in parents(s) if p] for s in world.shards()}
    assert lineage == {
        **{i: [] for i in range(4)},
        4: [1],
        5: [1],
        6: [0, 4],
        7: [2],
        8: [2],
        9: [5, 7],
        10: [8, 3],
    }
    assert sum(len(world.read(shard=i)) for i in range(11)) == 40


def test_how_far_and_how_often_a_stream_is_scaled(world: World) -> None:
    for target in (7, 1):
        fault = world.fails("UpdateShardCount", TargetShardCount=target, **UNIFORM)
        assert fault.code == "LimitExceededException"
    for _ in range(5):
        world.call("UpdateShardCount", TargetShardCount=4, **UNIFORM)
        world.call("UpdateShardCount", TargetShardCount=3, **UNIFORM)
        world.advance(3_600)
    fault = world.fails("UpdateShardCount", TargetShardCount=4, **UNIFORM)
    assert "10 times within the last 24 hours" in str(fault.message)
    world.advance(20 * 3_600)
    world.call("UpdateShardCount", TargetShardCount=4, **UNIFORM)
    fault = world.fails("UpdateShardCount", StreamName="s", TargetShardCount=4, ScalingType="OTHER")
    assert "Member must satisfy enum value set: [UNIFORM_SCALING]" in str(fault.message)


@st.composite
def coverings(draw: st.DrawFn) -> list[Piece]:
    """Open shards that cover the hash space: even ones, or any."""
    count = draw(st.integers(1, 12))
    if draw(st.booleans()):
        return [Piece(i, *ends) for i, ends in enumerate(even_ranges(count))]
    inner = draw(st.sets(st.integers(1, HASH_KEYS - 1), max_size=count))
    firsts = [0, *sorted(inner)]
    lasts = [first - 1 for first in firsts[1:]] + [HASH_KEYS - 1]
    return [Piece(i, first, last) for i, (first, last) in enumerate(zip(firsts, lasts, strict=True))]


@settings(deadline=None)
@given(pieces=coverings(), target=st.integers(1, 24))
def test_scaling_covers_the_space_evenly_with_as_many_shards_as_asked(pieces: list[Piece], target: int) -> None:
    open_now = {piece.shard_index: (piece.first, piece.last) for piece in pieces}
    made = len(pieces)
    for closing, births in scale(pieces, target, len(pieces)):
        freed = sorted(open_now.pop(index) for index in closing)
        born = []
        for parent_indexes, first, last in births:
            assert sorted(parent_indexes) == sorted(closing)
            born.append((int(first), int(last)))
            open_now[made] = born[-1]
            made += 1
        for ranges in (freed, born):
            assert all(low[1] + 1 == high[0] for low, high in pairwise(ranges))
        assert (freed[0][0], freed[-1][1]) == (born[0][0], born[-1][1])
    ranges = sorted(open_now.values())
    assert len(ranges) == target
    assert (ranges[0][0], ranges[-1][1]) == (0, HASH_KEYS - 1)
    assert all(low[1] + 1 == high[0] for low, high in pairwise(ranges))
    assert all(abs(last - first - HASH_KEYS // target) <= 2 * target for first, last in ranges)


@settings(deadline=None)
@given(shards=st.integers(1, 300))
def test_even_ranges_partition_the_space(shards: int) -> None:
    ranges = even_ranges(shards)
    assert len(ranges) == shards
    assert (ranges[0][0], ranges[-1][1]) == (0, HASH_KEYS - 1)
    assert all(low[1] + 1 == high[0] for low, high in pairwise(ranges))


def test_a_large_stream_is_scaled() -> None:
    pieces = [Piece(i, *ends) for i, ends in enumerate(even_ranges(4_999))]
    stages = scale(pieces, 9_998, 4_999)
    assert len(stages) == 4_999
    assert all(len(births) == 2 for _, births in stages)
