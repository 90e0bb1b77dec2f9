"""Records to put into ledgers, and a ledger with its events."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger import Ledger
from shardway.core.ledger.policy import LedgerPolicy
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.ledger.ticket import Delivery


class Rec(NamedTuple):
    sequence_number: int
    sub_sequence_number: int = 0
    partition_key: str = "k"
    data: bytes = b"12345678"


def recs(first: int, count: int, **fields: Any) -> list[Rec]:
    return [Rec(number, **fields) for number in range(first, first + count)]


def at(sequence_number: int, sub_sequence_number: int = 0) -> Checkpoint:
    return Checkpoint.at(Position(sequence_number, sub_sequence_number))


def numbers(records: Sequence[Any]) -> list[int]:
    return [record.sequence_number for record in records]


def next_at_s(ledger: Ledger[Any]) -> float:
    """When time alone leads to something: a delivery, something to say, or a letter."""
    return min(ledger.next_turn_at_s(), ledger.next_check_at_s(), ledger.letters.next_at_s())


class Kept:
    """A ledger, a clock for it, and what it told."""

    def __init__(self, after: Checkpoint = Checkpoint.TRIM_HORIZON, seed: int = 1, **settings: Any) -> None:
        self._taken: list[Any] = []
        self.now_s = 1000.0
        self.ledger: Ledger[Any] = Ledger(
            "orders", "shardId-000000000000", after, LedgerPolicy(**settings), rng=Random(seed)
        )

    @property
    def told(self) -> list[Any]:
        """All that the ledger has told so far; a test may clear it."""
        self._taken += self.ledger.take_events()
        return self._taken

    def admit(self, records: Sequence[Any], **more: Any) -> None:
        self.ledger.admit(records, self.now_s, **more)

    def deliver(self, records_max: int = 10_000) -> Delivery[Any]:
        delivery = self.ledger.deliver(self.now_s, records_max)
        assert delivery is not None
        return delivery

    def nothing(self) -> bool:
        return self.ledger.deliver(self.now_s) is None

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.ledger.check(self.now_s)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.told if type(event) is kind]
