"""What the program's functions make of a fetched page: the keys of its records, and their parts.

What goes into the ledger, and when, is decided by the shard's machine, which is told what they made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.feeding.user_records import UserRecords
from penstock.core.ledger.parts import PARTS_MAX, split
from penstock.core.shard.duplicates import PageRead
from penstock.core.shard.machine import PageCame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.shard.duplicates import Admit, Duplicates
    from penstock.model import Position, Record
    from penstock.runtime.shard.window_reading import WindowRead


class Admission:
    """Of the pages of one tenure."""

    def __init__(
        self,
        *,
        window: WindowRead | None = None,
        split_by: Callable[[Record], Iterable[Any]] | None = None,
        parts_max: int = PARTS_MAX,
    ) -> None:
        """``window``: duplicates are left out. ``split_by(record)``: the parts of a record, which follow from the
        record alone.
        """
        self.window = window
        self._split_by = split_by
        self._parts_max = parts_max

    @property
    def duplicates(self) -> Duplicates | None:
        """What is known of duplicates; None: they are not left out."""
        return None if self.window is None else self.window.duplicates

    def read(self, taken: Taken, records: Sequence[Record], ends_at: Position | None) -> PageRead:
        """A page, with what of it is new, and the keys of that."""
        held_bytes = records.held_bytes if isinstance(records, UserRecords) else None
        window = self.window
        if window is None:
            return PageRead(records, ends_at, held_bytes)
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        return PageRead(records, ends_at, held_bytes, window.keys_of(records))

    def made_of(self, given: Admit) -> PageCame:
        """What is handed out of these records: themselves, or their parts."""
        if self._split_by is None:
            return PageCame(given.records, given.ends_at, given.held_bytes, given.twins)
        found = split(given.records, self._split_by, without=set(given.twins), parts_max=self._parts_max)
        return PageCame(found.records, given.ends_at, None, found.settled, found.unreadable)
