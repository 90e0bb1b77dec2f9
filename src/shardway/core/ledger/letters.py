"""The dead letters of a ledger that are to be written, by when."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic

from shardway.core.ledger.page import R
from shardway.core.pacing import full_jitter_s
from shardway.core.unicode import message_of

if TYPE_CHECKING:
    from random import Random

    from shardway.core.ledger.book import Book
    from shardway.core.ledger.ledger_events import LedgerEvents
    from shardway.core.ledger.ticket import Ticket
    from shardway.model import Position


class DeadLetter(Generic[R]):
    """A record that is given up. It counts as settled once it is known to be written where dead letters go."""

    __slots__ = (
        "attempts", "error_message", "error_type", "failures", "first_at_s", "part", "place", "position", "record",
        "ticket", "write_failures",
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
        """The number of the part in its record, where records are split."""
        self.ticket = ticket
        self.place = place
        self.attempts = ticket.attempt
        """The number of times that the record was delivered."""
        self.failures = failures
        """The number of times that the record failed as it is."""
        self.first_at_s = ticket.first_at_s
        """The time at which the record was delivered first, on the caller's clock."""
        self.error_type = reason if error is None else type(error).__name__
        self.error_message = "" if error is None else message_of(error)
        """The message of the handler's error: it may hold anything, and belongs into the dead letter, not into
        a log.
        """
        self.write_failures = 0
        """The number of times that writing the letter failed."""


class Letters(Generic[R]):
    """The dead letters of a ledger that are to be written, by when. A letter that is written settles its record."""

    __slots__ = ("_base_s", "_book", "_cap_s", "_closed", "_due", "_events", "_numbers", "_rng")

    def __init__(self, book: Book[R], events: LedgerEvents, rng: Random, *, base_s: float, cap_s: float) -> None:
        """``base_s``, ``cap_s``: the first and the longest pause between attempts to write a letter."""
        self._book = book
        self._events = events
        self._base_s, self._cap_s = base_s, cap_s
        self._due: list[tuple[float, int, DeadLetter[R]]] = []
        self._numbers = count()
        self._rng = rng
        self._closed: str | None = None

    def add(self, letter: DeadLetter[R], now_s: float) -> None:
        """Add a letter that is to be written now."""
        heappush(self._due, (now_s, next(self._numbers), letter))

    def take(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Return the letters that are to be written by now, but for those whose record was settled meanwhile; at most
        ``letters_max``. Answer each by `written` or `not_written`.
        """
        letters: list[DeadLetter[R]] = []
        most = math.inf if letters_max is None else letters_max
        while self._due and self._due[0][0] <= now_s and len(letters) < most:
            letter = heappop(self._due)[2]
            if letter.ticket.left:
                letters.append(letter)
        return letters

    def written(self, letter: DeadLetter[R]) -> bool:
        """Settle the record of a letter that is written. False: the ledger is closed, and that counts for nothing."""
        if self._closed is not None:
            self._events.late(1, self._closed)
            return False
        if letter.ticket.left:
            self._book.settle(letter.ticket, letter.place)
            self._events.letter_written(letter)
        return True

    def not_written(self, letter: DeadLetter[R], error: BaseException, now_s: float, *, hurries: bool) -> bool:
        """Put off a letter that could not be written, or may not have been. ``hurries``: the pause does not grow.
        False: the ledger is closed.
        """
        if self._closed is not None:
            return False
        letter.write_failures += 1
        cap_s = self._base_s if hurries else self._cap_s
        delay_s = full_jitter_s(letter.write_failures, base_s=self._base_s, cap_s=cap_s, rng=self._rng)
        heappush(self._due, (now_s + delay_s, next(self._numbers), letter))
        self._events.letter_not_written(letter, error, delay_s)
        return True

    def hurry(self, now_s: float) -> None:
        """Let all letters be due now: the shard is about to go, and a letter that waits for its retry would be written
        again by the next owner, which gets its record again.
        """
        self._due = [(min(at_s, now_s), number, letter) for at_s, number, letter in self._due]
        heapify(self._due)

    def next_at_s(self) -> float:
        """Return when the next letter is to be written; infinity when there is none."""
        return self._due[0][0] if self._due else math.inf

    def close(self, reason: str) -> None:
        """Forget all letters: the ledger is closed, and the next owner has their records."""
        self._closed = reason
        self._due.clear()
