"""The intake of a producer: records on their way in are gathered into chunks.

A signal handler may raise in the middle of each function of `Room` and `Intake`, as Python runs it between two
instructions of the main thread. It does so where a function begins, where a call returns and where a loop turns;
statements that stand beside each other without a call between them are done together, or not at all. What must not come
apart is written so: a record is queued by one statement, and its chunk takes over its part of the bound beside that. A
chunk is in the queue until the send loop has it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.core.producer.chunk import CHUNK_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Chunk
from shardway.core.producer.routes import KEY_BYTES_MAX, keys_bytes
from shardway.errors import BufferFullError
from shardway.runtime.producer.record_check import CheckedRecord, Portion, RecordCheck
from shardway.runtime.producer.room import Claim, Room

if TYPE_CHECKING:
    from shardway.core.producer.chunk import Owner
    from shardway.core.producer.lanes import Lanes
    from shardway.model import Tags
    from shardway.options.producer import ProducerOptions
    from shardway.ports import Tracer

CHUNK_RECORDS_MAX = 2_000
"""The most records of a chunk: its bookkeeping is kept until its last record has an outcome."""


class Intake:
    """The way in for records. ``lock`` guards it where threads put; the loop takes chunks out of ``queue``."""

    def __init__(self, options: ProducerOptions, lanes: Lanes, *, owner: Owner, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        self.check = RecordCheck(
            lanes,
            record_bytes_max=options.record_bytes_max,
            buffer_bytes_max=options.buffer_bytes_max,
            tracer=tracer,
        )
        self.small_bytes = options.record_bytes_max - KEY_BYTES_MAX
        """The bytes of data and key that are not too large, whatever the key."""
        if tracer is not None:
            self.small_bytes = 0  # Each record is taken by the careful way, which looks at its context.
        self.room = Room(options.buffer_bytes_max)
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.number = 0
        """The number of the newest chunk in the queue, or that was there."""
        self.queue: deque[Chunk] = deque()
        """The chunks that get no further records, the oldest first."""
        self.owner = owner
        """The part that the handles of the records ask."""
        self._ttl_s = options.record_ttl_s
        self.open = self._new_chunk()
        """The chunk that single records go to."""

    def claim_for(self, record: CheckedRecord, *, alone: bool) -> Claim:
        """Return a claim to room for one record, and for a chunk of its own if that is needed."""
        if not alone and self.open.pairs and self.open.tags == self._tags():
            return Claim(record.held_bytes)
        return Claim(min(record.held_bytes + CHUNK_OVERHEAD_BYTES, self.room.bytes_max))

    def take(self, claim: Claim, stream: str) -> None:
        """Take what the claim wants, without waiting. Raises BufferFullError."""
        room = self.room
        if not room.take(claim):
            raise BufferFullError(
                f"{stream}: no room for {claim.wanted} bytes: {room.bytes_max - room.free} of "
                f"{room.bytes_max} (buffer_bytes_max) are taken by records that are not written yet",
                bytes_wanted=claim.wanted,
            )

    def add(self, record: CheckedRecord, record_ttl_s: float | None, claim: Claim) -> tuple[Chunk, int]:
        """Add a checked record, which takes over what the claim holds; return its chunk and number."""
        if record_ttl_s is not None:
            return self.add_chunk(self.check.portion_of(record), record_ttl_s, claim), 0
        if self._tracer is not None and self.open.tags != (tags := self._tags()):
            self.close_chunk()
            self.open.tags = tags
        chunk = self.open
        index = len(chunk.pairs) // 2
        if not index:
            self._date(chunk, None)
        if record.explicit_hash_key is not None:
            if chunk.hash_keys is None:
                chunk.hash_keys = {}
            chunk.hash_keys[index] = record.explicit_hash_key
        elif chunk.hash_keys:
            chunk.hash_keys.pop(index, None)  # It may be of a put that was interrupted.
        own_bytes = record.held_bytes
        # No call stands between these: all are done, or none is.
        chunk.pairs += (record.partition_key, record.data)  # type: ignore[operator]
        chunk.extra_bytes += claim.held - own_bytes
        self.room.claimed -= claim.held
        claim.held = 0
        if index + 1 >= CHUNK_RECORDS_MAX:
            self.close_chunk()
        return chunk, index

    def add_chunk(self, portion: Portion, record_ttl_s: float | None, claim: Claim) -> Chunk:
        """Add checked records as a chunk of their own, which takes over its part of what the claim holds; return the
        chunk.
        """
        self.close_chunk()
        chunk = self._new_chunk()
        self._date(chunk, record_ttl_s)
        chunk.tags = self._tags()
        chunk.keys, chunk.datas, chunk.hash_keys, chunk.pairs = portion.keys, portion.datas, portion.hash_keys, ()
        # The chunk takes over the bytes that were counted when the claim took room. A later count may differ, and the
        # bound would drift.
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
            chunk.hash_keys.pop(len(keys), None)  # It may be of a put that was interrupted.
        own_bytes = keys_bytes(keys) + sum(map(len, datas)) + len(keys) * RECORD_OVERHEAD_BYTES
        chunk.close(len(keys), own_bytes + chunk.extra_bytes)
        fresh = self._new_chunk()
        # No call stands between these: all are done, or none is.
        chunk.keys, chunk.datas, chunk.pairs = keys, datas, ()
        self.number += 1
        chunk.number = self.number
        self.queue += (chunk,)
        self.open = fresh

    def _tags(self) -> Tags:
        return () if self._tracer is None else self._tracer.context_tags()

    def records(self) -> int:
        """Return how many records are here."""
        return len(self.open.pairs) // 2 + sum([len(chunk.keys) for chunk in list(self.queue)])

    def start_over(self) -> None:
        """Forget all records: they are those of the process that this one was forked off."""
        self.queue.clear()
        self.open = self._new_chunk()
        if not isinstance(self.lock, contextlib.nullcontext):
            self.lock = threading.Lock()  # A thread that is not here may hold the other lock.

    def _new_chunk(self) -> Chunk:
        return Chunk(0, put_at_s=0.0, expires_at_s=0.0, owner=self.owner)

    def _date(self, chunk: Chunk, record_ttl_s: float | None) -> None:
        now_s = time.monotonic()
        chunk.put_at_s = now_s
        chunk.expires_at_s = now_s + (self._ttl_s if record_ttl_s is None else record_ttl_s)
