"""What stays unsettled: records that were handed out and not settled in time, a program that gets no records for it,
and one that settles the last of several and means all.

The clock of a record starts when it is handed out first and does not start again, however often it is tried: a record
that is put off for ever is noticed like one that is forgotten.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.ledger.ticket import Ticket


class Stalls:
    """The deliveries of which something is not settled, by when they are due to be reported."""

    __slots__ = ("_deadline_s", "_roots")

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._roots: OrderedDict[int, Ticket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._roots)

    def __iter__(self) -> Iterator[Ticket]:
        """In no order that means anything."""
        return iter(list(self._roots.values()))

    def watch(self, root: Ticket) -> None:
        """A ticket was handed out for the first time, at its ``first_at_s``. Times do not go back."""
        root.remind_at_s = root.first_at_s + self._deadline_s
        self._roots[root.serial] = root

    def settled(self, root: Ticket) -> None:
        """All of its records are."""
        self._roots.pop(root.serial, None)

    def next_at_s(self) -> float:
        """When the next is due; infinity when nothing is out."""
        for root in self._roots.values():
            return root.remind_at_s
        return math.inf

    def due(self, now_s: float) -> list[Ticket]:
        """Those that are due. Each is due again after another deadline."""
        found = []
        for root in self._roots.values():
            if root.remind_at_s > now_s:
                break
            found.append(root)
        for root in found:
            root.remind_at_s = now_s + self._deadline_s
            self._roots.move_to_end(root.serial)
        return found


class Starving:
    """The time in which the program asks for records and gets none: it ends when it gets some, or there is room."""

    __slots__ = ("_after_s", "_since_s", "_told")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: float | None = None
        self._told = False

    def gets(self) -> None:
        """Records were handed out, or there is room."""
        self._since_s = None

    def gets_none(self, now_s: float) -> None:
        """Nothing was handed out, and nothing will come before something is settled."""
        if self._since_s is None:
            self._since_s, self._told = now_s, False

    @property
    def lasts(self) -> bool:
        """True from `gets_none` on."""
        return self._since_s is not None

    def next_at_s(self) -> float:
        """When that is to be told; or infinity."""
        return math.inf if self._since_s is None or self._told else self._since_s + self._after_s

    def due(self, now_s: float) -> float | None:
        """For how long it lasts, when that is to be told now: once."""
        if self._since_s is None or now_s < self.next_at_s():
            return None
        self._told = True
        return now_s - self._since_s


HABIT_TIMES = 4
"""So often in a row, from the start of a tenure on: tasks that end in any order do so by chance, but not at once."""


class OnlyTheLast:
    """Notices a program that settles each tenth record, or the last of each delivery, and means all of them: it looks
    at the settlements of a tenure, until one does not fit.
    """

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
        if self._times < HABIT_TIMES:
            return 0
        self._times = -1
        return stride
