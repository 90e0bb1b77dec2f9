"""The rules say which records of a shard are left out as duplicates, and which pages are kept back until that is
known.

Duplicates are found by a key over a window of time, without a store. A record is a duplicate when a record before it in
the log has the same key and arrived at most ``window_s`` earlier (or later: arrival times may go back a little). Each
occurrence counts, also one that was a duplicate itself: so the answer follows from the window's stretch of the log
alone, and a new owner that reads that stretch again gives the same.

The program makes the keys of the records, so they come with each page (`PageRead`). The window that a new owner has to
know is read again beside the shard, from the warm-up on:

| the window | becomes | by |
|---|---|---|
| `UNKNOWN`: no page has shown yet how far back to read | READING | `begins` |
| `READING` | KNOWN | `is_read` |
| `KNOWN` | - | - |

`forget` leads from each to `KNOWN`: only what comes after it counts. With ``wait`` nothing is delivered before the
window is known; the pages that come before are kept, and go on with `go_on`.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from msgspec import Meta

from shardway import events
from shardway.core.ledger.page import payload_bytes_of
from shardway.core.options.base import Options
from shardway.events import DedupeWindowRebuilding, DuplicatesLeftOut
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.ledger.page import BookTotals
    from shardway.events import LedgerEvent


SKEW_S = 10.0
"""The most seconds by which arrival times may go back from one record to the next."""
KEY_OVERHEAD_BYTES = 230
"""The bytes that a key takes besides its own."""
_DIGEST_BYTES = 32


class Deduplicate(Options, frozen=True, kw_only=True):
    """Leaves out records whose key came within the window before them, in their shard or in its ancestors.

    Of the records before a start at LATEST none was delivered, and a new owner does not know where that was: in the
    first window after it, a record whose twin came before it may be left out. In a stream that ignores partition keys
    twins may be in different shards: those are both delivered.
    """

    key: Callable[[Any], bytes | str | None]
    """A function that returns a record's key; None: the record is never a duplicate. The key must follow from the
    record alone. Where the function raises, the record is delivered, and an event says so.
    """
    window_s: Annotated[float, Meta(gt=0)] = 300.0
    """A record is a duplicate when the last one with its key arrived at most this many seconds before it."""
    wait: bool = False
    """When a shard comes from a worker that died, or that did not finish its drain in time, the new owner reads the
    window again. True: it delivers nothing before that is done. False: it delivers at once, and duplicates may be among
    these records.
    """
    keys_max: Annotated[int, Meta(gt=0)] = 1_000_000
    """The most keys that are remembered for one shard. At a bound the oldest keys are forgotten, and an event
    says so.
    """
    bytes_max: Annotated[int, Meta(gt=0)] = 256 * 1024 * 1024
    """The memory that the keys of one shard may take, with their book-keeping."""


class KeyedRecord(NamedTuple):
    """A record's key, and the time at which the record came."""

    key: bytes
    at_s: float
    """The time of arrival by the service's clock, in seconds."""

    @classmethod
    def of(cls, key: bytes | str, at_s: float) -> KeyedRecord:
        """Make a key; a longer key is kept as a digest of 32 bytes. Raises UnicodeEncodeError for text that is none."""
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
        skew_s: float = SKEW_S,
    ) -> None:
        """``skew_s``: the most seconds by which arrival times may go back. ``bytes_max`` counts each key with its
        book-keeping. At a bound the oldest keys are forgotten: `take_events` says so.
        """
        if min(window_s, keys_max, bytes_max) <= 0 or skew_s < 0:
            raise ValueError("a window needs window_s, keys_max and bytes_max above 0, and skew_s not below")
        self._stream, self._shard_id = stream, shard_id
        self.window_s = window_s
        self.keys_max, self.bytes_max, self.skew_s = keys_max, bytes_max, skew_s
        self._told: list[events.LedgerEvent] = []
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._read_late: OrderedDict[bytes, float] = OrderedDict()  # They lie before `_seen`, but were read after it.
        self._newest_s = float("-inf")
        self._cut_told = False
        self._begun = False
        self.key_bytes = 0
        """The bytes that the keys take."""

    def __len__(self) -> int:
        return len(self._seen) + len(self._read_late)

    def take_events(self) -> Sequence[events.LedgerEvent]:
        """Return the events that were made since the last call, in their order."""
        told, self._told = self._told, []
        return told

    def duplicates(self, keys: Iterable[KeyedRecord | None]) -> list[int]:
        """Return the places of the duplicates among the next records of the log; all keys are remembered. None stands
        for a record that is never a duplicate.
        """
        self._begun = True
        return self._pass(keys)

    def learn(self, keys: Iterable[KeyedRecord | None]) -> None:
        """Remember records that lie before those to be delivered: a new owner reads them again."""
        self._pass(keys, early=self._begun)

    def _pass(self, keys: Iterable[KeyedRecord | None], *, early: bool = False) -> list[int]:
        """Take the keys of records. ``early``: the records lie before records that were seen."""
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
        """Return the arrival time from which on a new owner reads its shard and that one's ancestors again, up to its
        checkpoint.

        ``first``: when the first record behind the checkpoint arrived; when there is none yet, the service's time now.
        """
        return first - dt.timedelta(seconds=self.window_s + self.skew_s)

    def _forget(self) -> None:
        """Let go the keys that are out of the window, or of the bounds."""
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


