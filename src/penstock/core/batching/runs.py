"""A stretch of user records of one chunk, in the order in which they were put."""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.core.aggregation import Aggregator
    from penstock.core.batching.chunk import Chunk

T = TypeVar("T")


class Run:
    """Records of one chunk that go to one shard. ``at`` is where what is still there begins."""

    __slots__ = ("at", "attempts", "chunk", "datas", "doubtful", "indices", "keys", "reason", "strays")

    def __init__(
        self,
        chunk: Chunk,
        keys: Sequence[str],
        datas: Sequence[bytes],
        indices: Sequence[int],
        *,
        attempts: int = 0,
        doubtful: bool = False,
        reason: str = "",
        strays: int = 0,
    ) -> None:
        self.chunk = chunk
        self.keys = keys
        self.datas = datas
        self.indices = indices
        """Which records of the chunk they are, rising."""
        self.at = 0
        self.attempts = attempts
        """Requests that carried them in an earlier load, which was taken apart."""
        self.doubtful = doubtful
        """True if one of those may have written them."""
        self.reason = reason
        """What the last of those met."""
        self.strays = strays
        """How many aggregates they were in that landed in a shard to which they do not belong."""

    def __len__(self) -> int:
        return len(self.datas) - self.at

    def cut(self, count: int) -> Run:
        """Take the next ``count`` records off, as a run of their own."""
        taken = self.next(count)
        self.at += count
        return taken

    def next(self, count: int) -> Run:
        """The next ``count`` records, as a run of their own."""
        start = self.at
        stop = start + count
        if start == 0 and stop == len(self.datas):
            keys, datas, indices = self.keys, self.datas, self.indices
        else:
            keys, datas, indices = self.keys[start:stop], self.datas[start:stop], self.indices[start:stop]
        return self._of(keys, datas, indices)

    def only(self, places: Sequence[int]) -> Run:
        """The records at these places of a run that nothing was taken off."""
        fresh = self.indices == range(len(self.indices))  # a whole chunk, in which a place is the index
        indices = places if fresh else chosen(self.indices, places)
        return self._of(chosen(self.keys, places), chosen(self.datas, places), indices)

    def _of(self, keys: Sequence[str], datas: Sequence[bytes], indices: Sequence[int]) -> Run:
        """Some of its records, which went through the same."""
        return Run(
            self.chunk,
            keys,
            datas,
            indices,
            attempts=self.attempts,
            doubtful=self.doubtful,
            reason=self.reason,
            strays=self.strays,
        )

    def without_withdrawn(self) -> int:
        """Leave out what was withdrawn meanwhile; returns how many were."""
        gone = self.chunk.withdrawn
        if not gone:
            return 0
        before = len(self)
        places = [place for place in range(self.at, len(self.datas)) if self.indices[place] not in gone]
        if len(places) < before:
            columns = chosen(self.keys, places), chosen(self.datas, places), chosen(self.indices, places)
            self.keys, self.datas, self.indices = columns
            self.at = 0
        return before - len(self)

    def hash_keys(self) -> Iterator[int | None]:
        """The explicit hash key of each record that is left, or None."""
        explicit = self.chunk.hash_keys
        if explicit is None:
            return repeat(None, len(self))
        return (explicit.get(self.indices[place]) for place in range(self.at, len(self.datas)))

    def add_to(self, aggregator: Aggregator) -> tuple[int, bool]:
        """Add the next records to an aggregate: how many were added, and whether one did not fit any more."""
        if self.chunk.hash_keys is not None:
            columns = zip(self.keys[self.at :], self.datas[self.at :], self.hash_keys(), strict=True)
            for added, record in enumerate(columns):
                if not aggregator.add(*record):
                    return added, True
            return len(self), False
        reached = aggregator.add_many(self.keys, self.datas, self.at)
        return reached - self.at, reached < len(self.datas)

    def payload_bytes(self) -> int:
        """Data and keys of the records that are left, as the service counts them."""
        keys = "".join(self.keys[self.at :] if self.at else self.keys)
        datas = self.datas[self.at :] if self.at else self.datas
        return sum(map(len, datas)) + (len(keys) if keys.isascii() else len(keys.encode()))

    def record_bytes(self, place: int) -> int:
        """The same of one record."""
        key = self.keys[place]
        return len(self.datas[place]) + (len(key) if key.isascii() else len(key.encode()))


def chosen(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """What stands at these places of a column."""
    if len(places) == 1:
        return [column[places[0]]]
    return itemgetter(*places)(column) if places else ()
