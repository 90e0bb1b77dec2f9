"""The user records of a page: aggregates are opened, and a `Record` is made when the program looks at one.

A handler that counts, or hands the data on, looks at columns (`UserRecords.datas`), which cost nothing to make.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, NamedTuple, overload

from penstock.core.aggregation import open_aggregate
from penstock.core.aggregation.format import MAGIC
from penstock.errors import AggregateError
from penstock.model import OutsidePolicy, Position, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.aggregation.reader import Aggregate
    from penstock.core.feeding.pages import RawRecord


PLAIN_BYTES = 333
"""What the process grows by for a Kinesis record beside its data and its key (measured on CPython 3.11, Linux)."""
INNER_BYTES = 200
"""What Python needs for a user record of an aggregate beside its data, its key included: keys repeat."""
RECORD_BYTES = 230
"""What Python needs for a `Record` that is made of either."""
KEYS_SAMPLED = 16
"""So many keys of a page are measured: the bound of memory needs no more."""


class ShardView(NamedTuple):
    """The shard that records come from, and how they are to be opened."""

    stream: str
    shard_id: str
    first_hash_key: int
    last_hash_key: int
    """Inclusive, of the shard's range."""
    outside: OutsidePolicy = OutsidePolicy.DELIVER


class UserRecords(Sequence[Record]):
    """Records of one shard in their order: a plain record each, or what was inside of aggregates.

    Slices are such sequences too. ``payload_bytes`` counts the data alone, ``held_bytes`` the memory that is taken.
    """

    __slots__ = ("_aggregate_bytes", "_datas", "_inner", "_payload_bytes", "_raws", "_shard")

    def __init__(
        self,
        shard: ShardView,
        raws: Sequence[RawRecord],
        inner: Sequence[tuple[int, str, int | None]] | None = None,
        datas: Sequence[bytes] | None = None,
        aggregate_bytes: int = 0,
    ) -> None:
        """``raws`` has the Kinesis record of each user record. ``inner``: the sub-sequence number, partition key and
        explicit hash key of each, with -1 for one that is a plain record; None when all are. ``aggregate_bytes``: the
        memory of the Kinesis records, which stay for as long as one of their user records does.
        """
        self._aggregate_bytes = aggregate_bytes
        self._payload_bytes: int | None = None
        self._shard = shard
        self._raws = raws
        self._inner = inner
        self._datas = datas

    @property
    def datas(self) -> Sequence[bytes]:
        """The data of each, in order."""
        if self._datas is None:
            self._datas = [raw.data for raw in self._raws]
        return self._datas

    @property
    def payload_bytes(self) -> int:
        """Data of all of them. The pace, the buffer and the ledger ask for it, each with every page."""
        if self._payload_bytes is None:
            self._payload_bytes = sum(map(len, self.datas))
        return self._payload_bytes

    @property
    def held_bytes(self) -> int:
        """The memory that these records take, about: their data, and what Python needs for each of them."""
        count = len(self._raws)
        if not count:
            return 0
        if self._inner is not None:
            return self.payload_bytes + count * INNER_BYTES + self._aggregate_bytes
        keys = [len(raw.partition_key or "") for raw in self._raws[:: max(1, count // KEYS_SAMPLED)]]
        return self.payload_bytes + count * (PLAIN_BYTES + sum(keys) // len(keys))

    def position(self, index: int) -> Position:
        """Where a record stands, without making it."""
        sub = 0 if self._inner is None else max(0, self._inner[index][0])
        return Position(int(self._raws[index].sequence_number), sub)

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> UserRecords: ...

    def __getitem__(self, index: int | slice) -> Record | UserRecords:
        if isinstance(index, slice):
            return UserRecords(
                self._shard,
                self._raws[index],
                None if self._inner is None else self._inner[index],
                None if self._datas is None else self._datas[index],
                self._aggregate_bytes * len(range(*index.indices(len(self._raws)))) // max(1, len(self._raws)),
            )
        raw = self._raws[index]
        if self._inner is None or self._inner[index][0] < 0:
            return self._plain(raw)
        return self._out_of(raw, self._inner[index], self.datas[index])

    def __iter__(self) -> Iterator[Record]:
        if self._inner is None:
            return map(self._plain, self._raws)
        return (
            self._plain(raw) if inner[0] < 0 else self._out_of(raw, inner, data)
            for raw, inner, data in zip(self._raws, self._inner, self.datas, strict=True)
        )

    def _plain(self, raw: RawRecord) -> Record:
        return Record(
            stream=self._shard.stream,
            shard_id=self._shard.shard_id,
            partition_key=raw.partition_key,
            data=raw.data,
            sequence_number=int(raw.sequence_number),
            approximate_arrival_timestamp=_arrival(raw),
        )

    def _out_of(self, raw: RawRecord, inner: tuple[int, str, int | None], data: bytes) -> Record:
        sub, partition_key, explicit_hash_key = inner
        return Record(
            stream=self._shard.stream,
            shard_id=self._shard.shard_id,
            partition_key=partition_key,
            data=data,
            sequence_number=int(raw.sequence_number),
            sub_sequence_number=sub,
            approximate_arrival_timestamp=_arrival(raw),
            explicit_hash_key=explicit_hash_key,
            aggregated=True,
        )


class Opened(NamedTuple):
    """A page's user records, and what was noticed on the way."""

    records: UserRecords
    aggregates: int = 0
    outside: int = 0
    """Aggregates with a record of another shard's range."""
    dropped: int = 0
    """User records that were in those, where they are dropped."""


def opened(shard: ShardView, raws: Sequence[RawRecord], *, done: Position | None = None) -> Opened:
    """The user records of Kinesis records, without those up to and with ``done``, which lies in the first one.

    Raises AggregateError where the shard is read so.
    """
    if done is not None and raws and int(raws[0].sequence_number) == done.sequence_number:
        return _opened(shard, raws, done.sub_sequence_number + 1)
    datas = [raw.data for raw in raws]
    if True not in [data.startswith(MAGIC) for data in datas]:
        return Opened(UserRecords(shard, raws, datas=datas))
    return _opened(shard, raws, 0)


def _opened(shard: ShardView, raws: Sequence[RawRecord], skip: int) -> Opened:
    owners: list[RawRecord] = []
    inner: list[tuple[int, str, int | None]] = []
    datas: list[bytes] = []
    aggregates = outside = dropped = aggregate_bytes = 0
    for place, raw in enumerate(raws):
        skipped = skip if place == 0 else 0
        aggregate = open_aggregate(raw.data)
        if aggregate is None:
            if not skipped:
                owners.append(raw)
                inner.append((-1, "", None))
                datas.append(raw.data)
            continue
        aggregates += 1
        if aggregate.outside(shard.first_hash_key, shard.last_hash_key):
            outside += 1
            _refuse(shard, raw, aggregate)
            if shard.outside is OutsidePolicy.DROP:
                dropped += len(aggregate)
                continue
        count = len(aggregate) - skipped
        if count > 0:
            aggregate_bytes += len(raw.data) + PLAIN_BYTES
            owners += repeat(raw, count)
            columns = zip(
                range(len(aggregate)), aggregate.partition_keys(), aggregate.explicit_hash_keys(), strict=True
            )
            inner += islice(columns, skipped, None)
            datas += aggregate.datas[skipped:]
    return Opened(UserRecords(shard, owners, inner, datas, aggregate_bytes), aggregates, outside, dropped)


def _refuse(shard: ShardView, raw: RawRecord, aggregate: Aggregate) -> None:
    if shard.outside is OutsidePolicy.RAISE:
        raise AggregateError(
            f"{shard.stream}, {shard.shard_id}: the aggregate {raw.sequence_number} of {len(aggregate)} user records "
            "holds some of another shard's hash range: its producer had an old map of the shards, and may have put "
            "them again. Read with OutsidePolicy.DELIVER (nothing is lost) or DROP (as the KCL does)"
        )


def _arrival(raw: RawRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(raw.approximate_arrival_timestamp, dt.UTC)
