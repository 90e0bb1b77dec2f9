"""Read a stream's records: open aggregates, read shards side by side, and follow reshards.

A shard's records come by polling, or by enhanced fan-out: pushed to a consumer that is registered already. A shard has
one subscription of each consumer. A new subscription ends the one before, so the consumer should be one that no other
program is using; where two programs fight over a shard, InUseError says so.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec

from shardway.aws.kinesis import GetRecordsPage
from shardway.aws.record_streams import KinesisSource
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.hashkeys import hash_key
from shardway.core.lineage import Lineage
from shardway.core.log.cursor import LogCursor, Policy, latest_s
from shardway.core.log.transitions import NextStep
from shardway.core.log.user_records import ShardView, UserRecords, opened
from shardway.core.sequence import shard_id_of, shard_number_of
from shardway.errors import InUseError, NotFoundError, OptionError, ThrottledError, TransportError, UnavailableError
from shardway.inspect.decoding import Decoded, decode, framing
from shardway.inspect.inspector import refuse_trimmed
from shardway.inspect.registries import opened_by
from shardway.inspect.values import Missing
from shardway.model import IteratorAt, Position, Record
from shardway.tasks import awaited, give_up
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

    from shardway.aws.kinesis import WireRecord
    from shardway.core.log.pages import RawRecord
    from shardway.core.log.user_records import Inner
    from shardway.inspect.inspector import Inspector
    from shardway.inspect.registries import Registries, Schema
    from shardway.model import ListedShard, StreamName


PART_S = 0.05
"""Seconds for which records are looked at before other work on the event loop has its turn."""
AGGREGATE_BYTES_MIN = 128 * 1024
"""A page with fewer bytes of aggregates is opened at once."""
SUBSCRIPTIONS_MAX = 48
"""Shards that are read by fan-out at a time. Each subscription has a connection of its own."""


class SeenRecord:
    """A user record, and what is inside of it. What was decoded stays with it: a record of 16 KB may hold 100 MB so,
    and whatever keeps many records keeps those that were not decoded, or what it made of them.
    """

    def __init__(self, record: Record, opens: Callable[[Decoded], Decoded] | None = None) -> None:
        """``opens``: decodes what stands behind the framing of a schema registry."""
        self.record = record
        self._opens = opens

    @property
    def shard_id(self) -> str:
        """The shard that it was read from."""
        return self.record.shard_id

    @property
    def partition_key(self) -> str:
        """The record's partition key; empty where the record has none."""
        return self.record.partition_key or ""

    @property
    def data(self) -> bytes:
        """The record's data as it was put."""
        return self.record.data

    @property
    def arrived_at(self) -> dt.datetime:
        """The service's time at which the record arrived, in UTC."""
        return self.record.approximate_arrival_timestamp

    @cached_property
    def decoded(self) -> Decoded:
        """What is inside of the data."""
        found = decode(self.record.data)
        return found if self._opens is None else self._opens(found)

    def to_line(self, *, with_decoded: bool = False) -> RecordLine:
        """Return the record as a line of JSON, which ``shardway put --format records`` takes back byte for byte."""
        record, key = self.record, self.partition_key
        inner: Inner | None = None
        if record.aggregated:
            inner = (record.sub_sequence_number, key, record.explicit_hash_key, record.tags)
        line = _line(record.shard_id, str(record.sequence_number), inner, self.arrived_at, key, record.data)
        if not with_decoded:
            return line
        found = self.decoded
        steps = [msgspec.to_builtins(step) for step in found.steps]
        inside = {"value": found.value} if found.is_json else {"text": found.shown}
        return msgspec.structs.replace(line, decoded={"steps": steps, **inside})


class RecordLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a line of JSON. It has either ``data``, where the data is UTF-8, or ``data_base64``."""

    shard_id: str
    sequence_number: str
    sub_sequence_number: int | msgspec.UnsetType = msgspec.UNSET
    """The record's index in its aggregate; unset where the record came out of none."""
    arrived_at: dt.datetime
    partition_key: str
    explicit_hash_key: str | msgspec.UnsetType = msgspec.UNSET
    """The explicit hash key, which is known of records out of aggregates alone: Kinesis does not return it."""
    data: str | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | msgspec.UnsetType = msgspec.UNSET
    decoded: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What is inside of the data; unset unless the caller asked for it."""


def _line(
    shard_id: str,
    number: str,
    inner: Inner | None,
    arrived_at: dt.datetime,
    key: str,
    data: bytes,
) -> RecordLine:
    """Return a record as a line. ``inner``: what the record's aggregate says of the record; None: it has none."""
    text, encoded = _texts(data)
    if inner is None:
        return RecordLine(
            shard_id=shard_id,
            sequence_number=number,
            arrived_at=arrived_at,
            partition_key=key,
            data=text,
            data_base64=encoded,
        )
    sub, key, explicit, _ = inner
    return RecordLine(
        shard_id=shard_id,
        sequence_number=number,
        sub_sequence_number=sub,
        arrived_at=arrived_at,
        partition_key=key,
        explicit_hash_key=msgspec.UNSET if explicit is None else str(explicit),
        data=text,
        data_base64=encoded,
    )


def _texts(data: bytes) -> tuple[str | msgspec.UnsetType, str | msgspec.UnsetType]:
    try:
        return data.decode(), msgspec.UNSET
    except UnicodeDecodeError:
        return msgspec.UNSET, base64.b64encode(data).decode()


class SeenPage:
    """User records of one shard that came together, in their order. A record is made when the caller looks at it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._opens: Callable[[Decoded], Decoded] | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[SeenRecord]:
        return (SeenRecord(record, self._opens) for record in self._records)

    async def open_by(self, registries: Registries) -> None:
        """Look up the schemas that the records' framings name. The records are decoded by them when the caller comes to
        each: a page that was decoded as a whole would take any amount of memory.
        """
        known: dict[tuple[str, str], Schema | None] = {}
        end_s = time.monotonic() + PART_S
        for record in self._records:
            if (step := framing(record.data)) is not None:
                key = step.kind, step.schema_id or ""
                if key not in known:
                    known[key] = await registries.schema(*key)
            if time.monotonic() >= end_s:
                await asyncio.sleep(0)
                end_s = time.monotonic() + PART_S
        self._opens = lambda found: opened_by(known, found)

    def lines(self, first: int = 0, end: int | None = None) -> list[RecordLine]:
        """Return what `SeenRecord.to_line` makes of each record from ``first`` up to ``end``, in less time."""
        records = self._records[first:end]
        if not isinstance(records, UserRecords):
            return [SeenRecord(record).to_line() for record in records]
        at, shard_id, found = dt.datetime.fromtimestamp, records.shard_id, []
        for raw, inner, data in records.columns():
            arrived_at = at(raw.approximate_arrival_timestamp, dt.UTC)
            # Some emulators pad their numbers with zeros.
            number, key = raw.sequence_number.lstrip("0") or "0", raw.partition_key or ""
            found.append(_line(shard_id, number, inner, arrived_at, key, data))
        return found


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What to read. A reading without a bound of time ends at the tip, as the tip was when the reading began."""

    starting_position: IteratorAt
    behind: Position | None = None
    """A record at the starting position: the reading leaves out this record and what its aggregate has before it."""
    shards: tuple[str, ...] = ()
    """The ids of the shards to read. Empty: the shards follow from the starting position."""
    partition_key: str | None = None
    """Only records with this key are read, out of the shards that its hash key belongs to. None: all keys."""
    until_s: float | None = None
    """Epoch seconds: records that arrived later are left out. None: there is no such bound."""
    follow: bool = False
    """True: the reading goes on at the tip, and through reshards, until the caller stops."""
    fan_out: str | None = None
    """The name or ARN of a registered consumer, to which records are pushed. None: records are polled."""
    is_patient: bool = False
    """True: refusals for the rate do not end the reading; they are noted in the inspector's `missing`."""


class ShardCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the chosen user records a shard has."""

    shard_id: str
    user_records: int
    payload_bytes: int


class CountReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the chosen user records a stream has."""

    schema: str = "shardway.count/1"
    stream: str
    user_records: int
    payload_bytes: int
    shards: list[ShardCount]
    """The shards that have any such record."""
    missing: list[Missing]
    calls: dict[str, int]


async def read(
    inspector: Inspector, stream: StreamName, reading: Reading, registries: Registries | None = None
) -> AsyncGenerator[SeenRecord, None]:
    """Yield the user records in the order of each shard, parents before their children. A schema that a framing names
    is looked up in ``registries``. Raises ShardwayError.
    """
    async with contextlib.aclosing(read_pages(inspector, stream, reading, registries)) as pages:
        async for page in pages:
            for record in page:
                yield record


async def read_pages(
    inspector: Inspector, stream: StreamName, reading: Reading, registries: Registries | None = None
) -> AsyncGenerator[SeenPage, None]:
    """Yield the records of `read` page by page, as the pages come; a page may have no record."""
    if reading.fan_out is not None:
        reading = msgspec.structs.replace(reading, fan_out=await inspector.consumer_arn(stream, reading.fan_out))
    reader = _Reader(inspector, stream, reading, await inspector.shards(stream))
    try:
        async for page in reader.pages():
            if registries is not None:
                await page.open_by(registries)
            yield page
    finally:
        await reader.close()


async def get(
    inspector: Inspector, stream: StreamName, sequence_number: int, sub: int, shard_id: str | None
) -> SeenRecord:
    """Return one record by its position. Raises NotFoundError when the stream has it no more."""
    shards = {one.shard_id: one for one in await inspector.shards(stream)}
    shard = shards.get(shard_id or shard_of(sequence_number))
    found: Sequence[Record] = ()
    if shard is not None:
        at = IteratorAt.at_sequence(sequence_number)
        iterator = await inspector.iterator(stream, shard.shard_id, at)
        page = await inspector.page(stream, shard.shard_id, iterator, limit=1)
        records = await user_records(_view(stream, shard), page.records)
        found = [one for one in records if (one.sequence_number, one.sub_sequence_number) == (sequence_number, sub)]
    if not found:
        raise NotFoundError(
            "ResourceNotFoundException",
            f"the stream {stream} has no record {sequence_number}/{sub}: it is trimmed, or was never there",
            operation="GetRecords",
        )
    return SeenRecord(found[0])


def shard_of(sequence_number: int) -> str:
    """Return the id of the shard that a sequence number belongs to. Raises OptionError where the number does not tell
    its shard.
    """
    number = shard_number_of(sequence_number)
    if number is None:
        raise OptionError(f"the sequence number {sequence_number} does not tell its shard: name it with --shard")
    return shard_id_of(number)


def _view(stream: StreamName, shard: ListedShard) -> ShardView:
    return ShardView(stream.short, shard.shard_id, shard.first_hash_key, shard.last_hash_key)


async def user_records(shard: ShardView, raws: Sequence[RawRecord]) -> UserRecords:
    """Return the user records of a page. Aggregates of many small records take a second or two, so they are opened in
    a thread.
    """
    if sum(len(raw.data) for raw in raws if raw.data.startswith(MAGIC)) < AGGREGATE_BYTES_MIN:
        return opened(shard, raws).records
    return (await asyncio.to_thread(opened, shard, raws)).records


