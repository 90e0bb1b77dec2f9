"""The queues say which records are delivered next: in the order of the shard, by when they are due, or key by key."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from functools import partial
from heapq import heappop, heappush, heapreplace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from shardway.core.ledger.book import NO_KEY, Ticket, TicketState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.ledger.book import Page


class Tickets(Protocol):
    """The part of the book that a queue needs."""

    def new_ticket(self, page: Page[Any], places: Sequence[int]) -> Ticket:
        """Make a ticket for records that were never delivered."""

    def mine(self, ticket: Ticket) -> Sequence[int]:
        """Return the records that are not settled and are with this ticket, rising."""

    def cut(self, ticket: Ticket, places: Sequence[int]) -> Ticket:
        """Return an own ticket for a part of a ticket that waits; the new one waits as long."""


class Queue(Protocol):
    """Holds what is to be delivered. ``take`` returns a ticket that was not delivered before, or one that waits."""

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""

    def again(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait, in this order, to be delivered again when they are due."""

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return what may be delivered now; None: nothing.

        ``gaps_only``: no record is taken that lies behind all that were taken. Only records that lie between are taken,
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

    __slots__ = ("_before", "_pages", "_tickets", "furthest")

    def __init__(self, tickets: Tickets) -> None:
        self._pages: deque[Page[Any]] = deque()
        self._tickets = tickets
        self._before = self.furthest = NOTHING_TAKEN

    def follow(self, furthest: Furthest) -> None:
        """Note how far a queue of another order has come: it may have left records out that lie before."""
        self._before = self.furthest = furthest

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
        page, count = self._pages[0], self.before(self._before)
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

    def before(self, end: Furthest) -> int:
        """Return how many places of the first page lie before this one, from the first record on."""
        first = self.first()
        if first is None or first >= end:
            return 0
        page, (number, place) = self._pages[0], end
        return (place if number == page.number else page.count) - page.fed

    @property
    def may_lie_before(self) -> bool:
        """True where records may lie before others that were delivered, as another order has left them out."""
        return self._before != NOTHING_TAKEN

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
                ticket.places = self._tickets.mine(ticket)
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

    __slots__ = ("_fresh", "_waiting")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh = _FreshPages(tickets)
        self._waiting = Line(tickets)

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""
        self._fresh.add(page)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait."""
        for ticket in tickets:
            self._waiting.add(ticket)

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return the first ticket that waits, when it is due; else what is new, where nothing waits."""
        first, fresh = self._waiting.first(), self._fresh
        if first is None:
            return fresh.take_rest(records_max) if gaps_only else fresh.take(records_max)
        if not fresh.may_lie_before:
            return None if first.due_s > now_s else self._waiting.take()
        if (count := fresh.before(first.order)) > 0:
            return fresh.take(min(count, records_max))
        return None if first.due_s > now_s else self._waiting.take(fresh.first())

    def closed(self, ticket: Ticket) -> None:
        """Do nothing: no record waits for this ticket to close."""

    def next_at_s(self) -> float:
        """Return when the first ticket that waits is due."""
        first = self._waiting.first()
        return math.inf if first is None else first.due_s

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return bool(self._fresh)

    def has_gaps(self) -> bool:
        """True when parts are left of a record that was begun, or what another order left out, and nothing waits before
        them: new records are delivered in their order, behind what waits.
        """
        first = self._waiting.first()
        return self._fresh.rest() > 0 if first is None else self._fresh.before(first.order) > 0

    @property
    def furthest(self) -> Furthest:
        """See `Queue.furthest`."""
        return self._fresh.furthest

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order: what it left out comes first."""
        self._fresh.follow(furthest)

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Do nothing: no record waits for what is in flight."""


