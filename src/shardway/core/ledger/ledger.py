"""The ledger says what of one shard is delivered, what is settled, what becomes of records that fail, and how far a
checkpoint may go. There is one ledger for each tenure.

Records come in pages (`admit`), are delivered (`deliver`), and are settled in any order by any task: by `ack`, by
`skip`, or by a dead letter that was written. A record that failed or was put off is delivered again. `safe` never
passes a record that is not settled.

The time is monotonic seconds and an argument; so is chance. Only one thread at a time may call a ledger. The events
that a call makes are collected in `events`: the caller takes them after the call (`take_events`), and emits them where
no lock is held.
"""

from __future__ import annotations

import math
import traceback
from dataclasses import replace
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from shardway import events
from shardway.core.leases.row import Checkpoint
from shardway.core.ledger.book import Book, DeadLetter, Delivery, R, TicketState, payload_bytes_of, payload_bytes_of_all
from shardway.core.ledger.policies import (
    AnyOrder,
    ByKey,
    DeadLetters,
    GiveUp,
    LastResort,
    LedgerPolicy,
    Redeliver,
    Retry,
    Skip,
    Warn,
)
from shardway.core.ledger.queues import DueQueue, KeyQueue, PositionQueue
from shardway.core.pacing import full_jitter_s
from shardway.core.unicode import message_of, writable
from shardway.errors import PutError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from shardway.core.ledger.book import BookTotals, Page, Ticket
    from shardway.core.ledger.policies import OrderPolicy
    from shardway.core.ledger.queues import Queue, Tickets
    from shardway.core.log.buffer import Share
    from shardway.events import LedgerEvent
    from shardway.model import Position


class TenureEnd(NamedTuple):
    """The end of a tenure."""

    checkpoint: Checkpoint
    """The last checkpoint that may be written."""
    unsettled: int
    """The number of records that were delivered and that the next owner delivers again."""


POSITIONS_SHOWN_MAX = 20
"""The most positions that an event names."""
MESSAGE_CHARS_MAX = 2_000
"""The most of a handler's error message that an event holds, where the message is asked for."""
TRACE_CHARS_MAX = 20_000
"""The most of the error's traceback that an event holds, in characters: the end of it is kept."""
ADVICE = (
    "They come again. Where a program has forgotten them: settle every record, or call settle_through(record), which "
    "settles it and all before it"
)

CALLERS = ("shardway", "concurrent", "asyncio")
"""The packages that call handlers: the handler begins behind their frames."""


