"""Read a Kinesis stream for a consumer, by polling or by fan-out (`shardway.ports.RecordSource`)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls.answers import CODE_CHARS_MAX, MESSAGE_CHARS_MAX, UNREADABLE, error_class, reading
from shardway.aws.calls.retry import ONCE, RetryPolicy
from shardway.aws.event_stream import EventStreamDecoder
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import ChildShard as WireChild
from shardway.aws.kinesis.shapes import Count, Decimal, WireRecord, check_numbers, plain_number
from shardway.aws.wire import Wire
from shardway.core.log.pages import ChildShard, ReadPage, StreamFacts
from shardway.errors import InUseError, NotFoundError, TransportError, UnavailableError
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from shardway.aws.event_stream import Message
    from shardway.aws.options import ConnectionOptions
    from shardway.model import IteratorAt, ListedShard, StreamName

ACTIVE_POLL_S = 0.5
ACTIVE_WAIT_S = 60.0
"""Seconds to wait for a consumer that was just registered: it is usable after some of them."""
OPERATION = "SubscribeToShard"
START = RetryPolicy(attempts_max=8, base_s=0.1, cap_s=3.0)
"""The policy of calls at a start: a fleet that is deployed asks what its stream is in one moment, and an account has 20
such calls a second.
"""


class _Event(msgspec.Struct, rename="pascal"):
    records: list[WireRecord] = []
    continuation_sequence_number: Decimal | None = None
    millis_behind_latest: Count | None = None
    child_shards: list[WireChild] | None = None


_events = msgspec.json.Decoder(_Event)


class KinesisSource:
    """Reads one stream over a wire of its own, or one that is given."""

    def __init__(self, stream: StreamName, connection: ConnectionOptions, wire: Wire | None = None) -> None:
        self._stream = stream
        self._client = KinesisClient(wire or Wire(connection))
        self._arn = stream.arn

    @property
    def stream(self) -> str:
        """The stream's name or ARN."""
        return str(self._stream)

    @property
    def now_s(self) -> float:
        """The service's time, in epoch seconds."""
        return self._client.wire.service_now_s

    async def describe(self) -> StreamFacts:
        """Call DescribeStreamSummary."""
        summary = await self._client.describe_stream_summary(self._stream, retry=START)
        self._arn = summary.stream_arn
        return StreamFacts(
            arn=summary.stream_arn,
            created_s=int(summary.creation_timestamp_s),
            retention_s=summary.retention_hours * 3600.0,
            ignores_keys=summary.ignores_keys,
        )

    async def shards(self) -> list[ListedShard]:
        """Call ListShards, without a filter."""
        return await self._client.list_shards(self._stream, retry=ONCE)

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Call GetShardIterator."""
        return await self._client.get_shard_iterator(self._stream, shard_id, at, retry=ONCE)

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """Call GetRecords."""
        page = await self._client.get_records(iterator, limit=records_max, stream=self._stream, retry=ONCE)
        return ReadPage(
            page.records,
            page.millis_behind_latest,
            next_iterator=page.next_shard_iterator,
            children=_children("GetRecords", page.child_shards),
        )

    async def register(self, consumer: str) -> str:
        """Call RegisterStreamConsumer, wait until the consumer is active, and return its ARN. Raises UnavailableError
        when that takes too long, and ThrottledError where the stream has as many consumers as it may
        (LimitExceededException).

        The consumer is looked for first: all members of a fleet that is deployed come here, and five a second may
        register.
        """
        named = await self._consumer_fields(consumer)
        give_up_s = time.monotonic() + ACTIVE_WAIT_S
        while True:
            found = await self._describe_consumer(named)
            if found is None:
                # A refusal is no harm: another program registered the consumer first, or the stream is being resharded.
                with contextlib.suppress(InUseError):
                    answer = await self._client.call("RegisterStreamConsumer", named, retry=START)
                    with reading(f"RegisterStreamConsumer to {self.stream}"):
                        found = answer["Consumer"]
            status = "not registered" if found is None else found.get("ConsumerStatus")
            if found is not None and status == "ACTIVE":
                return str(found["ConsumerARN"])
            if time.monotonic() > give_up_s:
                raise UnavailableError(
                    "ConsumerNotActive",
                    f"{consumer} of {self.stream} is still {status} after {ACTIVE_WAIT_S:.0f} s",
                    operation="RegisterStreamConsumer",
                )
            await asyncio.sleep(ACTIVE_POLL_S)

    async def registered(self, consumer: str) -> str | None:
        """Call DescribeStreamConsumer, and return the ARN of an active consumer; None where there is none."""
        found = await self._describe_consumer(await self._consumer_fields(consumer))
        return str(found["ConsumerARN"]) if found is not None and found.get("ConsumerStatus") == "ACTIVE" else None

    async def deregister(self, consumer: str) -> None:
        """Call DeregisterStreamConsumer."""
        try:
            await self._client.call("DeregisterStreamConsumer", await self._consumer_fields(consumer))
        except NotFoundError:
            return

    async def subscribe(self, consumer_arn: str, shard_id: str, at: IteratorAt) -> AsyncGenerator[ReadPage, None]:
        """Call SubscribeToShard, and yield its pages. Close the iterator to end the subscription early."""
        start: dict[str, Any] = {"Type": at.type}
        if at.sequence_number is not None:
            start["SequenceNumber"] = await self._client.number_text(self._stream, at.sequence_number)
        if at.timestamp_s is not None:
            start["Timestamp"] = at.timestamp_s
        body = msgspec.json.encode({"ConsumerARN": consumer_arn, "ShardId": shard_id, "StartingPosition": start})
        parts = self._client.wire.stream("kinesis", OPERATION, body, stream_arn=await self._stream_arn())
        decoder = EventStreamDecoder()
        try:
            async for part in parts:
                for message in decoder.feed(part):
                    page = self._page(message, shard_id)
                    if page is not None:
                        yield page
        finally:
            await parts.aclose()
        if decoder.waiting_bytes:
            raise TransportError(f"{OPERATION} to {self.stream}, {shard_id}: the answer broke off inside of an event")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.wire.close()

    def _page(self, message: Message, shard_id: str) -> ReadPage | None:
        if message.kind == "event":
            if message.name != "SubscribeToShardEvent":
                return None  # the initial response, and what may come one day
            where = f"{OPERATION} to {self.stream}, {shard_id}"
            with reading(where):
                event = _events.decode(message.payload)
                if event.continuation_sequence_number is not None:
                    plain_number(event.continuation_sequence_number)
            check_numbers(where, event.records)
            return ReadPage(
                event.records,
                event.millis_behind_latest,
                continuation=event.continuation_sequence_number,
                children=_children(where, event.child_shards),
            )
        code = one_line(message.name or "an error without a name")[:CODE_CHARS_MAX]
        text = str(message.headers.get(":error-message", "")) or _message_of(message.payload)
        raise error_class(code, 400)(code, one_line(text[:MESSAGE_CHARS_MAX]), operation=OPERATION)

    async def _consumer_fields(self, consumer: str) -> dict[str, str]:
        return {"StreamARN": await self._stream_arn(), "ConsumerName": consumer}

    async def _describe_consumer(self, named: dict[str, str]) -> dict[str, Any] | None:
        try:
            answer = await self._client.call("DescribeStreamConsumer", named, retry=START)
        except NotFoundError:
            return None
        with reading(f"DescribeStreamConsumer of {self.stream}"):
            found: dict[str, Any] = answer["ConsumerDescription"]
            found.get("ConsumerStatus"), found["ConsumerARN"]
        return found

    async def _stream_arn(self) -> str:
        if self._arn is None:
            await self.describe()
        assert self._arn is not None
        return self._arn


def _children(where: str, found: Iterable[WireChild] | None) -> tuple[ChildShard, ...]:
    with reading(where):
        return tuple(
            ChildShard(
                child.shard_id,
                tuple(child.parent_shards),
                plain_number(child.hash_key_range.starting_hash_key),
                plain_number(child.hash_key_range.ending_hash_key),
            )
            for child in found or ()
        )


def _message_of(payload: bytes) -> str:
    try:
        return str(msgspec.json.decode(payload).get("message", "no message"))
    except UNREADABLE:
        return "no message"
