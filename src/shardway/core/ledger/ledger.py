"""The ledger says what of one shard is delivered, what is settled, what becomes of records that fail, and how far a
checkpoint may go. There is one ledger for each tenure.

Records come in pages (`admit`), are delivered (`deliver`), and are settled in any order by any task: by `ack`, by
`skip`, or by a dead letter that was written. A record that failed or was put off is delivered again. How far all is
settled is the ledger's `progress`, and the dead letters that are to be written are its `letters`.

The time is monotonic seconds and an argument; so is chance. Only one thread at a time may call a ledger. The events
that a call makes are collected in `events`: the caller takes them after the call (`take_events`), and emits them where
no lock is held.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.book import Book
from shardway.core.ledger.failures import Faults, GiveUpReason
from shardway.core.ledger.key_queue import KeyQueue
from shardway.core.ledger.ledger_events import LedgerEvents
from shardway.core.ledger.page import R, payload_bytes_of
from shardway.core.ledger.progress import LedgerProgress
from shardway.core.ledger.queues import DueQueue, PositionQueue
from shardway.core.ledger.stalls import Starvation
from shardway.core.ledger.ticket import Delivery, TicketState
from shardway.policies import AnyOrder, ByKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from shardway.core.ledger.letters import Letters
    from shardway.core.ledger.page import BookTotals
    from shardway.core.ledger.policy import LedgerPolicy
    from shardway.core.ledger.queues import Queue, Tickets
    from shardway.core.ledger.ticket import Ticket
    from shardway.core.log.buffer import Share
    from shardway.events import LedgerEvent
    from shardway.model import Position
    from shardway.policies import OrderPolicy


class TenureEnd(NamedTuple):
    """The end of a tenure."""

    checkpoint: Checkpoint
    """The last checkpoint that may be written."""
    unsettled: int
    """The number of records that were delivered and that the next owner delivers again."""


class MayDeliver(Enum):
    """The choices of what a ledger delivers. What is in flight may be settled in any case."""

    ALL = "all"
    GAPS = "gaps"
    """The ledger delivers only records that lie before records that were delivered: without them those come again. See
    `Queue.take`.
    """
    NOTHING = "nothing"


class Ledger(Generic[R]):
    """One shard in one tenure. Methods that settle return False once it is closed: they count for nothing then."""

    def __init__(
        self,
        stream: str,
        shard_id: str,
        after: Checkpoint,
        policy: LedgerPolicy,
        *,
        rng: Random,
        size_of: Callable[[Any], int] = payload_bytes_of,
        share: Share | None = None,
    ) -> None:
        """``after`` is the checkpoint that the tenure began with. ``size_of`` says how many bytes a record takes of
        ``bytes_max``. ``share`` is the shard's share of the consumer's buffer.
        """
        self.stream = stream
        self.shard_id = shard_id
        self.policy = policy
        self.may_deliver = MayDeliver.ALL
        """The choice of what the ledger delivers. The machine of the shard sets it, by its stage."""
        self._book: Book[R] = Book(
            after,
            queue_of=lambda tickets: _queue_of(policy, tickets),
            settle_deadline_s=policy.settle_deadline_s,
            size_of=size_of,
            share=share,
        )
        self._events = LedgerEvents(stream, shard_id, with_message=policy.log_errors == "with_message")
        self.events: Sequence[LedgerEvent] = self._events.made
        """The events that were made and not taken yet: a look costs next to nothing. Most calls make none."""
        self._faults: Faults[R] = Faults(self._book, policy, self._events, rng=rng)
        self.held: BookTotals = self._book.held
        """The totals of what came and is not settled, delivered or not: records, and the bytes that are kept for
        them.
        """
        self.progress: LedgerProgress[R] = LedgerProgress(self._book)
        """How far all is settled."""
        self.letters: Letters[R] = self._faults.letters
        """The dead letters that are to be written."""
        self._starvation = Starvation(policy.full_after_s)
        self._closed: str | None = None

    def take_events(self) -> Sequence[LedgerEvent]:
        """Return the events that were made since the last call, in their order."""
        made = self._events.made
        if not made:
            return ()
        found = tuple(made)
        made.clear()
        return found

    @property
    def closed(self) -> bool:
        """True once the tenure is over: what is settled from then on counts for nothing."""
        return self._closed is not None

    @property
    def ending(self) -> GiveUpReason | None:
        """The reason why nothing more is delivered, where the policies have had enough of the shard."""
        return self._faults.ending

    @property
    def given_up(self) -> bool:
        """True when nothing more is delivered, and the worker is to give the lease up: after GiveUp, and not after
        Stop, which is an ``ending``, too.
        """
        return self.ending is not None and not self.ending.stops

    @property
    def has_room(self) -> bool:
        """True while more may be fetched: a page of any size may come then."""
        policy, held, chain = self.policy, self.held, self._book.chain
        return (
            held.records < policy.records_max
            and held.held_bytes < policy.bytes_max
            and (chain.records < policy.repeat_records_max or chain.repeatable < policy.repeat_records_max)
        )

    @property
    def is_full(self) -> bool:
        """True while nothing more is fetched: this ledger has no room, or the consumer's buffer has none for it."""
        return self.held.waits or not self.has_room

    def admit(
        self,
        records: Sequence[R],
        now_s: float,
        *,
        ends_at: Position | None = None,
        held_bytes: int | None = None,
        settled: Iterable[int] = (),
        unreadable: Mapping[int, BaseException] | None = None,
    ) -> None:
        """Take records that follow all that came before; an empty page is fine.

        ``ends_at``: where the page ends, if that is behind its last record (others were left out). ``held_bytes``: how
        many bytes all records take together, where the caller knows it. ``settled``: numbers of records that are not to
        be delivered (duplicates, records that were split into nothing). ``unreadable``: numbers of the records that
        become dead letters at once, with the reason. Raises ValueError when the records don't follow.
        """
        book = self._book
        if self._closed is not None:
            return
        if not records:
            if ends_at is not None:
                book.chain.extend(ends_at)
            return
        page = book.add(records, ends_at, held_bytes, settled)
        for place, error in (unreadable or {}).items():
            page.gaps = True
            if not page.is_settled(place):
                ticket = book.new_ticket(page, [place])
                ticket.first_at_s = now_s
                book.stalls.watch(ticket)
                self._faults.dead_letter(ticket, [place], error, "unreadable", now_s)
        if page.left:
            book.queue.add(page)

    def reorder(self, order: OrderPolicy | None) -> None:
        """Deliver in this order from now on. Nothing is fetched again: what was not delivered, and what waits to be
        delivered again, is put into the new order, and what is in flight stays as it is. Raises OptionError for an
        order that does not go with the other policies.
        """
        if self._closed is not None or order == self.policy.order:
            return
        policy = self.policy = self._faults.policy = replace(self.policy, order=order)
        self._book.reorder(lambda tickets: _queue_of(policy, tickets))

    def end(self) -> None:
        """Note that the shard has no more records than those that came: when all are settled, `LedgerProgress.safe` is
        SHARD_END.
        """
        self.progress.shard_ended = True

    @property
    def draining(self) -> bool:
        """True when the shard is about to go: what is in flight may be settled, and little or nothing more is
        delivered.
        """
        return self.may_deliver is not MayDeliver.ALL

    @property
    def out(self) -> int:
        """The number of records that are with callers. Records that wait for a retry, or as dead letters, do
        not count.
        """
        return self._book.out

    def deliver(self, now_s: float, records_max: int = 10_000) -> Delivery[R] | None:
        """Return the next records, all of one page. None: nothing is to be delivered now (see `next_turn_at_s`).

        What is delivered again comes in the group in which it failed, even if that is more than ``records_max``.
        """
        if records_max < 1:
            raise ValueError("records_max must be at least 1")
        if self._closed is not None or self._faults.ending is not None or self.may_deliver is MayDeliver.NOTHING:
            return None
        book = self._book
        delivery = book.take(now_s, records_max, gaps_only=self.may_deliver is MayDeliver.GAPS)
        if delivery is not None:
            self._starvation.gets()
        elif book.out and self.is_full and not book.queue.has_new():
            self._starvation.gets_none(now_s)
        return delivery

    def next_turn_at_s(self) -> float:
        """Return when `deliver` has something that waits for its retry; infinity when that depends on callers."""
        return self._book.queue.next_at_s()

    def next_check_at_s(self) -> float:
        """Return when `check` has something to say, whether or not the program asks for records; or infinity."""
        return min(self._book.stalls.next_at_s(), self._starvation.next_at_s())

    def remaining(self, delivery: Delivery[R]) -> Sequence[int]:
        """Return the places of a delivery that are not settled and were not delivered again meanwhile."""
        return self._book.places_left(delivery.ticket)

    @property
    def has_gaps(self) -> bool:
        """True when records were never delivered that lie before others that were: this occurs only with `ByKey`."""
        return self._book.queue.has_gaps()

    @property
    def drained(self) -> bool:
        """True when no handler has a record, and no dead letter is being written: a drain waits for nothing else."""
        if self._book.out:
            return False
        return not any(
            ticket.where is TicketState.LETTER
            for root in self._book.stalls
            for ticket in self._book.by_ticket(root)
        )  # fmt: skip

    def holds_up(self, ticket: Ticket, place: int) -> bool:
        """True when a record was put off, and the order makes the records behind it wait until it was delivered
        again.
        """
        if self._closed is not None or isinstance(self.policy.order, AnyOrder):
            return False
        holder = ticket.page.moved.get(place)
        return holder is not None and holder.where is TicketState.WAITING

    def ack(self, ticket: Ticket, places: Sequence[int] | None = None) -> bool:
        """Settle these records of a delivery, also when they were delivered again meanwhile. Settling twice is no
        fault.

        ``places`` None settles all of the delivery, but for the records that were put off or became dead letters
        before: a program that leaves a batch has settled the rest.
        """
        if self._closed is not None:
            return self._report_late(ticket.left if places is None else len(places))
        self._faults.failing_since_s = None
        if places is None:
            self._book.settle_all(ticket)
            places = ticket.places
        else:
            for place in places:
                self._book.settle(ticket, ticket.owned(place))
        if not places:
            return True
        if self.policy.latest_wins:
            newest = places[-1] if type(places) is range else max(places)
            for root, passed in self._book.unsettled_before(ticket, newest):
                self._faults.skip(root, passed, "latest wins")
        return True

    def leave(self, ticket: Ticket, places: Sequence[int]) -> bool:
        """Settle these records (rising places), as the program has left the block that had them, but for the records
        that were put off, or given up.
        """
        if self._closed is not None:
            return self._report_late(len(places))
        return self.ack(ticket, self._book.not_put_off(ticket, places))

    def skip(self, ticket: Ticket, places: Sequence[int] | None = None, *, reason: str = "skipped") -> bool:
        """Settle these records without having been processed; an event says so."""
        if self._closed is not None:
            return self._report_late(ticket.left if places is None else len(places))
        if places is None:
            named: Sequence[int] = self._book.not_put_off(ticket, ticket.places)
        else:
            named = ticket.page.unsettled_of(sorted(map(ticket.owned, places)))
        self._faults.skip(ticket, named, reason)
        return True

    def settle_through(self, ticket: Ticket, place: int) -> bool:
        """Settle this record and all before it that were delivered; dead letters among them are written all the same.

        Raises ValueError with ``ByKey``: there records that were not delivered lie between them.
        """
        if self._closed is not None:
            return self._report_late(1)
        if isinstance(self.policy.order, ByKey):
            raise ValueError("settle_through needs records in order; with ByKey settle the records of each delivery")
        self._faults.failing_since_s = None
        for root, places in self._book.unsettled_before(ticket, ticket.owned(place) + 1):
            self._book.settle_some(root, places)
        return True

    def nack(self, ticket: Ticket, now_s: float, places: Sequence[int] | None = None, *, delay_s: float = 0.0) -> bool:
        """Deliver these records again, not before ``delay_s``. Nothing happens to those that are settled, or were
        delivered again already.
        """
        if self._closed is not None:
            return False
        self._book.requeue(ticket, [self._book.places_left(ticket, places)], now_s + delay_s, failures=ticket.failures)
        return True

    def fail(self, ticket: Ticket, error: BaseException, now_s: float, places: Sequence[int] | None = None) -> bool:
        """Apply the retry policy to what a handler that raised left unsettled."""
        if self._closed is not None:
            return False
        self._faults.failed(ticket, error, now_s, places)
        return True

    def take_back(self, now_s: float) -> None:
        """Deliver all again that the program has and did not settle: it has stopped iterating."""
        if self._closed is None:
            for root in self._book.stalls:
                self._faults.redeliver(root, now_s)

    def dead_letter(
        self,
        ticket: Ticket,
        now_s: float,
        places: Sequence[int] | None = None,
        *,
        error: BaseException | None = None,
        reason: str = "dead-lettered",
    ) -> bool:
        """Give these records up: each becomes a dead letter, and counts as settled once that is written."""
        if self._closed is not None:
            return False
        if ticket.where is TicketState.OUT:
            self._faults.dead_letter(ticket, self._book.places_left(ticket, places), error, reason, now_s)
        return True

    def check(self, now_s: float) -> None:
        """Report what stays unsettled, and act as the policy says. Call it by `next_check_at_s`; more often does no
        harm.
        """
        if self._closed is not None:
            return
        for root in self._book.stalls.due(now_s):
            self._faults.stalled(root, now_s)
        if not self._starvation.lasts:
            return
        oldest = self.progress.oldest
        if oldest is None or not self.is_full:
            self._starvation.gets()
        elif (held_s := self._starvation.due(now_s)) is not None:
            self._events.held(self.held, oldest, held_s)

    def close(self, reason: str) -> TenureEnd:
        """End the tenure. An event names what is unsettled, once; what is settled after the call counts for nothing."""
        unsettled = self._book.unsettled()
        if self._closed is None:
            self._closed = reason
            self.held.leave()
            self.letters.close(reason)
            if unsettled:
                self._events.unsettled(unsettled, reason)
        return TenureEnd(self.progress.safe, len(unsettled))

    def _report_late(self, records: int) -> bool:
        self._events.late(records, self._closed or "")
        return False


def _queue_of(policy: LedgerPolicy, tickets: Tickets) -> Queue:
    match policy.order:
        case ByKey(slots_max=slots_max):
            return KeyQueue(tickets, slots_max=slots_max, key_of=lambda record: record.partition_key)
        case AnyOrder():
            return DueQueue(tickets)
        case _:
            return PositionQueue(tickets)