class Window(StrEnum):
    """The states of the window: what is known of the keys that came before. See the module."""

    UNKNOWN = "unknown"
    READING = "reading"
    KNOWN = "known"


@dataclass(frozen=True, slots=True)
class PageRead:
    """Records follow all that came before; the program's functions have not seen them yet, but for their keys."""

    records: Sequence[Any]
    ends_at: Position | None = None
    """The position where the page ends, if that is behind its last record."""
    held_bytes: int | None = None
    """The bytes that all the records take together, where that is known."""
    keys: Sequence[KeyedRecord | None] = ()
    """The key of each record, where duplicates are left out."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Have the program's functions make of these records what is delivered, and tell `PageCame`."""

    records: Sequence[Any]
    ends_at: Position | None = None
    held_bytes: int | None = None
    twins: Sequence[int] = ()
    """The numbers of the records that are duplicates."""


class Duplicates:
    """The duplicates of one tenure; see the module."""

    def __init__(self, choice: Deduplicate, stream: str, shard_id: str) -> None:
        self._choice = choice
        self._stream, self._shard_id = stream, shard_id
        self.state = Window.UNKNOWN
        self.window = self._new_window()
        """The keys of the window. After `forget` it is another one."""
        self.delivered_early = 0
        """The number of records that were delivered while the window was not known."""
        self._kept: deque[PageRead] = deque()
        self._told: list[LedgerEvent] = []
        self._is_told = False

    @property
    def may_deliver(self) -> bool:
        """True when records may be delivered: the window is known, or need not be."""
        return self.state is Window.KNOWN or not self._choice.wait

    @property
    def keeps(self) -> bool:
        """True while pages are kept back."""
        return bool(self._kept)

    @property
    def waits(self) -> bool:
        """True while pages are kept back, and no more should be fetched.

        Only a window that is being read may be waited for: before that, the next page is what it begins with.
        """
        return bool(self._kept) and self.state is not Window.UNKNOWN

    def take_events(self) -> Sequence[LedgerEvent]:
        """Return the events that were made since the last call, in their order."""
        told, self._told = [*self._told, *self.window.take_events()], []
        return told

    # --- the window -----------------------------------------------------------------------------

    def begins(self) -> None:
        """Note that the program begins to read what lies before."""
        if self.state is Window.UNKNOWN:
            self.state = Window.READING

    def learn(self, keys: Sequence[KeyedRecord | None]) -> None:
        """Remember keys of records that lie before the records that are delivered."""
        self.window.learn(keys)

    def is_read(self) -> None:
        """Note that all that lies before was read, or is gone."""
        self.state = Window.KNOWN

    def forget(self) -> None:
        """Forget the window and the pages that are kept: only what comes after this call counts."""
        self.state = Window.KNOWN
        self.window = self._new_window()
        self._kept.clear()

    # --- pages ----------------------------------------------------------------------------------

    def follow(self, keys: Sequence[KeyedRecord | None]) -> None:
        """Note the keys of the next records: the former owner has delivered them."""
        self.window.duplicates(keys)

    def read(self, page: PageRead, held: BookTotals) -> list[Admit]:
        """Take a page that came, and return what may go on. What is kept of it is counted in ``held``."""
        if self.state is not Window.KNOWN and not self._is_told:
            self._is_told = True
            self._told.append(DedupeWindowRebuilding(self._stream, self._shard_id, self._choice.wait))
        if self._kept or not self.may_deliver:
            self._keep(page, held)
            return []
        return self._without_duplicates(page)

    def go_on(self, held: BookTotals) -> list[Admit]:
        """Return what may go on now of the pages that were kept."""
        found: list[Admit] = []
        while self._kept and self.may_deliver:
            page = self._kept.popleft()
            held.change(-(page.held_bytes or 0))
            found += self._without_duplicates(page)
        return found

    def _keep(self, page: PageRead, held: BookTotals) -> None:
        """Keep a page. Of pages without records only the last one's end is kept: a silence may be many of them."""
        if not len(page.records):
            if page.ends_at is None:
                return
            if self._kept and not len(self._kept[-1].records):
                held.change(-(self._kept.pop().held_bytes or 0))
        self._kept.append(page)
        held.change(page.held_bytes or 0)

    def _without_duplicates(self, page: PageRead) -> list[Admit]:
        records, twins = page.records, self.window.duplicates(page.keys)
        if self.state is not Window.KNOWN:
            self.delivered_early += len(records) - len(twins)
        self._told += self.window.take_events()
        if twins:
            first = records[twins[0]]
            position = Position(first.sequence_number, first.sub_sequence_number)
            size = sum([payload_bytes_of(records[place]) for place in twins])
            self._told.append(DuplicatesLeftOut(self._stream, self._shard_id, len(twins), position, size))
        if not len(records) and page.ends_at is None:
            return []
        return [Admit(records, page.ends_at, page.held_bytes, twins)]

    def _new_window(self) -> DedupeWindow:
        choice = self._choice
        return DedupeWindow(
            self._stream,
            self._shard_id,
            window_s=choice.window_s,
            keys_max=choice.keys_max,
            bytes_max=choice.bytes_max,
        )
