"""The shapes of Kinesis's requests and answers, and what of them is checked before anything is made of it.

Names, shapes and limits: Amazon Kinesis Data Streams API reference, version 2013-12-02.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import msgspec

from shardway.aws.calls.answers import UNREADABLE, decoded
from shardway.errors import TransportError
from shardway.model import ListedShard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.model import StreamName

SEQUENCE_DIGITS_MAX = 128
"""The most digits of a sequence number: AWS writes 56, and its API reference allows this many."""
_DIGITS = b"0123456789"
_sequence_numbers = attrgetter("sequence_number")

Seconds = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_214_400)]
"""Epoch seconds within the years 1 to 9999, which is what a datetime can hold."""
Count = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""A number that a float holds exactly: one of hundreds of digits would raise wherever a part computes with it."""
Decimal = Annotated[str, msgspec.Meta(min_length=1, max_length=SEQUENCE_DIGITS_MAX)]
"""A decimal number as text. Its digits are looked at later, by `check_numbers` or `plain_number`."""


class WireRecord(msgspec.Struct, rename="pascal", gc=False):
    """A record as GetRecords and SubscribeToShard return it. ``approximate_arrival_timestamp`` is epoch seconds."""

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


class StreamSummaryAnswer(msgspec.Struct):
    """The answer of DescribeStreamSummary."""

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


class ListShardsPage(msgspec.Struct, rename="pascal"):
    """One answer of ListShards. ``next_token`` is None on the last page."""

    shards: list[_Shard] = []
    next_token: str | None = None


class ShardIteratorAnswer(msgspec.Struct, rename="pascal"):
    """The answer of GetShardIterator."""

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
    """Return the number of a decimal text. Raises ValueError for any other text, also where `int` takes it: with signs,
    spaces or underscores.
    """
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text[:40]!r} is no decimal number")
    return int(text)


def put_records_body(stream: StreamName, entries: Sequence[PutEntry]) -> bytes:
    """Build the body of PutRecords. The caller passes at most 500 entries and 10 MiB."""
    return _encode({**stream_field(stream), "Records": entries})


def stream_field(stream: StreamName) -> dict[str, str]:
    """Return the field of a request that names the stream."""
    return {"StreamARN": stream.arn} if stream.arn is not None else {"StreamName": stream.short}
