"""Callers see times as epoch seconds with a fraction; inside of the model they are whole milliseconds."""

from __future__ import annotations

import time

_ROUNDING_MS = 0.01
"""The part of a millisecond that a float of epoch seconds may lack (its precision is a quarter of a microsecond)."""


def epoch_ms(seconds: float) -> int:
    """Return the millisecond in which a moment lies: the service cuts off what is finer."""
    return int(seconds * 1000 + _ROUNDING_MS)


def utc_text(moment_ms: int) -> str:
    """Return a time as messages of the service print it: ``Thu Jan 22 01:22:02 UTC 2015``."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(moment_ms // 1000))
