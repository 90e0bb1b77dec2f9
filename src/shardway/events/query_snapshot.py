"""The snapshot of a Spark query: there is one for each batch and stream, made of Spark's progress."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from shardway.core.histogram import Histogram
from shardway.events.snapshots import Snapshot, sum_of_fields

LEVELS = ("lag_s", "shards", "shards_unread", "shards_silent", "shards_left_out", "possible_losses")
"""The fields of a `QuerySnapshot` that are levels, and no counts."""


class QuerySnapshot(Snapshot, kw_only=True):
    """What a query read of one stream from ``period_start_s`` to ``period_end_s`` (epoch seconds), and how far it is.

    ``a + b`` covers both periods: counts and the histogram add up, and the later levels count.
    """

    _is_of: ClassVar[str] = "query"
    _rates: ClassVar[tuple[str, ...]] = ("records_per_s",)

    batches: int = 0
    """Batches that were written and committed."""
    records_read: int = 0
    """Records of the committed batches."""
    bytes_read: int = 0
    """Data of these records, without keys, where the query is observed (`shardway.pipeline.observed`); a job always is.
    """
    records_dead_lettered: int = 0
    """Rows that a job wrote as dead letters."""
    records_duplicate: int = 0
    """Rows that the de-duplication of a job removed."""
    records_late: int = 0
    """Rows that a job dropped, as they came later than its watermark allows."""
    records_dropped: int = 0
    """Rows that a job left out, as they did not meet an expectation with the action ``drop``."""
    expectations_met: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows that met an expectation of a job, by its name; a row counts in each."""
    expectations_not_met: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows that did not meet an expectation of a job, by its name, whatever became of them."""
    aggregates_outside_range: int = 0
    """KPL aggregates with user records outside of their shard's hash range."""

    batch_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the trigger of a batch to its commit."""

    lag_s: float | None = None
    """How old the oldest record may be that is in no committed batch; None: nothing was read yet. On PySpark 4.0 and
    4.1 it is the time since the cut of the last batch, which also grows where nothing is unread.
    """
    shards: int = 0
    """Shards whose position the query keeps."""
    shards_unread: int = 0
    """Shards whose position the query keeps, and that are not read to their ends."""
    shards_silent: int | None = None
    """Shards that cross a silence, for which the cut of all shards waits; None where Spark does not report it (4.0 and
    4.1).
    """
    shards_left_out: int | None = None
    """Shards that cross a silence, for which the cut waits no more; None where Spark does not report it (4.0 and 4.1).
    """
    possible_losses: int = 0
    """Losses, certain or possible, that were passed over since the checkpoint directory was made."""

    def __add__(self, other: QuerySnapshot) -> QuerySnapshot:
        if not isinstance(other, QuerySnapshot):
            return NotImplemented
        later: Any = other if other.period_end_s >= self.period_end_s else self
        return sum_of_fields(
            self,
            other,
            period_start_s=min(self.period_start_s, other.period_start_s),
            period_end_s=later.period_end_s,
            **{name: getattr(later, name) for name in LEVELS},
        )

    @property
    def records_per_s(self) -> float:
        """Records read in a second of the period; 0.0 for an empty period."""
        return self.records_read / self.period_s if self.period_s > 0 else 0.0
