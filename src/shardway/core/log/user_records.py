"""The user records of a page: aggregates are opened, and a `Record` is made when the program looks at one.

A handler that counts, or hands the data on, looks at columns (`UserRecords.datas`), which cost nothing to make.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, overload

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.errors import AggregateError
from shardway.model import OutsidePolicy, Position, Record, Tags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.log.pages import RawRecord


PLAIN_BYTES = 333
"""The bytes by which the process grows for a Kinesis record beside its data and its key (measured on CPython 3.11,
Linux).
"""
INNER_BYTES = 200
"""The bytes that Python needs for a user record of an aggregate beside its data, its key included: keys repeat."""
RECORD_BYTES = 230
"""The bytes that Python needs for a `Record` that is made of either."""
OPENED_AT_ONCE_BYTES_MAX = 131_072
"""The bytes of a page's aggregates that are opened in one step: some 20 ms of small user records."""
KEYS_SAMPLED = 16
"""The number of keys of a page that are measured: the bound of memory needs no more."""


class ShardView(NamedTuple):
    """The shard that records come from, and how they are to be opened."""

    stream: str
    shard_id: str
    first_hash_key: int
    last_hash_key: int
    """The largest hash key of the shard's range, which belongs to it."""
    outside: OutsidePolicy = OutsidePolicy.DELIVER


Inner: TypeAlias = tuple[int, str, int | None, Tags]
"""A user record's sub-sequence number, partition key, explicit hash key and tags."""
_NOT_INNER: Inner = (-1, "", None, ())
"""The stand-in for a plain record."""


