"""A chunk is user records that were put together; it has stretches of them, and knows what became of each.

A `Chunk` is what was put at about the same time, with its outcomes, the callbacks that wait for these, and the room it
takes. A `Run` is a stretch of a chunk that is moved about as a whole. One outcome object stands for all records that
shared a fate: a record's own ``PutResult`` (or error) is made when the caller asks for it, as most records are only
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count as numbers_from
from itertools import repeat
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from shardway.core.aggregation.fields import tag_fields
from shardway.model import PutResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardway.core.aggregation.writer import Aggregator
    from shardway.errors import PutError
    from shardway.model import Tags

T = TypeVar("T")

RECORD_OVERHEAD_BYTES = 256
"""The bytes that a waiting record takes beside its data and key: the objects and list places that keep track of it."""
CHUNK_OVERHEAD_BYTES = 1024
"""The bytes that a chunk takes beside its records. They matter where a chunk has few records."""

ALL = -1
"""The index under which the waiters for the whole chunk stand."""


_MAKING = Lock()  # Two threads that ask first must not each make a list.


class EntryResult(Protocol):
    """The answer of PutRecords for one entry: where the record is, or why it was not taken."""

    @property
    def shard_id(self) -> str | None:
        """The shard id that PutRecords answers."""

    @property
    def sequence_number(self) -> str | None:
        """The sequence number that PutRecords answers."""

    @property
    def error_code(self) -> str | None:
        """The error code that PutRecords answers."""

    @property
    def error_message(self) -> str | None:
        """The error message that PutRecords answers."""


class NotWritten(NamedTuple):
    """User records that are not known to be written."""

    kind: type[PutError]
    message: str
    attempts: int
    may_be_written: bool
    shard_id: str | None
    reason: str

    def error(self) -> PutError:
        """Return the error to raise for one of the records: a new one each time, as a traceback is added to it."""
        return self.kind(
            self.message,
            attempts=self.attempts,
            may_be_written=self.may_be_written,
            shard_id=self.shard_id,
            reason=self.reason,
        )


Outcome = PutResult | NotWritten
"""The outcome of one record."""

Fate = PutResult | NotWritten | Sequence[EntryResult] | list[PutResult]
"""The outcome of records that were settled together. One ``PutResult`` is that of the first of them, where all were
written as, or in, one Kinesis record. ``EntryResult``s stand for records that were put on their own and taken at the
first attempt: the usual case.
"""


def outcomes_of(fate: Fate, count: int) -> Iterable[Outcome]:
    """Return the outcome of each of ``count`` records that share a fate."""
    if isinstance(fate, PutResult):
        return _behind(fate, count)
    if isinstance(fate, NotWritten):
        return repeat(fate, count)
    return [
        entry
        if isinstance(entry, PutResult)
        else PutResult(entry.shard_id or "", int(entry.sequence_number or 0), None, 1, False)
        for entry in fate
    ]


def _behind(first: PutResult, count: int) -> Iterator[PutResult]:
    """Return the results of ``count`` records that stand one behind the other."""
    sub = first.sub_sequence_number
    subs: Iterable[int | None] = repeat(None) if sub is None else numbers_from(sub)
    return map(
        PutResult,
        repeat(first.shard_id, count),
        repeat(first.sequence_number),
        subs,
        repeat(first.attempts),
        repeat(first.duplicates_possible),
    )


class Owner(Protocol):
    """The part that took the records of a chunk. The handles of the records ask it."""

    def check_process(self) -> None:
        """Raise ProducerClosedError in a process that was forked off since."""

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take a record back. True if it was never sent."""

    def withdraw_all(self, chunks: Sequence[Chunk]) -> int:
        """Take back the records of these chunks that were never sent; return how many they were."""


