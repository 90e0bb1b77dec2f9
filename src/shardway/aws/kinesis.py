"""Call Amazon Kinesis Data Streams: typed methods for the calls that Shardway makes often, and `KinesisClient.call` for
the others.

Names, shapes and limits: Amazon Kinesis Data Streams API reference, version 2013-12-02.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shardway.aws import cbor
from shardway.aws.calls.answers import CLOCK_SKEW, STALE_CREDENTIALS, UNREADABLE, decoded, reading
from shardway.aws.endpoints import arn_region
from shardway.core.sequence import version_of
from shardway.errors import (
    InvalidRecordError,
    OptionError,
    ServiceError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.model import ListedShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shardway.aws.calls.retry import RetryPolicy
    from shardway.aws.wire import Wire
    from shardway.core.service_clock import ServiceClock
    from shardway.model import IteratorAt, StreamName

LIST_SHARDS_PAGES_MAX = 1_000
"""The most pages of ListShards: it returns at most 1,000 shards per page by default, and the largest quota is 20,000
shards.
"""

CBOR_DATA_BYTES_MIN = 2048
"""The size from which on records are put as CBOR: the larger they are, the more base64 would cost. Many results are
read faster in JSON.
"""

UNDERSTOOD = frozenset(
    {"ResourceNotFoundException", "AccessDeniedException", "KMSAccessDeniedException", "KMSDisabledException",
     "KMSInvalidStateException", "KMSNotFoundException", "KMSOptInRequired"}
) | STALE_CREDENTIALS | CLOCK_SKEW  # fmt: skip
"""Refusals that have nothing to do with how the request is written."""
SILENCES_MAX = 2
"""The number of requests in CBOR without an answer, while none got one, after which the endpoint is taken for one that
does not know CBOR.
"""

SEQUENCE_DIGITS_MAX = 128
"""The most digits of a sequence number: AWS writes 56, and its API reference allows this many."""
_DIGITS = b"0123456789"
_sequence_numbers = attrgetter("sequence_number")

Seconds = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_214_400)]
"""Epoch seconds within the years 1 to 9999, which is what a datetime can hold."""
Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number that a float holds exactly: one of hundreds of digits would raise wherever it is reckoned with."""
Decimal = Annotated[str, msgspec.Meta(min_length=1, max_length=SEQUENCE_DIGITS_MAX)]


class WireRecord(msgspec.Struct, rename="pascal", gc=False):
    """A record as GetRecords and SubscribeToShard return it. ``approximate_arrival_timestamp`` is epoch
    seconds.
    """

    data: bytes
    sequence_number: Decimal
    approximate_arrival_timestamp: Seconds
    partition_key: str | None = None
    encryption_type: str | None = None


class WireHashKeyRange(msgspec.Struct, rename="pascal"):
    """A range of hash keys: both ends, inclusive, as decimal strings."""

    starting_hash_key: Decimal
    ending_hash_key: Decimal


class ChildShard(msgspec.Struct, rename="pascal"):
    """A child that a closed shard names with its last page."""

    shard_id: str
    parent_shards: list[str]
    hash_key_range: WireHashKeyRange


class GetRecordsPage(msgspec.Struct, rename="pascal"):
    """One answer of GetRecords. ``next_shard_iterator`` is None at the end of a closed shard."""

    records: list[WireRecord] = []
    next_shard_iterator: str | None = None
    millis_behind_latest: Count | None = None
    child_shards: list[ChildShard] | None = None


class PutEntry(msgspec.Struct, gc=False, omit_defaults=True):
    """A record to put. ``explicit_hash_key`` is a decimal string, as the service wants it."""

    data: bytes = msgspec.field(name="Data")
    partition_key: str = msgspec.field(name="PartitionKey")
    explicit_hash_key: str | None = msgspec.field(name="ExplicitHashKey", default=None)


class PutResult(msgspec.Struct, rename="pascal", gc=False):
    """The result of one record: a sequence number and shard, or an error code and message.

    ``sequence_number`` is plain here, and `check_results` looks at all of an answer together: msgspec needs longer for
    the bounds of a text than for the text.
    """

    sequence_number: str | None = None
    shard_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class PutRecordsAnswer(msgspec.Struct, rename="pascal"):
    """The answer of PutRecords: one result per entry, in the order of the entries."""

    records: list[PutResult]
    failed_record_count: int = 0


