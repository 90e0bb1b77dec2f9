"""The shards of a consumer as the program sees them: it iterates them, and its callbacks are told which come and go.

Callbacks are awaited one after another, never two at a time. Changes of one kind that came while a callback was under
way are told in one call.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from enum import Enum
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from shardway.events import ShardBegun, ShardLeft
from shardway.runtime.consumer.driving import collect
from shardway.runtime.shard.listener import Origin, ShardListener
from shardway.runtime.threads.host import SameLoop
from shardway.tasks import give_up, is_cancelled, spawn

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Hashable,
        Iterable,
        Mapping,
        Sequence,
    )

    from shardway.core.leases.row import Checkpoint
    from shardway.model import Record
    from shardway.runtime.consumer.core import Ready
    from shardway.runtime.consumer.driving import Collection
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.runtime.threads.host import Host


T = TypeVar("T")


# --- shards that the program iterates -------------------------------------------------------------


class ShardFace(Generic[T]):
    """The part of a shard that programs on a loop and programs in threads see alike. Any thread may call it."""

    __slots__ = ("_reader", "origin", "shard_id", "stream", "token")

    def __init__(self, reader: ShardReader) -> None:
        self._reader = reader
        self.stream = reader.stream
        """The stream's name or ARN, as it was given."""
        self.shard_id = reader.shard_id
        """The shard's id."""
        self.token = reader.token
        """The fencing token of its batches: it grows with every owner of the shard."""
        self.origin: Origin = reader.origin
        """The way in which the shard came to this consumer."""

    @property
    def is_over(self) -> bool:
        """True once nothing more is delivered: the shard is done, or the lease is gone."""
        return self._reader.is_over

    @property
    def has_ended(self) -> bool:
        """True once the shard is done, and stored as ended."""
        return self._reader.has_ended

    @property
    def settled(self) -> Checkpoint:
        """The checkpoint up to which all is settled; once that is stored, a new owner goes on behind it."""
        return self._reader.settled

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self._reader.stored

    def checkpoint_to(self, checkpoint: Checkpoint) -> None:
        """Let checkpoints go up to this one, if all before is settled, and no further; a later call moves the bound. It
        is meant for ``CheckpointOptions(manual=True)``.
        """
        self._reader.checkpoint_to(checkpoint)

    def let_go(self) -> None:
        """Free the shard for any worker. What is with handlers may be settled until the drain's deadline."""
        self._reader.let_go()


class Shard(ShardFace[T]):
    """A shard while a `Consumer` holds it: iterate it for its batches, in a task of its own. The iteration ends when
    the tenure does. `Consumer.pause`, `Consumer.seek` and the like take it as they take a batch.
    """

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Batch[T]]:
        """Iterate over batches until the tenure ends. What a program that leaves early did not settle is delivered
        again.
        """
        return aiter(self._reader)

    async def next_batch(self) -> Batch[T] | None:
        """Wait for the next records, and return them; None when there will be none in this tenure. Raises the error
        that ended the reading, and ShardStoppedError where the policies have stopped the shard (`Stop`).
        """
        return await self._reader.next_batch()

    async def until_stored(self, checkpoint: Checkpoint) -> bool:
        """Wait until the lease holds this checkpoint, or a later one. False when the tenure ended before."""
        return await self._reader.until_stored(checkpoint)

    def collect(
        self, key: Callable[[Record], Hashable], *, records: int, age_s: float = math.inf
    ) -> AsyncGenerator[Collection[T], None]:
        """See `Consumer.collect`: this does the same for the records of this shard."""
        return collect(self, key, records=records, age_s=age_s)


def reader_of(shard: ShardFace[Any]) -> ShardReader:
    """Return the reader that stands behind a shard: for parts of the package that drive a shard themselves."""
    return shard._reader


# --- shards that come and go ----------------------------------------------------------------------


