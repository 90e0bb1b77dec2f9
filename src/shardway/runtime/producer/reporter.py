"""The reporter of a producer: it counts what happens, and emits events of it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from shardway.events import AggregationOff, PaceChanged, ProducerMetrics, PutRecordsDone
from shardway.options.metrics import metrics_for
from shardway.runtime.producer.meter import ProducerMeter, event_of

if TYPE_CHECKING:
    from shardway.core.producer import facts
    from shardway.core.producer.request import Request
    from shardway.events import Event
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.runtime.producer.room import Room
    from shardway.runtime.producer.spec import ProducerSpec

SHARE_STEP = 0.1
"""The change of a shard's pace that is reported: by this since the last event, or back to its limit."""


class Reporter:
    """Counts for `Producer.metrics`, and calls ``on_event``."""

    def __init__(self, spec: ProducerSpec, room: Room) -> None:
        self._stream = spec.stream
        self._on_event = spec.on_event
        self._room = room
        self._interval_s, per_shard = metrics_for(spec.metrics, spec.on_event)
        self.meter = ProducerMeter(time.monotonic(), per_shard=per_shard)
        self.next_metrics_s = time.monotonic() + self._interval_s
        """The time at which the next event with metrics is due."""
        self._reported_shares: dict[str, float] = {}
        self._was_aggregating = spec.options.aggregation

    @property
    def has_listener(self) -> bool:
        """True if events are wanted at all."""
        return self._on_event is not None

    def emit(self, event: Event) -> None:
        """Call ``on_event`` with an event. A listener that raises must not keep records from being sent."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:
            context = {"message": f"{self._stream}: on_event raised", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def report_fault(self, error: BaseException) -> None:
        """Report an error of the sink that no service names, or a fault in here. The records have outcomes."""
        context = {"message": f"{self._stream}: sending, or closing, has failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def report_fact(self, fact: facts.Fact) -> None:
        """Count a fact of the batcher, and emit its event if it has one."""
        self.meter.count_fact(fact)
        if self._on_event is not None and (event := event_of(self._stream, fact)) is not None:
            self.emit(event)

    def report_buffering(self, request: Request, now_s: float) -> None:
        """Count how long the records waited that a request carries for the first time."""
        for load in request.loads:
            if load.attempts == 1:
                for run in load.runs:
                    if not run.attempts:
                        self.meter.count_buffering(now_s - run.chunk.put_at_s, len(run.keys))

    def report_request(
        self, request: Request, took_s: float, error_code: str | None, *, refused: int, failed: int, in_flight: int
    ) -> None:
        """Count a request that has ended, and emit its event. ``refused`` and ``failed`` are counts of its entries."""
        self.meter.count_request(len(request.entries), request.user_records, request.payload_bytes, took_s, error_code)
        if self._on_event is not None:
            self.emit(
                PutRecordsDone(
                    self._stream,
                    len(request.entries),
                    request.user_records,
                    request.payload_bytes,
                    refused,
                    failed,
                    took_s,
                    error_code,
                    in_flight,
                )
            )

    def report_pace(self, request: Request) -> None:
        """Emit an event for each shard of a request whose pace has changed much since the last one."""
        shares = self._reported_shares
        for load in request.loads:
            shard_id, pace = load.lane.shard_id, load.lane.pace
            if shard_id is None or pace is None:
                continue
            share, before = pace.share, shares.get(shard_id, 1.0)
            if not before - SHARE_STEP < share < before + SHARE_STEP or (share == 1.0) > (before == 1.0):
                shares[shard_id] = share
                self.emit(PaceChanged(self._stream, shard_id, share))

    def report_aggregation(self, *, is_aggregating: bool) -> None:
        """Emit an event when the batcher has stopped aggregating."""
        before, self._was_aggregating = self._was_aggregating, is_aggregating
        if before and not is_aggregating:
            reason = "the stream answers other shard ids than its list of shards has for the same keys"
            self.emit(AggregationOff(self._stream, reason))

    def report_metrics(self, now_s: float, *, last: bool = False) -> None:
        """Emit the figures since the last event with metrics."""
        self.next_metrics_s = now_s + self._interval_s
        if self._on_event is not None:
            self._note_level()
            self.emit(ProducerMetrics(self._stream, self.meter.interval(now_s), last))

    def snapshot(self) -> ProducerSnapshot:
        """Return the figures since the start."""
        self._note_level()
        return self.meter.snapshot(time.monotonic())

    def _note_level(self) -> None:
        self.meter.buffer_bytes = self._room.bytes_max - self._room.free
