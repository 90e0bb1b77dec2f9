"""When a connection is asked for a sign of life, and when it counts as dead. There is no I/O in here."""

from __future__ import annotations


class Liveness:
    """Keeps when something was heard of the other side, and the PING that is under way."""

    __slots__ = ("_ping_interval_s", "_ping_timeout_s", "_pinged_s", "_unsent_at_ping", "heard_s")

    def __init__(self, ping_interval_s: float, ping_timeout_s: float, now_s: float) -> None:
        self.heard_s = now_s
        """The time at which anything came last, or was seen to leave."""
        self._ping_interval_s = ping_interval_s
        self._ping_timeout_s = ping_timeout_s
        self._pinged_s: float | None = None
        self._unsent_at_ping = 0

    def is_dead(self, now_s: float, unsent: int) -> bool:
        """True when a PING had no answer in time. ``unsent`` are the connection's bytes that have not left yet: fewer
        than before count as life, because the PING waits behind a slow upload.
        """
        if unsent < self._unsent_at_ping:
            self._unsent_at_ping, self.heard_s = unsent, now_s
        if self._pinged_s is not None and self.heard_s >= self._pinged_s:
            self._pinged_s = None
        return self._pinged_s is not None and now_s >= self._pinged_s + self._ping_timeout_s

    def wants_ping(self, now_s: float) -> bool:
        """True when nothing was heard for long, and no PING is under way."""
        return self._pinged_s is None and now_s >= self.heard_s + self._ping_interval_s

    def note_ping(self, now_s: float, unsent: int) -> None:
        """Take note that a PING was sent; ``unsent`` are the bytes that wait to leave, the PING's own among them."""
        self._pinged_s, self._unsent_at_ping = now_s, unsent

    def due_s(self, now_s: float, *, is_used: bool) -> float:
        """Return when to look again. A connection without requests (``is_used`` is False) is not asked for life."""
        if self._pinged_s is not None:
            return min(now_s + self._ping_interval_s, self._pinged_s + self._ping_timeout_s)
        return (self.heard_s if is_used else now_s) + self._ping_interval_s
