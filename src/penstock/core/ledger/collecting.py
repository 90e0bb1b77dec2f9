"""Records of many deliveries put together by a key of the user's, until there are enough of one key or they are old."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic

from penstock.core.ledger.page import R

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.ledger.ledger import Ledger
    from penstock.core.ledger.ticket import Delivery, Ticket


class Collected(Generic[R]):
    """Records of one key, in their order."""

    __slots__ = ("first_at_s", "key", "places", "records")

    def __init__(self, key: object, first_at_s: float) -> None:
        self.key = key
        self.first_at_s = first_at_s
        """When the first of them came."""
        self.records: list[R] = []
        self.places: dict[Ticket, list[int]] = {}
        """Where they are in their deliveries."""

    def ack(self, ledger: Ledger[Any]) -> bool:
        """All of them are done."""
        return all(ledger.ack(ticket, places) for ticket, places in self.places.items())


class Collector(Generic[R]):
    """What is not enough yet. The ledger bounds it: it holds what is out, and nothing else."""

    __slots__ = ("_age_s", "_groups", "_key_of", "_records")

    def __init__(self, key_of: Callable[[R], object], *, records: int, age_s: float = math.inf) -> None:
        """A collection is complete with so many records, or when its first came ``age_s`` ago."""
        if records < 1 or age_s <= 0:
            raise ValueError("a collection needs records and age_s above 0")
        self._key_of = key_of
        self._records = records
        self._age_s = age_s
        self._groups: OrderedDict[object, Collected[R]] = OrderedDict()

    def __len__(self) -> int:
        """Keys that have records waiting."""
        return len(self._groups)

    def add(self, delivery: Delivery[R], now_s: float) -> list[Collected[R]]:
        """The collections that are complete with these records, as they were completed."""
        complete = []
        for place, record in zip(delivery.places, delivery.records, strict=True):
            key = self._key_of(record)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Collected(key, now_s)
            group.records.append(record)
            group.places.setdefault(delivery.ticket, []).append(place)
            if len(group.records) >= self._records:
                complete.append(self._groups.pop(key))
        return complete

    def due(self, now_s: float) -> list[Collected[R]]:
        """Those that are old enough."""
        return [self._groups.popitem(last=False)[1] for _ in range(len(self._groups)) if self.next_at_s() <= now_s]

    def flush(self) -> list[Collected[R]]:
        """All that there is, complete or not."""
        groups = list(self._groups.values())
        self._groups.clear()
        return groups

    def next_at_s(self) -> float:
        """When the oldest is old enough; infinity when there is none."""
        for group in self._groups.values():
            return group.first_at_s + self._age_s
        return math.inf
