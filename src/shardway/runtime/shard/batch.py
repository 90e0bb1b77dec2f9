"""Batches are what a handler gets: records of one shard, or a single record, and the ways to say what became of them.

A settlement is a plain call that any thread may make: it changes the ledger under the lock of the shard's reader, and
what follows from that is left to the loop that reads the shard (`shardway.runtime.threads`). So there is one class of
each for programs on an event loop and for those in threads.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardway.core.ledger.record_view import RecordView
from shardway.errors import OptionError
from shardway.model import Position
from shardway.runtime.feeds.deserializing import datas_of
from shardway.runtime.shard.settleable import Reader, Settleable, processed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from shardway.core.ledger.ledger import Ledger
    from shardway.core.ledger.page import HasPosition
    from shardway.core.ledger.ticket import Delivery
    from shardway.events import LedgerEvent
    from shardway.model import Record


T_co = TypeVar("T_co", covariant=True)


class Batch(Settleable, Generic[T_co]):
    """Records of one shard, in order, and what the consumer's deserializer made of them (``T``).

    Settle them in any order, from any task or thread, as a whole or by index. Used with ``with``, a batch is settled at
    the end of the block, and an exception of the block is a failure, which the retry policy takes from there: the batch
    comes again, and the exception goes no further, so the program goes on behind the block (``async with`` does the
    same). An error that is no `Exception` goes on. In a process that was forked off, each of these calls raises
    RuntimeError.
    """

    __slots__ = (
        "_begun_s", "_delivery", "_ledger", "_lock", "_reader", "_span", "_values", "millis_behind_latest", "shard_id",
        "stream", "token",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger[Record],
        delivery: Delivery[Record],
        reader: Reader,
        *,
        token: int,
        millis_behind_latest: int | None,
        values: Sequence[T_co] | None = None,
    ) -> None:
        """``ledger`` is the ledger that the delivery is of; after a seek the reader has another one."""
        self._ledger = ledger
        self._values = values
        self._delivery = delivery
        self.stream = reader.stream
        self.shard_id = reader.shard_id
        self.token = token
        """A number that grows with every owner of the shard: an output that refuses lower ones than it knows refuses
        late writers (`shardway.fences`). A token says nothing about records that come again.
        """
        self.millis_behind_latest = millis_behind_latest
        """The time by which the read was behind the shard's tip when these records were fetched, in milliseconds; 0 at
        the tip, None: it is not known.
        """
        self._reader = reader
        self._lock = reader.lock

    @property
    def records(self) -> Sequence[Record]:
        """The records, in the shard's order; where records are split, each is a `Part`, with all that a record has."""
        return self._delivery.records

    @property
    def values(self) -> Sequence[T_co]:
        """The values that the consumer's deserializer made of the records, in the same order; without one, the records'
        data. For parts they are what the splitting function made: the same as each `Part.value`.
        """
        if self._values is None:
            self._values = datas_of(self._delivery.records)
        return self._values

    @property
    def attempt(self) -> int:
        """The number of this attempt; it is 1 when the records are delivered for the first time."""
        return self._delivery.attempt

    def __len__(self) -> int:
        return len(self._delivery.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._delivery.records)

    @property
    def counts(self) -> bool:
        """False once the tenure is over: a settlement counts for nothing then, and the next owner has all of the
        records.
        """
        return not self._ledger.closed

    @property
    def leaving(self) -> bool:
        """True when the shard is about to be handed over, and waits for what is in flight to be settled."""
        return self._ledger.draining

    @property
    def _is_held_up(self) -> bool:
        """True while nothing more of the shard is fetched, because what came is not settled."""
        with self._lock:
            return self.counts and self._ledger.is_full

    def _is_settled(self, indices: Sequence[int]) -> bool:
        """True when the records at these indices are settled."""
        with self._lock:
            return self._delivery.ticket.are_settled(self._places(indices) or ())

    def unsettled(self) -> list[Position]:
        """Return the positions of this batch's records that are not settled, and were not delivered again: what
        `settle_through` the last one, or `ack`, would settle.
        """
        index = {place: at for at, place in enumerate(self._delivery.places)}
        records = self._delivery.records
        with self._lock:
            remaining = self._ledger.remaining(self._delivery)
        return [_position(records[index[place]]) for place in remaining]

    def ack(self, *indices: int) -> bool:
        """Settle all records, or those at these indices: they are done."""
        # This is called for each record that is settled alone, as `_settle_rest` is: a call of `_settle` costs more.
        ledger = self._ledger
        with self._lock:
            counts = ledger.ack(self._delivery.ticket, self._places(indices))
            events = ledger.events and ledger.take_events()
        return self._end_settling(counts, events)

    def settle_through(self, record: int | Record) -> bool:
        """Settle the given record (or the one at this index), and all that were delivered of the shard before it, in
        this batch or in earlier ones. Raises ValueError for a record of another batch, and with `ByKey`.
        """
        index = record if isinstance(record, int) else self._index(record)
        return self._settle(self._ledger.settle_through, self._delivery.places[index])

    def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
        """Deliver all records, or those at these indices, again, not before ``delay_s`` seconds. Raises ValueError for
        a delay that is none.
        """
        if not delay_s >= 0:  # This is also for what is not a number.
            raise ValueError(f"delay_s must be at least 0, not {delay_s}")
        return self._settle(self._ledger.nack, self._reader.now_s, self._places(indices), delay_s=delay_s)

    def skip(self, *indices: int, reason: str = "skipped") -> bool:
        """Settle all records, or those at these indices, without having been processed; an event says so."""
        return self._settle(self._ledger.skip, self._places(indices), reason=reason)

    def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
        """Give all records, or those at these indices, up: each becomes a dead letter, and counts as settled once that
        is written. Raises OptionError where no option says where dead letters go.
        """
        if not self._reader.writes_letters:
            raise OptionError("dead_letter: say by dead_letters=... where they go, or skip the record")
        return self._settle(self._ledger.dead_letter, self._reader.now_s, self._places(indices), error=error)

    def fail(self, error: BaseException, *indices: int) -> bool:
        """Fail the records (all, or those at these indices) that are not settled: the retry policy says what
        follows.
        """
        return self._settle(self._ledger.fail, error, self._reader.now_s, self._places(indices))

    def __enter__(self) -> Self:
        self._begun_s = self._reader.now_s
        tracer = self._reader.tracer
        self._span = None if tracer is None else tracer.processing(self.stream, self.shard_id, self.records)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._reader.handled(self._reader.now_s - self._begun_s)
        with processed(self._span, error):
            return super().__exit__(kind, error, trace)

    def _may_go_on(self, index: int) -> bool:
        """False when this record, and those behind it, must not be delivered for now: another worker may have the
        shard. They come again, if no other worker has it.
        """
        if not self._ledger.closed and self._reader.may_deliver():
            return True
        self.nack(*range(index, len(self)))
        return False

    def _settle_rest(self, indices: Sequence[int] | None = None) -> bool:
        """Settle the records (all, or those at these rising indices) that the handler did not put off or give up: it
        has come to an end with them.
        """
        if indices is None:
            ledger = self._ledger
            with self._lock:
                counts = ledger.ack(self._delivery.ticket)
                events = ledger.events and ledger.take_events()
            return self._end_settling(counts, events)
        return self._settle(self._ledger.leave, self._places(indices) or ())

    def _holds_up(self, index: int) -> bool:
        """True when the record was put off, and those behind it have to wait for it."""
        with self._lock:
            return self._ledger.holds_up(self._delivery.ticket, self._delivery.places[index])

    def _settle(self, settle: Callable[..., bool], *given: Any, **chosen: Any) -> bool:
        """Call one of the ledger's methods that settle; they differ in the arguments beside the ticket."""
        with self._lock:
            counts = settle(self._delivery.ticket, *given, **chosen)
            events = self._ledger.take_events()
        return self._end_settling(counts, events)

    def _end_settling(self, counts: bool, events: Sequence[LedgerEvent]) -> bool:
        # The lock is not held: an event runs the program's functions, which may take long, or settle other records.
        if events:
            self._reader.emit(events)
        return self._reader.touched() and counts

    def _places(self, indices: Sequence[int]) -> Sequence[int] | None:
        places = self._delivery.places
        if len(indices) == 1:  # It is so with each record that is settled alone.
            return (places[indices[0]],)
        return [places[index] for index in indices] if indices else None

    def _index(self, record: Record) -> int:
        """Return the index of a record of this batch. Several may have one position: parts of one record."""
        records, position = self._delivery.records, _position(record)
        index = bisect_right(records, position, key=_position) - 1
        first = index
        while first >= 0 and _position(records[first]) == position:
            if records[first] is record:
                return first
            first -= 1
        if index < 0 or first == index:
            raise ValueError(
                f"the record at {tuple(position)} is not of this batch: call settle_through of the batch that it is in"
            )
        return index


