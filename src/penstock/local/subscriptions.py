"""The answers of SubscribeToShard: a subscription's events as frames, as fast as the client reads them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from penstock.local import eventstream
from penstock.local.answers import AMZ_CBOR, AMZ_JSON
from penstock.local.http import Answer, ChunkedOut, Ending

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.local.answers import Answers
    from penstock.local.kinesis import Call
    from penstock.local.model import ModelError, Subscription
    from penstock.local.stats import Count

TICK_S = 1.0
"""What is due by time alone (an idle shard's event, the end after five minutes) is looked for this often."""

_RECORD_MARK = b'"SequenceNumber":"'
"""Once in every record of an event: a key's own quotes are escaped, and data is base64."""


class Spoiled(NamedTuple):
    """What was ordered to happen to an event: a delay, then perhaps an error or a broken connection."""

    delay_s: float
    error: ModelError | None = None
    """Sent as an exception frame in place of the event; it ends the stream."""
    ending: Ending | None = None
    """With CLOSE half a frame goes out first, with LEAVE the event goes out all the same; None: nothing ends."""


class Subscriptions:
    """All subscriptions that are being streamed by one server. Used on the server's loop only."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._pumps: set[_Pump] = set()
        self.spoil: Callable[[Call], Spoiled | None] = lambda call: None
        """Asked before each event what was ordered to happen to it."""

    def wake_all(self) -> None:
        """Look at every subscription now: the clock has been moved."""
        for pump in self._pumps:
            pump.wake.set()

    def end_all(self) -> None:
        """End every stream: what they read from is no more."""
        for pump in self._pumps:
            pump.ended = True
            pump.wake.set()

    def answer(self, subscription: Subscription, call: Call, count: Count) -> Answer:
        """The streamed answer to a SubscribeToShard that the model accepted."""

        async def stream(out: ChunkedOut) -> None:
            pump = _Pump(subscription, out, call, count, self.spoil)
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
        spoil: Callable[[Call], Spoiled | None],
    ) -> None:
        self._subscription = subscription
        self._out = out
        self._call = call
        self._count = count
        self._ask = spoil
        self.wake = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        """Send events until the subscription ends or the client is gone. Nothing is polled for a slow reader."""
        out, subscription = self._out, self._subscription
        subscription.wake = self.wake.set
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
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), TICK_S)

    async def _spoil(self, spoiled: Spoiled, name: str, payload: bytes) -> bool:
        """Do what was ordered; True when the event goes out all the same."""
        if spoiled.delay_s:
            await asyncio.sleep(spoiled.delay_s)
        if spoiled.error is not None:
            self._out.send(self._frame(spoiled.error.code, spoiled.error.body()))
            return False
        if spoiled.ending is None:
            return True
        if spoiled.ending is Ending.CLOSE:
            whole = self._frame(name, payload)
            self._out.send(whole[: len(whole) // 2])
        self._out.break_off(spoiled.ending)
        return spoiled.ending is Ending.LEAVE

    def _frame(self, name: str, payload: bytes) -> bytes:
        media = AMZ_JSON
        if self._call.cbor:
            from penstock.local.cbor import answer_to_cbor

            payload, media = answer_to_cbor(payload), AMZ_CBOR
        make = eventstream.exception if name.endswith("Exception") else eventstream.event
        return make(name, payload, media.decode())
