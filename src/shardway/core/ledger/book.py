"""The book knows which records of a shard are in flight, waiting or settled, and how far all is settled. The policies
are the ledger's.

- A `Page` holds records that came together. A record is named by its *place*: its number in its page, which never
  changes. What is settled is one byte a record, made only when a part of a page is settled before the rest; a page that
  is settled as a whole never has any. Once three quarters of the kept records are settled they are let go, with their
  bytes: a slow record holds itself, not its page.
- A `Chain` links the pages: how far all is settled follows from the first of them.
- A `Ticket` stands for records that share their history. `Stalls` knows which of them are late.
- The `Book` has all of these, and the moves between them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from enum import Enum
from itertools import compress, count
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from shardway.core.leases.row import Checkpoint
from shardway.core.log.user_records import UserRecords
from shardway.core.unicode import message_of
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardway.core.ledger.queues import Queue, Tickets
    from shardway.core.log.buffer import Share


_COMPACT_PART = 4


class HasPosition(Protocol):
    """What a ledger takes: anything that knows its position. The records of one position (parts of one record) are
    settled together as far as the checkpoint goes.
    """

    @property
    def sequence_number(self) -> int:
        """The sequence number of the Kinesis record."""

    @property
    def sub_sequence_number(self) -> int:
        """The record's number inside of an aggregate."""


R = TypeVar("R", bound=HasPosition)


class BookTotals:
    """The totals of what the pages of a ledger hold."""

    __slots__ = ("_share", "held_bytes", "records", "settled_bytes", "size_of")

    def __init__(self, size_of: Callable[[Any], int], share: Share | None = None) -> None:
        """``size_of`` says how many bytes a record takes. ``share`` is the shard's share of its consumer's buffer,
        which hears of each change in bytes.
        """
        self.size_of = size_of
        self._share = share
        self.records = 0
        """The number of records that are not settled yet, delivered or not."""
        self.held_bytes = 0
        """The bytes of all records that are still kept. Settled ones are among them until their page lets them go."""
        self.settled_bytes = 0
        """The data bytes of the records that were settled and let go."""

    @property
    def waits(self) -> bool:
        """True while the consumer's buffer has no room for more of this shard."""
        return self._share is not None and self._share.waits

    def change(self, held_bytes: int) -> None:
        """Add ``held_bytes`` to what the pages keep; a number below 0 subtracts."""
        self.held_bytes += held_bytes
        if self._share is not None:
            self._share.change(held_bytes)

    def leave(self) -> None:
        """Count nothing more of what the pages keep against the share: the ledger is closed."""
        if self._share is not None:
            self._share.change(-self.held_bytes)
            self._share = None


def payload_bytes_of(record: Any) -> int:
    """Return how many bytes the data of a record, or of a part of one, has."""
    size: int | None = getattr(record, "payload_bytes", None)
    return len(getattr(record, "data", b"")) if size is None else size


def payload_bytes_of_all(records: Sequence[Any]) -> int:
    """Return how many bytes the data of several records has; the records of a page know the sum."""
    known: int | None = getattr(records, "payload_bytes", None)
    return sum(map(payload_bytes_of, records)) if known is None else known


