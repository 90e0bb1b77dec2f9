"""Windows of a job: rows of one span of time and of equal keys become one row, once the watermark has passed its end.

Spark's aggregation of a stream passes closed windows on and nothing else. So the rows are watched before it, and those
that are set apart are counted there; ``InputOfWindows`` brings them from that place of the query's plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampNTZType, TimestampType

from shardway.errors import OptionError, ShardwayError
from shardway.pipeline.batch_runs import execution_of
from shardway.pipeline.decode import REASON, VALUE
from shardway.pipeline.deduplication import ARRIVAL, deduplicate_by_watermark
from shardway.pipeline.job.batch.expectations import UNMET
from shardway.pipeline.job.file.window_rules import END, START, key_column, window_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column

    from shardway.pipeline.job.batch.expectations import Expectations
    from shardway.pipeline.job.file.model import Job, Window


WATCHED = "shardway_window_input"
"""The name of what is observed of the rows before they are grouped."""
_TIME, _WINDOW, _KEY, _MADE = "_shardway_time", "_shardway_window", "_shardway_key_", "_shardway_made_"
_NODE = "CollectMetrics"


def with_times(rows: DataFrame, window: Window) -> DataFrame:
    """Return decoded rows. A row without a time belongs to no window, so it is a dead letter."""
    if window.time == ARRIVAL:
        return rows
    untimed = fn.col(REASON).isNull() & fn.col(window.time).isNull()
    return rows.withColumn(REASON, fn.when(untimed, fn.lit(f"{window.time} is null")).otherwise(fn.col(REASON)))


def check_time(rows: DataFrame, window: Window) -> bool:
    """Return true. Raises OptionError where the time is no timestamp."""
    kind = rows.select(fn.col(window.time)).schema[0].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise OptionError(
            f"{window.time} is {kind.simpleString().upper()[:80]}, and no TIMESTAMP: declare it as one in the schema"
        )
    return True


def with_window_time(job: Job) -> Job:
    """Return a job whose sinks take the hour from the windows, where the file names no other column: its rows have no
    time of arrival.
    """
    sinks = [msgspec.structs.replace(sink, time=START) if sink.time == ARRIVAL else sink for sink in job.sinks]
    return msgspec.structs.replace(job, sinks=tuple(sinks))


def windows_of(rows: DataFrame, job: Job, expectations: Expectations) -> DataFrame:
    """Return the rows of the windows of decoded rows, without duplicates if the job asks for that. What the
    expectations have set apart is in no window.
    """
    window = job.window
    assert window is not None
    timed = _watch(rows, job, expectations).where(fn.col(REASON).isNull()).withColumn(_TIME, fn.col(window.time))
    timed = timed.withWatermark(_TIME, window.late_by)
    if job.deduplicate is not None:
        timed = deduplicate_by_watermark(timed, job.deduplicate.keys)
    return grouped(timed, window, list(window.aggregates.values()), window_columns(window))


def grouped(timed: DataFrame, window: Window, expressions: list[str], names: list[str]) -> DataFrame:
    """Return the windows of rows that have a time: begin, end, keys and what the expressions make, by these names."""
    keys = [fn.col(key).alias(f"{_KEY}{at}") for at, key in enumerate(window.keys)]
    made = [fn.expr(sql).alias(f"{_MADE}{at}") for at, sql in enumerate(expressions)]
    rows = timed.groupBy(fn.window(_TIME, window.length).alias(_WINDOW), *keys).agg(*made)
    columns = [fn.col(f"{_WINDOW}.start"), fn.col(f"{_WINDOW}.end")]
    columns += [fn.col(f"{_KEY}{at}") for at in range(len(keys))]
    columns += [fn.col(f"{_MADE}{at}") for at in range(len(made))]
    return rows.select(*[column.alias(name) for column, name in zip(columns, names, strict=True)])


def columns_with(window: Window, *names: str) -> list[str]:
    """Return the columns of a window's rows, with other names for the aggregates."""
    return [START, END, *(key_column(key) for key in window.keys), *names]


def timed_of(rows: DataFrame, window: Window) -> DataFrame:
    """Return rows with the time that they are grouped by, as ``grouped`` takes them."""
    return rows.withColumn(_TIME, fn.col(window.time))


def _watch(rows: DataFrame, job: Job, expectations: Expectations) -> DataFrame:
    """Return the rows, and have Spark count those that are set apart. Where none can be, nothing is counted."""
    if not rows.isStreaming or not job.sets_apart:
        return rows
    kept: list[Column] = [fn.col(f"`{name}`") for name in rows.columns if name != VALUE]
    # The columns of a dead letter are named here, because the plan would lose those that only a dead letter needs.
    letter = fn.when(expectations.is_dead(), fn.struct(*kept))
    counted = [fn.count(fn.lit(1)).alias("rows"), fn.count(letter).alias("dead"), *expectations.counts()]
    return rows.observe(WATCHED, *counted)


class InputCounts(NamedTuple):
    """The numbers of a batch before its rows are grouped."""

    rows: int
    dead: int
    judged: list[int]
    """The numbers of `Expectations.counts`."""


class InputOfWindows:
    """The rows of a batch before they are grouped. Its numbers are known when an action has read the whole batch."""

    def __init__(self, batch: DataFrame, expectations: Expectations) -> None:
        self._spark: Any = batch.sparkSession
        self._expectations = expectations
        execution = execution_of(batch)
        plan = None if execution is None else execution.executedPlan()
        found = [] if plan is None else [one for one in _nodes(plan) if _is_ours(one)]
        if not found:
            raise ShardwayError("Spark does not show the plan of the batch, which is needed to find its dead letters")
        self._node = found[0]

    def counted(self) -> InputCounts:
        """Return how many rows there were, and how many of them are set apart."""
        row = self._node.collectedMetrics()
        rows, dead, *judged = [int(row.getLong(at)) for at in range(row.length())]
        return InputCounts(rows, dead, judged)

    def rows(self) -> DataFrame:
        """Return the rows. An action on them reads and decodes the batch again, up to here: no state is touched."""
        before = self._node.child()
        java = self._spark._jsparkSession.internalCreateDataFrame(before.execute(), before.schema(), False)
        return DataFrame(java, self._spark)

    def dead_letters(self) -> DataFrame:
        """Return those rows that are dead letters, without ``value``."""
        return self.rows().where(self._expectations.is_dead()).drop(VALUE, UNMET)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for at in range(children.size()):
        yield from _nodes(children.apply(at))


def _is_ours(node: Any) -> bool:
    return bool(node.nodeName() == _NODE and node.name() == WATCHED)
