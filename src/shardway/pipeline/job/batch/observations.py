"""Watch the one write of a batch's good rows: it shows how many others there are, and the dead letters themselves.

A batch that is written to one folder needs no cache: its good rows are staged, and Spark's observed metrics bring
what was set apart to the driver, in the same pass. They go to their own place then, and the staged files after them.

What comes that way is bounded: at most ``LETTERS_MAX`` letters, none of them long. Where there are more,
`ObservedNumbers.came` is false and the batch is read once more, in the way that keeps all its rows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from shardway.errors import ShardwayError
from shardway.pipeline.decode import REASON, VALUE
from shardway.pipeline.job.batch.expectations import UNMET
from shardway.pipeline.jvm import java_column, java_seq
from shardway.pipeline.py4j_error import Py4JError
from shardway.spark.columns import POSITION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardway.pipeline.job.batch.expectations import Expectations


LETTERS_MAX = 10_000
"""The largest number of dead letters of a batch that come to the driver with the write."""
PARTITIONS_IF_UNKNOWN = 1_000
LETTER_BYTES_MAX = 4_096
"""The most bytes of data of a dead letter that comes to the driver with the write."""
TOLD_S = 30.0
"""Seconds to wait for what was observed: Spark reports it after the write, by a thread of its own, and may lose it
where that thread has much to do.
"""
_LOOK_S = 0.002
_NTH, _COUNTED_BITS = "_shardway_nth", 33
_COUNTS, _LETTERS = ("rows", "dead", "first", "left"), "letters"
"""The names of what is observed, in this order."""
_OBSERVATION = "org.apache.spark.sql.Observation"


class ObservedNumbers(NamedTuple):
    """The numbers and the dead letters that were observed of a batch."""

    rows: int
    dead: int
    """Rows that are dead letters."""
    letters: DataFrame | None
    """The dead letters, without ``value``; None where there are none, and where they did not come."""
    came: bool
    """False where the dead letters are too many or too long to come to the driver."""
    first_is_empty: bool
    """True where the batch's first partition has no good row: Spark makes a file of it even so."""
    judged: list[int]
    """The numbers of `Expectations.counts`."""


