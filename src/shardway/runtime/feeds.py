"""Feeds read the records of one shard, in order, from a place on, by polling or by enhanced fan-out; and pages go from
a feed to the shard's machine.

A feed holds nothing back: the shard's reader asks for the next page, and so decides how much is fetched ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

import msgspec

from shardway.core.feeding.allowance import PollingOptions, PollPace
from shardway.core.feeding.pages import OPENED_AT_ONCE_BYTES_MAX, Retention, UserRecords, aggregate_bytes_of, open_all
from shardway.core.leases.row import Checkpoint
from shardway.core.ledger.book import Delivery, R, behind
from shardway.core.ledger.grouping import PARTS_MAX, Part, split
from shardway.core.ledger.policies import DeadLetters, Skip, Stop
from shardway.core.pacing import Backoff
from shardway.core.sequence import shard_id_number
from shardway.core.shard.duplicates import PageRead
from shardway.core.shard.machine import PageCame
from shardway.errors import (
    AccessDeniedError,
    ExpiredIteratorError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnreadableRecordError,
)
from shardway.events import (
    AggregatesOutsideRange,
    CheckpointTrimmed,
    FanOutLeft,
    FanOutReturned,
    ReadFailed,
    ReadRefused,
)
from shardway.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
    from random import Random

    from shardway.core.feeding.allowance import Buffer
    from shardway.core.feeding.pages import FeedCursor, OpenedRecords, PageMeaning, RawRecord, ReadPage, ShardView
    from shardway.core.shard.duplicates import Admit, Duplicates
    from shardway.events import FeedEvent
    from shardway.model import Position, Record
    from shardway.ports import RecordSource
    from shardway.runtime.shard.window_reading import WindowRead


# --- polling --------------------------------------------------------------------------------------


class FetchRoom:
    """A shard's share of its consumer's buffer, for a task that waits for room in it."""

    def __init__(self, buffer: Buffer) -> None:
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.share = buffer.share(self._wake)
        """The shard's share of the buffer. It is told what is held, and `Share.leave` when the shard is let go."""
        self._is_behind = False

    def _wake(self) -> None:
        """Wake the task that waits, as there may be room: also where another thread than the loop's settled a
        record.
        """
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - None where there is none
            self._woken.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self) -> int:
        """Wait until records may be fetched, and return how many Kinesis records may be. Their room is reserved until
        `came`.
        """
        while (records_max := self.share.ask(behind=self._is_behind)) is None:
            self._woken.clear()
            await self._woken.wait()
        return records_max

    def came(self, page: ReadPage | None, taken: PageMeaning | None) -> None:
        """Take note of a page that came; None: none came."""
        if page is not None:
            self._is_behind = bool(page.millis_behind_latest)
        self.share.came(
            0 if page is None or taken is None else len(page.records), 0 if taken is None else taken.records.held_bytes
        )


async def opened_ahead(shard: ShardView, raws: Sequence[RawRecord]) -> OpenedRecords | None:
    """Open the aggregates of a page in a thread, where they are large: ten of 1 MiB take a second or two, in which the
    loop could not renew a lease. Return None where they may be opened at once.
    """
    aggregate_bytes = aggregate_bytes_of(raws)
    if aggregate_bytes <= OPENED_AT_ONCE_BYTES_MAX:
        return None if aggregate_bytes else ()
    return await asyncio.to_thread(open_all, shard, raws)


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
        pass: NotFoundError when the stream is gone, AccessDeniedError, CredentialsError, InvalidArgumentError; and
        AggregateError, if the options ask for it.
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
        except InvalidArgumentError:
            if not cursor.refused():
                raise
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


# --- enhanced fan-out -----------------------------------------------------------------------------
# A shard is read by SubscribeToShard, and by polling where that does not work. AWS ends a subscription after five
# minutes; refuses a second one to the same shard within five seconds of the first, and lets a later one take the shard
# over from it. A connection can fall silent without an end.