class Page(Generic[R]):
    """Some records in their order, with a note of which of them are not settled."""

    __slots__ = (
        "before",
        "befores",
        "count",
        "data_bytes",
        "ends_at",
        "fed",
        "first",
        "flags",
        "gaps",
        "held",
        "held_bytes",
        "left",
        "moved",
        "next",
        "number",
        "places",
        "previous",
        "records",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        first: int,
        records: Sequence[R],
        *,
        before: Checkpoint,
        ends_at: Position,
        held_bytes: int,
        held: BookTotals,
    ) -> None:
        self.number = number
        """The page's number: pages of a ledger are numbered as they come."""
        self.first = first
        """The number of records that came before this page."""
        self.records = records
        self.places: Sequence[int] = range(len(records))
        """The place of each record that is kept, rising."""
        self.flags: bytearray | None = None
        """One byte for each kept record, 1 where the record is settled; None while no kept record is settled."""
        self.count = self.left = len(records)
        """``count``: the number of records that the page came with. ``left``: the number of them that are not
        settled.
        """
        self.fed = 0
        """The place up to which records were delivered for the first time."""
        self.gaps = False
        """True when some of the records must not be delivered: they came settled, or as dead letters."""
        self.before = before
        """The checkpoint that is true when all records before the first kept one are settled."""
        self.befores: list[Position | None] | None = None
        """The position before each kept record, where records between were let go; None stands for `before`."""
        self.ends_at = ends_at
        """The position up to which all is settled when the whole page is; it may lie behind the last record."""
        self.moved: dict[int, Ticket] = {}
        """The ticket of each record that has left the ticket with which it was delivered first, by its place."""
        self.held_bytes = held_bytes
        self.held = held
        self.data_bytes = payload_bytes_of_all(records)
        """The data bytes of the records that are kept."""
        self.previous: Page[R] | None = None
        self.next: Page[R] | None = None
        held.records += self.left
        held.change(held_bytes)

    # --- which are settled ---

    def index_of(self, place: int) -> int:
        """Return the index at which the page keeps the record; -1 when the record was settled and let go."""
        places = self.places
        if type(places) is range:
            index = place - places.start
            return index if 0 <= index < len(places) else -1
        index = bisect_left(places, place)
        return index if index < len(places) and places[index] == place else -1

    def is_settled(self, place: int) -> bool:
        """True when the record is settled."""
        index = self.index_of(place)
        return index < 0 or (self.flags is not None and self.flags[index] == 1)

    def mark(self, place: int) -> bool:
        """Settle one record; False when it was settled before."""
        index = self.index_of(place)
        if index < 0:
            return False
        flags = self.flags
        if flags is None:
            flags = self.flags = bytearray(len(self.places))
        elif flags[index]:
            return False
        flags[index] = 1
        self.left -= 1
        self.held.records -= 1
        if self.left * _COMPACT_PART <= len(flags):
            self._shrink()
        return True

    def mark_all(self, places: Sequence[int], count: int) -> None:
        """Settle these places, of which exactly ``count`` were not settled."""
        if count == self.left:
            self.clear()
            return
        if self.flags is None:
            self.flags = bytearray(len(self.places))
        flags = self.flags
        if type(places) is range and type(self.places) is range:
            start = max(places.start - self.places.start, 0)
            stop = min(places.stop - self.places.start, len(flags))
            flags[start:stop] = b"\1" * (stop - start)
        else:
            for place in places:
                if (index := self.index_of(place)) >= 0:
                    flags[index] = 1
        self.left -= count
        self.held.records -= count
        if self.left * _COMPACT_PART <= len(flags):
            self._shrink()

    def feed(self, records_max: int) -> Sequence[int]:
        """Return the next places that were never delivered, at most ``records_max``; nothing at the page's end."""
        while self.fed < self.count:
            start, stop = self.fed, min(self.fed + records_max, self.count)
            self.fed = stop
            if not self.gaps:
                return range(start, stop)
            places = [place for place in self.unsettled(start, stop) if place not in self.moved]
            if places:
                return places
        return ()

    def has_fresh(self) -> bool:
        """True when `feed` has places to return."""
        if not self.gaps:
            return self.fed < self.count
        return any(place not in self.moved for place in self.unsettled(self.fed, self.count))

    def pass_by(self) -> None:
        """Pass by what is settled or was delivered, up to the first record that never was."""
        while self.fed < self.count and (self.is_settled(self.fed) or self.fed in self.moved):
            self.fed += 1

    def feed_again(self, delivered: Sequence[Ticket]) -> None:
        """Begin again to feed what was never delivered: all that is not settled, and not with one of these tickets,
        which the records were delivered with first.
        """
        self.fed = 0
        self.gaps = self.gaps or self.left < self.count or bool(delivered)
        for root in delivered:
            for place in self.unsettled_of(root.places):
                self.moved.setdefault(place, root)

    def continues(self, place: int) -> bool:
        """True for a place that was never fed, and holds a further part of the record before it. Parts of one record
        are of one page.
        """
        return place < self.count and self.index_of(place) >= 0 and getattr(self.record(place), "part", 0) > 0

    def clear(self) -> None:
        """Settle all that is left, and let it go."""
        self.held.records -= self.left
        self.held.change(-self.held_bytes)
        self.held.settled_bytes += self.data_bytes
        self.left = self.held_bytes = self.data_bytes = 0
        self.records, self.places = (), range(0)
        self.flags = self.befores = None
        self.moved.clear()

    def unsettled(self, start: int, stop: int) -> Sequence[int]:
        """Return the places from ``start`` to before ``stop`` that are not settled, rising."""
        places, flags = self.places, self.flags
        low, high = bisect_left(places, start), bisect_left(places, stop)
        if flags is None:
            return places[low:high]
        found = []
        index = flags.find(0, low, high)
        while index >= 0:
            found.append(places[index])
            index = flags.find(0, index + 1, high)
        return found

    def unsettled_of(self, places: Sequence[int]) -> Sequence[int]:
        """Return the (rising) places among ``places`` that are not settled."""
        if type(places) is range:
            return self.unsettled(places.start, places.stop)
        return [place for place in places if not self.is_settled(place)]

    @property
    def marked_bytes(self) -> int:
        """The data bytes of the records that are settled and still kept."""
        flags, records = self.flags, self.records
        if flags is None:
            return 0
        if isinstance(records, UserRecords):
            return sum(map(len, compress(records.datas, flags)))
        return sum(map(payload_bytes_of, compress(records, flags)))

    # --- records and positions ---

    def record(self, place: int) -> R:
        """Return a record that is not settled."""
        return self.records[self.index_of(place)]

    def chosen(self, places: Sequence[int]) -> Sequence[R]:
        """Return the records at places that are not settled."""
        if type(places) is range and type(self.places) is range:
            start = places.start - self.places.start
            if start == 0 and len(places) == len(self.places):
                return self.records
            return self.records[start : start + len(places)]
        return [self.records[self.index_of(place)] for place in places]

    def position(self, place: int) -> Position:
        """Return the position of a record that is not settled."""
        record = self.record(place)
        return Position(record.sequence_number, record.sub_sequence_number)

    def first_left(self) -> int:
        """Return the index of the first kept record that is not settled; there is one."""
        return 0 if self.flags is None else self.flags.find(0)

    def position_before(self, index: int) -> Position | None:
        """Return the last position before the position of the kept record ``index``; None stands for `before`."""
        records, places, befores = self.records, self.places, self.befores
        if isinstance(records, UserRecords) and index > 0 and places[index - 1] == places[index] - 1:
            # The records of a fetched page have a position each, and the page knows it without making a record. Each
            # record that is settled asks for it.
            return records.position(index - 1)
        own = records[index]
        while index > 0 and places[index - 1] == places[index] - 1:
            index -= 1
            other = records[index]
            if not _same(own, other):
                return Position(other.sequence_number, other.sub_sequence_number)
        return befores[index] if befores is not None else None

    # --- letting go ---

    def _shrink(self) -> None:
        if self.left:
            self._compact()
        else:
            self.clear()

    def _compact(self) -> None:
        """Keep only what is not settled."""
        flags = self.flags
        assert flags is not None
        first, last = flags.find(0), flags.rfind(0)
        if last - first + 1 == self.left and self.befores is None:
            position = self.position_before(first)
            if position is not None:
                self.before = type(self.before).at(position)
            self.records = self.records[first : last + 1]
            self.places = self.places[first : last + 1]
        else:
            kept, self.befores = self._rest(flags)
            self.records = [self.records[index] for index in kept]
            self.places = [self.places[index] for index in kept]
        self.flags = None
        still = min(self.held_bytes, sum(map(self.held.size_of, self.records)))
        self.held.change(still - self.held_bytes)
        self.held_bytes = still
        data_bytes = payload_bytes_of_all(self.records)
        self.held.settled_bytes += self.data_bytes - data_bytes
        self.data_bytes = data_bytes

    def _rest(self, flags: bytearray) -> tuple[list[int], list[Position | None]]:
        """Return the indices that are not settled, and the position before each."""
        records, places, befores = self.records, self.places, self.befores
        before = befores[0] if befores is not None else None
        own = records[0]
        kept: list[int] = []
        kept_befores: list[Position | None] = []
        for index, record in enumerate(records):
            if record is not own and not _same(own, record):
                if befores is not None and places[index - 1] != places[index] - 1:
                    before = befores[index]
                else:
                    before = Position(own.sequence_number, own.sub_sequence_number)
                own = record
            if not flags[index]:
                kept.append(index)
                kept_befores.append(before)
        return kept, kept_befores