class LedgerEvents:
    """Makes events; an event that is emitted once is made once."""

    __slots__ = ("_late_made", "_shard_id", "_stream", "_with_message", "made")

    def __init__(self, stream: str, shard_id: str, *, with_message: bool = False) -> None:
        """``with_message``: the events also hold the message of a handler's error, and the traceback."""
        self.made: list[events.LedgerEvent] = []
        """The events that were made and not taken yet. It is always the same list."""
        self._stream = stream
        self._shard_id = shard_id
        self._late_made = False
        self._with_message = with_message

    def stalled(self, root: Ticket, places: Sequence[int], waiting: int, now_s: float, action: object) -> None:
        """Make the event that records are not settled in time."""
        first = tuple(root.page.position(place) for place in places[:POSITIONS_SHOWN_MAX])
        age_s, name = now_s - root.first_at_s, type(action).__name__
        self.made.append(
            events.RecordsStalled(self._stream, self._shard_id, first, len(places), waiting, age_s, name),
        )

    def failed(self, ticket: Ticket, places: Sequence[int], error: BaseException, step: Step) -> None:
        """Make the event that a handler raised."""
        position, kind = ticket.page.position(places[0]), type(error).__name__
        name, delay_s = step.shown
        what = position, len(places), ticket.attempt, kind, name, delay_s, raised_at(error)
        message, trace = _in_full(error) if self._with_message else (None, None)
        size = payload_bytes_of_all(ticket.page.chosen(places))
        self.made.append(events.BatchFailed(self._stream, self._shard_id, *what, message, trace, size))

    def letter_written(self, letter: DeadLetter[Any]) -> None:
        """Make the event that a dead letter is written."""
        what = letter.position, letter.part, letter.attempts, letter.error_type, letter.failures
        size = payload_bytes_of(letter.record)
        self.made.append(events.RecordDeadLettered(self._stream, self._shard_id, *what, payload_bytes=size))

    def letter_not_written(self, letter: DeadLetter[Any], error: BaseException, delay_s: float) -> None:
        """Make the event that a dead letter could not be written."""
        what = letter.position, named(error), letter.write_failures, delay_s
        self.made.append(events.DeadLetterFailed(self._stream, self._shard_id, *what))

    def skipped(self, first: Position, last: Position, records: int, reason: str, payload_bytes: int) -> None:
        """Make the event that records count as settled without having been processed."""
        what = first, last, records, reason, payload_bytes
        self.made.append(events.RecordsSkipped(self._stream, self._shard_id, *what))

    def unsettled(self, positions: Sequence[Position], reason: str) -> None:
        """Make the event that records were delivered, and that the program did not settle them."""
        first = tuple(positions[:POSITIONS_SHOWN_MAX])
        self.made.append(events.RecordsUnsettled(self._stream, self._shard_id, first, len(positions), reason, ADVICE))

    def late(self, records: int, reason: str) -> None:
        """Make the event that a tenure that has ended is settled: a thousand tasks that end late are one fact."""
        if not self._late_made:
            self._late_made = True
            self.made.append(events.LateSettlement(self._stream, self._shard_id, records, reason))

    def held(self, held: BookTotals, oldest: Position, held_s: float) -> None:
        """Make the event that nothing more is fetched, and the program waits for records."""
        what = held.records, held.held_bytes, oldest, held_s
        self.made.append(events.FetchingHeld(self._stream, self._shard_id, *what))

    def given_up(self, action: str, reason: str, error: BaseException | None, cool_down_s: float) -> None:
        """Make the event that nothing more is delivered."""
        why = reason if error is None else f"{reason}: {type(error).__name__}"
        self.made.append(events.ShardGivenUp(self._stream, self._shard_id, action, why, cool_down_s))


def named(error: BaseException) -> str:
    """Return an error's class, with what may be shown of its message: a service's code, what the system says of
    a file.
    """
    name = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    if isinstance(error, ServiceError):
        return f"{name}: {error.code}"
    return f"{name}: {error.reason}" if isinstance(error, PutError) and error.reason else name


def _in_full(error: BaseException) -> tuple[str, str]:
    """Return the message and the traceback, each cut to its bound."""
    trace = writable("".join(traceback.format_exception(error)))
    return message_of(error)[:MESSAGE_CHARS_MAX], trace[-TRACE_CHARS_MAX:]


def raised_at(error: BaseException) -> str:
    """Return ``billing.py:41, client.py:905``: the handler's own line, and the deepest line below it, where a user's
    error may have its data in the message, which is not shown.
    """
    # The error's message is left out: it may be the record.
    frames = list(traceback.walk_tb(error.__traceback__))
    while frames and frames[0][0].f_globals.get("__name__", "").partition(".")[0] in CALLERS:
        del frames[0]
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in frames]
    return ", ".join(dict.fromkeys(places[:1] + places[-1:])) or "not raised"


class Starvation:
    """The time in which the program asks for records and gets none: it ends when it gets some, or there is room."""

    __slots__ = ("_after_s", "_since_s", "_told")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: float | None = None
        self._told = False

    def gets(self) -> None:
        """Note that records were delivered, or that there is room."""
        self._since_s = None

    def gets_none(self, now_s: float) -> None:
        """Note that nothing was delivered, and that nothing will come before something is settled."""
        if self._since_s is None:
            self._since_s, self._told = now_s, False

    @property
    def lasts(self) -> bool:
        """True from a call of `gets_none` to the next call of `gets`."""
        return self._since_s is not None

    def next_at_s(self) -> float:
        """Return when the event is to be made; infinity when it is not to be."""
        return math.inf if self._since_s is None or self._told else self._since_s + self._after_s

    def due(self, now_s: float) -> float | None:
        """Return for how long the program has got none, when the event is to be made now (once); else None."""
        if self._since_s is None or now_s < self.next_at_s():
            return None
        self._told = True
        return now_s - self._since_s


