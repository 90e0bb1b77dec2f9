"""A consumer's numbers: what its parts count, as snapshots; and the event that tells them at an interval."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from penstock.events import ConsumerMetrics
from penstock.runtime.shard.listener import ShardListener
from penstock.telemetry.consumer_metrics import ConsumerMeter, ShardCounts, ShardLevels, WorkerLevels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.options import MetricsOptions
    from penstock.runtime.consumer.statistics import ConsumerStatistics
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.telemetry.consumer_metrics import ConsumerSnapshot

log = logging.getLogger("penstock.telemetry")

INTERVAL_S = 60.0
"""How often the numbers are told where neither the options nor the subscriber say."""


class Metering(ShardListener):
    """Counts for one consumer, and tells its subscriber what may be told on any thread: an exporter has `at_once`."""

    def __init__(self, options: MetricsOptions, on_event: Callable[[Any], None] | None) -> None:
        wanted = getattr(on_event, "metrics_interval_s", None)
        self.interval_s: float = options.interval_s or wanted or INTERVAL_S
        self.meter = ConsumerMeter(0.0, per_shard=options.per_shard or getattr(on_event, "metrics_per_shard", False))
        self._at_once: Callable[[Any], object] | None = getattr(on_event, "at_once", None)
        self.on_loop: Callable[[Any], object] | None = (
            on_event if self._at_once is None else getattr(on_event, "on_loop", None)
        )
        """What is called on the program's loop."""
        self._settled: dict[ShardReader, tuple[int, int]] = {}  # records, and their data
        self._collecting = threading.RLock()
        self._epoch_s = 0.0
        self._begun = False

    def count(self, event: Any) -> None:
        """An event is told. The caller holds no lock."""
        if self._at_once is not None:
            try:
                self._at_once(event)
            except Exception as error:  # a subscriber never ends the work
                log.error("on_event: at_once raised %s for a %s", type(error).__name__, type(event).__name__)

    def begin(self, service_now_s: float) -> None:
        """The consumer starts: what was told before it counts, too. From here on its times are the service's."""
        if not self._begun:
            self._begun = True
            self._epoch_s = service_now_s - asyncio.get_running_loop().time()
            self.meter.begins(service_now_s)

    def hold(self, reader: ShardReader) -> None:
        """Count what is read of this shard from now on."""
        reader.counts = ShardCounts(self.meter, reader.stream, reader.shard_id)
        self._settled[reader] = 0, 0
        reader.listen(self)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        with self._collecting:
            self._collect((reader,))
            self._settled.pop(reader, None)
        if reader.lost is not None:
            self.meter.lost()

    def snapshot(self, found: ConsumerStatistics, loop_now_s: float, confirmed_s: float | None) -> ConsumerSnapshot:
        """Everything since the start."""
        self._collect(list(self._settled))
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
        """What is new since the last interval. ``last``: the consumer has ended. ``failed``: by an error."""
        self._collect(list(self._settled))
        loop_now_s = asyncio.get_running_loop().time()
        now_s = self._epoch_s + loop_now_s
        levels = _levels(found, now_s, loop_now_s, confirmed_s)
        if last:
            levels = WorkerLevels(at_s=now_s, left=True, failed=failed)
        snapshot = self.meter.interval(now_s, found.worker_id, levels)
        return ConsumerMetrics(", ".join(streams), found.application, found.worker_id, snapshot)

    def _collect(self, readers: Iterable[ShardReader]) -> None:
        """Count what was settled. That is not counted as it happens: it happens with each record."""
        with self._collecting:
            for reader in readers:
                before = self._settled.get(reader)
                if before is not None:
                    # Asked from another thread while the reader goes on, its figures may be a moment apart: none goes
                    # back, and the next look has the rest.
                    records, size = max(before[0], reader.records_settled), max(before[1], reader.bytes_settled)
                    self.meter.settled(records - before[0], size - before[1])
                    self._settled[reader] = records, size


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