def _same(one: HasPosition, other: HasPosition) -> bool:
    """Say whether both records are of one position: they are parts of one record."""
    return one.sub_sequence_number == other.sub_sequence_number and one.sequence_number == other.sequence_number


def behind(records: Sequence[R], checkpoint: Checkpoint) -> Sequence[R]:
    """Return the records of a page that lie behind a checkpoint: an aggregate may lie on both sides of it.

    All records lie behind a checkpoint that is no position, and none lies behind the shard's end.
    """
    if checkpoint.is_end:
        return ()
    if not checkpoint.is_position or not records:
        return records
    index = bisect_right(records, tuple(checkpoint.position), key=_place_of)
    return records[index:] if index else records


def _place_of(record: HasPosition) -> tuple[int, int]:
    return record.sequence_number, record.sub_sequence_number


class TicketState(Enum):
    """The states of a ticket's records."""

    QUEUED = "queued"
    """The records were not delivered yet."""
    OUT = "out"
    """A handler has them."""
    WAITING = "waiting"
    """The records wait to be delivered again."""
    LETTER = "letter"
    """The records become dead letters that are not known to be written yet."""


NO_KEY = object()
"""The key of a ticket that another order than that by key has delivered; a record's partition key may be None."""


class Ticket:
    """Records of one page that share their history. Each record is with one ticket, until it is settled."""

    __slots__ = (
        "attempt",
        "due_s",
        "failures",
        "first_at_s",
        "halved",
        "key",
        "left",
        "page",
        "places",
        "put_off",
        "redelivered",
        "remind_at_s",
        "root",
        "serial",
        "unsettled",
        "where",
    )  # fmt: skip

    def __init__(self, page: Page[Any], places: Sequence[int], *, serial: int, root: Ticket | None = None) -> None:
        self.page = page
        self.places = places
        """The places that the ticket was made with, rising."""
        self.serial = serial
        self.left = len(places)
        """The number of the ticket's records that are not settled and still with this ticket."""
        self.where = TicketState.QUEUED
        self.root = self if root is None else root
        """The ticket that the records were delivered with first."""
        self.unsettled = len(places)
        """The number of a root's records that are not settled, with the root or with a later ticket."""
        self.attempt: int = 0 if root is None else root.attempt
        """The number of times that the records were delivered."""
        self.failures = 0
        """The number of times that the records failed as the batch that they are now. Failures of larger batches do not
        count.
        """
        self.halved = False
        """True when the records are a part of a batch that failed."""
        self.first_at_s: float = 0.0 if root is None else root.first_at_s
        """The time at which the records were delivered first."""
        self.due_s = 0.0
        """The time before which waiting records are not delivered again."""
        self.remind_at_s = 0.0
        """The time at which a root's unsettled records are reported."""
        self.put_off = False
        """True when a handler put the records off, gave them up, or failed, with this ticket or an earlier one."""
        self.redelivered = 0
        """The number of times that a root was delivered again because it was not settled in time."""
        self.key: object = NO_KEY
        """The partition key of the records, where the order by key has delivered them."""

    @property
    def order(self) -> tuple[int, int]:
        """The ticket's place in the shard: tickets compare by it as their records lie there."""
        return self.page.number, self.places[0]

    def owned(self, place: int) -> int:
        """Return the same place. Raises ValueError for a place that is not of this ticket: it would settle another's
        record.
        """
        places = self.places
        if type(places) is not range:
            index = bisect_left(places, place)
            if index < len(places) and places[index] == place:
                return place
        elif place in places:
            return place
        raise ValueError(f"place {place} is not of this delivery")


