"""A simulated process reads the stream by the client's real code, over a simulated connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.aws.calls.answers import error_class
from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.record_source import KinesisSource
from shardway.core.service_clock import ServiceClock, SteadyEpoch
from shardway.errors import TransportError
from shardway.local import eventstream
from shardway.local.model import ModelError
from shardway.model import StreamName
from shardway.runtime.clocks import SteadyClock
from shardway.testing.sim.plan import Way

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from shardway.local.model import KinesisModel, Subscription
    from shardway.testing.sim.loop import VirtualLoop
    from shardway.testing.sim.services.link import Link

CALL_TIMEOUT_S = 8.0
SILENCE_LOOK_S = 1.0


class StreamWire:
    """Stands in for `shardway.aws.wire.Wire` before a client, over a simulated connection."""

    def __init__(self, model: KinesisModel, link: Link, wall: Callable[[], float], rng: random.Random) -> None:
        self.options = ConnectionOptions()
        self.region = model.region
        self.clock = ServiceClock()
        self._now = SteadyEpoch(SteadyClock(link.loop), wall)
        self._model = model
        self._link = link
        self._rng = rng

    @property
    def service_now_s(self) -> float:
        """See `Wire.service_now_s`."""
        return self.clock.near_s(self._now())

    async def call(
        self,
        service: str,
        operation: str,
        body: bytes,
        *,
        retry: RetryPolicy | None = None,
        stream_arn: str | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """See `Wire.call`."""
        policy = retry or RetryPolicy()
        for attempt in range(1, policy.attempts_max + 1):
            sent_s = self._now()
            try:
                answer, date_s = await self._link.call(lambda: self._handle(operation, body), CALL_TIMEOUT_S)
            except Exception as error:
                if attempt == policy.attempts_max or not getattr(error, "retryable", False):
                    raise
                await asyncio.sleep(policy.wait_s(attempt, self._rng))
                continue
            self.clock.observe(date_s, sent_s, self._now())
            return answer
        raise AssertionError("the last attempt returns or raises")

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Wire.stream`: a subscription's events. A cut makes it fall silent; what is pushed meanwhile is lost."""
        subscription = await self._link.call(lambda: self._subscribe(body), CALL_TIMEOUT_S)
        loop, wake = self._link.loop, asyncio.Event()

        # The service calls this, whatever runs then; the process hears of it when it runs itself.
        def stir() -> None:
            if not (self._link.closed or loop.is_closed()):
                loop.call_soon(wake.set)

        subscription.wakes(stir)
        try:
            yield eventstream.event("initial-response", b"{}")
            while True:
                wake.clear()
                for name, payload in subscription.poll():
                    await asyncio.sleep(self._link.delay_s())
                    if self._link.cut is not None or self._link.happens("answer_lost"):
                        await self._break_off()
                    yield eventstream.message(name, payload)
                if subscription.closed:
                    return
                await _wait(wake, SILENCE_LOOK_S)
        finally:
            subscription.close()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _break_off(self) -> None:
        if self._link.cut is Way.REFUSED or self._rng.random() < 0.3:
            raise TransportError("the connection to the stream was reset")
        await asyncio.Event().wait()  # this is silence, which the reader has to notice

    def _handle(self, operation: str, body: bytes) -> tuple[bytes, int]:
        try:
            return self._model.handle(operation, body), int(self._model.clock())
        except ModelError as fault:
            raise _error(fault, operation) from None

    def _subscribe(self, body: bytes) -> Subscription:
        try:
            return self._model.subscribe(body)
        except ModelError as fault:
            raise _error(fault, "SubscribeToShard") from None


class SimulatedSource(KinesisSource):
    """`KinesisSource` over a simulated connection."""

    def __init__(self, name: str, wire: StreamWire) -> None:
        self._stream = StreamName(name)
        self._client = KinesisClient(wire)  # type: ignore[arg-type]
        self._arn = None


def _error(fault: ModelError, operation: str) -> Exception:
    return error_class(fault.code, fault.status)(
        fault.code, fault.message or "", operation=operation, status=fault.status
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def wall_clock(loop: VirtualLoop, service_s: float, jumped_s: Callable[[], float]) -> Callable[[], float]:
    """Return a process's wall clock, in epoch seconds: as fast as its monotonic clock, and wrong by ``jumped_s``. It
    begins with the service's time.
    """
    begin_s = loop.time()
    return lambda: service_s + (loop.time() - begin_s) + jumped_s()