class DueQueue:
    """The queue by time: the record that is due first comes first, and a record that waits holds up no other."""

    __slots__ = ("_fresh", "_waiting")

    def __init__(self, tickets: Tickets) -> None:
        self._fresh = _FreshPages(tickets)
        self._waiting: list[tuple[float, int, Ticket]] = []

    def add(self, page: Page[Any]) -> None:
        """Add a page; its records follow all others."""
        self._fresh.add(page)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait."""
        for ticket in tickets:
            heappush(self._waiting, (ticket.due_s, ticket.serial, ticket))

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return what is due, or new."""
        if self.next_at_s() <= now_s:
            return heappop(self._waiting)[2]
        return self._fresh.take_rest(records_max) if gaps_only else self._fresh.take(records_max)

    def closed(self, ticket: Ticket) -> None:
        """Do nothing: no record waits for this ticket to close."""

    def next_at_s(self) -> float:
        """Return when the first ticket of those that wait is due."""
        while self._waiting and not waits(self._waiting[0][2]):
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return bool(self._fresh)

    def has_gaps(self) -> bool:
        """True when parts are left of a record that was begun: new records are delivered in their order."""
        return self._fresh.rest() > 0

    @property
    def furthest(self) -> Furthest:
        """See `Queue.furthest`."""
        return self._fresh.furthest

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order: what it left out comes first."""
        self._fresh.follow(furthest)

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Do nothing: no record waits for what is in flight."""


def waits(ticket: Ticket) -> bool:
    """False when the ticket has nothing to deliver any more: all of it was settled, or moved on, meanwhile."""
    return ticket.left > 0 and ticket.where in (TicketState.WAITING, TicketState.QUEUED)


class _Run:
    """Records of one key in one page that were never delivered."""

    __slots__ = ("at", "page", "places")

    def __init__(self, page: Page[Any], place: int) -> None:
        self.page = page
        self.places = [place]
        self.at = 0


class _Lane:
    """The records of one key that are not settled."""

    __slots__ = ("again", "busy", "former", "fresh", "key", "queued", "turn")

    def __init__(self, key: object) -> None:
        self.key = key
        self.fresh: deque[_Run] = deque()
        self.again: Line | None = None
        self.busy: Ticket | None = None
        """The ticket of this key that is in flight."""
        self.former = 0
        """The number of tickets in flight that a queue of another order has delivered, with records of this key among
        theirs.
        """
        self.queued = False
        """True while the lane stands among the ready ones, or among those that wait."""
        self.turn = 0
        """A number that grows when the lane must not be waited for any more."""

    def waits(self) -> bool:
        """True while something of the lane is to be delivered again."""
        return self.again is not None and self.again.first() is not None


