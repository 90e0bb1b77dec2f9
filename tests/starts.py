"""The places where readers begin in tests of loss: at the oldest record, at the newest one, and at a time."""

from __future__ import annotations

STARTS = ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP")


def start_of(seed: int) -> str:
    """Seeds that follow each other draw each start as often as the others."""
    return STARTS[seed % len(STARTS)]
