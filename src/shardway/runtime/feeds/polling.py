"""A feed that polls one shard: GetRecords again and again, in the rhythm that its pace and its room allow."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

from shardway.core.log.feed_cursor import TO_COME_MAX_S, Refusal
from shardway.core.log.pace import PollingOptions, PollPace
from shardway.core.log.pages import Retention
from shardway.core.sequence import shard_id_number
from shardway.errors import (
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ShardwayError,
    ThrottledError,
)
from shardway.events import AggregatesOutsideRange, CheckpointTrimmed, ReadFailed, ReadRefused
from shardway.runtime.feeds.opening import opened_ahead

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from shardway.core.log.buffer import Buffer
    from shardway.core.log.feed_cursor import FeedCursor, PageMeaning
    from shardway.core.log.pages import ReadPage
    from shardway.events import FeedEvent
    from shardway.ports import RecordSource


class FetchRoom:
    """A shard's share of its consumer's buffer, for a task that waits for room in it."""

    def __init__(self, buffer: Buffer) -> None:
        self._wake_event = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.share = buffer.share(self._wake)
        """The shard's share of the buffer. It is told what is held, and `Share.leave` when the shard is let go."""
        self._is_behind = False

    def _wake(self) -> None:
        """Wake the task that waits, as there may be room: also where another thread than the loop's settled a
        record.
        """
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - None where there is none
            self._wake_event.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_event.set)

    async def wait(self) -> int:
        """Wait until records may be fetched, and return how many Kinesis records may be. Their room is reserved until
        `came`.
        """
        while (records_max := self.share.ask(behind=self._is_behind)) is None:
            self._wake_event.clear()
            await self._wake_event.wait()
        return records_max

    def came(self, page: ReadPage | None, taken: PageMeaning | None) -> None:
        """Take note of a page that came; None: none came."""
        if page is not None:
            self._is_behind = bool(page.millis_behind_latest)
        self.share.came(
            0 if page is None or taken is None else len(page.records), 0 if taken is None else taken.records.held_bytes
        )


def refused_start(
    error: InvalidArgumentError, refusal: Refusal, cursor: FeedCursor, now_s: float
) -> InvalidArgumentError:
    """Return the error that the service refused a reader's start with. It is ``retryable`` where the start is a time
    that the reader waits for, and says what happens until then where that is long.
    """
    at_s, error.retryable = cursor.asked_for_s, error.retryable or refusal is Refusal.TO_COME
    if at_s is None or not error.retryable or at_s - now_s <= TO_COME_MAX_S:
        return error
    error.service_message = (
        f"it begins at {dt.datetime.fromtimestamp(at_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}, which is {at_s - now_s:,.0f} s "
        f"ahead of the service's clock. The shard waits until then, and nothing that arrives before is read. Where a "
        f"wrong clock wrote this time, move the shard with `shardway app seek` ({error.service_message})"
    )
    return error


