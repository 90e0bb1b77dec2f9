"""Metering makes snapshots of the counts of a consumer's parts, and the event that reports them at an interval."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from shardway.events import ConsumerMetrics
from shardway.events.consumer_snapshot import ShardLevels, WorkerLevels
from shardway.options.metrics import metrics_for
from shardway.ports import EventExporter, SharedExporter
from shardway.runtime.shard.listener import ShardListener
from shardway.telemetry.consumer_meter import ConsumerMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.options.metrics import MetricsOptions
    from shardway.runtime.consumer.statistics import ConsumerStatistics
    from shardway.runtime.shard.shard_reader import ShardReader


log = logging.getLogger("shardway.telemetry")


class Metering(ShardListener):
    """Counts for one consumer, and calls its subscriber on any thread where that may be: see `EventExporter`."""

    def __init__(self, options: MetricsOptions, on_event: Callable[[Any], None] | None) -> None:
        self.interval_s, per_shard = metrics_for(options, on_event)
        self.meter = ConsumerMeter(0.0, per_shard=per_shard)
        subscriber: object = on_event
        self._exporter = subscriber if isinstance(subscriber, EventExporter) else None
        shared = subscriber.on_loop if isinstance(subscriber, SharedExporter) else None
        self.on_loop: Callable[[Any], object] | None = on_event if self._exporter is None else shared
        """The function that is called on the program's loop."""
        self._settled_counts: dict[
            ShardReader, tuple[int, int]
        ] = {}  # The records that are settled, and their data bytes.
        self._collect_lock = threading.RLock()
        self._epoch_s = 0.0
        self._is_begun = False

    def count(self, event: Any) -> None:
        """Hand an event to the subscriber. The caller holds no lock."""
        if self._exporter is not None:
            try:
                self._exporter.at_once(event)
            except Exception as error:  # A subscriber never ends the work.
                log.error("on_event: at_once raised %s for a %s", type(error).__name__, type(event).__name__)

    def begin(self, service_now_s: float) -> None:
        """Begin to count by the service's time, as the consumer starts: what was emitted before counts, too."""
        if not self._is_begun:
            self._is_begun = True
            self._epoch_s = service_now_s - asyncio.get_running_loop().time()
            self.meter.begins(service_now_s)

    def hold(self, reader: ShardReader) -> None:
        """Count what is settled of this shard."""
        self._settled_counts[reader] = 0, 0
        reader.listen(self)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        with self._collect_lock:
            self._collect((reader,))
            self._settled_counts.pop(reader, None)
        if reader.lost is not None:
            self.meter.lost()

    def snapshot(self, found: ConsumerStatistics, loop_now_s: float, confirmed_s: float | None) -> ConsumerSnapshot:
        """Return the numbers since the start."""
        self._collect(list(self._settled_counts))
        now_s = self._epoch_s + loop_now_s
        return self.meter.snapshot(now_s, found.worker_id, _levels(found, now_s, loop_now_s, confirmed_s))

    def interval(
        self,
        found: ConsumerStatistics,
        streams: Iterable[str],
        confirmed_s: float | None,
        *,
        last: bool = False,
        failed: bool = False,
    ) -> ConsumerMetrics:
        """Return the numbers that are new since the last interval. ``last``: the consumer has ended. ``failed``: an
        error has ended it.
        """
        self._collect(list(self._settled_counts))
        loop_now_s = asyncio.get_running_loop().time()
        now_s = self._epoch_s + loop_now_s
        levels = _levels(found, now_s, loop_now_s, confirmed_s)
        if last:
            levels = WorkerLevels(at_s=now_s, left=True, failed=failed)
        snapshot = self.meter.interval(now_s, found.worker_id, levels)
        return ConsumerMetrics(", ".join(streams), found.application, found.worker_id, snapshot)

    def _collect(self, readers: Iterable[ShardReader]) -> None:
        """Count what was settled. That is not counted as it happens: it happens with each record."""
        with self._collect_lock:
            for reader in readers:
                before = self._settled_counts.get(reader)
                if before is not None:
                    # Where another thread asks while the reader goes on, the reader's figures may be a moment apart:
                    # none goes back, and the next look has the rest.
                    records, size = max(before[0], reader.records_settled), max(before[1], reader.bytes_settled)
                    self.meter.settled(records - before[0], size - before[1])
                    self._settled_counts[reader] = records, size


def _levels(found: ConsumerStatistics, now_s: float, loop_now_s: float, confirmed_s: float | None) -> WorkerLevels:
    return WorkerLevels(
        at_s=now_s,
        shards=tuple(
            ShardLevels(
                stream=one.stream,
                shard_id=one.shard_id,
                millis_behind_latest=one.millis_behind_latest,
                since_read_s=one.since_read_s,
                oldest_unsettled_s=one.oldest_unsettled_s,
                lag_s=one.lag_s,
                retention_used=one.retention_used,
                records_held=one.records_held,
                bytes_held=one.bytes_held,
                records_in_flight=one.records_in_flight,
                oldest_in_flight_s=one.oldest_in_flight_s,
                is_full=one.is_full,
            )
            for one in found.shards
        ),
        leases=found.leases,
        leases_free=found.leases_free,
        workers=len(found.leases_by_worker),
        renewed_ago_s=None if confirmed_s is None else loop_now_s - confirmed_s,
    )