class StreamSummary(msgspec.Struct):
    """A stream as DescribeStreamSummary describes it."""

    stream_name: str = msgspec.field(name="StreamName")
    stream_arn: str = msgspec.field(name="StreamARN")
    stream_status: str = msgspec.field(name="StreamStatus")
    creation_timestamp_s: Seconds = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: Count = msgspec.field(name="RetentionPeriodHours")
    open_shard_count: Count = msgspec.field(name="OpenShardCount")
    record_distribution_strategy: str | None = msgspec.field(name="RecordDistributionStrategy", default=None)
    max_record_size_kib: Count | None = msgspec.field(name="MaxRecordSizeInKiB", default=None)

    @property
    def ignores_keys(self) -> bool:
        """True where the service spreads records as it likes, whatever their partition keys."""
        return self.record_distribution_strategy == "AUTO"


class _DescribeStreamSummary(msgspec.Struct):
    summary: StreamSummary = msgspec.field(name="StreamDescriptionSummary")


class _SequenceNumberRange(msgspec.Struct, rename="pascal"):
    starting_sequence_number: Decimal
    ending_sequence_number: Decimal | None = None


class _Shard(msgspec.Struct, rename="pascal"):
    shard_id: str
    hash_key_range: WireHashKeyRange
    sequence_number_range: _SequenceNumberRange
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    def to_shard(self) -> ListedShard:
        numbers = self.sequence_number_range
        last = numbers.ending_sequence_number
        return ListedShard(
            shard_id=self.shard_id,
            parents=tuple(p for p in (self.parent_shard_id, self.adjacent_parent_shard_id) if p is not None),
            first_hash_key=plain_number(self.hash_key_range.starting_hash_key),
            last_hash_key=plain_number(self.hash_key_range.ending_hash_key),
            first_sequence_number=plain_number(numbers.starting_sequence_number),
            last_sequence_number=plain_number(last) if last is not None else None,
        )


class _ListShards(msgspec.Struct, rename="pascal"):
    shards: list[_Shard] = []
    next_token: str | None = None


class _ShardIterator(msgspec.Struct, rename="pascal"):
    shard_iterator: str


_encode = msgspec.json.Encoder().encode
_pages = msgspec.json.Decoder(GetRecordsPage)


def decode_get_records(body: bytes) -> GetRecordsPage:
    """Read the body of a GetRecords answer. Raises `TransportError` when it is something else."""
    try:
        page = _pages.decode(body)
    except UNREADABLE:
        page = decoded("GetRecords", body, GetRecordsPage)
    check_numbers("GetRecords", page.records)
    return page


def check_numbers(what: str, records: Sequence[WireRecord]) -> None:
    """Raise `TransportError` unless all sequence numbers are decimal: they become ints long after this."""
    if "".join(map(_sequence_numbers, records)).encode().translate(None, _DIGITS):
        raise TransportError(f"{what}: the answer has a record whose sequence number is no decimal number")


def check_results(stream: StreamName, results: Sequence[PutResult]) -> None:
    """Raise `TransportError` unless all sequence numbers are decimal and of a bounded length."""
    numbers = [one.sequence_number for one in results if one.sequence_number is not None]
    lengths = set(map(len, numbers))
    # The digits are looked for in bytes: text asks a table of all Unicode for each character, twenty times as long.
    if 0 in lengths or "".join(numbers).encode(errors="replace").translate(None, _DIGITS):
        raise TransportError(f"PutRecords to {stream}: a result's sequence number is no decimal number")
    if lengths and max(lengths) > SEQUENCE_DIGITS_MAX:
        raise TransportError(f"PutRecords to {stream}: a result's sequence number has {max(lengths)} digits")


