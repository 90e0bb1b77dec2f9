"""Admission makes of a page what goes into the ledger: what of it is new, the keys by which duplicates are found, and
the parts of its records.

The shard's machine takes what was made, and decides what goes into the ledger, and when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.ledger.parts import PARTS_MAX, split
from shardway.core.log.user_records import UserRecords
from shardway.core.shard.duplicates import PageRead
from shardway.core.shard.events import PageCame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.log.feed_cursor import PageMeaning
    from shardway.core.shard.duplicates import Admit, Duplicates
    from shardway.model import Position, Record
    from shardway.runtime.shard.window_reading import WindowRead


class Admission:
    """Makes of the pages of one tenure what goes into the ledger."""

    def __init__(
        self,
        *,
        window: WindowRead | None = None,
        split_by: Callable[[Record], Iterable[Any]] | None = None,
        parts_max: int = PARTS_MAX,
    ) -> None:
        """``window``: duplicates are left out by it. ``split_by(record)`` returns the parts of a record, which follow
        from the record alone.
        """
        self.window = window
        self._split_by = split_by
        self._parts_max = parts_max

    @property
    def duplicates(self) -> Duplicates | None:
        """The shard's knowledge of duplicates; None: duplicates are not left out."""
        return None if self.window is None else self.window.duplicates

    def read(self, taken: PageMeaning, records: Sequence[Record], ends_at: Position | None) -> PageRead:
        """Return a page with what of it is new, and the keys of those records."""
        held_bytes = records.held_bytes if isinstance(records, UserRecords) else None
        window = self.window
        if window is None:
            return PageRead(records, ends_at, held_bytes)
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        return PageRead(records, ends_at, held_bytes, window.keys_of(records))

    def made_of(self, page: Admit) -> PageCame:
        """Return what is delivered of these records: themselves, or their parts."""
        if self._split_by is None:
            return PageCame(page.records, page.ends_at, page.held_bytes, page.twins)
        found = split(page.records, self._split_by, without=set(page.twins), parts_max=self._parts_max)
        return PageCame(found.records, page.ends_at, None, found.settled, found.unreadable)
