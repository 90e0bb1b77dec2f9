"""The book knows which records of a shard are in flight, waiting or settled, and how far all is settled.

It has the pages, the tickets and the queue, and the moves between them. The policies are the ledger's.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Generic

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.chain import Chain
from shardway.core.ledger.page import BookTotals, Page, R
from shardway.core.ledger.stalls import Stalls
from shardway.core.ledger.ticket import NO_KEY, Delivery, Ticket, TicketState
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.ledger.queues import Queue, Tickets
    from shardway.core.log.buffer import Share


class Book(Generic[R]):
    """The pages, tickets and queues of a tenure, and the moves between them."""

    def __init__(
        self,
        after: Checkpoint,
        *,
        queue_of: Callable[[Tickets], Queue],
        settle_deadline_s: float,
        size_of: Callable[[Any], int],
        share: Share | None = None,
    ) -> None:
        self.held = BookTotals(size_of, share)
        self.out = 0
        """The number of records that are with callers. Records that wait for a retry, or as dead letters, do
        not count.
        """
        self.chain: Chain[R] = Chain(after)
        self.stalls = Stalls(settle_deadline_s)
        self.queue = queue_of(self)
        self._pages = count()
        self._tickets = count()

    def add(
        self, records: Sequence[R], ends_at: Position | None, held_bytes: int | None, settled: Iterable[int]
    ) -> Page[R]:
        """Take a page of records, at least one, which follow all others; the ``settled`` ones are never delivered.

        The caller puts the page into the queue. Raises ValueError when the records don't follow.
        """
        end = self.chain.end
        first, last = _position(records[0]), _position(records[-1])
        if Checkpoint.at(first) <= end or last < first:
            raise ValueError(f"records from {tuple(first)} to {tuple(last)} do not follow {end.text}")
        page = Page(
            next(self._pages), self.chain.records, records,
            before=end, ends_at=last if ends_at is None else max(last, ends_at),
            held_bytes=sum(map(self.held.size_of, records)) if held_bytes is None else held_bytes,
            held=self.held,
        )  # fmt: skip
        self.chain.add(page)
        for place in settled:
            page.gaps = True
            page.mark(place)
        if not page.left:
            self.chain.settled(page)
        return page

    def reorder(self, queue_of: Callable[[Tickets], Queue]) -> None:
        """Replace the queue. Records that were never delivered, or wait to be delivered again, come in the new queue's
        order; records in flight stay as they are.
        """
        former, queue = self.queue, queue_of(self)
        roots: dict[Page[R], list[Ticket]] = {}
        tickets: dict[Ticket, None] = {}
        for root in self.stalls:
            roots.setdefault(root.page, []).append(root)
            tickets |= dict.fromkeys(self.by_ticket(root))
        for ticket in tickets:
            ticket.key = NO_KEY
        queue.follow(former.furthest)
        queue.wait_for(ticket for ticket in tickets if ticket.where is TicketState.OUT)
        waiting = [ticket for ticket in tickets if ticket.where is TicketState.WAITING]
        for ticket in waiting:
            ticket.places = self.places_left(ticket)
        queue.requeue(sorted(waiting, key=_order))
        for page in self.chain:
            page.feed_again(roots.get(page, ()))
            if page.has_fresh():
                queue.add(page)
        self.queue = queue

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Delivery[R] | None:
        """Return the next records that may be delivered now. ``gaps_only``: see `Queue.take`."""
        ticket = self.queue.take(now_s, records_max, gaps_only=gaps_only)
        if ticket is None:
            return None
        if ticket.where is TicketState.QUEUED:
            ticket.first_at_s = now_s
            self.stalls.watch(ticket)
        elif len(ticket.places) != ticket.left:
            ticket.places = self.places_left(ticket)
        ticket.where = TicketState.OUT
        ticket.attempt += 1
        self.out += ticket.left
        return Delivery(ticket, ticket.page.chosen(ticket.places), ticket.places, ticket.attempt)

    def settle(self, ticket: Ticket, place: int) -> None:
        """Settle one record, whichever ticket it belongs to now. Settling it twice changes nothing."""
        page, root = ticket.page, ticket.root
        current = page.moved.pop(place, root) if page.moved else root
        if not page.mark(place):
            return
        current.left -= 1
        root.unsettled -= 1
        if current.where is TicketState.OUT:
            self.out -= 1
        if not current.left:
            self.queue.closed(current)
        if not root.unsettled:
            self.stalls.settled(root)
        if not page.left:
            self.chain.settled(page)

    def settle_all(self, ticket: Ticket) -> None:
        """Settle all records of a ticket, except those that its handler put off or gave up one by one: that decision
        came first.
        """
        page = ticket.page
        if page.moved or ticket.root is not ticket:
            for place in self.not_put_off(ticket, ticket.places):
                self.settle(ticket, place)
            return
        # The usual case: nothing of the page was ever delivered twice, so all that is left of it is known.
        if not ticket.left:
            return
        self.out -= ticket.left
        page.mark_all(ticket.places, ticket.left)
        ticket.left = ticket.unsettled = 0
        self.queue.closed(ticket)
        self.stalls.settled(ticket)
        if not page.left:
            self.chain.settled(page)

    def settle_some(self, ticket: Ticket, places: Sequence[int]) -> None:
        """Settle these places, none of which is settled."""
        if len(places) == ticket.root.unsettled and not ticket.page.moved:
            self.settle_all(ticket.root)
        else:
            for place in places:
                self.settle(ticket, place)

    def requeue(
        self,
        ticket: Ticket,
        groups: Sequence[Sequence[int]],
        due_s: float,
        *,
        failures: int,
        halved: bool = False,
        put_off: bool = True,
    ) -> None:
        """Let records in flight wait for their next turn, in these groups. ``put_off``: their handler wants it so."""
        waiting = []
        for places in groups:
            if ticket.where is TicketState.OUT and places:
                moved = self.move(ticket, places, TicketState.WAITING, put_off=put_off)
                moved.due_s, moved.failures, moved.halved = due_s, failures, halved or ticket.halved
                waiting.append(moved)
        if waiting:
            self.queue.requeue(waiting)
            if not ticket.left:
                self.queue.closed(ticket)

    def move(self, ticket: Ticket, places: Sequence[int], where: TicketState, *, put_off: bool = True) -> Ticket:
        """Move records from a ticket to a new one, and return that."""
        moved = Ticket(ticket.page, places, serial=next(self._tickets), root=ticket.root)
        moved.attempt, moved.key, moved.where = ticket.attempt, ticket.key, where
        moved.put_off = put_off or ticket.put_off
        ticket.page.moved.update(dict.fromkeys(places, moved))
        ticket.left -= len(places)
        if ticket.where is TicketState.OUT:
            self.out -= len(places)
        return moved

    def cut(self, ticket: Ticket, places: Sequence[int]) -> Ticket:
        """Split a part off a waiting ticket, and return it as a ticket of its own that waits as long."""
        tail = self.move(ticket, places, ticket.where, put_off=False)
        tail.due_s, tail.failures, tail.halved = ticket.due_s, ticket.failures, ticket.halved
        return tail

    def not_put_off(self, ticket: Ticket, places: Sequence[int]) -> list[int]:
        """Return the unsettled places that belong to the ticket, or were taken from it without its handler."""
        page, root = ticket.page, ticket.root
        found = []
        for place in page.unsettled_of(places):
            holder = page.moved.get(place, root)
            if holder is ticket or not holder.put_off:
                found.append(place)
        return found

    def places_left(self, ticket: Ticket, places: Sequence[int] | None = None) -> Sequence[int]:
        """Return, in rising order, the places that are unsettled and still belong to the ticket."""
        page, root = ticket.page, ticket.root
        found = page.unsettled_of(ticket.places if places is None else sorted(map(ticket.owned, places)))
        if page.moved or root is not ticket:
            found = [place for place in found if page.moved.get(place, root) is ticket]
        return found

    def by_ticket(self, root: Ticket) -> dict[Ticket, list[int]]:
        """Return the unsettled records of a root, by the ticket that they belong to now."""
        page = root.page
        found: dict[Ticket, list[int]] = {}
        for place in page.unsettled_of(root.places):
            found.setdefault(page.moved.get(place, root), []).append(place)
        return found

    def unsettled_before(self, ticket: Ticket, stop: int) -> list[tuple[Ticket, Sequence[int]]]:
        """Return what was delivered before a place and is not settled, by the ticket that first delivered it.

        Records that are dead letters are left out, because their letters are still to be written.
        """
        number = ticket.page.number
        found = []
        for root in sorted(self.stalls, key=_order):
            page = root.page
            if page.number > number:
                break
            places = page.unsettled_of(root.places)
            if page.number == number and places and places[-1] >= stop:
                places = [each for each in places if each < stop]
            if page.moved:
                places = [each for each in places if page.moved.get(each, root).where is not TicketState.LETTER]
            if places:
                found.append((root, places))
        return found

    def unsettled(self, positions_max: int | None = None) -> list[Position]:
        """Return the positions that were delivered and are not settled, in the order of the shard."""
        found: list[Position] = []
        for root in sorted(self.stalls, key=_order):
            page = root.page
            found.extend(page.position(place) for place in page.unsettled_of(root.places))
        return sorted(found)[:positions_max]

    def new_ticket(self, page: Page[Any], places: Sequence[int]) -> Ticket:
        """Make a ticket for records that were never delivered."""
        return Ticket(page, places, serial=next(self._tickets))


def _position(record: Any) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


def _order(ticket: Ticket) -> tuple[int, int]:
    return ticket.order
