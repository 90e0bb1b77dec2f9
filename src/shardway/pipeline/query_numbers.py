"""Emit the numbers of queries as events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.events import ProducerMetrics, QueryMetrics
from shardway.events.producer_snapshot import ProducerSnapshot
from shardway.events.query_snapshot import LEVELS, QuerySnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shardway.pipeline.stream_progress import StreamMetrics


class BatchNumbers(NamedTuple):
    """The counts of one batch."""

    records: int
    data_bytes: int
    seconds: float
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0
    dropped: int = 0
    met: Mapping[str, int] = {}
    """The rows that met each expectation, by its name."""
    not_met: Mapping[str, int] = {}


class QueryNumbers:
    """Emits the numbers of queries as `QueryMetrics` and `ProducerMetrics` events. One thread may use it."""

    def __init__(self, on_event: Callable[[Any], object], *, now: Callable[[], float] = time.time) -> None:
        self._on_event = on_event
        self._now = now
        self._written_s: dict[tuple[str, str], float] = {}
        """The time of the last `ProducerMetrics` event, by the query and the stream that it writes to."""
        self._last_snapshots: dict[tuple[str, str], QuerySnapshot] = {}
        """The snapshot that was emitted last, by query and stream."""

    def begin(self, query: str, stream: str, expectations: Iterable[str] = ()) -> None:
        """Begin the numbers of a query that starts: the time that it waits from here on counts, also before its first
        batch, and the counts of its expectations are 0.
        """
        now_s = self._now()
        none_yet = dict.fromkeys(expectations, 0)
        snapshot = QuerySnapshot(
            period_start_s=now_s, period_end_s=now_s, lag_s=0.0,
            expectations_met=none_yet, expectations_not_met=dict(none_yet),
        )  # fmt: skip
        self._report(query, stream, snapshot)

    def batch(self, query: str, metrics: StreamMetrics, counted: BatchNumbers) -> None:
        """Emit the numbers of a batch that was committed."""
        now_s = self._now()
        before = self._last_snapshots.get((query, metrics.stream))
        snapshot = QuerySnapshot(
            period_start_s=now_s - counted.seconds if before is None else before.period_end_s,
            period_end_s=now_s,
            batches=1,
            records_read=counted.records,
            bytes_read=counted.data_bytes,
            records_dead_lettered=counted.dead_letters,
            records_duplicate=counted.duplicates,
            records_late=counted.late,
            records_dropped=counted.dropped,
            expectations_met=dict(counted.met),
            expectations_not_met=dict(counted.not_met),
            aggregates_outside_range=metrics.aggregates_outside_range or 0,
            lag_s=metrics.lag_s,
            shards=metrics.shards,
            shards_unread=metrics.unread_shards,
            shards_silent=metrics.silent_shards,
            shards_left_out=metrics.left_out_shards,
            possible_losses=metrics.possible_losses,
        )
        snapshot.batch_s.add(counted.seconds)
        self._report(query, metrics.stream, snapshot)

    def wrote(self, query: str, stream: str, rows: int, *, last: bool = False) -> None:
        """Emit that the query has written ``rows`` rows to a stream, each as a user record."""
        now_s = self._now()
        before_s = self._written_s.get((query, stream), now_s)
        snapshot = ProducerSnapshot(
            period_start_s=before_s, period_end_s=now_s, user_records_accepted=rows, user_records_put=rows
        )
        self._written_s[query, stream] = now_s
        self._on_event(ProducerMetrics(stream, snapshot, last))

    def idle(self, query: str) -> None:
        """Emit the same levels again: no batch was committed, as nothing came."""
        self._report_again(query, 0.0)

    def busy(self, query: str) -> None:
        """Emit the levels with a larger lag: no batch was committed, though one runs, or its end is looked for, so what
        waits has waited for longer.
        """
        self._report_again(query, 1.0)

    def ended(self, query: str, *, failed: bool) -> None:
        """Emit the last event of a query that has ended. For one that has failed there is none: it is to be missed, as
        its numbers grow old.
        """
        for name, stream in [key for key in self._last_snapshots if key[0] == query]:
            last = self._last_snapshots.pop((name, stream))
            if not failed:
                snapshot = QuerySnapshot(period_start_s=last.period_end_s, period_end_s=self._now())
                self._on_event(QueryMetrics(stream, name, snapshot, last=True))
        for name, stream in [key for key in self._written_s if key[0] == query]:
            if not failed:
                self.wrote(name, stream, 0, last=True)
            del self._written_s[name, stream]

    def _report_again(self, query: str, ages: float) -> None:
        now_s = self._now()
        for name, stream in [key for key in self._written_s if key[0] == query]:
            self.wrote(name, stream, 0)
        for (name, stream), last in list(self._last_snapshots.items()):
            if name == query:
                lag_s = None if last.lag_s is None else last.lag_s + ages * (now_s - last.period_end_s)
                levels = {field: getattr(last, field) for field in LEVELS} | {"lag_s": lag_s}
                snapshot = QuerySnapshot(period_start_s=last.period_end_s, period_end_s=now_s, **levels)
                self._report(name, stream, snapshot)

    def _report(self, query: str, stream: str, snapshot: QuerySnapshot) -> None:
        self._last_snapshots[query, stream] = snapshot
        self._on_event(QueryMetrics(stream, query, snapshot))
