"""The client of Amazon Kinesis Data Streams: typed methods for the calls that Shardway makes often, and
`KinesisClient.call` for the others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws import cbor
from shardway.aws.calls.answers import CLOCK_SKEW, STALE_CREDENTIALS, decoded, reading
from shardway.aws.endpoints import arn_region
from shardway.aws.kinesis.shapes import (
    ListShardsPage,
    PutRecordsAnswer,
    ShardIteratorAnswer,
    StreamSummaryAnswer,
    check_results,
    decode_get_records,
    put_records_body,
    stream_field,
)
from shardway.core.sequence import version_of
from shardway.errors import (
    InvalidRecordError,
    OptionError,
    ServiceError,
    ThrottledError,
    TransportError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shardway.aws.calls.retry import RetryPolicy
    from shardway.aws.kinesis.shapes import GetRecordsPage, PutEntry, StreamSummary
    from shardway.aws.wire import Wire
    from shardway.core.service_clock import ServiceClock
    from shardway.model import IteratorAt, ListedShard, StreamName

LIST_SHARDS_PAGES_MAX = 1_000
"""The most pages of ListShards: it returns at most 1,000 shards per page by default, and the largest quota is 20,000
shards.
"""

CBOR_DATA_BYTES_MIN = 2048
"""Records of this size and larger are put as CBOR, because base64 costs more the larger they are. Smaller ones are put
as JSON, because many results are read faster from it.
"""

UNDERSTOOD = frozenset(
    {"ResourceNotFoundException", "AccessDeniedException", "KMSAccessDeniedException", "KMSDisabledException",
     "KMSInvalidStateException", "KMSNotFoundException", "KMSOptInRequired"}
) | STALE_CREDENTIALS | CLOCK_SKEW  # fmt: skip
"""Refusals that have nothing to do with how the request is written."""
SILENCES_MAX = 2
"""The number of requests in CBOR without an answer, while none got one, after which the client takes the endpoint for
one that does not know CBOR.
"""
_encode = msgspec.json.Encoder().encode


class NumberTexts:
    """Knows how an endpoint writes sequence numbers: AWS without leading zeros, some emulators padded to one width.

    Numbers are ints in here. An emulator that compares their text would take one that lost its zeros for a number
    behind all of its records, and skip what lies between.
    """

    def __init__(self) -> None:
        self.width: int | None = None
        """The number of digits that numbers are padded to; 0 where they are not padded, None while none was seen."""

    def learn(self, texts: Iterable[str]) -> None:
        """Note how these numbers are written. Raises OptionError where a text cannot be made again from its number."""
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
        return decoded("DescribeStreamSummary", body, StreamSummaryAnswer).summary

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
            page = decoded(f"ListShards of {stream}", body, ListShardsPage)
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
        return decoded("GetShardIterator", body, ShardIteratorAnswer).shard_iterator

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

        ``stream`` is needed for streams of other accounts: a request names those by their ARN.
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
        """Return a sequence number as this endpoint writes it: some emulators pad theirs with zeros, and compare text.

        A number of a shape that is not AWS's may be padded: a listing of shards shows how this endpoint writes numbers.
        """
        if self._numbers.width is None and version_of(number) is None:
            await self.list_shards(stream)
        return self._numbers.text(number)

    async def put_records(
        self, stream: StreamName, entries: Sequence[PutEntry], *, retry: RetryPolicy | None = None
    ) -> PutRecordsAnswer:
        """Call PutRecords. Entries that fail are reported, not repeated: look at ``failed_record_count``.

        Raises InvalidRecordError, before anything is sent, for an entry that has values of wrong types.
        """
        if stream.arn is not None:
            self._check_region(stream.arn)
        answer = None
        in_cbor = self._cbor is not False and entries and len(entries[0].data) >= CBOR_DATA_BYTES_MIN
        if in_cbor:
            answer = await self._put_cbor(stream, entries, retry)
        if answer is None:
            body = _request_body(put_records_body, stream, entries)
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
        """Call PutRecords in CBOR. Return None if the endpoint refused it, and so wrote nothing, and has not shown yet
        that it understands CBOR: the same call in JSON then shows whether CBOR was the reason. An endpoint that does
        not understand CBOR is an emulator.
        """
        body = _request_body(
            cbor.put_records_body,
            stream_field(stream),
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
                # It may be written: the caller has to know. The endpoint may have failed because it could not read
                # CBOR, so what is repeated is repeated in JSON.
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
            "kinesis", operation, _encode({**stream_field(stream), **params}), retry=retry, stream_arn=stream.arn
        )

    def _check_region(self, arn: str) -> None:
        region, ours = arn_region(arn), self.wire.region
        if region is None:
            raise OptionError(
                f"{arn!r} is no stream ARN (one looks like arn:aws:kinesis:eu-west-1:123456789012:stream/x)"
            )
        if region != ours:
            raise OptionError(f"the stream {arn} is in region {region}, but calls go to {ours}: give region {region}")


def _request_body(build: Callable[[Any, Any], bytes], stream: Any, entries: Any) -> bytes:
    """Return the body of PutRecords. Raises InvalidRecordError, before anything is sent, where it cannot be written."""
    try:
        return build(stream, entries)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidRecordError(
            f"PutRecords: a record can't be written into a request: {type(error).__name__}"
        ) from None
