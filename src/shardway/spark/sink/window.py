"""The window of a task holds the rows that were given to the producer and that are not written yet."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from shardway.errors import StalledError
from shardway.runtime.producer.sync_producer import SyncProducer

if TYPE_CHECKING:
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.runtime.producer.handles import SyncPuts
    from shardway.spark.options.sink_options import SinkOptions

LOOK_S = 5.0
"""Seconds between two looks of a waiting task whether anything gets on."""


class Window:
    """The rows that a task has given to the producer and that are not written yet, in their order, bounded in bytes."""

    def __init__(self, options: SinkOptions, producer: SyncProducer[Any]) -> None:
        self._stream = str(options.stream)
        self._bytes_max = options.buffer_bytes_max
        self._patience_s = options.write_timeout_s
        self._producer = producer
        self._waiting_puts: deque[tuple[SyncPuts, int]] = deque()
        self._bytes = 0

    def make_room(self, size: int) -> None:
        """Wait until ``size`` bytes fit (for more than the bound, until nothing else is there). Raises what ``drain``
        raises.
        """
        while self._waiting_puts and (self._bytes + size > self._bytes_max or self._waiting_puts[0][0].done()):
            self._settle_oldest()

    def add(self, puts: SyncPuts, size: int) -> None:
        """Take note of rows that were given to the producer."""
        self._waiting_puts.append((puts, size))
        self._bytes += size

    def drain(self) -> None:
        """Wait until all rows are written. Raises the PutError of the first one that is not, or StalledError."""
        while self._waiting_puts:
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        puts, size = self._waiting_puts[0]
        if not puts.done():
            self._wait(puts)
        puts.raise_failure()
        self._waiting_puts.popleft()
        self._bytes -= size

    def _wait(self, puts: SyncPuts) -> None:
        """Wait as long as anything gets on: a task among many on one shard is slow, and not stalled."""
        before, stalled_at_s = self._producer.metrics(), time.monotonic()
        while True:
            try:
                puts.wait(min(LOOK_S, self._patience_s))
                return
            except TimeoutError:
                now = self._producer.metrics()
            if now.user_records_put > before.user_records_put:
                before, stalled_at_s = now, time.monotonic()
            elif time.monotonic() - stalled_at_s >= self._patience_s:
                raise StalledError(
                    f"{self._stream}: for {self._patience_s:g} s (writeTimeoutMs) none of the rows that wait was "
                    f"written; {_describe_failures(before, now)}"
                )


def _describe_failures(before: ProducerSnapshot, after: ProducerSnapshot) -> str:
    """Return what requests and records met between two snapshots."""
    met = Counter(after.requests_failed) - Counter(before.requests_failed)
    met += Counter(after.records_failed_attempts) - Counter(before.records_failed_attempts)
    if not met:
        return "no request was answered: see whether the endpoint can be reached from the executors"
    return "the service said " + ", ".join(f"{code} ({count} times)" for code, count in met.most_common(3))
