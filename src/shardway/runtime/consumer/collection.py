"""Collections: records of one key of the program's, as all of one customer, are gathered out of batches.

A collection is delivered when it has as many records as were asked for, or its first one is old enough.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from shardway.core.ledger.collector import Collected, Collector
from shardway.core.ledger.page import R
from shardway.runtime.clocks import YieldBudget
from shardway.runtime.shard.settleable import Settleable
from shardway.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Hashable, Sequence

    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    from shardway.model import Record
    from shardway.runtime.shard.batch import Batch

    T_co = DefaultedTypeVar("T_co", covariant=True, default=bytes)
else:
    T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

LOOK_INTERVAL_S = 0.2
"""The interval of a look whether a shard is about to leave, or its records count no more, or take all the room, while
records wait.
"""
ROOM_LOOK_S = 0.005
"""How long a collection that was settled to make room is given to bring records, before the next one goes
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
        return self._settle_all(lambda batch, indices: batch.ack(*indices))

    def nack(self, *, delay_s: float = 0.0) -> bool:
        """Deliver the records again, not before ``delay_s`` seconds."""
        return self._settle_all(lambda batch, indices: batch.nack(*indices, delay_s=delay_s))

    def skip(self, *, reason: str = "skipped") -> bool:
        """Settle the records without having been processed; an event says so."""
        return self._settle_all(lambda batch, indices: batch.skip(*indices, reason=reason))

    def dead_letter(self, *, error: BaseException | None = None) -> bool:
        """Give the records up: each becomes a dead letter."""
        return self._settle_all(lambda batch, indices: batch.dead_letter(*indices, error=error))

    def fail(self, error: BaseException) -> bool:
        """Fail the records: the retry policy says what follows for the records of each batch."""
        return self._settle_all(lambda batch, indices: batch.fail(error, *indices))

    def _settle_rest(self) -> bool:
        return self._settle_all(lambda batch, indices: batch._settle_rest(sorted(indices)))

    def _settle_all(self, settle: Callable[[Batch[Any], list[int]], bool]) -> bool:
        """Settle the records in each of their batches, also where one of the batches counts no more."""
        counts = [settle(batch, indices) for batch, indices in self._group.places().items()]
        return all(counts)


class _DeliveredBatch(NamedTuple, Generic[R]):
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
    budget = YieldBudget()
    try:
        while True:
            if following is None:
                following = awaited(_next_batch(iterator))
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
                found = collector.add(_DeliveredBatch(batch, range(len(batch)), batch.records), loop.time())
            found += collector.due(loop.time())
            found += collector.flush(lambda group: any(not one.counts or one.leaving for one in group.tickets()))
            oldest = None if found or following is None else _oldest_held_up(collector)
            if oldest is not None:
                found += collector.flush({oldest}.__contains__)
            for group in found:
                if budget.is_due:
                    await budget.take()
                if (collection := _current(group)) is not None:
                    yield collection
    finally:
        if following is not None:
            await give_up(following)
        if (close := getattr(iterator, "aclose", None)) is not None:
            await close()


async def _next_batch(batches: AsyncIterator[Batch[Any]]) -> Batch[Any]:
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
