"""The figures of a consumer at work: its statistics, its metrics, and the event that reports them at intervals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from shardway.runtime.consumer.statistics import ConsumerStatistics, leases_by_worker
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.reporter import Reporter
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.stream_set import StreamSet
    from shardway.runtime.consumer.turns import Turns
    from shardway.runtime.consumer.worker_run import WorkerRun


R = TypeVar("R")


class Figures:
    """The figures of one consumer."""

    def __init__(
        self,
        spec: ConsumerSpec,
        placement: Placement,
        reporter: Reporter,
        streams: StreamSet,
        turns: Turns,
        run: WorkerRun,
    ) -> None:
        self._application = spec.application
        self._placement = placement
        self._reporter = reporter
        self._metering = reporter.metering
        self._streams = streams
        self._turns = turns
        self._run = run
        self._report_task: asyncio.Task[None] | None = None

    def statistics(self) -> ConsumerStatistics:
        """See `Consumer.statistics`."""
        return self._look(self._statistics)

    def metrics(self) -> ConsumerSnapshot:
        """See `Consumer.metrics`."""
        placement, run = self._placement, self._run
        return self._look(lambda: self._metering.snapshot(self._statistics(), placement.now_s, run.confirmed_s))

    def begin(self) -> None:
        """Begin to report at intervals, until an error ends the worker."""
        self._metering.begin(self._streams.first.source.now_s)
        failed = self._reporter.on_failure("telling its numbers", "statistics() and metrics() still tell them")
        self._report_task = spawn(self._report(), failed)

    def end(self, *, failed: bool) -> None:
        """Report the last interval, if any was to be reported. ``failed``: an error has ended the consumer."""
        if self._report_task is not None:
            self._report_task.cancel()
            self._report_interval(last=True, failed=failed)

    async def _report(self) -> None:
        failed = False
        while not failed:
            await asyncio.sleep(self._metering.interval_s)
            failed = self._run.has_failed
            self._report_interval(last=failed, failed=failed)

    def _report_interval(self, *, last: bool, failed: bool) -> None:
        found = self._statistics()
        event = self._metering.interval(found, self._streams, self._run.confirmed_s, last=last, failed=failed)
        self._reporter.emit(event)

    def _look(self, look: Callable[[], R]) -> R:
        # Any thread may look. On the program's loop only what is settled changes under the lock, so all that is looked
        # at besides is copied before anything goes over it.
        with self._placement.host.lock:
            return look()

    def _statistics(self) -> ConsumerStatistics:
        now_s = self._placement.now_s
        turns, run = self._turns, self._run
        readers = list(turns.held)
        leases, held = leases_by_worker(run.leases())
        return ConsumerStatistics(
            application=self._application,
            worker_id=run.worker_id,
            shards=tuple(self._streams[reader.stream].statistics(reader, now_s) for reader in readers),
            records_delivered=turns.records_before + sum(reader.delivery.records_delivered for reader in readers),
            batches_delivered=turns.batches_before + sum(reader.delivery.batches_delivered for reader in readers),
            leases=leases,
            leases_by_worker=held,
            leases_free=run.leases_free(),
            source_calls=dict(self._streams.calls),
            table_calls=dict(run.table_calls),
            events=dict(self._reporter.events),
        )
