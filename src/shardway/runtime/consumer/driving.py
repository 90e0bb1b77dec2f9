"""The program's handlers are driven with a shard's batches, several records at the same time, or records are collected
by a key of the user's, as all of one customer, a hundred at a time.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from shardway.core.given import Options
from shardway.core.ledger.book import R
from shardway.core.ledger.grouping import Collected, Collector
from shardway.core.ledger.policies import AnyOrder, ByKey, InOrder
from shardway.runtime.clocks import YieldBudget
from shardway.runtime.shard.batch import Delivered, Settleable
from shardway.tasks import awaited, give_up, is_cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Hashable, Sequence

    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    from shardway.core.ledger.policies import OrderPolicy
    from shardway.model import Record
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader

    T_co = DefaultedTypeVar("T_co", covariant=True, default=bytes)
else:
    T_co = TypeVar("T_co", covariant=True)

T = TypeVar("T")


# --- handlers -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OneByOne:
    """One call at a time for each shard, in its order; the calls of different shards run side by side."""


class Unordered(Options, frozen=True, kw_only=True):
    """Several calls side by side for each shard, in no order; a record that fails holds up no other."""

    slots_max: int = 16
    """The number of calls that run for a shard at the same time."""


Concurrency: TypeAlias = OneByOne | ByKey | Unordered


def by_key(slots_max: int = 16) -> ByKey:
    """Return a choice: partition keys side by side, at most ``slots_max`` of a shard at a time; each key in its
    order.
    """
    return ByKey(slots_max=slots_max)


def unordered(slots_max: int = 16) -> Unordered:
    """Return a choice: at most ``slots_max`` calls side by side for each shard, in no order."""
    return Unordered(slots_max=slots_max)


def order_of(concurrency: Concurrency) -> OrderPolicy | None:
    """Return the order in which the ledgers have to deliver for a concurrency; None: the order that the options
    name.
    """
    match concurrency:
        case ByKey():
            return concurrency
        case Unordered():
            return AnyOrder()
    return None


def promised(order: OrderPolicy | None, concurrency: Concurrency | None = None) -> str | None:
    """Return the name of what was chosen for the order that it keeps; None: nothing was. ``concurrency`` None: no
    handler is driven.
    """
    match concurrency:
        case ByKey():
            return "by_key"
        case Unordered():
            return None
        case OneByOne() if not isinstance(order, AnyOrder):
            return "OneByOne"
    return "ByKey" if isinstance(order, ByKey) else "InOrder" if isinstance(order, InOrder) else None


class HandlerCancelledError(Exception):
    """A handler let a cancellation out that did not mean it: something that it waited for was cancelled."""


async def drive(
    readers: AsyncIterator[ShardReader],
    handler: Callable[[Any], object],
    *,
    concurrency: Concurrency,
    each_record: bool,
    handlers_max: int | None,
) -> None:
    """Call ``handler`` with each batch, or each record, until there are no more shards. Raises the first error that is
    not a handler's.
    """
    room = asyncio.Semaphore(handlers_max) if handlers_max is not None else None
    slots = 1 if isinstance(concurrency, OneByOne) else concurrency.slots_max

    async def call(given: Batch[Any] | Delivered[Any]) -> None:
        if room is None:
            await _called(handler, given)
        else:
            async with room:
                await _called(handler, given)

    async def follow(reader: ShardReader) -> None:
        # It asks also while all slots are taken: a handoff waits until what is behind has caught up.
        with reader.asking.lasts():
            if each_record and isinstance(concurrency, Unordered):
                await _records_side_by_side(reader, call, slots)
            elif slots == 1:
                while (batch := await reader.next_batch()) is not None:
                    await _one(batch, call, each_record)
            else:
                await _side_by_side(reader, call, slots, each_record)

    try:
        async with asyncio.TaskGroup() as group:
            async for reader in readers:
                group.create_task(follow(reader))
    except BaseExceptionGroup as errors:
        error = _first(errors)
        raise error from error.__cause__


async def _called(handler: Callable[[Any], object], given: Any) -> None:
    try:
        waits = handler(given)
        if isawaitable(waits):  # A plain function has done its work by now.
            await waits
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        # A task that ends cancelled is no failure to its TaskGroup: the shard would stand still, and no error would say
        # so.
        raise HandlerCancelledError("what the handler waited for was cancelled, and it did not catch that") from error


async def _one(batch: Batch[Any], call: Callable[[Any], Awaitable[None]], each_record: bool) -> None:
    """Call with a batch, as a whole or record by record; a record that fails, or is put off, sends those behind it
    back.
    """
    if not each_record:
        with batch:
            await call(batch)
        return
    begun_s = batch._reader.now_s
    try:
        await _record_by_record(batch, call)
    finally:
        batch._reader.handled(batch._reader.now_s - begun_s)


async def _record_by_record(batch: Batch[Any], call: Callable[[Any], Awaitable[None]]) -> None:
    count, breath = len(batch), YieldBudget()
    for index in range(count):
        try:
            if breath.is_due:
                await breath.take()
            if not batch._may_go_on(index):
                return
            await call(Delivered(batch, index))
        except Exception as error:
            batch.fail(error, index)
        except BaseException:
            batch.nack(*range(index, count))
            raise
        else:
            batch._left((index,))
            if not batch._holds_up(index):
                continue
        if index + 1 < count:
            batch.nack(*range(index + 1, count))
        return


async def _side_by_side(
    reader: ShardReader, call: Callable[[Any], Awaitable[None]], slots: int, each_record: bool
) -> None:
    async with asyncio.TaskGroup() as group:
        busy = asyncio.Semaphore(slots)

        async def work(batch: Batch[Any]) -> None:
            try:
                await _one(batch, call, each_record)
            finally:
                busy.release()

        while True:
            await busy.acquire()
            batch = await reader.next_batch()
            if batch is None:
                return
            group.create_task(work(batch))


async def _records_side_by_side(reader: ShardReader, call: Callable[[Any], Awaitable[None]], slots: int) -> None:
    """Run ``slots`` tasks side by side. Each takes the next record, of whichever batch that is, and calls the
    handler.
    """
    turn = asyncio.Lock()
    breath = YieldBudget()
    current: list[Delivered[Any]] = []  # The rest of the batch that was taken last, its first record last.

    async def hand() -> None:
        while True:
            if breath.is_due:
                await breath.take()
            async with turn:
                if not current:
                    batch = await reader.next_batch()
                    if batch is None:
                        return
                    current.extend(Delivered(batch, index) for index in reversed(range(len(batch))))
                one = current.pop()
                if not one._may_go_on():
                    current.clear()
                    continue
            with one:
                await call(one)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(hand())
    finally:
        for one in current:
            one.nack()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


# --- collections ----------------------------------------------------------------------------------

LOOK_INTERVAL_S = 0.2
"""The interval of a look whether a shard is about to leave, or its records count no more, or take all the room, while
records wait.
"""
ROOM_LOOK_S = 0.005
"""The time for which a collection that was settled to make room is given to bring records, before the next one goes
out.
"""


class Collection(Settleable, Generic[T_co]):
    """Records of one key, in the order in which they were delivered, from one shard or from several.

    Settle it as a batch is settled: with ``with``, or by these calls, which any thread may make. Each returns False
    when some of it counts for nothing any more, because a shard was lost.
    """

    __slots__ = ("_group", "key")

    def __init__(self, group: Collected[Record]) -> None:
        self._group = group
        self.key = group.key

    @property
    def records(self) -> Sequence[Record]:
        """The records, each once, also where one was delivered again while it waited."""
        return self._group.records

    @property
    def values(self) -> Sequence[T_co]:
        """The values that the consumer's deserializer made of the records, in the same order; without one, the records'
        data. For parts they are what ``split`` made.
        """
        return [batch.values[place] for batch, place in self._group.located()]

    def __len__(self) -> int:
        return len(self._group)

    def ack(self) -> bool:
        """Settle all of the records: they are done."""
        return self._all(lambda batch, indices: batch.ack(*indices))

    def nack(self, *, delay_s: float = 0.0) -> bool:
        """Deliver the records again, not before ``delay_s`` seconds."""
        return self._all(lambda batch, indices: batch.nack(*indices, delay_s=delay_s))

    def skip(self, *, reason: str = "skipped") -> bool:
        """Settle the records without having been processed; an event says so."""
        return self._all(lambda batch, indices: batch.skip(*indices, reason=reason))

    def dead_letter(self, *, error: BaseException | None = None) -> bool:
        """Give the records up: each becomes a dead letter."""
        return self._all(lambda batch, indices: batch.dead_letter(*indices, error=error))

    def fail(self, error: BaseException) -> bool:
        """Fail the records: the retry policy says what follows for the records of each batch."""
        return self._all(lambda batch, indices: batch.fail(error, *indices))

    def _left(self) -> bool:
        return self._all(lambda batch, indices: batch._left(sorted(indices)))

    def _all(self, settle: Callable[[Batch[Any], list[int]], bool]) -> bool:
        """Settle the records in each of their batches, also where one of the batches counts no more."""
        counts = [settle(batch, indices) for batch, indices in self._group.places().items()]
        return all(counts)


class _Handed(NamedTuple, Generic[R]):
    ticket: Batch[Any]
    places: Sequence[int]
    records: Sequence[R]


async def collect(
    batches: AsyncIterable[Batch[T]],
    key: Callable[[Record], Hashable],
    *,
    records: int,
    age_s: float = math.inf,
) -> AsyncGenerator[Collection[T], None]:
    """Iterate over collections of ``records`` records with the same ``key(record)``, out of a consumer or a shard.

    ``age_s``: a collection is delivered, with what it has, when its first record came ``age_s`` seconds ago. Nothing
    blocks while records of a key wait for others: they count as delivered, and are reported when they are not settled
    in time. The shard's buffer bounds them: while it has room for nothing more, the oldest collection is delivered with
    what it has, and then the next one. What waits of a shard that is about to be handed over is delivered at once.
    Leave it with `contextlib.aclosing`: what waits then is delivered again, as with every iteration that is left.
    """
    loop = asyncio.get_running_loop()
    collector: Collector[Any] = Collector(key, records=records, age_s=age_s, name_of=_name)
    iterator = aiter(batches)
    following: asyncio.Task[Batch[Any]] | None = None
    oldest: Collected[Any] | None = None
    breath = YieldBudget()
    try:
        while True:
            if following is None:
                following = awaited(_next(iterator))
            look_s = ROOM_LOOK_S if oldest is not None and _is_settled(oldest) else LOOK_INTERVAL_S
            wait_s = min(collector.next_at_s() - loop.time(), look_s) if len(collector) else None
            await asyncio.wait((following,), timeout=None if wait_s is None else max(0.0, wait_s))
            found: list[Collected[Any]] = []
            if following.done():
                done, following = following, None
                try:
                    batch = done.result()
                except StopAsyncIteration:
                    found = collector.flush()
                    for group in found:
                        if (collection := _current(group)) is not None:
                            yield collection
                    return
                found = collector.add(_Handed(batch, range(len(batch)), batch.records), loop.time())
            found += collector.due(loop.time())
            found += collector.flush(lambda group: any(not one.counts or one.leaving for one in group.tickets()))
            oldest = None if found or following is None else _oldest_held_up(collector)
            if oldest is not None:
                found += collector.flush({oldest}.__contains__)
            for group in found:
                if breath.is_due:
                    await breath.take()
                if (collection := _current(group)) is not None:
                    yield collection
    finally:
        if following is not None:
            await give_up(following)
        if (close := getattr(iterator, "aclose", None)) is not None:
            await close()


async def _next(batches: AsyncIterator[Batch[Any]]) -> Batch[Any]:
    return await anext(batches)


def _oldest_held_up(collector: Collector[Any]) -> Collected[Any] | None:
    """Return the oldest collection with a record of a shard that has no room for more; None: there is none."""
    held_up: dict[int, bool] = {}
    for group in collector:
        for batch in group.tickets():
            known = held_up.get(id(batch))
            if known is None:
                known = held_up[id(batch)] = batch._is_held_up
            if known:
                return group
    return None


def _is_settled(group: Collected[Any]) -> bool:
    return all(batch._is_settled(indices) for batch, indices in group.places().items())


def _current(group: Collected[Any]) -> Collection[Any] | None:
    """Return the collection without records whose shard another worker has by now; None when none are left."""
    group.keep(lambda batch: batch.counts)
    return Collection(group) if len(group) else None


def _name(record: Any) -> Hashable:
    of = getattr(record, "record", record)
    return of.stream, of.shard_id, of.sequence_number, of.sub_sequence_number, getattr(record, "part", None)
