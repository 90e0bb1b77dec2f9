"""Records on their way in, counted against the bound and gathered into chunks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from penstock.core.batching import Chunk
from penstock.core.batching.chunk import RECORD_OVERHEAD_BYTES
from penstock.runtime.checking import Portion, held_bytes
from penstock.runtime.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


CHUNK_RECORDS_MAX = 2_000
"""A chunk's bookkeeping is kept until its last record has an outcome: so it has not too many."""


class Intake:
    """Where puts go first. ``lock`` guards it where threads put; the batcher takes chunks out on its loop."""

    def __init__(
        self,
        *,
        buffer_bytes_max: int,
        time_to_live_s: float,
        clock: Callable[[], float],
        owner: Any,
    ) -> None:
        self.room = Room(buffer_bytes_max)
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.number = 0
        """Of the open chunk."""
        self.keys: list[str] = []
        """Of the open chunk; ``datas`` beside it."""
        self.datas: list[bytes] = []
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
