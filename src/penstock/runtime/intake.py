"""Records on their way in: checked, counted against the bound, gathered into chunks."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.batching import Chunk
from penstock.core.batching.chunk import RECORD_OVERHEAD_BYTES
from penstock.core.batching.routes import checked_explicit, checked_hash_key
from penstock.errors import InvalidRecordError
from penstock.model import OutRecord
from penstock.runtime.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.core.batching.routes import Routes
    from penstock.core.batching.runs import Pair

CHUNK_RECORDS_MAX = 2_000
CHUNK_BYTES = 1024 * 1024
"""A chunk is closed when it has this much: its bookkeeping is kept until its last record has an outcome."""

Checked = tuple[list["Pair"], dict[int, int] | None, int]
"""Pairs, explicit hash keys by place, and what they take of the bound."""


class Intake:
    """Where puts go first. ``lock`` guards it where threads put; the batcher takes chunks out on its loop."""

    def __init__(
        self,
        *,
        buffer_bytes_max: int,
        record_bytes_max: int,
        time_to_live_s: float,
        clock: Callable[[], float],
        routes: Callable[[], Routes],
        owner: Any,
    ) -> None:
        self.room = Room(buffer_bytes_max)
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.record_bytes_max = record_bytes_max
        self.number = 0
        """Of the newest chunk."""
        self.pairs: list[Pair] = []
        """Of the open chunk."""
        self.bytes = 0
        """What the open chunk takes of the bound."""
        self.mixed = False
        """True once a record had a time-to-live of its own."""
        self._ttl_s = time_to_live_s
        self._clock = clock
        self._routes = routes
        self.owner = owner
        """Whom handles ask to withdraw a record."""
        self._closed: list[tuple[Chunk, Sequence[Pair]]] = []
        self.open = self._new()

    def add(
        self, pair: Pair, held_bytes: int, explicit_hash_key: int | None = None, time_to_live_s: float | None = None
    ) -> tuple[Chunk, int]:
        """Add a checked record for which room was taken; its chunk and number."""
        if time_to_live_s is not None:
            hash_keys = None if explicit_hash_key is None else {0: explicit_hash_key}
            return self.add_chunk([pair], hash_keys, held_bytes, time_to_live_s), 0
        index = len(self.pairs)
        if not index:
            self._date()
        chunk = self.open
        if explicit_hash_key is not None:
            chunk.hash_keys = {**(chunk.hash_keys or {}), index: explicit_hash_key}
        self.pairs.append(pair)
        self.bytes += held_bytes
        if index + 1 >= CHUNK_RECORDS_MAX or self.bytes >= CHUNK_BYTES:
            self.close_chunk()
        return chunk, index

    def add_chunk(
        self,
        pairs: Sequence[Pair],
        hash_keys: dict[int, int] | None,
        held_bytes: int,
        time_to_live_s: float | None = None,
    ) -> Chunk:
        """Add checked records, for which room was taken, as a chunk of their own."""
        self.close_chunk()
        self._date(time_to_live_s)
        chunk = self.open
        chunk.hash_keys = hash_keys
        self.pairs, self.bytes = list(pairs), held_bytes
        self.close_chunk()
        return chunk

    def close_chunk(self) -> None:
        """What comes next goes to another chunk."""
        if self.pairs:
            self.open.close(len(self.pairs), self.bytes)
            self._closed.append((self.open, self.pairs))
            self.pairs, self.bytes = [], 0
            self.open = self._new()

    def take(self) -> list[tuple[Chunk, Sequence[Pair]]]:
        """All chunks that came in since the last call, the open one with them."""
        self.close_chunk()
        closed, self._closed = self._closed, []
        return closed

    def check(self, record: OutRecord) -> tuple[Pair, int]:
        """A record as a pair, and what it takes of the bound. Raises InvalidRecordError."""
        try:
            data, key, explicit = record.data, record.partition_key, record.explicit_hash_key
        except AttributeError:
            raise InvalidRecordError(f"an OutRecord is put, not {type(record).__name__}") from None
        checked_hash_key(key)
        if explicit is not None:
            checked_explicit(explicit)
        data = plain_bytes(data)
        return (key, data), self.size((key, data))

    def check_many(self, records: Sequence[Any]) -> Iterator[Checked]:
        """Records, or (partition key, data) pairs, in portions of about a chunk. Raises InvalidRecordError.

        All are checked before the first portion is given out.
        """
        hash_keys: dict[int, int] = {}
        pairs = self._as_pairs(records, hash_keys)
        largest = max(map(len, [pair[1] for pair in pairs]), default=0)
        if largest + 4 * 256 > self.record_bytes_max:
            for pair in pairs:
                self.size(pair)
        step = CHUNK_RECORDS_MAX
        if largest * CHUNK_RECORDS_MAX > CHUNK_BYTES:
            step = max(1, min(step, CHUNK_BYTES // largest))
        return self._portions(pairs, hash_keys, step)

    def size(self, pair: Pair) -> int:
        """What a record takes of the bound. Raises InvalidRecordError if it is too large."""
        key, data = pair
        size = len(data) + len(key.encode())
        if size > self.record_bytes_max:
            raise InvalidRecordError(
                f"a record of {size} bytes (data and partition key) is larger than record_bytes_max, "
                f"{self.record_bytes_max}"
            )
        return size + RECORD_OVERHEAD_BYTES

    def _portions(self, pairs: list[Pair], hash_keys: dict[int, int], step: int) -> Iterator[Checked]:
        for start in range(0, len(pairs), step):
            portion = pairs if step >= len(pairs) else pairs[start : start + step]
            held = sum([len(pair[1]) for pair in portion]) + sum([len(pair[0]) for pair in portion])
            explicit = None
            if hash_keys:
                explicit = {
                    place - start: hash_keys[place]
                    for place in range(start, start + len(portion))
                    if place in hash_keys
                }
            yield portion, explicit or None, held + len(portion) * RECORD_OVERHEAD_BYTES

    def _as_pairs(self, records: Sequence[Any], hash_keys: dict[int, int]) -> list[Pair]:
        kinds = set(map(type, records))
        if kinds <= {tuple}:
            pairs = records if isinstance(records, list) else list(records)
            if set(map(len, pairs)) - {2}:
                raise InvalidRecordError("put_many takes OutRecords, or pairs of partition key and data")
        else:
            pairs = []
            for number, record in enumerate(records):
                pairs.append(record if type(record) is tuple else self.check(record)[0])
                if isinstance(record, OutRecord) and record.explicit_hash_key is not None:
                    hash_keys[number] = record.explicit_hash_key
        if set(map(type, [pair[1] for pair in pairs])) - {bytes}:
            pairs = [(pair[0], plain_bytes(pair[1])) for pair in pairs]
        # A look-up checks a key, and remembers its way for later.
        deque(map(self._routes().__getitem__, [pair[0] for pair in pairs]), maxlen=0)
        return pairs

    def _new(self) -> Chunk:
        self.number += 1
        return Chunk(self.number, put_at_s=0.0, expires_at_s=0.0, owner=self.owner)

    def _date(self, time_to_live_s: float | None = None) -> None:
        now_s = self._clock()
        self.open.put_at_s = now_s
        self.open.expires_at_s = now_s + (self._ttl_s if time_to_live_s is None else time_to_live_s)
        self.mixed = self.mixed or time_to_live_s is not None


def plain_bytes(data: Any) -> bytes:
    """Data as bytes that nobody changes any more. Raises InvalidRecordError."""
    if isinstance(data, bytes):
        return bytes(data)
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise InvalidRecordError(f"a record's data is bytes, not {type(data).__name__}")
