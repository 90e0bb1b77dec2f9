"""A ticket stands for records of one page that share their history: they were delivered together."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from shardway.core.ledger.page import Page, R

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    def are_settled(self, places: Sequence[int]) -> bool:
        """True when all of these records are settled, whatever ticket they are with by now."""
        return all(map(self.page.is_settled, places))

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
