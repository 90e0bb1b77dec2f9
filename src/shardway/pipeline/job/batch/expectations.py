"""Say of each decoded row which expectations it does not meet, set apart the rows that do not go on, and count them.

This comes right behind the decoding: what is set apart keeps the record's data and position, and no step behind it
sees it. A column has a bit for each expectation that a row does not meet. It goes through the query's steps, so that
the counts come from the same pass over a batch as those of the dead letters do. The strongest action of those that a
row does not meet is done with it: *stop*, then *dead-letter*, which keeps it, then *drop*, then *count*.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from shardway.pipeline.batches import position_order
from shardway.pipeline.decode import REASON, split
from shardway.pipeline.job.batch.conditions import met
from shardway.pipeline.job.run.reports import ExpectationReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from shardway.pipeline.job.file.model import Expectation

UNMET = "_shardway_unmet"
"""The column with a bit for each expectation that a row does not meet; null where a record was not decoded."""
LEFT_OUT = "left out"
"""The reason of a row that is neither good nor a dead letter: it is dropped, or stops the job."""
_REMEDY = (
    "Nothing of the batch was written, and nothing is lost. Mend the expectation or give it another action "
    "(dead-letter keeps such records, with their data), and start the job again: it does this batch again"
)


class Judgement(NamedTuple):
    """What the expectations said of the rows of one batch."""

    dropped: int
    reports: dict[str, ExpectationReport]
    """The counts of each expectation, by its name."""


class Expectations:
    """The expectations of one job. A job without any has its rows as they are."""

    def __init__(self, given: Sequence[Expectation]) -> None:
        self._expectations = tuple(given)
        self._judgements: dict[int, Judgement] = {}

    def __bool__(self) -> bool:
        return bool(self._expectations)

    def applied(self, rows: DataFrame) -> DataFrame:
        """Return decoded rows with ``UNMET``; those that do not go on have a ``reason``."""
        if not self._expectations:
            return rows
        of_each = [
            fn.when(met(rows.sparkSession, one.sql), _bits(0)).otherwise(_bits(1 << number))
            for number, one in enumerate(self._expectations)
        ]
        # The second part is true of every row, which Spark does not know: it may not compute parts of the conditions
        # before this branch is taken.
        asked = fn.col(REASON).isNull() & (fn.length("sequence_number") >= 0)
        marked = rows.withColumn(UNMET, fn.when(asked, reduce(lambda left, right: left.bitwiseOR(right), of_each)))
        named = [
            fn.when(self._has(1 << number), fn.lit(f"expectation {one.name}"))
            for number, one in enumerate(self._expectations)
            if one.action == "dead-letter"
        ]
        reasons = [
            fn.col(REASON),
            fn.when(self._has(self._bits_of("stop")), fn.lit(LEFT_OUT)),
            fn.nullif(fn.concat_ws(", ", *named), fn.lit("")) if named else fn.lit(None),
            fn.when(self._has(self._bits_of("drop")), fn.lit(LEFT_OUT)),
        ]
        return marked.withColumn(REASON, fn.coalesce(*reasons))

    def parted(self, rows: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return (good rows, dead letters) as `split` does, without what is left out."""
        good, dead = split(rows)
        if not self._expectations:
            return good, dead
        return good.drop(UNMET), dead.where(self.is_dead()).drop(UNMET)

    def is_dead(self) -> Column:
        """Return the condition of a dead letter."""
        return fn.col(REASON) != LEFT_OUT if self._expectations else fn.col(REASON).isNotNull()

    def counts(self) -> list[Column]:
        """Return the numbers to ask of a batch, for `taken`, each under a name of its own; none for no expectations."""
        if not self._expectations:
            return []
        left_out = fn.count(fn.when(fn.col(REASON) == LEFT_OUT, 1))
        unmet = [fn.count(fn.when(self._has(1 << number), 1)) for number in range(len(self._expectations))]
        asked = [fn.count(UNMET), left_out, *unmet]
        return [column.alias(name) for column, name in zip(asked, self.count_names, strict=True)]

    @property
    def count_names(self) -> list[str]:
        """The names of the numbers of `counts`, in their order."""
        return ["judged", "left_out", *(f"unmet_{number}" for number in range(len(self._expectations)))] if self else []

    def taken(self, batch_id: int, counted: Sequence[int]) -> Judgement:
        """Keep the numbers of a batch for `of`, and return what they say."""
        if not self._expectations:
            return Judgement(0, {})
        judged, dropped, *unmet = counted
        reports = {
            one.name: ExpectationReport(met=judged - number, not_met=number)
            for one, number in zip(self._expectations, unmet, strict=True)
        }
        self._judgements[batch_id] = Judgement(dropped, reports)
        return self._judgements[batch_id]

    def of(self, batch_id: int) -> Judgement:
        """Return what the expectations said of a batch, and forget it: this is asked once, when it is committed."""
        return self._judgements.pop(batch_id, None) or Judgement(
            0, {one.name: ExpectationReport() for one in self._expectations}
        )

    def stops(self, judged: Judgement) -> list[int]:
        """Return the numbers, in the file, of the expectations that end the job at this batch."""
        return [
            number
            for number, one in enumerate(self._expectations)
            if one.action == "stop" and judged.reports[one.name].not_met
        ]

    def why_stopped(self, rows: DataFrame, judged: Judgement) -> str:
        """Return why a batch ends the job: each expectation, with the place of the first row. ``rows`` are read."""
        told = []
        for number in self.stops(judged):
            name = self._expectations[number].name
            count = judged.reports[name].not_met
            told.append(f"expectation {name} was not met by {count:,} {'row' if count == 1 else 'rows'}")
            first = self._first_row(rows, 1 << number)
            if first is not None:
                told[-1] += f", the first in shard {first['shard_id']} at sequence number {first['sequence_number']}"
        return f"{'; '.join(told)}. {_REMEDY}"

    def _first_row(self, rows: DataFrame, bits: int) -> Any:
        length, sequence, sub = position_order()
        place = fn.struct(
            "shard_id", length.alias("length"), sequence.alias("sequence_number"), sub.alias("sub_sequence_number")
        )
        found = rows.where(self._has(bits)).agg(fn.min(place).alias("first")).first()
        return None if found is None else found["first"]

    def _bits_of(self, action: str) -> int:
        return sum(1 << number for number, one in enumerate(self._expectations) if one.action == action)

    def _has(self, bits: int) -> Column:
        return fn.col(UNMET).bitwiseAND(_bits(bits)) != 0


def _bits(number: int) -> Column:
    return fn.lit(number).cast("long")
