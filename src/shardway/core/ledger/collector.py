"""A collector puts records of many deliveries together by a key: until there are enough of one key, or they are old."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from shardway.core.ledger.page import R

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from shardway.core.ledger.ledger import Ledger


R_co = TypeVar("R_co", covariant=True)


class DeliveredRecords(Protocol[R_co]):
    """Records that were delivered together."""

    @property
    def ticket(self) -> Any:
        """The ticket with which the ledger settles them; it is hashable."""

    @property
    def places(self) -> Sequence[int]:
        """The place of each record, in the order of `records`."""

    @property
    def records(self) -> Sequence[R_co]:
        """The records, in the order of the shard."""


class Collected(Generic[R]):
    """Records of one key, in the order in which they came."""

    __slots__ = ("_entries", "first_at_s", "key")

    def __init__(self, key: object, first_at_s: float) -> None:
        self.key = key
        self.first_at_s = first_at_s
        """The time at which the first of the records came."""
        self._entries: dict[Hashable, tuple[R, Any, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: Hashable, record: R, ticket: Any, place: int) -> None:
        """Add a record. One that is here already was delivered again: it counts once, and is settled where it
        is now.
        """
        self._entries[name] = (record, ticket, place)

    @property
    def records(self) -> list[R]:
        """The records, each once, also where one was delivered again while it waited here."""
        return [record for record, _, _ in self._entries.values()]

    def places(self) -> dict[Any, list[int]]:
        """Return the places of the records, by the ticket of their delivery."""
        found: dict[Any, list[int]] = {}
        for _, ticket, place in self._entries.values():
            found.setdefault(ticket, []).append(place)
        return found

    def located(self) -> Iterator[tuple[Any, int]]:
        """Return the ticket and the place of each record, in the order of the records."""
        return ((ticket, place) for _, ticket, place in self._entries.values())

    def tickets(self) -> Iterator[Any]:
        """Return the ticket of each record."""
        return (ticket for _, ticket, _ in self._entries.values())

    def keep(self, wanted: Callable[[Any], bool]) -> None:
        """Drop the records whose tickets are not wanted."""
        self._entries = {name: entry for name, entry in self._entries.items() if wanted(entry[1])}

    def ack(self, ledger: Ledger[Any]) -> bool:
        """Settle all of the records. Returns whether all settlements counted."""
        counts = [ledger.ack(ticket, places) for ticket, places in self.places().items()]
        return all(counts)


class Collector(Generic[R]):
    """Collections that are not complete yet. The ledger bounds them: they hold only records that are in flight."""

    __slots__ = ("_age_s", "_groups", "_key_of", "_name_of", "_records")

    def __init__(
        self,
        key_of: Callable[[R], object],
        *,
        records: int,
        age_s: float = math.inf,
        name_of: Callable[[R], Hashable] | None = None,
    ) -> None:
        """A collection is complete with ``records`` records, or when its first came ``age_s`` ago. ``name_of`` returns
        what distinguishes a record from all others; by default its position and part, which do so in one shard.
        """
        if records < 1 or age_s <= 0:
            raise ValueError("a collection needs records and age_s above 0")
        self._key_of = key_of
        self._name_of = name_of or _position_and_part
        self._records = records
        self._age_s = age_s
        self._groups: OrderedDict[object, Collected[R]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of keys that have records waiting."""
        return len(self._groups)

    def __iter__(self) -> Iterator[Collected[R]]:
        """Iterate over the collections that wait, the oldest first."""
        return iter(self._groups.values())

    def add(self, handed: DeliveredRecords[R], now_s: float) -> list[Collected[R]]:
        """Add these records, and return the collections that they completed, in the order in which they were
        completed.
        """
        complete = []
        ticket = handed.ticket
        for place, record in zip(handed.places, handed.records, strict=True):
            key = self._key_of(record)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Collected(key, now_s)
            group.add(self._name_of(record), record, ticket, place)
            if len(group) >= self._records:
                complete.append(self._groups.pop(key))
        return complete

    def due(self, now_s: float) -> list[Collected[R]]:
        """Return the collections that are old enough."""
        return [self._groups.popitem(last=False)[1] for _ in range(len(self._groups)) if self.next_at_s() <= now_s]

    def flush(self, wanted: Callable[[Collected[R]], bool] | None = None) -> list[Collected[R]]:
        """Return all collections, complete or not; with ``wanted``, those that it is true for."""
        groups = [group for group in self._groups.values() if wanted is None or wanted(group)]
        for group in groups:
            del self._groups[group.key]
        return groups

    def next_at_s(self) -> float:
        """Return when the oldest collection is old enough; infinity when there is none."""
        for group in self._groups.values():
            return group.first_at_s + self._age_s
        return math.inf


def _position_and_part(record: Any) -> Hashable:
    return record.sequence_number, record.sub_sequence_number, getattr(record, "part", None)
