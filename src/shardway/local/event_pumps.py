"""SubscribeToShard answers with a subscription's events as frames, as fast as the client reads them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from shardway.local import eventstream
from shardway.local.answers import AMZ_CBOR, AMZ_JSON, Answers
from shardway.local.http_messages import AfterAnswer, Answer, ChunkedOut
from shardway.local.model import ModelError
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.counters import Count
    from shardway.local.model import Subscription
    from shardway.local.operations import Call


TICK_S = 1.0
"""Seconds between looks for what is due by time alone (an idle shard's event, the end after five minutes)."""
_RECORD_MARK = b'"SequenceNumber":"'
"""A text that is in every record of an event once: a key's own quotes are escaped, and data is base64."""


class EventFault(NamedTuple):
    """What was ordered to happen to an event: a delay, then perhaps an error or a broken connection."""

    delay_s: float
    error: ModelError | None = None
    """The error that goes out as an exception frame in place of the event, and ends the stream."""
    ending: AfterAnswer | None = None
    """How the stream ends; None: it does not. With CLOSE half a frame goes out first, with LEAVE the whole event."""


class Subscriptions:
    """All subscriptions that one server streams. They are used on the server's loop only."""

    def __init__(self, answers: Answers, spoil: Callable[[Call], EventFault | None]) -> None:
        """``spoil`` is called before each event, and returns what was ordered to happen to it."""
        self._answers = answers
        self._pumps: set[_Pump] = set()
        self._spoil = spoil

    def wake_all(self) -> None:
        """Poll every subscription now: the clock has been moved."""
        for pump in self._pumps:
            pump.wake.set()

    def end_all(self) -> None:
        """End every subscription's stream: the Kinesis streams that they read are gone."""
        for pump in self._pumps:
            pump.ended = True
            pump.wake.set()

    def answer(self, subscription: Subscription, call: Call, count: Count) -> Answer:
        """Return the streamed answer to a SubscribeToShard that the model accepted."""

        async def stream(out: ChunkedOut) -> None:
            pump = _Pump(subscription, out, call, count, self._spoil)
            self._pumps.add(pump)
            try:
                await pump.run()
            finally:
                self._pumps.discard(pump)
                subscription.close()

        return Answer(self._answers.streamed(), stream=stream)


class _Pump:
    """Moves one subscription's events to its client."""

    def __init__(
        self,
        subscription: Subscription,
        out: ChunkedOut,
        call: Call,
        count: Count,
        spoil: Callable[[Call], EventFault | None],
    ) -> None:
        self._subscription = subscription
        self._output = out
        self._call = call
        self._count = count
        self._ask = spoil
        self.wake = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        """Send events until the subscription ends or the client is gone. Nothing is polled for a slow reader."""
        out, subscription = self._output, self._subscription
        subscription.wakes(self.wake.set)
        out.on_close(self.wake.set)
        out.send(self._frame("initial-response", b"{}"))
        while not out.closed and not self.ended:
            self.wake.clear()
            for name, payload in subscription.poll():
                spoiled = self._ask(self._call)
                if spoiled is not None and not await self._spoil(spoiled, name, payload):
                    return
                self._count.response_bytes += len(payload)
                self._count.records += payload.count(_RECORD_MARK)
                out.send(self._frame(name, payload))
            if subscription.closed:
                return
            if out.full:
                await out.drain()
                continue
            await wait_set(self.wake, TICK_S)

    async def _spoil(self, spoiled: EventFault, name: str, payload: bytes) -> bool:
        """Do what was ordered. Return True when the event goes out even so."""
        if spoiled.delay_s:
            await asyncio.sleep(spoiled.delay_s)
        if spoiled.error is not None:
            self._output.send(self._frame(spoiled.error.code, spoiled.error.body()))
            return False
        if spoiled.ending is None:
            return True
        if spoiled.ending is AfterAnswer.CLOSE:
            whole = self._frame(name, payload)
            self._output.send(whole[: len(whole) // 2])
        self._output.break_off(spoiled.ending)
        return spoiled.ending is AfterAnswer.LEAVE

    def _frame(self, name: str, payload: bytes) -> bytes:
        media = AMZ_JSON
        if self._call.cbor:
            from shardway.local.cbor import answer_to_cbor

            payload, media = answer_to_cbor(payload), AMZ_CBOR
        return eventstream.message(name, payload, media.decode())
