"""Count what a job did: the numbers of each batch, by Spark's progress, and their sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.pipeline.removed_rows import EXACT_DUPLICATES, late_rows
from shardway.pipeline.stream_progress import OBSERVATION, stream_metrics
from shardway.spark.source import ADMISSION

if TYPE_CHECKING:
    from collections.abc import Mapping


class SecondPass(NamedTuple):
    """What corrects Spark's numbers of a batch that was run twice: some of them count both times."""

    rows: int
    """The rows that came out of the query's steps in one run."""
    is_shuffled: bool
    """True where the rows came through a shuffle: what lies before it was run once."""
    state_runs: int = 2
    """How often the state was computed."""


class StateReport(msgspec.Struct, frozen=True):
    """Says what a batch did to the state of its de-duplication, and how large that is. Seconds are sums over tasks."""

    store: str
    """The kind of store: ``rocksdb``, or ``hdfs``, which holds the state in the heap of Spark's Java."""
    rows: int
    """Rows in the state: one for each key; with ``exact`` at most 128, each of many keys."""
    bytes: int
    """Bytes of memory that the state takes, as the store reports."""
    added: int
    """Rows that the batch wrote to the state."""
    removed: int
    """Rows that the batch removed from the state, as their time was over."""
    rows_per_s: float
    """Rows added and removed, for each second of the batch."""
    remove_s: float
    """Seconds of the search for rows whose time is over: Spark looks at each row of the state, in each batch."""
    commit_s: float
    """Seconds of storing what has changed."""


class ExpectationReport(msgspec.Struct, frozen=True):
    """How many rows met an expectation, and how many did not. Records that were not decoded count in neither, nor do
    rows that were removed as duplicates.
    """

    met: int = 0
    not_met: int = 0

    def __add__(self, other: ExpectationReport) -> ExpectationReport:
        return ExpectationReport(self.met + other.met, self.not_met + other.not_met)


class BatchReport(msgspec.Struct, frozen=True):
    """One batch that was written and committed."""

    batch: int
    rows: int
    """Records that were read."""
    rows_per_s: float
    seconds: float
    """Seconds from the trigger to the commit."""
    lag_s: dict[str, float]
    """How old the oldest record is that is not read yet, in seconds, by stream; 0 when none is known. On Spark 4.0 and
    4.1 the time since the batch's cut.
    """
    dead_letters: int
    duplicates: int
    """Rows that the deduplication removed."""
    late: int
    """Rows that came later than the watermark allows, and were dropped."""
    bytes: int
    """Bytes of the records' data."""
    shards: int
    """The number of shards that the source keeps a position of."""
    aggregates_outside_range: int
    """KPL aggregates with user records outside of their shard's hash range."""
    possible_losses: int
    """Losses that were passed over since the checkpoint directory was made."""
    state: StateReport | None = None
    """What the batch did to the state; None for a job without a state."""
    dropped: int = 0
    """Rows that did not meet an expectation with the action *drop*."""
    expectations: dict[str, ExpectationReport] = {}
    """The counts of each expectation, by its name."""

    def judged(self, dropped: int, expectations: dict[str, ExpectationReport]) -> BatchReport:
        """Return the report with what the expectations said."""
        return msgspec.structs.replace(self, dropped=dropped, expectations=expectations)


class Totals(msgspec.Struct):
    """The sums over the batches of one run."""

    batches: int = 0
    rows: int = 0
    seconds_busy: float = 0.0
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0
    bytes: int = 0
    aggregates_outside_range: int = 0
    possible_losses: int = 0
    """Losses that were passed over since the checkpoint directory was made."""
    lag_s: dict[str, float] = {}
    state: StateReport | None = None
    """The report of the last batch on the state."""
    dropped: int = 0
    expectations: dict[str, ExpectationReport] = {}

    def add(self, batch: BatchReport) -> None:
        """Add the numbers of a batch."""
        self.batches += 1
        self.rows += batch.rows
        self.seconds_busy = round(self.seconds_busy + batch.seconds, 3)
        self.dead_letters += batch.dead_letters
        self.duplicates += batch.duplicates
        self.late += batch.late
        self.bytes += batch.bytes
        self.aggregates_outside_range += batch.aggregates_outside_range
        self.possible_losses = batch.possible_losses
        self.lag_s = batch.lag_s
        self.state = batch.state
        self.dropped += batch.dropped
        nothing = ExpectationReport()
        self.expectations = {
            name: self.expectations.get(name, nothing) + one for name, one in batch.expectations.items()
        }