class MayDeliver(Enum):
    """The choices of what a ledger delivers. What is in flight may be settled all the same."""

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
        self._shard_ended = False
        self._starving = Starvation(policy.full_after_s)
        self._closed: str | None = None

    def take_events(self) -> Sequence[LedgerEvent]:
        """Return the events that were made since the last call, in their order."""
        made = self._events.made
        if not made:
            return ()
        found = tuple(made)
        made.clear()
        return found

    # --- in ---

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
        """True when nothing more is delivered, and the worker is to give the lease up."""
        return self.ending is not None and not self.ending.stops

    @property
    def held(self) -> BookTotals:
        """The totals of what came and is not settled, delivered or not: records, and the bytes that are kept
        for them.
        """
        return self._book.held

    @property
    def has_room(self) -> bool:
        """True while more may be fetched: a page of any size may come then."""
        policy, held, chain = self.policy, self._book.held, self._book.chain
        return (
            held.records < policy.records_max
            and held.held_bytes < policy.bytes_max
            and (chain.records < policy.repeat_records_max or self.repeatable < policy.repeat_records_max)
        )

    @property
    def is_full(self) -> bool:
        """True while nothing more is fetched: this ledger has no room, or the consumer's buffer has none for it."""
        return self._book.held.waits or not self.has_room

    def is_settled(self, ticket: Ticket, places: Sequence[int]) -> bool:
        """True when all of these records are settled, whatever ticket they are with by now."""
        return all(ticket.page.is_settled(place) for place in places)

    @property
    def repeatable(self) -> int:
        """The number of records from the first that is not settled to the last that came: a crash could repeat them."""
        return self._book.chain.records - self._book.chain.prefix

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
        """Note that the shard has no more records than those that came: when all are settled, `safe` is SHARD_END."""
        self._shard_ended = True

    # --- out ---

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
        """Return the next records, all of one page. None: nothing is to be delivered now (see `next_at_s`).

        What is delivered again comes in the group in which it failed, even if that is more than ``records_max``.
        """
        if records_max < 1:
            raise ValueError("records_max must be at least 1")
        if self._closed is not None or self._faults.ending is not None or self.may_deliver is MayDeliver.NOTHING:
            return None
        book = self._book
        delivery = book.take(now_s, records_max, gaps_only=self.may_deliver is MayDeliver.GAPS)
        if delivery is not None:
            self._starving.gets()
        elif book.out and self.is_full and not book.queue.has_new():
            self._starving.gets_none(now_s)
        return delivery

    def next_at_s(self) -> float:
        """Return when to call `deliver`, `check` and `dead_letters` again, if nothing else happens before; or
        infinity.
        """
        return min(self.next_turn_at_s(), self.next_check_at_s(), self.next_letter_at_s())

    def next_turn_at_s(self) -> float:
        """Return when `deliver` has something that waits for its retry; infinity when that depends on callers."""
        return self._book.queue.next_at_s()

    def next_letter_at_s(self) -> float:
        """Return when `dead_letters` has something to be written; infinity when there is nothing."""
        return self._faults.letters.next_at_s()

    def next_check_at_s(self) -> float:
        """Return when `check` has something to say, whether or not the program asks for records; or infinity."""
        return min(self._book.stalls.next_at_s(), self._starving.next_at_s())

    def remaining(self, delivery: Delivery[R]) -> Sequence[int]:
        """Return the places of a delivery that are not settled and were not delivered again meanwhile."""
        return self._book.mine(delivery.ticket)

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

    # --- how far ---

    @property
    def came_to(self) -> Checkpoint:
        """The checkpoint at which the records that came end: no checkpoint may be prepared behind it."""
        return Checkpoint.SHARD_END if self._shard_ended else self._book.chain.end

    @property
    def safe(self) -> Checkpoint:
        """The furthest checkpoint that is true: all up to and with it is settled."""
        if self._shard_ended and not self._book.held.records:
            return Checkpoint.SHARD_END
        return self._book.chain.safe

    @property
    def safe_record(self) -> Checkpoint:
        """See `safe`: it is the same, but stays at the last record at the shard's end, as long as the end is not to be
        stored.
        """
        return self._book.chain.safe

    @property
    def settled_records(self) -> int:
        """The number of records of this tenure that lie before the first one that is not settled."""
        return self._book.chain.prefix

    @property
    def done_records(self) -> int:
        """The number of records of this ledger that are settled, wherever they lie."""
        return self._book.chain.records - self._book.held.records

    @property
    def done_bytes(self) -> int:
        """The data bytes of the records that `done_records` counts. They are added up here, where a page is settled in
        part: the numbers ask for them, which is seldom.
        """
        return self._book.held.settled_bytes + sum([page.marked_bytes for page in self._book.chain])

    @property
    def oldest(self) -> Position | None:
        """The first record that is not settled, delivered or not."""
        return self._book.chain.oldest

    @property
    def oldest_record(self) -> R | None:
        """The first record that is not settled, delivered or not. Its arrival says how far the work is behind."""
        return self._book.chain.oldest_record

    @property
    def out_since_s(self) -> float | None:
        """The time at which the record that is unsettled for longest was delivered first; None when all that was
        delivered is settled.
        """
        return min((root.first_at_s for root in self._book.stalls), default=None)

    def unsettled(self, positions_max: int | None = None) -> list[Position]:
        """Return the positions that were delivered and are not settled, in the order of the shard."""
        return self._book.unsettled(positions_max)

    # --- settling ---

    def ack(self, ticket: Ticket, places: Sequence[int] | None = None) -> bool:
        """Settle these records of a delivery, also when they were delivered again meanwhile. Settling twice is no
        fault.

        ``places`` None settles all of the delivery, but for the records that were put off or became dead letters
        before: a program that leaves a batch has settled the rest.
        """
        if self._closed is not None:
            return self._late(ticket.left if places is None else len(places))
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
            for root, passed in self._book.before(ticket, newest):
                self._faults.skip(root, passed, "latest wins")
        return True

    def leave(self, ticket: Ticket, places: Sequence[int]) -> bool:
        """Settle these records (rising places), as the program has left the block that had them, but for the records
        that were put off, or given up.
        """
        if self._closed is not None:
            return self._late(len(places))
        return self.ack(ticket, self._book.not_put_off(ticket, places))

    def skip(self, ticket: Ticket, places: Sequence[int] | None = None, *, reason: str = "skipped") -> bool:
        """Settle these records without having been processed; an event says so."""
        if self._closed is not None:
            return self._late(ticket.left if places is None else len(places))
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
            return self._late(1)
        if isinstance(self.policy.order, ByKey):
            raise ValueError("settle_through needs records in order; with ByKey settle the records of each delivery")
        self._faults.failing_since_s = None
        for root, places in self._book.before(ticket, ticket.owned(place) + 1):
            self._book.settle_some(root, places)
        return True

    # --- again ---

    def nack(self, ticket: Ticket, now_s: float, places: Sequence[int] | None = None, *, delay_s: float = 0.0) -> bool:
        """Deliver these records again, not before ``delay_s``. Nothing happens to those that are settled, or were
        delivered again already.
        """
        if self._closed is not None:
            return False
        self._book.again(ticket, [self._book.mine(ticket, places)], now_s + delay_s, failures=ticket.failures)
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

    # --- the end of a record's attempts ---

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
            self._faults.dead_letter(ticket, self._book.mine(ticket, places), error, reason, now_s)
        return True

    def dead_letters(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Return the dead letters that are to be written now, at most ``letters_max``. Answer each by `letter_written`
        or `letter_not_written`.
        """
        return [] if self._closed is not None else self._faults.letters.take(now_s, letters_max)

    def letter_written(self, letter: DeadLetter[R]) -> bool:
        """Settle the record of a dead letter that is written."""
        if self._closed is not None:
            return self._late(1)
        if letter.ticket.left:
            self._book.settle(letter.ticket, letter.place)
            self._events.letter_written(letter)
        return True

    def letter_not_written(self, letter: DeadLetter[R], error: BaseException, now_s: float) -> bool:
        """Try again after a wait: the dead letter could not be written, or may not have been."""
        if self._closed is not None:
            return False
        delay_s = self._faults.letters.failed(letter, now_s, hurries=self.draining)
        self._events.letter_not_written(letter, error, delay_s)
        return True

    def hurry_letters(self, now_s: float) -> None:
        """Let the dead letters that could not be written be due now: the shard is about to go, and a letter that waits
        for its retry would be written again by the next owner, which gets its record again.
        """
        self._faults.letters.hurry(now_s)

    # --- what stays unsettled ---

    def check(self, now_s: float) -> None:
        """Report what stays unsettled, and act as the policy says. Call it by `next_at_s`; more often does no harm."""
        if self._closed is not None:
            return
        for root in self._book.stalls.due(now_s):
            self._faults.stalled(root, now_s)
        if not self._starving.lasts:
            return
        oldest = self.oldest
        if oldest is None or not self.is_full:
            self._starving.gets()
        elif (held_s := self._starving.due(now_s)) is not None:
            self._events.held(self._book.held, oldest, held_s)

    # --- the end of the tenure ---

    def close(self, reason: str) -> TenureEnd:
        """End the tenure. An event names what is unsettled, once; what is settled after the call counts for nothing."""
        unsettled = self.unsettled()
        if self._closed is None:
            self._closed = reason
            self._book.held.leave()
            if unsettled:
                self._events.unsettled(unsettled, reason)
        return TenureEnd(self.safe, len(unsettled))

    def _late(self, records: int) -> bool:
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


# The policies say what becomes of records that fail, stay unsettled or are given up: they are tried again, skipped, or
# made dead letters. What a failure leads to is a table in the form of one function, `after_failure`. A record that
# becomes a dead letter counts as settled only when its letter is known to be written.


class GiveUpReason(NamedTuple):
    """The reason why nothing more is delivered, though the tenure still holds: the shard is to be given up."""

    action: str
    """The name of the policy: GiveUp or Stop."""
    reason: str
    cool_down_s: float
    """The seconds for which this worker leaves the shard alone, after GiveUp."""
    error: BaseException | None
    """The handler's error, where that was the reason."""

    @property
    def stops(self) -> bool:
        """True for Stop: the worker keeps the shard, and a program that asks for its records gets an error."""
        return self.action == "Stop"


class Redelivery(NamedTuple):
    """The step that delivers the same records again."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """The step's name, and the seconds before it is done."""
        return "Redelivery", self.delay_s


class Halve(NamedTuple):
    """The step that delivers the first half again, then the second."""

    delay_s: float

    @property
    def shown(self) -> tuple[str, float]:
        """The step's name, and the seconds before it is done."""
        return "Halve", self.delay_s


class LastAttempt(NamedTuple):
    """The step after the last attempt."""

    resort: LastResort

    @property
    def shown(self) -> tuple[str, float]:
        """The resort's name; it is done at once."""
        return type(self.resort).__name__, 0.0


Step = Redelivery | Halve | LastAttempt


def after_failure(
    retry: Retry, error: BaseException, *, records: int, failures: int, halved: bool, failing_s: float, rng: Random
) -> Step:
    """Return the next step for ``records`` that failed together.

    ``failures``: how often they failed as they are, this time included. ``halved``: they are a part of a batch that
    failed. ``failing_s``: for how long nothing of the shard was settled while everything failed for transient reasons.
    """
    delay_s = full_jitter_s(failures, base_s=retry.base_s, cap_s=retry.cap_s, rng=rng)
    if isinstance(error, retry.transient):
        if retry.give_up_after_s is not None and failing_s >= retry.give_up_after_s:
            return LastAttempt(GiveUp(cool_down_s=retry.cool_down_s))
        return Redelivery(delay_s)
    if records > 1 and retry.halve:
        # A half is not tried twice: what was in the way the first time had its chance with the whole batch.
        return Halve(delay_s) if halved or failures >= retry.batch_failures_max else Redelivery(delay_s)
    if retry.failures_max is not None and failures >= retry.failures_max:
        return LastAttempt(retry.then)
    return Redelivery(delay_s)


class Letters(Generic[R]):
    """The dead letters that are to be written, by when."""

    __slots__ = ("_base_s", "_cap_s", "_due", "_numbers", "_rng")

    def __init__(self, rng: Random, *, base_s: float, cap_s: float) -> None:
        """``base_s``, ``cap_s``: the first and the longest pause between attempts to write a letter."""
        self._base_s, self._cap_s = base_s, cap_s
        self._due: list[tuple[float, int, DeadLetter[R]]] = []
        self._numbers = count()
        self._rng = rng

    def add(self, letter: DeadLetter[R], now_s: float) -> None:
        """Add a letter that is to be written now."""
        heappush(self._due, (now_s, next(self._numbers), letter))

    def hurry(self, now_s: float) -> None:
        """Let all letters be due now."""
        self._due = [(min(at_s, now_s), number, letter) for at_s, number, letter in self._due]
        heapify(self._due)

    def failed(self, letter: DeadLetter[R], now_s: float, *, hurries: bool) -> float:
        """Put off a letter that could not be written; returns for how many seconds. ``hurries``: the pause does not
        grow.
        """
        letter.write_failures += 1
        cap_s = self._base_s if hurries else self._cap_s
        delay_s = full_jitter_s(letter.write_failures, base_s=self._base_s, cap_s=cap_s, rng=self._rng)
        heappush(self._due, (now_s + delay_s, next(self._numbers), letter))
        return delay_s

    def take(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Return the letters that are to be written by now, but for those whose record was settled meanwhile; at most
        ``letters_max``.
        """
        letters: list[DeadLetter[R]] = []
        most = math.inf if letters_max is None else letters_max
        while self._due and self._due[0][0] <= now_s and len(letters) < most:
            letter = heappop(self._due)[2]
            if letter.ticket.left:
                letters.append(letter)
        return letters

    def next_at_s(self) -> float:
        """Return when the next letter is to be written; infinity when there is none."""
        return self._due[0][0] if self._due else math.inf


class Faults(Generic[R]):
    """Does to one ledger's book what the policies say. The ledger asks only while it is open."""

    __slots__ = ("_book", "_events", "_rng", "ending", "failing_since_s", "letters", "policy")

    def __init__(self, book: Book[R], policy: LedgerPolicy, events: LedgerEvents, *, rng: Random) -> None:
        self._book = book
        self.policy = policy
        self._events = events
        self._rng = rng
        self.letters: Letters[R] = Letters(rng, base_s=policy.letter_backoff_s, cap_s=policy.letter_backoff_max_s)
        """The dead letters that are to be written."""
        self.ending: GiveUpReason | None = None
        """The end of the shard's reading; set once, when the shard is to be given up, or stopped."""
        self.failing_since_s: float | None = None
        """The time since which all failures were transient; the ledger sets it to None when a record is settled."""

    def failed(self, ticket: Ticket, error: BaseException, now_s: float, places: Sequence[int] | None) -> None:
        """Apply the retry policy to what a handler that raised left unsettled."""
        book, retry, failures = self._book, self.policy.retry, ticket.failures + 1
        mine = book.mine(ticket, places)
        if ticket.where is not TicketState.OUT or not mine:
            return
        if not isinstance(error, retry.transient):
            self.failing_since_s = None
        elif self.failing_since_s is None:
            self.failing_since_s = now_s
        failing_s = 0.0 if self.failing_since_s is None else now_s - self.failing_since_s
        step = after_failure(
            retry, error, records=len(mine), failures=failures, halved=ticket.halved, failing_s=failing_s, rng=self._rng
        )
        self._events.failed(ticket, mine, error, step)
        if isinstance(step, Redelivery):
            book.again(ticket, [mine], now_s + step.delay_s, failures=failures)
        elif isinstance(step, Halve):
            middle = (len(mine) + 1) // 2
            book.again(ticket, [mine[:middle], mine[middle:]], now_s + step.delay_s, failures=0, halved=True)
        else:
            self._resort_to(step.resort, ticket, mine, error, "failed", now_s, failures)
            if self.ending is not None:  # No handler works on them now, so the drain must not wait for them.
                book.again(ticket, [book.mine(ticket, mine)], now_s, failures=failures)

    def stalled(self, root: Ticket, now_s: float) -> None:
        """Act on records that were not settled in time, as the policy says."""
        policy = self.policy.stalled
        if isinstance(policy, Redeliver) and root.redelivered >= policy.times_max:
            policy = policy.then
        groups = self._book.by_ticket(root)
        places = sorted(place for group in groups.values() for place in group)
        waiting = sum(len(group) for ticket, group in groups.items() if ticket.where is not TicketState.OUT)
        self._events.stalled(root, places, waiting, now_s, policy)
        if isinstance(policy, Redeliver):
            root.redelivered += 1
            self.redeliver(root, now_s)
        elif not isinstance(policy, Warn):
            for ticket, group in groups.items():
                if ticket.where is not TicketState.LETTER:
                    self._resort_to(policy, ticket, group, None, "not settled in time", now_s)

    def redeliver(self, root: Ticket, now_s: float) -> None:
        """Deliver again what is in flight of these records, though its handler did not say so."""
        for ticket, places in self._book.by_ticket(root).items():
            if ticket.where is TicketState.OUT:
                self._book.again(ticket, [places], now_s, failures=ticket.failures, put_off=False)

    def skip(self, ticket: Ticket, places: Sequence[int], reason: str) -> None:
        """Settle these records without having been processed."""
        if places:
            page = ticket.page
            first, last = page.position(places[0]), page.position(places[-1])
            size = payload_bytes_of_all(page.chosen(places))
            self._book.settle_some(ticket, places)
            self._events.skipped(first, last, len(places), reason, size)

    def dead_letter(
        self,
        ticket: Ticket,
        places: Sequence[int],
        error: BaseException | None,
        reason: str,
        now_s: float,
        failures: int | None = None,
    ) -> None:
        """Make each of these records a dead letter."""
        page: Page[R] = ticket.page
        failures = ticket.failures if failures is None else failures
        for place in places:
            moved = self._book.move(ticket, [place], TicketState.LETTER)
            letter = DeadLetter(page.record(place), page.position(place), moved, place, error, reason, failures)
            self.letters.add(letter, now_s)
        if not ticket.left:
            self._book.queue.closed(ticket)

    def _resort_to(
        self,
        resort: LastResort,
        ticket: Ticket,
        places: Sequence[int],
        error: BaseException | None,
        reason: str,
        now_s: float,
        failures: int | None = None,
    ) -> None:
        match resort:
            case DeadLetters():
                self.dead_letter(ticket, places, error, reason, now_s, failures)
            case Skip():
                self.skip(ticket, places, reason)
            case GiveUp(cool_down_s=cool_down_s):
                self._end(GiveUpReason("GiveUp", reason, cool_down_s, error))
            case _:
                self._end(GiveUpReason("Stop", reason, 0.0, error))

    def _end(self, ending: GiveUpReason) -> None:
        if self.ending is None:
            self.ending = ending
            self._events.given_up(ending.action, ending.reason, ending.error, ending.cool_down_s)