class Located(Protocol):
    """Anything that says which shard it belongs to: a batch, a record, an `AssignedShard`."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""


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


Told: TypeAlias = "Callable[[Sequence[AssignedShard]], Awaitable[object]]"
Waiting: TypeAlias = "tuple[ShardChange, AssignedShard, asyncio.Future[None]]"
"""A change that is to be told, its shard, and the future that is done once it was told."""


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
    """Tells the callbacks of changes, in order, and has a shard's records offered once they know of it."""

    def __init__(self, callbacks: Mapping[ShardChange, Told], ready: Ready, on_event: Callable[[Any], None]) -> None:
        """Raise a callback's error where records are asked for: ``ready``."""
        self.home: Host = SameLoop()
        """The home in which this runs. The callbacks are called on the user's loop."""
        self.holds_end = ShardChange.ENDED in callbacks
        self._callbacks = callbacks
        self._ready = ready
        self._on_event = on_event
        self._queue: deque[Waiting] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._here: dict[ShardReader, AssignedShard] = {}
        self._called: tuple[str, float] | None = None  # The callback that runs on the user's loop, and since when.

    def follow(self, reader: ShardReader) -> None:
        """Tell that a shard is held, and then offer its records."""
        self._on_event(ShardBegun(reader.stream, reader.shard_id, reader.token, reader.origin.value))
        reader.listen(self)
        if not self._callbacks:
            self._ready.add(reader)
            return
        shard = AssignedShard(reader.stream, reader.shard_id, reader.token, reader.origin)
        self._here[reader] = shard
        told = self._tell(ShardChange.ASSIGNED, shard)
        told.add_done_callback(lambda _: self._ready.add(reader))

    def calling(self) -> tuple[str, float] | None:
        """See `ShardListener.calling`: it is the callback that is running."""
        called = self._called
        return None if called is None else (called[0], time.monotonic() - called[1])

    async def close(self, grace_s: float) -> None:
        """Wait until all is told, at most ``grace_s`` seconds; what takes longer is cancelled."""
        telling = self._telling
        if telling is not None:
            await asyncio.wait((telling,), timeout=grace_s)
            await give_up(telling)

    async def leaving(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if (shard := self._here.pop(reader, None)) is not None:
            await asyncio.shield(self._tell(ShardChange.REVOKED, shard))

    async def ending(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if (shard := self._here.pop(reader, None)) is not None:
            await asyncio.shield(self._tell(ShardChange.ENDED, shard))

    def resumed(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if self._callbacks and reader not in self._here and not reader.is_over:
            shard = AssignedShard(reader.stream, reader.shard_id, reader.token, Origin.KEPT)
            self._here[reader] = shard
            self._tell(ShardChange.ASSIGNED, shard)

    def fence_moved(self, reader: ShardReader, fallen: bool) -> None:
        """See `ShardListener`."""
        if not fallen:
            self.resumed(reader)
        elif (shard := self._here.pop(reader, None)) is not None:
            self._tell(ShardChange.LOST, shard)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`. Callbacks that were not told yet that the shard goes are told its end or loss."""
        self._on_event(ShardLeft(reader.stream, reader.shard_id, reader.token, reader.over_because))
        shard = self._here.pop(reader, None)
        if shard is not None:
            ended = reader.has_ended
            self._tell(ShardChange.ENDED if ended else ShardChange.LOST, shard)

    def _tell(self, change: ShardChange, shard: AssignedShard) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        if change not in self._callbacks:
            told.set_result(None)
            return told
        self._queue.append((change, shard, told))
        if self._telling is None:
            self._telling = spawn(self._run(), self._ready.failed)
        return told

    async def _run(self) -> None:
        group: list[Waiting] = []
        try:
            while self._queue:
                change = self._queue[0][0]
                group = []
                while self._queue and self._queue[0][0] is change:
                    group.append(self._queue.popleft())
                try:
                    await self.home.outside(partial(self._call, change, [shard for _, shard, _ in group]))
                except asyncio.CancelledError as error:
                    if is_cancelled():
                        raise
                    failure = RuntimeError("a callback ended cancelled: something that it waited for was")
                    failure.__cause__ = error
                    self._ready.failed(failure)
                except Exception as error:
                    self._ready.failed(error)
                _answer(group)
        finally:
            self._telling = None
            _answer([*group, *self._queue])
            self._queue.clear()

    async def _call(self, change: ShardChange, shards: list[AssignedShard]) -> None:
        """Call a callback, on the user's loop."""
        self._called = change.value, time.monotonic()
        try:
            answer = self._callbacks[change](shards)
            if isawaitable(answer):
                await answer
        finally:
            self._called = None


def _answer(told: Iterable[Waiting]) -> None:
    for *_, future in told:
        if not future.done():
            future.set_result(None)
