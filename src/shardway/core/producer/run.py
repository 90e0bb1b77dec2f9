"""A run: a stretch of a chunk's records, which lanes and requests move about as a whole."""

from __future__ import annotations

from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from shardway.core.aggregation.fields import tag_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.core.aggregation.writer import Aggregator
    from shardway.core.producer.chunk import Chunk

T = TypeVar("T")


class Run:
    """Records of one chunk that go to one shard. ``at`` is the place at which what is still there begins."""

    __slots__ = ("at", "attempts", "chunk", "datas", "doubtful", "indices", "keys", "reason", "strays")

    def __init__(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes], indices: Sequence[int]) -> None:
        self.chunk = chunk
        self.keys = keys
        self.datas = datas
        self.indices = indices
        """The indices of the records in the chunk, rising."""
        self.at = 0
        self.attempts = 0
        """The number of requests that carried the records in an earlier load, which was taken apart."""
        self.doubtful = False
        """True if one of those requests may have written the records."""
        self.reason = ""
        """The reason why the last of those requests failed."""
        self.strays = 0
        """How often an aggregate with these records landed in a shard that does not hold them."""

    def __len__(self) -> int:
        return len(self.datas) - self.at

    def next(self, count: int) -> Run:
        """Return the next ``count`` records, as a run of their own."""
        start = self.at
        stop = start + count
        if start == 0 and stop == len(self.datas):
            keys, datas, indices = self.keys, self.datas, self.indices
        else:
            keys, datas, indices = self.keys[start:stop], self.datas[start:stop], self.indices[start:stop]
        return self._part(keys, datas, indices)

    def pick(self, places: Sequence[int]) -> Run:
        """Return the records at these places of a run that nothing was taken off."""
        fresh = self.indices == range(len(self.indices))  # It is a whole chunk then, in which a place is the index.
        if len(places) < 2:
            indices = places if fresh else values_at(self.indices, places)
            return self._part(values_at(self.keys, places), values_at(self.datas, places), indices)
        values = itemgetter(*places)
        return self._part(values(self.keys), values(self.datas), places if fresh else values(self.indices))

    def _part(self, keys: Sequence[str], datas: Sequence[bytes], indices: Sequence[int]) -> Run:
        """Return some of the run's records, which went through the same."""
        some = Run(self.chunk, keys, datas, indices)
        if self.attempts or self.doubtful:
            some.attempts, some.doubtful = self.attempts, self.doubtful
            some.reason, some.strays = self.reason, self.strays
        return some

    def drop_withdrawn(self) -> int:
        """Leave out what was withdrawn meanwhile; return how many records were."""
        withdrawn = self.chunk.withdrawn
        if not withdrawn:
            return 0
        before = len(self)
        places = [place for place in range(self.at, len(self.datas)) if self.indices[place] not in withdrawn]
        if len(places) < before:
            columns = values_at(self.keys, places), values_at(self.datas, places), values_at(self.indices, places)
            self.keys, self.datas, self.indices = columns
            self.at = 0
        return before - len(self)

    def hash_keys(self) -> Iterator[int | None]:
        """Iterate over the explicit hash key of each record that is left, or None."""
        explicit = self.chunk.hash_keys
        if explicit is None:
            return repeat(None, len(self))
        return (explicit.get(self.indices[place]) for place in range(self.at, len(self.datas)))

    def add_to(self, aggregator: Aggregator) -> tuple[int, bool]:
        """Add the next records to an aggregate; return how many were added, and whether one did not fit any more."""
        tags = tag_fields(self.chunk.tags)
        if tags or self.chunk.hash_keys is not None:
            columns = zip(self.keys[self.at :], self.datas[self.at :], self.hash_keys(), strict=True)
            for added, record in enumerate(columns):
                if not aggregator.add(*record, tags):
                    return added, True
            return len(self), False
        reached = aggregator.add_many(self.keys, self.datas, self.at)
        return reached - self.at, reached < len(self.datas)

    def payload_bytes(self) -> int:
        """Return the bytes of data and keys of the records that are left, as the service counts them."""
        keys = "".join(self.keys[self.at :] if self.at else self.keys)
        datas = self.datas[self.at :] if self.at else self.datas
        return sum(map(len, datas)) + (len(keys) if keys.isascii() else len(keys.encode()))

    def record_bytes(self, place: int) -> int:
        """Return the bytes of data and key of one record, as the service counts them."""
        key = self.keys[place]
        return len(self.datas[place]) + (len(key) if key.isascii() else len(key.encode()))


def values_at(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """Return what stands at these places of a column."""
    if len(places) == 1:
        return [column[places[0]]]
    return itemgetter(*places)(column) if places else ()


def pick_records(runs: Iterable[Run], places: Sequence[int]) -> list[Run]:
    """Return the user records at these places (rising) of runs that nothing was taken off, as runs again."""
    picked, start, position = [], 0, 0
    for run in runs:
        stop = start + len(run.keys)
        ours = []
        while position < len(places) and places[position] < stop:
            ours.append(places[position] - start)
            position += 1
        if ours:
            picked.append(run.pick(ours))
        start = stop
    return picked


def note_taken(runs: Sequence[Run]) -> None:
    """Count in their chunks the records that go out for the first time."""
    for run in runs:
        if not run.attempts:
            run.chunk.taken += len(run)


def fitting(run: Run, records_max: int, bytes_max: int) -> tuple[int, int]:
    """Return how many of a run's next records stay within both bounds, and their bytes."""
    count = min(len(run), records_max)
    start, stop = run.at, run.at + count
    keys = "".join(run.keys[start:stop])
    total = sum(map(len, run.datas[start:stop])) + (len(keys) if keys.isascii() else len(keys.encode()))
    if total <= bytes_max:
        return count, total
    total = 0
    for place in range(start, stop):
        payload_bytes = run.record_bytes(place)
        if total + payload_bytes > bytes_max:
            return place - start, total
        total += payload_bytes
    return count, total
