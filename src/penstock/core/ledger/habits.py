"""Notices a program that settles each tenth record, or the last of each delivery, and means all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.ledger.ticket import Ticket

TIMES = 4
"""So often in a row, from the start of a tenure on: tasks that end in any order do so by chance, but not at once."""


class OnlyTheLast:
    """The settlements of a tenure, until one does not fit."""

    __slots__ = ("_at", "_stride", "_times")

    def __init__(self) -> None:
        self._at, self._stride, self._times = -1, 0, 0

    def noticed(self, ticket: Ticket, place: int, *, alone: bool) -> int:
        """A settlement of this record, or with it as the newest. Returns how many records it seems to mean when that
        is to be told, once; else 0.
        """
        if self._times < 0:
            return 0
        at = ticket.page.first + place
        stride, self._at = at - self._at, at
        is_last = place == ticket.places[-1] and len(ticket.places) > 1
        if not alone or stride < 2 or (self._times and stride != self._stride and not is_last):
            self._times = -1
            return 0
        self._stride, self._times = stride, self._times + 1
        if self._times < TIMES:
            return 0
        self._times = -1
        return stride
