"""The service clock knows what time it is at the service, as an interval, learnt from the ``Date`` of its answers.

A cut-off that is ahead of the service's clock is refused, and one that is too far behind costs latency. The
``Date`` header has whole seconds only, but many answers together say more than one: each bounds the
difference between the two clocks, and the clock here keeps the intersection of all these bounds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DRIFT_MAX = 500e-6
"""How many seconds two disciplined clocks may drift apart in a second: 500 ppm is the most that ntpd slews."""

HOST_SPREAD_MAX_S = 0.05
"""How many seconds the clocks of the service's own hosts may be apart before that counts as a jump."""

SERVICE_CLOCK_S = 2.0
"""How many seconds the service's time, as its answers show it, may be ahead of what it is."""


class ServiceClock:
    """Bounds on the service's time, for a local clock that the caller passes in (epoch or monotonic seconds).

    Every ``*_s`` argument is of that one local clock; what comes back is the service's time in epoch seconds.
    With a local epoch clock, ``offset_s`` is the correction that request signatures need.

    An observation that contradicts the earlier ones starts the clock anew from that observation alone: the
    service's clock, or the local one, has jumped.
    """

    __slots__ = ("_at_s", "_offset_max_s", "_offset_min_s", "drift_max", "host_spread_max_s", "observations")

    def __init__(self, *, drift_max: float = DRIFT_MAX, host_spread_max_s: float = HOST_SPREAD_MAX_S) -> None:
        self.drift_max = drift_max
        self.host_spread_max_s = host_spread_max_s
        self.observations = 0
        self._offset_min_s = (
            -math.inf
        )  # service's time minus local time lies in [_offset_min_s, _offset_max_s], as it was at _at_s
        self._offset_max_s = math.inf
        self._at_s = 0.0

    def observe(self, date_epoch_s: int, sent_s: float, received_s: float) -> None:
        """Learn from one answer: its ``Date`` (whole epoch seconds), when it was asked for and when it came.

        The service wrote the date at some moment between the two, when its clock was in [date, date + 1). An
        answer that was received before it was sent (the local clock was set back meanwhile) says nothing and
        is passed over.
        """
        if received_s < sent_s:
            return
        low, high = date_epoch_s - received_s, date_epoch_s + 1 - sent_s
        self.observations += 1
        widened = self._drift_s(received_s)
        kept_low, kept_high = max(self._offset_min_s - widened, low), min(self._offset_max_s + widened, high)
        if kept_low > kept_high + self.host_spread_max_s:
            kept_low, kept_high = low, high
        elif kept_low > kept_high:
            # Two hosts of the service disagree a little: its time lies between what they say.
            kept_low, kept_high = kept_high, kept_low
        self._offset_min_s, self._offset_max_s, self._at_s = kept_low, kept_high, received_s

    @property
    def known(self) -> bool:
        """True once an answer was observed."""
        return self.observations > 0

    def lower(self, now_s: float) -> float:
        """Return the least that the service's clock shows, in epoch seconds; -inf before the first observation."""
        return now_s + self._offset_min_s - self._drift_s(now_s)

    def upper(self, now_s: float) -> float:
        """Return the most that the service's clock shows, in epoch seconds; infinity before the first observation."""
        return now_s + self._offset_max_s + self._drift_s(now_s)

    def near_s(self, now_s: float) -> float:
        """Return the service's time, in epoch seconds, as near as the answers tell it; this machine's before the first
        observation.

        It is at most `SERVICE_CLOCK_S` later than the service's clock shows, however long the answers took: where a
        call took long (a first connection), the middle of the bounds, or a local clock that they allow, may be later.
        """
        return min(now_s + self.offset_s, self._latest_s(now_s)) if self.known else now_s

    def width_s(self, now_s: float) -> float:
        """Return by how many seconds the two bounds of the service's time differ; infinity before the first
        observation.
        """
        return self.upper(now_s) - self.lower(now_s)

    def change_s(self, now_s: float) -> float:
        """Return when the whole second of the service's clock changes next, as a local time from ``now_s`` on: the
        middle of what is possible. Call it on a clock that is known.
        """
        ahead_s = (self.lower(now_s) + self.upper(now_s)) / 2 - now_s
        return math.floor(now_s + ahead_s) + 1 - ahead_s

    @property
    def offset_s(self) -> float:
        """The seconds to add to the local clock to get near the service's; 0.0 before the first observation.

        0.0 as well while the bounds allow that both clocks agree: a clock that is right is not made worse by
        half a second.
        """
        if not self.known or self._offset_min_s <= 0.0 <= self._offset_max_s:
            return 0.0
        return (self._offset_min_s + self._offset_max_s) / 2

    def _latest_s(self, now_s: float) -> float:
        """Return what is surely no more than `SERVICE_CLOCK_S` later than the clock of any host of the service."""
        return self.lower(now_s) - self.host_spread_max_s + SERVICE_CLOCK_S

    def _drift_s(self, now_s: float) -> float:
        """Return how much the clocks may have drifted apart since the last observation, in seconds."""
        return self.drift_max * abs(now_s - self._at_s) if self.known else 0.0


class SteadyEpoch:
    """Epoch seconds: this machine's at the first moment, and from there at a steady pace.

    Setting the machine's clock forward or back changes nothing. What that clock was wrong by at first stays, and a
    `ServiceClock` learns it. That could not follow a clock that is set: the answer to a call during which that happens
    fits the time before and the time after.
    """

    __slots__ = ("_ahead_s", "_steady")

    def __init__(self, steady: Callable[[], float], wall: Callable[[], float]) -> None:
        """``steady`` returns seconds that nothing sets, ``wall`` this machine's epoch seconds, which are asked for
        once.
        """
        self._steady = steady
        self._ahead_s = wall() - steady()

    def __call__(self) -> float:
        """Return the time now, in epoch seconds."""
        return self._steady() + self._ahead_s


SEARCH_WIDTH_S = 0.03
"""How many seconds the bounds of the service's time may differ before a search is worth its calls: a record waits so
much longer at most.
"""
SEARCH_CALLS_MAX = 7
"""Calls of one search: each halves what is not known of the second, and 1 s / 2**6 is below half the width."""
SEARCH_PAUSE_S = 30.0
"""Seconds from one search to the next, where the round trip of a call is longer than the width: more calls would not
tell more.
"""


class ClockSearch:
    """Says when a call is to be made, so that the ``Date`` of its answer tells most about the service's clock.

    Calls at a fixed pace of half seconds always meet the same moments of the service's second, and their dates say the
    same each time: the bounds of the clock stay up to half a second apart, for ever. A call in the middle of the time
    in which the second may change halves what is not known.
    """

    __slots__ = ("_calls", "_rest_s")

    def __init__(self) -> None:
        self._calls = 0
        self._rest_s = -math.inf

    def call_s(self, clock: ServiceClock, now_s: float) -> float | None:
        """Return the local time at which to make one more call; None where the clock is known well enough, or calls
        have not helped, for a while.

        Each time that it returns counts as a call.
        """
        if not clock.known or clock.width_s(now_s) <= SEARCH_WIDTH_S:
            self._calls = 0
            return None
        if self._calls >= SEARCH_CALLS_MAX:
            self._calls, self._rest_s = 0, now_s + SEARCH_PAUSE_S
        if now_s < self._rest_s:
            return None
        self._calls += 1
        return clock.change_s(now_s)