def was_a_batch(progress: Mapping[str, Any]) -> bool:
    """False for the progress that Spark reports now and then while nothing happens."""
    return "addBatch" in progress["durationMs"]


def batch_report(
    progress: Mapping[str, Any], *, stream: str, dead_letters: int, second: SecondPass | None = None
) -> BatchReport:
    """Return the report of a batch by Spark's progress. ``second``: the batch was run twice, and counts once."""
    rows = int(progress["numInputRows"])
    seconds = int(progress["durationMs"].get("triggerExecution", 0)) / 1000
    metrics = next(iter(stream_metrics(progress)), None)
    seen, state = 1, 1  # how often each was counted
    if second is not None:
        state = second.state_runs
        if not second.is_shuffled:
            # Whether what is observed counts both times depends on Spark's version.
            observed = (progress["observedMetrics"] or {}).get(OBSERVATION)
            seen = max(1, (0 if observed is None else int(observed["rows"] or 0)) // max(1, second.rows))
            rows = second.rows
    late = late_rows(progress) // state
    duplicates = _by_spark(progress) // state
    exact = _exact(progress)
    if exact and second is not None:
        exact = rows - second.rows - duplicates - late
    return BatchReport(
        batch=int(progress["batchId"]),
        rows=rows,
        rows_per_s=round(rows / seconds, 1) if seconds else 0.0,
        seconds=seconds,
        lag_s={stream: 0.0 if metrics is None else metrics.lag_s},
        dead_letters=dead_letters,
        duplicates=duplicates + exact,
        late=late,
        bytes=0 if metrics is None else (metrics.bytes or 0) // seen,
        shards=0 if metrics is None else metrics.shards,
        aggregates_outside_range=0 if metrics is None else (metrics.aggregates_outside_range or 0) // seen,
        possible_losses=0 if metrics is None else metrics.possible_losses,
        state=state_report(progress, seconds, state),
    )


def state_report(progress: Mapping[str, Any], seconds: float, counted: int = 1) -> StateReport | None:
    """Return Spark's numbers of the state. ``counted``: how often each is counted; ``seconds``: the batch's time."""
    operators = progress["stateOperators"]
    if not operators:
        return None

    def total(name: str) -> int:
        return sum(int(operator.get(name) or 0) for operator in operators) // counted

    added, removed = total("numRowsUpdated"), total("numRowsRemoved")
    in_rocks = any(name.startswith("rocksdb") for operator in operators for name in operator.get("customMetrics", {}))
    return StateReport(
        store="rocksdb" if in_rocks else "hdfs",
        rows=total("numRowsTotal"),
        bytes=total("memoryUsedBytes"),
        added=added,
        removed=removed,
        rows_per_s=round((added + removed) / seconds, 1) if seconds else 0.0,
        remove_s=total("allRemovalsTimeMs") / 1000,
        commit_s=total("commitTimeMs") / 1000,
    )


def cut_ms(progress: Mapping[str, Any]) -> int | None:
    """Return the time up to which the batch read, in epoch milliseconds by the service's clock; None before the first
    batch.
    """
    return next((metrics.cut_ms for metrics in stream_metrics(progress)), None)


def _by_spark(progress: Mapping[str, Any]) -> int:
    """Return the number of duplicates that Spark's own de-duplication removed."""
    found = (operator.get("customMetrics", {}) for operator in progress["stateOperators"])
    return sum(int(one.get("numDroppedDuplicateRows", 0)) for one in found)


def _exact(progress: Mapping[str, Any]) -> int:
    """Return the number of duplicates that our exact de-duplication removed."""
    found = (row.asDict() for row in (progress["observedMetrics"] or {}).values())
    return sum(int(one.get(EXACT_DUPLICATES) or 0) for one in found)


LAG = "lag" if ADMISSION else "since the cut"
"""The words for the seconds of ``lag_s`` in lines for people: Spark 4.0 and 4.1 do not tell what is unread, so they are
the time since the batch's cut, which also grows where nothing is left to read.
"""
