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
import copy
import math
import time
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import GetRecordsPage
from shardway.core.log.cursor import LogCursor, latest_s
from shardway.core.log.transitions import NextStep
from shardway.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    InUseError,
    OptionError,
    ThrottledError,
    TransportError,
)
from shardway.inspect.applications.stores import Store
from shardway.inspect.applications.tables import applications_in, rows_of
from shardway.inspect.applications.views import ApplicationReport, ApplicationsReport, application_view, only_stream
from shardway.inspect.doctor.snapshot_reader import snapshot_of
from shardway.inspect.heat import HeatOfShard, HeatReport, Span, heat_of
from shardway.inspect.lag.looks import Lags
from shardway.inspect.lag.reports import LagTimes
from shardway.inspect.moments import utc
from shardway.inspect.reads.answers import consumer_views, listed_streams, shard_views, stream_view
from shardway.inspect.reads.paces import ShardPaces
from shardway.inspect.reads.shard_log import LOOKING, refuse_trimmed
from shardway.inspect.reads.wire import ReadingWire
from shardway.inspect.records.reader import get, read
from shardway.inspect.values import (
    ConsumerView,
    Missing,
    StreamFound,
    StreamReport,
    StreamsReport,
    StreamView,
)
from shardway.model import IteratorAt
from shardway.waiting import side_by_side
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
    from types import TracebackType
    from typing import TypeVar

    from shardway.aws.options import ConnectionOptions
    from shardway.errors import ServiceError
    from shardway.inspect.doctor.snapshots import Snapshot
    from shardway.inspect.lag.reports import LagReport, Look
    from shardway.inspect.records.reader import Reading
    from shardway.inspect.records.registries import Registries
    from shardway.inspect.records.seen_records import SeenRecord
    from shardway.model import ListedShard, StreamName

    T = TypeVar("T")


AT_ONCE_MAX = 48
"""Shards that are asked side by side: fewer than the wire has connections."""
PAGES_MAX = 1_000
"""The pages of a listing of streams or consumers, each with 100 entries."""
HEAT_RECORDS_MAX = 20_000
"""The Kinesis records that are read of a shard for its heat, unless the caller gives another bound."""


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

    def make_sibling(self) -> Inspector:
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
        await self.paces.wait_turn(str(stream), shard_id, "GetShardIterator")
        return await self._client.get_shard_iterator(stream, shard_id, at)

    async def page(
        self, stream: StreamName, shard_id: str, iterator: str, *, limit: int | None = None
    ) -> GetRecordsPage:
        """Return the answer of GetRecords, once the shard's share allows the call. Without a ``limit`` the call asks
        for as many records as its share has room for, if they are as large as those that came before.
        """
        await self.paces.wait_turn(str(stream), shard_id, "GetRecords")
        limit = limit or self.paces.page_records(str(stream), shard_id)
        page = await self._client.get_records(iterator, limit=limit, stream=stream)
        payload_bytes = sum(len(one.data) + len(one.partition_key or "") for one in page.records)
        self.paces.note_read(str(stream), shard_id, len(page.records), payload_bytes)
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
        return read(self, stream_name(stream), reading, registries)

    async def record(
        self, stream: str, sequence_number: int, sub_sequence_number: int = 0, *, shard_id: str | None = None
    ) -> SeenRecord:
        """Return one record by its position. Raises NotFoundError when the stream has it no more, OptionError for a
        number that does not tell its shard.
        """
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
