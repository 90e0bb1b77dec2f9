"""Find out from the records that were read in which shards and partition keys the load of a stream lies.

Everything is bounded. The heaviest keys are found with a fixed number of counters: a key that comes back after it was
pushed out begins at the most that it may have had, so its count is never too low, and the report says by how much the
count may be too high. The hash keys for the split are a uniform sample.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import hash_key
from shardway.inspect.values import WRITE_BYTES_PER_S, WRITE_RECORDS_PER_S, Missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.log.pages import RawRecord

KEYS_MAX = 512
"""Partition keys that are counted at a time."""
SAMPLE_RECORDS_MAX = 4096
"""User records whose hash keys decide where a shard is split."""
HOT_UTILIZATION = 0.5
"""A shard that takes at least this part of its limit is hot."""
HOT_TIMES_FAIR = 2.0
"""A shard is hot, too, that takes more than this many times its fair part, once it takes a tenth of its limit."""
ONE_KEY_SHARE = 0.5
"""A key with more of a shard's load than this goes wherever the shard is cut: no split spreads it."""


class HotKey(msgspec.Struct, frozen=True, kw_only=True):
    """A partition key and its part of a shard."""

    partition_key: str | None
    """The key; None where keys are not shown."""
    user_records: int
    payload_bytes: int
    share: float
    """The key's part of the shard's bytes that were read, from 0 to 1."""
    overcounted_bytes_max: int
    """The part of ``payload_bytes`` that may belong to keys that were pushed out of the counters."""


class ShardHeat(msgspec.Struct, frozen=True, kw_only=True):
    """One shard's load within the time that was read."""

    shard_id: str
    span_s: float
    """Seconds that the figures cover."""
    complete: bool
    """False: the reading ended at its bound of records, and did not look at the rest of the time."""
    covered: float = 1.0
    """How much of the time that was asked for the figures cover, from its beginning on."""
    records: int
    """Kinesis records; aggregates count as one."""
    user_records: int
    payload_bytes: int
    records_per_s: float
    bytes_per_s: float
    utilization: float
    """The larger of the parts of the shard's limits that its records and its bytes take; 1 is the limit."""
    share: float
    """The shard's part of the bytes a second of all shards, from 0 to 1. The bytes themselves say nothing: the busiest
    shard meets the bound of records first, and so is read for the shortest time.
    """
    hot: bool
    hot_keys: list[HotKey]
    split_at: str | None
    """A hash key for SplitShard (NewStartingHashKey) that halves the load; None: the shard is not hot, or no split
    helps. It is a round number between the hash keys of two records: the hash of a key tells the key to a reader with a
    list of keys.
    """
    split_share: float | None
    """The part of the load that would stay in the lower half."""
    advice: str | None
    outside: int = 0
    """User records of aggregates whose hash key belongs to another shard: readers leave them out."""