def plain_number(text: str) -> int:
    """Return the number of a decimal text. Raises ValueError also for what only `int` takes: signs, spaces and
    underscores.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text[:40]!r} is no decimal number")
    return int(text)


def put_records_body(stream: StreamName, entries: Sequence[PutEntry]) -> bytes:
    """Build the body of PutRecords. The caller sees to it that there are at most 500 entries and 10 MiB."""
    return _encode({**_named(stream), "Records": entries})


class NumberTexts:
    """Knows how an endpoint writes sequence numbers: AWS without leading zeros, some emulators padded to one width.

    Numbers are ints in here. An emulator that compares their text would take one that lost its zeros for a number
    behind all of its records, and skip what lies between.
    """

    def __init__(self) -> None:
        self.width: int | None = None
        """The number of digits that numbers are padded to; 0 where they are not padded, None while none was seen."""

    def learn(self, texts: Iterable[str]) -> None:
        """Note how these numbers are written. Raises OptionError where one text cannot be had back from its number."""
        for text in texts:
            padded = len(text) if text[0] == "0" and len(text) > 1 else 0
            if padded and self.width and padded != self.width:
                raise OptionError(
                    f"the endpoint fills sequence numbers up with zeros to {self.width} digits, and others to "
                    f"{padded}. AWS writes no such zeros. A position made of such a number cannot be "
                    "asked for again, so nothing is read from this endpoint"
                )
            self.width = padded or self.width or 0

    def text(self, number: int) -> str:
        """Return the number as the endpoint has it."""
        return str(number).zfill(self.width or 0)


class KinesisClient:
    """Makes typed calls over a `Wire`. Each takes ``retry`` to say how often it is repeated, and raises what
    `Wire.call` raises.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._cbor: bool | None = None if wire.options.cbor else False
        """True where the endpoint understands CBOR, False where JSON is sent, and None while the endpoint has not shown
        either.
        """
        self._silences = 0
        self._numbers = NumberTexts()

    @property
    def clock(self) -> ServiceClock:
        """The clock that knows what the service's answers say about its time."""
        return self.wire.clock

    async def describe_stream_summary(self, stream: StreamName, *, retry: RetryPolicy | None = None) -> StreamSummary:
        """Call DescribeStreamSummary."""
        body = await self._send("DescribeStreamSummary", stream, {}, retry)
        return decoded("DescribeStreamSummary", body, _DescribeStreamSummary).summary

    async def list_shards(
        self,
        stream: StreamName,
        *,
        shard_filter: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> list[ListedShard]:
        """Call ListShards, for all pages. ``shard_filter`` is its ShardFilter: ``{"Type": "AT_LATEST"}``."""
        params: dict[str, Any] = {} if shard_filter is None else {"ShardFilter": shard_filter}
        body = await self._send("ListShards", stream, params, retry)
        shards = []
        for _ in range(LIST_SHARDS_PAGES_MAX):
            page = decoded(f"ListShards of {stream}", body, _ListShards)
            with reading(f"ListShards of {stream}"):
                shards += [shard.to_shard() for shard in page.shards]
            self._numbers.learn(one.sequence_number_range.starting_sequence_number for one in page.shards)
            if page.next_token is None:
                return shards
            # The token stands for stream and filter; the service refuses it beside a name.
            body = await self.wire.call(
                "kinesis",
                "ListShards",
                _encode({"NextToken": page.next_token}),
                retry=retry,
                stream_arn=stream.arn,
            )
        raise TransportError(f"ListShards of {stream}: still more pages after {LIST_SHARDS_PAGES_MAX}")

    async def get_shard_iterator(
        self, stream: StreamName, shard_id: str, at: IteratorAt, *, retry: RetryPolicy | None = None
    ) -> str:
        """Call GetShardIterator. The iterator is good for five minutes."""
        params: dict[str, Any] = {"ShardId": shard_id, "ShardIteratorType": at.type}
        if at.sequence_number is not None:
            params["StartingSequenceNumber"] = await self.number_text(stream, at.sequence_number)
        if at.timestamp_s is not None:
            params["Timestamp"] = at.timestamp_s
        body = await self._send("GetShardIterator", stream, params, retry)
        return decoded("GetShardIterator", body, _ShardIterator).shard_iterator

    async def get_records_raw(
        self,
        iterator: str,
        *,
        limit: int = 10_000,
        stream: StreamName | None = None,
        retry: RetryPolicy | None = None,
    ) -> bytes:
        """Call GetRecords, and return the body as it came, for `decode_get_records`. It has up to ``limit`` records and
        10 MiB of data.

        ``stream`` is needed for streams of other accounts, which are addressed by ARN.
        """
        params: dict[str, Any] = {"ShardIterator": iterator, "Limit": limit}
        arn = None
        if stream is not None and stream.arn is not None:
            self._check_region(stream.arn)
            arn = params["StreamARN"] = stream.arn
        return await self.wire.call("kinesis", "GetRecords", _encode(params), retry=retry, stream_arn=arn)

    async def get_records(
        self,
        iterator: str,
        *,
        limit: int = 10_000,
        stream: StreamName | None = None,
        retry: RetryPolicy | None = None,
    ) -> GetRecordsPage:
        """Call GetRecords, and return its page."""
        page = decode_get_records(await self.get_records_raw(iterator, limit=limit, stream=stream, retry=retry))
        if page.records and page.records[0].sequence_number[0] == "0":
            self._numbers.learn((page.records[0].sequence_number,))
        return page

    async def number_text(self, stream: StreamName, number: int) -> str:
        """Return a sequence number as this endpoint writes it (some emulators pad theirs with zeros, and compare text).

        A number of a shape that is not AWS's is only known to be unpadded once a listing of shards was seen.
        """
        if self._numbers.width is None and version_of(number) is None:
            await self.list_shards(stream)
        return self._numbers.text(number)

    async def put_records(
        self, stream: StreamName, entries: Sequence[PutEntry], *, retry: RetryPolicy | None = None
    ) -> PutRecordsAnswer:
        """Call PutRecords. Entries that fail are reported, not repeated: look at ``failed_record_count``.

        Raises InvalidRecordError, before anything is sent, for an entry that is of wrong types.
        """
        if stream.arn is not None:
            self._check_region(stream.arn)
        answer = None
        in_cbor = self._cbor is not False and entries and len(entries[0].data) >= CBOR_DATA_BYTES_MIN
        if in_cbor:
            answer = await self._put_cbor(stream, entries, retry)
        if answer is None:
            body = _built(put_records_body, stream, entries)
            answer = decoded(
                "PutRecords",
                await self.wire.call("kinesis", "PutRecords", body, retry=retry, stream_arn=stream.arn),
                PutRecordsAnswer,
            )
            # Only this shows that the endpoint does not know CBOR: the code of the refusal says nothing.
            if in_cbor:  # it took in JSON what it had refused in CBOR
                self._cbor = False
        if len(answer.records) != len(entries):
            raise TransportError(
                f"PutRecords to {stream}: {len(answer.records)} results came for {len(entries)} entries"
            )
        check_results(stream, answer.records)
        return answer

    async def _put_cbor(
        self, stream: StreamName, entries: Sequence[PutEntry], retry: RetryPolicy | None
    ) -> PutRecordsAnswer | None:
        """Call PutRecords in CBOR. Return None if the call was refused, and so not written, by an endpoint that has not
        shown yet that it understands CBOR: then JSON tells whether that was why. An endpoint that does not understand
        it is an emulator.
        """
        body = _built(
            cbor.put_records_body,
            _named(stream),
            ((entry.data, entry.partition_key, entry.explicit_hash_key) for entry in entries),
        )
        try:
            answer = await self.wire.call(
                "kinesis", "PutRecords", body, retry=retry, stream_arn=stream.arn, content_type=cbor.CONTENT_TYPE
            )
            decoded = msgspec.convert(cbor.decode(answer), type=PutRecordsAnswer)
        except ServiceError as error:
            if self._cbor or isinstance(error, ThrottledError) or error.code in UNDERSTOOD:
                raise
            if error.status >= 500 or isinstance(error, UnavailableError):
                # It may be written: the caller has to know. The failure may come of what the endpoint could not read,
                # so what is repeated is repeated in JSON.
                self._cbor = False
                raise
            return None
        except (TransportError, asyncio.CancelledError) as error:
            if self._cbor is None and getattr(error, "sent", True):
                self._silences += 1
                if self._silences >= SILENCES_MAX:
                    self._cbor = False
            raise
        except ValueError as error:
            self._cbor = False
            raise TransportError(f"PutRecords to {stream}: the answer cannot be read as CBOR: {error}") from None
        else:
            self._cbor = True
            return decoded

    async def call(
        self, operation: str, params: Mapping[str, Any], *, retry: RetryPolicy | None = None
    ) -> dict[str, Any]:
        """Call any other operation, with parameters and an answer as the API reference shows them (bytes as base64)."""
        arn = params.get("StreamARN")
        if arn is not None:
            self._check_region(arn)
        body = await self.wire.call("kinesis", operation, _encode(params), retry=retry, stream_arn=arn)
        return decoded(operation, body, dict[str, Any]) if body else {}

    async def _send(
        self, operation: str, stream: StreamName, params: dict[str, Any], retry: RetryPolicy | None
    ) -> bytes:
        if stream.arn is not None:
            self._check_region(stream.arn)
        return await self.wire.call(
            "kinesis", operation, _encode({**_named(stream), **params}), retry=retry, stream_arn=stream.arn
        )

    def _check_region(self, arn: str) -> None:
        region, ours = arn_region(arn), self.wire.region
        if region is None:
            raise OptionError(
                f"{arn!r} is no stream ARN (one looks like arn:aws:kinesis:eu-west-1:123456789012:stream/x)"
            )
        if region != ours:
            raise OptionError(f"the stream {arn} is in region {region}, but calls go to {ours}: give region {region}")


def _built(build: Callable[[Any, Any], bytes], stream: Any, entries: Any) -> bytes:
    """Return the body of PutRecords. Raises InvalidRecordError where that cannot be written: then nothing was sent."""
    try:
        return build(stream, entries)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidRecordError(
            f"PutRecords: a record can't be written into a request: {type(error).__name__}"
        ) from None


def _named(stream: StreamName) -> dict[str, str]:
    return {"StreamARN": stream.arn} if stream.arn is not None else {"StreamName": stream.short}