class Chunk:
    """Up to a few thousand user records that were put at about the same time, numbered from 0.

    Their data lies in runs (`Run`), which the batcher moves about; the chunk knows what became of each.
    """

    __slots__ = (
        "_fates",
        "_unfolded",
        "bytes_left",
        "datas",
        "expires_at_s",
        "extra_bytes",
        "hash_keys",
        "held_bytes",
        "keys",
        "number",
        "owner",
        "pairs",
        "put_at_s",
        "records",
        "tags",
        "taken",
        "told",
        "unsettled",
        "waiters",
        "withdrawn",
    )

    def __init__(self, number: int, *, put_at_s: float, expires_at_s: float, owner: Owner | None = None) -> None:
        self.number = number
        """A number that grows with every chunk of a producer."""
        self.pairs: Sequence[Any] = []
        """The records while they come one by one: key, data, key, data. So one instruction adds a record, and no signal
        handler that raises comes between its key and its data.
        """
        self.keys: Sequence[str] = ()
        """The partition keys of the chunk's records, from when it gets no further ones until lanes have them."""
        self.datas: Sequence[bytes] = ()
        """The data of the chunk's records, for the same time."""
        self.extra_bytes = 0
        """The bytes that the chunk takes of the buffer's bound beside what its records take each."""
        self.records = 0
        self.held_bytes = 0
        """The bytes that the chunk takes of the buffer's bound while nothing is settled."""
        self.put_at_s = put_at_s
        self.expires_at_s = expires_at_s
        self.owner = owner
        """The producer that took the records."""
        self.told: list[Outcome | None] = []
        """The outcomes as far as callers asked for them; ``outcomes`` brings the list up to date."""
        self._fates: list[Any] = []  # This holds indices and their fate, by turns: what is kept long is few objects.
        self._unfolded = 0  # The number of entries of `_fates` that are in ``told``.
        self.unsettled = 1
        self.taken = 0
        """The number of records that were put into a load so far, at least once."""
        self.hash_keys: dict[int, int] | None = None
        """The explicit hash keys, by record, where there are any."""
        self.tags: Tags = ()
        """The tags that are written into aggregates beside each of the records. Records with other tags are in other
        chunks.
        """
        self.withdrawn: set[int] | None = None
        """The records that were withdrawn: they are already settled, and skipped when their turn comes."""
        self.waiters: dict[int, list[Callable[[], None]]] = {}
        self.bytes_left = 0
        """The bytes that the chunk takes of the buffer's bound now."""

    def close(self, records: int, held_bytes: int) -> None:
        """Note that all records are in: how many they are, and how many bytes they and the chunk take of the buffer's
        bound.
        """
        self.records = self.unsettled = records
        self.held_bytes = self.bytes_left = held_bytes

    @property
    def mean_payload_bytes(self) -> float:
        """The mean bytes of data and key of a record."""
        return (self.held_bytes - self.extra_bytes) / self.records - RECORD_OVERHEAD_BYTES

    @property
    def outcomes(self) -> list[Outcome | None]:
        """The outcome of each record so far, by index. A thread may ask while another one settles."""
        fates = self._fates
        if len(self.told) < self.records:
            with _MAKING:
                if len(self.told) < self.records:
                    self.told = [None] * self.records
        told = self.told
        while (number := self._unfolded) < len(fates):
            indices: Sequence[int] = fates[number]
            fate: Fate = fates[number + 1]
            outcomes = outcomes_of(fate, len(indices))
            if isinstance(indices, range):
                told[indices.start : indices.stop] = outcomes
            else:
                for index, outcome in zip(indices, outcomes, strict=True):
                    told[index] = outcome
            self._unfolded = number + 2  # It is set after the deed: two threads may both do it, but neither sees a gap.
        return told

    def settle(self, indices: Sequence[int], fate: Fate) -> int:
        """Settle these records together. Returns the bytes of the buffer's bound that are free again."""
        self._fates += (indices, fate)
        self.unsettled -= len(indices)
        if self.unsettled:
            freed = int(len(indices) * self.held_bytes / self.records)
        else:
            freed = self.bytes_left
        self.bytes_left -= freed
        if self.waiters:
            self._call_back(indices)
        return freed

    def when_settled(self, index: int, callback: Callable[[], None]) -> None:
        """Call back once the record (or with ``ALL`` every record) has its outcome: at once if it has.

        It may be called from another thread than the one that settles, and then may call back twice.
        """
        waiting = self.waiters.setdefault(index, [])
        waiting.append(callback)
        # It is looked at after the entry was made: an outcome that came before the entry found no callback to call.
        if self.is_settled(index):
            callback()

    def is_settled(self, index: int) -> bool:
        """True if the record (with ``ALL``: every record) has its outcome."""
        if index == ALL:
            return self.unsettled == 0
        return index < self.records and self.outcomes[index] is not None

    def recount(self) -> None:
        """Count again what is settled, and call back, as either may have been broken off in the middle."""
        outcomes = self.outcomes
        settled = [index for index, outcome in enumerate(outcomes) if outcome is not None]
        self.unsettled = self.records - len(settled)
        self.bytes_left = int(self.unsettled * self.held_bytes / self.records)
        self._call_back(settled)

    def _call_back(self, indices: Sequence[int]) -> None:
        waiters = self.waiters
        for index in waiters.keys() & indices if len(waiters) > 1 or ALL not in waiters else ():
            self._tell(index)
        if not self.unsettled:
            self._tell(ALL)

    def _tell(self, index: int) -> None:
        # The waiters are forgotten afterwards: what is broken off in the middle calls back again.
        for callback in self.waiters.get(index, ()):
            callback()
        self.waiters.pop(index, None)


