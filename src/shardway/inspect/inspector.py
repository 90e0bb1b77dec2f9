"""The reader behind the read model. It calls Kinesis within a share of each shard's limits, and never writes.

::

    async with Inspector(ConnectionOptions(region="eu-west-1")) as inspector:
        report = await inspector.stream("orders")

Each shard gives 5 GetRecords calls and 2 MiB a second to all of its readers together. An inspector leaves most of that
to the programs whose streams it looks at. Its calls are counted and paced, and the answers become the values of
`shardway.inspect.values`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls import RetryPolicy, SignedCalls, reading
from shardway.aws.kinesis import Count, GetRecordsPage, KinesisClient, Seconds
from shardway.aws.sdk import environment_credentials
from shardway.aws.wire import Wire
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.lineage import Lineage
from shardway.core.log.cursor import LogCursor, Policy, latest_s
from shardway.core.log.silence import NEAR_TIP_MS
from shardway.core.log.transitions import NextStep, State
from shardway.core.pacing import TokenBucket
from shardway.core.sequence import second_of
from shardway.errors import (
    AccessDeniedError,
    CredentialsError,
    ExpiredIteratorError,
    InUseError,
    NotFoundError,
    OptionError,
    ThrottledError,
    TransportError,
)
from shardway.inspect.applications import ApplicationReport, ApplicationsReport, application_view, only_stream
from shardway.inspect.heat import HeatOfShard, HeatReport, Span, heat_of
from shardway.inspect.lag import Lags, LagTimes
from shardway.inspect.moments import utc
from shardway.inspect.snapshots import snapshot_of
from shardway.inspect.tables import Store, applications_in, rows_of
from shardway.inspect.values import (
    READ_BYTES_PER_S,
    READ_CALLS_PER_S,
    ConsumerView,
    CredentialsView,
    Missing,
    ShardView,
    StreamFound,
    StreamReport,
    StreamsReport,
    StreamView,
)
from shardway.model import IteratorAt
from shardway.tasks import side_by_side
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import TypeVar

    from shardway.aws.calls import Request
    from shardway.aws.credentials import CredentialCache
    from shardway.aws.options import ConnectionOptions
    from shardway.aws.transport import Answer, HttpTransport
    from shardway.errors import ServiceError
    from shardway.inspect.lag import LagReport, Look
    from shardway.inspect.records import Reading, SeenRecord
    from shardway.inspect.registries import Registries
    from shardway.inspect.snapshots import Snapshot
    from shardway.model import ListedShard, StreamName

    T = TypeVar("T")


# --- calls: counted, paced, and never a write -----------------------------------------------------

SHARE = 0.4
"""The part of each limit that an inspector uses. The other 60 % stay with the programs that process the stream."""

INSPECT_POLICY = "docs/iam/inspect.json"
"""The policy that allows all that an inspector calls, and nothing else."""
STATEMENTS: dict[str, str] = {
    "cloudwatch:GetMetricData": "ReadMetrics",
    "cloudwatch:ListMetrics": "ReadMetrics",
    "dynamodb:DescribeTable": "ReadTheTablesOfTheApplication",
    "dynamodb:ListTables": "ListStreamsAndTables",
    "dynamodb:Scan": "ReadTheTablesOfTheApplication",
    "kinesis:DescribeLimits": "ListStreamsAndTables",
    "kinesis:DescribeStreamSummary": "ReadTheStream",
    "kinesis:GetRecords": "ReadTheStream",
    "kinesis:GetShardIterator": "ReadTheStream",
    "kinesis:ListShards": "ReadTheStream",
    "kinesis:ListStreamConsumers": "ReadTheStream",
    "kinesis:ListStreams": "ListStreamsAndTables",
}
"""The actions that an inspector calls unasked, each with the statement of its policy that allows it."""
ASKED_STATEMENTS: dict[str, str] = {
    "glue:GetSchemaVersion": "ReadSchemas",
    "kinesis:SubscribeToShard": "ReadByFanOut",
}
"""The actions that an inspector calls only where the caller asks for schemas, or for records by a registered consumer.
"""
READS: frozenset[tuple[str, str]] = frozenset(
    (service, operation)
    for service, _, operation in (action.partition(":") for action in {**STATEMENTS, **ASKED_STATEMENTS})
)
"""The only calls that are sent, as (service, operation): any other one is refused."""

ACCOUNT_CALLS_PER_S = {"DescribeLimits": 1, "DescribeStreamSummary": 20, "ListStreams": 5, "ListStreamConsumers": 5}
"""Calls a second that all programs of an account, or of a stream, share (Kinesis API reference)."""

PAGE_RECORDS_FIRST, PAGE_RECORDS_MAX = 2_000, 10_000
"""The records that a shard's first GetRecords call asks for, since their size is unknown, and that any call asks for
at most.
"""
PAGE_BYTES = READ_BYTES_PER_S / READ_CALLS_PER_S
"""The bytes that a page is to have at most, if its records are as large as those of the page before. A call may return
10 MiB, but then the shard refuses all of its readers for the next five seconds.
"""

RETRY = RetryPolicy(attempts_max=6, base_s=0.2, cap_s=3.0)


class PacedCalls(SignedCalls):
    """Calls whose attempts are counted one by one, and kept within the limits that an account's programs share."""

    def __init__(self, wire: ReadingWire, transport: HttpTransport, **clocks: Any) -> None:
        super().__init__(transport, wire.clock, **clocks)
        self._wire = wire
        self._account = {
            name: TokenBucket(
                records_per_s=rate * SHARE,
                records_burst=max(1.0, rate * SHARE),
                bytes_per_s=float("inf"),
                now_s=self._now(),
            )
            for name, rate in ACCOUNT_CALLS_PER_S.items()
        }

    async def _attempt(self, request: Request, credentials: CredentialCache, retry: RetryPolicy) -> Answer:
        if (bucket := self._account.get(request.operation)) is not None:
            while not bucket.take(self._now(), records=1):
                await self._sleep(bucket.wait_s(self._now(), records=1))
        self._wire.calls[request.operation] += 1
        try:
            return await super()._attempt(request, credentials, retry)
        except ThrottledError:
            self._wire.throttled += 1
            self._wire.refusals[request.operation] += 1
            raise


