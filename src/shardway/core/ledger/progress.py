"""How far a ledger has come: how much of a shard came, what of it is settled, and which record is the first that
is not.

It only reads the book, which the ledger changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.page import R

if TYPE_CHECKING:
    from shardway.core.ledger.book import Book
    from shardway.model import Position


class LedgerProgress(Generic[R]):
    """The progress of one ledger."""

    __slots__ = ("_book", "_chain", "_held_records", "shard_ended")

    def __init__(self, book: Book[R]) -> None:
        self._book = book
        self._chain, self._held_records = book.chain, book.held
        self.shard_ended = False
        """True when the shard has no more records than those that came. `Ledger.end` sets it."""

    @property
    def came_to(self) -> Checkpoint:
        """The checkpoint at which the records that came end: no checkpoint may be prepared behind it."""
        return Checkpoint.SHARD_END if self.shard_ended else self._chain.end

    @property
    def safe(self) -> Checkpoint:
        """The furthest checkpoint that is true: all up to and with it is settled. It never passes a record that is not
        settled.
        """
        if self.shard_ended and not self._held_records.records:
            return Checkpoint.SHARD_END
        return self._chain.safe

    @property
    def safe_record(self) -> Checkpoint:
        """See `safe`: it is the same, but stays at the last record at the shard's end, as long as the end is not to be
        stored.
        """
        return self._chain.safe

    @property
    def settled_records(self) -> int:
        """The number of records of this tenure that lie before the first one that is not settled."""
        return self._chain.prefix

    @property
    def done_records(self) -> int:
        """The number of records of this ledger that are settled, wherever they lie."""
        return self._chain.records - self._held_records.records

    @property
    def done_bytes(self) -> int:
        """The data bytes of the records that `done_records` counts. They are added up here, where a page is settled in
        part: the numbers ask for them, which is seldom.
        """
        return self._held_records.settled_bytes + sum([page.marked_bytes for page in self._chain])

    @property
    def oldest(self) -> Position | None:
        """The first record that is not settled, delivered or not."""
        return self._chain.oldest

    @property
    def oldest_record(self) -> R | None:
        """The first record that is not settled, delivered or not. Its arrival says how far the work is behind."""
        return self._chain.oldest_record

    @property
    def out_since_s(self) -> float | None:
        """The time at which the record that is unsettled for longest was delivered first; None when all that was
        delivered is settled.
        """
        return min((root.first_at_s for root in self._book.stalls), default=None)

    def unsettled(self, positions_max: int | None = None) -> list[Position]:
        """Return the positions that were delivered and are not settled, in the order of the shard."""
        return self._book.unsettled(positions_max)
