"""Write to a Kinesis stream for a producer, and read it for a consumer (`shardway.ports`: RecordSink, RecordSource).
The frames in which SubscribeToShard answers are here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import struct
import time
import uuid
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.aws.calls import CODE_CHARS_MAX, MESSAGE_CHARS_MAX, ONCE, UNREADABLE, RetryPolicy, error_class, reading
from shardway.aws.kinesis import ChildShard as WireChild
from shardway.aws.kinesis import Count, Decimal, KinesisClient, PutEntry, WireRecord, check_numbers, plain_number
from shardway.aws.wire import Wire
from shardway.core.log.pages import ChildShard, ReadPage, StreamFacts
from shardway.errors import (
    AccessDeniedError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    TransportError,
    UnavailableError,
)
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from shardway.aws.kinesis import PutResult
    from shardway.aws.options import ConnectionOptions
    from shardway.model import IteratorAt, ListedShard, StreamName


# --- written to -----------------------------------------------------------------------------------
# A producer writes to a Kinesis stream by this `shardway.ports.RecordSink`.


class KinesisSink:
    """Writes to one stream by PutRecords, over a wire of its own."""

    def __init__(self, stream: StreamName, connection: ConnectionOptions) -> None:
        self._stream = stream
        self._client = KinesisClient(Wire(connection))
        self.entry = PutEntry
        self.record_bytes_max: int | None = None
        """The most bytes of data and partition key that the stream takes as a record; None until it was asked for its
        shards, or where it does not say.
        """

    @property
    def stream(self) -> str:
        """The stream's name or ARN."""
        return str(self._stream)

    async def shards(self) -> list[ListedShard] | None:
        """Return the open shards (ListShards, AT_LATEST); None if the stream ignores partition keys."""
        if await self._ignores_keys():
            return None
        return await self._client.list_shards(self._stream, shard_filter={"Type": "AT_LATEST"})

    async def put(self, entries: Sequence[PutEntry]) -> Sequence[PutResult]:
        """Call PutRecords, which is sent once."""
        return (await self._client.put_records(self._stream, entries, retry=ONCE)).records

    async def close(self) -> None:
        """Close the connections."""
        await self._client.wire.close()

    async def _ignores_keys(self) -> bool:
        try:
            summary = await self._client.describe_stream_summary(self._stream)
        except (AccessDeniedError, InvalidArgumentError):
            # The program may not ask, or the endpoint does not know the call: such a stream is the exception.
            return False
        if summary.max_record_size_kib is not None:
            self.record_bytes_max = summary.max_record_size_kib * 1024
        return summary.ignores_keys


# --- read -----------------------------------------------------------------------------------------
# A Kinesis stream is read by this `shardway.ports.RecordSource`.

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
        named = await self._named(consumer)
        give_up_s = time.monotonic() + ACTIVE_WAIT_S
        while True:
            found = await self._described(named)
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
        found = await self._described(await self._named(consumer))
        return str(found["ConsumerARN"]) if found is not None and found.get("ConsumerStatus") == "ACTIVE" else None

    async def deregister(self, consumer: str) -> None:
        """Call DeregisterStreamConsumer."""
        try:
            await self._client.call("DeregisterStreamConsumer", await self._named(consumer))
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

    async def _named(self, consumer: str) -> dict[str, str]:
        return {"StreamARN": await self._stream_arn(), "ConsumerName": consumer}

    async def _described(self, named: dict[str, str]) -> dict[str, Any] | None:
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


# --- frames of SubscribeToShard -------------------------------------------------------------------
# SubscribeToShard's answer is encoded in frames of ``application/vnd.amazon.eventstream``.
#
# A frame has: total length, length of the headers (each 4 bytes, big-endian), CRC-32 of these 8 bytes, headers,
# payload, CRC-32 of all before it. Source: "Event stream encoding" in the Amazon Transcribe and S3 Select
# documentation, and the smithy specification of the same name. There is no I/O in here.

PRELUDE_BYTES = 12
CHECKSUM_BYTES = 4
HEADERS_BYTES_MAX = 128 * 1024
PAYLOAD_BYTES_MAX = 24 * 1024 * 1024
"""The bounds that AWS's own decoders have."""

