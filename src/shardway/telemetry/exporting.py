"""What all exporters share: events come in on any thread, and a thread of the exporter's own does the rest.

An exporter is an ``on_event``. It takes the events that have numbers, and puts them into a queue: nothing that it does
with them afterwards can slow the work, or end it. The queue is bounded: where it is full, the oldest event is dropped,
counted (`Exporter.dropped`), reported by the number ``shardway.telemetry.dropped``, and logged once.
A `Pusher` sends at an interval what there is by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.events import ConsumerMetrics, Event, ProducerMetrics, QueryMetrics
from shardway.ports import EventExporter, IntervalWish, ShardDetailWish
from shardway.tasks import logged, thread
from shardway.telemetry.metric_table import AGE, LOSSES
from shardway.telemetry.metrics import SYSTEM
from shardway.telemetry.points import Point, Told, common_to, points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType


log = logging.getLogger("shardway.telemetry")
QUEUE_EVENTS_MAX = 1000
"""The events that wait for an exporter's thread."""
PARTS_MAX = 1000
"""The consumers and producers (by stream and application) whose numbers an exporter reports."""
TICK_S = 0.25
"""How often an exporter's thread looks into its queue."""
CLOSE_S = 5.0
"""How long `Exporter.close` waits for what is still to be sent."""


class _Part:
    """The sum of what the consumers of one stream and application, or the producers of one stream, have reported."""

    __slots__ = ("_failed_workers", "_told_s", "since_s", "whole")

    def __init__(self, whole: Told, since_s: float) -> None:
        self.whole = whole
        self.since_s = since_s
        self._told_s: dict[str, float] = {}
        self._failed_workers: set[str] = set()

    def told(self, event: Told, now_s: float) -> None:
        """Note which workers have reported: the age grows while a worker that is here reports nothing. Nothing more is
        expected of a worker that was closed. A worker that an error has ended is missed until another one is in its
        place.
        """
        if not isinstance(event, ConsumerMetrics):
            self._hear("", now_s, left=event.last)
            return
        for worker, levels in event.snapshot.workers.items():
            if worker not in self._told_s:
                for one in self._failed_workers:
                    del self._told_s[one]
                self._failed_workers.clear()
            self._hear(worker, now_s, left=levels.left and not levels.failed)
            if levels.failed:
                self._failed_workers.add(worker)

    def _hear(self, worker: str, now_s: float, *, left: bool) -> None:
        if left:
            self._told_s.pop(worker, None)
            self._failed_workers.discard(worker)
        else:
            self._told_s[worker] = now_s

    def age_s(self, now_s: float) -> float:
        """Return the seconds since the worker that is silent the longest reported its numbers; 0.0 where none is
        here.
        """
        return max(0.0, now_s - min(self._told_s.values(), default=now_s))


class Totals:
    """The sum of all events, for each stream and application. Only one thread at a time may use it."""

    def __init__(self, shards_max: int = 0) -> None:
        """``shards_max``: the levels of at most this many shards are reported one by one, too, and the rest as one."""
        self._shards_max = shards_max
        self._parts: dict[tuple[type, str, str], _Part] = {}

    def add(self, event: Told, now_s: float) -> bool:
        """Add an event. Return False where there is no room for one more stream or application."""
        key = (type(event), event.stream, getattr(event, "application", ""))
        known = self._parts.get(key)
        if known is not None:
            known.whole = _sum(known.whole, event)
        elif len(self._parts) < PARTS_MAX:
            whole = _without_those_that_left(event)
            known = self._parts[key] = _Part(whole, now_s - event.snapshot.period_s)
        else:
            return False
        known.told(event, now_s)
        return True

    def __bool__(self) -> bool:
        """Return True once an event was added."""
        return bool(self._parts)

    def points(self, now_s: float) -> Iterator[tuple[Point, float]]:
        """Yield all numbers, each with the time since which it counts (epoch seconds)."""
        for part in self._parts.values():
            for point in points(part.whole, by_shard=self._shards_max > 0, shards_max=self._shards_max):
                yield point, part.since_s
            yield Point(AGE, common_to(part.whole), part.age_s(now_s)), part.since_s


def _sum(before: Told, event: Told) -> Told:
    both: Any = before.snapshot + event.snapshot  # type: ignore[operator]  # of one kind: it is a part of their key
    return _without_those_that_left(replace(event, snapshot=both))


def _without_those_that_left(event: Told) -> Told:
    """Return the event without the levels of workers that have ended. Else each consumer that ever was would be
    remembered.
    """
    if isinstance(event, ConsumerMetrics) and any(one.left for one in event.snapshot.workers.values()):
        here = {name: one for name, one in event.snapshot.workers.items() if not one.left}
        return replace(event, snapshot=replace(event.snapshot, workers=here))  # other exporters have the event, too
    return event


