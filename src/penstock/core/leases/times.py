"""The times that rule leases, all of them multiples of one: the failover time F."""

from __future__ import annotations

from dataclasses import dataclass

FAILOVER_S = 10.0
"""The KCL's default too (``failoverTimeMillis``)."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. An owner obeys its own F; a worker that waits for an owner's silence obeys the larger of both."""

    failover_s: float = FAILOVER_S
    """A lease whose counter has not moved for longer may be taken."""
    renew_interval_s: float = FAILOVER_S / 2
    """The time from one confirmed write of an owner to the next."""
    margin_s: float = FAILOVER_S / 20
    """An owner stops delivering as much earlier: for clocks that do not run alike, and a delivery under way."""
    retry_s: float = FAILOVER_S / 40
    """The time after which a write whose outcome is unknown is repeated."""
    unconfirmed_max_s: float = FAILOVER_S * 2
    """A tenure without a confirmed write for as long is over, even if no other worker is known to have the lease."""

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
        """All of them for a failover time, in the proportions of the defaults."""
        return cls(failover_s, failover_s / 2, failover_s / 20, failover_s / 40, failover_s * 2)
