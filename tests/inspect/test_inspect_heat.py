"""Hot shards and hot keys: bounded counters, and the hash key that halves the load."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.aws.kinesis.shapes import WireRecord
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.inspect.heat import HeatOfShard, KeyCounts, ShardHeat, Span, best_split, heat_of
from tests.inspect.scenes import Scene, shard_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.inspect import HeatReport


def record(data: bytes, key: str = "k", number: int = 1) -> WireRecord:
    return WireRecord(
        data=data, sequence_number=str(number), approximate_arrival_timestamp=1_700_000_000.0, partition_key=key
    )


def heated(
    *records: WireRecord, span_s: float = 1.0, first: int = 0, last: int = HASH_KEY_MAX, **more: float
) -> ShardHeat:
    counted = HeatOfShard("shardId-000000000000", first, last)
    counted.add(records)
    total = more.get("total_bytes_per_s", counted.payload_bytes / span_s)
    shards = int(more.get("shards", 1))
    return heat_of(counted, Span(span_s), total_bytes_per_s=total, shards=shards)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1000)), max_size=400))
def test_no_key_counts_too_little_and_the_report_says_how_much_too_much(puts: list[tuple[int, int]]) -> None:
    counts, true = KeyCounts(8), Counter[str]()
    for key, size in puts:
        counts.add(str(key), size)
        true[str(key)] += size
    found = counts.heaviest(8, sum(true.values()))
    assert len(found) <= 8
    for one in found:
        assert one.partition_key is not None
        assert one.payload_bytes - one.overcounted_bytes_max <= true[one.partition_key] <= one.payload_bytes


def test_a_heavy_key_is_found_among_any_number_of_others() -> None:
    counts = KeyCounts(16)
    for number in range(5_000):
        counts.add(f"rare {number}", 10)
        counts.add("heavy", 10)
    assert counts.heaviest(1, 100_000)[0].partition_key == "heavy"


def test_the_user_records_of_an_aggregate_are_counted_by_their_own_keys() -> None:
    aggregate = encode_aggregate([("a", b"x" * 10, None), ("b", b"y" * 30, 7)])
    found = heated(record(aggregate), record(b"z" * 10, "c"))
    assert (found.records, found.user_records, found.payload_bytes) == (2, 3, 50)
    assert [(one.partition_key, one.payload_bytes) for one in found.hot_keys][:1] == [("b", 30)]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=50))
def test_the_split_leaves_both_halves_something_and_is_the_best_there_is(sample: list[tuple[int, int]]) -> None:
    found = best_split(sample, 0, 1000)
    keys = sorted({key for key, _ in sample})
    if len(keys) == 1:
        assert found is None
        return
    assert found is not None
    total = sum(size for _, size in sample)
    shares = [sum(size for key, size in sample if key < at) / total for at in keys[1:]]
    assert abs(found.share - 0.5) == min(abs(share - 0.5) for share in shares)
    assert 0 < found.at <= 1000
    assert sum(size for key, size in sample if key < found.at) / total == found.share


def test_a_hot_shard_is_split_at_the_median_of_its_load_and_not_in_the_middle() -> None:
    keys = sorted((f"key {number}" for number in range(64)), key=hash_key)
    low = keys[:8]  # all load lies in the lowest hash keys
    found = heated(*(record(b"x" * 100_000, key) for key in low))
    assert found.hot
    assert found.split_at is not None
    assert hash_key(low[3]) < int(found.split_at) <= hash_key(low[4])
    assert found.split_share == 0.5
    assert found.advice == f"split at hash key {found.split_at}: the lower half keeps 50% of the load"


@given(st.lists(st.integers(0, 10**6), min_size=10, max_size=200, unique=True))
def test_the_split_tells_the_hash_of_no_key(numbers: list[int]) -> None:
    """A reader with a list of keys hashes each of them, and compares: a hash has no long row of zeros at its end."""
    found = heated(*(record(b"x" * 100_000, f"customer-{number}") for number in numbers))
    assert found.split_at is not None
    assert int(found.split_at) not in {hash_key(f"customer-{number}") for number in numbers}
    assert int(found.split_at) % 2**64 == 0


def test_one_key_with_most_of_the_load_is_no_reason_to_split() -> None:
    found = heated(*(record(b"x" * 100_000, "one") for _ in range(9)), record(b"x", "other"))
    assert (found.hot, found.split_at) == (True, None)
    assert found.advice == "one partition key has most of the load: spread that key over several; a split cannot"


def test_many_small_records_are_hot_by_their_number() -> None:
    assert heated(*(record(b"x", str(number)) for number in range(800))).utilization == pytest.approx(0.8)


@pytest.mark.parametrize(("shards", "hot"), [(2, False), (8, True)])
def test_a_shard_is_hot_beside_the_others_when_it_has_many_times_its_part(shards: int, hot: bool) -> None:
    records = [record(b"x" * 20_000, str(number)) for number in range(10)]
    assert heated(*records, total_bytes_per_s=400_000, shards=shards).hot is hot
    assert heated(*records, span_s=0.5, total_bytes_per_s=800_000, shards=shards).share == 0.5


def test_a_shard_without_records_is_cold() -> None:
    found = heated(total_bytes_per_s=0)
    assert (found.hot, found.utilization, found.hot_keys, found.advice) == (False, 0.0, [], None)


# --- a whole look ---------------------------------------------------------------------------------


@pytest.mark.parametrize("records_max", [200, 600, 20_000])
@pytest.mark.parametrize("shards", [3, 8])
def test_a_shard_that_meets_the_bound_has_its_part_of_the_stream_all_the_same(
    make: Callable[..., Scene], records_max: int, shards: int
) -> None:
    """Of two minutes one shard has nine tenths of the load. With a bound it is read for a part of them."""
    scene = make(shards=shards)
    begin_s = scene.local.clock.now()
    for _ in range(40):
        scene.ask("PutRecords", StreamName=scene.name, Records=[
            {"Data": b"x" * 10_000, "PartitionKey": "k", "ExplicitHashKey": str(scene.ranges[shard][0])}
            for shard, count in enumerate([9 * (shards - 1)] + [1] * (shards - 1)) for _ in range(count)
        ])  # fmt: skip
        scene.advance(3)

    async def look() -> HeatReport:
        inspector = scene.inspector()
        try:
            since_s = scene.local.clock.now() - begin_s
            return await inspector.heat(scene.name, since_s=since_s, records_max=records_max, show_keys=False)
        finally:
            await inspector.close()

    hottest, *others = asyncio.run(look()).shards
    assert hottest.shard_id == shard_id(0)
    assert hottest.share == pytest.approx(0.9, abs=0.03)
    assert hottest.hot is (shards == 8)  # the other takes less than a tenth of its limit
    assert [one.complete for one in others] == [True] * (shards - 1)
    is_whole = records_max > 40 * 9 * (shards - 1)
    assert hottest.complete is is_whole
    assert hottest.covered == 1.0 if is_whole else hottest.covered == pytest.approx(hottest.span_s / 120, rel=0.2)
