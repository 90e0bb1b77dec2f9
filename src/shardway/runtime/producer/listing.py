"""The listing keeps a producer's shard map fresh: which shards the stream has."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from shardway.core.pacing import Backoff
from shardway.errors import AccessDeniedError, OptionError, ServiceError, ShardwayError
from shardway.events import AggregationOff, ShardMapChanged, ShardMapFailed
from shardway.tasks import drop, spawn
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from random import Random

    from shardway.core.producer.batcher import Batcher
    from shardway.events import Event
    from shardway.options.producer import ProducerOptions
    from shardway.ports import RecordSink
    from shardway.runtime.producer.reporter import Reporter
    from shardway.runtime.producer.send_loop import SendLoop

REFRESH_MIN_S = 0.2
"""The least time between two listings: a reshard takes seconds, and ListShards has a limit of its own."""
NOT_ALLOWED = frozenset({"AccessDeniedException", "AccessDenied", "NotAuthorized"})
"""The codes for an identity that is good, but has no such permission. (The other codes of AccessDeniedError are of no
use for any call.)
"""
RETRY_BASE_S = 0.5
RETRY_CAP_S = 15.0


class ShardListing:
    """Lists the shards for a batcher: at the start, at intervals, and when an answer shows that they have changed.

    A task of the producer calls `renew` and `rest` by turns, and emits the events that it gets.
    """

    def __init__(self, sink: RecordSink, options: ProducerOptions, batcher: Batcher, rng: Random) -> None:
        self._sink = sink
        self._options = options
        self._batcher = batcher
        self._backoff = Backoff(base_s=RETRY_BASE_S, cap_s=RETRY_CAP_S, rng=rng)
        self._refresh_wanted = asyncio.Event()
        self._retry_wanted = asyncio.Event()
        self._is_without_list = False
        self._is_odd = False
        """True when the last listing raised an error that is none of ours."""
        self._first_listing: asyncio.Future[None] | None = None
        self._listed_at_s = float("-inf")
        self._retry_in_s: float | None = None
        """The seconds after which the listing that has failed is made again; None: it has succeeded."""
        self._is_broken = False
        self.refusal: str | None = None
        """The reason why nothing can be put until its cause is removed; None: records can be put, or may soon.
        """

    async def renew(self) -> list[Event]:
        """List the shards once. Return the events of it."""
        try:
            events = await self._list()
        except Exception as error:  # Whatever a sink raises: its records must not wait in silence.
            return [self._failure_event(error)]
        self.refusal, self._retry_in_s, self._is_odd, self._is_broken = None, None, False, False
        self._backoff.reset()
        self.finish_first(None)
        return events

    async def rest(self) -> None:
        """Wait until the next listing is due."""
        if self._retry_in_s is not None:
            self._retry_wanted.clear()
            await asyncio.sleep(REFRESH_MIN_S)
            await wait_set(self._retry_wanted, self._retry_in_s - REFRESH_MIN_S)
        elif self._batcher.stale:
            # An answer has named a shard that the listing does not show yet.
            await asyncio.sleep(max(REFRESH_MIN_S, self._backoff.next_s()))
        else:
            self._refresh_wanted.clear()
            await wait_set(self._refresh_wanted, self._options.shard_map_refresh_s)
            await asyncio.sleep(max(0.0, self._listed_at_s + REFRESH_MIN_S - time.monotonic()))

    async def first(self) -> None:
        """Wait for the first listing. Raises its error."""
        if self._batcher.lanes.known and self.refusal is None:
            return
        if self._first_listing is None or self._first_listing.done():
            self._first_listing = asyncio.get_running_loop().create_future()
            self._retry_wanted.set()
        await asyncio.shield(self._first_listing)

    def finish_first(self, error: Exception | None) -> None:
        """Wake the callers that wait for the first listing, with its end or an error."""
        if self._first_listing is not None and not self._first_listing.done():
            if error is None:
                self._first_listing.set_result(None)
            else:
                self._first_listing.set_exception(error)
                # The callers that waited have the error. If there were none, asyncio must not log it as unseen.
                self._first_listing.exception()

    def note_place(self, error: Exception) -> None:
        """Note the region that an error of the service names: messages to the records name it beside the stream."""
        if isinstance(error, ServiceError) and error.where:
            self._batcher.settling.place = f"{self._sink.stream} in {error.where}"

    def refresh(self) -> None:
        """List the shards soon: they have changed."""
        self._refresh_wanted.set()

    def fault_event(self, error: BaseException) -> Event:
        """Return the event for the task's end by an error in its own steps: it is emitted as a listing that has failed,
        and the task is begun again after ``RETRY_BASE_S``. The first time, a signal handler may have raised; when it
        happens again, waiting for the first listing leads nowhere.
        """
        reason = type(error).__name__
        if self._is_broken:
            self.finish_first(ShardwayError(f"{self._sink.stream}: following the stream's shards has failed: {reason}"))
        self._is_broken = True
        return ShardMapFailed(self._sink.stream, reason, RETRY_BASE_S)

    def _failure_event(self, error: Exception) -> Event:
        self.note_place(error)
        wait_s = max(REFRESH_MIN_S, self._backoff.next_s())
        reason = error.code if isinstance(error, ServiceError) else str(error)
        # If it occurs once, a signal handler may have raised it in the middle: that is no fault of the stream, and none
        # of the records.
        is_odd, was_odd = not isinstance(error, ShardwayError), self._is_odd
        self._is_odd = is_odd
        if is_odd and not was_odd:
            wait_s = REFRESH_MIN_S
        elif not getattr(error, "retryable", False) and (
            not self._batcher.lanes.known or isinstance(error, OptionError)
        ):
            self.refusal = reason
        if not self._batcher.lanes.known:
            self._batcher.settling.trouble = reason
        self._retry_in_s = wait_s
        self.finish_first(error)
        return ShardMapFailed(self._sink.stream, reason, wait_s)

    async def _list(self) -> list[Event]:
        known = self._batcher.lanes.known
        try:
            shards = await self._sink.shards()
        except AccessDeniedError as error:
            if error.code not in NOT_ALLOWED or (known and not self._is_without_list):
                raise
            # The identity may be allowed to put all the same. Without the shards there is no prediction.
            return self._go_without(f"the shards can't be listed: {error.code}")
        finally:
            self._listed_at_s = time.monotonic()
        if shards is None:
            if self._options.ordered_by_key:
                raise OptionError(
                    f"{self._sink.stream}: ordered_by_key can't hold, as the stream ignores partition keys "
                    "(its RecordDistributionStrategy is AUTO)"
                )
            # If it were taken for a stream that minds keys, each aggregate would land in a shard that does not hold it,
            # and all records would be put twice.
            return self._go_without("the stream ignores partition keys (RecordDistributionStrategy AUTO)")
        self._is_without_list = False
        self._batcher.settling.record_bytes_max = getattr(self._sink, "record_bytes_max", None)
        try:
            came, went = self._batcher.set_shards(shards, time.monotonic())
        except ValueError as error:
            raise ShardwayError(f"{self._sink.stream}: ListShards shows shards that overlap: {error}") from error
        return [ShardMapChanged(self._sink.stream, len(shards), came, went)] if came or went else []

    def _go_without(self, reason: str) -> list[Event]:
        is_new, self._is_without_list = not self._is_without_list, True
        self._batcher.set_shards(None, time.monotonic())
        return [AggregationOff(self._sink.stream, reason)] if is_new and self._options.aggregation else []


class ShardFollower:
    """The task that follows a stream's shards: it lists them, emits the events of it, and rests."""

    def __init__(self, listing: ShardListing, reporter: Reporter, send_loop: SendLoop) -> None:
        self._listing = listing
        self._reporter = reporter
        self._send_loop = send_loop
        self._task: asyncio.Task[None] | None = None

    def keep_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the shards, or begin to again: the program may have cancelled this with all tasks that it found, or a
        signal handler may have raised.
        """
        if self._task is None or self._task.done():
            self._task = spawn(self._follow(), self._report_fault, loop=loop)

    def cancel(self) -> None:
        """Cancel the task."""
        if self._task is not None:
            drop(self._task)

    async def end(self) -> None:
        """Cancel the task, and wait for its end."""
        if self._task is not None:
            drop(self._task)
            await asyncio.wait((self._task,))

    async def _follow(self) -> None:
        while self._task is asyncio.current_task():  # Otherwise a signal handler raised before it was noted.
            for event in await self._listing.renew():
                self._reporter.emit(event)
            self._send_loop.pump()
            await self._listing.rest()

    def _report_fault(self, error: BaseException) -> None:
        self._reporter.emit(self._listing.fault_event(error))
        asyncio.get_running_loop().call_later(RETRY_BASE_S, self._follow_again)

    def _follow_again(self) -> None:
        if not self._send_loop.has_ended:
            self.keep_up(asyncio.get_running_loop())
