"""A chain links the pages of a tenure: how far all is settled follows from the first of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.page import Page, R

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.model import Position


class Chain(Generic[R]):
    """Pages that are linked, so that a page that is settled leaves, or joins its settled neighbours, in
    constant time.
    """

    __slots__ = ("_base", "_head", "_tail", "records")

    def __init__(self, after: Checkpoint) -> None:
        self._base = after
        self._head: Page[R] | None = None
        self._tail: Page[R] | None = None
        self.records = 0
        """The number of records that have come so far."""

    @property
    def end(self) -> Checkpoint:
        """The checkpoint behind which the next page begins."""
        return self._base if self._tail is None else Checkpoint.at(self._tail.ends_at)

    @property
    def safe(self) -> Checkpoint:
        """The checkpoint up to which all is settled; the next record that came is not."""
        head = self._head
        if head is None:
            return self._base
        position = head.position_before(head.first_left())
        return head.before if position is None else Checkpoint.at(position)

    @property
    def prefix(self) -> int:
        """The number of records that are settled before the first record that is not."""
        head = self._head
        return self.records if head is None else head.first + head.places[head.first_left()]

    @property
    def repeatable(self) -> int:
        """The number of records from the first that is not settled to the last that came: a crash could repeat them."""
        return self.records - self.prefix

    @property
    def oldest(self) -> Position | None:
        """The position of the first record that is not settled; None: all are."""
        head = self._head
        return None if head is None else head.position(head.places[head.first_left()])

    @property
    def oldest_record(self) -> R | None:
        """The first record that is not settled; None: all are."""
        head = self._head
        return None if head is None else head.record(head.places[head.first_left()])

    def __iter__(self) -> Iterator[Page[R]]:
        page = self._head
        while page is not None:
            yield page
            page = page.next

    def add(self, page: Page[R]) -> None:
        """Link a page behind all others."""
        self.records += page.count
        page.previous = self._tail
        if self._tail is None:
            self._head = page
        else:
            self._tail.next = page
        self._tail = page

    def extend(self, ends_at: Position) -> None:
        """Move the end to this position: what lies between it and the last record is not for us."""
        if self._tail is None:
            self._base = max(self._base, Checkpoint.at(ends_at))
        else:
            self._tail.ends_at = max(self._tail.ends_at, ends_at)

    def settled(self, page: Page[R]) -> None:
        """Let a page go, or join it to its settled neighbours: it has nothing left."""
        previous, following = page.previous, page.next
        if previous is not None:
            if previous.left == 0:
                previous.ends_at = page.ends_at
                self._unlink(page)
                page = previous
            if following is not None and following.left == 0:
                page.ends_at = following.ends_at
                self._unlink(following)
            return
        while page.left == 0:
            self._base = Checkpoint.at(page.ends_at)
            self._unlink(page)
            if self._head is None:
                return
            page = self._head

    def _unlink(self, page: Page[R]) -> None:
        previous, following = page.previous, page.next
        if previous is None:
            self._head = following
        else:
            previous.next = following
        if following is None:
            self._tail = previous
        else:
            following.previous = previous
        page.previous = page.next = None
