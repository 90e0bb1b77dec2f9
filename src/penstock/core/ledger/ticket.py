"""What the ledger remembers of records that were handed out together, and what callers get."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from penstock.core.ledger.page import R

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.ledger.page import Page
    from penstock.model import Position


class Where(Enum):
    """Where the records of a ticket are."""

    QUEUED = "queued"
    """The records were not handed out yet."""
    OUT = "out"
    """A handler has them."""
    WAITING = "waiting"
    """They wait to be handed out again."""
    BURYING = "burying"
    """They become dead letters that are not known to be written yet."""


class Ticket:
    """Records of one page that share their history. Each record is with one ticket, until it is settled."""

    __slots__ = (
        "attempt", "due_s", "first_at_s", "halved", "key", "left", "page", "places", "put_off", "redelivered",
        "remind_at_s", "root", "serial", "tries", "unsettled", "where",
    )  # fmt: skip

    def __init__(self, page: Page[Any], places: Sequence[int], *, serial: int, root: Ticket | None = None) -> None:
        self.page = page
        self.places = places
        """The places that the ticket was made with, rising."""
        self.serial = serial
        self.left = len(places)
        """How many of its records are not settled and still with this ticket."""
        self.where = Where.QUEUED
        self.root = self if root is None else root
        """The ticket that the records were handed out with first."""
        self.unsettled = len(places)
        """Of a root: how many of its records are not settled, with this ticket or with a later one."""
        self.attempt: int = 0 if root is None else root.attempt
        """How often the records were handed out."""
        self.tries = 0
        """How often the records failed as the batch that they are now. Failures of larger batches do not count."""
        self.halved = False
        """True when they are a part of a batch that failed."""
        self.first_at_s: float = 0.0 if root is None else root.first_at_s
        """When they were handed out first."""
        self.due_s = 0.0
        """While the records wait: they are not handed out before this time."""
        self.remind_at_s = 0.0
        """Of a root: when its unsettled records are reported."""
        self.put_off = False
        """True when a handler put the records off, gave them up, or failed, with this ticket or an earlier one."""
        self.redelivered = 0
        """Of a root: how often it was handed out again because it was not settled in time."""
        self.key: object = None
        """Their partition key, where that matters."""

    @property
    def order(self) -> tuple[int, int]:
        """Tickets compare by this as their records lie in the shard."""
        return self.page.number, self.places[0]

    def owned(self, place: int) -> int:
        """The same place. Raises ValueError for one that is not of this ticket: it would settle another's record."""
        places = self.places
        if type(places) is not range:
            index = bisect_left(places, place)
            if index < len(places) and places[index] == place:
                return place
        elif place in places:
            return place
        raise ValueError(f"place {place} is not of this delivery")


class Delivery(NamedTuple, Generic[R]):
    """Records that are handed out. What becomes of them is told to the ledger with the ticket."""

    ticket: Ticket
    records: Sequence[R]
    places: Sequence[int]
    """Names each of the records in calls of the ledger, in the same order."""
    attempt: int
    """1 for the first time."""


class DeadLetter(Generic[R]):
    """A record that is given up. It counts as settled once it is known to be written where dead letters go."""

    __slots__ = (
        "attempts", "error_message", "error_type", "failures", "first_at_s", "part", "place", "position", "record",
        "ticket", "tries",
    )  # fmt: skip

    def __init__(
        self,
        record: R,
        position: Position,
        ticket: Ticket,
        place: int,
        error: BaseException | None,
        reason: str,
        failures: int = 0,
    ) -> None:
        self.record = record
        self.position = position
        self.part: int | None = getattr(record, "part", None)
        """Which part of the record, where records are split."""
        self.ticket = ticket
        self.place = place
        self.attempts = ticket.attempt
        """How often it was handed out."""
        self.failures = failures
        """How often it failed as it is."""
        self.first_at_s = ticket.first_at_s
        """When it was handed out first, on the caller's clock."""
        self.error_type = reason if error is None else type(error).__name__
        self.error_message = "" if error is None else str(error)
        """What the handler said: it may hold anything, and belongs into the dead letter, not into a log."""
        self.tries = 0
        """How often writing it failed."""