RENEW_AFTER_S = 280.0
"""The age at which the consumer renews a subscription. AWS ends one after 300 s."""
RENEW_JITTER_S = 60.0
"""The consumer renews a subscription up to this much earlier, so that a thousand shards are not renewed in one
moment.
"""
AGAIN_AFTER_S = 5.0
"""The time between two subscriptions to a shard: AWS refuses one within five seconds after one that succeeded."""
SILENCE_MAX_S = 15.0
"""A connection without an event for this long counts as dead: a shard without records sends an event each five
seconds.
"""
FAILURES_MAX = 3
"""After this many failures in a row the consumer polls the shard."""
RETURN_AFTER_S = 60.0
"""The seconds for which the consumer then polls the shard before the next try to subscribe; the time is random, up to
double that.
"""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 5.0
"""The pause after each earlier failure is random, up to a bound that doubles from the first time to the second."""
BRIDGE_INTERVAL_S = 0.21
"""The time between two polls while the shard waits for its subscription: where consumers subscribe, few others use the
shard's calls. If the interval of `PollingOptions` is shorter, that one applies.
"""


@dataclass(frozen=True, kw_only=True)
class SubscriptionTimes:
    """The times at which a subscription is renewed, given up, and tried again: AWS sets them, so no option says
    otherwise.
    """

    renew_after_s: float = RENEW_AFTER_S
    renew_jitter_s: float = RENEW_JITTER_S
    again_after_s: float = AGAIN_AFTER_S
    silence_max_s: float = SILENCE_MAX_S
    failures_max: int = FAILURES_MAX
    return_after_s: float = RETURN_AFTER_S
    backoff_s: float = BACKOFF_S
    backoff_max_s: float = BACKOFF_MAX_S
    bridge_interval_s: float = BRIDGE_INTERVAL_S


BUFFERED_S = 0.5
"""The seconds below which an event that comes may have been on its way when it was asked for."""


class SubscriptionGate:
    """Lets at most ``per_s`` subscriptions start per second, of all shards of a process together."""

    def __init__(self, per_s: float = 10.0) -> None:
        if per_s <= 0:
            raise ValueError("per_s must be above zero")
        self._interval_s = 1 / per_s
        self._next_s = float("-inf")

    def turn_s(self) -> float:
        """Return when the caller's turn is, on the loop's clock. Each call is given a turn of its own."""
        at_s = max(self._next_s, asyncio.get_running_loop().time())
        self._next_s = at_s + self._interval_s
        return at_s


class Registration(NamedTuple):
    """The way in which the shards of a stream are subscribed to."""

    consumer_arn: str | None
    """The ARN of the consumer that is registered for it; None: none could be."""
    gate: SubscriptionGate
    times: SubscriptionTimes
    find: Callable[[], Awaitable[str | None]] | None = None
    """A function that finds the ARN that is registered under the name by now. It is called when there was none, or the
    consumer is gone. It may raise ThrottledError, where the stream has as many consumers as it may.
    """


