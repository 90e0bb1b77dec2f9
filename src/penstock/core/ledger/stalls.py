"""Records that were handed out and not settled in time.

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
