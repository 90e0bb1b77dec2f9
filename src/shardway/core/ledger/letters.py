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
    """The dead letters that are to be written, by when."""

    __slots__ = ("_base_s", "_cap_s", "_due", "_numbers", "_rng")

    def __init__(self, rng: Random, *, base_s: float, cap_s: float) -> None:
        """``base_s``, ``cap_s``: the first and the longest pause between attempts to write a letter."""
        self._base_s, self._cap_s = base_s, cap_s
        self._due: list[tuple[float, int, DeadLetter[R]]] = []
        self._numbers = count()
        self._rng = rng

    def add(self, letter: DeadLetter[R], now_s: float) -> None:
        """Add a letter that is to be written now."""
        heappush(self._due, (now_s, next(self._numbers), letter))

    def hurry(self, now_s: float) -> None:
        """Let all letters be due now."""
        self._due = [(min(at_s, now_s), number, letter) for at_s, number, letter in self._due]
        heapify(self._due)

    def failed(self, letter: DeadLetter[R], now_s: float, *, hurries: bool) -> float:
        """Put off a letter that could not be written; returns for how many seconds. ``hurries``: the pause does not
        grow.
        """
        letter.write_failures += 1
        cap_s = self._base_s if hurries else self._cap_s
        delay_s = full_jitter_s(letter.write_failures, base_s=self._base_s, cap_s=cap_s, rng=self._rng)
        heappush(self._due, (now_s + delay_s, next(self._numbers), letter))
        return delay_s

    def take(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Return the letters that are to be written by now, but for those whose record was settled meanwhile; at most
        ``letters_max``.
        """
        letters: list[DeadLetter[R]] = []
        most = math.inf if letters_max is None else letters_max
        while self._due and self._due[0][0] <= now_s and len(letters) < most:
            letter = heappop(self._due)[2]
            if letter.ticket.left:
                letters.append(letter)
        return letters

    def next_at_s(self) -> float:
        """Return when the next letter is to be written; infinity when there is none."""
        return self._due[0][0] if self._due else math.inf
