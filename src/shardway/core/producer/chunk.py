"""A chunk: user records that were put at about the same time.

It keeps their outcomes, the callbacks that wait for these, and the room that the records take.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from shardway.core.producer.outcome import Fate, Outcome, outcomes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.model import Tags

RECORD_OVERHEAD_BYTES = 256
"""The bytes that a waiting record takes beside its data and key: the objects and list places that keep track of it."""
CHUNK_OVERHEAD_BYTES = 1024
"""The bytes that a chunk takes beside its records. They matter where a chunk has few records."""

ALL = -1
"""The index under which the waiters for the whole chunk stand."""


_LIST_LOCK = Lock()  # Two threads that ask first must not each make a list.


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
        "_fates_read",
        "bytes_left",
        "datas",
        "expires_at_s",
        "extra_bytes",
        "hash_keys",
        "held_bytes",
        "keys",
        "known_outcomes",
        "number",
        "owner",
        "pairs",
        "put_at_s",
        "records",
        "tags",
        "taken",
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
        self.known_outcomes: list[Outcome | None] = []
        """The outcomes as far as callers asked for them; ``outcomes`` brings the list up to date."""
        self._fates: list[Any] = []  # This holds indices and their fate, by turns: what is kept long is few objects.
        self._fates_read = 0  # The number of entries of `_fates` that are in ``known_outcomes``.
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
        if len(self.known_outcomes) < self.records:
            with _LIST_LOCK:
                if len(self.known_outcomes) < self.records:
                    self.known_outcomes = [None] * self.records
        known = self.known_outcomes
        while (number := self._fates_read) < len(fates):
            indices: Sequence[int] = fates[number]
            fate: Fate = fates[number + 1]
            outcomes = outcomes_of(fate, len(indices))
            if isinstance(indices, range):
                known[indices.start : indices.stop] = outcomes
            else:
                for index, outcome in zip(indices, outcomes, strict=True):
                    known[index] = outcome
            # It is set after the deed: two threads may both do it, but neither sees a gap.
            self._fates_read = number + 2
        return known

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
            self._call_waiters(indices)
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
        self._call_waiters(settled)

    def _call_waiters(self, indices: Sequence[int]) -> None:
        waiters = self.waiters
        for index in waiters.keys() & indices if len(waiters) > 1 or ALL not in waiters else ():
            self._call_waiters_of(index)
        if not self.unsettled:
            self._call_waiters_of(ALL)

    def _call_waiters_of(self, index: int) -> None:
        # The waiters are forgotten afterwards: what is broken off in the middle calls back again.
        for callback in self.waiters.get(index, ()):
            callback()
        self.waiters.pop(index, None)
