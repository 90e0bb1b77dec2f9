"""A stream in memory: shards with ranges, splits and merges, listings of former times, and two ways to read it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import even_ranges
from shardway.core.sequence import shard_id_of
from shardway.model import ListedShard
from tests.put_entries import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.put_entries import Entry

POISON = b"!poison!"
"""A request with an entry whose data has this in it is refused as a whole."""


class Found(NamedTuple):
    """A user record as a reader finds it."""

    shard_id: str
    sequence_number: int
    sub_sequence_number: int | None
    partition_key: str
    data: bytes
    stray: bool = False
    """In an aggregate, and outside of the shard's range: a reshard was faster than its producer."""


class SimulatedStream:
    """All its shards, also the closed ones; ``logs`` holds what each was given, by sequence number."""

    def __init__(self, shard_count: int) -> None:
        self.shards: dict[str, ListedShard] = {}
        self.logs: dict[str, dict[int, Entry]] = defaultdict(dict)
        self._sequence_number = 0
        self._changes: list[tuple[float, list[ListedShard]]] = []
        for first, last in even_ranges(shard_count):
            self._create(first, last, ())
        self._changes.append((float("-inf"), self.open()))

    def put(self, entry: Entry) -> Answer:
        shard_id = next(shard.shard_id for shard in self.open() if shard.holds(entry.hash_key))
        self._sequence_number += 1
        self.logs[shard_id][self._sequence_number] = entry
        return Answer(shard_id, str(self._sequence_number))

    def open(self) -> list[ListedShard]:
        """The shards that take records, by range."""
        shards = [shard for shard in self.shards.values() if not shard.closed]
        return sorted(shards, key=lambda shard: shard.first_hash_key)

    def split(self, place: int, now_s: float, parts: int = 2) -> None:
        """Split an open shard in half, or a little off it."""
        parent = self.open()[place % len(self.open())]
        middle = parent.first_hash_key + (parent.last_hash_key - parent.first_hash_key) // parts
        self._close(parent)
        self._create(parent.first_hash_key, middle, (parent.shard_id,))
        self._create(middle + 1, parent.last_hash_key, (parent.shard_id,))
        self._changes.append((now_s, self.open()))

    def merge(self, place: int, now_s: float) -> None:
        """Merge an open shard with the next."""
        shards = self.open()
        if len(shards) < 2:
            return
        left, right = shards[place % (len(shards) - 1) :][:2]
        self._close(left)
        self._close(right)
        self._create(left.first_hash_key, right.last_hash_key, (left.shard_id, right.shard_id))
        self._changes.append((now_s, self.open()))

    def listing(self, at_s: float) -> list[ListedShard]:
        """The shards that were open at that time."""
        return [shards for since_s, shards in self._changes if since_s <= at_s][-1]

    def everything(self, *, range_rule: bool = False, newest_first: bool = False) -> Iterator[Found]:
        """All user records, shard by shard, parents before their children.

        With ``range_rule`` as the KCL reads: an aggregate is dropped whole if one of its records lies outside of its
        shard's range. ``newest_first`` takes another one of the possible orders.
        """
        for shard_id in self._reading_order(newest_first=newest_first):
            for number, entry in self.logs[shard_id].items():
                aggregate = open_aggregate(entry.data)
                if aggregate is None:
                    yield Found(shard_id, number, None, entry.partition_key, entry.data)
                    continue
                shard = self.shards[shard_id]
                outside = set(aggregate.outside(shard.first_hash_key, shard.last_hash_key))
                if outside and range_rule:
                    continue
                for key, _, data, sub in aggregate:
                    yield Found(shard_id, number, sub, key, data, sub in outside)

    def _reading_order(self, *, newest_first: bool) -> list[str]:
        order: list[str] = []
        left = list(self.shards.values())[:: -1 if newest_first else 1]
        while left:
            ready = [shard for shard in left if set(shard.parents) <= set(order)]
            order.append(ready[0].shard_id)
            left.remove(ready[0])
        return order

    def _create(self, first: int, last: int, parents: tuple[str, ...]) -> None:
        shard_id = shard_id_of(len(self.shards))
        self.shards[shard_id] = ListedShard(
            shard_id=shard_id,
            parents=parents,
            first_hash_key=first,
            last_hash_key=last,
            first_sequence_number=self._sequence_number,
        )

    def _close(self, shard: ListedShard) -> None:
        self.shards[shard.shard_id] = ListedShard(
            shard_id=shard.shard_id,
            parents=shard.parents,
            first_hash_key=shard.first_hash_key,
            last_hash_key=shard.last_hash_key,
            first_sequence_number=shard.first_sequence_number,
            last_sequence_number=self._sequence_number,
        )
