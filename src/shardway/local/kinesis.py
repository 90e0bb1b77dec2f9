"""Kinesis as it looks from outside: HTTP requests become calls of the service model, whose answers go back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from shardway.local import eventstream
from shardway.local.gate import (
    AMZ_CBOR,
    AMZ_JSON,
    TARGET_PREFIX,
    Answers,
    Gate,
    content_type,
    cors_lines,
    looks_signed,
    operation_of,
)
from shardway.local.http import AfterAnswer, Answer, ChunkedOut, Request
from shardway.local.model import ModelError
from shardway.tasks import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.control import Count, Counters
    from shardway.local.gate import Verifier
    from shardway.local.model import KinesisModel, Subscription

# --- operations -----------------------------------------------------------------------------------
# These are the operations of Kinesis Data Streams, as its API of 2013-12-02 lists them.

SUBSCRIBE = "SubscribeToShard"

OPERATIONS = frozenset(
    [
        "AcknowledgeDeadLetterQueueRecords",
        "AcknowledgeQueueRecords",
        "AddTagsToStream",
        "CreateChannel",
        "CreateQueue",
        "CreateStream",
        "DecreaseStreamRetentionPeriod",
        "DeleteChannel",
        "DeleteQueue",
        "DeleteResourcePolicy",
        "DeleteStream",
        "DeregisterStreamConsumer",
        "DescribeAccountSettings",
        "DescribeChannel",
        "DescribeLimits",
        "DescribeQueue",
        "DescribeStream",
        "DescribeStreamConsumer",
        "DescribeStreamSummary",
        "DisableEnhancedMonitoring",
        "EnableEnhancedMonitoring",
        "GetRecords",
        "GetResourcePolicy",
        "GetShardIterator",
        "IncreaseStreamRetentionPeriod",
        "ListChannels",
        "ListQueues",
        "ListShards",
        "ListStreamConsumers",
        "ListStreams",
        "ListTagsForResource",
        "ListTagsForStream",
        "MergeShards",
        "PutRecord",
        "PutRecords",
        "PutResourcePolicy",
        "ReceiveDeadLetterQueueRecords",
        "ReceiveQueueRecords",
        "RegisterStreamConsumer",
        "RemoveTagsFromStream",
        "RestoreDeadLetterQueueRecords",
        "SplitShard",
        "StartStreamEncryption",
        "StopStreamEncryption",
        "SubscribeToShard",
        "TagResource",
        "UntagResource",
        "UpdateAccountSettings",
        "UpdateChannel",
        "UpdateDeadLetterQueueRecordsVisibility",
        "UpdateMaxRecordSize",
        "UpdateQueue",
        "UpdateQueueRecordsVisibility",
        "UpdateShardCount",
        "UpdateStreamMode",
        "UpdateStreamRecordDistributionStrategy",
        "UpdateStreamWarmThroughput",
    ]
)
"""The operations of the service. Any other name is unknown to it; an operation that only the model lacks has an error
of its own.
"""


# --- calls ----------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A request that passed the gate."""

    operation: str
    body: bytes
    """The request's body in JSON, even when the client sent CBOR."""
    cbor: bool
    cors: bytes
    user_agent: bytes


