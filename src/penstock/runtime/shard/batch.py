"""What a handler gets: records of one shard, and the ways to say what became of them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Generic, Protocol

from penstock.core.ledger.book import Placed, R
from penstock.errors import OptionError
from penstock.model import Position
from penstock.runtime.shard.pages import datas_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from penstock.core.ledger.book import Delivery
    from penstock.core.ledger.ledger import Ledger
    from penstock.events import LedgerEvent
    from penstock.runtime.shard.two_phase import PendingCheckpoint


class Reader(Protocol):
    """The shard's reader, as a batch knows it."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as it was given."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """It is held while the ledger is asked or told: that may be another loop's."""

    @property
    def now_s(self) -> float:
        """The time of the ledger."""

    @property
    def writes_letters(self) -> bool:
        """True when it is said where dead letters go."""

    def may_deliver(self) -> bool:
        """True while no other worker can have the shard."""

    def emit(self, events: Sequence[LedgerEvent]) -> None:
        """Tell the program of these. The caller does not hold the lock: this runs functions of the program."""

    def handled(self, duration_s: float) -> None:
        """The program has had a batch for so long, and is done with it. The caller does not hold the lock."""

    def touched(self) -> None:
        """Something was settled. The caller does not hold the lock."""

    async def prepare(self, position: Position, state: bytes | None = None) -> PendingCheckpoint:
        """Store a pending checkpoint up to and with this position."""


class Batch(Generic[R]):
    """Records of one shard, in order.

    Settle them in any order, from any task, as a whole or by index; a batch that is used with ``async with`` is settled
    at its end, and an exception of the block is a failure, which the retry policy takes from there.
    """

    __slots__ = (
        "_begun_s", "_delivery", "_ledger", "_lock", "_reader", "_values", "millis_behind_latest", "shard_id", "stream",
        "token",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger[R],
        delivery: Delivery[R],
        reader: Reader,
        *,
        token: int,
        millis_behind_latest: int | None,
        values: Sequence[Any] | None = None,
    ) -> None:
        """``ledger``: the one that the delivery is of; after a seek the reader has another one."""
        self._ledger = ledger
        self._values = values
        self._delivery = delivery
        self.stream = reader.stream
        self.shard_id = reader.shard_id
        self.token = token
        """Grows with every owner of the shard: an output that refuses lower ones than it knows refuses late writers."""
        self.millis_behind_latest = millis_behind_latest
        """How old the shard's newest record was when these were fetched; 0 at the tip, None: not told."""
        self._reader = reader
        self._lock = reader.lock

    @property
    def records(self) -> Sequence[R]:
        """The records, in the shard's order."""
        return self._delivery.records

    @property
    def values(self) -> Sequence[Any]:
        """What the consumer's deserializer made of each record, in the same order; without one, the records' data. Of
        parts, what the splitting function made: the same as each `Part.value`.
        """
        if self._values is None:
            self._values = datas_of(self._delivery.records)
        return self._values

    @property
    def attempt(self) -> int:
        """1 when they are handed out for the first time."""
        return self._delivery.attempt

    def __len__(self) -> int:
        return len(self._delivery.records)

    def __iter__(self) -> Iterator[R]:
        return iter(self._delivery.records)

    @property
    def counts(self) -> bool:
        """False once the tenure is over: whatever is settled counts for nothing then, and the next owner has it all."""
        return not self._ledger.closed

    @property
    def leaving(self) -> bool:
        """True when the shard is about to be handed over, and waits for what is out to be settled."""
        return self._ledger.draining

    def unsettled(self) -> list[Position]:
        """The records of this batch that are not settled, and were not handed out again: what `settle_through` the last
        one, or `ack`, would settle.
        """
        index = {place: at for at, place in enumerate(self._delivery.places)}
        records = self._delivery.records
        with self._lock:
            remaining = self._ledger.remaining(self._delivery)
        return [_position(records[index[place]]) for place in remaining]

    # --- what became of them; each returns False once the tenure is over: then it counts for nothing -----

    def ack(self, *indices: int) -> bool:
        """All are done, or those at these indices."""
        # This is called for each record that is settled alone, as `_left` is: so it goes no further way by `_settle`.
        ledger = self._ledger
        with self._lock:
            counts = ledger.ack(self._delivery.ticket, self._places(indices))
            told = ledger.told and ledger.take_told()
        return self._settled(counts, told)

    def settle_through(self, record: int | R) -> bool:
        """The given record (or the one at this index) is done, and all that were handed out of the shard before it, in
        this batch or in earlier ones. Raises ValueError for a record of another batch, and with `ByKey`.
        """
        index = record if isinstance(record, int) else self._index(record)
        return self._settle(self._ledger.settle_through, self._delivery.places[index])

    def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
        """Hand them out again, after a while. Raises ValueError for a delay that is none."""
        if not delay_s >= 0:  # also for what is not a number
            raise ValueError(f"delay_s must be at least 0, not {delay_s}")
        return self._settle(self._ledger.nack, self._reader.now_s, self._places(indices), delay_s=delay_s)

    def skip(self, *indices: int, reason: str = "skipped") -> bool:
        """They count as settled without having been processed; an event says so."""
        return self._settle(self._ledger.skip, self._places(indices), reason=reason)

    def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
        """Give them up: each becomes a dead letter, and counts as settled once that is written. Raises OptionError
        where no option says where dead letters go.
        """
        if not self._reader.writes_letters:
            raise OptionError("dead_letter: say in the settings where dead_letters go, or skip the record")
        return self._settle(self._ledger.dead_letter, self._reader.now_s, self._places(indices), error=error)

    def fail(self, error: BaseException, *indices: int) -> bool:
        """What of them (all, or those at these indices) is not settled failed: the retry policy says what follows."""
        return self._settle(self._ledger.fail, error, self._reader.now_s, self._places(indices))

    async def prepare(self, state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """Store a pending checkpoint that covers all up to the record at ``index`` (the last one), before that is
        settled; then settle, and `PendingCheckpoint.commit`. Nothing else is checkpointed meanwhile.

        ``state``: bytes for the next owner of the shard, if that is not committed. Raises CheckpointError.
        """
        return await self._reader.prepare(_position(self._delivery.records[index]), state)

    async def __aenter__(self) -> Batch[R]:
        self._begun_s = self._reader.now_s
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._reader.handled(self._reader.now_s - self._begun_s)
        return settle_on_leaving(self, error)

    def _may_go_on(self, index: int) -> bool:
        """False when this record, and those behind it, must not be handed out for now: another worker may have the
        shard. They come again, if it has not.
        """
        if not self._ledger.closed and self._reader.may_deliver():
            return True
        self.nack(*range(index, len(self)))
        return False

    def _left(self, indices: Sequence[int] | None = None, *, chosen: bool = False) -> bool:
        """The handler has come to an end with them (all, or those at these rising indices): what it did not put off or
        give up is done. ``chosen``: they were picked out of several batches.
        """
        if indices is None:
            ledger = self._ledger
            with self._lock:
                counts = ledger.ack(self._delivery.ticket)
                told = ledger.told and ledger.take_told()
            return self._settled(counts, told)
        places = [self._delivery.places[index] for index in indices]
        return self._settle(self._ledger.leave, places, chosen=chosen)

    def _holds_up(self, index: int) -> bool:
        """True when this one was put off, and those behind it have to wait for it."""
        with self._lock:
            return self._ledger.holds_up(self._delivery.ticket, self._delivery.places[index])

    def _ack_chosen(self, indices: Sequence[int]) -> bool:
        """The same as `ack` for records that were picked out of several batches: one at a time is no sign then that the
        others are forgotten.
        """
        places = [self._delivery.places[index] for index in indices]
        return self._settle(self._ledger.ack, places, chosen=True)

    def _settle(self, settle: Callable[..., bool], *given: Any, **chosen: Any) -> bool:
        """Call one of the ledger's methods that settle; they differ in what they are given beside the ticket."""
        with self._lock:
            counts = settle(self._delivery.ticket, *given, **chosen)
            told = self._ledger.take_told()
        return self._settled(counts, told)

    def _settled(self, counts: bool, told: Sequence[LedgerEvent]) -> bool:
        # Without the lock: what is told runs the program's functions, which may take long, or settle other records.
        if told:
            self._reader.emit(told)
        self._reader.touched()
        return counts

    def _places(self, indices: tuple[int, ...]) -> Sequence[int] | None:
        return [self._delivery.places[index] for index in indices] if indices else None

    def _index(self, record: R) -> int:
        """Where a record of this batch is. Several may have one position: parts of one record."""
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


def _position(record: Placed) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


class Settled(Protocol):
    """A batch, a collection, a record: what a ``with`` block settles."""

    def _left(self) -> Any:
        """All is done, but for what was put off or given up before."""

    def nack(self) -> Any:
        """Hand it out again."""

    def fail(self, error: BaseException) -> Any:
        """The retry policy says what follows."""


def settle_on_leaving(settled: Settled, error: BaseException | None) -> bool:
    """The end of the block: done, if it ended well; failed by an exception, which goes no further (True)."""
    if error is None:
        settled._left()
        return False
    if not isinstance(error, Exception):  # a cancellation, an interrupt: the records are not to blame
        settled.nack()
        return False
    settled.fail(error)
    return True
