"""What of a fetched page goes into the ledger, and as what: without duplicates, and in parts, where asked for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.feeding.user_records import UserRecords
from penstock.core.ledger.parts import PARTS_MAX, split
from penstock.events import DedupeWindowRebuilding, DuplicatesLeftOut
from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.feeding.cursor import Taken
    from penstock.core.ledger.ledger import Ledger
    from penstock.events import LedgerEvent
    from penstock.model import Record
    from penstock.runtime.shard.window_reading import WindowRead


class Admission:
    """Takes the pages of one tenure into the ledger, without duplicates and split into parts. With ``Deduplicate.wait``
    it keeps back the pages that come before the window is known.
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
    def settles(self) -> bool:
        """True where a page may hold records that no handler gets: duplicates, and what cannot be split."""
        return self._window is not None or self._split_by is not None

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
        self, ledger: Ledger[Any], taken: Taken, records: Sequence[Record], ends_at: Position | None, now_s: float
    ) -> bool:
        """A page, with what of it is to be handed out. True when something may be."""
        window = self._window
        if window is None:
            return self._plain(ledger, taken, records, ends_at, now_s)
        window.saw(taken)
        if len(records) < len(taken.records):
            window.follow(taken.records[: len(taken.records) - len(records)])
        if not window.whole and not self._told:
            self._told = True
            self._on_event(DedupeWindowRebuilding(window.stream, window.shard_id, window.waits))
        if self._kept or not window.may_deliver:
            self._keep(ledger, records, ends_at)
            return False
        return self._without_duplicates(window, ledger, records, ends_at, now_s)

    def go_on(self, ledger: Ledger[Any], now_s: float) -> None:
        """The window is known: what was kept back goes on."""
        while self._kept and self._window is not None and self._window.may_deliver:
            records, ends_at = self._kept.popleft()
            ledger.held.change(-(_held_bytes(records) or 0))
            self._without_duplicates(self._window, ledger, records, ends_at, now_s)

    async def over(self, ledger: Ledger[Any], now_s: Callable[[], float]) -> None:
        """Wait until nothing is kept back. Raises what the reading of the window raised."""
        if self._kept and self._window is not None:
            await self._window.until_whole()
            self.go_on(ledger, now_s())

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

    def _keep(self, ledger: Ledger[Any], records: Sequence[Record], ends_at: Position | None) -> None:
        """Of pages without records only the last one's end is kept: a silence may be many of them."""
        if not len(records):
            if ends_at is None:
                return
            if self._kept and not len(self._kept[-1][0]):
                ledger.held.change(-(_held_bytes(self._kept.pop()[0]) or 0))
        self._kept.append((records, ends_at))
        ledger.held.change(_held_bytes(records) or 0)

    def _plain(
        self, ledger: Ledger[Any], taken: Taken, records: Sequence[Record], ends_at: Position | None, now_s: float
    ) -> bool:
        if self._split_by is not None:
            return self._split(ledger, records, ends_at, [], now_s)
        if len(records) or ends_at is not None:
            ledger.admit(records, now_s, ends_at=ends_at, held_bytes=_held_bytes(records))
        return len(records) > 0

    def _without_duplicates(
        self, window: WindowRead, ledger: Ledger[Any], records: Sequence[Record], ends_at: Position | None, now_s: float
    ) -> bool:
        twins = window.duplicates(records)
        if twins:
            first = records[twins[0]]
            position = Position(first.sequence_number, first.sub_sequence_number)
            self._on_event(DuplicatesLeftOut(window.stream, window.shard_id, len(twins), position))
        if self._split_by is not None:
            return self._split(ledger, records, ends_at, twins, now_s)
        ledger.admit(records, now_s, ends_at=ends_at, held_bytes=_held_bytes(records), settled=twins)
        return len(records) > 0

    def _split(
        self, ledger: Ledger[Any], records: Sequence[Record], ends_at: Position | None, without: list[int], now_s: float
    ) -> bool:
        assert self._split_by is not None
        found = split(records, self._split_by, without=set(without), parts_max=self._parts_max)
        ledger.admit(found.records, now_s, ends_at=ends_at, settled=found.settled, unreadable=found.unreadable)
        return len(found.records) > 0


def _held_bytes(records: Sequence[Record]) -> int | None:
    """What a page takes, where it is one as it was fetched."""
    return records.held_bytes if isinstance(records, UserRecords) else None
