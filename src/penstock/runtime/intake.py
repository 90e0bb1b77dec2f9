"""Records on their way in: checked, counted against the bound, gathered into chunks."""

from __future__ import annotations

import contextlib
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.batching import Chunk
from penstock.core.batching.chunk import RECORD_OVERHEAD_BYTES
from penstock.core.batching.routes import KEY_BYTES_MAX, check_keys, checked_explicit, checked_hash_key
from penstock.errors import InvalidRecordError
from penstock.model import OutRecord
from penstock.runtime.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


CHUNK_RECORDS_MAX = 2_000
CHUNK_BYTES = 1024 * 1024
"""What is put with ``put_many`` is taken in portions of about this: each waits for room of its own."""


_FIRST, _SECOND = itemgetter(0), itemgetter(1)


class Portion(NamedTuple):
    """Checked records, as columns, and what they take of the bound."""

    keys: Sequence[str]
    datas: Sequence[bytes]
    hash_keys: dict[int, int] | None
    """Explicit hash keys by place, if there are any."""
    held_bytes: int


class Intake:
    """Where puts go first. ``lock`` guards it where threads put; the batcher takes chunks out on its loop."""

    def __init__(
        self,
        *,
        buffer_bytes_max: int,
        record_bytes_max: int,
        time_to_live_s: float,
        clock: Callable[[], float],
        owner: Any,
    ) -> None:
        self.room = Room(buffer_bytes_max)
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.record_bytes_max = record_bytes_max
        self.number = 0
        """Of the open chunk."""
        self.keys: list[str] = []
        """Of the open chunk; ``datas`` beside it."""
        self.datas: list[bytes] = []
        self.mixed = False
        """True once a record had a time-to-live of its own."""
        self.owner = owner
        """Whom handles ask to withdraw a record."""
        self._ttl_s = time_to_live_s
        self._clock = clock
        self._closed: list[tuple[Chunk, Sequence[str], Sequence[bytes]]] = []
        self.open = self._new()

    def add(
        self, key: str, data: bytes, explicit_hash_key: int | None = None, time_to_live_s: float | None = None
    ) -> tuple[Chunk, int]:
        """Add a checked record for which room was taken; its chunk and number."""
        if time_to_live_s is not None:
            hash_keys = None if explicit_hash_key is None else {0: explicit_hash_key}
            return self.add_chunk(Portion([key], [data], hash_keys, held_bytes(key, data)), time_to_live_s), 0
        index = len(self.keys)
        if not index:
            self._date()
        chunk = self.open
        if explicit_hash_key is not None:
            chunk.hash_keys = chunk.hash_keys or {}
            chunk.hash_keys[index] = explicit_hash_key
        self.keys.append(key)
        self.datas.append(data)
        if index + 1 >= CHUNK_RECORDS_MAX:
            self.close_chunk()
        return chunk, index

    def add_chunk(self, portion: Portion, time_to_live_s: float | None = None) -> Chunk:
        """Add checked records, for which room was taken, as a chunk of their own."""
        self.close_chunk()
        self._date(time_to_live_s)
        chunk = self.open
        chunk.hash_keys = portion.hash_keys
        self._close(portion.keys, portion.datas, portion.held_bytes)
        return chunk

    def close_chunk(self) -> None:
        """What comes next goes to another chunk."""
        if self.keys:
            keys, datas = self.keys, self.datas
            self.keys, self.datas = [], []
            held = len("".join(keys)) + sum(map(len, datas)) + len(keys) * RECORD_OVERHEAD_BYTES
            self._close(keys, datas, held)

    def take(self) -> list[tuple[Chunk, Sequence[str], Sequence[bytes]]]:
        """All chunks that came in since the last call, the open one with them."""
        self.close_chunk()
        closed, self._closed = self._closed, []
        return closed

    def check(self, record: OutRecord) -> tuple[str, bytes]:
        """A record's key and data. Raises InvalidRecordError."""
        try:
            data, key, explicit = record.data, record.partition_key, record.explicit_hash_key
        except AttributeError:
            raise InvalidRecordError(f"an OutRecord is put, not {type(record).__name__}") from None
        checked_hash_key(key)
        if explicit is not None:
            checked_explicit(explicit)
        data = plain_bytes(data)
        self._check_size(key, data)
        return key, data

    def check_many(self, records: Sequence[Any]) -> Iterator[Portion]:
        """Records, or (partition key, data) pairs, in portions of about a chunk. Raises InvalidRecordError.

        All are checked before the first portion is given out.
        """
        hash_keys: dict[int, int] = {}
        keys, datas = self._as_columns(records, hash_keys)
        check_keys(keys)
        largest = max(map(len, datas), default=0)
        if largest + KEY_BYTES_MAX > self.record_bytes_max:
            deque(map(self._check_size, keys, datas), maxlen=0)
        step = CHUNK_RECORDS_MAX
        if largest * CHUNK_RECORDS_MAX > CHUNK_BYTES:
            step = max(1, min(step, CHUNK_BYTES // largest))
        # No portion may take more than there ever is: it would wait for ever.
        step = min(step, max(1, self.room.bytes_max // (largest + KEY_BYTES_MAX + RECORD_OVERHEAD_BYTES)))
        return _portions(keys, datas, hash_keys, step)

    def _as_columns(self, records: Sequence[Any], hash_keys: dict[int, int]) -> tuple[list[str], list[bytes]]:
        kinds = set(map(type, records))
        if kinds == {OutRecord}:
            keys, datas = [record.partition_key for record in records], [record.data for record in records]
            hash_keys.update(
                (number, checked_explicit(record.explicit_hash_key))
                for number, record in enumerate(records)
                if record.explicit_hash_key is not None
            )
        elif kinds <= {tuple}:
            if set(map(len, records)) - {2}:
                raise InvalidRecordError("put_many takes OutRecords, or pairs of partition key and data")
            keys, datas = list(map(_FIRST, records)), list(map(_SECOND, records))
        else:
            pairs = []
            for number, record in enumerate(records):
                if type(record) is tuple and len(record) == 2:
                    pairs.append(record)
                    continue
                pairs.append(self.check(record))
                if record.explicit_hash_key is not None:
                    hash_keys[number] = record.explicit_hash_key
            keys, datas = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if set(map(type, datas)) - {bytes}:
            datas = [plain_bytes(data) for data in datas]
        return keys, datas

    def _check_size(self, key: str, data: bytes) -> None:
        size = len(data) + len(key.encode())
        if size > self.record_bytes_max:
            raise InvalidRecordError(
                f"a record of {size} bytes (data and partition key) is larger than record_bytes_max, "
                f"{self.record_bytes_max}"
            )

    def _close(self, keys: Sequence[str], datas: Sequence[bytes], held: int) -> None:
        self.open.close(len(keys), held)
        self._closed.append((self.open, keys, datas))
        self.open = self._new()

    def _new(self) -> Chunk:
        self.number += 1
        return Chunk(self.number, put_at_s=0.0, expires_at_s=0.0, owner=self.owner)

    def _date(self, time_to_live_s: float | None = None) -> None:
        now_s = self._clock()
        self.open.put_at_s = now_s
        self.open.expires_at_s = now_s + (self._ttl_s if time_to_live_s is None else time_to_live_s)
        self.mixed = self.mixed or time_to_live_s is not None


def held_bytes(key: str, data: bytes) -> int:
    """What a record takes of the bound."""
    return len(key) + len(data) + RECORD_OVERHEAD_BYTES


def _portions(keys: list[str], datas: list[bytes], hash_keys: dict[int, int], step: int) -> Iterator[Portion]:
    for start in range(0, len(keys), step):
        stop = min(start + step, len(keys))
        some_keys, some_datas = keys[start:stop], datas[start:stop]
        held = len("".join(some_keys)) + sum(map(len, some_datas)) + len(some_keys) * RECORD_OVERHEAD_BYTES
        explicit = None
        if hash_keys:
            explicit = {place - start: hash_keys[place] for place in range(start, stop) if place in hash_keys}
        yield Portion(some_keys, some_datas, explicit or None, held)


def plain_bytes(data: Any) -> bytes:
    """Data as bytes that nobody changes any more. Raises InvalidRecordError."""
    if isinstance(data, bytes):
        return bytes(data)
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise InvalidRecordError(f"a record's data is bytes, not {type(data).__name__}")