class FanOutFeed:
    """Pages of one shard as they are pushed. One task uses it; a cancelled `next` loses nothing.

    While a subscription is waited for, the shard is polled: the former owner's subscription may be younger than five
    seconds, so that AWS refuses a new one.
    """

    def __init__(self, polling: PollingFeed, registration: Registration) -> None:
        """Go on where the shard was polled, with the same room: a subscription is not read on while there is none."""
        self.times = registration.times
        self._registration = registration
        self._consumer_arn = registration.consumer_arn
        self._consumer_is_gone = False
        self._cursor, self._source, self._rng = polling.cursor, polling.source, polling.rng
        self._on_event = polling.on_event
        self._backoff = Backoff(base_s=self.times.backoff_s, cap_s=self.times.backoff_max_s, rng=self._rng)
        self._poll_options = options = polling.pace.options
        bridge_interval_s = min(options.interval_s, self.times.bridge_interval_s)
        self._bridge_options = msgspec.structs.replace(options, interval_s=bridge_interval_s)
        self._polling = PollingFeed(
            self._source,
            self._cursor,
            rng=self._rng,
            on_event=self._on_event,
            options=self._bridge_options,
            retention=polling.retention,
            room=polling.room,
        )
        self.room = polling.room
        self._subscription: AsyncGenerator[ReadPage, None] | None = None
        self._waiting: asyncio.Task[ReadPage] | None = None
        self._asked_s: float | None = None  # The service's time at which the last event was not there yet.
        self._unopened: ReadPage | None = None  # The page that is being opened.
        self._is_over = False  # True: the subscription has nothing more to give.
        self._subscribed_s = float("-inf")
        self._renew_at_s = 0.0
        self._try_at_s = float("-inf")  # The shard is polled until then.
        self._has_turn = False
        self._left = False  # True: an event said that the shard is polled.

    @property
    def stream(self) -> str:
        """The feed's stream, as the source names it."""
        return self._source.stream

    @property
    def shard_id(self) -> str:
        """The shard that is read."""
        return self._cursor.shard_id

    @property
    def cursor(self) -> FeedCursor:
        """The cursor that knows how far the shard is read."""
        return self._cursor

    def use_room(self, room: FetchRoom | None) -> None:
        """See `PollingFeed.use_room`: this does the same."""
        self.room = room
        self._polling.use_room(room)

    async def next(self) -> PageMeaning:
        """See `PollingFeed.next`: this does the same for pages that are pushed."""
        loop = asyncio.get_running_loop()
        while True:
            # AWS refuses a subscription for five seconds after a former owner's has begun: without polls the shard
            # would stand still until then.
            if self._unopened is None and loop.time() < self._try_at_s:
                return await self._polling.next()
            if self.room is not None and self._unopened is None:
                await self.room.wait()
            try:
                page = self._unopened or await self._pushed()
            except ShardwayError as error:
                await self._failed(error)
                continue
            if page is None:
                continue
            if self._left:
                self._left = False
                self._polling.pace.options = self._bridge_options
                self._on_event(FanOutReturned(self._source.stream, self.shard_id))
            self._backoff.reset()
            # A caller that is cancelled while the page is opened would lose it: the next caller gets it.
            self._unopened = page
            before = await opened_ahead(self._cursor.view, page.records)
            self._unopened = None
            self._cursor.payload_bytes += sum([len(raw.data) for raw in page.records])
            taken = self._cursor.take(page, horizon_s=self._polling.horizon_s, asked_s=self._asked_s, before=before)
            if self.room is not None:
                self.room.came(page, taken)
            # Nothing is awaited between the page and its return: a caller that is cancelled there would lose the page.
            self._is_over = taken is None or taken.ended
            if taken is not None:
                emit_taken(self._source.stream, self.shard_id, taken, self._on_event)
                return taken

    async def close(self) -> None:
        """End the subscription."""
        await self._unsubscribe()

    async def _pushed(self) -> ReadPage | None:
        """Return the next event; None when there is no subscription: it has ended, is to be renewed, or may not begin
        yet.
        """
        loop = asyncio.get_running_loop()
        if self._is_over or (self._subscription is not None and self._renew_at_s <= loop.time()):
            await self._unsubscribe()  # What it still holds comes again from the next one.
        if self._consumer_is_gone or self._consumer_arn is None:
            await self._look_for_consumer()
        if self._subscription is None and not self._subscribe():
            return None
        assert self._subscription is not None
        if self._waiting is None:
            # It is a task of its own: a caller that is cancelled leaves it running, and the next caller gets its event.
            self._waiting = awaited(self._event(self._subscription))
        renew_in_s = self._renew_at_s - loop.time()
        done, _ = await asyncio.wait((self._waiting,), timeout=max(0.0, min(self.times.silence_max_s, renew_in_s)))
        if not done:
            await self._unsubscribe()
            if renew_in_s > self.times.silence_max_s:
                raise TransportError(f"{self._source.stream}, {self.shard_id}: the subscription has fallen silent")
            return None
        waiting, self._waiting = self._waiting, None
        try:
            page = waiting.result()
        except StopAsyncIteration:
            self._subscription = None  # AWS has ended it.
            return None
        self._cursor.continues_at(page.continuation, service_now_s=self._source.now_s)
        return page

    async def _event(self, subscription: AsyncGenerator[ReadPage, None]) -> ReadPage:
        """Return the next event; note the time since which it was waited for, unless the event may have lain there
        before.
        """
        asked_s, begun_s = self._source.now_s, asyncio.get_running_loop().time()
        page = await anext(subscription)
        self._asked_s = asked_s if asyncio.get_running_loop().time() - begun_s > BUFFERED_S else None
        return page

    async def _look_for_consumer(self) -> None:
        """Look for the consumer: it was deregistered, and may be registered again since, with another ARN; or there was
        no room for it.

        Raises NotFoundError while there is none at all: the shard is polled for a while.
        """
        code, message = "ConsumerNotRegistered", "no consumer is registered under this name"
        try:
            find = self._registration.find
            found = None if find is None else await find()
        except ThrottledError as error:
            found, code, message = None, error.code, error.service_message
        self._consumer_arn = found or self._consumer_arn
        self._consumer_is_gone = False
        if self._consumer_arn is None:
            raise NotFoundError(code, message, operation="RegisterStreamConsumer")

    def _subscribe(self) -> bool:
        """Begin a subscription, unless it is too soon for that; return whether one has begun."""
        now_s, times = asyncio.get_running_loop().time(), self.times
        if not self._has_turn:
            self._has_turn = True
            self._try_at_s = max(self._registration.gate.turn_s(), self._subscribed_s + times.again_after_s)
            if now_s < self._try_at_s:
                return False
        self._has_turn = False
        at = self._cursor.start(self._source.now_s, horizon_s=self._polling.horizon_s)
        self._polling.forget_iterator()
        self._subscribed_s = now_s
        self._renew_at_s = now_s + times.renew_after_s - self._rng.uniform(0, times.renew_jitter_s)
        assert self._consumer_arn is not None
        self._subscription = self._source.subscribe(self._consumer_arn, self.shard_id, at)
        return True

    async def _unsubscribe(self) -> None:
        waiting, self._waiting = self._waiting, None
        subscription, self._subscription = self._subscription, None
        self._is_over = False
        if waiting is not None:
            await give_up(waiting)
        if subscription is not None:
            with contextlib.suppress(ShardwayError):
                await subscription.aclose()

    async def _failed(self, error: ShardwayError) -> None:
        """Poll until the next try, or for a while. Raises what does not pass."""
        await self._unsubscribe()
        if isinstance(error, InvalidArgumentError) and self._cursor.refused():
            return
        if not (isinstance(error, InUseError) or error.retryable):
            if not isinstance(error, NotFoundError | AccessDeniedError):
                raise error
            # The consumer may be gone, or not allowed. Polling finds out whether the stream is.
            self._consumer_is_gone = isinstance(error, NotFoundError)
            self._poll(error)
            return
        code = error.code if isinstance(error, ServiceError) else type(error).__name__
        wait_s = self._backoff.next_s()
        if self._backoff.attempt >= self.times.failures_max or self._left:
            self._poll(error)
            return
        if isinstance(error, InUseError):
            wait_s = max(wait_s, self.times.again_after_s * (1 + self._rng.random() / 2))
        self._try_at_s = asyncio.get_running_loop().time() + wait_s
        self._on_event(ReadFailed(self._source.stream, self.shard_id, code, wait_s, str(error)))

    def _poll(self, error: ShardwayError) -> None:
        self._backoff.reset()
        wait_s = self.times.return_after_s * (1 + self._rng.random())
        self._try_at_s = asyncio.get_running_loop().time() + wait_s
        self._left = True
        self._polling.pace.options = self._poll_options
        reason = error.code if isinstance(error, ServiceError) else type(error).__name__
        self._on_event(FanOutLeft(self._source.stream, self.shard_id, reason, wait_s))