class Exporter:
    """The queue, the thread, and the sum of what came. A kind of exporter says what its thread does (`_work`), and what
    it does with an event (`_take`) where it does not report the sum.
    """

    metrics_interval_s: float | None = None
    """Seconds between the numbers that the exporter wants of a consumer; None: the consumer's own interval will do."""
    metrics_per_shard = False
    """True: the exporter wants the numbers by shard, too."""

    def __init__(self, name: str, *, shards_max: int = 0, queue_events_max: int = QUEUE_EVENTS_MAX) -> None:
        self.name = name
        """The name of the exporter in its lines in the log, and in its own numbers."""
        self._totals = Totals(shards_max)
        self._queue: deque[Told] = deque()
        self._queue_max = queue_events_max
        self._dropped_count = 0
        self._has_told = False
        self._change_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._close_s = CLOSE_S
        self._closed = threading.Event()

    # --- for consumers and producers ----------------------------------------------------------------

    def at_once(self, event: Event) -> None:
        """Take note of an event, on any thread. It returns at once, and raises nothing."""
        if not isinstance(event, ConsumerMetrics | ProducerMetrics | QueryMetrics) or self._closed.is_set():
            return
        self._queue.append(event)
        if len(self._queue) > self._queue_max:
            try:
                self._queue.popleft()
            except IndexError:  # the thread took all of them meanwhile
                return
            self._lose(1, "its queue is full")
        if self._process != os.getpid():
            self._start()

    __call__ = at_once

    # --- life -------------------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        """The number of events, or of requests with their numbers, that were dropped so far."""
        return self._dropped_count

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Export what is there, for at most ``timeout_s`` seconds, and end the thread. It may be called again."""
        self._close_s = timeout_s
        self._closed.set()
        running = self._thread
        if running is not None and self._process == os.getpid() and running is not threading.current_thread():
            running.join(timeout_s)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        """Start the thread, once in each process: a fork takes no thread along."""
        with self._change_lock:
            if self._process == os.getpid():
                return
            self._process = os.getpid()
            self._thread = thread(
                self._run, f"shardway-{self.name}", logged(f"the exporter {self.name} has ended; the work goes on")
            )

    def _run(self) -> None:
        asyncio.run(self._work())

    # --- for each kind ------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Do what the thread is there for, until `_is_closed`."""
        while not self._is_closed:
            await asyncio.sleep(TICK_S)
            self._drain()
        self._drain()

    @property
    def _is_closed(self) -> bool:
        """True once the exporter is to end."""
        return self._closed.is_set()

    def _take(self, event: Told) -> None:
        """Take an event, on the thread: it is added to the others."""
        if not self._totals.add(event, time.time()):
            self._lose(1, "there are too many streams and applications")

    def _drain(self) -> None:
        """Take the events that are in the queue. Where one fails, this is logged, and the next one is taken."""
        while True:
            try:
                event = self._queue.popleft()
            except IndexError:
                return
            try:
                self._take(event)
            except Exception as error:
                self._lose(1, f"an event could not be taken: {type(error).__name__}")

    def _points(self) -> list[tuple[Point, float]]:
        """Return the sums of all events, and the count of what was lost: each number with the time since which it
        counts.
        """
        now_s = time.time()
        losses = Point(LOSSES, (SYSTEM, ("shardway.exporter", self.name)), self._dropped_count)
        return [*self._totals.points(now_s), (losses, now_s)]

    def _lose(self, count: int, why: str) -> None:
        """Count events or requests that are dropped. It is logged once, and once more after it has worked again."""
        self._dropped_count += count
        if not self._has_told:
            self._has_told = True
            log.warning(
                "%s: numbers are not taken: %s (%d lost so far); the work goes on", self.name, why, self._dropped_count
            )

    def _works(self) -> None:
        if self._has_told:
            self._has_told = False
            log.info("%s: numbers are taken again; %d were lost so far", self.name, self._dropped_count)


class Together:
    """Calls several subscribers as one: ``on_event=together(log_events(), PrometheusExporter())``."""

    def __init__(self, subscribers: tuple[Callable[[Event], object], ...]) -> None:
        listed: tuple[object, ...] = subscribers
        self._exporters = [one for one in listed if isinstance(one, EventExporter)]
        self._other_subscribers = [one for one in subscribers if not isinstance(one, EventExporter)]
        wishes = [one.metrics_interval_s for one in self._exporters if isinstance(one, IntervalWish)]
        wanted = [interval_s for interval_s in wishes if interval_s]
        self.metrics_interval_s: float | None = min(wanted, default=None)
        self.metrics_per_shard = any(
            isinstance(one, ShardDetailWish) and one.metrics_per_shard for one in self._exporters
        )
        self.on_loop: Callable[[Event], object] | None = self._hand if self._other_subscribers else None

    def at_once(self, event: Event) -> None:
        """Give the event to the subscribers that take it on any thread; ``on_loop`` gives it to the others."""
        for one in self._exporters:
            one.at_once(event)

    def __call__(self, event: Event) -> None:
        """Give the event to all subscribers."""
        self.at_once(event)
        self._hand(event)

    def _hand(self, event: Event) -> None:
        for one in self._other_subscribers:
            one(event)


def together(*subscribers: Callable[[Event], object]) -> Together:
    """Return one ``on_event`` for several subscribers. Exporters among them get an event on whichever thread emits it,
    so that they go on while the program blocks its event loop; the others get it on that loop, in this order.
    """
    return Together(subscribers)