class KinesisFace:
    """Answers Kinesis requests from a service model."""

    def __init__(
        self,
        model: KinesisModel,
        answers: Answers,
        counters: Counters,
        subscriptions: Subscriptions,
        verifier: Verifier | None = None,
    ) -> None:
        self.model = model
        """The service model, which is replaced by an empty one when the service is reset."""
        self._answers = answers
        self._counters = counters
        self._subscriptions = subscriptions
        self._gate = Gate(answers, OPERATIONS, _decode_cbor, verifier)
        plain = OPERATIONS - {SUBSCRIBE} if verifier is None else frozenset[str]()
        self._quick = {TARGET_PREFIX + name.encode(): name for name in plain}
        """The usual calls, by their target: a look at the headers is enough for them, without the gate."""

    def __call__(self, request: Request) -> Answer:
        """Answer one request; a subscription's answer is a stream."""
        headers = request.headers
        operation = self._quick.get(headers.get(b"x-amz-target", b""))
        body = request.body
        if (
            operation is None
            or headers.get(b"content-type") != AMZ_JSON
            or not body
            or request.method != b"POST"
            or b"origin" in headers
            or not looks_signed(headers)
        ):
            return self._answer_closely(request)
        count = self._counters.of(operation, headers.get(b"user-agent", b""))
        count.calls += 1
        try:
            result = self.model.handle(operation, body)
        except ModelError as fault:
            count.errors += 1
            return self._answers.error(fault.code, fault.body(), fault.status)
        count.records += self.model.moved
        count.response_bytes += len(result)
        return self._answers.ok(result)

    def admit(self, request: Request) -> Call | Answer:
        """Check a request as the front end does. Return the call that it makes, or the answer that turns it away."""
        refusal = self._gate.refuse(request)
        if refusal is not None:
            return refusal
        operation = operation_of(request, OPERATIONS)
        assert operation is not None, "the gate lets only known operations pass"
        user_agent = request.headers.get(b"user-agent", b"")
        if content_type(request) != AMZ_CBOR:
            return Call(operation, request.body, False, cors_lines(request), user_agent)
        from shardway.local.cbor import request_to_json

        call = Call(operation, b"", True, cors_lines(request), user_agent)
        try:
            return call._replace(body=request_to_json(request.body))
        except ValueError:
            return self.error(call, ModelError("SerializationException"))

    def perform(self, call: Call) -> Answer:
        """Let the model do an admitted call, and count the call."""
        count = self.count(call)
        try:
            if call.operation == SUBSCRIBE:
                return self._subscriptions.answer(self.model.subscribe(call.body), call, count)
            result = self.model.handle(call.operation, call.body)
        except ModelError as fault:
            count.errors += 1
            return self.error(call, fault)
        return self.answered(call, result, count, self.model.moved)

    def count(self, call: Call) -> Count:
        """Count a call, and return the counts to which its outcome is added."""
        count = self._counters.of(call.operation, call.user_agent)
        count.calls += 1
        return count

    def spoilt(self, call: Call) -> None:
        """Count a call that was done, and whose answer does not arrive whole."""
        self._counters.of(call.operation, call.user_agent).errors += 1

    def answered(self, call: Call, result: bytes, count: Count, records: int) -> Answer:
        """Return the answer with this JSON, in the caller's own format. ``records``: how many the call moved."""
        count.records += records
        if call.cbor:
            from shardway.local.cbor import answer_to_cbor

            result = answer_to_cbor(result)
        count.response_bytes += len(result)
        return self._answers.ok(result, AMZ_CBOR if call.cbor else AMZ_JSON, call.cors)

    def refused(self, answer: Answer, request: Request) -> Answer:
        """Count a request that the front end turned away."""
        count = self._counters.of("refused", request.headers.get(b"user-agent", b""))
        count.calls += 1
        count.errors += 1
        return answer

    def error(self, call: Call, fault: ModelError) -> Answer:
        """Return the answer for an error, in the caller's own format."""
        body = fault.body()
        if call.cbor:
            from shardway.local.cbor import answer_to_cbor

            body = answer_to_cbor(body)
        return self._answers.error(fault.code, body, fault.status, AMZ_CBOR if call.cbor else AMZ_JSON, call.cors)

    def _answer_closely(self, request: Request) -> Answer:
        call = self.admit(request)
        return self.refused(call, request) if isinstance(call, Answer) else self.perform(call)


def _decode_cbor(body: bytes) -> object:
    from shardway.local.cbor import decode

    return decode(body)


# --- answers of SubscribeToShard ------------------------------------------------------------------
# SubscribeToShard answers with a subscription's events as frames, as fast as the client reads them.

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
        self._out = out
        self._call = call
        self._count = count
        self._ask = spoil
        self.wake = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        """Send events until the subscription ends or the client is gone. Nothing is polled for a slow reader."""
        out, subscription = self._out, self._subscription
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
        """Do what was ordered. Return True when the event goes out all the same."""
        if spoiled.delay_s:
            await asyncio.sleep(spoiled.delay_s)
        if spoiled.error is not None:
            self._out.send(self._frame(spoiled.error.code, spoiled.error.body()))
            return False
        if spoiled.ending is None:
            return True
        if spoiled.ending is AfterAnswer.CLOSE:
            whole = self._frame(name, payload)
            self._out.send(whole[: len(whole) // 2])
        self._out.break_off(spoiled.ending)
        return spoiled.ending is AfterAnswer.LEAVE

    def _frame(self, name: str, payload: bytes) -> bytes:
        media = AMZ_JSON
        if self._call.cbor:
            from shardway.local.cbor import answer_to_cbor

            payload, media = answer_to_cbor(payload), AMZ_CBOR
        return eventstream.message(name, payload, media.decode())
