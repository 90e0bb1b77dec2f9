"""The service clock knows what time it is at the service, as an interval, learnt from the ``Date`` of its answers.

A cut-off that is ahead of the service's clock is refused, and one that is too far behind costs latency. The
``Date`` header has whole seconds only, but many answers together say more than one: each bounds the
difference between the two clocks, and the clock here keeps the intersection of all these bounds.
"""

from __future__ import annotations

import math

DRIFT_MAX = 500e-6
"""Seconds per second by which two disciplined clocks may drift apart: 500 ppm is the most that ntpd slews."""

HOST_SPREAD_MAX_S = 0.05
"""The seconds by which the clocks of the service's own hosts may be apart before that counts as a jump."""


class ServiceClock:
    """Bounds on the service's time, for a local clock that the caller passes in (epoch or monotonic seconds).

    Every ``*_s`` argument is of that one local clock; what comes back is the service's time in epoch seconds.
    With a local epoch clock, ``offset_s`` is the correction that request signatures need.

    An observation that contradicts the earlier ones starts the clock anew from that observation alone: the
    service's clock, or the local one, has jumped. ``resets`` counts this.
    """

    __slots__ = ("_at_s", "_high", "_low", "drift_max", "host_spread_max_s", "observations", "resets")

    def __init__(self, *, drift_max: float = DRIFT_MAX, host_spread_max_s: float = HOST_SPREAD_MAX_S) -> None:
        self.drift_max = drift_max
        self.host_spread_max_s = host_spread_max_s
        self.observations = 0
        self.resets = 0
        self._low = -math.inf  # service's time minus local time lies in [_low, _high], as it was at _at_s
        self._high = math.inf
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
        kept_low, kept_high = max(self._low - widened, low), min(self._high + widened, high)
        if kept_low > kept_high + self.host_spread_max_s:
            self.resets += 1
            kept_low, kept_high = low, high
        elif kept_low > kept_high:
            # Two hosts of the service disagree a little: its time lies between what they say.
            kept_low, kept_high = kept_high, kept_low
        self._low, self._high, self._at_s = kept_low, kept_high, received_s

    @property
    def known(self) -> bool:
        """True once an answer was observed."""
        return self.observations > 0

    def lower(self, now_s: float) -> float:
        """Return the least that the service's clock shows, in epoch seconds; -inf before the first observation."""
        return now_s + self._low - self._drift_s(now_s)

    def upper(self, now_s: float) -> float:
        """Return the most that the service's clock shows, in epoch seconds; infinity before the first observation."""
        return now_s + self._high + self._drift_s(now_s)

    @property
    def offset_s(self) -> float:
        """The seconds to add to the local clock to get near the service's; 0.0 before the first observation.

        0.0 as well while the bounds allow that both clocks agree: a clock that is right is not made worse by
        half a second.
        """
        if not self.known or self._low <= 0.0 <= self._high:
            return 0.0
        return (self._low + self._high) / 2

    def _drift_s(self, now_s: float) -> float:
        """Return how much the clocks may have drifted apart since the last observation, in seconds."""
        return self.drift_max * abs(now_s - self._at_s) if self.known else 0.0
