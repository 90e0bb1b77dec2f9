"""Which records are handed out next."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.ledger.ticket import Ticket, Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.core.ledger.page import Page


class Tickets(Protocol):
    """What a queue needs of the book."""

    def new_ticket(self, page: Page[Any], places: Sequence[int]) -> Ticket:
        """Make a ticket for records that were never handed out."""

    def mine(self, ticket: Ticket) -> Sequence[int]:
        """The records that are not settled and are with this ticket, rising."""

    def cut(self, ticket: Ticket, places: Sequence[int]) -> Ticket:
        """A ticket of its own for a part of one that waits; it waits as long."""


class Queue(Protocol):
    """Holds what is to be handed out. ``take`` gives a ticket that was not handed out before, or one that waits."""

    def add(self, page: Page[Any]) -> None:
        """A page came; its records follow all others."""

    def again(self, tickets: Iterable[Ticket]) -> None:
        """These wait, in this order, to be handed out again when they are due."""

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """What may be handed out now; None: nothing.

        ``gaps_only``: no record is taken that lies behind all that were taken. Only records that lie between are taken,
        and the further parts of a record that was begun: a record is settled only when all of its parts are.
        """

    def closed(self, ticket: Ticket) -> None:
        """A ticket that was out holds nothing more: all is settled, or waits with another ticket."""

    def next_at_s(self) -> float:
        """When something that waits is due; infinity when that depends on callers."""

    def has_new(self) -> bool:
        """True when there are records that were never handed out."""

    def has_gaps(self) -> bool:
        """True when there are such records before others that were, or such parts of a record that was begun; without
        those that stand behind what waits for its next try.
        """


class _Fresh:
    """Records that were never handed out, page by page."""

    __slots__ = ("_pages", "_tickets")

    def __init__(self, tickets: Tickets) -> None:
        self._pages: deque[Page[Any]] = deque()
        self._tickets = tickets

    def add(self, page: Page[Any]) -> None:
        self._pages.append(page)

    def __bool__(self) -> bool:
        while self._pages and not self._pages[0].has_fresh():
            self._pages.popleft()
        return bool(self._pages)

    def rest(self) -> int:
        """How many parts are left of a record of which some were handed out."""
        if not self._pages:
            return 0
        page, count = self._pages[0], 0
        while page.continues(page.fed + count):
            count += 1
        return count

    def take_rest(self, records_max: int) -> Ticket | None:
        """Hand out only the parts that `rest` counts."""
        rest = self.rest()
        return self.take(min(rest, records_max)) if rest else None

    def take(self, records_max: int) -> Ticket | None:
        while self._pages:
            page = self._pages[0]
            places = page.feed(records_max)
            if places:
                return self._tickets.new_ticket(page, places)
            self._pages.popleft()
        return None


class Line:
    """Tickets that wait, in the order of their records; a ticket that reaches into the next one is cut there."""

    __slots__ = ("_heap", "_tickets")

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._heap: list[tuple[tuple[int, int], int, Ticket]] = []

    def add(self, ticket: Ticket) -> None:
        """It waits."""
        heappush(self._heap, (ticket.order, ticket.serial, ticket))

    def first(self) -> Ticket | None:
        """The first; its places are what it still holds."""
        while self._heap:
            order, serial, ticket = self._heap[0]
            if not waits(ticket):
                heappop(self._heap)
                continue
            if len(ticket.places) != ticket.left:  # some were settled, or moved on, meanwhile
                ticket.places = self._tickets.mine(ticket)
            if ticket.order == order:
                return ticket
            heapreplace(self._heap, (ticket.order, serial, ticket))
        return None

    def take(self) -> Ticket:
        """Take the first off; there is one."""
        ticket = heappop(self._heap)[2]
        following = self.first()
        if following is not None and following.page is ticket.page and following.places[0] < ticket.places[-1]:
            middle = bisect_left(ticket.places, following.places[0])
            self.add(self._tickets.cut(ticket, ticket.places[middle:]))
            ticket.places = ticket.places[:middle]
        return ticket


class PositionQueue:
    """In the order of the shard: a record that waits holds up all that are new."""

    __slots__ = ("_fresh", "_waiting")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh = _Fresh(tickets)
        self._waiting = Line(tickets)

    def add(self, page: Page[Any]) -> None:
        """A page came."""
        self._fresh.add(page)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """These wait."""
        for ticket in tickets:
            self._waiting.add(ticket)

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """The first that waits, when it is due; else what is new."""
        first = self._waiting.first()
        if first is None:
            return self._fresh.take_rest(records_max) if gaps_only else self._fresh.take(records_max)
        return None if first.due_s > now_s else self._waiting.take()

    def closed(self, ticket: Ticket) -> None:
        """Nothing waits for it."""

    def next_at_s(self) -> float:
        """When the first that waits is due."""
        first = self._waiting.first()
        return math.inf if first is None else first.due_s

    def has_new(self) -> bool:
        """True when there are records that were never handed out."""
        return bool(self._fresh)

    def has_gaps(self) -> bool:
        """New ones are handed out in their order, behind what waits."""
        return self._fresh.rest() > 0 and self._waiting.first() is None


class DueQueue:
    """The record that is due first comes first; one that waits holds up no other."""

    __slots__ = ("_fresh", "_waiting")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh = _Fresh(tickets)
        self._waiting: list[tuple[float, int, Ticket]] = []

    def add(self, page: Page[Any]) -> None:
        """A page came."""
        self._fresh.add(page)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """These wait."""
        for ticket in tickets:
            heappush(self._waiting, (ticket.due_s, ticket.serial, ticket))

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """What is due, or new."""
        if self.next_at_s() <= now_s:
            return heappop(self._waiting)[2]
        return self._fresh.take_rest(records_max) if gaps_only else self._fresh.take(records_max)

    def closed(self, ticket: Ticket) -> None:
        """Nothing waits for it."""

    def next_at_s(self) -> float:
        """When the first of those that wait is due."""
        while self._waiting and not waits(self._waiting[0][2]):
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never handed out."""
        return bool(self._fresh)

    def has_gaps(self) -> bool:
        """New ones are handed out in their order."""
        return self._fresh.rest() > 0


def waits(ticket: Ticket) -> bool:
    """False when it has nothing to hand out any more: all of it was settled, or moved on, meanwhile."""
    return ticket.left > 0 and ticket.where in (Where.WAITING, Where.QUEUED)
