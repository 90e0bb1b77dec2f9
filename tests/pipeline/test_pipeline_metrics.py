"""A progress read as numbers, without Spark; and all of it in a real query: observed, listened to, as gauges."""

from __future__ import annotations

import json
from functools import reduce
from itertools import pairwise
from operator import add
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from shardway.aws.kinesis.shapes import PutEntry
from shardway.core.aggregation.writer import encode_aggregate
from shardway.events.query_snapshot import QuerySnapshot
from shardway.local import LocalKinesis
from shardway.pipeline import ALL_COLUMNS, MetricsListener, StreamMetrics, observed, stream_metrics
from shardway.pipeline.query_numbers import BatchNumbers, QueryNumbers
from shardway.spark.offsets import RangeStart, StreamOffset
from shardway.spark.positions import Kind, ShardPosition
from tests.pipeline.metrics_system import gauges, told_all

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from shardway.events import QueryMetrics

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CUT_MS = 1_795_000_000_000
CUT = "2026-11-18T11:06:40.000Z"


def offset(**changes: Any) -> str:
    fields = {
        "stream_arn": ARN,
        "created_s": 1_790_000_000,
        "cut_ms": CUT_MS,
        "shards": {
            "shardId-000000000000": ShardPosition(Kind.ENDED, CUT_MS),
            "shardId-000000000001": ShardPosition(Kind.AFTER, CUT_MS, 17),
        },
        "starts": {"shardId-000000000001": RangeStart(1, CUT_MS - 1)},
    }
    return json.dumps(StreamOffset(**{**fields, **changes}).to_dict())


def progress(*sources: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "timestamp": CUT,
        "durationMs": {"triggerExecution": 1500},
        "observedMetrics": {},
        "sources": list(sources),
        **changes,
    }


def source(end: str | None, latest: str | None = None, rows: int = 10) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest, "numInputRows": rows}


PLAIN = StreamMetrics("orders", 7, 10, None, 1.5, CUT_MS, 2, 1, None, 0)


def test_before_spark_42_the_lag_is_from_the_cut_to_the_end_of_the_batch() -> None:
    assert stream_metrics(progress(source(offset()))) == [PLAIN]
    assert stream_metrics(progress(source(offset(cut_ms=0)))) == [PLAIN._replace(lag_s=0.0, cut_ms=0)]
    assert stream_metrics(progress(source(offset()), timestamp="2026-11-18T11:06:30.000Z"))[0].lag_s == 0


def test_from_spark_42_on_the_source_says_it() -> None:
    latest = json.dumps({"cutMs": CUT_MS, "lagMs": 4321, "possibleLosses": 2, "shards": 2, "unreadShards": 1})
    assert stream_metrics(progress(source(offset(), latest))) == [PLAIN._replace(lag_s=4.321, possible_losses=2)]
    assert stream_metrics(progress(source(offset(), "null"))) == [PLAIN]


def test_shards_that_cross_a_silence_are_told_where_spark_tells_them() -> None:
    latest = json.dumps({"cutMs": CUT_MS, "lagMs": 1500, "silentShards": 3, "leftOutShards": 1})
    assert stream_metrics(progress(source(offset(), latest))) == [PLAIN._replace(silent_shards=3, left_out_shards=1)]
    assert (PLAIN.silent_shards, PLAIN.left_out_shards) == (None, None)


def test_pyspark_40_has_python_in_place_of_json() -> None:
    """It converts the JSON of a progress, and what is a text in it by ``str``."""
    assert stream_metrics(progress(source(str(json.loads(offset())), str({"v": 1, "cut": None})))) == [PLAIN]


def test_losses_stay_in_the_offset() -> None:
    assert stream_metrics(progress(source(offset(losses=3))))[0].possible_losses == 3


