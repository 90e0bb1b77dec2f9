"""A policy says which failed calls are repeated, how often and after how long.

Waits have full jitter (they are uniformly random, below a bound that doubles): many clients that were refused together
do not come back together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shardway.errors import OptionError

if TYPE_CHECKING:
    import random

EXPONENT_MAX = 30
"""The largest exponent: it keeps ``2 ** attempt`` small when a policy allows very many attempts."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """Says how one call is repeated.

    ``ThrottledError``, ``UnavailableError`` and ``TransportError`` are repeated up to ``attempts_max``
    attempts in all, after a random wait in [0, min(``cap_s``, ``base_s`` · 2ⁿ)]. No attempt begins
    ``deadline_s`` seconds after the first one began. ``attempts_max=1`` repeats nothing by itself.
    """

    attempts_max: int = 5
    base_s: float = 0.1
    cap_s: float = 5.0
    deadline_s: float | None = None
    repeat_stale: bool = True
    """True where the call is repeated at once, uncounted, when a pooled connection turns out to be closed before a byte
    of the answer came: nearly always nothing was done. It is False for a write that must know.
    """

    def __post_init__(self) -> None:
        faults = []
        if self.attempts_max < 1:
            faults.append("attempts_max must be at least 1")
        if not 0 <= self.base_s <= self.cap_s:
            faults.append("base_s must lie between 0 and cap_s")
        if self.deadline_s is not None and self.deadline_s <= 0:
            faults.append("deadline_s must be more than 0")
        if faults:
            raise OptionError(faults)

    def wait_s(self, attempt: int, rng: random.Random) -> float:
        """Return the wait after attempt number ``attempt`` (1-based) failed, in seconds."""
        bound_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, EXPONENT_MAX))
        return rng.uniform(0.0, bound_s)

    def gives_up(self, attempt: int, elapsed_s: float, wait_s: float) -> bool:
        """True when no further attempt may follow attempt number ``attempt``."""
        if attempt >= self.attempts_max:
            return True
        return self.deadline_s is not None and elapsed_s + wait_s >= self.deadline_s


NEVER = RetryPolicy(attempts_max=1)
"""The policy for callers that decide themselves what a failure means."""

ONCE = RetryPolicy(attempts_max=1, repeat_stale=False)
"""The policy that sends each request once: for writers that tell their callers whether something may have been
done twice.
"""