class Delivered(Settleable, RecordView, Generic[T_co]):
    """A record out of a batch, with all that a `Record` has. Used with ``with`` it is settled at the end of the block;
    an exception of the block is a failure of this record alone, and goes no further: the program goes on behind the
    block. Any thread may settle it.
    """

    __slots__ = ("_batch", "_index", "_span")

    def __init__(self, batch: Batch[T_co], index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def record(self) -> Record:
        """The record, with its position, key, time and data."""
        return self._batch.records[self._index]

    @property
    def value(self) -> T_co:
        """The value that the deserializer made of the record; without one, its bytes. For a part, what
        ``split`` made.
        """
        return self._batch.values[self._index]

    @property
    def token(self) -> int:
        """See `Batch.token`."""
        return self._batch.token

    @property
    def attempt(self) -> int:
        """The number of this attempt; it is 1 when the record is delivered for the first time."""
        return self._batch.attempt

    def ack(self) -> bool:
        """Settle the record: it is done. False once the tenure is over: then it counts for nothing, as with the other
        calls.
        """
        return self._batch.ack(self._index)

    def settle_through(self) -> bool:
        """Settle the record, and all that were delivered of its shard before it."""
        return self._batch.settle_through(self._index)

    def nack(self, delay_s: float = 0.0) -> bool:
        """Deliver the record again, not before ``delay_s`` seconds."""
        return self._batch.nack(self._index, delay_s=delay_s)

    def skip(self, reason: str = "skipped") -> bool:
        """Settle the record without having been processed; an event says so."""
        return self._batch.skip(self._index, reason=reason)

    def dead_letter(self, error: BaseException | None = None) -> bool:
        """Give the record up: it becomes a dead letter."""
        return self._batch.dead_letter(self._index, error=error)

    def fail(self, error: BaseException) -> bool:
        """Fail the record: the retry policy says what follows."""
        return self._batch.fail(error, self._index)

    def __enter__(self) -> Self:
        tracer = self._batch._reader.tracer
        self._span = None if tracer is None else tracer.processing(self.stream, self.shard_id, (self.record,))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        with processed(self._span, error):
            return super().__exit__(kind, error, trace)

    def _may_go_on(self) -> bool:
        return self._batch._may_go_on(self._index)

    def _settle_rest(self) -> bool:
        return self._batch._settle_rest((self._index,))


def _position(record: HasPosition) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)
