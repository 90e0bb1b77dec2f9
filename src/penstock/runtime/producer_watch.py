"""From what the batcher tells to metrics and events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.batching import Watch
from penstock.core.batching.settling import THROTTLED
from penstock.events import AggregatesRepeated, RecordsExpired, RecordsFailed, RecordsRefused, UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.batching import Run
    from penstock.events import Event
    from penstock.runtime.producer_metrics import ProducerMeter


class ProducerWatch(Watch):
    """Counts in a meter, and emits events for what people have to know."""

    def __init__(self, stream: str, meter: ProducerMeter, emit: Callable[[Event], None]) -> None:
        self._stream = stream
        self._meter = meter
        self._emit = emit

    def written(self, shard_id: str, records: int, user_records: int, record_bytes: int, data_bytes: int) -> None:
        """See Watch."""
        self._meter.data_put(data_bytes, shard_id=shard_id)
        self._meter.record_put(
            record_bytes, user_records, records=records, aggregate=user_records > records, shard_id=shard_id
        )

    def settled(self, run: Run, shard_id: str, records: int, attempts: int, doubtful: bool, now_s: float) -> None:
        """See Watch."""
        self._meter.settled(
            records,
            0,
            now_s - run.chunk.put_at_s,
            attempts,
            shard_id=shard_id,
            duplicates_possible=doubtful,
        )

    def refused(self, shard_id: str | None, records: int, error_code: str) -> None:
        """See Watch."""
        refused = error_code == THROTTLED
        self._meter.records_not_put(records, error_code, refused=refused, shard_id=shard_id or "")
        self._emit(RecordsRefused(self._stream, shard_id, records, error_code))

    def expired(self, run: Run, shard_id: str | None, now_s: float) -> None:
        """See Watch."""
        self._meter.expired(len(run), now_s - run.chunk.put_at_s, run.attempts)
        self._emit(RecordsExpired(self._stream, shard_id, len(run), run.doubtful))

    def failed(self, run: Run, shard_id: str | None, error_code: str, now_s: float) -> None:
        """See Watch."""
        self._meter.failed(len(run), now_s - run.chunk.put_at_s, run.attempts)
        self._emit(RecordsFailed(self._stream, shard_id, len(run), error_code))

    def withdrawn(self, records: int) -> None:
        """See Watch."""
        self._meter.withdrawn(records)

    def repeated(self, shard_id: str, aggregates: int, user_records: int) -> None:
        """See Watch."""
        self._meter.aggregates_repeated(aggregates)
        self._emit(AggregatesRepeated(self._stream, shard_id, aggregates, user_records))

    def unknown(self, records: int, reason: str) -> None:
        """See Watch."""
        self._emit(UnknownOutcome(self._stream, records, reason))