class HeatReport(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a stream by shards and keys."""

    schema: str = "shardway.heat/1"
    stream: str
    since: dt.datetime
    """The beginning of the time that was asked for."""
    shards: list[ShardHeat]
    missing: list[Missing]
    calls: dict[str, int]


class KeyCounts:
    """The heaviest of any number of keys, within `KEYS_MAX` counters."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._max = keys_max
        self._bytes: Counter[str] = Counter()
        self._records: Counter[str] = Counter()
        self._overcounts: dict[str, int] = {}
        self._floor = 0
        """The bytes that no key that was pushed out had more than."""

    def add(self, key: str, payload_bytes: int) -> None:
        """Count a record."""
        if key not in self._bytes and len(self._bytes) >= self._max:
            self._push_out()
        over = self._floor if key not in self._bytes else 0
        if over:
            self._overcounts[key] = over
        self._bytes[key] += payload_bytes + over
        self._records[key] += 1

    def _push_out(self) -> None:
        """Forget the lighter half at once: to look for the lightest key with each record would take quadratic time."""
        ordered = self._bytes.most_common()
        kept, pushed = ordered[: self._max // 2], ordered[self._max // 2 :]
        self._floor = max(self._floor, pushed[0][1])
        names = {key for key, _ in kept}
        self._bytes = Counter(dict(kept))
        self._records = Counter({key: self._records[key] for key in names})
        self._overcounts = {key: self._overcounts[key] for key in names if key in self._overcounts}

    def heaviest(self, count: int, total_bytes: int, *, show_keys: bool = True) -> list[HotKey]:
        """Return the ``count`` heaviest keys, the heaviest first."""
        return [
            HotKey(
                partition_key=key if show_keys else None,
                user_records=self._records[key],
                payload_bytes=counted,
                share=counted / total_bytes if total_bytes else 0.0,
                overcounted_bytes_max=self._overcounts.get(key, 0),
            )
            for key, counted in self._bytes.most_common(count)
        ]


class Split(NamedTuple):
    """The hash key at which to split a shard, and the part of the load below it."""

    at: int
    share: float


def best_split(sample: Iterable[tuple[int, int]], first_hash_key: int, last_hash_key: int) -> Split | None:
    """Return the hash key that halves the load best. ``sample``: pairs of a hash key and bytes. None: all load has one
    hash key, or there is no load.
    """
    weights: Counter[int] = Counter()
    for key, weight in sample:
        if first_hash_key <= key <= last_hash_key:
            weights[key] += max(1, weight)
    total, below, before, best = weights.total(), 0, 0, None
    for number, key in enumerate(sorted(weights)):
        if number and key > first_hash_key:
            share = below / total
            if best is None or abs(share - 0.5) < abs(best.share - 0.5):
                best = Split(_round_between(before, key), share)
        before = key
        below += weights[key]
    return best


def _round_between(low: int, high: int) -> int:
    """Return the number above ``low``, up to and with ``high``, that has the most zero bits at its end."""
    shift = (low ^ high).bit_length() - 1
    return high >> shift << shift


class HeatOfShard:
    """Counts one shard's records as they are read."""

    def __init__(self, shard_id: str, first_hash_key: int, last_hash_key: int, *, seed: int = 0) -> None:
        self.shard_id = shard_id
        self.records = self.user_records = self.payload_bytes = self.outside = 0
        self.keys = KeyCounts()
        self._range = (first_hash_key, last_hash_key)
        self._sample: list[tuple[int, int]] = []
        self._rng = random.Random(seed)

    def add(self, records: Sequence[RawRecord]) -> None:
        """Count a page. Aggregates are opened, and the data of their user records counts; for the shard's limit it is
        the whole aggregate that counts.
        """
        for record in records:
            self.records += 1
            aggregate = open_aggregate(record.data)
            if aggregate is None:
                self._count(record.partition_key or "", len(record.data), None)
                continue
            first, last = self._range
            columns = zip(aggregate.partition_keys(), aggregate.explicit_hash_keys(), aggregate.datas, strict=True)
            for key, explicit, data in columns:
                self.outside += not first <= self._count(key, len(data), explicit) <= last

    def _count(self, key: str, payload_bytes: int, explicit: int | None) -> int:
        """Count a user record, and return its hash key."""
        self.user_records += 1
        self.payload_bytes += payload_bytes
        self.keys.add(key, payload_bytes)
        place, hashed = len(self._sample), hash_key(key) if explicit is None else explicit
        if place >= SAMPLE_RECORDS_MAX:
            place = self._rng.randrange(self.user_records)
        if place < SAMPLE_RECORDS_MAX:
            self._sample[place : place + 1] = [(hashed, payload_bytes)]
        return hashed

    def split(self) -> Split | None:
        """See `best_split`."""
        return best_split(self._sample, *self._range)


class Span(NamedTuple):
    """The time that the figures of a shard cover, from the beginning of the time that was asked for."""

    span_s: float
    complete: bool = True
    covered: float = 1.0
    """See `ShardHeat.covered`."""


def heat_of(
    counted: HeatOfShard,
    span: Span,
    *,
    total_bytes_per_s: float,
    shards: int,
    keys_shown_max: int = 5,
    show_keys: bool = True,
) -> ShardHeat:
    """Return the figures of one shard. ``total_bytes_per_s`` and ``shards`` are the sum and the number of all shards
    that were read.
    """
    records_per_s, bytes_per_s = counted.records / span.span_s, counted.payload_bytes / span.span_s
    utilization = max(records_per_s / WRITE_RECORDS_PER_S, bytes_per_s / WRITE_BYTES_PER_S)
    share = bytes_per_s / total_bytes_per_s if total_bytes_per_s else 0.0
    unfair = shards > 1 and share > HOT_TIMES_FAIR / shards and utilization >= 0.1
    hot = utilization >= HOT_UTILIZATION or unfair
    keys = counted.keys.heaviest(keys_shown_max, counted.payload_bytes, show_keys=show_keys)
    split = counted.split() if hot else None
    one_key = hot and bool(keys) and keys[0].share > ONE_KEY_SHARE
    return ShardHeat(
        shard_id=counted.shard_id,
        span_s=span.span_s,
        complete=span.complete,
        covered=span.covered,
        records=counted.records,
        user_records=counted.user_records,
        payload_bytes=counted.payload_bytes,
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        utilization=utilization,
        share=share,
        hot=hot,
        hot_keys=keys,
        split_at=None if split is None or one_key else str(split.at),
        split_share=None if split is None or one_key else split.share,
        advice=_advice(hot, one_key, split),
        outside=counted.outside,
    )


def _advice(hot: bool, one_key: bool, split: Split | None) -> str | None:
    if not hot:
        return None
    if one_key:
        return "one partition key has most of the load: spread that key over several; a split cannot"
    if split is None:
        return "all records have one hash key: a split cannot spread them"
    return f"split at hash key {split.at}: the lower half keeps {split.share:.0%} of the load"