class _Reader:
    """Reads the pages of several shards side by side; a child begins when its parents are read."""

    def __init__(
        self, inspector: Inspector, stream: StreamName, reading: Reading, shards: Iterable[ListedShard]
    ) -> None:
        self._inspector = inspector
        self._stream = stream
        self._reading = reading
        self._lineage = Lineage(shards)
        self._chosen = self._choose()
        self._begun: set[str] = set()
        self._finished: set[str] = set(self._lineage.shards) - self._chosen
        self._pages: dict[str, Any] = {}
        self._waiting: dict[asyncio.Task[Any], str] = {}
        self._chooses = (reading.partition_key, reading.until_s, reading.behind) != (None, None, None)
        now_s = inspector.now_s
        self._end_s = reading.until_s if reading.until_s is not None else None if reading.follow else now_s

    async def pages(self) -> AsyncGenerator[SeenPage, None]:
        self._begin_ready(self._reading.starting_position)
        while self._waiting:
            done, _ = await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                shard_id = self._waiting.pop(task)
                try:
                    page = task.result()
                except StopAsyncIteration:
                    await self._end(shard_id)
                    continue
                found = await user_records(_view(self._stream, self._lineage.shards[shard_id]), page.records)
                yield SeenPage([one for one in found if self._wants(one)] if self._chooses else found)
                if self._is_through(page):
                    await self._pages.pop(shard_id).aclose()
                    self._finish(shard_id)
                else:
                    self._ask(shard_id)

    async def close(self) -> None:
        for task in list(self._waiting):
            await give_up(task)
        self._waiting.clear()
        for pages in self._pages.values():
            await pages.aclose()

    def _choose(self) -> set[str]:
        reading, shards = self._reading, self._lineage.shards
        if reading.starting_position.sequence_number is not None and not reading.shards:
            first = shard_of(reading.starting_position.sequence_number)
            chosen = {first, *(self._lineage.descendants([first]) if first in shards else ())}
        elif reading.shards:
            chosen = set(reading.shards)
        elif reading.starting_position.type == "LATEST":
            chosen = {one.shard_id for one in shards.values() if not one.closed}
        else:
            chosen = set(shards)
        if unknown := chosen.difference(shards):
            raise OptionError(f"the stream {self._stream} has no shard {min(unknown)}")
        if reading.partition_key is not None:
            hashed = hash_key(reading.partition_key)
            chosen = {one for one in chosen if shards[one].holds(hashed)}
        return chosen

    def _begin_ready(self, at: IteratorAt) -> None:
        for shard_id in self._lineage.ready(self._finished):
            if shard_id in self._chosen and shard_id not in self._begun:
                self._begun.add(shard_id)
                self._pages[shard_id] = self._read(shard_id, at)
                self._ask(shard_id)

    def _read(self, shard_id: str, at: IteratorAt) -> AsyncGenerator[GetRecordsPage, None]:
        consumer_arn = self._reading.fan_out
        if consumer_arn is None:
            return self._inspector.pages(self._stream, shard_id, at, is_patient=self._reading.is_patient)
        if len(self._pages) >= SUBSCRIPTIONS_MAX:
            raise OptionError(
                f"{SUBSCRIPTIONS_MAX} shards can be read by fan-out at a time: choose them (--shard), or poll"
            )
        return pushed(self._inspector, consumer_arn, shard_id, at)

    def _ask(self, shard_id: str) -> None:
        async def following() -> Any:
            return await anext(self._pages[shard_id])

        self._waiting[awaited(following())] = shard_id

    async def _end(self, shard_id: str) -> None:
        """Note that a shard is read to its end, and begin its children, if the reading follows reshards."""
        self._pages.pop(shard_id, None)
        if self._reading.follow:
            listed = await self._inspector.shards(self._stream)
            known = set(self._lineage.shards)
            self._lineage = self._lineage.including(listed)
            born = set(self._lineage.shards) - known
            if not self._reading.shards:
                wanted = self._choose_born(born)
                self._chosen |= wanted
                self._finished |= born - wanted
            else:
                self._finished |= born
        self._finish(shard_id)

    def _choose_born(self, born: set[str]) -> set[str]:
        if self._reading.partition_key is None:
            return born
        hashed = hash_key(self._reading.partition_key)
        return {one for one in born if self._lineage.shards[one].holds(hashed)}

    def _finish(self, shard_id: str) -> None:
        self._finished.add(shard_id)
        # A child is read from its oldest record on, unless the reading begins at a time, which holds for all shards.
        at = self._reading.starting_position
        self._begin_ready(at if at.timestamp_s is not None else IteratorAt.trim_horizon())

    def _wants(self, record: Record) -> bool:
        key, until_s, behind = self._reading.partition_key, self._reading.until_s, self._reading.behind
        if (
            behind is not None
            and record.sequence_number == behind.sequence_number
            and record.sub_sequence_number <= behind.sub_sequence_number
        ):
            return False
        if key is not None and record.partition_key != key:
            return False
        return until_s is None or record.approximate_arrival_timestamp.timestamp() <= until_s

    def _is_through(self, page: Any) -> bool:
        if page.next_shard_iterator is None or self._end_s is None:
            return False  # the pages themselves say where the shard ends
        if page.records and page.records[-1].approximate_arrival_timestamp > self._end_s:
            return True
        # At the tip nothing that arrived up to this time is still to come, once that time has passed.
        return page.millis_behind_latest == 0 and self._inspector.now_s >= self._end_s