class Delivery(NamedTuple, Generic[R]):
    """Records that are delivered. The caller tells the ledger with the ticket what becomes of them."""

    ticket: Ticket
    records: Sequence[R]
    places: Sequence[int]
    """The names of the records in calls of the ledger, in the same order."""
    attempt: int
    """The number of this attempt; it is 1 for the first delivery."""


class DeadLetter(Generic[R]):
    """A record that is given up. It counts as settled once it is known to be written where dead letters go."""

    __slots__ = (
        "attempts", "error_message", "error_type", "failures", "first_at_s", "part", "place", "position", "record",
        "ticket", "write_failures",
    )  # fmt: skip

    def __init__(
        self,
        record: R,
        position: Position,
        ticket: Ticket,
        place: int,
        error: BaseException | None,
        reason: str,
        failures: int = 0,
    ) -> None:
        self.record = record
        self.position = position
        self.part: int | None = getattr(record, "part", None)
        """The number of the part in its record, where records are split."""
        self.ticket = ticket
        self.place = place
        self.attempts = ticket.attempt
        """The number of times that the record was delivered."""
        self.failures = failures
        """The number of times that the record failed as it is."""
        self.first_at_s = ticket.first_at_s
        """The time at which the record was delivered first, on the caller's clock."""
        self.error_type = reason if error is None else type(error).__name__
        self.error_message = "" if error is None else message_of(error)
        """The message of the handler's error: it may hold anything, and belongs into the dead letter, not into
        a log.
        """
        self.write_failures = 0
        """The number of times that writing the letter failed."""


