"""The kind of fleet that a worker is in: alone, or with workers of the KCL 2.x or 3.x.

The KCL 3.x writes down its mode in the row ``Migration3.0``, which stays when its workers are gone for good. So a mode
counts only while a KCL worker lives: workers of the 3.x show themselves by their metrics rows, which all of them write
each 30 s; those of the 2.x by the counters of their leases alone.

The KCL's own rule is that a metrics row may miss a beat. A worker that stops leaves its row behind, and as long as that
row counts, shards stand still because no leader assigns them. But a leader deletes its leader row when it stops, and a
live worker becomes leader soon. So where there is no leader, a metrics row that misses a beat belongs to a worker that
is gone. If that worker lives all the same, it becomes leader, and all workers follow it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shardway.core.assignment.views import LeaseView

    Rows = Mapping[str, Mapping[str, Any]]


REPORT_INTERVAL_S = 30.0
"""The time between two writes of a worker's metrics row, by default (``workerMetricsReporterFreqInMillis``)."""
CLOCKS_APART_MAX_S = 300.0
"""How wrong another machine's clock is believed to be at most, when a metrics row is seen for the first time."""

_BECOMES_3X = "CLIENT_VERSION_UPGRADE_FROM_2X"
_TAKES_FOR_ITSELF = frozenset({"CLIENT_VERSION_INIT", "CLIENT_VERSION_2X", _BECOMES_3X})
_MIGRATION_DONE = "TABLE_MIGRATION_STATUS_COMPLETE"

_NOBODY: Mapping[str, int] = MappingProxyType({})


class Fleet(StrEnum):
    """The kind of fleet, which decides the rules that assign leases."""

    ALONE = "alone"
    KCL2 = "kcl 2.x"
    """The workers of the KCL 2.x: each takes and steals for itself."""
    KCL3 = "kcl 3.x"
    """The workers of the KCL 3.x: a leader assigns."""


class Place(StrEnum):
    """The places where a KCL 3.x fleet keeps the rows that are no leases."""

    OWN_TABLES = "own tables"
    """The tables ``<application>-CoordinatorState`` and ``-WorkerMetricStats``: applications that started on 3.0 to
    3.4.
    """
    LEASE_TABLE = "lease table"
    """The lease table, where ``entityType`` tells the rows apart: from 3.5 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """The KCL 3.x's rows in one of the two places."""

    client_version: str | None = None
    """The value ``cv`` of the row ``Migration3.0``; None: there is no such row."""
    table_migration: str | None = None
    """The value ``tm`` of the row ``TableMigration3.5``."""
    updated_epoch_s: Mapping[str, int] = field(default_factory=lambda: _NOBODY, hash=False)
    """The values ``lut`` of the metrics rows, by worker id."""
    has_leader: bool = False
    """True when there is a row of a leader that has not given up its place. The leader may be dead."""
    show_cpu: frozenset[str] = frozenset()
    """The workers whose metrics rows show how busy their processors are."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The fleet that was found, and the places of its metrics rows."""

    fleet: Fleet
    metrics_in: tuple[Place, ...] = ()
    """The places where a worker has to show itself to the leader, and may: in a KCL 3.x fleet, while it moves its
    tables in both; and in a fleet that is to become one, in tables of its own only. In the lease table it would break
    the 2.x workers.
    """


class FleetWatch:
    """Looks at the tables at intervals (each minute) and says which fleet it is."""

    def __init__(self, *, failover_s: float, report_interval_s: float = REPORT_INTERVAL_S) -> None:
        self._failover_s = failover_s
        # The KCL leader's own rule is that a metrics row that has not moved for this long is a dead worker's.
        self._stale_s = 2 * report_interval_s
        self._missed_s = min(self._stale_s, report_interval_s + failover_s)
        self.is_asleep = False
        """True in a fleet without a leader, while none of its leases moves: only metrics rows show whether it lives."""
        self._seen_updates: dict[str, tuple[int, float]] = {}  # Each worker's last update, and when first seen here.

    def look(
        self,
        now_s: float,
        now_epoch_s: float,
        *,
        own_tables: Coordination | None,
        lease_table: Coordination,
        leases: Iterable[LeaseView],
        shardway_workers: Collection[str],
    ) -> Finding:
        """Find out the fleet. ``now_s`` is monotonic, ``now_epoch_s`` the wall clock; None for tables that do not
        exist.

        ``shardway_workers`` are all that have a worker row, also the dead. An owner of a lease that is not among them
        is a KCL worker.
        """
        places = {Place.LEASE_TABLE: lease_table}
        if own_tables is not None:
            places[Place.OWN_TABLES] = own_tables
        modes = {place: rows.client_version for place, rows in places.items() if rows.client_version is not None}
        strangers = {
            lease.owner
            for lease in leases
            if lease.owner is not None
            and lease.owner not in shardway_workers
            and not lease.ended  # An ended lease keeps its last owner's name, long after that one left.
            and lease.unmoved_s <= self._failover_s
        }
        has_leader = any(rows.has_leader for rows in places.values())
        silent_max_s = self._stale_s if has_leader else self._missed_s
        reporting = self._has_reports(now_s, now_epoch_s, places.values(), shardway_workers, silent_max_s)
        self.is_asleep = bool(modes) and reporting and not has_leader and not strangers
        if modes and not _TAKES_FOR_ITSELF.issuperset(modes.values()) and (strangers or reporting):
            # A mode that this version does not know counts as the 3.x too: a worker that takes nothing does no harm.
            return Finding(Fleet.KCL3, _current(modes, places))
        if not strangers:
            return Finding(Fleet.ALONE)
        # The KCL changes over only when each owner of a lease has written its metrics row for long enough.
        becoming = modes.get(Place.OWN_TABLES) == _BECOMES_3X
        return Finding(Fleet.KCL2, (Place.OWN_TABLES,) if becoming else ())

    def _has_reports(
        self,
        now_s: float,
        now_epoch_s: float,
        places: Iterable[Coordination],
        shardway_workers: Collection[str],
        silent_max_s: float,
    ) -> bool:
        """True if a KCL worker's metrics row moves, or may move: it was seen too late to know."""
        updated: dict[str, int] = {}
        for rows in places:
            for worker, at in rows.updated_epoch_s.items():
                if worker not in shardway_workers:
                    updated[worker] = max(at, updated.get(worker, at))
        before, self._seen_updates = self._seen_updates, {}
        for worker, at in updated.items():
            last = before.get(worker)
            if last is None and at < now_epoch_s - self._stale_s - CLOCKS_APART_MAX_S:
                last = (at, now_s - self._stale_s - 1)
            self._seen_updates[worker] = last if last is not None and last[0] == at else (at, now_s)
        return any(now_s - since_s <= silent_max_s for _, since_s in self._seen_updates.values())


def _current(modes: Mapping[Place, str], places: Mapping[Place, Coordination]) -> tuple[Place, ...]:
    if any(rows.table_migration == _MIGRATION_DONE for rows in places.values()):
        return (Place.LEASE_TABLE,)
    return tuple(place for place in Place if place in modes)
