"""Hot shards and hot keys: bounded counters, and the hash key that halves the load."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.aws.kinesis import WireRecord
from penstock.core.aggregation import encode_aggregate
from penstock.core.hashkeys import HASH_KEY_MAX, hash_key
from penstock.inspect.heat import HeatOfShard, KeyCounts, ShardHeat, best_split, heat_of


def record(data: bytes, key: str = "k", number: int = 1) -> WireRecord:
    return WireRecord(
        data=data, sequence_number=str(number), approximate_arrival_timestamp=1_700_000_000.0, partition_key=key
    )


def heated(
    *records: WireRecord, span_s: float = 1.0, first: int = 0, last: int = HASH_KEY_MAX, **more: int
) -> ShardHeat:
    counted = HeatOfShard("shardId-000000000000", first, last)
    counted.add(records)
    total = more.get("total_bytes", counted.payload_bytes)
    return heat_of(counted, span_s=span_s, complete=True, total_bytes=total, shards=more.get("shards", 1))


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


def test_a_hot_shard_is_split_at_the_median_of_its_load_and_not_in_the_middle() -> None:
    keys = sorted((f"key {number}" for number in range(64)), key=hash_key)
    low = keys[:8]  # all load lies in the lowest hash keys
    found = heated(*(record(b"x" * 100_000, key) for key in low))
    assert found.hot
    assert found.split_at == str(hash_key(low[4]))
    assert found.split_share == 0.5
    assert found.advice == f"split at hash key {hash_key(low[4])}: the lower half keeps 50% of the load"


def test_one_key_with_most_of_the_load_is_no_reason_to_split() -> None:
    found = heated(*(record(b"x" * 100_000, "one") for _ in range(9)), record(b"x", "other"))
    assert (found.hot, found.split_at) == (True, None)
    assert found.advice == "one partition key has most of the load: spread that key over several; a split cannot"


def test_many_small_records_are_hot_by_their_number() -> None:
    assert heated(*(record(b"x", str(number)) for number in range(800))).utilization == pytest.approx(0.8)


@pytest.mark.parametrize(("shards", "hot"), [(2, False), (8, True)])
def test_a_shard_is_hot_beside_the_others_when_it_has_many_times_its_part(shards: int, hot: bool) -> None:
    records = [record(b"x" * 20_000, str(number)) for number in range(10)]
    assert heated(*records, total_bytes=400_000, shards=shards).hot is hot


def test_a_shard_without_records_is_cold() -> None:
    found = heated(total_bytes=0)
    assert (found.hot, found.utilization, found.hot_keys, found.advice) == (False, 0.0, [], None)
