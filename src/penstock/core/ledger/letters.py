"""Dead letters on their way: a record counts as settled only when its letter is known to be written."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic

from penstock.core.ledger.page import R
from penstock.core.pacing import full_jitter_s

if TYPE_CHECKING:
    from random import Random

    from penstock.core.ledger.ticket import DeadLetter


class Letters(Generic[R]):
    """Those that are to be written, by when."""

    __slots__ = ("_base_s", "_cap_s", "_due", "_numbers", "_rng")

    def __init__(self, rng: Random, *, base_s: float, cap_s: float) -> None:
        """``base_s``, ``cap_s``: of the pauses between tries of one."""
        self._base_s, self._cap_s = base_s, cap_s
        self._due: list[tuple[float, int, DeadLetter[R]]] = []
        self._numbers = count()
        self._rng = rng

    def add(self, letter: DeadLetter[R], now_s: float) -> None:
        """It is to be written now."""
        heappush(self._due, (now_s, next(self._numbers), letter))

    def failed(self, letter: DeadLetter[R], now_s: float) -> float:
        """It could not be written, and is to be later; returns in how many seconds."""
        letter.tries += 1
        delay_s = full_jitter_s(letter.tries, base_s=self._base_s, cap_s=self._cap_s, rng=self._rng)
        heappush(self._due, (now_s + delay_s, next(self._numbers), letter))
        return delay_s

    def take(self, now_s: float, letters_max: int | None = None) -> list[DeadLetter[R]]:
        """Those that are to be written by now, but for those whose record was settled meanwhile; at most so many."""
        letters: list[DeadLetter[R]] = []
        most = math.inf if letters_max is None else letters_max
        while self._due and self._due[0][0] <= now_s and len(letters) < most:
            letter = heappop(self._due)[2]
            if letter.ticket.left:
                letters.append(letter)
        return letters

    def next_at_s(self) -> float:
        """When the next is to be written."""
        return self._due[0][0] if self._due else math.inf