# --- pushed by fan-out ----------------------------------------------------------------------------

PUSHING = Policy()
AGAIN_S = 1.0
"""Seconds between two attempts. A shard gives a consumer no other subscription for five seconds."""
TRIES_MAX = 10
"""Attempts in a row that may bring nothing."""
SHORT_S = 30.0
"""A subscription lasts five minutes. One that ends sooner than this was taken by another program, or broke off."""
SHORT_MAX = 3
"""Short subscriptions in a row. More of them say that another program reads by the same consumer."""


async def pushed(
    inspector: Inspector, consumer_arn: str, shard_id: str, at: IteratorAt
) -> AsyncGenerator[GetRecordsPage, None]:
    """Yield the pages of a shard to its end, as they are pushed; `Inspector.pages` polls for the same. Raises
    ShardwayError, and InUseError where another program reads by the consumer.
    """
    stream = stream_name(consumer_arn.partition("/consumer/")[0])
    source = KinesisSource(stream, inspector.wire.options, inspector.wire)
    log, tries, short = LogCursor(PUSHING, begin=at), 0, 0
    clock = asyncio.get_running_loop().time
    while True:
        place = log.ask()
        if place == IteratorAt.latest():
            place = log.begin = IteratorAt.at_timestamp(latest_s(inspector.now_s))
        began_s = clock()
        try:
            async with contextlib.aclosing(source.subscribe(consumer_arn, shard_id, place)) as events:
                async for event in events:
                    tries = 0
                    step = log.page(event.records, behind_ms=event.millis_behind_latest, is_last=event.is_last)
                    log.continues_at(None if event.continuation is None else int(event.continuation))
                    following = None if event.is_last else "pushed"
                    records = cast("list[WireRecord]", list(event.records))  # a subscription brings such records
                    yield GetRecordsPage(records, following, event.millis_behind_latest)
                    if step.does is NextStep.STOP:
                        return
                    refuse_trimmed(log, at, event.millis_behind_latest, f"{shard_id} of {stream}")
        except (InUseError, ThrottledError, TransportError, UnavailableError):
            tries += 1
            if tries >= TRIES_MAX:
                raise
            await asyncio.sleep(AGAIN_S)
            continue
        short = short + 1 if clock() - began_s < SHORT_S else 0
        if short > SHORT_MAX:
            name = consumer_arn.rpartition("/consumer/")[2].partition(":")[0]
            raise InUseError(
                "ResourceInUseException",
                f"subscriptions to {shard_id} of {stream} end at once: another program reads by the consumer {name}",
                operation="SubscribeToShard",
            )
        await asyncio.sleep(AGAIN_S)
