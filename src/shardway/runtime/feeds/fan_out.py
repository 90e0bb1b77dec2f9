"""A feed that reads a shard by enhanced fan-out (SubscribeToShard), and by polling where that does not work.

AWS ends a subscription after five minutes; refuses a second one to the same shard within five seconds of the first, and
lets a later one take the shard over from it. A connection can fall silent without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.log.feed_cursor import Refusal
from shardway.core.pacing import Backoff
from shardway.errors import (
    AccessDeniedError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    ServiceError,
    ShardwayError,
    ThrottledError,
    TransportError,
)
from shardway.events import FanOutLeft, FanOutReturned, ReadFailed
from shardway.runtime.feeds.opening import opened_ahead
from shardway.runtime.feeds.polling import FetchRoom, PollingFeed, emit_taken, refused_start
from shardway.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from shardway.core.log.feed_cursor import FeedCursor, PageMeaning
    from shardway.core.log.pages import ReadPage


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
"""How many seconds the consumer then polls the shard before the next try to subscribe; the time is random, up to
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
        self._polling_feed = PollingFeed(
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
        self._page_task: asyncio.Task[ReadPage] | None = None
        self._asked_s: float | None = None  # The service's time at which the last event was not there yet.
        self._unopened_page: ReadPage | None = None  # The page that is being opened.
        self._is_over = False  # True: the subscription has nothing more to give.
        self._subscribed_s = float("-inf")
        self._renew_at_s = 0.0
        self._try_at_s = float("-inf")  # The shard is polled until then.
        self._has_turn = False
        self._has_left = False  # True: an event said that the shard is polled.

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
        self._polling_feed.use_room(room)

    async def next(self) -> PageMeaning:
        """See `PollingFeed.next`: this does the same for pages that are pushed."""
        loop = asyncio.get_running_loop()
        while True:
            # AWS refuses a subscription for five seconds after a former owner's has begun: without polls the shard
            # would stand still until then.
            if self._unopened_page is None and loop.time() < self._try_at_s:
                return await self._polling_feed.next()
            if self.room is not None and self._unopened_page is None:
                await self.room.wait()
            try:
                page = self._unopened_page or await self._next_event()
            except ShardwayError as error:
                await self._handle_failure(error)
                continue
            if page is None:
                continue
            if self._has_left:
                self._has_left = False
                self._polling_feed.pace.options = self._bridge_options
                self._on_event(FanOutReturned(self._source.stream, self.shard_id))
            self._backoff.reset()
            # A caller that is cancelled while the page is opened would lose it: the next caller gets it.
            self._unopened_page = page
            before = await opened_ahead(self._cursor.view, page.records)
            self._unopened_page = None
            self._cursor.payload_bytes += sum([len(raw.data) for raw in page.records])
            taken = self._cursor.take(
                page, horizon_s=self._polling_feed.horizon_s, asked_s=self._asked_s, before=before
            )
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

    async def _next_event(self) -> ReadPage | None:
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
        if self._page_task is None:
            # It is a task of its own: a caller that is cancelled leaves it running, and the next caller gets its event.
            self._page_task = awaited(self._event(self._subscription))
        renew_in_s = self._renew_at_s - loop.time()
        done, _ = await asyncio.wait((self._page_task,), timeout=max(0.0, min(self.times.silence_max_s, renew_in_s)))
        if not done:
            await self._unsubscribe()
            if renew_in_s > self.times.silence_max_s:
                raise TransportError(f"{self._source.stream}, {self.shard_id}: the subscription has fallen silent")
            return None
        waiting, self._page_task = self._page_task, None
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
        at = self._cursor.start(self._source.now_s, horizon_s=self._polling_feed.horizon_s)
        self._polling_feed.forget_iterator()
        self._subscribed_s = now_s
        self._renew_at_s = now_s + times.renew_after_s - self._rng.uniform(0, times.renew_jitter_s)
        assert self._consumer_arn is not None
        self._subscription = self._source.subscribe(self._consumer_arn, self.shard_id, at)
        return True

    async def _unsubscribe(self) -> None:
        waiting, self._page_task = self._page_task, None
        subscription, self._subscription = self._subscription, None
        self._is_over = False
        if waiting is not None:
            await give_up(waiting)
        if subscription is not None:
            with contextlib.suppress(ShardwayError):
                await subscription.aclose()

    async def _handle_failure(self, error: ShardwayError) -> None:
        """Poll until the next try, or for a while. Raises what does not pass."""
        await self._unsubscribe()
        if isinstance(error, InvalidArgumentError):
            refusal = self._cursor.take_refusal(self._source.now_s)
            if refusal is Refusal.TRIMMED:
                return
            error = refused_start(error, refusal, self._cursor, self._source.now_s)
        if not (isinstance(error, InUseError) or error.retryable):
            if not isinstance(error, NotFoundError | AccessDeniedError):
                raise error
            # The consumer may be gone, or not allowed. Polling finds out whether the stream is.
            self._consumer_is_gone = isinstance(error, NotFoundError)
            self._poll(error)
            return
        code = error.code if isinstance(error, ServiceError) else type(error).__name__
        wait_s = self._backoff.next_s()
        if self._backoff.attempt >= self.times.failures_max or self._has_left:
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
        self._has_left = True
        self._polling_feed.pace.options = self._poll_options
        reason = error.code if isinstance(error, ServiceError) else type(error).__name__
        self._on_event(FanOutLeft(self._source.stream, self.shard_id, reason, wait_s))
