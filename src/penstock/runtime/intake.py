"""Records on their way in, counted against the bound and gathered into chunks.

As in `penstock.runtime.room`, a signal handler may raise in the middle of each function. A record is queued by one
statement, and what it takes of the bound goes over to its chunk beside that; a chunk is in the queue until the send
loop has it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.batching import Chunk
from penstock.core.batching.chunk import RECORD_OVERHEAD_BYTES
from penstock.core.batching.routes import keys_bytes
from penstock.runtime.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.runtime.checking import Checked, Portion
    from penstock.runtime.room import Claim


CHUNK_RECORDS_MAX = 2_000
"""A chunk's bookkeeping is kept until its last record has an outcome: so it has not too many."""


class Intake:
    """Where puts go first. ``lock`` guards it where threads put; the send loop takes chunks out of ``queue``."""

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
        """Of the newest chunk in the queue, or that was there."""
        self.queue: deque[Chunk] = deque()
        """Chunks that get no further records, the oldest first."""
        self.owner = owner
        """What handles ask to withdraw a record."""
        self._ttl_s = time_to_live_s
        self._clock = clock
        self.open = self._new()
        """The chunk to which single records go."""

    def add(self, record: Checked, claim: Claim) -> tuple[Chunk, int]:
        """Add a checked record, which takes over what the claim holds; its chunk and number."""
        chunk = self.open
        index = len(chunk.pairs) // 2
        if not index:
            self._date(chunk, None)
        if record.explicit_hash_key is not None:
            if chunk.hash_keys is None:
                chunk.hash_keys = {}
            chunk.hash_keys[index] = record.explicit_hash_key
        elif chunk.hash_keys:
            chunk.hash_keys.pop(index, None)  # of a put that was interrupted
        own_bytes = record.held_bytes
        # No call stands between these: all are done, or none is.
        chunk.pairs += (record.partition_key, record.data)  # type: ignore[operator]
        chunk.extra_bytes += claim.held - own_bytes
        self.room.claimed -= claim.held
        claim.held = 0
        if index + 1 >= CHUNK_RECORDS_MAX:
            self.close_chunk()
        return chunk, index

    def add_chunk(self, portion: Portion, time_to_live_s: float | None, claim: Claim) -> Chunk:
        """Add checked records as a chunk of their own, which takes over its part of what the claim holds."""
        self.close_chunk()
        chunk = self._new()
        self._date(chunk, time_to_live_s)
        chunk.keys, chunk.datas, chunk.hash_keys, chunk.pairs = portion.keys, portion.datas, portion.hash_keys, ()
        held_bytes = min(claim.held, portion.held_bytes)
        chunk.extra_bytes = held_bytes - portion.records_bytes
        chunk.close(len(portion.keys), held_bytes)
        # No call stands between these: all are done, or none is.
        self.number += 1
        chunk.number = self.number
        self.queue += (chunk,)
        self.room.claimed -= held_bytes
        claim.held -= held_bytes
        return chunk

    def close_chunk(self) -> None:
        """Close the open chunk: the next record goes to another one."""
        chunk = self.open
        if not chunk.pairs:
            return
        keys, datas = chunk.pairs[::2], chunk.pairs[1::2]
        if chunk.hash_keys:
            chunk.hash_keys.pop(len(keys), None)  # of a put that was interrupted
        own_bytes = keys_bytes(keys) + sum(map(len, datas)) + len(keys) * RECORD_OVERHEAD_BYTES
        chunk.close(len(keys), own_bytes + chunk.extra_bytes)
        fresh = self._new()
        # No call stands between these: all are done, or none is.
        chunk.keys, chunk.datas, chunk.pairs = keys, datas, ()
        self.number += 1
        chunk.number = self.number
        self.queue += (chunk,)
        self.open = fresh

    def records(self) -> int:
        """How many records are here."""
        return len(self.open.pairs) // 2 + sum([len(chunk.keys) for chunk in list(self.queue)])

    def start_over(self) -> None:
        """Forget all records: they are those of the process that this one was forked off."""
        self.queue.clear()
        self.open = self._new()
        if not isinstance(self.lock, contextlib.nullcontext):
            self.lock = threading.Lock()  # a thread that is not here may hold the other one

    def _new(self) -> Chunk:
        return Chunk(0, put_at_s=0.0, expires_at_s=0.0, owner=self.owner)

    def _date(self, chunk: Chunk, time_to_live_s: float | None) -> None:
        now_s = self._clock()
        chunk.put_at_s = now_s
        chunk.expires_at_s = now_s + (self._ttl_s if time_to_live_s is None else time_to_live_s)