def test_what_was_observed_is_found_by_its_stream() -> None:
    other = ARN.replace("orders", "returns")
    both = progress(
        source(offset()),
        source(offset(stream_arn=other)),
        observedMetrics={
            "of the user": Row(rows=3),
            "shardway": Row(stream="orders", rows=10, bytes=1000, aggregates_outside_range=1),
            "second": Row(stream="returns", rows=10, bytes=2000),
        },
    )
    assert [(one.stream, one.bytes, one.aggregates_outside_range) for one in stream_metrics(both)] == [
        ("orders", 1000, 1),
        ("returns", 2000, None),
    ]
    empty = progress(source(offset(), rows=0), observedMetrics={"shardway": Row(stream=None, rows=0, bytes=0)})
    assert (stream_metrics(empty)[0].rows, stream_metrics(empty)[0].bytes) == (0, 0)


@pytest.mark.parametrize("end", [None, '{"v": 1}', '{"logOffset": 3}', "5", '"text"', "not JSON", '{"v": 9, "arn": 1}'])
def test_other_sources_are_passed_over(end: str | None) -> None:
    other = source(end)
    if end == '{"v": 9, "arn": 1}':  # an offset of ours, of a newer version
        other["endOffset"] = offset().replace('"v": 1', '"v": 9')
    assert stream_metrics(progress(other, source(offset()))) == [PLAIN]


# --- as events ----------------------------------------------------------------------------------------------------


def test_a_progress_is_told_as_an_event() -> None:
    told: list[QueryMetrics] = []
    spark: Any = object()  # as with Spark Connect, which has no metrics system
    listener = MetricsListener(spark, on_event=told.append)
    durations = {"triggerExecution": 1500, "addBatch": 900}
    seen = {"shardway": Row(stream="orders", rows=10, bytes=1000, aggregates_outside_range=1)}
    listener.show(progress(source(offset()), name="lake", id="q-1", durationMs=durations, observedMetrics=seen))
    listener.show(progress(source(offset()), name=None, id="q-2", durationMs=durations))
    listener.show(progress(source(offset(), rows=0), name="lake", id="q-1"))
    first, other, idle = (event.snapshot for event in told)
    assert [(event.stream, event.application) for event in told] == [("orders", one) for one in ("lake", "q", "lake")]
    assert (first.batches, first.records_read, first.bytes_read, first.aggregates_outside_range) == (1, 10, 1000, 1)
    assert (first.lag_s, first.shards, first.shards_unread, first.batch_s.max) == (1.5, 2, 1, 1.5)
    assert (other.records_read, other.bytes_read) == (10, 0)
    assert (idle.batches, idle.records_read, idle.lag_s, idle.period_start_s) == (0, 0, 1.5, first.period_end_s)
    whole = first + idle
    assert (whole.records_read, whole.lag_s, whole.period_end_s) == (10, 1.5, idle.period_end_s)
    assert QuerySnapshot.from_dict(json.loads(json.dumps(whole.to_dict()))) == whole

    event: Any = SimpleNamespace(id="q-1", exception=None)
    listener.onQueryIdle(event)
    assert (len(told), told[-1].last) == (4, False)
    listener.onQueryTerminated(event)
    assert (len(told), told[-1].last, told[-1].snapshot.lag_s) == (5, True, None)
    listener.onQueryIdle(event)
    failed: Any = SimpleNamespace(id="q-2", exception="it has failed")
    listener.onQueryTerminated(failed)
    assert len(told) == 5, "what has ended tells nothing any more, and what has failed is missed"


def test_what_a_query_writes_to_a_stream_is_told_where_its_name_is_known() -> None:
    told: list[Any] = []
    spark: Any = object()
    listener = MetricsListener(spark, on_event=told.append, sinks={"copier": "copies"})
    durations = {"triggerExecution": 1500, "addBatch": 900}
    for rows in (10, -1):
        sink = {"description": "PythonTable@1", "numOutputRows": rows}
        listener.show(progress({"endOffset": "5"}, name="copier", id="q-1", durationMs=durations, sink=sink))
    listener.show(progress({"endOffset": "5"}, name="another", id="q-2", durationMs=durations, sink=sink))
    ended: Any = SimpleNamespace(id="q-1", exception=None)
    listener.onQueryIdle(ended)
    listener.onQueryTerminated(ended)
    assert [(event.stream, event.snapshot.user_records_put, event.last) for event in told] == [
        ("copies", 10, False),
        ("copies", 0, False),
        ("copies", 0, False),
        ("copies", 0, True),
    ]
    whole = reduce(add, [event.snapshot for event in told])
    assert (whole.user_records_accepted, whole.user_records_pending) == (10, 0)


