"""The send loop of a producer: on the event loop, it takes in what was put and sends what may go."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from shardway.runtime.producer.driver import EXPIRY_CHECK_S
from shardway.runtime.producer.listing import ShardFollower, ShardListing
from shardway.runtime.producer.sender import RequestSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.runtime.producer.driver import BatcherDriver
    from shardway.runtime.producer.reporter import Reporter
    from shardway.runtime.producer.spec import ProducerSpec

TAKEN_IN_RECORDS_MAX = 8_000
"""The most records that one turn of the event loop takes in: 10 to 20 ms where each has a key of its own."""


class SendLoop:
    """Calls `pump` when something was put, answered or listed, and when the batcher asks to be called again."""

    def __init__(self, spec: ProducerSpec, driver: BatcherDriver, reporter: Reporter) -> None:
        self._driver = driver
        self._batcher = driver.batcher
        self._reporter = reporter
        self.listing = ShardListing(spec.sink, spec.options, driver.batcher, spec.rng)
        self.follower = ShardFollower(self.listing, reporter, self)
        self._sender = RequestSender(spec, driver, reporter, self)
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the first use."""
        self.call_soon: Callable[..., Any] | None = None
        """A function that has the event loop call something soon."""
        self.has_own_thread = False
        """True where the event loop runs in a thread of its own, and threads put."""
        self.has_ended = False
        """True once nothing is sent any more."""
        self.pauses = 0
        """The number of flushes that list what is not written, and of withdrawals in steps: nothing is sent
        meanwhile.
        """
        self._timer: asyncio.TimerHandle | None = None
        self._is_awake = False

    @property
    def is_current(self) -> bool:
        """True on the loop's own thread, which alone takes in what was put, and before the first use."""
        try:
            return self.loop in (None, asyncio.get_running_loop())
        except RuntimeError:
            return False

    def wake(self) -> None:
        """Have the loop look soon: something was put."""
        if not self.has_own_thread:
            self.begin()  # This raises on another loop.
        if self._is_awake:
            return
        assert self.call_soon is not None
        self._is_awake = True
        try:
            self.call_soon(self.pump)
        except BaseException:
            self._is_awake = False
            raise

    def begin(self) -> None:
        """Belong to the running event loop. Raises RuntimeError on another one than before."""
        loop = asyncio.get_running_loop()
        if self.loop is None:
            if self.call_soon is None:
                self.call_soon = loop.call_soon
            self._timer = loop.call_later(EXPIRY_CHECK_S, self.pump)
            self.follower.keep_up(loop)
            self.loop = loop  # It is set last: where a signal handler raises before, all of this is done again.
        elif self.loop is not loop:
            raise RuntimeError("a producer belongs to the event loop of its first use: make one per loop")

    def start_over(self) -> None:
        """Forget, in a process that was forked off, that the loop was woken."""
        self._is_awake = False

    def end(self) -> None:
        """Send nothing any more."""
        if not self.has_ended:
            self.has_ended = True
            if self._timer is not None:
                self._timer.cancel()
            self.follower.cancel()

    def pump(self) -> None:
        """Take in what was put, send what may go, and arrange that this is called again in time."""
        self._is_awake = False
        if self.loop is None:
            self.begin()
        assert self.loop is not None
        if self.has_ended:
            return
        try:
            self._pump(self.loop)
        except BaseException:
            # A signal handler raised in the middle, or there is a fault in here. The loop reports it.
            self._batcher.broken = True
            self._timer = self.loop.call_later(EXPIRY_CHECK_S, self.pump)
            raise

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        driver, batcher = self._driver, self._batcher
        has_more = driver.take_in(TAKEN_IN_RECORDS_MAX)
        now_s = time.monotonic()  # The clock is read after what came in, or that would lie in the future.
        self.follower.keep_up(loop)
        if self.listing.refusal is not None:
            batcher.give_up_waiting(self.listing.refusal, now_s)
        driver.expire(now_s)
        if now_s >= self._reporter.next_metrics_s:
            self._reporter.report_metrics(now_s)
        request = None if self.pauses else batcher.next_request(now_s)
        if request is not None:
            self._sender.begin(request, loop)
        driver.collect()
        if batcher.stale:
            self.listing.refresh()
        self._plan(loop, now_s, more=has_more or request is not None)

    def _plan(self, loop: asyncio.AbstractEventLoop, now_s: float, *, more: bool) -> None:
        if more:
            # The timer stays: a signal handler that raises in the loop may cost the other call.
            if not self._is_awake:
                self._is_awake = True
                loop.call_soon(self.pump)
            return
        if self._timer is not None:
            self._timer.cancel()
        at_s = min(self._driver.next_expiry_s, self._reporter.next_metrics_s)
        if not self.pauses:
            at_s = min(at_s, self._batcher.wake_at_s)
        self._timer = loop.call_later(max(0.0, at_s - now_s), self.pump)
