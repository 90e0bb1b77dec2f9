"""What takes too long in a ledger: records that nothing settles, and a program that gets no records."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.ledger.ticket import Ticket


class Stalls:
    """The deliveries that are not settled as a whole, by when they are due to be reported.

    The clock of a record starts when it is delivered first and does not start again, however often it is tried: a
    record that is put off for ever is noticed like one that is forgotten.
    """

    __slots__ = ("_deadline_s", "_roots")

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._roots: OrderedDict[int, Ticket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._roots)

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over the roots, in no order that means anything."""
        return iter(list(self._roots.values()))

    def watch(self, root: Ticket) -> None:
        """Watch a ticket that was delivered for the first time, at its ``first_at_s``. Times do not go back."""
        root.remind_at_s = root.first_at_s + self._deadline_s
        self._roots[root.serial] = root

    def settled(self, root: Ticket) -> None:
        """Forget a root: all of its records are settled."""
        self._roots.pop(root.serial, None)

    def next_at_s(self) -> float:
        """Return when the next root is due; infinity when nothing is in flight."""
        for root in self._roots.values():
            return root.remind_at_s
        return math.inf

    def due(self, now_s: float) -> list[Ticket]:
        """Return the roots that are due. Each is due again after another deadline."""
        found = []
        for root in self._roots.values():
            if root.remind_at_s > now_s:
                break
            found.append(root)
        for root in found:
            root.remind_at_s = now_s + self._deadline_s
            self._roots.move_to_end(root.serial)
        return found


class Starvation:
    """The time in which the program asks for records and gets none: it ends when it gets some, or there is room."""

    __slots__ = ("_after_s", "_is_reported", "_since_s")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: float | None = None
        self._is_reported = False

    def gets(self) -> None:
        """Note that records were delivered, or that there is room."""
        self._since_s = None

    def gets_none(self, now_s: float) -> None:
        """Note that nothing was delivered, and that nothing will come before something is settled."""
        if self._since_s is None:
            self._since_s, self._is_reported = now_s, False

    @property
    def lasts(self) -> bool:
        """True from a call of `gets_none` to the next call of `gets`."""
        return self._since_s is not None

    def next_at_s(self) -> float:
        """Return when the event is to be made; infinity when it is not to be."""
        return math.inf if self._since_s is None or self._is_reported else self._since_s + self._after_s

    def due(self, now_s: float) -> float | None:
        """Return for how long the program has got none, when the event is to be made now (once); else None."""
        if self._since_s is None or now_s < self.next_at_s():
            return None
        self._is_reported = True
        return now_s - self._since_s
