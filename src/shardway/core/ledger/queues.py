"""The queues say which records are delivered next: in the order of the shard, or by when they are due.

Order by key has a queue of its own (`shardway.core.ledger.key_queue`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from shardway.core.ledger.ticket import Ticket, TicketState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.ledger.page import Page


class Tickets(Protocol):
    """The part of the book that a queue needs."""

    def new_ticket(self, page: Page[Any], places: Sequence[int]) -> Ticket:
        """Make a ticket for records that were never delivered."""

    def places_left(self, ticket: Ticket) -> Sequence[int]:
        """Return the records that are not settled and are with this ticket, rising."""

    def cut(self, ticket: Ticket, places: Sequence[int]) -> Ticket:
        """Return an own ticket for a part of a ticket that waits; the new one waits as long."""


class Queue(Protocol):
    """Holds what is to be delivered. ``take`` returns a ticket that was not delivered before, or one that waits."""

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""

    def requeue(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait, in this order, to be delivered again when they are due."""

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return what may be delivered now; None: nothing.

        ``gaps_only``: no record is taken that comes after all that were taken. Only records that lie between are taken,
        and the further parts of a record that was begun: a record is settled only when all of its parts are.
        """

    def closed(self, ticket: Ticket) -> None:
        """Note that a ticket that was out holds nothing more: all is settled, or waits with another ticket."""

    def next_at_s(self) -> float:
        """Return when something that waits is due; infinity when that depends on callers."""

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""

    def has_gaps(self) -> bool:
        """True when records were never delivered that lie before others that were, or parts of a record that was begun;
        records behind what waits for its retry do not count.
        """

    @property
    def furthest(self) -> Furthest:
        """The page and place of the last record, in the shard's order, that was ever taken."""

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order, whose `furthest` this is, before any page is added."""

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Note what a queue of another order has delivered and is in flight: it stays as it is."""


Furthest: TypeAlias = tuple[int, int]
"""The number of a page, and a place in it."""
NOTHING_TAKEN: Furthest = (-1, -1)


class _FreshPages:
    """Records that were never delivered, page by page."""

    __slots__ = ("_last_taken", "_pages", "_tickets", "furthest")

    def __init__(self, tickets: Tickets) -> None:
        self._pages: deque[Page[Any]] = deque()
        self._tickets = tickets
        self._last_taken = self.furthest = NOTHING_TAKEN

    def follow(self, furthest: Furthest) -> None:
        """Note how far a queue of another order has come: it may have left records out that lie before."""
        self._last_taken = self.furthest = furthest

    def add(self, page: Page[Any]) -> None:
        self._pages.append(page)

    def __bool__(self) -> bool:
        while self._pages and not self._pages[0].has_fresh():
            self._pages.popleft()
        return bool(self._pages)

    def rest(self) -> int:
        """Return how many parts are left of a record of which some were delivered, or how many records of a page lie
        before what a queue of another order has delivered.
        """
        first = self.first()
        if first is None:
            return 0
        page, count = self._pages[0], self.places_before(self._last_taken)
        while page.continues(page.fed + count):
            count += 1
        return count

    def first(self) -> Furthest | None:
        """Return the page and place of the first record; None: there is none."""
        if not self:
            return None
        page = self._pages[0]
        if page.gaps:
            page.pass_by()
        return page.number, page.fed

    def places_before(self, end: Furthest) -> int:
        """Return how many places of the first page lie before this one, from the first record on."""
        first = self.first()
        if first is None or first >= end:
            return 0
        page, (number, place) = self._pages[0], end
        return (place if number == page.number else page.count) - page.fed

    @property
    def may_lie_before(self) -> bool:
        """True where records may lie before others that were delivered, as another order has left them out."""
        return self._last_taken != NOTHING_TAKEN

    def take_rest(self, records_max: int) -> Ticket | None:
        """Deliver only the parts that `rest` counts."""
        rest = self.rest()
        return self.take(min(rest, records_max)) if rest else None

    def take(self, records_max: int) -> Ticket | None:
        while self._pages:
            page = self._pages[0]
            places = page.feed(records_max)
            if places:
                self.furthest = max(self.furthest, (page.number, places[-1]))
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
        """Add a ticket that waits."""
        heappush(self._heap, (ticket.order, ticket.serial, ticket))

    def first(self) -> Ticket | None:
        """Return the first ticket; its places are what it still holds."""
        while self._heap:
            order, serial, ticket = self._heap[0]
            if not waits(ticket):
                heappop(self._heap)
                continue
            if len(ticket.places) != ticket.left:  # Some were settled, or moved on, meanwhile.
                ticket.places = self._tickets.places_left(ticket)
            if ticket.order == order:
                return ticket
            heapreplace(self._heap, (ticket.order, serial, ticket))
        return None

    def take(self, fresh: Furthest | None = None) -> Ticket:
        """Take the first ticket off; there is one. ``fresh``: the first record that was never delivered, where it may
        lie before others that wait.
        """
        ticket = heappop(self._heap)[2]
        following = self.first()
        ends = [] if following is None else [following.order]
        ends += [] if fresh is None else [fresh]
        # Deliveries that wait may interleave (2, and 1 with 3): taken as a whole, this one would bring 3 before 2.
        if ends and (end := min(ends)) < (ticket.page.number, ticket.places[-1]):
            middle = bisect_left(ticket.places, end[1])
            self.add(self._tickets.cut(ticket, ticket.places[middle:]))
            ticket.places = ticket.places[:middle]
        return ticket