class UserRecords(Sequence[Record]):
    """Records of one shard in their order: a plain record each, or what was inside of aggregates.

    Slices are such sequences too. ``payload_bytes`` counts the data alone, ``held_bytes`` the memory that is taken.
    """

    __slots__ = ("_aggregate_bytes", "_datas", "_inner", "_payload_bytes", "_raws", "_shard")

    def __init__(
        self,
        shard: ShardView,
        raws: Sequence[RawRecord],
        inner: Sequence[Inner] | None = None,
        datas: Sequence[bytes] | None = None,
        aggregate_bytes: int = 0,
    ) -> None:
        """``raws`` has the Kinesis record of each user record. ``inner`` has what its aggregate says of each; None when
        all are plain records. ``aggregate_bytes`` is the memory of the Kinesis records, which stay for as long as one
        of their user records does.
        """
        self._aggregate_bytes = aggregate_bytes
        self._payload_bytes: int | None = None
        self._shard = shard
        self._raws = raws
        self._inner = inner
        self._datas = datas

    @property
    def shard_id(self) -> str:
        """The shard that the records come from."""
        return self._shard.shard_id

    @property
    def datas(self) -> Sequence[bytes]:
        """The data of each record, in order."""
        if self._datas is None:
            self._datas = [raw.data for raw in self._raws]
        return self._datas

    @property
    def payload_bytes(self) -> int:
        """The data bytes of all records. The pace, the buffer and the ledger ask for them, each with every page."""
        if self._payload_bytes is None:
            self._payload_bytes = sum(map(len, self.datas))
        return self._payload_bytes

    @property
    def held_bytes(self) -> int:
        """The memory that these records take, by estimate: their data, and what Python needs for each of them."""
        count = len(self._raws)
        if not count:
            return 0
        if self._inner is not None:
            return self.payload_bytes + count * INNER_BYTES + self._aggregate_bytes
        keys = [len(raw.partition_key or "") for raw in self._raws[:: max(1, count // KEYS_SAMPLED)]]
        return self.payload_bytes + count * (PLAIN_BYTES + sum(keys) // len(keys))

    def columns(self) -> Iterator[tuple[RawRecord, Inner | None, bytes]]:
        """Iterate over the Kinesis record of each, what its aggregate says of it (None: it is a plain record), and its
        data.
        """
        inner = repeat(None) if self._inner is None else (None if one[0] < 0 else one for one in self._inner)
        return zip(self._raws, inner, self.datas, strict=False)

    def position(self, index: int) -> Position:
        """Return the position of a record, without making the record."""
        sub = 0 if self._inner is None else max(0, self._inner[index][0])
        return Position(int(self._raws[index].sequence_number), sub)

    def at(self, position: Position) -> Record | None:
        """Return the record at a position, without making another; None: it is not among these."""
        place = bisect_left(range(len(self._raws)), position, key=self.position)
        return self[place] if place < len(self._raws) and self.position(place) == position else None

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
            return self._plain_record(raw)
        return self._out_of(raw, self._inner[index], self.datas[index])

    def __iter__(self) -> Iterator[Record]:
        if self._inner is None:
            return map(self._plain_record, self._raws)
        return (
            self._plain_record(raw) if inner[0] < 0 else self._out_of(raw, inner, data)
            for raw, inner, data in zip(self._raws, self._inner, self.datas, strict=True)
        )

    def _plain_record(self, raw: RawRecord) -> Record:
        return Record(
            stream=self._shard.stream,
            shard_id=self._shard.shard_id,
            partition_key=raw.partition_key,
            data=raw.data,
            sequence_number=int(raw.sequence_number),
            approximate_arrival_timestamp=_arrival(raw),
        )

    def _out_of(self, raw: RawRecord, inner: Inner, data: bytes) -> Record:
        sub, partition_key, explicit_hash_key, tags = inner
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
            tags=tags,
        )


class OpenedRecord(NamedTuple):
    """The user records of an aggregate, as columns."""

    inner: Sequence[Inner]
    datas: Sequence[bytes]
    is_outside: bool
    """True where it has a record of another shard's range."""


OpenedRecords: TypeAlias = Sequence[OpenedRecord | None]
"""What was opened of each Kinesis record of a page before; None stands for a plain record. It is empty where the page
has no aggregate.
"""


def aggregate_bytes_of(raws: Sequence[RawRecord]) -> int:
    """Return how many bytes of these records are aggregates, by their first bytes."""
    return sum([len(data) for raw in raws if (data := raw.data).startswith(MAGIC)])


def open_all(shard: ShardView, raws: Sequence[RawRecord]) -> OpenedRecords:
    """Open the aggregates of a page. It depends on its arguments alone, so a thread can do it."""
    return [_open_one(shard, raw) for raw in raws]


def counts_of(raws: Sequence[RawRecord]) -> list[int]:
    """Return how many user records each Kinesis record holds: 1 for a plain record. It depends on its argument alone,
    so a thread can do it.
    """
    aggregates = (open_aggregate(raw.data) for raw in raws)
    return [1 if one is None else len(one) for one in aggregates]


def _open_one(shard: ShardView, raw: RawRecord) -> OpenedRecord | None:
    aggregate = open_aggregate(raw.data)
    if aggregate is None:
        return None
    columns = zip(
        range(len(aggregate)), aggregate.partition_keys(), aggregate.explicit_hash_keys(), aggregate.tags(), strict=True
    )
    is_outside = bool(aggregate.outside(shard.first_hash_key, shard.last_hash_key))
    return OpenedRecord(list(columns), aggregate.datas, is_outside)


class OpenedPage(NamedTuple):
    """The user records of a page, and what was noticed on the way."""

    records: UserRecords
    aggregates: int = 0
    outside: int = 0
    """The number of aggregates with a record of another shard's range."""
    dropped: int = 0
    """The number of user records that were in those aggregates, where they are dropped."""


def opened(
    shard: ShardView, raws: Sequence[RawRecord], *, done: Position | None = None, before: OpenedRecords | None = None
) -> OpenedPage:
    """Return the user records of Kinesis records, without those up to and with ``done``, which lies in the first one.
    ``before`` has what `open_all` has made of these records; None: they are opened now.

    Raises AggregateError where the shard is read so.
    """
    if done is not None and raws and int(raws[0].sequence_number) == done.sequence_number:
        return _open(shard, raws, done.sub_sequence_number + 1, before)
    if before is not None and not before:
        return OpenedPage(UserRecords(shard, raws))
    datas = [raw.data for raw in raws]
    if True not in [data.startswith(MAGIC) for data in datas]:
        return OpenedPage(UserRecords(shard, raws, datas=datas))
    return _open(shard, raws, 0, before)


def _open(shard: ShardView, raws: Sequence[RawRecord], skip: int, before: OpenedRecords | None) -> OpenedPage:
    owners: list[RawRecord] = []
    inner: list[Inner] = []
    datas: list[bytes] = []
    aggregates = outside = dropped = aggregate_bytes = 0
    for place, raw in enumerate(raws):
        skipped = skip if place == 0 else 0
        aggregate = _open_one(shard, raw) if not before else before[place]
        if aggregate is None:
            if not skipped:
                owners.append(raw)
                inner.append(_NOT_INNER)
                datas.append(raw.data)
            continue
        aggregates += 1
        if aggregate.is_outside:
            outside += 1
            _refuse(shard, raw, len(aggregate.datas))
            if shard.outside is OutsidePolicy.DROP:
                dropped += len(aggregate.datas)
                continue
        count = len(aggregate.datas) - skipped
        if count > 0:
            aggregate_bytes += len(raw.data) + PLAIN_BYTES
            owners += repeat(raw, count)
            inner += aggregate.inner[skipped:] if skipped else aggregate.inner
            datas += aggregate.datas[skipped:]
    return OpenedPage(UserRecords(shard, owners, inner, datas, aggregate_bytes), aggregates, outside, dropped)


def _refuse(shard: ShardView, raw: RawRecord, count: int) -> None:
    if shard.outside is OutsidePolicy.RAISE:
        raise AggregateError(
            f"{shard.stream}, {shard.shard_id}: the aggregate {raw.sequence_number} of {count} user records "
            "holds some of another shard's hash range: its producer had an old map of the shards, and may have put "
            "them again. Read with OutsidePolicy.DELIVER (nothing is lost) or DROP (as the KCL does)"
        )


def _arrival(raw: RawRecord) -> dt.datetime:
    return dt.datetime.fromtimestamp(raw.approximate_arrival_timestamp, dt.UTC)
