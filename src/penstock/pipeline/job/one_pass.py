"""What one write of a batch's good rows shows of the others: how many there are, and the dead letters themselves.

A batch that is written to one folder needs no cache: its good rows are staged, and Spark's observed metrics bring what
was set apart to the driver, in the same pass. They go to their own place then, and the staged files after them.

What comes that way is bounded: so many letters, none of them long. Where there are more, `Told.letters` is None and the
batch is read once more, in the way that keeps all its rows.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.pipeline.decode import REASON, VALUE
from penstock.pipeline.jvm_errors import Py4JError
from penstock.pipeline.positions import POSITION

LETTERS_MAX = 10_000
"""Dead letters of a batch that come to the driver with the write."""
PARTITIONS_IF_UNKNOWN = 1_000
LETTER_BYTES_MAX = 4_096
"""Data of one of them."""
TOLD_S = 30.0
"""Spark tells what was observed behind the write, by a thread of its own; it may lose it where that has much to do."""
_LOOK_S = 0.002

_NTH, _COUNTED_BITS = "_penstock_nth", 33
_LETTERS, _LEFT, _ROWS, _DEAD, _FIRST = "letters", "left", "rows", "dead", "first"


class Told(NamedTuple):
    """What was observed of a batch."""

    rows: int
    dead: int
    """Rows that are dead letters."""
    letters: DataFrame | None
    """Those, without ``value``; None where they are too many or too long to come to the driver."""
    first_is_empty: bool
    """True where the batch's first partition has no good row: Spark makes a file of it all the same."""


class Watching:
    """Makes the batches of one query tell of their dead letters. What it asks of Spark's JVM is asked once."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._schema: Any = None
        """Of a letter, as the JVM has it."""
        self._columns: dict[int, tuple[Column, list[Column]]] = {}
        """By the letters of one partition at most: the column that counts them, and what is observed."""

    def of(self, batch: DataFrame, partitions: int | None) -> Watched:
        """The batch, watched. ``partitions``: into how many it is divided, if that is known."""
        if not self._names:
            kept = [field for field in batch.schema.fields if field.name != VALUE]
            spark: Any = batch.sparkSession
            self._schema = spark._jsparkSession.parseDataType(StructType(kept).json())
            self._names = [field.name for field in kept]
        each = max(1, LETTERS_MAX // max(1, partitions or PARTITIONS_IF_UNKNOWN))
        if each not in self._columns:
            self._columns = {each: self._observed(each)}
        nth, observed = self._columns[each]
        return Watched(batch, self._schema, nth, observed)

    def _observed(self, each: int) -> tuple[Column, list[Column]]:
        dead = fn.col(REASON).isNotNull()
        short = fn.coalesce(fn.octet_length("data"), fn.lit(0)) <= LETTER_BYTES_MAX
        # This counts the rows of a partition that it is asked for, and it is asked for dead letters only.
        nth = fn.when(dead & short, fn.monotonically_increasing_id().bitwiseAND(fn.lit((1 << _COUNTED_BITS) - 1)))
        taken = dead & fn.coalesce(fn.col(_NTH) < each, fn.lit(False))
        letter = fn.struct(*[fn.col(name) for name in self._names])
        first = fn.col(REASON).isNull() & (fn.spark_partition_id() == 0)
        observed = [
            fn.count(fn.lit(1)).alias(_ROWS),
            fn.count(REASON).alias(_DEAD),
            fn.count(fn.when(first, 1)).alias(_FIRST),
            fn.count(fn.when(dead & ~taken, 1)).alias(_LEFT),
            fn.collect_list(fn.when(taken, letter)).alias(_LETTERS),
        ]
        return nth.alias(_NTH), observed


class Watched:
    """A batch whose dead letters are told by the first action on ``rows``, which has its rows and a column more."""

    def __init__(self, batch: DataFrame, letter: Any, nth: Column, observed: list[Column]) -> None:
        self._spark: Any = batch.sparkSession
        self._letter = letter
        self._observation = Observation()
        self.rows = batch.select("*", nth).observe(self._observation, *observed)

    def told(self, *, once: bool) -> Told | None:
        """What the action showed; None where Spark does not tell it. ``once``: each row was surely observed once, as
        in an action's last stage; any other stage may run again, and tells its rows twice.
        """
        row = self._row()
        if row is None:
            return None
        counts = {name: int(row.getLong(row.fieldIndex(name))) for name in (_ROWS, _DEAD, _FIRST, _LEFT)}
        letters = None
        if not counts[_LEFT]:
            found = self._spark._jsparkSession.createDataFrame(row.getList(row.fieldIndex(_LETTERS)), self._letter)
            letters = DataFrame(found, self._spark).coalesce(1)
            if not once:
                letters = letters.dropDuplicates(list(POSITION))
        return Told(counts[_ROWS], counts[_DEAD], letters, counts[_FIRST] == 0)

    def _row(self) -> Any:
        observed: Any = self._observation._jo
        deadline_s = time.monotonic() + TOLD_S
        future = observed.future()
        while not future.isCompleted():
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_LOOK_S)
        row = observed.getRow()
        # Empty, without a schema, where Spark ended an action that has no metrics of the observed stage.
        return row if row.length() else None


def partitions_of(batch: DataFrame) -> int | None:
    """Into how many partitions the batch of a query is divided; None where Spark does not say."""
    try:
        plan: Any = batch._jdf.logicalPlan()
        return int(plan.rdd().getNumPartitions())
    except (Py4JError, AttributeError, TypeError, PenstockError):
        return None
