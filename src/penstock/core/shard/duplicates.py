"""Which records of a shard are left out as duplicates, and which pages are kept back until that is known.

The keys of the records are made by the program, so they come with each page (`PageRead`). The window that a new owner
has to know is read again beside, from the warm-up on:

| the window | becomes | by |
|---|---|---|
| `UNKNOWN`: no page has told yet how far back to read | READING | `begins` |
| `READING` | KNOWN | `is_read` |
| `KNOWN` | - | - |

`forget` leads from each to `KNOWN`: only what comes from then on counts. With ``wait`` nothing is handed out before the
window is known; the pages that come before are kept, and go on with `go_on`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.dedupe import DedupeWindow
from penstock.events import DedupeWindowRebuilding, DuplicatesLeftOut
from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.ledger.dedupe import Deduplicate, Keyed
    from penstock.core.ledger.page import Held
    from penstock.events import LedgerEvent


class Window(StrEnum):
    """What is known of the keys that came before. See the module."""

    UNKNOWN = "unknown"
    READING = "reading"
    KNOWN = "known"


@dataclass(frozen=True, slots=True)
class PageRead:
    """Records follow all that came before; the program's functions have not seen them yet, but for their keys."""

    records: Sequence[Any]
    ends_at: Position | None = None
    """Where the page ends, if behind its last record."""
    held_bytes: int | None = None
    """What all of them take together, where that is known."""
    keys: Sequence[Keyed | None] = ()
    """Of each record, where duplicates are left out."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Have the program's functions make of these records what is handed out, and tell `PageCame`."""

    records: Sequence[Any]
    ends_at: Position | None = None
    held_bytes: int | None = None
    twins: Sequence[int] = ()
    """Numbers of those that are duplicates."""


class Duplicates:
    """Of one tenure; see the module."""

    def __init__(self, choice: Deduplicate, stream: str, shard_id: str) -> None:
        self._choice = choice
        self._stream, self._shard_id = stream, shard_id
        self.state = Window.UNKNOWN
        self.window = self._new_window()
        """The keys. After `forget` it is another one."""
        self.delivered_early = 0
        """How many records were handed out while the window was not known."""
        self._kept: deque[PageRead] = deque()
        self._told: list[LedgerEvent] = []
        self._is_told = False

    @property
    def may_deliver(self) -> bool:
        """True when records may be handed out: the window is known, or need not be."""
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

    def take_told(self) -> Sequence[LedgerEvent]:
        """What was told since the last call, in its order."""
        told, self._told = [*self._told, *self.window.take_told()], []
        return told

    # --- the window -----------------------------------------------------------------------------

    def begins(self) -> None:
        """What lies before is being read from now on."""
        if self.state is Window.UNKNOWN:
            self.state = Window.READING

    def learn(self, keys: Sequence[Keyed | None]) -> None:
        """These lie before the records that are handed out."""
        self.window.learn(keys)

    def is_read(self) -> None:
        """All that lies before was read, or is gone."""
        self.state = Window.KNOWN

    def forget(self) -> None:
        """From here on only what comes counts."""
        self.state = Window.KNOWN
        self.window = self._new_window()
        self._kept.clear()

    # --- pages ----------------------------------------------------------------------------------

    def follow(self, keys: Sequence[Keyed | None]) -> None:
        """The next records were handed out by the former owner."""
        self.window.duplicates(keys)

    def read(self, page: PageRead, held: Held) -> list[Admit]:
        """A page came. What is kept of it is counted in ``held``."""
        if self.state is not Window.KNOWN and not self._is_told:
            self._is_told = True
            self._told.append(DedupeWindowRebuilding(self._stream, self._shard_id, self._choice.wait))
        if self._kept or not self.may_deliver:
            self._keep(page, held)
            return []
        return self._without_duplicates(page)

    def go_on(self, held: Held) -> list[Admit]:
        """What of the kept pages may go on now."""
        found: list[Admit] = []
        while self._kept and self.may_deliver:
            page = self._kept.popleft()
            held.change(-(page.held_bytes or 0))
            found += self._without_duplicates(page)
        return found

    def _keep(self, page: PageRead, held: Held) -> None:
        """Of pages without records only the last one's end is kept: a silence may be many of them."""
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
        self._told += self.window.take_told()
        if twins:
            first = records[twins[0]]
            position = Position(first.sequence_number, first.sub_sequence_number)
            self._told.append(DuplicatesLeftOut(self._stream, self._shard_id, len(twins), position))
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
            skew_s=choice.skew_s,
        )
