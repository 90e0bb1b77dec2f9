"""The parts of a record. Each of them is delivered by itself; the record is settled when all of its parts are.

The parts of a record must follow from the record alone. Then a replay makes the same parts, and (position, part) names
a part for good. While a tenure lasts they are made once: what is delivered again is what was delivered before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, cast

from shardway.core.ledger.page import HasPosition
from shardway.core.ledger.record_view import RecordView

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from shardway.model import Record


PARTS_MAX = 10_000


class Source(HasPosition, Protocol):
    """A record that can be split."""

    @property
    def partition_key(self) -> str | None:
        """The partition key of the record and of its parts."""

    @property
    def data(self) -> bytes:
        """The record's data, which is kept with the parts, for dead letters."""


T = TypeVar("T")


class SplitError(Exception):
    """A record could not be split as it should be."""


class Part(RecordView, Generic[T]):
    """A part of a record. What a record has, each of its parts has, too."""

    __slots__ = ("part", "parts", "record", "value")

    record: Record

    def __init__(self, record: Source, part: int, parts: int, value: T) -> None:
        self.record = cast("Record", record)
        self.part = part
        """The number of the part in its record, from 0."""
        self.parts = parts
        """The number of parts that the record has."""
        self.value = value

    @property
    def payload_bytes(self) -> int:
        """The bytes that count for this part: those of a record count once, with its first part."""
        return len(self.record.data) if self.part == 0 else 0


class Split(NamedTuple):
    """What `Ledger.admit` takes of a page whose records were split."""

    records: list[Any]
    """The parts; and the record itself where it has none."""
    settled: list[int]
    """The places of records without parts."""
    unreadable: dict[int, BaseException]
    """The places of records that could not be split, with the reason."""


def split(
    records: Sequence[Source],
    function: Callable[[Any], Iterable[T]],
    *,
    without: Collection[int] = (),
    parts_max: int = PARTS_MAX,
    twice: bool = False,
) -> Split:
    """Split each record with ``function(record)``, which returns its parts in their order.

    An error of the function, and more than ``parts_max`` parts, make the record unreadable. ``twice`` calls it a second
    time and makes records unreadable whose parts differ: for tests. ``without``: numbers of records that are not to be
    delivered (duplicates); they have no parts.
    """
    result = Split([], [], {})
    for number, record in enumerate(records):
        place = len(result.records)
        if number in without:
            result.records.append(record)
            result.settled.append(place)
            continue
        try:
            values = _take_bounded(function(record), parts_max)
            if twice and _take_bounded(function(record), parts_max) != values:
                raise SplitError("the parts of a record must follow from the record alone, but differ the second time")
        except Exception as error:  # It is the user's function: whatever it raises belongs to the record.
            result.records.append(record)
            result.unreadable[place] = error
            continue
        if values:
            result.records.extend(Part(record, part, len(values), value) for part, value in enumerate(values))
        else:
            result.records.append(record)
            result.settled.append(place)
    return result


def _take_bounded(values: Iterable[T], parts_max: int) -> list[T]:
    found: list[T] = []
    for value in values:
        if len(found) == parts_max:
            raise SplitError(f"a record has more than {parts_max} parts (parts_max)")
        found.append(value)
    return found
