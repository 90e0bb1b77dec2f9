"""Notices a program that asks for records and gets none, because those that it has not settled are at the bound."""

from __future__ import annotations

import math


class Starving:
    """The time in which the program asks for records and gets none: it ends when it gets some, or there is room."""

    __slots__ = ("_after_s", "_since_s", "_told")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: float | None = None
        self._told = False

    def gets(self) -> None:
        """Records were handed out, or there is room."""
        self._since_s = None

    def gets_none(self, now_s: float) -> None:
        """Nothing was handed out, and nothing will come before something is settled."""
        if self._since_s is None:
            self._since_s, self._told = now_s, False

    @property
    def lasts(self) -> bool:
        """True from `gets_none` on."""
        return self._since_s is not None

    def next_at_s(self) -> float:
        """When that is to be told; or infinity."""
        return math.inf if self._since_s is None or self._told else self._since_s + self._after_s

    def due(self, now_s: float) -> float | None:
        """For how long it lasts, when that is to be told now: once."""
        if self._since_s is None or now_s < self.next_at_s():
            return None
        self._told = True
        return now_s - self._since_s