class PositionQueue:
    """The queue in the order of the shard: a record that waits holds up all that are new."""

    __slots__ = ("_fresh_pages", "_waiting_line")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh_pages = _FreshPages(tickets)
        self._waiting_line = Line(tickets)

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""
        self._fresh_pages.add(page)

    def requeue(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait."""
        for ticket in tickets:
            self._waiting_line.add(ticket)

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return the first ticket that waits, when it is due; else what is new, where nothing waits."""
        first, fresh = self._waiting_line.first(), self._fresh_pages
        if first is None:
            return fresh.take_rest(records_max) if gaps_only else fresh.take(records_max)
        if not fresh.may_lie_before:
            return None if first.due_s > now_s else self._waiting_line.take()
        if (count := fresh.places_before(first.order)) > 0:
            return fresh.take(min(count, records_max))
        return None if first.due_s > now_s else self._waiting_line.take(fresh.first())

    def closed(self, ticket: Ticket) -> None:
        """Do nothing: no record waits for this ticket to close."""

    def next_at_s(self) -> float:
        """Return when the first ticket that waits is due."""
        first = self._waiting_line.first()
        return math.inf if first is None else first.due_s

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return bool(self._fresh_pages)

    def has_gaps(self) -> bool:
        """True when parts are left of a record that was begun, or what another order left out, and nothing waits before
        them: new records are delivered in their order, behind what waits.
        """
        first = self._waiting_line.first()
        return self._fresh_pages.rest() > 0 if first is None else self._fresh_pages.places_before(first.order) > 0

    @property
    def furthest(self) -> Furthest:
        """See `Queue.furthest`."""
        return self._fresh_pages.furthest

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order: what it left out comes first."""
        self._fresh_pages.follow(furthest)

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Do nothing: no record waits for what is in flight."""


class DueQueue:
    """The queue by time: the record that is due first comes first, and a record that waits holds up no other."""

    __slots__ = ("_fresh_pages", "_waiting_line")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh_pages = _FreshPages(tickets)
        self._waiting_line: list[tuple[float, int, Ticket]] = []

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""
        self._fresh_pages.add(page)

    def requeue(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait."""
        for ticket in tickets:
            heappush(self._waiting_line, (ticket.due_s, ticket.serial, ticket))

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return what is due, or new."""
        if self.next_at_s() <= now_s:
            return heappop(self._waiting_line)[2]
        return self._fresh_pages.take_rest(records_max) if gaps_only else self._fresh_pages.take(records_max)

    def closed(self, ticket: Ticket) -> None:
        """Do nothing: no record waits for this ticket to close."""

    def next_at_s(self) -> float:
        """Return when the first ticket of those that wait is due."""
        while self._waiting_line and not waits(self._waiting_line[0][2]):
            heappop(self._waiting_line)
        return self._waiting_line[0][0] if self._waiting_line else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return bool(self._fresh_pages)

    def has_gaps(self) -> bool:
        """True when parts are left of a record that was begun: new records are delivered in their order."""
        return self._fresh_pages.rest() > 0

    @property
    def furthest(self) -> Furthest:
        """See `Queue.furthest`."""
        return self._fresh_pages.furthest

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order: what it left out comes first."""
        self._fresh_pages.follow(furthest)

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Do nothing: no record waits for what is in flight."""


def waits(ticket: Ticket) -> bool:
    """False when the ticket has nothing to deliver any more: all of it was settled, or moved on, meanwhile."""
    return ticket.left > 0 and ticket.where in (TicketState.WAITING, TicketState.QUEUED)