def test_the_lag_grows_while_no_batch_ends_and_not_while_nothing_comes() -> None:
    told: list[QueryMetrics] = []
    clock = iter(range(100, 200, 10))
    numbers = QueryNumbers(told.append, now=lambda: float(next(clock)))
    numbers.begin("lake", "orders")
    numbers.busy("lake")
    numbers.busy("lake")
    numbers.batch("lake", PLAIN, BatchNumbers(10, 1000, 4.0, dead_letters=1, duplicates=2, late=3))
    numbers.busy("lake")
    numbers.idle("lake")
    numbers.busy("another")
    assert [event.snapshot.lag_s for event in told] == [0.0, 10.0, 20.0, 1.5, 11.5, 11.5]
    ends = [(event.snapshot.period_start_s, event.snapshot.period_end_s) for event in told]
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    batch = told[3].snapshot
    assert (batch.records_dead_lettered, batch.records_duplicate, batch.records_late) == (1, 2, 3)


# --- in Spark ------------------------------------------------------------------------------------------------


def put(local: LocalKinesis, count: int) -> int:
    """Plain records, and an aggregate that lies in a shard that its records do not belong to; bytes of data."""
    import boto3

    users = [(f"key-{number}", b"%04d" % number, 0) for number in range(5)]
    entries = [PutEntry(b"x" * 10, f"key-{number}") for number in range(count)]
    entries.append(PutEntry(encode_aggregate(users), "a", str(2**128 - 1)))
    client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
    client.put_records(
        StreamName="orders",
        Records=[
            {"Data": one.data, "PartitionKey": one.partition_key}
            | ({"ExplicitHashKey": one.explicit_hash_key} if one.explicit_hash_key else {})
            for one in entries
        ],
    )
    client.close()
    local.clock.advance(3)
    return count * 10 + 5 * 4


@pytest.mark.spark
def test_one_line_shows_the_numbers_in_the_progress_and_as_gauges(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[str, StreamMetrics]] = []
    listener = MetricsListener(spark, on_metrics=lambda name, metrics: told.append((name, metrics)))
    spark.streams.addListener(listener)
    try:
        with LocalKinesis(streams={"orders": 2}) as local:
            for times in (1, 2):
                size = put(local, 20)
                reading = spark.readStream.format("shardway").schema(ALL_COLUMNS)
                reading = reading.options(streamName="orders", region=local.region, endpointUrl=local.endpoint_url)
                records = observed(reading.option("startingPosition", "TRIM_HORIZON").load())
                assert "aggregate_outside_range" not in records.columns
                writer = records.writeStream.format("noop").queryName("metered")
                writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
                query = writer.trigger(availableNow=True).start()
                assert query.awaitTermination(120)
                batches = [one for one in query.recentProgress if one["numInputRows"]]
                (metrics,) = stream_metrics(batches[-1])
                assert batches[-1]["observedMetrics"]["shardway"].asDict() == {
                    "stream": "orders", "rows": 25, "bytes": size, "aggregates_outside_range": 1,
                }  # fmt: skip
                assert (metrics.rows, metrics.bytes, metrics.aggregates_outside_range) == (25, size, 1)
                assert (metrics.shards, metrics.unread_shards, metrics.possible_losses) == (2, 2, 0)
                says_silence = metrics.silent_shards is not None  # from PySpark 4.2 on
                assert (metrics.silent_shards, metrics.left_out_shards) == ((0, 0) if says_silence else (None, None))
                told_all(spark)
                assert ("metered", metrics) in told
                shown = gauges(spark, "shardway.metered.orders.")
                assert shown == {
                    "lagMs": shown["lagMs"], "shards": 2, "unreadShards": 2, "possibleLosses": 0,
                    "batch": metrics.batch_id, "rows": 25 * times, "bytes": size * times,
                    "aggregatesOutsideRange": times,
                    **({"silentShards": 0, "leftOutShards": 0} if says_silence else {}),
                }  # fmt: skip
                assert shown["lagMs"] == round(told[-1][1].lag_s * 1000)
    finally:
        spark.streams.removeListener(listener)
