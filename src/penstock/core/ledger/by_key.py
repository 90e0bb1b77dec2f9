"""Partition keys side by side, each in its order.

Of a key at most one delivery is out or waits for its next try; what follows it of the same key waits behind it. Keys
take turns: one that has more goes behind those that are ready.
"""

from __future__ import annotations

import math
from collections import deque
from functools import partial
from heapq import heappop, heappush
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.queues import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.core.ledger.page import Page
    from penstock.core.ledger.queues import Tickets
    from penstock.core.ledger.ticket import Ticket


class _Run:
    """Records of one key in one page, which were never handed out."""

    __slots__ = ("at", "page", "places")

    def __init__(self, page: Page[Any], place: int) -> None:
        self.page = page
        self.places = [place]
        self.at = 0


class _Lane:
    """One key."""

    __slots__ = ("again", "busy", "fresh", "key", "queued", "turn")

    def __init__(self, key: object) -> None:
        self.key = key
        self.fresh: deque[_Run] = deque()
        self.again: Line | None = None
        self.busy: Ticket | None = None
        """What is out of it."""
        self.queued = False
        """True while it stands among the ready ones, or among those that wait."""
        self.turn = 0
        """Grows when it must not be waited for any more."""

    def waits(self) -> bool:
        """True while something of it is to be handed out again."""
        return self.again is not None and self.again.first() is not None


class KeyQueue:
    """A lane for each key that has records which are not settled."""

    __slots__ = ("_furthest", "_key_of", "_lanes", "_new", "_out", "_ready", "_slots_max", "_tickets", "_waiting")

    def __init__(self, tickets: Tickets, *, slots_max: int, key_of: Callable[[Any], object]) -> None:
        self._tickets = tickets
        self._slots_max = slots_max
        self._key_of = key_of
        self._lanes: dict[object, _Lane] = {}
        self._ready: deque[_Lane] = deque()
        self._waiting: list[tuple[float, int, _Lane, int]] = []
        self._out = 0
        self._new = 0
        self._furthest = (-1, -1)  # page and place of the last record, in the shard's order, that was ever taken

    def add(self, page: Page[Any]) -> None:
        """A page came: its records go behind those of their keys."""
        lanes, key_of = self._lanes, self._key_of
        places = page.feed(page.count) if page.count else ()
        for place, record in zip(places, page.chosen(places), strict=True):
            key = key_of(record)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = _Lane(key)
            if lane.fresh and lane.fresh[-1].page is page:
                lane.fresh[-1].places.append(place)
            else:
                lane.fresh.append(_Run(page, place))
            if not lane.queued and lane.busy is None:
                lane.queued = True
                self._ready.append(lane)
        self._new += len(places)

    def again(self, tickets: Iterable[Ticket]) -> None:
        """These wait, before all else of their key."""
        for ticket in tickets:
            lane = self._lanes[ticket.key]
            if lane.again is None:
                lane.again = Line(self._tickets)
            lane.again.add(ticket)

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Ticket | None:
        """The next of a key of which nothing is out, while a slot is free."""
        if self._out >= self._slots_max:
            return None
        while self.next_at_s() <= now_s:
            self._ready.append(heappop(self._waiting)[2])
        for _ in range(len(self._ready)):
            lane = self._ready.popleft()
            if not lane.queued:  # it had its turn, by being ready twice
                continue
            ticket = self._next_of(lane, records_max, gaps_only=gaps_only)
            if ticket is None and lane.fresh:  # behind the furthest
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
        """A ticket holds nothing more: all is settled, or waits with another. If it was out, its key has a turn again;
        if it waited, what follows it of its key need not wait for it.
        """
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
        """When a key that waits may go on; infinity also while all slots are taken."""
        if self._out >= self._slots_max:
            return math.inf
        while self._waiting and self._waiting[0][2].turn != self._waiting[0][3]:
            heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else math.inf

    def has_new(self) -> bool:
        """True when there are records that were never handed out."""
        return self._new > 0

    def has_gaps(self) -> bool:
        """True when there are such records before others that were, or such parts of a record that was begun: no
        checkpoint passes them. Without those whose key waits for its next try: that comes again anyway.
        """
        runs = (lane.fresh[0] for lane in self._lanes.values() if lane.fresh and not lane.waits())
        return any(self._fills(run.page, run.places[run.at]) for run in runs)

    def _fills(self, page: Page[Any], place: int) -> bool:
        """True when the next place of a key lies before records that were handed out, or continues a split record."""
        return (page.number, place) < self._furthest or page.continues(place)

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
        self._furthest = max(self._furthest, (number, places[-1]))
        run.at += len(places)
        if run.at == len(run.places):
            lane.fresh.popleft()
        self._new -= len(places)
        ticket = self._tickets.new_ticket(run.page, places)
        ticket.key = lane.key
        return ticket

    def _leave(self, lane: _Lane) -> None:
        """A key without records is forgotten."""
        if lane.busy is None and not lane.fresh and not lane.waits():
            del self._lanes[lane.key]