# --- pages, and what functions of the program make of their records -------------------------------
# The pages come one after another, from the place on that was sought last (`Pages`). The keys of their records and
# their parts are made when a page comes (`Admission`). The shard's machine is told what they made, and decides what
# goes into the ledger, and when. The value of a record is made when it is delivered (`Deserializer`), which also says
# what becomes of a record that cannot be read.


class Pages:
    """The pages of one tenure. One task asks for them (`fetched_by_this_task`); `seek` wakes it, whatever it
    waits for.
    """

    def __init__(
        self, feed: PollingFeed | FanOutFeed, read_ahead: Iterable[PageMeaning] = (), admission: Admission | None = None
    ) -> None:
        """``read_ahead``: pages that the feed has given before; some may lie before where the tenure begins.
        ``admission`` says what of a page is delivered.
        """
        self.admission = admission or Admission()
        """The part that calls the program's functions on the records."""
        self.stream, self.shard_id = feed.stream, feed.shard_id
        self.room = feed.room
        """The shard's part of the consumer's buffer."""
        self.after = Checkpoint.TRIM_HORIZON
        """The checkpoint up to which records are not new."""
        self.is_done = False
        """True when there are no more pages, unless the program seeks."""
        self._feed = feed
        self._read_ahead = deque(read_ahead)
        self._running: asyncio.Task[Any] | None = None
        self._sought: PollingFeed | FanOutFeed | None = None

    @property
    def window(self) -> WindowRead | None:
        """The window of duplicates; None: duplicates are not left out."""
        return self.admission.window

    def begin(self, after: Checkpoint) -> None:
        """Begin the tenure: records up to ``after`` are not new."""
        self.after = after

    @property
    def cursor(self) -> FeedCursor:
        """The cursor of what is fetched since the last `seek`."""
        return (self._sought or self._feed).cursor

    @property
    def is_sought(self) -> bool:
        """True from a call of `seek` to the next call of `go_on`."""
        return self._sought is not None

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``."""
        while self._read_ahead:
            self._ahead()
        feed.use_room(self.room)
        self.after = after
        self.is_done = False
        is_told = self.is_sought
        self._sought = feed
        if self._running is not None and not is_told:
            self._running.cancel()

    @contextlib.asynccontextmanager
    async def fetched_by_this_task(self) -> AsyncIterator[Pages]:
        """Let the current task ask for pages in the block. At its end the feed is closed."""
        self._running = asyncio.current_task()
        try:
            yield self
        finally:
            self._running = None
            await self._feed.close()

    @contextlib.contextmanager
    def until_sought(self) -> Iterator[None]:
        """End what is waited for in the block when the program seeks; the block is left then."""
        try:
            yield
        except asyncio.CancelledError:
            # A seek cancels the task to wake it. If the task's owner cancels it too, at the same time, the owner's
            # cancellation counts (`uncancel` leaves a request).
            if self._running is None or not self.is_sought or self._running.uncancel():
                raise

    async def go_on(self) -> None:
        """Go on from the place that was sought, if one was."""
        if self._sought is not None:
            former, self._feed, self._sought = self._feed, self._sought, None
            await former.close()

    async def next(self) -> PageMeaning:
        """Wait for the next page, and return it."""
        return self._ahead() if self._read_ahead else await self._feed.next()

    def new_of(self, taken: PageMeaning) -> tuple[Sequence[Record], Position | None]:
        """Return what of a page is new, and where that ends."""
        records, ends_at, after = behind(taken.records, self.after), taken.ends_at, self.after
        if ends_at is not None and after.is_position and ends_at <= after.position:
            ends_at = None  # It was read ahead, and the former owner has settled it.
        return records, ends_at

    async def done(self) -> None:
        """Close the feed: the last page came."""
        self.is_done = True
        await self._feed.close()

    def _ahead(self) -> PageMeaning:
        """Return the next page that was read ahead. Its room is free: the ledger takes what it keeps of the page."""
        taken = self._read_ahead.popleft()
        if self.room is not None:
            self.room.share.change(-taken.records.held_bytes)
        return taken


class Admission:
    """Makes of the pages of one tenure what goes into the ledger."""

    def __init__(
        self,
        *,
        window: WindowRead | None = None,
        split_by: Callable[[Record], Iterable[Any]] | None = None,
        parts_max: int = PARTS_MAX,
    ) -> None:
        """``window``: duplicates are left out by it. ``split_by(record)`` returns the parts of a record, which follow
        from the record alone.
        """
        self.window = window
        self._split_by = split_by
        self._parts_max = parts_max

    @property
    def duplicates(self) -> Duplicates | None:
        """The shard's knowledge of duplicates; None: duplicates are not left out."""
        return None if self.window is None else self.window.duplicates

    def read(self, taken: PageMeaning, records: Sequence[Record], ends_at: Position | None) -> PageRead:
        """Return a page with what of it is new, and the keys of those records."""
        held_bytes = records.held_bytes if isinstance(records, UserRecords) else None
        window = self.window
        if window is None:
            return PageRead(records, ends_at, held_bytes)
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        return PageRead(records, ends_at, held_bytes, window.keys_of(records))

    def made_of(self, given: Admit) -> PageCame:
        """Return what is delivered of these records: themselves, or their parts."""
        if self._split_by is None:
            return PageCame(given.records, given.ends_at, given.held_bytes, given.twins)
        found = split(given.records, self._split_by, without=set(given.twins), parts_max=self._parts_max)
        return PageCame(found.records, given.ends_at, None, found.settled, found.unreadable)


