"""The times that rule leases are all multiples of one: the failover time F."""

from __future__ import annotations

from dataclasses import dataclass

FAILOVER_S = 10.0
"""The failover time by default, in seconds; the KCL has the same default (``failoverTimeMillis``)."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease in seconds. An owner obeys its own F; a worker that waits for an owner's silence obeys the
    larger of both.
    """

    failover_s: float = FAILOVER_S
    """Another worker may take a lease whose counter has not moved for longer than this."""
    renew_interval_s: float = FAILOVER_S / 2
    """The time from one confirmed write of an owner to the next."""
    margin_s: float = FAILOVER_S / 20
    """An owner stops delivering this much earlier. The margin covers clocks that do not run alike, and a delivery that
    is under way.
    """
    retry_s: float = FAILOVER_S / 40
    """The time after which an owner repeats a write whose outcome is unknown."""
    unconfirmed_max_s: float = FAILOVER_S * 2
    """An owner gives up a lease of which no write was confirmed for this long, even if no other worker is known to have
    it.
    """

    def __post_init__(self) -> None:
        faults = [name for name in self.__slots__ if getattr(self, name) < 0]
        if faults:
            raise ValueError(f"a time is not negative: {', '.join(faults)}")
        if not self.renew_interval_s < self.failover_s - self.margin_s:
            raise ValueError("a lease is renewed before its fence falls: renew_interval_s < failover_s - margin_s")
        if self.unconfirmed_max_s < self.failover_s:
            raise ValueError("unconfirmed_max_s is at least failover_s: until then no worker may have taken the lease")

    @classmethod
    def of(cls, failover_s: float) -> LeaseTimes:
        """Return all times for a failover time, in the proportions of the defaults."""
        return cls(failover_s, failover_s / 2, failover_s / 20, failover_s / 40, failover_s * 2)
