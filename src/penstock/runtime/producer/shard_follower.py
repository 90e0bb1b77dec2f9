"""Keeps a producer's picture of the stream's shards fresh."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.pacing import Backoff
from penstock.errors import AccessDeniedError, OptionError, PenstockError, ProducerClosedError, ServiceError
from penstock.events import AggregationOff, ShardMapChanged, ShardMapFailed
from penstock.runtime.waiting import wait_set
from penstock.tasks import drop, spawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from penstock.core.batching import Batcher
    from penstock.events import Event
    from penstock.options import ProducerOptions
    from penstock.ports import RecordSink

REFRESH_MIN_S = 0.2
"""The shards are not listed more often: a reshard takes seconds, and ListShards has a limit of its own."""
NOT_ALLOWED = frozenset({"AccessDeniedException", "AccessDenied", "NotAuthorized"})
"""The identity is good, but has no such permission. (The others of AccessDeniedError are of no use for any call.)"""
RETRY_BASE_S = 0.5
RETRY_CAP_S = 15.0


class ShardFollower:
    """Lists the shards at the start, every so often, and when an answer shows that they have changed."""

    def __init__(
        self,
        sink: RecordSink,
        options: ProducerOptions,
        batcher: Batcher,
        emit: Callable[[Event], None],
        now: Callable[[], float],
        on_change: Callable[[], None],
        rng: Random,
    ) -> None:
        self._sink = sink
        self._options = options
        self._batcher = batcher
        self._emit = emit
        self._now = now
        self._on_change = on_change
        self._backoff = Backoff(base_s=RETRY_BASE_S, cap_s=RETRY_CAP_S, rng=rng)
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._without = False
        self._is_odd = False
        """True when the last listing raised what is no error of ours."""
        self._task: asyncio.Task[None] | None = None
        self._listing: asyncio.Future[None] | None = None
        self._listed_at_s = float("-inf")
        self._is_broken = self._is_stopped = False
        self.refusal: str | None = None
        """Why nothing can be put before a person has mended the cause; None: records can be put, or may soon."""

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow, also again: the program may have cancelled this with all tasks that it found, or a signal handler may
        have raised.
        """
        if self._task is None or self._task.done():
            self._task = spawn(self._follow(), self._broke, loop=loop)

    async def first(self) -> None:
        """Wait for the first listing. Raises its error."""
        if self._batcher.lanes.known and self.refusal is None:
            return
        if self._listing is None or self._listing.done():
            self._listing = asyncio.get_running_loop().create_future()
            self._hurried.set()
        await asyncio.shield(self._listing)

    def note_place(self, error: Exception) -> None:
        """An error of the service tells its region, which messages to the records name beside the stream."""
        if isinstance(error, ServiceError) and error.where:
            self._batcher.settling.place = f"{self._sink.stream} in {error.where}"

    def refresh(self) -> None:
        """The shards have changed: list them soon."""
        self._asked.set()

    def stop(self) -> None:
        """List no more."""
        self._is_stopped = True
        if self._task is not None:
            drop(self._task)

    async def close(self) -> None:
        """Stop, and wait until that is done."""
        self._tell_first(ProducerClosedError(f"{self._sink.stream}: the producer was closed before it had started"))
        self.stop()
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _follow(self) -> None:
        while self._task is asyncio.current_task():  # else a signal handler raised before it was noted
            try:
                await self._list()
            except Exception as error:  # whatever a sink raises: its records must not wait in silence
                await self._failed(error)
                continue
            self.refusal, self._is_odd, self._is_broken = None, False, False
            self._backoff.reset()
            self._tell_first(None)
            self._on_change()
            if self._batcher.stale:
                # An answer named a shard that the listing does not show yet.
                await asyncio.sleep(max(REFRESH_MIN_S, self._backoff.next_s()))
                continue
            self._asked.clear()
            await wait_set(self._asked, self._options.shard_map_refresh_s)
            await asyncio.sleep(max(0.0, self._listed_at_s + REFRESH_MIN_S - self._now()))

    def _broke(self, error: BaseException) -> None:
        """It ended by an error in its own steps: told as a listing that has failed, and begun again. The first time, a
        signal handler may have raised; when it happens again, waiting for the first listing leads nowhere.
        """
        reason = type(error).__name__
        self._emit(ShardMapFailed(self._sink.stream, reason, RETRY_BASE_S))
        if self._is_broken:
            self._tell_first(PenstockError(f"{self._sink.stream}: following the stream's shards has failed: {reason}"))
        self._is_broken = True
        asyncio.get_running_loop().call_later(RETRY_BASE_S, self._again)

    def _again(self) -> None:
        if not self._is_stopped:
            self.go_on(asyncio.get_running_loop())

    async def _failed(self, error: Exception) -> None:
        self.note_place(error)
        wait_s = max(REFRESH_MIN_S, self._backoff.next_s())
        reason = error.code if isinstance(error, ServiceError) else str(error)
        # Once, it may be what a signal handler raised in the middle: no fault of the stream, and none of the records.
        is_odd, was_odd = not isinstance(error, PenstockError), self._is_odd
        self._is_odd = is_odd
        if is_odd and not was_odd:
            wait_s = REFRESH_MIN_S
        elif not getattr(error, "retryable", False) and (
            not self._batcher.lanes.known or isinstance(error, OptionError)
        ):
            self.refusal = reason
        if not self._batcher.lanes.known:
            self._batcher.settling.trouble = reason
        self._tell_first(error)
        self._emit(ShardMapFailed(self._sink.stream, reason, wait_s))
        self._on_change()
        self._hurried.clear()
        await asyncio.sleep(REFRESH_MIN_S)
        await wait_set(self._hurried, wait_s - REFRESH_MIN_S)

    async def _list(self) -> None:
        known = self._batcher.lanes.known
        try:
            shards = await self._sink.shards()
        except AccessDeniedError as error:
            if error.code not in NOT_ALLOWED or (known and not self._without):
                raise
            # It may be allowed to put all the same. Without the shards there is no prediction.
            self._go_without(f"the shards can't be listed: {error.code}")
            return
        finally:
            self._listed_at_s = self._now()
        if shards is None:
            if self._options.ordered_by_key:
                raise OptionError(
                    f"{self._sink.stream}: ordered_by_key can't hold, as the stream ignores partition keys "
                    "(its RecordDistributionStrategy is AUTO)"
                )
            self._go_without("the stream ignores partition keys (RecordDistributionStrategy AUTO)")
            return
        self._without = False
        self._batcher.settling.record_bytes_max = getattr(self._sink, "record_bytes_max", None)
        try:
            came, went = self._batcher.set_shards(shards, self._now())
        except ValueError as error:
            raise PenstockError(f"{self._sink.stream}: ListShards shows shards that overlap: {error}") from error
        if came or went:
            self._emit(ShardMapChanged(self._sink.stream, len(shards), came, went))

    def _go_without(self, reason: str) -> None:
        is_new, self._without = not self._without, True
        self._batcher.set_shards(None, self._now())
        if is_new and self._options.aggregation:
            self._emit(AggregationOff(self._sink.stream, reason))

    def _tell_first(self, error: Exception | None) -> None:
        if self._listing is not None and not self._listing.done():
            if error is None:
                self._listing.set_result(None)
            else:
                self._listing.set_exception(error)
                # The callers that waited have the error. If there were none, asyncio must not log it as unseen.
                self._listing.exception()
