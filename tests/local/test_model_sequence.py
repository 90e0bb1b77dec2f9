"""Sequence numbers and shard ids."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.model import sequence_numbers
from tests.local.model_kit import START_S, World

KCL_EXAMPLE = 49587497311274533994574834252742144236107130636007899138
"""From the KCL's tests: a number of shard 0 in layout version 2."""


def test_a_number_of_the_service_is_taken_apart_as_the_kcl_does() -> None:
    parts = sequence_numbers.parse(KCL_EXAMPLE)
    assert parts is not None
    assert (parts.version, parts.shard_index) == (2, 0)
    assert 1_400_000_000 < parts.shard_created_s < 1_700_000_000


@pytest.mark.parametrize(
    "number",
    [
        74107425965128755728308386687147091174006956590945533954,  # version 3
        int("20000000000000000000000000000000000000000000000", 16),  # ends in 0
        int("20000000000000000000000000000000000000000000003", 16),  # ends in 3
        int("30000000000000000000000000000000000000000000001", 16),  # begins with 3
        int("1ffffffffff7fffffffffffffff000000000007fffffff2", 16),  # begins with 1
        int("20000000000800000000000000000000000000000000002", 16),  # counter too high
        int("2ffffffffff7fffffffffffffff000000000007fffffff2", 16),  # made too late
        int("13bb2cc3d80000000000000000000000", 16),  # version 0, made too late
        10**200,
    ],
)
def test_what_no_layout_fits_is_no_number(number: int) -> None:
    assert sequence_numbers.parse(number) is None


def test_older_layouts_are_understood() -> None:
    small = sequence_numbers.parse(5)
    assert small is not None
    assert (small.version, small.shard_index) == (0, 5)
    first = sequence_numbers.parse(int("20000000000000000000000000000000000000000000001", 16))
    assert first is not None
    assert (first.version, first.shard_index) == (1, 0)


def test_a_shard_index_with_the_highest_bit_reads_as_negative() -> None:
    parts = sequence_numbers.parse(int("20000000000000000000000000000000000000800000002", 16))
    assert parts is not None
    assert sequence_numbers.shard_name(parts.shard_index) == "shardId--02147483648"


@settings(deadline=None)
@given(
    index=st.integers(0, sequence_numbers.SHARD_INDEX_MAX),
    created_s=st.integers(0, 16_025_174_999),
    counter=st.integers(0, sequence_numbers.COUNTER_MAX),
    arrived_s=st.integers(0, 2**36 - 1),
)
def test_what_is_composed_is_taken_apart_again(index: int, created_s: int, counter: int, arrived_s: int) -> None:
    number = sequence_numbers.compose(sequence_numbers.shard_base(index, created_s), counter, arrived_s)
    assert sequence_numbers.parse(number) == sequence_numbers.Parts(2, index, created_s, counter, arrived_s)
    assert len(str(number)) == 56


@settings(deadline=None)
@given(
    one=st.tuples(st.integers(0, sequence_numbers.COUNTER_MAX), st.integers(0, 2**36 - 1)),
    other=st.tuples(st.integers(0, sequence_numbers.COUNTER_MAX), st.integers(0, 2**36 - 1)),
    indexes=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
)
def test_a_child_is_above_its_parent_whatever_the_counters(
    one: tuple[int, int], other: tuple[int, int], indexes: tuple[int, int]
) -> None:
    parent = sequence_numbers.compose(sequence_numbers.shard_base(indexes[0], 1_700_000_000), *one)
    child = sequence_numbers.compose(sequence_numbers.shard_base(indexes[1], 1_700_000_001), *other)
    assert parent < child


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("shardId-000000000012", 12),
        ("shardId-12", 12),
        ("12", 12),
        ("-00002147483647", 2147483647),
        ("any-7", 7),
        ("2147483648", None),
        ("shardId-002147483648", None),
        ("ABKLFD8", None),
        ("2.14E4", None),
        ("shardId-", None),
        ("", None),
    ],
)
def test_shard_ids(text: str, index: int | None) -> None:
    assert sequence_numbers.shard_index_of(text) == index


def test_numbers_of_one_call_follow_each_other_in_each_shard_and_leave_gaps_elsewhere() -> None:
    world = World()
    world.create(shards=3)
    before = 0
    for _ in range(3):
        records = world.put_many([(b"", str(i)) for i in range(40)])["Records"]
        world.advance(1.5)
        by_shard: dict[str, list[int]] = {}
        for record in records:
            by_shard.setdefault(record["ShardId"], []).append(int(record["SequenceNumber"]))
        for numbers in by_shard.values():
            counters = [(number >> sequence_numbers.COUNTER_SHIFT) & (2**64 - 1) for number in numbers]
            assert counters == list(range(counters[0], counters[0] + len(counters)))
            assert counters[0] > before
            assert numbers == sorted(set(numbers))
        before = max((int(r["SequenceNumber"]) >> sequence_numbers.COUNTER_SHIFT) & (2**64 - 1) for r in records)


def test_a_shard_starts_and_ends_with_numbers_that_no_record_has() -> None:
    world = World()
    world.create()
    number = int(world.put()["SequenceNumber"])
    world.advance(3)
    world.split()
    parent, low, high = world.shards()
    starting = int(parent["SequenceNumberRange"]["StartingSequenceNumber"])
    ending = int(parent["SequenceNumberRange"]["EndingSequenceNumber"])
    assert starting < number < ending
    end = sequence_numbers.parse(ending)
    assert end is not None
    assert (end.counter, end.arrived_s) == (sequence_numbers.COUNTER_MAX, int(START_S) + 3)
    for child in (low, high):
        assert "EndingSequenceNumber" not in child["SequenceNumberRange"]
        begin = sequence_numbers.parse(int(child["SequenceNumberRange"]["StartingSequenceNumber"]))
        assert begin is not None
        assert begin.shard_created_s == begin.arrived_s == end.arrived_s + 1
        assert begin.counter == 0


def test_numbers_grow_over_many_generations_in_one_instant() -> None:
    world = World()
    world.create()
    last = 0
    for generation in range(12):
        shard = len(world.shards()) - 1
        number = int(
            world.put(ExplicitHashKey=world.shards()[shard]["HashKeyRange"]["StartingHashKey"])["SequenceNumber"]
        )
        assert number > last, generation
        world.split(shard)
        last = int(world.shards()[shard]["SequenceNumberRange"]["EndingSequenceNumber"])
        assert last > number


def test_the_first_numbers_of_a_stream_lie_as_far_apart_as_aws_has_them() -> None:
    world = World()
    world.create(shards=3)
    starts = [int(s["SequenceNumberRange"]["StartingSequenceNumber"]) for s in world.shards()]
    assert starts[1] - starts[0] == starts[2] - starts[1] == 22300745198530623141535718272648361505980432