class Chain(Generic[R]):
    """Pages that are linked, so that a page that is settled leaves, or joins its settled neighbours, in
    constant time.
    """

    __slots__ = ("_base", "_head", "_tail", "records")

    def __init__(self, after: Checkpoint) -> None:
        self._base = after
        self._head: Page[R] | None = None
        self._tail: Page[R] | None = None
        self.records = 0
        """The number of records that have come so far."""

    @property
    def end(self) -> Checkpoint:
        """The checkpoint behind which the next page begins."""
        return self._base if self._tail is None else Checkpoint.at(self._tail.ends_at)

    @property
    def safe(self) -> Checkpoint:
        """The checkpoint up to which all is settled; the next record that came is not."""
        head = self._head
        if head is None:
            return self._base
        position = head.position_before(head.first_left())
        return head.before if position is None else Checkpoint.at(position)

    @property
    def prefix(self) -> int:
        """The number of records that are settled before the first record that is not."""
        head = self._head
        return self.records if head is None else head.first + head.places[head.first_left()]

    @property
    def oldest(self) -> Position | None:
        """The position of the first record that is not settled; None: all are."""
        head = self._head
        return None if head is None else head.position(head.places[head.first_left()])

    @property
    def oldest_record(self) -> R | None:
        """The first record that is not settled; None: all are."""
        head = self._head
        return None if head is None else head.record(head.places[head.first_left()])

    def __iter__(self) -> Iterator[Page[R]]:
        page = self._head
        while page is not None:
            yield page
            page = page.next

    def add(self, page: Page[R]) -> None:
        """Link a page behind all others."""
        self.records += page.count
        page.previous = self._tail
        if self._tail is None:
            self._head = page
        else:
            self._tail.next = page
        self._tail = page

    def extend(self, ends_at: Position) -> None:
        """Move the end to this position: what lies between it and the last record is not for us."""
        if self._tail is None:
            self._base = max(self._base, Checkpoint.at(ends_at))
        else:
            self._tail.ends_at = max(self._tail.ends_at, ends_at)

    def settled(self, page: Page[R]) -> None:
        """Let a page go, or join it to its settled neighbours: it has nothing left."""
        previous, following = page.previous, page.next
        if previous is not None:
            if previous.left == 0:
                previous.ends_at = page.ends_at
                self._unlink(page)
                page = previous
            if following is not None and following.left == 0:
                page.ends_at = following.ends_at
                self._unlink(following)
            return
        while page.left == 0:
            self._base = Checkpoint.at(page.ends_at)
            self._unlink(page)
            if self._head is None:
                return
            page = self._head

    def _unlink(self, page: Page[R]) -> None:
        previous, following = page.previous, page.next
        if previous is None:
            self._head = following
        else:
            previous.next = following
        if following is None:
            self._tail = previous
        else:
            following.previous = previous
        page.previous = page.next = None


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

    # --- in and out ---

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
        """Go on with another queue: what was never delivered, and what waits to be delivered again, is delivered in its
        order. What is in flight stays as it is.
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
            ticket.places = self.mine(ticket)
        queue.again(sorted(waiting, key=_order))
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
            ticket.places = self.mine(ticket)
        ticket.where = TicketState.OUT
        ticket.attempt += 1
        self.out += ticket.left
        return Delivery(ticket, ticket.page.chosen(ticket.places), ticket.places, ticket.attempt)

    # --- settled ---

    def settle(self, ticket: Ticket, place: int) -> None:
        """Settle one record, whatever ticket it is with by now. Settling twice changes nothing."""
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
        """Settle all that a ticket was made with, but for what was put off or given up by name: that was said first."""
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

    # --- again ---

    def again(
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
            self.queue.again(waiting)
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
        """Return an own ticket for a part of a ticket that waits; the new one waits as long."""
        tail = self.move(ticket, places, ticket.where, put_off=False)
        tail.due_s, tail.failures, tail.halved = ticket.due_s, ticket.failures, ticket.halved
        return tail

    # --- which ticket has which records ---

    def not_put_off(self, ticket: Ticket, places: Sequence[int]) -> list[int]:
        """Return the unsettled places that are with the ticket, or were taken from it without its handler."""
        page, root = ticket.page, ticket.root
        found = []
        for place in page.unsettled_of(places):
            holder = page.moved.get(place, root)
            if holder is ticket or not holder.put_off:
                found.append(place)
        return found

    def mine(self, ticket: Ticket, places: Sequence[int] | None = None) -> Sequence[int]:
        """Return the ticket's places that are not settled and are still with it, rising."""
        page, root = ticket.page, ticket.root
        found = page.unsettled_of(ticket.places if places is None else sorted(map(ticket.owned, places)))
        if page.moved or root is not ticket:
            found = [place for place in found if page.moved.get(place, root) is ticket]
        return found

    def by_ticket(self, root: Ticket) -> dict[Ticket, list[int]]:
        """Return the records of a root that are not settled, by the ticket that they are with."""
        page = root.page
        found: dict[Ticket, list[int]] = {}
        for place in page.unsettled_of(root.places):
            found.setdefault(page.moved.get(place, root), []).append(place)
        return found

    def before(self, ticket: Ticket, stop: int) -> list[tuple[Ticket, Sequence[int]]]:
        """Return what was delivered and is not settled before a place, by the ticket that it was delivered with first.

        Dead letters are left out: they are to be written.
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
