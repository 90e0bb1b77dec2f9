"""The lifecycle of a consumer's shards: callbacks of the program are awaited as shards come and go.

Callbacks are awaited one after another, never two at a time. Changes of one kind that came while a callback was under
way are given to one call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from enum import Enum
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from shardway.events import ShardBegun, ShardLeft
from shardway.runtime.shard.listener import Origin, ShardListener
from shardway.tasks import give_up, spawn
from shardway.waiting import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.turns import Turns
    from shardway.runtime.shard.shard_reader import ShardReader


class AssignedShard(msgspec.Struct, frozen=True):
    """A shard in one tenure: from when this consumer has it until it goes."""

    stream: str
    """The stream's name or ARN, as it was given."""
    shard_id: str
    """The shard's id."""
    token: int
    """The fencing token of its batches."""
    origin: Origin
    """The way in which the shard came to this consumer."""


Callback: TypeAlias = "Callable[[Sequence[AssignedShard]], Awaitable[object]]"
PendingCall: TypeAlias = "tuple[ShardChange, AssignedShard, asyncio.Future[None]]"
"""A change, its shard, and the future that is done once the callback of the change was called with the shard."""


class ShardChange(Enum):
    """The changes that a callback is awaited for, by the name of its argument of `Consumer`."""

    ASSIGNED = "on_shards_assigned"
    """The shard is held, and its first record is not delivered yet: load what belongs to a shard, or `Consumer.seek` in
    it.
    """
    ENDED = "on_shards_ended"
    """All records of a shard that was split or merged are settled. The shard is stored as ended, and its children are
    begun, once this has returned.
    """
    REVOKED = "on_shards_revoked"
    """A shard is about to go to another consumer, and nothing more of it is delivered: settle what is gathered. The
    drain's deadline (``drain_deadline_s``) holds for this too. A shard that stays after all is assigned again.
    """
    LOST = "on_shards_lost"
    """The lease is gone, or can't be confirmed: stop writing. What is settled after that may count for nothing. A shard
    whose lease is confirmed after all is assigned again.
    """


class Lifecycle(ShardListener):
    """Calls the callbacks of changes, in order, and offers a shard's records once they know of it."""

    def __init__(
        self,
        callbacks: Mapping[ShardChange, Callback],
        turns: Turns,
        placement: Placement,
        on_event: Callable[[Any], None],
    ) -> None:
        """Raise a callback's error where records are asked for: ``turns``."""
        self.holds_end = ShardChange.ENDED in callbacks
        self._callbacks = callbacks
        self._turns = turns
        self._placement = placement
        self._on_event = on_event
        self._queue: deque[PendingCall] = deque()
        self._calls: asyncio.Task[None] | None = None
        self._assigned_shards: dict[ShardReader, AssignedShard] = {}
        self._running_callback: tuple[str, float] | None = (
            None  # The callback that runs on the user's loop, and since when.
        )

    def follow(self, reader: ShardReader) -> None:
        """Tell that a shard is held, and then offer its records."""
        self._on_event(ShardBegun(reader.stream, reader.shard_id, reader.token, reader.origin.value))
        reader.listen(self)
        if not self._callbacks:
            self._turns.offer(reader)
            return
        shard = AssignedShard(reader.stream, reader.shard_id, reader.token, reader.origin)
        self._assigned_shards[reader] = shard
        called = self._call_back(ShardChange.ASSIGNED, shard)
        called.add_done_callback(lambda _: self._turns.offer(reader))

    def calling(self) -> tuple[str, float] | None:
        """See `ShardListener.calling`: it is the callback that is running."""
        called = self._running_callback
        return None if called is None else (called[0], time.monotonic() - called[1])

    async def close(self, grace_s: float) -> None:
        """Wait until all callbacks are called, at most ``grace_s`` seconds; what takes longer is cancelled."""
        calls = self._calls
        if calls is not None:
            await asyncio.wait((calls,), timeout=grace_s)
            await give_up(calls)

    async def leaving(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if (shard := self._assigned_shards.pop(reader, None)) is not None:
            await asyncio.shield(self._call_back(ShardChange.REVOKED, shard))

    async def ending(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if (shard := self._assigned_shards.pop(reader, None)) is not None:
            await asyncio.shield(self._call_back(ShardChange.ENDED, shard))

    def resumed(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if self._callbacks and reader not in self._assigned_shards and not reader.is_over:
            shard = AssignedShard(reader.stream, reader.shard_id, reader.token, Origin.KEPT)
            self._assigned_shards[reader] = shard
            self._call_back(ShardChange.ASSIGNED, shard)

    def fence_moved(self, reader: ShardReader, fallen: bool) -> None:
        """See `ShardListener`."""
        if not fallen:
            self.resumed(reader)
        elif (shard := self._assigned_shards.pop(reader, None)) is not None:
            self._call_back(ShardChange.LOST, shard)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`. The callback of its end or loss is called, unless an earlier one was."""
        self._on_event(ShardLeft(reader.stream, reader.shard_id, reader.token, reader.over_because))
        shard = self._assigned_shards.pop(reader, None)
        if shard is not None:
            ended = reader.has_ended
            self._call_back(ShardChange.ENDED if ended else ShardChange.LOST, shard)

    def _call_back(self, change: ShardChange, shard: AssignedShard) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if change not in self._callbacks:
            done.set_result(None)
            return done
        self._queue.append((change, shard, done))
        if self._calls is None:
            self._calls = spawn(self._run(), self._turns.fail)
        return done

    async def _run(self) -> None:
        group: list[PendingCall] = []
        try:
            while self._queue:
                change = self._queue[0][0]
                group = []
                while self._queue and self._queue[0][0] is change:
                    group.append(self._queue.popleft())
                try:
                    await self._placement.host.outside(partial(self._call, change, [shard for _, shard, _ in group]))
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        raise
                    failure = RuntimeError("a callback ended cancelled: something that it waited for was")
                    failure.__cause__ = error
                    self._turns.fail(failure)
                except Exception as error:
                    self._turns.fail(error)
                _answer(group)
        finally:
            self._calls = None
            _answer([*group, *self._queue])
            self._queue.clear()

    async def _call(self, change: ShardChange, shards: list[AssignedShard]) -> None:
        """Call a callback, on the user's loop."""
        self._running_callback = change.value, time.monotonic()
        try:
            answer = self._callbacks[change](shards)
            if isawaitable(answer):
                await answer
        finally:
            self._running_callback = None


def _answer(calls: Iterable[PendingCall]) -> None:
    for *_, future in calls:
        if not future.done():
            future.set_result(None)
