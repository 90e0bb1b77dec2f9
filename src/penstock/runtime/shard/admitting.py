"""What of a fetched page goes into the ledger, and as what: without duplicates, and in parts, where asked for.

The program's functions are called here (the key of a record, its parts). The shard's machine is told what they made.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.feeding.user_records import UserRecords
from penstock.core.ledger.parts import PARTS_MAX, split
from penstock.core.shard.machine import PageCame
from penstock.events import DedupeWindowRebuilding, DuplicatesLeftOut
from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.ledger.page import Held
    from penstock.events import LedgerEvent
    from penstock.model import Record
    from penstock.runtime.shard.window_reading import WindowRead


class Admission:
    """Says of the pages of one tenure which records are duplicates, and splits them into parts. With
    ``Deduplicate.wait`` it keeps back the pages that come before the window is known.
    """

    def __init__(
        self,
        *,
        window: WindowRead | None = None,
        split_by: Callable[[Record], Iterable[Any]] | None = None,
        parts_max: int = PARTS_MAX,
        on_event: Callable[[LedgerEvent], None],
    ) -> None:
        """``split_by(record)``: the parts of a record, which follow from the record alone."""
        self._window = window
        self._split_by = split_by
        self._parts_max = parts_max
        self._on_event = on_event
        self._kept: deque[tuple[Sequence[Record], Position | None]] = deque()
        self._told = False

    def listen(self, on_whole: Callable[[], None]) -> None:
        """``on_whole`` is called when the window is known, and `go_on` may be."""
        if self._window is not None:
            self._window.on_whole = on_whole

    @property
    def waits(self) -> bool:
        """True while pages are kept back: no more should be fetched. Raises what the reading of the window raised.

        Only a window that is being read may be waited for: before that, the next page is what it begins with.
        """
        window = self._window
        if window is None:
            return False
        window.check()
        return bool(self._kept) and window.has_begun

    def admit(
        self, held: Held, taken: Taken, records: Sequence[Record], ends_at: Position | None
    ) -> Sequence[PageCame]:
        """A page, with what of it is new. Returns what the ledger is to take: nothing while it is kept back."""
        window = self._window
        if window is None:
            return self._made_of(records, ends_at, [])
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        if not window.whole and not self._told:
            self._told = True
            self._on_event(DedupeWindowRebuilding(window.stream, window.shard_id, window.waits))
        if self._kept or not window.may_deliver:
            self._keep(held, records, ends_at)
            return ()
        return self._without_duplicates(window, records, ends_at)

    def go_on(self, held: Held) -> Iterator[PageCame]:
        """The window is known: what was kept back goes on."""
        while self._kept and self._window is not None and self._window.may_deliver:
            records, ends_at = self._kept.popleft()
            held.change(-(_held_bytes(records) or 0))
            yield from self._without_duplicates(self._window, records, ends_at)

    async def until_known(self) -> None:
        """Wait until nothing needs to be kept back. Raises what the reading of the window raised."""
        if self._kept and self._window is not None:
            await self._window.until_whole()

    def forget(self) -> None:
        """The program seeks: the shard is read from another place on, and its records are handed out again."""
        self._kept.clear()
        if self._window is not None:
            self._window.forget()

    def stop(self) -> None:
        """Nothing more is handed out."""
        if self._window is not None:
            self._window.cancel()

    async def close(self) -> None:
        """The tenure is over."""
        if self._window is not None:
            await self._window.stop()

    def _keep(self, held: Held, records: Sequence[Record], ends_at: Position | None) -> None:
        """Of pages without records only the last one's end is kept: a silence may be many of them."""
        if not len(records):
            if ends_at is None:
                return
            if self._kept and not len(self._kept[-1][0]):
                held.change(-(_held_bytes(self._kept.pop()[0]) or 0))
        self._kept.append((records, ends_at))
        held.change(_held_bytes(records) or 0)

    def _without_duplicates(
        self, window: WindowRead, records: Sequence[Record], ends_at: Position | None
    ) -> Sequence[PageCame]:
        twins = window.duplicates(records)
        if twins:
            first = records[twins[0]]
            position = Position(first.sequence_number, first.sub_sequence_number)
            self._on_event(DuplicatesLeftOut(window.stream, window.shard_id, len(twins), position))
        return self._made_of(records, ends_at, twins)

    def _made_of(self, records: Sequence[Record], ends_at: Position | None, twins: list[int]) -> Sequence[PageCame]:
        if not len(records) and ends_at is None:
            return ()
        if self._split_by is None:
            return (PageCame(records, ends_at, _held_bytes(records), twins),)
        found = split(records, self._split_by, without=set(twins), parts_max=self._parts_max)
        return (PageCame(found.records, ends_at, None, found.settled, found.unreadable),)


def _held_bytes(records: Sequence[Record]) -> int | None:
    """What a page takes, where it is one as it was fetched."""
    return records.held_bytes if isinstance(records, UserRecords) else None
