"""The queue for order by key: partition keys side by side, each in its order."""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from shardway.core.ledger.queues import NOTHING_TAKEN, Furthest, Line, Tickets
from shardway.core.ledger.ticket import NO_KEY, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.core.ledger.page import Page


class _FreshRun:
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
        self.fresh: deque[_FreshRun] = deque()
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
        "_former", "_key_of", "_lanes", "_new_count", "_out_count", "_ready", "_slots_max", "_tickets",
        "_waiting_lanes", "furthest",
    )  # fmt: skip

    def __init__(self, tickets: Tickets, *, slots_max: int, key_of: Callable[[Any], object]) -> None:
        self._tickets = tickets
        self._slots_max = slots_max
        self._key_of = key_of
        self._lanes: dict[object, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._waiting_lanes: list[tuple[float, int, _Lane, int]] = []
        self._out_count = 0
        self._new_count = 0
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
                lane.fresh.append(_FreshRun(page, place))
            if not lane.queued and lane.busy is None and not lane.former:
                lane.queued = True
                self._ready.append(lane)
        self._new_count += len(places)

    def requeue(self, tickets: Iterable[Ticket]) -> None:
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
            records = page.chosen(self._tickets.places_left(ticket))
            self._former[ticket] = [self._lane(key) for key in dict.fromkeys(map(self._key_of, records))]
            for lane in self._former[ticket]:
                lane.former += 1

    def _by_key(self, ticket: Ticket) -> list[Ticket]:
        """Cut a ticket of another order into one for each key."""
        places = self._tickets.places_left(ticket)
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
        """Return the next ticket of a key that has nothing in flight, while a slot is free."""
        if self._out_count >= self._slots_max:
            return None
        while self.next_at_s() <= now_s:
            self._ready.append(heappop(self._waiting_lanes)[2])
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
                heappush(self._waiting_lanes, (ticket.due_s, ticket.serial, lane, lane.turn))
            else:
                if lane.again is not None and lane.again.first() is ticket:
                    ticket = lane.again.take()
                lane.queued = False
                lane.busy = ticket
                self._out_count += 1
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
            self._out_count -= 1
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
        if self._out_count >= self._slots_max:
            return math.inf
        while self._waiting_lanes and self._waiting_lanes[0][2].turn != self._waiting_lanes[0][3]:
            heappop(self._waiting_lanes)
        return self._waiting_lanes[0][0] if self._waiting_lanes else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never delivered."""
        return self._new_count > 0

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
        self._new_count -= len(places)
        ticket = self._tickets.new_ticket(run.page, places)
        ticket.key = lane.key
        return ticket

    def _leave(self, lane: _Lane) -> None:
        """Forget a key without records."""
        if lane.busy is None and not lane.former and not lane.fresh and not lane.waits():
            del self._lanes[lane.key]
