"""How much a batch should take."""

from __future__ import annotations

from typing import NamedTuple


class Caps(NamedTuple):
    """The limits that a batch should not exceed by much; None stands for no cap."""

    rows: int | None = None
    bytes: int | None = None

    @property
    def none(self) -> bool:
        """True when nothing is capped."""
        return self.rows is None and self.bytes is None

    def share(self, rows: float, size: float) -> float:
        """Return how much of the caps ``rows`` and ``size`` (bytes) are: 1.0 is full."""
        return max(rows / self.rows if self.rows else 0.0, size / self.bytes if self.bytes else 0.0)


UNCAPPED = Caps()
"""Caps that limit nothing."""
