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
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Keyed(NamedTuple):
    """A record's key, and when the record came."""

    key: bytes
    at_s: float
    """By the service's clock."""

    @classmethod
    def of(cls, key: bytes | str, at_s: float) -> Keyed:
        """Longer keys are kept as digests of 32 bytes. Raises UnicodeEncodeError for text that is none."""
        if isinstance(key, str):
            key = key.encode()
        return cls(key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest(), at_s)


class DedupeWindow:
    """The keys of one shard's window."""

    def __init__(
        self,
        stream: str,
        shard_id: str,
        *,
        window_s: float,
        keys_max: int = 1_000_000,
        bytes_max: int = 256 * 1024 * 1024,
        skew_s: float = 10.0,
    ) -> None:
        """``skew_s``: by so much may arrival times go back. ``bytes_max`` counts each key with its book-keeping. At a
        bound the oldest keys are forgotten: `take_told` says so.
        """
        if min(window_s, keys_max, bytes_max) <= 0 or skew_s < 0:
            raise ValueError("a window needs window_s, keys_max and bytes_max above 0, and skew_s not below")
        self._stream, self._shard_id = stream, shard_id
        self.window_s = window_s
        self.keys_max, self.bytes_max, self.skew_s = keys_max, bytes_max, skew_s
        self._told: list[events.LedgerEvent] = []
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._read_late: OrderedDict[bytes, float] = OrderedDict()  # before all of those, but read after them
        self._newest_s = float("-inf")
        self._cut_told = False
        self._begun = False
        self.key_bytes = 0
        """What the keys take."""

    def __len__(self) -> int:
        return len(self._seen) + len(self._read_late)

    def take_told(self) -> Sequence[events.LedgerEvent]:
        """What was told since the last call, in its order."""
        told, self._told = self._told, []
        return told

    def duplicates(self, keys: Iterable[Keyed | None]) -> list[int]:
        """The places of those that are duplicates, among the next records of the log; all of them are remembered. None
        stands for a record that is never a duplicate.
        """
        self._begun = True
        return self._pass(keys)

    def learn(self, keys: Iterable[Keyed | None]) -> None:
        """Remember records that lie before those to be handed out: a new owner reads them again."""
        self._pass(keys, early=self._begun)

    def _pass(self, keys: Iterable[Keyed | None], *, early: bool = False) -> list[int]:
        """``early``: they lie before records that were seen."""
        found = []
        seen, read_late, window_s = self._seen, self._read_late, self.window_s
        for place, keyed in enumerate(keys):
            if keyed is None:
                continue
            key, at_s = keyed
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
            self._told.append(
                events.DedupeWindowCut(self._stream, self._shard_id, len(self), self.key_bytes, reach_s)
            )  # fmt: skip
        self._cut_told = cut or (self._cut_told and len(self) * 2 > self.keys_max)

    def _drop(self, keys: OrderedDict[bytes, float]) -> None:
        key, _ = keys.popitem(last=False)
        self.key_bytes -= len(key) + KEY_OVERHEAD_BYTES
