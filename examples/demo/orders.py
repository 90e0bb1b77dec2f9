"""What the demo's producer writes: decided by a seed alone, so that the count at the end can decide it again."""

from __future__ import annotations

import json
import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CUSTOMERS = 2_000
WRITTEN_AGAIN, BROKEN, AGGREGATED = 0.03, 0.01, 0.15
"""Shares: of records that repeat an earlier order or cannot be decoded, and of puts that are aggregates."""

_ITEMS = ("lamp", "teapot", "spanner", "atlas", "bicycle bell")
_REMEMBERED = 20
"""How many of a customer's last orders may be repeated."""


class Put(NamedTuple):
    """What goes into one Kinesis record: one user record, or several of one customer as an aggregate."""

    customer: str
    data: list[bytes]


class Plan:
    """The puts in rounds: each customer once per round. Counts what it gave out."""

    def __init__(self, records: int, seed: int = 7) -> None:
        self._records = records
        self._random = random.Random(seed)
        self._counters = [0] * CUSTOMERS
        self._last: list[deque[bytes]] = [deque(maxlen=_REMEMBERED) for _ in range(CUSTOMERS)]
        self.orders: dict[str, tuple[str, int, int, str]] = {}
        """What has to arrive: order id to customer, counter, quantity, amount."""
        self.broken: list[bytes] = []
        """What has to arrive as dead letters."""
        self.duplicates = 0
        self.aggregates = 0

    @property
    def given_out(self) -> int:
        """User records so far."""
        return len(self.orders) + len(self.broken) + self.duplicates

    def rounds(self) -> Iterator[list[Put]]:
        """Rounds until all records are given out. Within a round no customer comes twice."""
        while self.given_out < self._records:
            order = list(range(CUSTOMERS))
            self._random.shuffle(order)
            puts = []
            for customer in order:
                left = self._records - self.given_out
                if left == 0:
                    break
                several = self._random.random() < AGGREGATED
                count = min(left, self._random.randint(2, 20) if several else 1)
                self.aggregates += count > 1
                puts.append(Put(_name(customer), [self._record(customer) for _ in range(count)]))
            yield puts

    def _record(self, customer: int) -> bytes:
        chance = self._random.random()
        if chance < BROKEN:
            return self._broken(customer)
        if chance < BROKEN + WRITTEN_AGAIN and self._last[customer]:
            self.duplicates += 1
            return self._random.choice(self._last[customer])
        return self._order(customer)

    def _order(self, customer: int) -> bytes:
        self._counters[customer] += 1
        order_id, name = f"order-{len(self.orders):07d}", _name(customer)
        counter, quantity = self._counters[customer], self._random.randint(1, 9)
        amount = f"{self._random.randint(1, 99_999) / 100:.2f}"
        self.orders[order_id] = (name, counter, quantity, amount)
        item = self._random.choice(_ITEMS)
        fields = {"order_id": order_id, "customer": name, "counter": counter, "item": item, "quantity": quantity}
        data = json.dumps(fields)[:-1].encode() + f', "amount": {amount}}}'.encode()
        self._last[customer].append(data)
        return data

    def _broken(self, customer: int) -> bytes:
        number, name = len(self.broken), _name(customer)
        data = (
            f'{{"order_id": "broken-{number}", "customer": "{name}", "quan',
            f'{{"order_id": "broken-{number}", "customer": "{name}", "counter": "many", "item": "lamp"}}',
            f'{{"customer": "{name}", "counter": {number}, "item": "lamp", "quantity": 1, "amount": 1}}',
            f"an order ({number}) by {name} on paper",
            f'{{"order_id": "broken-{number}"}}{{"order_id": "broken-too"}}',
        )[number % 5].encode() + (b"\xff" if number % 7 == 0 else b"")
        self.broken.append(data)
        return data


def _name(customer: int) -> str:
    return f"customer-{customer:04d}"