class BatchReports:
    """Makes the batches of one query report their dead letters. Its questions to Spark's JVM are asked once."""

    def __init__(self, expectations: Expectations) -> None:
        self._expectations = expectations
        self._counts = [*_COUNTS, *expectations.count_names]
        """The names of the numbers that are observed, in this order; behind them come the letters."""
        self.names: list[str] = []
        """The names of a dead letter's columns."""
        self._letter: Any = None
        """The schema of a dead letter, as the JVM has it."""
        self._questions: dict[int, _Questions] = {}
        """The questions that a batch is asked, by the largest number of dead letters that come from one partition."""

    def of(self, batch: DataFrame, partitions: int | None) -> WatchedBatch:
        """Return the batch, watched. ``partitions``: the number of its partitions, if that is known."""
        spark: Any = batch.sparkSession
        if not self.names:
            kept = [field for field in batch.schema.fields if field.name not in (VALUE, UNMET)]
            self._letter = spark._jsparkSession.parseDataType(StructType(kept).json())
            self.names = [field.name for field in kept]
        each = max(1, LETTERS_MAX // max(1, partitions or PARTITIONS_IF_UNKNOWN))
        if each not in self._questions:
            nth, observed = self._observe_rows(each)
            numbered = java_seq(spark, [java_column(fn.col("*")), java_column(nth)])
            first, *others = (java_column(column) for column in observed)
            kind = getattr(spark._jvm, _OBSERVATION)
            self._questions = {
                each: _Questions(
                    self._letter, kind, numbered, first, java_seq(spark, others), _tells_rows(spark), self._counts
                )
            }
        return WatchedBatch(batch, self._questions[each])

    def _observe_rows(self, each: int) -> tuple[Column, list[Column]]:
        dead = self._expectations.is_dead()
        short = fn.coalesce(fn.octet_length("data"), fn.lit(0)) <= LETTER_BYTES_MAX
        # This counts the rows of a partition that it is asked for, and it is asked for dead letters only.
        nth = fn.when(dead & short, fn.monotonically_increasing_id().bitwiseAND(fn.lit((1 << _COUNTED_BITS) - 1)))
        taken = dead & fn.coalesce(fn.col(_NTH) < each, fn.lit(False))
        letter = fn.struct(*[fn.col(name) for name in self.names])
        first = fn.col(REASON).isNull() & (fn.spark_partition_id() == 0)
        observed = [
            fn.count(fn.lit(1)),
            fn.count(fn.when(dead, 1)),
            fn.count(fn.when(first, 1)),
            fn.count(fn.when(dead & ~taken, 1)),
        ]
        named = [column.alias(name) for column, name in zip(observed, _COUNTS, strict=True)]
        letters = fn.collect_list(fn.when(taken, letter)).alias(_LETTERS)
        return nth.alias(_NTH), [*named, *self._expectations.counts(), letters]


class _Questions(NamedTuple):
    """The questions that a batch is asked, as the JVM has them."""

    letter: Any
    """The schema of a letter."""
    kind: Any
    """Spark's class of an observation."""
    numbered: Any
    """All columns, and the one that counts dead letters."""
    first: Any
    others: Any
    """The columns that are observed behind the first one."""
    is_row: bool
    """True where Spark reports what was observed as a row."""
    counts: list[str]
    """The names of the numbers, in their order."""


class WatchedBatch:
    """A batch whose dead letters are reported by the first action on ``rows``, which has its rows and a column more."""

    def __init__(self, batch: DataFrame, asked: _Questions) -> None:
        self._spark: Any = batch.sparkSession
        self._letter = asked.letter
        self._is_row = asked.is_row
        self._counts = asked.counts
        self._observation: Any = asked.kind()
        java: Any = batch._jdf
        observed = java.select(asked.numbered).observe(self._observation, asked.first, asked.others)
        self.rows = DataFrame(observed, batch.sparkSession)

    def told(self, *, once: bool) -> ObservedNumbers | None:
        """Return what the action showed; None where Spark does not report it. ``once``: each row was surely observed
        once, as in an action's last stage; any other stage may run again, and reports its rows twice.
        """
        future = self._observation.future()
        deadline_s = time.monotonic() + TOLD_S
        while not future.isCompleted():
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_LOOK_S)
        told = future.value().get().get()  # it is a row; before Spark 4.1, a map of the same
        if self._is_row and not told.length():
            # The step that observes was taken out of the plan while it ran. The folder sees to it that it stays
            # (``with_what_is_observed``); what else may take it out is not known.
            return None
        names = self._counts
        counted = _counts_of_row(told, names) if self._is_row else _counts_of_map(told, names)
        rows, dead, first, left, *judged = counted
        letters = None
        if dead and not left:
            found = told.getList(len(names)) if self._is_row else _letters_of_map(self._spark, told)
            letters = DataFrame(self._spark._jsparkSession.createDataFrame(found, self._letter), self._spark)
            if not once:
                letters = letters.dropDuplicates(list(POSITION))
        return ObservedNumbers(rows, dead, letters, not left, first == 0, judged)


def _tells_rows(spark: SparkSession) -> bool:
    return tuple(int(number) for number in spark.version.split(".")[:2]) >= (4, 1)


def _counts_of_row(row: Any, names: list[str]) -> list[int]:
    return [int(row.getLong(number)) for number in range(len(names))]


def _counts_of_map(told: Any, names: list[str]) -> list[int]:
    return [int(told.apply(name)) for name in names]


def _letters_of_map(spark: Any, told: Any) -> Any:
    rows = getattr(getattr(spark._jvm, "org.apache.spark.sql.Row$"), "MODULE$")
    return rows.fromSeq(told.get(_LETTERS).toList()).getList(0)  # a row makes a Java list of what Scala holds


def partitions_of(batch: DataFrame) -> int | None:
    """Return the number of partitions of a query's batch; None where Spark does not say."""
    try:
        plan: Any = batch._jdf.logicalPlan()
        return int(plan.rdd().getNumPartitions())
    except (Py4JError, AttributeError, TypeError, ShardwayError):
        return None