class KeyQueue:
    """Partition keys side by side, each in its order: a lane for each key that has records which are not settled.

    A key has at most one delivery that is in flight or waits for its retry; what follows it of the same key waits
    behind it. Keys take turns: a key that has more goes behind those that are ready.

    A ticket that a queue of another order has delivered has records of many keys: they all wait until it is closed.
    """

    __slots__ = (
        "_former", "_key_of", "_lanes", "_new", "_out", "_ready", "_slots_max", "_tickets", "_waiting", "furthest"
    )  # fmt: skip

    def __init__(self, tickets: Tickets, *, slots_max: int, key_of: Callable[[Any], object]) -> None:
        self._tickets = tickets
        self._slots_max = slots_max
        self._key_of = key_of
        self._lanes: dict[object, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._waiting: list[tuple[float, int, _Lane, int]] = []
        self._out = 0
        self._new = 0
        self._former: dict[Ticket, list[_Lane]] = {}  # The lanes that a ticket of another order holds up.
        self.furthest = NOTHING_TAKEN

    def add(self, page: Page[Any]) -> None:
        """Add a page: its records go behind those of their keys."""
        lanes, key_of = self._lanes, self._key_of
        places = page.feed(page.count) if page.count else ()
        for place, record in zip(places, page.chosen(places), strict=True):
            key = key_of(record)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = _Lane(key)
            # The loop runs once for each record: `_lane` and `_turns` would be a call each.
            if lane.fresh and lane.fresh[-1].page is page:
                lane.fresh[-1].places.append(place)
            else:
                lane.fresh.append(_Run(page, place))
            if not lane.queued and lane.busy is None and not lane.former:
                lane.queued = True
                self._ready.append(lane)
        self._new += len(places)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """Let these tickets wait, before all else of their key."""
        for ticket in tickets:
            for one in [ticket] if ticket.key is not NO_KEY else self._by_key(ticket):
                lane = self._lane(one.key)
                if lane.again is None:
                    lane.again = Line(self._tickets)
                lane.again.add(one)
                if ticket.key is NO_KEY:
                    self._turns(lane)

    def follow(self, furthest: Furthest) -> None:
        """Follow a queue of another order."""
        self.furthest = furthest

    def wait_for(self, tickets: Iterable[Ticket]) -> None:
        """Let the keys of what is in flight wait for it."""
        for ticket in tickets:
            page = ticket.page
            records = page.chosen(self._tickets.mine(ticket))
            self._former[ticket] = [self._lane(key) for key in dict.fromkeys(map(self._key_of, records))]
            for lane in self._former[ticket]:
                lane.former += 1

    def _by_key(self, ticket: Ticket) -> list[Ticket]:
        """Cut a ticket of another order into one for each key."""
        places = self._tickets.mine(ticket)
        found: dict[object, list[int]] = {}
        for place, record in zip(places, ticket.page.chosen(places), strict=True):
            found.setdefault(self._key_of(record), []).append(place)
        tickets = []
        for key, mine in found.items():
            one = self._tickets.cut(ticket, mine)
            one.key = key
            tickets.append(one)
        return tickets

    def _lane(self, key: object) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _turns(self, lane: _Lane) -> None:
        """Give a lane its turn, where nothing of its key is in flight and it has none."""
        if not lane.queued and lane.busy is None and not lane.former:
            lane.queued = True
            self._ready.append(lane)

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """Return the next ticket of a key of which nothing is in flight, while a slot is free."""
        if self._out >= self._slots_max:
            return None
        while self.next_at_s() <= now_s:
            self._ready.append(heappop(self._waiting)[2])
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            if not lane.queued:  # It had its turn, by being ready twice.
                continue
            ticket = self._next_of(lane, records_max, gaps_only=gaps_only)
            if ticket is None and lane.fresh:  # The rest lies behind the furthest.
                self._ready.append(lane)
            elif ticket is None:
                lane.queued = False
                self._leave(lane)
            elif ticket.due_s > now_s:
                heappush(self._waiting, (ticket.due_s, ticket.serial, lane, lane.turn))
            else:
                if lane.again is not None and lane.again.first() is ticket:
                    ticket = lane.again.take()
                lane.queued = False
                lane.busy = ticket
                self._out += 1
                return ticket
        return None

    def closed(self, ticket: Ticket) -> None:
        """Note that a ticket holds nothing more: all is settled, or waits with another. If the ticket was out, its key
        has a turn again; if it waited, what follows it of its key need not wait for it.
        """
        for held_up in self._former.pop(ticket, ()):
            held_up.former -= 1
            if held_up.fresh or held_up.waits():
                self._turns(held_up)
            else:
                self._leave(held_up)
        lane = self._lanes.get(ticket.key)
        if lane is None:
            return
        if lane.busy is ticket:
            lane.busy = None
            self._out -= 1
            if lane.fresh or lane.waits():
                lane.queued = True
                self._ready.append(lane)
            else:
                self._leave(lane)
        elif lane.queued:
            lane.turn += 1
            self._ready.append(lane)

    def next_at_s(self) -> float:
        """Return when a key that waits may go on; infinity also while all slots are taken."""
        if self._out >= self._slots_max:
            return math.inf
        while self._waiting and self._waiting[0][2].turn != self._waiting[0][3]:
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return self._new > 0

    def has_gaps(self) -> bool:
        """True when records were never delivered that lie before others that were, or parts of a record that was begun:
        no checkpoint passes them. Records whose key waits for its retry do not count: that comes again anyway.
        """
        runs = (lane.fresh[0] for lane in self._lanes.values() if lane.fresh and not lane.waits())
        return any(self._fills(run.page, run.places[run.at]) for run in runs)

    def _fills(self, page: Page[Any], place: int) -> bool:
        """True when the next place of a key lies before records that were delivered, or continues a split record."""
        return (page.number, place) < self.furthest or page.continues(place)

    def _next_of(self, lane: _Lane, records_max: int, *, gaps_only: bool) -> Ticket | None:
        if lane.again is not None:
            if (first := lane.again.first()) is not None:
                return first
            lane.again = None
        if not lane.fresh:
            return None
        run = lane.fresh[0]
        places, number = run.places[run.at : run.at + records_max], run.page.number
        if gaps_only:
            places = list(takewhile(partial(self._fills, run.page), places))
            if not places:
                return None
        self.furthest = max(self.furthest, (number, places[-1]))
        run.at += len(places)
        if run.at == len(run.places):
            lane.fresh.popleft()
        self._new -= len(places)
        ticket = self._tickets.new_ticket(run.page, places)
        ticket.key = lane.key
        return ticket

    def _leave(self, lane: _Lane) -> None:
        """Forget a key without records."""
        if lane.busy is None and not lane.former and not lane.fresh and not lane.waits():
            del self._lanes[lane.key]
