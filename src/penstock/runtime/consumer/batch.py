"""What a handler gets: records of one shard, and the ways to say what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from penstock.core.ledger.page import R
from penstock.runtime.consumer.values import datas_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from penstock.core.ledger.ledger import Ledger
    from penstock.core.ledger.ticket import Delivery


class Batch(Generic[R]):
    """Records of one shard, in order.

    Settle them in any order, from any task, as a whole or by index; a batch that is used with ``async with`` is settled
    at its end, and an exception of the block is a failure, which the retry policy takes from there.
    """

    __slots__ = (
        "_clock", "_delivery", "_ledger", "_on_settled", "_values", "millis_behind_latest", "shard_id", "stream",
        "token",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger[R],
        delivery: Delivery[R],
        *,
        stream: str,
        shard_id: str,
        token: int,
        millis_behind_latest: int | None,
        clock: Callable[[], float],
        on_settled: Callable[[], None],
        values: Sequence[Any] | None = None,
    ) -> None:
        self._ledger = ledger
        self._values = values
        self._delivery = delivery
        self.stream = stream
        self.shard_id = shard_id
        self.token = token
        """Grows with every owner of the shard: an output that refuses lower ones than it knows refuses late writers."""
        self.millis_behind_latest = millis_behind_latest
        """How old the shard's newest record was when these were fetched; 0 at the tip, None: not told."""
        self._clock = clock
        self._on_settled = on_settled

    @property
    def records(self) -> Sequence[R]:
        """The records, in the shard's order."""
        return self._delivery.records

    @property
    def values(self) -> Sequence[Any]:
        """What the consumer's deserializer made of each record, in the same order; without one, the records' data."""
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

    # --- what became of them; each returns False once the tenure is over: then it counts for nothing -----

    def ack(self, *indices: int) -> bool:
        """All are done, or those at these indices."""
        return self._told(self._ledger.ack(self._delivery.ticket, self._places(indices)))

    def settle_through(self, index: int) -> bool:
        """The record at this index is done, and all that were handed out of the shard before it."""
        return self._told(self._ledger.settle_through(self._delivery.ticket, self._delivery.places[index]))

    def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
        """Hand them out again, after a while."""
        return self._told(
            self._ledger.nack(self._delivery.ticket, self._clock(), self._places(indices), delay_s=delay_s)
        )

    def skip(self, *indices: int, reason: str = "skipped") -> bool:
        """They count as settled without having been processed; an event says so."""
        return self._told(self._ledger.skip(self._delivery.ticket, self._places(indices), reason=reason))

    def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
        """Give them up: each becomes a dead letter."""
        return self._told(
            self._ledger.dead_letter(self._delivery.ticket, self._clock(), self._places(indices), error=error)
        )

    def fail(self, error: BaseException, *indices: int) -> bool:
        """What of them (all, or those at these indices) is not settled failed: the retry policy says what follows."""
        return self._told(self._ledger.fail(self._delivery.ticket, error, self._clock(), self._places(indices)))

    async def __aenter__(self) -> Batch[R]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self.ack()
            return False
        if not isinstance(error, Exception):  # a cancellation: the records are not to blame
            self.nack()
            return False
        self.fail(error)
        return True

    def _told(self, counts: bool) -> bool:
        self._on_settled()
        return counts

    def _places(self, indices: tuple[int, ...]) -> Sequence[int] | None:
        return [self._delivery.places[index] for index in indices] if indices else None
