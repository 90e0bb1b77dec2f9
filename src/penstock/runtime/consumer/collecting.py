"""Batches by a key of the user's, out of the batches of shards: all records of one customer, a hundred at a time."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from penstock.core.ledger.book import R
from penstock.core.ledger.collecting import Collected, Collector
from penstock.runtime.shard.batch import Settleable
from penstock.runtime.waiting import Breath
from penstock.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Hashable, Sequence

    from penstock.model import Record
    from penstock.runtime.shard.batch import Batch

LOOK_INTERVAL_S = 0.2
"""While records wait it is looked so often whether a shard is about to leave, or its records count no more."""


class Collection(Settleable):
    """Records of one key, in the order in which they were delivered, from one shard or from several.

    Settle it as a batch is settled: with ``with``, or by these calls, which any thread may make. Each returns False
    when some of it counts for nothing any more, as a shard was lost.
    """

    __slots__ = ("_group", "key")

    def __init__(self, group: Collected[Record]) -> None:
        self._group = group
        self.key = group.key

    @property
    def records(self) -> Sequence[Record]:
        """Each record once, also where one was delivered again while it waited."""
        return self._group.records

    def __len__(self) -> int:
        return len(self._group)

    def ack(self) -> bool:
        """Settle all of them: they are done."""
        return self._all(lambda batch, indices: batch._ack_chosen(indices))

    def nack(self, *, delay_s: float = 0.0) -> bool:
        """Hand them out again, after a while."""
        return self._all(lambda batch, indices: batch.nack(*indices, delay_s=delay_s))

    def skip(self, *, reason: str = "skipped") -> bool:
        """They count as settled without having been processed; an event says so."""
        return self._all(lambda batch, indices: batch.skip(*indices, reason=reason))

    def dead_letter(self, *, error: BaseException | None = None) -> bool:
        """Give them up: each becomes a dead letter."""
        return self._all(lambda batch, indices: batch.dead_letter(*indices, error=error))

    def fail(self, error: BaseException) -> bool:
        """They failed: the retry policy says what follows for the records of each batch."""
        return self._all(lambda batch, indices: batch.fail(error, *indices))

    def _left(self) -> bool:
        return self._all(lambda batch, indices: batch._left(sorted(indices), chosen=True))

    def _all(self, settle: Callable[[Batch[Any], list[int]], bool]) -> bool:
        """Settle the records in each of their batches, also where one of those counts no more."""
        counts = [settle(batch, indices) for batch, indices in self._group.places().items()]
        return all(counts)


class _Handed(NamedTuple, Generic[R]):
    ticket: Batch[Any]
    places: Sequence[int]
    records: Sequence[R]


async def collect(
    batches: AsyncIterable[Batch[Any]],
    key: Callable[[Record], Hashable],
    *,
    records: int,
    age_s: float = math.inf,
) -> AsyncGenerator[Collection, None]:
    """Collections of ``records`` records with the same ``key(record)``, out of a consumer or a shard.

    ``age_s``: a collection is delivered, with what it has, when its first record came so long ago. Nothing blocks
    while records of a key wait for others: they count as delivered, so they are bounded, and told when they are not
    settled in time. What waits of a shard that is about to be handed over is delivered at once. Leave it with
    `contextlib.aclosing`: what waits then is delivered again, as with every iteration that is left.
    """
    loop = asyncio.get_running_loop()
    collector: Collector[Any] = Collector(key, records=records, age_s=age_s, name_of=_name)
    iterator = aiter(batches)
    following: asyncio.Task[Batch[Any]] | None = None
    breath = Breath()
    try:
        while True:
            if following is None:
                following = awaited(_next(iterator))
            wait_s = min(collector.next_at_s() - loop.time(), LOOK_INTERVAL_S) if len(collector) else None
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


def _current(group: Collected[Any]) -> Collection | None:
    """The collection without records whose shard another worker has by now; None when none are left."""
    group.keep(lambda batch: batch.counts)
    return Collection(group) if len(group) else None


def _name(record: Any) -> Hashable:
    of = getattr(record, "record", record)
    return of.stream, of.shard_id, of.sequence_number, of.sub_sequence_number, getattr(record, "part", None)