class PollingFeed:
    """Pages of one shard, as its cursor wants them. One task uses it; a cancelled `next` loses nothing."""

    def __init__(
        self,
        source: RecordSource,
        cursor: FeedCursor,
        *,
        rng: Random,
        on_event: Callable[[FeedEvent], None],
        options: PollingOptions | None = None,
        retention: Retention | None = None,
        room: FetchRoom | None = None,
    ) -> None:
        """``retention`` is the stream's; None: it is not known. ``room`` is the shard's part of the consumer's buffer,
        which says how much may be fetched; None: nothing bounds that here.
        """
        self.room = room
        """The room that is waited for before each page, by whatever feed goes on with the shard."""
        self.pace = PollPace(options or PollingOptions(), rng)
        self.cursor = cursor
        """The cursor that knows how far the shard is read: another feed may go on with it."""
        self.source = source
        """The source from which the shard is read."""
        self.rng = rng
        """The source of chance for pauses."""
        self.retention = retention or Retention()
        """The retention, which says how old a record may be to be there."""
        self.on_event = on_event
        """The function that hears the feed's events."""
        self._iterator: str | None = None
        self._refused_since_s: float | None = None

    async def next(self) -> PageMeaning:
        """Return the next page: maybe an empty one, and after the last one (``ended``) none.

        What may pass (``retryable``) is repeated without end, and each time an event says so. Raises what does not
        pass: NotFoundError when the stream is gone, AccessDeniedError, CredentialsError, InvalidArgumentError (a time
        that is soon to come passes); and AggregateError, if the options ask for it.
        """
        loop = asyncio.get_running_loop()
        while True:
            if wait_s := self.pace.wait_s(loop.time()):
                await asyncio.sleep(wait_s)
            records_max = self.pace.options.request_records_max
            if self.room is not None:
                records_max = min(records_max, await self.room.wait())
            try:
                taken = await self._read(records_max)
            except ExpiredIteratorError:
                self._iterator = None
            except NotFoundError:
                if not await self._is_trimmed():
                    raise
                taken = self.cursor.gone(horizon_s=self.horizon_s)
                emit_taken(self.source.stream, self.shard_id, taken, self.on_event)
                return taken
            except ThrottledError:
                self.pace.refused(now_s := loop.time())
                self._refused_since_s = now_s if self._refused_since_s is None else self._refused_since_s
                refused_for_s, wait_s = now_s - self._refused_since_s, self.pace.wait_s(now_s)
                self.on_event(
                    ReadRefused(self.source.stream, self.shard_id, self.pace.calls_per_s, wait_s, refused_for_s)
                )
            except ShardwayError as error:
                if not error.retryable:
                    raise
                self.pace.failed(now_s := loop.time())
                code = error.code if isinstance(error, ServiceError) else type(error).__name__
                wait_s = self.pace.wait_s(now_s)
                self.on_event(ReadFailed(self.source.stream, self.shard_id, code, wait_s, str(error)))
            else:
                self._refused_since_s = None
                if taken is not None:
                    emit_taken(self.source.stream, self.shard_id, taken, self.on_event)
                    return taken

    @property
    def stream(self) -> str:
        """The feed's stream, as the source names it."""
        return self.source.stream

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self.cursor.shard_id

    @property
    def horizon_s(self) -> float | None:
        """The oldest arrival time that the retention covers (epoch seconds), if it is known."""
        return self.retention.horizon_s(self.source.now_s)

    def use_room(self, room: FetchRoom | None) -> None:
        """Go on with the room of the feed that read the shard before."""
        self.room = room

    def forget_iterator(self) -> None:
        """Ask for a new iterator: others have moved the cursor."""
        self._iterator = None

    async def close(self) -> None:
        """Do nothing: a feed that polls holds nothing open."""

    async def _read(self, records_max: int) -> PageMeaning | None:
        try:
            if self._iterator is None:
                self._iterator = await self._ask()
            sent_s, asked_s = asyncio.get_running_loop().time(), self.source.now_s
            page = await self.source.read(self._iterator, records_max)
            before = await opened_ahead(self.cursor.view, page.records)
        except BaseException:
            if self.room is not None:
                self.room.came(None, None)
            raise
        taken = self.cursor.take(page, horizon_s=self.horizon_s, asked_s=asked_s, before=before)
        size = _payload_bytes(page, taken)
        # Records may be empty, and a shard that has some is not silent.
        busy = size or len(page.records)
        self.pace.answered(sent_s=sent_s, payload_bytes=busy, at_tip=not page.millis_behind_latest)
        self.cursor.payload_bytes += size
        if self.room is not None:
            self.room.came(page, taken)
        self._iterator = None if taken is None else page.next_iterator
        return taken

    async def _is_trimmed(self) -> bool:
        """True when the stream is there, and this shard is older than all that is left of it."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                listed = [shard.shard_id for shard in await self.source.shards()]
                break
            except ShardwayError as error:
                if not error.retryable:
                    raise
                self.pace.failed(loop.time())
                await asyncio.sleep(self.pace.wait_s(loop.time()))
        number = shard_id_number(self.shard_id)
        newest = max((one for shard_id in listed if (one := shard_id_number(shard_id)) is not None), default=-1)
        return self.shard_id not in listed and number is not None and number < newest

    async def _ask(self) -> str:
        source, cursor = self.source, self.cursor
        try:
            return await source.iterator(cursor.shard_id, cursor.start(source.now_s, horizon_s=self.horizon_s))
        except InvalidArgumentError as error:
            refusal = cursor.take_refusal(source.now_s)
            if refusal is not Refusal.TRIMMED:
                raise refused_start(error, refusal, cursor, source.now_s) from None
        return await source.iterator(cursor.shard_id, cursor.start(source.now_s))


def _payload_bytes(page: ReadPage, taken: PageMeaning | None) -> int:
    """Return the bytes of a page's data. Where each record is one for users, their column is there already."""
    if taken is not None and len(taken.records) == len(page.records):
        return taken.records.payload_bytes
    return sum([len(raw.data) for raw in page.records])


def emit_taken(stream: str, shard_id: str, taken: PageMeaning, on_event: Callable[[FeedEvent], None]) -> None:
    """Emit what was noticed in a page."""
    if taken.outside:
        on_event(AggregatesOutsideRange(stream, shard_id, taken.outside, taken.dropped))
    if (trimmed := taken.trimmed) is not None:
        on_event(CheckpointTrimmed(stream, shard_id, trimmed.position, trimmed.resumes_at, trimmed.surely_nothing_lost))
