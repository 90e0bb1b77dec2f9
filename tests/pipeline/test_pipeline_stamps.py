"""Envelopes opened and duplicates removed by Spark's own functions, as ``shardway.spark.stamps`` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
from pyspark.errors import PySparkException

from shardway.errors import OptionError
from shardway.pipeline import deduplicate_by_stamps, open_stamps, sort_by_key
from shardway.spark.stamps import Stamp, key_labels, position_labels, seal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

SEQUENCE = "49680439090499813244938441984552225079182268153605390338"
POSITIONS = [
    Stamp("orders", "shardId-000000000003", SEQUENCE, 0),
    Stamp("orders", "shardId-000000000003", SEQUENCE, 70_000),
    Stamp("orders", "shardId-000000000003", SEQUENCE, 1, 2**63 - 1),
    Stamp("a", "shardId-999999999999", "0", 0),
    Stamp("a", "other.form-1", "12345", 2**32 - 1, 0),
    Stamp("orders", "shardId-000000000000", SEQUENCE[:-1], 3),
]
KEYS = ["17", "", "ä/1", "x" * 300]


def sealed_by(stamp: Stamp, data: bytes) -> bytes:
    if stamp.key is not None:
        return seal(key_labels([stamp.key]), [data])[0]
    streams, shards, numbers, subs = ([value] for value in stamp[:4])
    index = None if stamp.row_index is None else [stamp.row_index]
    return seal(position_labels(streams, shards, numbers, subs, index), [data])[0]  # type: ignore[arg-type]


def test_spark_opens_what_python_sealed(frame: Callable[[list[dict[str, Any]]], DataFrame], written: Any) -> None:
    stamps = [*POSITIONS, *(Stamp(key=key) for key in KEYS)]
    datas = [b"data-%d" % number for number in range(len(stamps))]
    datas[1] = b""
    datas[2] = sealed_by(POSITIONS[0], b"an envelope in an envelope")
    plain = [b"", b"plain", b"\xf5PST", b"\xf5PST\x01" + bytes(20), sealed_by(POSITIONS[0], b"cut")[:-1]]
    records = [written.record(sealed_by(stamp, data)) for stamp, data in zip(stamps, datas, strict=True)]
    opened = open_stamps(frame([*records, *(written.record(data) for data in plain)]))
    rows = sort_by_key(opened.repartition(1)).collect()
    assert [bytes(row.data) for row in rows] == [*datas, *plain]
    assert [row.stamp and Stamp(*row.stamp) for row in rows] == [*stamps, *[None] * len(plain)]
    assert opened.columns == [*frame([records[0]]).columns, "stamp"]


def test_a_later_version_stops_the_query(
    frame: Callable[[list[dict[str, Any]]], DataFrame], written: Any, spark: SparkSession
) -> None:
    behind = b"what a later version holds"
    later = b"\xf5PST\x02" + crc32(behind).to_bytes(4, "big") + behind
    spark.sparkContext.setLogLevel("OFF")
    try:
        with pytest.raises(PySparkException, match="a version that is not known here"):
            open_stamps(frame([written.record(later)])).select("data").collect()
    finally:
        spark.sparkContext.setLogLevel("ERROR")


def test_of_duplicates_in_a_batch_read_the_first_by_position_stays(
    frame: Callable[[list[dict[str, Any]]], DataFrame], written: Any
) -> None:
    """Three attempts at a batch, the first two broken off; two records in no envelope are equal and both stay."""
    sources = [Stamp("orders", "shardId-000000000000", str(number), 0) for number in range(10)]
    attempts = [*sources[:4], *sources[:7], *sources]
    records = [written.record(sealed_by(stamp, stamp.sequence_number.encode())) for stamp in attempts]  # type: ignore[union-attr]
    records += [written.record(b"plain"), written.record(b"plain")]
    unique = deduplicate_by_stamps(frame(records[::-1]), window="1 hour")
    rows = sort_by_key(unique).collect()
    assert [bytes(row.data) for row in rows] == [b"%d" % number for number in range(10)] + [b"plain", b"plain"]
    firsts = [records[at]["sequence_number"] for at in (*range(4), *range(8, 11), *range(18, 21), 21, 22)]
    assert [row.sequence_number for row in rows] == firsts
    assert "stamp" in unique.columns
    assert not [name for name in unique.columns if name.startswith("_shardway")]


def test_a_stream_drops_duplicates_in_and_across_batches(stream: Any, written: Any, tmp_path: Path) -> None:
    def attempt(*numbers: int, at_s: float) -> list[dict[str, Any]]:
        return [
            written.record(sealed_by(Stamp(key=str(number)), b"%d" % number), key=f"key-{number % 2}", at_s=at_s)
            for number in numbers
        ]

    stream.add(attempt(0, 1, 2, 0, at_s=0))
    stream.add([*attempt(0, 1, 2, 3, 4, at_s=60), written.record(b"plain", at_s=60)])
    stream.add([*attempt(4, 5, at_s=120), written.record(b"plain", at_s=120)])
    batches: dict[int, list[bytes]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        batches[batch_id] = sorted(bytes(row.data) for row in batch.collect())

    query = (
        deduplicate_by_stamps(stream.load(), window="10 minutes")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert [batches[number] for number in range(3)] == [[b"0", b"1", b"2"], [b"3", b"4", b"plain"], [b"5", b"plain"]]


def test_what_has_not_the_columns_is_refused(frame: Callable[[list[dict[str, Any]]], DataFrame], written: Any) -> None:
    records = frame([written.record(b"x")])
    with pytest.raises(OptionError, match="it lacks stream, shard_id"):
        open_stamps(records.drop("stream", "shard_id"))
    with pytest.raises(OptionError, match="open already"):
        deduplicate_by_stamps(open_stamps(records), window="1 hour")
