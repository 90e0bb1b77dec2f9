"""Which records of a shard are out, waiting or settled, and how far all is. No policies: those are the ledger's."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Generic

from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.ledger.chain import Chain
from penstock.core.ledger.page import Held, Page, R
from penstock.core.ledger.stalls import Stalls
from penstock.core.ledger.ticket import Delivery, Ticket, Where
from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.core.feeding.buffer import Share
    from penstock.core.ledger.queues import Queue, Tickets


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
        self.held = Held(share)
        self.out = 0
        """Records that are with callers: not those that wait for another try, or as dead letters."""
        self.chain: Chain[R] = Chain(after)
        self.stalls = Stalls(settle_deadline_s)
        self.queue = queue_of(self)
        self._size_of = size_of
        self._pages = count()
        self._tickets = count()

    # --- in and out ---

    def add(
        self, records: Sequence[R], ends_at: Position | None, held_bytes: int | None, settled: Iterable[int]
    ) -> Page[R]:
        """A page of records, one at least, which follow all others; ``settled`` ones are never handed out.

        It is to be put into the queue. Raises ValueError when the records don't follow.
        """
        end = self.chain.end
        first, last = _position(records[0]), _position(records[-1])
        if Checkpoint.at(first) <= end or last < first:
            raise ValueError(f"records from {tuple(first)} to {tuple(last)} do not follow {end.text}")
        page = Page(
            next(self._pages), self.chain.records, records,
            before=end, ends_at=last if ends_at is None else max(last, ends_at),
            held_bytes=sum(map(self._size_of, records)) if held_bytes is None else held_bytes,
            size_of=self._size_of, held=self.held,
        )  # fmt: skip
        self.chain.add(page)
        for place in settled:
            page.gaps = True
            page.mark(place)
        if not page.left:
            self.chain.settled(page)
        return page

    def take(self, now_s: float, records_max: int, *, gaps_only: bool) -> Delivery[R] | None:
        """The next records that may be handed out now. ``gaps_only``: see `Queue.take`."""
        ticket = self.queue.take(now_s, records_max, gaps_only=gaps_only)
        if ticket is None:
            return None
        if ticket.where is Where.QUEUED:
            ticket.first_at_s = now_s
            self.stalls.watch(ticket)
        elif len(ticket.places) != ticket.left:
            ticket.places = self.mine(ticket)
        ticket.where = Where.OUT
        ticket.attempt += 1
        self.out += ticket.left
        return Delivery(ticket, ticket.page.chosen(ticket.places), ticket.places, ticket.attempt)

    # --- settled ---

    def settle(self, ticket: Ticket, place: int) -> None:
        """One record, whatever ticket it is with by now. Settling twice changes nothing."""
        page, root = ticket.page, ticket.root
        current = page.moved.pop(place, root) if page.moved else root
        if not page.mark(place):
            return
        current.left -= 1
        root.unsettled -= 1
        if current.where is Where.OUT:
            self.out -= 1
        if not current.left:
            self.queue.closed(current)
        if not root.unsettled:
            self.stalls.settled(root)
        if not page.left:
            self.chain.settled(page)

    def settle_all(self, ticket: Ticket) -> None:
        """All that a ticket was made with, but for what was put off or given up by name: that was said first."""
        page = ticket.page
        if page.moved or ticket.root is not ticket:
            for place in self.not_put_off(ticket, ticket.places):
                self.settle(ticket, place)
            return
        # The usual case: nothing of the page was ever handed out twice, so all that is left of it is known.
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
        """These, none of which is settled."""
        if len(places) == ticket.root.unsettled and not ticket.page.moved:
            self.settle_all(ticket.root)
        else:
            for place in places:
                self.settle(ticket, place)

    # --- again ---

    def again(
        self,
        ticket: Ticket,
        groups: Sequence[Sequence[int]],
        due_s: float,
        *,
        tries: int,
        halved: bool = False,
        put_off: bool = True,
    ) -> None:
        """Records that are out wait for their next turn, in these groups. ``put_off``: their handler wants it so."""
        waiting = []
        for places in groups:
            if ticket.where is Where.OUT and places:
                moved = self.move(ticket, places, Where.WAITING, put_off=put_off)
                moved.due_s, moved.tries, moved.halved = due_s, tries, halved or ticket.halved
                waiting.append(moved)
        if waiting:
            self.queue.again(waiting)
            if not ticket.left:
                self.queue.closed(ticket)

    def move(self, ticket: Ticket, places: Sequence[int], where: Where, *, put_off: bool = True) -> Ticket:
        """Records leave a ticket for a new one."""
        moved = Ticket(ticket.page, places, serial=next(self._tickets), root=ticket.root)
        moved.attempt, moved.key, moved.where = ticket.attempt, ticket.key, where
        moved.put_off = put_off or ticket.put_off
        ticket.page.moved.update(dict.fromkeys(places, moved))
        ticket.left -= len(places)
        if ticket.where is Where.OUT:
            self.out -= len(places)
        return moved

    def cut(self, ticket: Ticket, places: Sequence[int]) -> Ticket:
        """A ticket of its own for a part of one that waits; it waits as long."""
        tail = self.move(ticket, places, ticket.where, put_off=False)
        tail.due_s, tail.tries, tail.halved = ticket.due_s, ticket.tries, ticket.halved
        return tail

    # --- which ticket has which records ---

    def not_put_off(self, ticket: Ticket, places: Sequence[int]) -> list[int]:
        """Those of a ticket's records that are not settled, are with it or were taken from it without its handler."""
        page, root = ticket.page, ticket.root
        found = []
        for place in page.unsettled_of(places):
            holder = page.moved.get(place, root)
            if holder is ticket or not holder.put_off:
                found.append(place)
        return found

    def mine(self, ticket: Ticket, places: Sequence[int] | None = None) -> Sequence[int]:
        """Those of a ticket's records that are not settled and are still with it, rising."""
        page, root = ticket.page, ticket.root
        found = page.unsettled_of(ticket.places if places is None else sorted(map(ticket.owned, places)))
        if page.moved or root is not ticket:
            found = [place for place in found if page.moved.get(place, root) is ticket]
        return found

    def by_ticket(self, root: Ticket) -> dict[Ticket, list[int]]:
        """The records of a root that are not settled, by the ticket that they are with."""
        page = root.page
        found: dict[Ticket, list[int]] = {}
        for place in page.unsettled_of(root.places):
            found.setdefault(page.moved.get(place, root), []).append(place)
        return found

    def before(self, ticket: Ticket, stop: int) -> list[tuple[Ticket, Sequence[int]]]:
        """What was handed out and is not settled before a place, by the ticket that it was handed out with first.

        Without dead letters: those are to be written.
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
                places = [each for each in places if page.moved.get(each, root).where is not Where.BURYING]
            if places:
                found.append((root, places))
        return found

    def unsettled(self, positions_max: int | None = None) -> list[Position]:
        """The records that were handed out and are not settled, in the order of the shard."""
        found: list[Position] = []
        for root in sorted(self.stalls, key=_order):
            page = root.page
            found.extend(page.position(place) for place in page.unsettled_of(root.places))
        return sorted(found)[:positions_max]

    def new_ticket(self, page: Page[Any], places: Sequence[int]) -> Ticket:
        """Make a ticket for records that were never handed out."""
        return Ticket(page, places, serial=next(self._tickets))


def _position(record: Any) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


def _order(ticket: Ticket) -> tuple[int, int]:
    return ticket.order