class ReadingWire(Wire):
    """A wire that counts each attempt, keeps within the account's limits, and refuses to write."""

    def __init__(
        self,
        options: ConnectionOptions | None = None,
        *,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(options, now=now, sleep=sleep, retry=RETRY)
        self.calls: Counter[str] = Counter()
        """Attempts by operation."""
        self.throttled = 0
        """Attempts that the service refused for their rate."""
        self.refusals: Counter[str] = Counter()
        """The attempts that the service refused for their rate, by operation."""

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
        """See `Wire.call`. Raises ValueError for an operation that is not in `READS`."""
        _refuse_writes(service, operation)
        return await super().call(
            service, operation, body, retry=retry, stream_arn=stream_arn, content_type=content_type
        )

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Wire.stream`. Raises ValueError for an operation that is not in `READS`."""
        _refuse_writes(service, operation)
        self.calls[operation] += 1
        async with contextlib.aclosing(super().stream(service, operation, body, stream_arn=stream_arn)) as parts:
            async for part in parts:
                yield part

    def _make_calls(self, transport: HttpTransport) -> SignedCalls:
        return PacedCalls(self, transport, rng=self._rng, now=self._now, sleep=self._sleep)

    async def credentials_view(self) -> CredentialsView | None:
        """Return how long the credentials are good; None: there are none."""
        options = self.options
        given = options.credentials or environment_credentials(options.profile)
        try:
            current = await self._opened().credentials.current()
        except CredentialsError:
            return None
        expires_at_s = current.expires_at_s
        return CredentialsView(
            temporary=current.session_token is not None,
            renewed=options.role_arn is not None or given is None,
            expires_at=None if expires_at_s is None else utc(expires_at_s),
        )


def _refuse_writes(service: str, operation: str) -> None:
    if (service, operation) not in READS:
        raise ValueError(f"{service}:{operation} is no call of the read model")


class ShardPaces:
    """How often an inspector may ask each shard, and for how much. ``calls_per_s``: how many of the 5 calls a second
    that a shard allows.
    """

    def __init__(self, calls_per_s: float = READ_CALLS_PER_S * SHARE) -> None:
        if not 0 < calls_per_s <= READ_CALLS_PER_S:
            raise OptionError(
                f"--rate: a shard allows {READ_CALLS_PER_S} read calls a second; choose more than 0 of them"
            )
        self.calls_per_s = calls_per_s
        self.bytes_per_s = READ_BYTES_PER_S * calls_per_s / READ_CALLS_PER_S
        """The bytes a second that may be read from each shard: the same share as that of the calls."""
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._page_records: dict[tuple[str, str], int] = {}

    async def before(self, stream: str, shard_id: str, operation: str) -> None:
        """Wait until the shard may be asked. Readers of one shard take turns in the order in which they came."""
        bucket, clock = self._bucket(stream, shard_id, operation), asyncio.get_running_loop().time
        async with self._turns.setdefault((stream, shard_id, operation), asyncio.Lock()):
            # Without turns, the reader whose wait began with the last call wakes first each time, and no other reads.
            while not bucket.take(clock(), records=1, payload_bytes=1):
                await asyncio.sleep(bucket.wait_s(clock(), records=1, payload_bytes=1))

    def page_records(self, stream: str, shard_id: str) -> int:
        """Return how many records the next GetRecords call may ask for."""
        return self._page_records.get((stream, shard_id), PAGE_RECORDS_FIRST)

    def after(self, stream: str, shard_id: str, records: int, payload_bytes: int) -> None:
        """Note what GetRecords brought. After more bytes than the share allows, `before` makes the next call wait."""
        now_s = asyncio.get_running_loop().time()
        self._bucket(stream, shard_id, "GetRecords").charge(now_s, payload_bytes=payload_bytes)
        if payload_bytes:
            fitting = int(PAGE_BYTES * records / payload_bytes)
            self._page_records[stream, shard_id] = min(max(fitting, 1), PAGE_RECORDS_MAX)

    def _bucket(self, stream: str, shard_id: str, operation: str) -> TokenBucket:
        key = (stream, shard_id, operation)
        if (found := self._buckets.get(key)) is None:
            found = self._buckets[key] = TokenBucket(
                records_per_s=self.calls_per_s,
                records_burst=1.0,
                bytes_per_s=self.bytes_per_s,
                now_s=asyncio.get_running_loop().time(),
            )
        return found


# --- answers, as values ---------------------------------------------------------------------------


class _Mode(msgspec.Struct, rename="pascal"):
    stream_mode: str | None = None


class _Monitoring(msgspec.Struct, rename="pascal"):
    shard_level_metrics: list[str] = []


class _Warm(msgspec.Struct):
    target: int | None = msgspec.field(name="TargetMiBps", default=None)
    current: int | None = msgspec.field(name="CurrentMiBps", default=None)


class _Summary(msgspec.Struct):
    name: str = msgspec.field(name="StreamName")
    arn: str = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    created_s: Seconds = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: Count = msgspec.field(name="RetentionPeriodHours")
    open_shards: Count = msgspec.field(name="OpenShardCount")
    mode: _Mode | None = msgspec.field(name="StreamModeDetails", default=None)
    consumers: Count | None = msgspec.field(name="ConsumerCount", default=None)
    encryption: str | None = msgspec.field(name="EncryptionType", default=None)
    key_id: str | None = msgspec.field(name="KeyId", default=None)
    monitoring: list[_Monitoring] | None = msgspec.field(name="EnhancedMonitoring", default=None)
    max_record_kib: Count | None = msgspec.field(name="MaxRecordSizeInKiB", default=None)
    distribution: str | None = msgspec.field(name="RecordDistributionStrategy", default=None)
    warm: _Warm | None = msgspec.field(name="WarmThroughput", default=None)
    channels: Count | None = msgspec.field(name="ChannelCount", default=None)
    queues: Count | None = msgspec.field(name="QueueCount", default=None)


class _Listed(msgspec.Struct):
    name: str = msgspec.field(name="StreamName")
    arn: str | None = msgspec.field(name="StreamARN", default=None)
    status: str | None = msgspec.field(name="StreamStatus", default=None)
    mode: _Mode | None = msgspec.field(name="StreamModeDetails", default=None)
    created_s: Seconds | None = msgspec.field(name="StreamCreationTimestamp", default=None)


class _Consumer(msgspec.Struct):
    name: str = msgspec.field(name="ConsumerName")
    arn: str = msgspec.field(name="ConsumerARN")
    status: str = msgspec.field(name="ConsumerStatus")
    created_s: Seconds = msgspec.field(name="ConsumerCreationTimestamp")


def stream_view(answer: Mapping[str, Any]) -> StreamView:
    """Return the stream that an answer of DescribeStreamSummary describes. Raises TransportError for another shape."""
    with reading("DescribeStreamSummary"):
        found = msgspec.convert(_present(answer["StreamDescriptionSummary"]), type=_Summary)
        warm = found.warm
        return StreamView(
            name=found.name,
            arn=found.arn,
            status=found.status,
            mode=None if found.mode is None else found.mode.stream_mode,
            created_at=utc(found.created_s),
            retention_hours=found.retention_hours,
            open_shards=found.open_shards,
            consumers=found.consumers,
            encryption=found.encryption,
            key_id=found.key_id,
            shard_metrics=tuple(name for one in found.monitoring or () for name in one.shard_level_metrics),
            max_record_kib=found.max_record_kib,
            distribution=found.distribution,
            warm_throughput_mib_s=None if warm is None else (warm.current if warm.current is not None else warm.target),
            channels=found.channels,
            queues=found.queues,
        )


def listed_streams(answer: Mapping[str, Any]) -> list[StreamFound]:
    """Return the streams of a page of ListStreams. Emulators and older services list names alone. Raises
    TransportError for another shape.
    """
    with reading("ListStreams"):
        summaries = answer.get("StreamSummaries")
        if summaries is None:
            return [StreamFound(name=str(name)) for name in answer["StreamNames"]]
        return [
            StreamFound(
                name=one.name,
                arn=one.arn,
                status=one.status,
                mode=None if one.mode is None else one.mode.stream_mode,
                created_at=None if one.created_s is None else utc(one.created_s),
            )
            for one in msgspec.convert([_present(one) for one in summaries], type=list[_Listed])
        ]


def consumer_views(answer: Mapping[str, Any]) -> list[ConsumerView]:
    """Return the consumers of a page of ListStreamConsumers. Raises TransportError for another shape."""
    with reading("ListStreamConsumers"):
        return [
            ConsumerView(name=one.name, arn=one.arn, status=one.status, created_at=utc(one.created_s))
            for one in msgspec.convert(answer.get("Consumers", []), type=list[_Consumer])
        ]


def shard_views(shards: Iterable[ListedShard]) -> tuple[list[ShardView], list[tuple[str, str]]]:
    """Return the shards in the order of their lineage, and the holes that open shards leave in the hash range."""
    lineage = Lineage(shards)
    views = []
    for shard_id, shard in lineage.shards.items():
        opened_s = second_of(shard.first_sequence_number)
        views.append(
            ShardView(
                shard_id=shard_id,
                open=not shard.closed,
                generation=lineage.generation(shard_id),
                parents=lineage.parents(shard_id),
                children=lineage.children(shard_id),
                trimmed_parents=tuple(one for one in shard.parents if one not in lineage),
                first_hash_key=str(shard.first_hash_key),
                last_hash_key=str(shard.last_hash_key),
                hash_share=(shard.last_hash_key - shard.first_hash_key + 1) / (HASH_KEY_MAX + 1),
                first_sequence_number=str(shard.first_sequence_number),
                last_sequence_number=None if shard.last_sequence_number is None else str(shard.last_sequence_number),
                opened_at=None if opened_s is None else utc(opened_s),
            )
        )
    return views, [(str(first), str(last)) for first, last in lineage.holes()]


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not null: null counts as absent, since some emulators write it."""
    return {name: value for name, value in values.items() if value is not None}


# --- the reader -----------------------------------------------------------------------------------

AT_ONCE_MAX = 48
"""Shards that are asked side by side: fewer than the wire has connections."""
PAGES_MAX = 1_000
"""The pages of a listing of streams or consumers, each with 100 entries."""
LOOKING = Policy(returns=True)
"""The policy of an inspector's cursor. Where an iterator has expired, the cursor reads again at the last record that
came: so a silence longer than the retention does not end at a number that is trimmed.
"""
HEAT_RECORDS_MAX = 20_000
"""The Kinesis records that are read of a shard for its heat, unless the caller gives another bound."""


def refuse_trimmed(log: LogCursor, at: IteratorAt, behind_ms: int | None, shard: str) -> None:
    """Raise NotFoundError where a reading that began at a sequence number finds nothing, far from the tip: its record
    is trimmed.
    """
    far = (behind_ms or 0) > NEAR_TIP_MS
    if at.sequence_number is not None and log.state is State.FRESH and log.silence.leads_nowhere and far:
        raise NotFoundError(
            "ResourceNotFoundException",
            f"{shard} has no record {at.sequence_number} any more: it is trimmed, and so may be what followed it. "
            "Begin at trim-horizon, or at a time",
            operation="GetRecords",
        )


class Inspector:
    """Looks at streams and at the applications that read them. An inspector belongs to one event loop.

    ``calls_per_s``: how many of the 5 read calls that each shard allows in a second the inspector may use, and with
    them the same share of the shard's 2 MiB/s. By default 2; the other 60 % stay with the programs that read the
    stream.
    """

    def __init__(self, wire: ConnectionOptions | None = None, *, calls_per_s: float = 2.0) -> None:
        """Raises OptionError."""
        self.paces = ShardPaces(calls_per_s)
        self.wire = ReadingWire(wire)
        self.missing: list[Missing] = []
        """What the credentials did not show in any report so far."""
        self._client = KinesisClient(self.wire)

    def apart(self) -> Inspector:
        """Return an inspector for another report at the same time. It shares this one's connections and paces, and has
        its own list of `missing`.
        """
        other = copy.copy(self)
        other.missing = []
        return other

    async def __aenter__(self) -> Inspector:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.wire.close()

    @property
    def calls(self) -> dict[str, int]:
        """The attempts of calls so far, by operation."""
        return dict(sorted(self.wire.calls.items()))

    @property
    def now_s(self) -> float:
        """The service's time in epoch seconds, as its answers have shown it."""
        return self.wire.service_now_s

    @property
    def clock_off_s(self) -> float:
        """The seconds to add to this machine's clock, as it is set now, to get near the service's time."""
        return self.wire.clock.offset_s + self.wire.now() - time.time()

    # --- streams ----------------------------------------------------------------------------------

    async def streams(self) -> StreamsReport:
        """Return all streams of the account in this region."""
        found = await self.shown("the list of streams", "kinesis", self._list_streams())
        return StreamsReport(streams=found or [], missing=list(self.missing), calls=self.calls)

    async def stream(self, stream: str, *, shards: bool = True, consumers: bool = True) -> StreamReport:
        """Return a stream with its shards and registered consumers. Raises NotFoundError where there is no such
        stream.
        """
        name = stream_name(stream)
        view = await self.shown(f"the stream {name}", "kinesis", self.describe(name))
        listed = (
            await self.shown(f"the shards of {name}", "kinesis", self._client.list_shards(name)) if shards else None
        )
        readers = None
        if consumers and view is not None:
            readers = await self.shown(f"the consumers of {name}", "kinesis", self._list_consumers(view.arn))
        views, holes = (None, []) if listed is None else shard_views(listed)
        return StreamReport(
            name=name.short,
            stream=view,
            shards=views,
            holes=holes,
            consumers=readers,
            missing=list(self.missing),
            calls=self.calls,
        )

    async def describe(self, stream: StreamName) -> StreamView:
        """Return all that DescribeStreamSummary says of a stream."""
        named = {"StreamARN": stream.arn} if stream.arn is not None else {"StreamName": stream.short}
        return stream_view(await self._client.call("DescribeStreamSummary", named))

    async def shards(self, stream: StreamName) -> list[ListedShard]:
        """Return all shards that the retention covers."""
        return await self._client.list_shards(stream)

    async def consumer_arn(self, stream: StreamName, consumer: str) -> str:
        """Return the ARN of a consumer that is registered for enhanced fan-out, by its name. Raises OptionError where
        no active consumer has this name; an inspector registers none.
        """
        if consumer.startswith("arn:"):
            return consumer
        there = await self._list_consumers((await self.describe(stream)).arn)
        found = next((one for one in there if one.name == consumer), None)
        if found is None or found.status != "ACTIVE":
            names = ", ".join(one.name for one in there) or "none"
            status = f"{stream} has no consumer {consumer}" if found is None else f"{consumer} is {found.status}"
            raise OptionError(f"{status}; registered are: {names}. None is registered for a look")
        return found.arn

    async def _list_streams(self) -> list[StreamFound]:
        found: list[StreamFound] = []
        parameters: dict[str, Any] = {}
        for _ in range(PAGES_MAX):
            answer = await self._client.call("ListStreams", parameters)
            found += listed_streams(answer)
            if not answer.get("HasMoreStreams") or not found:
                return found
            token = answer.get("NextToken")
            parameters = {"NextToken": token} if token else {"ExclusiveStartStreamName": found[-1].name}
        raise TransportError(f"ListStreams has no end after {PAGES_MAX} pages")

    async def _list_consumers(self, arn: str) -> list[ConsumerView]:
        found: list[ConsumerView] = []
        parameters: dict[str, Any] = {"StreamARN": arn}
        for _ in range(PAGES_MAX):
            answer = await self._client.call("ListStreamConsumers", parameters)
            found += consumer_views(answer)
            token = answer.get("NextToken")
            if not token:
                return found
            parameters = {"StreamARN": arn, "NextToken": token}
        raise TransportError(f"ListStreamConsumers has no end after {PAGES_MAX} pages")

    async def shown(self, what: str, service: str, looking: Awaitable[T]) -> T | None:
        """Return what ``looking`` found. Return None, and note it in `missing`, where a permission lacks, where the
        service refuses all attempts for their rate, or where ``what`` is just being made.
        """
        try:
            return await looking
        except (AccessDeniedError, InUseError, ThrottledError) as fault:
            self.lacks(what, service, fault)
            return None

    def lacks(self, what: str, service: str, fault: ServiceError) -> None:
        """Note once what could not be looked at."""
        found = Missing(
            what=what, action=f"{service}:{fault.operation}", message=fault.service_message, code=fault.code
        )
        if all((one.what, one.action, one.code) != (found.what, found.action, found.code) for one in self.missing):
            self.missing.append(found)

    # --- shards -----------------------------------------------------------------------------------

    async def iterator(self, stream: StreamName, shard_id: str, at: IteratorAt) -> str:
        """Return the answer of GetShardIterator, once the shard's share allows the call."""
        await self.paces.before(str(stream), shard_id, "GetShardIterator")
        return await self._client.get_shard_iterator(stream, shard_id, at)

    async def page(
        self, stream: StreamName, shard_id: str, iterator: str, *, limit: int | None = None
    ) -> GetRecordsPage:
        """Return the answer of GetRecords, once the shard's share allows the call. Without a ``limit`` the call asks
        for as many records as its share has room for, if they are as large as those that came before.
        """
        await self.paces.before(str(stream), shard_id, "GetRecords")
        limit = limit or self.paces.page_records(str(stream), shard_id)
        page = await self._client.get_records(iterator, limit=limit, stream=stream)
        payload_bytes = sum(len(one.data) + len(one.partition_key or "") for one in page.records)
        self.paces.after(str(stream), shard_id, len(page.records), payload_bytes)
        return page

    async def pages(
        self,
        stream: StreamName,
        shard_id: str,
        at: IteratorAt,
        *,
        limit: int | None = None,
        is_patient: bool = False,
    ) -> AsyncGenerator[GetRecordsPage, None]:
        """Yield the pages of a shard to its end, for as long as the caller asks for them. An iterator that expired is
        renewed, and what came meanwhile is read: LATEST means the time of the first call, however often an iterator is
        asked for.

        ``is_patient``: where the service refuses all attempts for their rate, this is noted in `missing`, the page is
        empty, and reading goes on.

        Raises NotFoundError for a number whose record is trimmed: the service would answer with empty pages, for ever.
        """
        log, iterator = LogCursor(LOOKING, begin=at), ""
        while True:
            try:
                if not iterator:
                    place, local_s = log.ask(), self.wire.now()
                    iterator = await self.iterator(stream, shard_id, place)
                    if place == IteratorAt.latest():
                        # Its answer may be the first that tells the service's time.
                        log.begin = IteratorAt.at_timestamp(latest_s(self.wire.clock.near_s(local_s)))
                asked_s = self.now_s
                page = await self.page(stream, shard_id, iterator, limit=limit)
            except ExpiredIteratorError:
                iterator = ""
                continue
            except ThrottledError as fault:
                if not is_patient:
                    raise
                self.lacks(f"the newest records of {stream}", "kinesis", fault)
                yield GetRecordsPage(next_shard_iterator=iterator)
                continue
            is_last = page.next_shard_iterator is None
            step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=is_last, asked_s=asked_s)
            if step.does is not NextStep.ASK:
                yield msgspec.structs.replace(page, records=log.unread(page.records, step))
            if step.does is NextStep.STOP:
                return
            refuse_trimmed(log, at, page.millis_behind_latest, f"{shard_id} of {stream}")
            iterator = "" if step.does is NextStep.ASK else page.next_shard_iterator or ""

    # --- records ----------------------------------------------------------------------------------

    def records(
        self, stream: str, reading: Reading, registries: Registries | None = None
    ) -> AsyncGenerator[SeenRecord, None]:
        """Return the user records of a stream, in the order of each shard, and parents before their children.
        `SeenRecord.decoded` is what is inside of a record, by the schemas of ``registries`` if they are given.

        Raises ShardwayError, also for a number whose record is trimmed.
        """
        from shardway.inspect.records import read

        return read(self, stream_name(stream), reading, registries)

    async def record(
        self, stream: str, sequence_number: int, sub_sequence_number: int = 0, *, shard_id: str | None = None
    ) -> SeenRecord:
        """Return one record by its position. Raises NotFoundError when the stream has it no more, OptionError for a
        number that does not tell its shard.
        """
        from shardway.inspect.records import get

        return await get(self, stream_name(stream), sequence_number, sub_sequence_number, shard_id)

    # --- applications -----------------------------------------------------------------------------

    async def applications(self, store: Store | None = None) -> ApplicationsReport:
        """Return the applications that have leases in a store, by default DynamoDB."""
        found = await applications_in(store or Store(), self)
        return ApplicationsReport(applications=found, missing=list(self.missing), calls=self.calls)

    async def application(self, name: str, store: Store | None = None) -> ApplicationReport:
        """Return an application's leases and workers. Raises NotFoundError, and OptionError for a table that is no
        lease table.
        """
        store = store or Store()
        view = application_view(name, store.kind, await rows_of(name, store, self))
        return ApplicationReport(application=view, missing=list(self.missing), calls=self.calls)

    async def lag(
        self,
        application: str,
        stream: str | None = None,
        store: Store | None = None,
        *,
        times: LagTimes | None = None,
        history: Mapping[str, Sequence[Look]] | None = None,
    ) -> tuple[LagReport, Mapping[str, Sequence[Look]]]:
        """Return how far an application is behind, and all looks that say so: give the looks to the next call as
        ``history``. Without ``stream`` the table must name one stream. Raises NotFoundError, OptionError.
        """
        store, times = store or Store(), times or LagTimes()
        rows = await rows_of(application, store, self)
        if not rows.listing.rows:
            why = "; ".join(dict.fromkeys(one.told for one in self.missing)) or "its workers have not started"
            raise OptionError(f"{application} shows no leases: {why}")
        name = stream_name(stream or only_stream(application_view(application, store.kind, rows)))
        view = await self.shown(f"the retention of {name}", "kinesis", self.describe(name))
        lags = Lags(self, application, name, retention_s=math.inf if view is None else view.retention_hours * 3600.0)
        lags.remember(history or {}, times.history_s)
        await lags.look(rows, await self._shards_shown(name))
        end_s = self.wire.now() + times.window_s
        while (left_s := end_s - self.wire.now()) > 0:
            await asyncio.sleep(min(times.interval_s, left_s))
            await lags.look(await rows_of(application, store, self), await self._shards_shown(name))
        return lags.report(times), lags.looks

    async def _shards_shown(self, stream: StreamName) -> list[ListedShard] | None:
        return await self.shown(f"the shards of {stream}", "kinesis", self.shards(stream))

    async def snapshot(
        self,
        application: str | None,
        stream: str | None,
        store: Store | None = None,
        *,
        times: LagTimes | None = None,
        history: Mapping[str, Sequence[Look]] | None = None,
        heat_s: float | None = None,
    ) -> Snapshot:
        """Return all that the symptoms of `shardway.inspect.examine` look at, without payloads and partition keys.

        Give an application, a stream, or both. ``history`` is the `looks` of an earlier snapshot; ``heat_s`` is how far
        back records are read to see where the load lies, by default a minute. Raises OptionError where an application's
        rows do not name its stream.
        """
        return await snapshot_of(self, application, stream, store, times=times, history=history, heat_s=heat_s)

    # --- heat -------------------------------------------------------------------------------------

    async def heat(
        self,
        stream: str,
        *,
        since_s: float = 300.0,
        records_max: int = HEAT_RECORDS_MAX,
        keys_shown_max: int = 5,
        show_keys: bool = True,
    ) -> HeatReport:
        """Return where the load of the last ``since_s`` seconds lies. A shard is read from the beginning of that time
        on, until it has brought ``records_max`` records.
        """
        name = stream_name(stream)
        listed = await self._shards_shown(name) or []
        begin_s = self.now_s - since_s
        read: dict[str, tuple[HeatOfShard, float, bool]] = {}

        async def look(shard: ListedShard) -> None:
            found = await self.shown(
                f"the records of {name}", "kinesis", self._heat_of(name, shard, begin_s, records_max)
            )
            if found is not None:
                read[shard.shard_id] = found

        await side_by_side(look, [one for one in listed if not one.closed], AT_ONCE_MAX)
        total = sum(counted.payload_bytes / span_s for counted, span_s, _ in read.values())
        shards = [
            heat_of(
                counted,
                Span(span_s, complete, 1.0 if complete else min(1.0, span_s / since_s)),
                total_bytes_per_s=total,
                shards=len(read),
                keys_shown_max=keys_shown_max,
                show_keys=show_keys,
            )
            for counted, span_s, complete in read.values()
        ]
        shards.sort(key=lambda one: (-one.utilization, one.shard_id))
        return HeatReport(
            stream=name.short, since=utc(begin_s), shards=shards, missing=list(self.missing), calls=self.calls
        )

    async def _heat_of(
        self, stream: StreamName, shard: ListedShard, begin_s: float, records_max: int
    ) -> tuple[HeatOfShard, float, bool]:
        """Return the counts, how many seconds they cover, and whether the reading came to the shard's tip."""
        counted = HeatOfShard(shard.shard_id, shard.first_hash_key, shard.last_hash_key)
        until_s, complete, last_s = self.now_s, False, begin_s
        pages = self.pages(stream, shard.shard_id, IteratorAt.at_timestamp(begin_s), limit=min(10_000, records_max))
        try:
            async for page in pages:
                await asyncio.to_thread(counted.add, page.records)  # a page of aggregates may take seconds
                if page.records:
                    last_s = page.records[-1].approximate_arrival_timestamp
                if not page.millis_behind_latest or page.next_shard_iterator is None or last_s >= until_s:
                    complete = True
                    break
                if counted.records >= records_max:
                    break
        finally:
            await pages.aclose()
        return counted, max((until_s if complete else last_s) - begin_s, 1.0), complete
