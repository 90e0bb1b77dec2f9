"""The reporter of a consumer: it counts the events, and hands them to the program or to the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from shardway.runtime.background import emits_failure
from shardway.runtime.consumer.metering import Metering
from shardway.telemetry.log import log_events

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.tasks import Heard


class Reporter:
    """Emits the events of one consumer. Without an ``on_event`` they are lines of the log."""

    def __init__(self, spec: ConsumerSpec, placement: Placement) -> None:
        self._streams = spec.stream_names
        self._on_event = spec.hooks.on_event
        self._placement = placement
        self._log = log_events()
        self.metering = Metering(spec.metrics, spec.hooks.on_event)
        """The numbers that add up."""
        self.events = Counter[str]()
        """How often each kind of event was emitted."""

    def emit(self, event: Any) -> None:
        """Emit an event, on any thread."""
        host = self._placement.host
        with host.lock:  # Records are settled by any thread, which emits without the lock.
            self.events[type(event).__name__] += 1
            self.metering.meter.count(event)
        if self._on_event is None:
            self._log(event)
            return
        self.metering.count(event)
        if (on_loop := self.metering.on_loop) is None:
            return
        is_told = host.outside_soon(partial(_hand, on_loop, event))
        if host.is_blocked or not is_told:
            self._log(event)  # The user's function would hear of it late.

    def on_failure(self, work: str, what_follows: str, then: Callable[[BaseException], object] | None = None) -> Heard:
        """Return a handler for a task that emits its failure, and then calls ``then``."""
        return emits_failure(self.emit, (self._streams, None), work, what_follows, then)


def _hand(on_event: Callable[[Any], object], event: Any) -> None:
    try:
        on_event(event)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler({"message": "on_event raised", "exception": error})
