"""stream -> Spark -> stream -> reader, killed again and again: every record once, each key in order."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.writer import encode_aggregate
from shardway.local.faults import Fault
from shardway.model import StreamName
from shardway.pipeline import deduplicate_by_stamps, sort_by_key
from tests.spark.copier import Copier
from tests.spark.querying import QUERY_TIMEOUT_S, Stream
from tests.starts import start_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

KEYS = 50
REQUEST_S = 0.03
"""What the service takes for a request of the copier: a batch then takes long enough to be killed in its middle."""


def data_of(key: str, number: int) -> bytes:
    return b"%s:%d" % (key.encode(), number) + b"." * 200


class Orders:
    """What is put into the source: a key's counters count up; one record in ten is an aggregate of three."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()

    def put(self, stream: Stream, count: int) -> None:
        entries = []
        for number in range(count):
            key = f"key-{number % KEYS}"
            users = [
                (key, data_of(key, self.counts[key] + place), None) for place in range(3 if number % 10 == 0 else 1)
            ]
            self.counts[key] += len(users)
            entries.append(PutEntry(users[0][1] if len(users) == 1 else encode_aggregate(users), key))
        stream.put_entries(entries)

    def check(self, rows: list[tuple[str, bytes]]) -> None:
        """Every record behind the start once, none before it, and each key in its order."""
        found: dict[str, list[bytes]] = {}
        for key, data in rows:
            found.setdefault(key, []).append(data)
        wanted = {key: [data_of(key, place) for place in range(self._passed[key], n)] for key, n in self.counts.items()}
        assert found == wanted

    def wanted(self) -> int:
        return self.counts.total() - self._passed.total()

    def pass_over(self) -> None:
        """What was put so far lies before the start."""
        self._passed = self.counts.copy()


@pytest.fixture
def target(stream: Stream) -> Iterator[Stream]:
    """The stream that is copied to, beside the one that is copied."""
    made = Stream(stream.local, StreamName("copy"))
    made.call("CreateStream", ShardCount=2)
    yield made
    made.close()


def read_batch(spark: SparkSession, target: Stream) -> DataFrame:
    local = target.local
    options = {"streamName": "copy", "region": local.region, "endpointUrl": local.endpoint_url}
    return spark.read.format("shardway").options(**options).load()


def in_order(unique: DataFrame) -> list[tuple[str, bytes]]:
    return [(row.partition_key, bytes(row.data)) for row in sort_by_key(unique).collect()]


def read_as_a_stream(spark: SparkSession, target: Stream, checkpoint: Path) -> list[tuple[str, bytes]]:
    """In several batches, so that duplicates are found in Spark's state, too."""
    local = target.local
    options = {
        "streamName": "copy",
        "region": local.region,
        "endpointUrl": local.endpoint_url,
        "startingPosition": "TRIM_HORIZON",
        "maxRecordsPerTrigger": "2000",
    }
    rows: list[tuple[str, bytes]] = []
    unique = deduplicate_by_stamps(spark.readStream.format("shardway").options(**options).load(), window="1 hour")
    query = (
        unique.writeStream.foreachBatch(lambda batch, _: rows.extend(in_order(batch)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    return rows


def copy_and_kill(
    spark: SparkSession, source: Stream, target: Stream, folder: Path, *, kills: int, aggregation: bool, seed: int
) -> Orders:
    """Copies with so many kills, each when a random number of records was written. The seed says where it begins."""
    rng = random.Random(seed)
    local, orders, start = source.local, Orders(), start_of(seed)
    orders.put(source, 300)
    source.settle()
    copier = Copier(local, folder, start=start, aggregation=str(aggregation))
    if start == "LATEST":
        copier.finished()  # LATEST is the time of this first run
        assert copier.written() == 0
    if start != "TRIM_HORIZON":
        orders.pass_over()
    local.faults.add(Fault(how="delay", delay_s=REQUEST_S, tag="sink", operation="PutRecords", count=None))
    for number in range(kills):
        orders.put(source, 2_000)
        if number % 4 == 1:
            source.split(0)
            orders.put(source, 500)
        if number % 4 == 2:
            target.split(0)
        source.settle()
        local.faults.add(Fault(how="lost_reply", tag="sink", operation="PutRecords", count=1, skip=rng.randint(0, 8)))
        # Kinesis records: aggregates hold some 150 rows each.
        assert copier.killed_after(rng.randint(1, 10 if aggregation else 1_500)), (
            "it came to its end before it could be killed"
        )
    orders.put(source, 500)
    source.settle()
    copier.finished()

    raw = read_batch(spark, target)
    count, wanted = raw.count(), orders.wanted()
    print(f"{start}, {kills} kills: {wanted} records, {count} in the copy, {count - wanted} duplicates")
    assert count > wanted, "no kill made a duplicate: nothing was tested"
    orders.check(in_order(deduplicate_by_stamps(raw, window="1 hour")))
    return orders


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_copier_killed_twice(spark: SparkSession, stream: Stream, target: Stream, tmp_path: Path, seed: int) -> None:
    copy_and_kill(spark, stream, target, tmp_path, kills=2, aggregation=False, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("aggregation", "seed"), [(False, 4), (True, 5), (False, 6)])
def test_a_copier_killed_ten_times(
    spark: SparkSession, stream: Stream, target: Stream, tmp_path: Path, aggregation: bool, seed: int
) -> None:
    orders = copy_and_kill(spark, stream, target, tmp_path, kills=10, aggregation=aggregation, seed=seed)
    orders.check(read_as_a_stream(spark, target, tmp_path / "reader"))
