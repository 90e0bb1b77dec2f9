"""Read a stream's records: open aggregates, read shards side by side, and follow reshards.

A shard's records come by polling, or by enhanced fan-out: pushed to a consumer that is registered already.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.kinesis.shapes import GetRecordsPage
from shardway.core.hashkeys import hash_key
from shardway.core.lineage import Lineage
from shardway.core.sequence import shard_id_of, shard_number_of
from shardway.errors import NotFoundError, OptionError
from shardway.inspect.records.fan_out import pushed_pages
from shardway.inspect.records.seen_records import SeenPage, SeenRecord, view
from shardway.inspect.values import Missing
from shardway.model import IteratorAt, Position, Record
from shardway.runtime.feeds.opening import user_records
from shardway.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from shardway.inspect.reads.ports import StreamReads
    from shardway.inspect.records.registries import Registries
    from shardway.model import ListedShard, StreamName


CHOSEN_AT_ONCE_MAX = 10_000
"""The user records of a page among which the event loop chooses by itself."""
SUBSCRIPTIONS_MAX = 48
"""Shards that are read by fan-out at a time. Each subscription has a connection of its own."""


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
    """The name or ARN of a registered consumer that gets the records pushed. None: records are polled."""
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
    inspector: StreamReads, stream: StreamName, reading: Reading, registries: Registries | None = None
) -> AsyncGenerator[SeenRecord, None]:
    """Yield the user records in the order of each shard, parents before their children. A schema that a framing names
    is looked up in ``registries``. Raises ShardwayError.
    """
    async with contextlib.aclosing(read_pages(inspector, stream, reading, registries)) as pages:
        async for page in pages:
            for record in page:
                yield record


async def read_pages(
    inspector: StreamReads, stream: StreamName, reading: Reading, registries: Registries | None = None
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
    inspector: StreamReads, stream: StreamName, sequence_number: int, sub: int, shard_id: str | None
) -> SeenRecord:
    """Return one record by its position. Raises NotFoundError when the stream has it no more."""
    shards = {one.shard_id: one for one in await inspector.shards(stream)}
    shard = shards.get(shard_id or shard_of(sequence_number))
    found = None
    if shard is not None:
        at = IteratorAt.at_sequence(sequence_number)
        iterator = await inspector.iterator(stream, shard.shard_id, at)
        page = await inspector.page(stream, shard.shard_id, iterator, limit=1)
        records = await user_records(view(stream, shard), page.records)
        found = records.at(Position(sequence_number, sub))
    if found is None:
        raise NotFoundError(
            "ResourceNotFoundException",
            f"the stream {stream} has no record {sequence_number}/{sub}: it is trimmed, or was never there",
            operation="GetRecords",
        )
    return SeenRecord(found)


def shard_of(sequence_number: int) -> str:
    """Return the id of the shard that a sequence number belongs to. Raises OptionError where the number does not tell
    its shard.
    """
    number = shard_number_of(sequence_number)
    if number is None:
        raise OptionError(f"the sequence number {sequence_number} does not tell its shard: name it with --shard")
    return shard_id_of(number)


class _Reader:
    """Reads the pages of several shards side by side; a child begins when its parents are read."""

    def __init__(
        self, inspector: StreamReads, stream: StreamName, reading: Reading, shards: Iterable[ListedShard]
    ) -> None:
        self._inspector = inspector
        self._stream = stream
        self._reading = reading
        self._lineage = Lineage(shards)
        self._chosen_shards = self._choose()
        self._begun_shards: set[str] = set()
        self._finished_shards: set[str] = set(self._lineage.shards) - self._chosen_shards
        self._pages: dict[str, Any] = {}
        self._waiting_tasks: dict[asyncio.Task[Any], str] = {}
        self._chooses = (reading.partition_key, reading.until_s, reading.behind) != (None, None, None)
        now_s = inspector.now_s
        self._end_s = reading.until_s if reading.until_s is not None else None if reading.follow else now_s

    async def pages(self) -> AsyncGenerator[SeenPage, None]:
        self._begin_ready(self._reading.starting_position)
        while self._waiting_tasks:
            done, _ = await asyncio.wait(self._waiting_tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                shard_id = self._waiting_tasks.pop(task)
                try:
                    page = task.result()
                except StopAsyncIteration:
                    await self._end(shard_id)
                    continue
                found = await user_records(view(self._stream, self._lineage.shards[shard_id]), page.records)
                yield SeenPage(await self._select(found) if self._chooses else found)
                if self._is_through(page):
                    await self._pages.pop(shard_id).aclose()
                    self._finish(shard_id)
                else:
                    self._ask(shard_id)

    async def close(self) -> None:
        for task in list(self._waiting_tasks):
            await give_up(task)
        self._waiting_tasks.clear()
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
        for shard_id in self._lineage.ready(self._finished_shards):
            if shard_id in self._chosen_shards and shard_id not in self._begun_shards:
                self._begun_shards.add(shard_id)
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
        return pushed_pages(self._inspector, consumer_arn, shard_id, at)

    def _ask(self, shard_id: str) -> None:
        async def next_page() -> Any:
            return await anext(self._pages[shard_id])

        self._waiting_tasks[awaited(next_page())] = shard_id

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
                self._chosen_shards |= wanted
                self._finished_shards |= born - wanted
            else:
                self._finished_shards |= born
        self._finish(shard_id)

    def _choose_born(self, born: set[str]) -> set[str]:
        if self._reading.partition_key is None:
            return born
        hashed = hash_key(self._reading.partition_key)
        return {one for one in born if self._lineage.shards[one].holds(hashed)}

    def _finish(self, shard_id: str) -> None:
        self._finished_shards.add(shard_id)
        # A child is read from its oldest record on, unless the reading begins at a time, which holds for all shards.
        at = self._reading.starting_position
        self._begin_ready(at if at.timestamp_s is not None else IteratorAt.trim_horizon())

    async def _select(self, records: Sequence[Record]) -> list[Record]:
        """Return the records that are chosen. Aggregates may make millions of a page, and looking at them takes seconds
        then: it is done in a thread.
        """
        if len(records) <= CHOSEN_AT_ONCE_MAX:
            return [one for one in records if self._wants(one)]
        return await asyncio.to_thread(lambda: [one for one in records if self._wants(one)])

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
