"""Read the numbers of a stream in a query's progress.

``observed`` puts what only the rows can tell into each progress, as Spark's observed metrics. ``stream_metrics`` reads
a progress.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from shardway.pipeline.dataframes import columns_of
from shardway.spark.columns import OUTSIDE
from shardway.spark.offsets import OffsetFormatError, StreamOffset, is_initial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


OBSERVATION = "shardway"
"""The name of the observed metrics in a query's progress."""


class StreamMetrics(NamedTuple):
    """The numbers in a progress for one stream that the query reads."""

    stream: str
    batch_id: int
    rows: int
    """The rows that were read. Each further action on a batch that is not kept reads, and counts, its rows again."""
    bytes: int | None
    """Bytes of the rows' data; None without ``observed``."""
    lag_s: float
    """How long the oldest record that is known and unread has been waiting, in seconds. On Spark 4.0 and 4.1: the time
    from the batch's cut to its end."""
    cut_ms: int
    """The time up to which the batch read, epoch milliseconds of the service's clock."""
    shards: int
    """The number of shards in the offset."""
    unread_shards: int
    """The number of shards in the offset that are not read to their ends."""
    aggregates_outside_range: int | None
    """KPL aggregates with user records outside of their shard's hash range; None where they are not counted."""
    possible_losses: int
    """Losses that were passed over (``failOnDataLoss=false``) since the checkpoint directory was made."""
    silent_shards: int | None = None
    """Shards that cross a silence and for which the cut of all waits; None on Spark 4.0 and 4.1, which do not say."""
    left_out_shards: int | None = None
    """Shards that cross a silence and for which the cut waits no more: their rows may come later than those of the
    others. None on Spark 4.0 and 4.1."""


def observed(records: DataFrame, *, name: str = OBSERVATION) -> DataFrame:
    """Return the records of the source as they are, and have Spark show their numbers in the query's progress.

    ``observedMetrics[name]`` has ``stream``, ``rows`` and, where the columns are there, ``bytes`` (of data) and
    ``aggregates_outside_range``. To have that last one, read with all columns, and with ``aggregatesOutsideRange``
    deliver, its default: ``spark.readStream.format("shardway").schema(ALL_COLUMNS)``; this step drops the column that
    it is counted by. Put this step right behind ``load()``. Two streams in one query need two names.
    """
    numbers = [fn.first("stream", ignorenulls=True).alias("stream"), fn.count(fn.lit(1)).alias("rows")]
    columns = columns_of(records) or ["data"]
    if "data" in columns:
        numbers.append(fn.coalesce(fn.sum(fn.octet_length("data")), fn.lit(0)).alias("bytes"))
    # A source in Python cannot send back what its tasks count: it has no metrics and no accumulators. So the figure is
    # a column, which is observed.
    if OUTSIDE in columns:
        first = fn.col(OUTSIDE) & (fn.col("sub_sequence_number") == 0)  # an aggregate is delivered whole
        numbers.append(fn.count(fn.when(first, 1)).alias("aggregates_outside_range"))
    return records.observe(name, *numbers).drop(OUTSIDE)


def stream_metrics(progress: Mapping[str, Any]) -> list[StreamMetrics]:
    """Return what a progress says of the streams that its query reads by ``format("shardway")``. The list is empty for
    other sources.

    ``progress`` is ``query.lastProgress``, an element of ``query.recentProgress``, or what a listener is given.
    """
    found = []
    for source in progress["sources"]:
        end = _offset(source["endOffset"])
        if end is None:
            continue
        stream = end.stream_arn.rpartition("/")[2]
        told = _decode(source.get("latestOffset"))
        seen = _observation(progress, stream)
        found.append(
            StreamMetrics(
                stream=stream,
                batch_id=int(progress["batchId"]),
                rows=int(source["numInputRows"]),
                bytes=seen.get("bytes"),
                lag_s=_lag_ms(progress, end, told) / 1000,
                cut_ms=end.cut_ms,
                shards=len(end.shards),
                unread_shards=len(end.unread()),
                aggregates_outside_range=seen.get("aggregates_outside_range"),
                possible_losses=max(end.losses, int(told.get("possibleLosses", 0))),
                silent_shards=_told_count(told, "silentShards"),
                left_out_shards=_told_count(told, "leftOutShards"),
            )
        )
    return found


def _lag_ms(progress: Mapping[str, Any], end: StreamOffset, told: Mapping[str, Any]) -> int:
    if "lagMs" in told:
        return max(0, int(told["lagMs"]))
    if not end.cut_ms:
        return 0
    began = dt.datetime.fromisoformat(progress["timestamp"])
    ended_ms = began.timestamp() * 1000 + int(progress["durationMs"].get("triggerExecution", 0))
    return max(0, round(ended_ms - end.cut_ms))


def _told_count(told: Mapping[str, Any], name: str) -> int | None:
    return int(told[name]) if name in told else None


def _observation(progress: Mapping[str, Any], stream: str) -> dict[str, Any]:
    """Return the observed metrics of a stream; those of a batch without rows name no stream."""
    found: list[dict[str, Any]] = [row.asDict() for row in (progress["observedMetrics"] or {}).values()]
    ours = [row for row in found if {"stream", "rows"} <= row.keys()]
    for row in ours:
        if row["stream"] == stream:
            return row
    if len(ours) == 1 and ours[0]["stream"] is None:
        return ours[0]
    return {}


def _offset(text: Any) -> StreamOffset | None:
    """Return the offset of our source; None for that of another source, and before the first batch."""
    value = _decode(text)
    if is_initial(value) or "arn" not in value:
        return None
    try:
        return StreamOffset.from_dict(value)
    except OffsetFormatError:
        return None


def _decode(text: Any) -> dict[str, Any]:
    """Decode an offset, which is JSON; PySpark 4.0 has the text of a Python dict in its place, except for listeners."""
    for decode in (json.loads, ast.literal_eval):
        try:
            value = decode(text) if isinstance(text, str) else text
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}
