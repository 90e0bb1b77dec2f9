"""Read in a progress how many rows a query removed: those that came late, and duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


EXACT_DUPLICATES = "shardway_duplicates"
"""The name of the observed metric that counts the removed rows, and the beginning of its observation's name."""


def late_rows(progress: Mapping[str, Any]) -> int:
    """Return how many rows a batch dropped because they came later than the watermark allows.

    ``progress`` is ``query.lastProgress``, an element of ``query.recentProgress``, or what a listener is given.
    """
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])
