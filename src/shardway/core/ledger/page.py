"""A page holds records that came together. What is settled of it is one byte a record.

A record is named by its *place*: its number in its page, which never changes. The bytes are made only when a part of a
page is settled before the rest; a page that is settled as a whole never has any. Once three quarters of the kept
records are settled they are let go, with their bytes: a slow record holds itself, not its page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import compress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from shardway.core.log.user_records import UserRecords
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.ledger.ticket import Ticket
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
    """Some records in their order, with a note that says which of them are not settled."""

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
        """Settle these places; exactly ``count`` of them were not settled."""
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
            if not _is_same(own, other):
                return Position(other.sequence_number, other.sub_sequence_number)
        return befores[index] if befores is not None else None

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
            if record is not own and not _is_same(own, record):
                if befores is not None and places[index - 1] != places[index] - 1:
                    before = befores[index]
                else:
                    before = Position(own.sequence_number, own.sub_sequence_number)
                own = record
            if not flags[index]:
                kept.append(index)
                kept_befores.append(before)
        return kept, kept_befores


def _is_same(one: HasPosition, other: HasPosition) -> bool:
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
