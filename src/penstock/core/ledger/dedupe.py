"""Duplicates, by a key over a window of time, without a store.

A record is a duplicate when a record before it in the log has the same key and arrived at most ``window_s`` earlier
(or later: arrival times may go back a little). Each occurrence counts, also one that was a duplicate itself: so the
answer follows from the window's stretch of the log alone, and a new owner that reads that stretch again gives the same.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock import events
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KEY_OVERHEAD_BYTES = 230
"""What a key takes besides its own bytes."""
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate:
    """Leaves out records whose key came within the window before them, in their shard or in its ancestors.

    Of the records before a start at LATEST none was handed out, and a new owner does not know where that was: in the
    first window after it, a record whose twin came before it may be left out. In a stream that ignores partition keys
    twins may be in different shards: those are both handed out.
    """

    key: Callable[[Any], bytes | str | None] = field(repr=False)
    """A record's key; None: it is never a duplicate. It must follow from the record alone. Where it raises, the record
    is handed out, and an event says so.
    """
    window_s: float = 300.0
    """A record is a duplicate when the last one with its key arrived at most so many seconds before it."""
    wait: bool = False
    """When a shard comes from a worker that died, or whose deadline came first, its window is read again. True: nothing
    is handed out before; False: at once, and duplicates may be among what comes until then.
    """
    keys_max: int = 1_000_000
    """How many keys of one shard are remembered. At a bound the oldest keys are forgotten, and an event says so."""
    bytes_max: int = 256 * 1024 * 1024
    """The memory that the keys of one shard may take, with their book-keeping."""
    skew_s: float = 10.0
    """Arrival times may go back by so much from one record to the next."""

    def __post_init__(self) -> None:
        if min(self.window_s, self.keys_max, self.bytes_max) <= 0 or self.skew_s < 0:
            raise OptionError("Deduplicate: window_s, keys_max and bytes_max must be above 0, and skew_s not below")


class Arrived(Protocol):
    """A record that knows when it came."""

    @property
    def approximate_arrival_timestamp(self) -> dt.datetime:
        """By the service's clock."""


R = TypeVar("R", bound=Arrived)


class DedupeWindow(Generic[R]):
    """The keys of one shard's window. Longer keys are kept as digests of 32 bytes."""

    def __init__(
        self,
        stream: str,
        shard_id: str,
        *,
        key_of: Callable[[R], bytes | str | None],
        window_s: float,
        on_event: Callable[[events.LedgerEvent], None],
        keys_max: int = 1_000_000,
        bytes_max: int = 256 * 1024 * 1024,
        skew_s: float = 10.0,
    ) -> None:
        """``key_of``: None for a record that is never a duplicate. ``skew_s``: by so much may arrival times go back.
        ``bytes_max`` counts each key with its book-keeping. At a bound the oldest keys are forgotten: an event says so.
        """
        if min(window_s, keys_max, bytes_max) <= 0 or skew_s < 0:
            raise ValueError("a window needs window_s, keys_max and bytes_max above 0, and skew_s not below")
        self._stream, self._shard_id = stream, shard_id
        self._key_of = key_of
        self.window_s = window_s
        self.keys_max, self.bytes_max, self.skew_s = keys_max, bytes_max, skew_s
        self._on_event = on_event
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._read_late: OrderedDict[bytes, float] = OrderedDict()  # before all of those, but read after them
        self._newest_s = float("-inf")
        self._cut_told = False
        self._begun = False
        self.key_bytes = 0
        """What the keys take."""

    def __len__(self) -> int:
        return len(self._seen) + len(self._read_late)

    def duplicates(self, records: Iterable[R]) -> list[int]:
        """The places of those that are duplicates, among the next records of the log; all of them are remembered."""
        self._begun = True
        return self._pass(records)

    def learn(self, records: Iterable[R]) -> None:
        """Remember records that lie before those to be handed out: a new owner reads them again."""
        self._pass(records, early=self._begun)

    def _pass(self, records: Iterable[R], *, early: bool = False) -> list[int]:
        """``early``: they lie before records that were seen."""
        found = []
        seen, read_late, window_s = self._seen, self._read_late, self.window_s
        for place, record in enumerate(records):
            key = self._key(record)
            if key is None:
                continue
            at_s = record.approximate_arrival_timestamp.timestamp()
            before_s = seen.pop(key, None)
            is_newer = before_s is not None
            if before_s is None and read_late:
                before_s = read_late.pop(key, None)
            if before_s is None:
                self.key_bytes += len(key) + KEY_OVERHEAD_BYTES
            elif at_s - before_s <= window_s:
                found.append(place)
            (read_late if early and not is_newer else seen)[key] = at_s if before_s is None else max(before_s, at_s)
            if at_s > self._newest_s:
                self._newest_s = at_s
        self._forget()
        return found

    def since(self, first: dt.datetime) -> dt.datetime:
        """From when on a new owner reads its shard and that one's ancestors again, up to its checkpoint.

        ``first``: when the first record behind the checkpoint arrived; when there is none yet, the service's time now.
        """
        return first - dt.timedelta(seconds=self.window_s + self.skew_s)

    def _key(self, record: R) -> bytes | None:
        key = self._key_of(record)
        if key is None:
            return None
        if isinstance(key, str):
            key = key.encode()
        return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()

    def _forget(self) -> None:
        """Let go what is out of the window, or of the bounds."""
        gone_s = self._newest_s - self.window_s - self.skew_s
        for keys in (self._read_late, self._seen):
            while keys and next(iter(keys.values())) < gone_s:
                self._drop(keys)
        cut = False
        while len(self) > self.keys_max or self.key_bytes > self.bytes_max:
            self._drop(self._read_late or self._seen)
            cut = True
        if cut and not self._cut_told:
            oldest = self._read_late or self._seen
            reach_s = self._newest_s - next(iter(oldest.values())) if oldest else 0.0
            self._on_event(
                events.DedupeWindowCut(self._stream, self._shard_id, len(self), self.key_bytes, reach_s)
            )  # fmt: skip
        self._cut_told = cut or (self._cut_told and len(self) * 2 > self.keys_max)

    def _drop(self, keys: OrderedDict[bytes, float]) -> None:
        key, _ = keys.popitem(last=False)
        self.key_bytes -= len(key) + KEY_OVERHEAD_BYTES


class Rebuild:
    """What of a window a new owner still has to read again."""

    def __init__(self, shards: Sequence[str], *, wait: bool) -> None:
        """``shards``: its own, and the ancestors that are not trimmed. ``wait``: hand out nothing before all are read;
        else at once, and duplicates may pass until then.
        """
        self._missing = set(shards)
        self._wait = wait

    def read(self, shard_id: str) -> None:
        """The stretch of this shard was read, or is gone."""
        self._missing.discard(shard_id)

    @property
    def whole(self) -> bool:
        """True when the window knows all that it has to."""
        return not self._missing

    @property
    def may_deliver(self) -> bool:
        """True when records may be handed out."""
        return self.whole or not self._wait
