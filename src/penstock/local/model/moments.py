"""Times: epoch seconds with a fraction outside, whole milliseconds inside."""

from __future__ import annotations

import time

_ROUNDING = 0.01
"""Of a millisecond: what a float of epoch seconds may lack (its own precision is a quarter of a microsecond)."""


def epoch_ms(seconds: float) -> int:
    """The millisecond in which a moment lies: the service cuts off what is finer."""
    return int(seconds * 1000 + _ROUNDING)


def utc_text(moment_ms: int) -> str:
    """``Thu Jan 22 01:22:02 UTC 2015``, as messages of the service print a time."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(moment_ms // 1000))
