"""The times of a worker that no option sets: they follow from the failover time, or are the same for all programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardway.core.leases.tenure.times import LeaseTimes

if TYPE_CHECKING:
    from shardway.runtime.feeds.fan_out import SubscriptionTimes

MIB = 1024 * 1024
LOOK_INTERVAL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class WorkerTimes:
    """The times that follow from ``failover_s``, or are the same for all programs. No option sets them; tests do."""

    lease: LeaseTimes
    look_interval_s: float
    """How often the worker looks at the other workers' rows."""
    wait_interval_s: float = 0.05
    """How often the worker looks at the other workers' rows while a shard is being handed over."""
    scan_interval_s: float | None = None
    """How often the worker reads all leases when nothing shows sooner that they have changed. None: twice in
    ``failover_s``; five times beside KCL workers, because only their leases show that they live.
    """
    close_grace_s: float = 5.0
    """How long a close may go on after the drain's deadline, for the writes that give the leases away."""
    kcl_look_interval_s: float = 60.0
    """How often the worker looks at the tables that a KCL 3.x fleet has beside the leases."""
    warm_bytes_max: int = 16 * MIB
    """How much a worker reads ahead of a shard that another worker is about to hand over to it."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """Bounds of a `LedgerPolicy` that no option sets."""
    subscriptions: SubscriptionTimes | None = None
    """When a subscription is renewed, given up, and tried again; None: the times that AWS sets."""

    @classmethod
    def of(cls, failover_s: float, **others: Any) -> WorkerTimes:
        """Return the times for a failover time; a dead worker is noticed within a fifth of it."""
        given: dict[str, Any] = {
            "lease": LeaseTimes.of(failover_s),
            "look_interval_s": min(LOOK_INTERVAL_S, failover_s / 5),
        }
        return cls(**(given | others))