@dataclass(frozen=True, slots=True)
class Deliver:
    """The record is delivered with an `Unreadable` in place of its value."""


UnreadablePolicy: TypeAlias = DeadLetters | Skip | Stop | Deliver


class Unreadable(NamedTuple):
    """The stand-in for the value of a record that cannot be read."""

    data: bytes
    """The data of the record, as it came."""
    error: Exception
    """The error that the deserializer raised. Its message may hold a part of the data."""


class DeserializedDelivery(NamedTuple, Generic[R]):
    """The result of a deserializer for a delivery."""

    delivery: Delivery[R]
    """The records that are left of the delivery by the policy: maybe none."""
    values: Sequence[Any]
    """The value of each record that is left."""
    left_out: Sequence[tuple[int, Exception]] = ()
    """The places of records that are not delivered, with what the deserializer raised."""
    stops: UnreadableRecordError | None = None
    """The error of a record that cannot be read, where that ends the reading of its shard."""


class Deserializer(Generic[R]):
    """Makes the values of each delivery. A record that was delivered before, and failed, is read anew."""

    def __init__(
        self, deserializer: Callable[[bytes], Any], policy: UnreadablePolicy, *, stream: str, shard_id: str
    ) -> None:
        self.policy = policy
        """The policy for a record that cannot be read."""
        self._deserializer = deserializer
        self._where = f"{stream}, {shard_id}"

    def of(self, delivery: Delivery[R]) -> DeserializedDelivery[R]:
        """Read the values of a delivery."""
        deserializer, datas = self._deserializer, datas_of(delivery.records)
        if delivery.records and isinstance(delivery.records[0], Part):
            return DeserializedDelivery(delivery, datas)  # The function that split the record has read its bytes.
        try:
            return DeserializedDelivery(delivery, [deserializer(data) for data in datas])
        except Exception:
            return self._one_by_one(delivery, datas)

    def _one_by_one(self, delivery: Delivery[R], datas: Sequence[bytes]) -> DeserializedDelivery[R]:
        kept: list[int] = []
        values: list[Any] = []
        left_out: list[tuple[int, Exception]] = []
        for index, data in enumerate(datas):
            try:
                value = self._deserializer(data)
            except Exception as error:
                if isinstance(self.policy, Stop):
                    return DeserializedDelivery(delivery, (), stops=self._unreadable(delivery, index, error))
                if not isinstance(self.policy, Deliver):
                    left_out.append((delivery.places[index], error))
                    continue
                value = Unreadable(data, error)
            kept.append(index)
            values.append(value)
        if len(kept) == len(datas):
            return DeserializedDelivery(delivery, values)
        left = Delivery(
            delivery.ticket,
            [delivery.records[index] for index in kept],
            [delivery.places[index] for index in kept],
            delivery.attempt,
        )
        return DeserializedDelivery(left, values, left_out)

    def _unreadable(self, delivery: Delivery[R], index: int, error: Exception) -> UnreadableRecordError:
        record = delivery.records[index]
        return UnreadableRecordError(
            f"{self._where}: the record at {record.sequence_number}/{record.sub_sequence_number} "
            f"cannot be read ({type(error).__name__}, see `error`). Mend the deserializer, or say with "
            "`unreadable` what becomes of such records: DeadLetters(), Skip() or Deliver()",
            error=error,
        )


def datas_of(records: Sequence[Any]) -> Sequence[Any]:
    """Return the data of each record; a page's records are not made for that. The data of a part is what the splitting
    function made.
    """
    datas: Sequence[bytes] | None = getattr(records, "datas", None)
    if datas is not None:
        return datas
    return [record.value if isinstance(record, Part) else record.data for record in records]
