"""Remove duplicates exactly: a row is removed where one of its key was kept at most ``window`` before it, and only
there.

Spark's own de-duplication forgets a key when the watermark has passed it, at the end of some batch; so what becomes of
a row further away depends on where batches end. Here the state holds, for each key, the time of the row that was kept.

Rows go through Python three times, as columns, so that no value of theirs changes:

1. *packed*: each Arrow batch is cut into its rows of each bucket; a key's digest says which bucket it belongs to
2. *chosen*: a bucket's rows of a batch are put into the order of their times and compared with the bucket's state.
   This is one value: the digest and the time of each key that can still matter, 24 bytes a key
3. *unpacked*: the rows come out as they were

Spark would also keep a state for each key. One call for each key takes some hundred times as long.
"""

from __future__ import annotations

import hashlib
import re
import struct
import uuid
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as fn

from shardway.errors import OptionError, ShardwayError
from shardway.pipeline.dataframes import columns_of, is_stream
from shardway.pipeline.removed_rows import EXACT_DUPLICATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, GroupedData
    from pyspark.sql.streaming.state import GroupState

BUCKETS = 128
"""The number of buckets of a query's state. It never changes: a bucket's number is part of what is stored."""

_KEY, _MICROS, _ORDER, _HIGH, _LOW = (f"_shardway_{name}" for name in ("key", "micros", "order", "high", "low"))
_BUCKET, _ROWS = "bucket", "rows"
_DUPLICATES = "duplicates"
_CHOSEN_COLUMNS = f"{_ROWS} BINARY, {_DUPLICATES} BIGINT"
_ROWS_MAX = 10_000
"""The largest number of rows in one value."""
_VERSION = 1
_HEAD = struct.Struct("<Bq")
_LONG_AGO = -(1 << 62)
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("at", "<i8")])
"""One key: its digest in two halves, and the time of the row that was kept, in microseconds since 1970."""
_PART = re.compile(r"\s*(\d+)\s*(microsecond|millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE)
_MICROS_OF = {
    "microsecond": 1, "millisecond": 1_000, "second": 10**6, "minute": 60 * 10**6, "hour": 3_600 * 10**6,
    "day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6,
}  # fmt: skip


def without_exact_duplicates(records: DataFrame, key: Column, *, time: Column, order: Column, window: str) -> DataFrame:
    """Return the rows that are no duplicates. ``key``: a struct, null for a row that stands alone; ``order``: a text,
    by which rows of one time are told apart.

    Raises OptionError for a span that is no number of units, and where the columns are not known.
    """
    window_micros = micros_of(window)
    if columns_of(records) is None:
        raise OptionError(
            "exact: Spark does not tell the columns inside of a query function of a declarative pipeline: leave it out"
        )
    with warnings.catch_warnings():
        # PySpark warns of pandas 3, which changed texts and copies. What pandas carries here is bytes and numbers.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return _plan(records, {_KEY: key, _MICROS: fn.unix_micros(time), _ORDER: order}, window_micros)


def _plan(records: DataFrame, added: dict[str, Column], window: int) -> DataFrame:
    """Return the plan that packs rows, chooses some of each bucket, counts the others and unpacks the rows."""
    schema = records.schema
    names = schema.names
    packed = records.withColumns(added).mapInArrow(_pack, f"{_BUCKET} INT, {_ROWS} BINARY")
    chosen = _chosen_of(packed.groupBy(_BUCKET), window, streamed=is_stream(records))
    # A query may have two of these, and each observation a name of its own.
    counted = chosen.observe(f"{EXACT_DUPLICATES}_{uuid.uuid4().hex[:8]}", fn.sum(_DUPLICATES).alias(EXACT_DUPLICATES))

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for rows in batch.column(_ROWS).drop_null():
                yield from _table(rows.as_py()).select(names).to_batches()

    return counted.mapInArrow(unpack, schema)


def _chosen_of(groups: GroupedData, window: int, *, streamed: bool) -> DataFrame:
    """Return the rows of all buckets that are kept, packed, and how many are not."""
    if not streamed:
        return groups.applyInPandas(lambda frame: _choose([frame], BucketKeys(), window), _CHOSEN_COLUMNS)

    def choose(_: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        kept = BucketKeys.read(bytes(state.get[0]) if state.exists else b"")
        yield _choose(frames, kept, window)
        state.update((kept.write(),))

    return groups.applyInPandasWithState(choose, _CHOSEN_COLUMNS, "kept BINARY", "append", "NoTimeout")


def micros_of(span: str) -> int:
    """Return the microseconds of a span such as ``10 minutes`` or ``1 hour 30 minutes``. Raises OptionError for a text
    that is none.
    """
    parts = _PART.findall(span)
    if not parts or _PART.sub("", span):
        raise OptionError(f"window: {span!r} is no number of seconds, minutes, hours, days or weeks")
    return sum(int(number) * _MICROS_OF[unit.lower()] for number, unit in parts)


class BucketKeys:
    """The keys of a bucket that can still matter, and when a row of each was kept."""

    def __init__(self, entries: NDArray[Any] | None = None, newest: int = _LONG_AGO) -> None:
        self._entries = np.empty(0, _ENTRY) if entries is None else entries
        self._newest = newest
        """The time of the newest row, in microseconds since 1970."""

    @classmethod
    def read(cls, stored: bytes) -> BucketKeys:
        """Read what ``write`` made; without bytes there are no keys. Raises ShardwayError for what a later version has
        written.
        """
        if not stored:
            return cls()
        if stored[0] != _VERSION:
            raise ShardwayError(f"deduplicate: a state of version {stored[0]} is not known here: use a newer shardway")
        return cls(np.frombuffer(stored, _ENTRY, offset=_HEAD.size), _HEAD.unpack_from(stored)[1])

    def write(self) -> bytes:
        """Return the bytes of a version, the newest time, and the entries in the order of their digests."""
        return _HEAD.pack(_VERSION, self._newest) + self._entries.tobytes()

    def choose(self, rows: Sequence[tuple[int, int, int | None]], window: int) -> list[bool]:
        """Return which rows are kept. ``rows``: (half a digest, the other half, time), in the order of their times.

        A row without a time is always kept.
        """
        before = self._places_of({(high, low) for high, low, at in rows if at is not None})
        now: dict[tuple[int, int], int] = {}
        chosen = []
        for high, low, at in rows:
            if at is None:
                chosen.append(True)
                continue
            digest = (high, low)
            kept = now.get(digest)
            if kept is None and digest in before:
                kept = int(self._entries["at"][before[digest]])
            repeat = kept is not None and abs(at - kept) <= window
            chosen.append(not repeat)
            if not repeat and (kept is None or at > kept):
                now[digest] = at
            self._newest = max(self._newest, at)
        self._renew(now, [before[digest] for digest in now if digest in before], window)
        return chosen

    def _places_of(self, digests: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Return the places of entries, by digest, for those digests that have one."""
        wanted = sorted(digests)
        highs = self._entries["high"]
        begins = np.searchsorted(highs, np.array([high for high, _ in wanted], "<u8"))
        found = {}
        for (high, low), place in zip(wanted, begins.tolist(), strict=True):
            while place < len(highs) and highs[place] == high:
                if self._entries["low"][place] == low:
                    found[high, low] = place
                    break
                place += 1
        return found

    def _renew(self, now: dict[tuple[int, int], int], replaced: list[int], window: int) -> None:
        """Put new entries in the place of old ones, and leave out those that no longer matter: no row that comes in
        time, ``window`` behind the newest, lies within ``window`` of what is left out.
        """
        new = np.array([(high, low, at) for (high, low), at in now.items()], _ENTRY)
        entries = np.concatenate([np.delete(self._entries, replaced), new])
        entries = entries[entries["at"] >= self._newest - 2 * window]
        self._entries = entries[np.lexsort((entries["low"], entries["high"]))]


def _choose(frames: Iterable[pd.DataFrame], kept: BucketKeys, window: int) -> pd.DataFrame:
    """Return the rows of a bucket that are kept, packed, and how many are not."""
    rows = pa.concat_tables([_table(rows) for frame in frames for rows in frame[_ROWS]])
    rows = rows.sort_by([(_MICROS, "ascending"), (_ORDER, "ascending")])
    columns = [rows[name].to_pylist() for name in (_HIGH, _LOW, _MICROS)]
    left = rows.filter(pa.array(kept.choose(list(zip(*columns, strict=True)), window)))
    portions = [left.slice(at, _ROWS_MAX) for at in range(0, left.num_rows, _ROWS_MAX)]
    packed: list[bytes | None] = [_bytes(one.combine_chunks().to_batches()[0]) for one in portions]
    packed = packed or [None]  # the number of removed rows is reported even without rows
    first = [rows.num_rows - left.num_rows] + [0] * (len(packed) - 1)
    return pd.DataFrame({_ROWS: pd.Series(packed, dtype=object), _DUPLICATES: pd.Series(first, dtype="int64")})


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield, for each batch, its rows of each bucket as one value."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        keys = batch.column(_KEY)
        digests = [_digest(number if key is None else key) for number, key in enumerate(keys.to_pylist())]
        high, low = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2).T
        buckets = (low % BUCKETS).astype(np.int32)
        names = [name for name in batch.schema.names if name != _KEY]
        columns = {name: batch.column(name) for name in names}
        columns[_MICROS] = pc.if_else(pc.is_null(keys), None, columns[_MICROS])
        columns |= {_HIGH: pa.array(high), _LOW: pa.array(low)}
        order = np.argsort(buckets, kind="stable")
        rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)).take(pa.array(order))
        begins = np.flatnonzero(np.diff(buckets[order], prepend=-1)).tolist()
        parts = [rows.slice(at, end - at) for at, end in zip(begins, [*begins[1:], len(order)], strict=True)]
        yield pa.RecordBatch.from_arrays(
            [pa.array(buckets[order][begins]), pa.array([_bytes(one) for one in parts], pa.binary())],
            names=[_BUCKET, _ROWS],
        )


def _digest(key: Any) -> bytes:
    """Return a key's digest, which is the same for the same values, whatever run and process they are met in."""
    return hashlib.blake2b(msgspec.msgpack.encode(key, enc_hook=repr), digest_size=16).digest()


def _bytes(rows: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writing:
        writing.write_batch(rows)
    packed: bytes = out.getvalue().to_pybytes()
    return packed


def _table(packed: bytes) -> pa.Table:
    return pa.ipc.open_stream(packed).read_all()
