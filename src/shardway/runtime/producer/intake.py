"""Records on their way in are checked, counted against the producer's bound, and gathered into chunks.

A signal handler may raise in the middle of each function of `Room` and `Intake`, as Python runs it between two
instructions of the main thread. It does so where a function begins, where a call returns and where a loop turns;
statements that stand beside each other without a call between them are done together, or not at all. What must not come
apart is written so: a record is queued by one statement, and what it takes of the bound goes over to its chunk beside
that. A chunk is in the queue until the send loop has it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shardway.core.producer.chunk import CHUNK_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES, Chunk
from shardway.core.producer.routes import KEY_BYTES_MAX, checked_explicit, held_by_key, keys_bytes, plain_key
from shardway.errors import BufferFullError, InvalidRecordError
from shardway.model import OutRecord

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from shardway.core.producer.chunk import Owner
    from shardway.core.producer.lanes import Lanes
    from shardway.model import Tags
    from shardway.options import ProducerOptions
    from shardway.ports import Tracer
    from shardway.tasks import Reply

    AnyFuture = asyncio.Future[None] | Reply[None]

F = TypeVar("F", bound="AnyFuture")

CHUNK_RECORDS_MAX = 2_000
"""The most records of a chunk: its bookkeeping is kept until its last record has an outcome."""
PORTION_RECORDS_MAX = 4_000
PORTION_BYTES = 4 * 1024 * 1024
"""``put_many`` takes records in portions of at most this many records and bytes: each waits for room of its own. They
are small enough for the processor's cache, as every record is looked at several times; but large enough to be divided
by shard into long runs.
"""

_DATA = itemgetter(1)


class Claim:
    """The room that one caller wants. The caller releases it in the end, whatever became of it."""

    __slots__ = ("future", "held", "wanted")

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.held = 0
        """The bytes that the claim has. A chunk that is queued takes them over."""
        self.future: AnyFuture | None = None
        """A future that is done when the claim got what it waited for."""


class Room:
    """Room for ``bytes_max`` bytes. The claim that asks first gets room first: a large record is not overtaken for
    ever.
    """

    __slots__ = ("bytes_max", "claimed", "free", "waiting")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.free = bytes_max
        self.claimed = 0
        """The bytes that claims have."""
        self.waiting: deque[Claim] = deque()

    def take(self, claim: Claim) -> bool:
        """Take what the claim wants, if it is free and no other claim waits. True if it was taken."""
        if self.waiting or claim.wanted > self.free:
            return False
        self._grant_to(claim)
        return True

    def ask(self, claim: Claim, make_future: Callable[[], F]) -> F | None:
        """Take what the claim wants if it is free, and return None; else let it stand in line, and return a future that
        is done when it was taken.
        """
        if self.take(claim):
            return None
        claim.future = future = make_future()
        self.waiting.append(claim)
        return future

    def release(self, claim: Claim) -> None:
        """Release a claim: its caller waits no longer, and what it was given and did not use is free again."""
        if claim in self.waiting:
            self.waiting.remove(claim)
        elif not claim.held:
            return
        self.free += claim.held
        self.claimed -= claim.held
        claim.held = 0
        self._grant()

    def give_back(self, count: int) -> None:
        """Make ``count`` bytes free again."""
        self.free += count
        if self.waiting:
            self._grant()

    def fail_waiting(self, make_error: Callable[[], Exception]) -> None:
        """Fail all claims that wait: none gets room any more."""
        while self.waiting:
            future = self.waiting[0].future
            if future is not None and not future.done():
                future.set_exception(make_error())
            self.waiting.popleft()

    def _grant(self) -> None:
        while self.waiting and self.waiting[0].wanted <= self.free + self.waiting[0].held:
            claim = self.waiting[0]
            future = claim.future
            if future is not None and not future.done():
                if not claim.held:  # Otherwise this was interrupted here.
                    self._grant_to(claim)
                future.set_result(None)
            self.waiting.popleft()

    def _grant_to(self, claim: Claim) -> None:
        self.free -= claim.wanted
        self.claimed += claim.wanted
        claim.held = claim.wanted


class Portion(NamedTuple):
    """Checked records, as columns, and the bytes that they take of the bound."""

    keys: Sequence[str]
    datas: Sequence[bytes]
    hash_keys: dict[int, int] | None
    """The explicit hash keys by place, if there are any."""
    records_bytes: int
    """The bytes that the records take of the bound."""
    held_bytes: int
    """The bytes that the records take with the chunk that they become, but never more than the bound."""


class CheckedRecord(NamedTuple):
    """A checked record, which no caller changes any more."""

    partition_key: str
    data: bytes
    explicit_hash_key: int | None

    @property
    def held_bytes(self) -> int:
        """The bytes that the record takes of the bound."""
        return keys_bytes((self.partition_key,)) + len(self.data) + RECORD_OVERHEAD_BYTES


class RecordCheck:
    """Checks records against the rules of PutRecords and the producer's bounds."""

    def __init__(
        self, lanes: Lanes, *, record_bytes_max: int, buffer_bytes_max: int, tracer: Tracer | None = None
    ) -> None:
        self._lanes = lanes
        self._tracer = tracer
        self.record_bytes_max = record_bytes_max
        self.buffer_bytes_max = buffer_bytes_max

    def one(self, record: OutRecord) -> CheckedRecord:
        """Return the record, with a plain key, plain data and a plain hash key. Raises InvalidRecordError."""
        try:
            data, key, explicit = record.data, record.partition_key, record.explicit_hash_key
        except AttributeError:
            raise InvalidRecordError(f"an OutRecord is put, not {type(record).__name__}") from None
        key = plain_key(key)
        if explicit is not None:
            explicit = checked_explicit(explicit)
        data = plain_bytes(data)
        if self._tracer is not None:
            data = self._tracer.data_with_context(data)
        self._check_size(key, data)
        return CheckedRecord(key, data, explicit)

    def many(self, records: Sequence[Any]) -> list[Portion]:
        """Return records, or (partition key, data) pairs, in portions. Raises InvalidRecordError for any of them."""
        portions: list[Portion] = []
        count = -(-len(records) // PORTION_RECORDS_MAX) or 1
        step = -(-len(records) // count) or 1  # Portions are equal: a small last one would cost more a record.
        for start in range(0, len(records), step):
            some = records[start : start + step]
            try:
                portions += self._portions(some)
            except InvalidRecordError:
                self._tell_which(some, start)
                raise
        return portions

    def _tell_which(self, records: Sequence[Any], before: int) -> None:
        """Raise the InvalidRecordError of the first bad record, with its number."""
        for place, record in enumerate(records):
            try:
                self._portions([record])
            except InvalidRecordError as error:
                raise InvalidRecordError(f"record {before + place}: {error}") from None

    def _portions(self, records: Sequence[Any]) -> list[Portion]:
        hash_keys: dict[int, int] = {}
        given, datas = self._as_columns(records, hash_keys)
        keys, key_bytes = self._lanes.routes.checked(given)
        data_bytes = sum(map(len, datas))
        if data_bytes + KEY_BYTES_MAX > self.record_bytes_max:  # Otherwise none of them is too large.
            deque(map(self._check_size, keys, datas), maxlen=0)
        records_bytes = key_bytes + data_bytes + len(keys) * RECORD_OVERHEAD_BYTES
        # No portion may take more than the bound: it would wait for ever.
        room = min(PORTION_BYTES, self.buffer_bytes_max) - CHUNK_OVERHEAD_BYTES
        if records_bytes <= room or len(keys) == 1:
            return [self._portion(keys, datas, hash_keys or None, records_bytes)]
        each = max(map(len, datas)) + max(map(held_by_key, keys)) + RECORD_OVERHEAD_BYTES
        step = max(1, room // each)
        return [self._cut(keys, datas, hash_keys, start, start + step) for start in range(0, len(keys), step)]

    def _portion(
        self, keys: Sequence[str], datas: Sequence[bytes], hash_keys: dict[int, int] | None, records_bytes: int
    ) -> Portion:
        held_bytes = min(records_bytes + CHUNK_OVERHEAD_BYTES, self.buffer_bytes_max)
        return Portion(keys, datas, hash_keys, records_bytes, held_bytes)

    def _cut(
        self, keys: Sequence[str], datas: Sequence[bytes], hash_keys: dict[int, int], start: int, stop: int
    ) -> Portion:
        some_keys, some_datas = keys[start:stop], datas[start:stop]
        records_bytes = keys_bytes(some_keys) + sum(map(len, some_datas)) + len(some_keys) * RECORD_OVERHEAD_BYTES
        explicit = {place - start: hash_keys[place] for place in range(start, stop) if place in hash_keys}
        return self._portion(some_keys, some_datas, explicit or None, records_bytes)

    def portion_of(self, record: CheckedRecord) -> Portion:
        """Return one record as a portion."""
        key, data, explicit = record
        return self._portion([key], [data], None if explicit is None else {0: explicit}, record.held_bytes)

    def _as_columns(self, records: Sequence[Any], hash_keys: dict[int, int]) -> tuple[list[str], list[bytes]]:
        try:
            keys = [key for key, _ in records]
            datas = list(map(_DATA, records))
        except (TypeError, ValueError, LookupError):  # They are not all pairs.
            records = [self._as_record(record) for record in records]
            keys, datas = [record.partition_key for record in records], [record.data for record in records]
            hash_keys.update(
                (place, checked_explicit(record.explicit_hash_key))
                for place, record in enumerate(records)
                if record.explicit_hash_key is not None
            )
        if set(map(type, datas)) - {bytes}:
            datas = [plain_bytes(data) for data in datas]
        if self._tracer is not None:
            datas = [self._tracer.data_with_context(data) for data in datas]
        return keys, datas

    def _as_record(self, record: Any) -> OutRecord:
        if isinstance(record, tuple):
            if len(record) != 2:
                raise InvalidRecordError("put_many takes OutRecords, or pairs of partition key and data")
            return OutRecord(record[1], record[0])
        key, data, explicit = self.one(record)
        return OutRecord(data, key, explicit)

    def _check_size(self, key: str, data: bytes) -> None:
        size = len(data) + len(key.encode())
        if size > self.record_bytes_max:
            raise InvalidRecordError(
                f"a record of {size} bytes (data and partition key) is larger than record_bytes_max, "
                f"{self.record_bytes_max}"
            )


def plain_bytes(data: Any) -> bytes:
    """Return data as bytes that the caller cannot change any more. Raises InvalidRecordError."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidRecordError(f"a record's data is bytes, not {type(data).__name__}")


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
        self.open = self._new()
        """The chunk to which single records go."""

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
        chunk = self._new()
        self._date(chunk, record_ttl_s)
        chunk.tags = self._tags()
        chunk.keys, chunk.datas, chunk.hash_keys, chunk.pairs = portion.keys, portion.datas, portion.hash_keys, ()
        # The chunk takes what was counted when room was taken, and nothing that is found to be later: otherwise the
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
        fresh = self._new()
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
        self.open = self._new()
        if not isinstance(self.lock, contextlib.nullcontext):
            self.lock = threading.Lock()  # A thread that is not here may hold the other lock.

    def _new(self) -> Chunk:
        return Chunk(0, put_at_s=0.0, expires_at_s=0.0, owner=self.owner)

    def _date(self, chunk: Chunk, record_ttl_s: float | None) -> None:
        now_s = time.monotonic()
        chunk.put_at_s = now_s
        chunk.expires_at_s = now_s + (self._ttl_s if record_ttl_s is None else record_ttl_s)