HeaderValue = bool | int | bytes | str | dt.datetime | uuid.UUID

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_INTEGERS = {2: struct.Struct(">b"), 3: struct.Struct(">h"), 4: struct.Struct(">i"), 5: struct.Struct(">q")}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class EventStreamError(TransportError):
    """What came is not an event stream, or was damaged on its way. Ask for the stream again."""


class Message(NamedTuple):
    """One frame of an event stream."""

    headers: dict[str, HeaderValue]
    payload: bytes

    @property
    def kind(self) -> str:
        """The kind of the frame: ``event``, ``exception`` or ``error`` (header ``:message-type``)."""
        return str(self.headers.get(":message-type", ""))

    @property
    def name(self) -> str:
        """The kind of event, exception or error, such as ``SubscribeToShardEvent`` or ``ResourceInUseException``."""
        for header in (":event-type", ":exception-type", ":error-code"):
            if header in self.headers:
                return str(self.headers[header])
        return ""


class EventStreamDecoder:
    """Takes an answer in parts of any size and returns the frames that are whole."""

    def __init__(self) -> None:
        self._received = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a frame that is not whole yet. More than 0 at the end of an answer means that it broke off."""
        return len(self._received)

    def feed(self, data: bytes) -> list[Message]:
        """Add a part of the answer. Raises `EventStreamError` for bad checksums, lengths and headers."""
        received = self._received
        received += data
        messages: list[Message] = []
        start = 0
        with memoryview(received) as view:
            while len(received) - start >= PRELUDE_BYTES:
                total, headers_bytes, checksum = _PRELUDE.unpack_from(view, start)
                _check_prelude(view[start : start + 8], total, headers_bytes, checksum)
                if len(received) - start < total:
                    break
                messages.append(_message(view[start : start + total], headers_bytes))
                start += total
        del received[:start]
        return messages


def _check_prelude(lengths: memoryview, total: int, headers_bytes: int, checksum: int) -> None:
    if zlib.crc32(lengths) != checksum:
        raise EventStreamError("the event stream is damaged: a frame's prelude has the wrong checksum")
    payload_bytes = total - headers_bytes - PRELUDE_BYTES - CHECKSUM_BYTES
    if headers_bytes > HEADERS_BYTES_MAX or not 0 <= payload_bytes <= PAYLOAD_BYTES_MAX:
        raise EventStreamError(f"the event stream has a frame of {total} bytes with {headers_bytes} bytes of headers")


def _message(frame: memoryview, headers_bytes: int) -> Message:
    (checksum,) = _CHECKSUM.unpack_from(frame, len(frame) - CHECKSUM_BYTES)
    if zlib.crc32(frame[:-CHECKSUM_BYTES]) != checksum:
        raise EventStreamError("the event stream is damaged: a frame has the wrong checksum")
    headers_end = PRELUDE_BYTES + headers_bytes
    try:
        headers = _headers(bytes(frame[PRELUDE_BYTES:headers_end]))
    except (IndexError, struct.error, ValueError, OverflowError) as error:
        raise EventStreamError(f"the event stream has a frame with malformed headers ({error})") from error
    return Message(headers, bytes(frame[headers_end:-CHECKSUM_BYTES]))


def _headers(raw: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    while at < len(raw):
        name_end = at + 1 + raw[at]
        name = raw[at + 1 : name_end].decode()
        kind = raw[name_end]
        headers[name], at = _value(raw, kind, name_end + 1)
    return headers


def _value(raw: bytes, kind: int, at: int) -> tuple[HeaderValue, int]:
    """Return the value of type ``kind`` at ``at``, and where it ends."""
    if kind in (0, 1):
        return kind == 0, at
    if kind in _INTEGERS:
        layout = _INTEGERS[kind]
        return int(layout.unpack_from(raw, at)[0]), at + layout.size
    if kind in (6, 7):
        end = at + 2 + int.from_bytes(raw[at : at + 2], "big")
        if end > len(raw) or at + 2 > len(raw):
            raise ValueError("a value is longer than the headers")
        value = raw[at + 2 : end]
        return (value if kind == 6 else value.decode()), end
    if kind == 8:
        (millis,) = struct.unpack_from(">q", raw, at)
        return _EPOCH + dt.timedelta(milliseconds=millis), at + 8
    if kind == 9:
        return uuid.UUID(bytes=raw[at : at + 16]), at + 16
    raise ValueError(f"no value type {kind}")