class Run:
    """Records of one chunk that go to one shard. ``at`` is the place at which what is still there begins."""

    __slots__ = ("at", "attempts", "chunk", "datas", "doubtful", "indices", "keys", "reason", "strays")

    def __init__(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes], indices: Sequence[int]) -> None:
        self.chunk = chunk
        self.keys = keys
        self.datas = datas
        self.indices = indices
        """The indices of the records in the chunk, rising."""
        self.at = 0
        self.attempts = 0
        """The number of requests that carried the records in an earlier load, which was taken apart."""
        self.doubtful = False
        """True if one of those requests may have written the records."""
        self.reason = ""
        """The reason for which the last of those requests failed."""
        self.strays = 0
        """The number of aggregates that the records were in that landed in a shard to which they do not belong."""

    def __len__(self) -> int:
        return len(self.datas) - self.at

    def cut(self, count: int) -> Run:
        """Take the next ``count`` records off, as a run of their own."""
        taken = self.next(count)
        self.at += count
        return taken

    def next(self, count: int) -> Run:
        """Return the next ``count`` records, as a run of their own."""
        start = self.at
        stop = start + count
        if start == 0 and stop == len(self.datas):
            keys, datas, indices = self.keys, self.datas, self.indices
        else:
            keys, datas, indices = self.keys[start:stop], self.datas[start:stop], self.indices[start:stop]
        return self._of(keys, datas, indices)

    def only(self, places: Sequence[int]) -> Run:
        """Return the records at these places of a run that nothing was taken off."""
        fresh = self.indices == range(len(self.indices))  # It is a whole chunk then, in which a place is the index.
        if len(places) < 2:
            indices = places if fresh else chosen(self.indices, places)
            return self._of(chosen(self.keys, places), chosen(self.datas, places), indices)
        pick = itemgetter(*places)
        return self._of(pick(self.keys), pick(self.datas), places if fresh else pick(self.indices))

    def _of(self, keys: Sequence[str], datas: Sequence[bytes], indices: Sequence[int]) -> Run:
        """Return some of the run's records, which went through the same."""
        some = Run(self.chunk, keys, datas, indices)
        if self.attempts or self.doubtful:
            some.attempts, some.doubtful = self.attempts, self.doubtful
            some.reason, some.strays = self.reason, self.strays
        return some

    def without_withdrawn(self) -> int:
        """Leave out what was withdrawn meanwhile; return how many records were."""
        gone = self.chunk.withdrawn
        if not gone:
            return 0
        before = len(self)
        places = [place for place in range(self.at, len(self.datas)) if self.indices[place] not in gone]
        if len(places) < before:
            columns = chosen(self.keys, places), chosen(self.datas, places), chosen(self.indices, places)
            self.keys, self.datas, self.indices = columns
            self.at = 0
        return before - len(self)

    def hash_keys(self) -> Iterator[int | None]:
        """Iterate over the explicit hash key of each record that is left, or None."""
        explicit = self.chunk.hash_keys
        if explicit is None:
            return repeat(None, len(self))
        return (explicit.get(self.indices[place]) for place in range(self.at, len(self.datas)))

    def add_to(self, aggregator: Aggregator) -> tuple[int, bool]:
        """Add the next records to an aggregate; return how many were added, and whether one did not fit any more."""
        tags = tag_fields(self.chunk.tags)
        if tags or self.chunk.hash_keys is not None:
            columns = zip(self.keys[self.at :], self.datas[self.at :], self.hash_keys(), strict=True)
            for added, record in enumerate(columns):
                if not aggregator.add(*record, tags):
                    return added, True
            return len(self), False
        reached = aggregator.add_many(self.keys, self.datas, self.at)
        return reached - self.at, reached < len(self.datas)

    def payload_bytes(self) -> int:
        """Return the bytes of data and keys of the records that are left, as the service counts them."""
        keys = "".join(self.keys[self.at :] if self.at else self.keys)
        datas = self.datas[self.at :] if self.at else self.datas
        return sum(map(len, datas)) + (len(keys) if keys.isascii() else len(keys.encode()))

    def record_bytes(self, place: int) -> int:
        """Return the bytes of data and key of one record, as the service counts them."""
        key = self.keys[place]
        return len(self.datas[place]) + (len(key) if key.isascii() else len(key.encode()))


def chosen(column: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """Return what stands at these places of a column."""
    if len(places) == 1:
        return [column[places[0]]]
    return itemgetter(*places)(column) if places else ()
