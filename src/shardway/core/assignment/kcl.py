"""A fleet with KCL workers has rules of its own: here is which kind of fleet a worker is in, and what the worker does
there.

Shardway workers are alone, or with KCL 2.x workers, and do as those do; or they are with KCL 3.x workers, of which one
leads, and do as that one says.

The KCL 3.x writes down its mode in the row ``Migration3.0``, which stays when its workers are gone for good. So a mode
counts only while a KCL worker lives: workers of the 3.x show themselves by their metrics rows, which all of them write
each 30 s; those of the 2.x by the counters of their leases alone.

The KCL's own rule is that a metrics row may miss a beat. A worker that stops leaves its row behind, and as long as that
row counts, shards stand still because no leader assigns them. But a leader deletes its leader row when it stops, and a
live worker becomes leader soon. So where there is no leader, a metrics row that misses a beat belongs to a worker that
is gone. If that worker lives all the same, it becomes leader, and all workers follow it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.strategies import startable
from shardway.core.leases.row import ENTITY, KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from random import Random

    from shardway.core.assignment.strategies import LeaseView, WorkerView

    Rows = Mapping[str, Mapping[str, Any]]

REPORT_INTERVAL_S = 30.0
"""The time between two writes of a worker's metrics row, by default (``workerMetricsReporterFreqInMillis``)."""
CLOCKS_APART_MAX_S = 300.0
"""The most by which another machine's clock is believed to be off, when a metrics row is seen for the first time."""

_BECOMES_3X = "CLIENT_VERSION_UPGRADE_FROM_2X"
_TAKES_FOR_ITSELF = frozenset({"CLIENT_VERSION_INIT", "CLIENT_VERSION_2X", _BECOMES_3X})
_MOVED = "TABLE_MIGRATION_STATUS_COMPLETE"

_NOBODY: Mapping[str, int] = MappingProxyType({})


class Fleet(StrEnum):
    """The kind of fleet, which decides by which rules leases are assigned."""

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
        """True in a fleet that has no leader, and of which no lease moves: only metrics rows show whether it lives."""
        self._seen: dict[str, tuple[int, float]] = {}  # Each worker's last update, and when first seen here.

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
        reporting = self._reporting(now_s, now_epoch_s, places.values(), shardway_workers, silent_max_s)
        self.is_asleep = bool(modes) and reporting and not has_leader and not strangers
        if modes and not _TAKES_FOR_ITSELF.issuperset(modes.values()) and (strangers or reporting):
            # A mode that this version does not know counts as the 3.x too: a worker that takes nothing does no harm.
            return Finding(Fleet.KCL3, _current(modes, places))
        if not strangers:
            return Finding(Fleet.ALONE)
        # The KCL changes over only when each owner of a lease has written its metrics row for long enough.
        becoming = modes.get(Place.OWN_TABLES) == _BECOMES_3X
        return Finding(Fleet.KCL2, (Place.OWN_TABLES,) if becoming else ())

    def _reporting(
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
        before, self._seen = self._seen, {}
        for worker, at in updated.items():
            last = before.get(worker)
            if last is None and at < now_epoch_s - self._stale_s - CLOCKS_APART_MAX_S:
                last = (at, now_s - self._stale_s - 1)
            self._seen[worker] = last if last is not None and last[0] == at else (at, now_s)
        return any(now_s - since_s <= silent_max_s for _, since_s in self._seen.values())


def _current(modes: Mapping[Place, str], places: Mapping[Place, Coordination]) -> tuple[Place, ...]:
    if any(rows.table_migration == _MOVED for rows in places.values()):
        return (Place.LEASE_TABLE,)
    return tuple(place for place in Place if place in modes)


# --- the rows that tell ---------------------------------------------------------------------------
# A KCL 3.x fleet keeps rows besides leases, as plain attributes: those that are read, and the one that we write.
#
# ``Migration3.0`` and ``TableMigration3.5`` say how the fleet works and where its rows are. ``Leader`` names its
# leader. A metrics row per worker shows to the leader that it lives and how busy it is. Shapes: KCL 3.5.1
# (``MigrationState``, ``WorkerMetricStats``).


COORDINATOR_KEY = "key"
"""The key of a row in a table ``-CoordinatorState``."""
METRICS_KEY = "wid"
"""The key of a row in a table ``-WorkerMetricStats``."""
METRICS_ENTITY = "WORKER_METRIC_STATS"
UPDATED = "lut"
SAMPLES = "sts"
CPU = "C"
CPU_MAX = 100
SAMPLES_MAX = 10
"""The most samples in a metrics row of how busy the processors are, each a percentage."""

_MIGRATION = "Migration3.0"
_TABLE_MIGRATION = "TableMigration3.5"
_LEADER = "Leader"
_SUPPORTS_ONE_TABLE = 1


def beside_leases(foreign: Rows) -> Coordination:
    """Read the rows of a lease table that are no leases, by their keys."""
    metrics = {key: row for key, row in foreign.items() if row.get(ENTITY) == METRICS_ENTITY}
    return coordination(foreign, metrics)


def coordination(states: Rows, metrics: Rows) -> Coordination:
    """Read coordinator rows and metrics rows, by their keys. What cannot be read is left out."""
    updated = {key: row[UPDATED] for key, row in metrics.items() if isinstance(row.get(UPDATED), int)}
    samples = {key: row.get(SAMPLES) for key, row in metrics.items()}
    return Coordination(
        client_version=_text(states, _MIGRATION, "cv"),
        table_migration=_text(states, _TABLE_MIGRATION, "tm"),
        updated_epoch_s=updated,
        # A lock that was given up, not taken away, says so (amazon-dynamodb-lock-client).
        has_leader=_text(states, _LEADER, "ownerName") is not None and "isReleased" not in states[_LEADER],
        show_cpu=frozenset(key for key, one in samples.items() if isinstance(one, dict) and CPU in one),
    )


def metrics_row(place: Place, worker_id: str, epoch_s: float, cpu_percents: Sequence[float] = ()) -> dict[str, Any]:
    """Return the metrics row of a worker. Without ``cpu_percents`` (the oldest first) the leader goes by what
    is read.
    """
    now = int(epoch_s)
    row: dict[str, Any] = {
        UPDATED: now,
        SAMPLES: {CPU: [float(one) for one in cpu_percents[-SAMPLES_MAX:]]} if cpu_percents else {},
        "opr": {CPU: [CPU_MAX]} if cpu_percents else {},
        "sup": _SUPPORTS_ONE_TABLE,
        "slu": now,
    }
    if place is Place.OWN_TABLES:
        return {METRICS_KEY: worker_id, **row}
    return {KEY: worker_id, ENTITY: METRICS_ENTITY, **row}


def _text(rows: Rows, key: str, name: str) -> str | None:
    value = rows.get(key, {}).get(name)
    return value if isinstance(value, str) else None


# --- KCL 2.x --------------------------------------------------------------------------------------
# A fleet that has some workers of the KCL 2.x takes and steals as these do (its ``DynamoDBLeaseTaker``).
#
# Each worker decides for itself: it looks at the owners of those leases whose counters move. Shardway workers do
# better among each other than the KCL's workers do, since they see each other's rows: a worker without a lease counts
# too, two of them do not go for the same lease at the same time, and a lease of one is asked for and handed over, not
# stolen.

VERY_OLD_FAILOVERS = 3
"""The failover times after which a lease that no worker has renewed or taken is taken by any worker with room for it,
also by a worker that has its target already.
"""


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a worker in one round. All its entries are lease keys."""

    take: tuple[str, ...] = ()
    """The leases that no worker renews, and this worker takes."""
    steal: tuple[str, ...] = ()
    """The leases that a KCL worker has too many of: they are taken from it by a write that moves their counters."""
    ask: tuple[str, ...] = ()
    """The leases that a Shardway worker has too many of: it is asked to hand them over."""


def moves(
    leases: Iterable[LeaseView],
    workers: Iterable[WorkerView],
    me: str,
    rng: Random,
    *,
    failover_s: float,
    leases_max: int | None = None,
    steal_max: int = 1,
) -> Moves:
    """Return the moves of one round of worker ``me``.

    As in the KCL, leases of shards that have ended count until they are deleted. ``workers`` are the Shardway workers;
    of the KCL's only those are known that own a lease.
    """
    return _Round(list(leases), list(workers), me, rng, failover_s, leases_max).moves(steal_max)


def grants(
    leases: Iterable[LeaseView], workers: Iterable[WorkerView], me: str, asker: str, *, failover_s: float
) -> bool:
    """True when ``me`` may hand one of its leases to the Shardway worker that asks: by the rule by which it asks."""
    seen = _Round(list(leases), list(workers), asker, None, failover_s, None)
    surplus = seen.held[me] - seen.target
    return seen.need > (0 if surplus > 0 else 1) and surplus >= 0


class _Round:
    """The leases that each worker has in this round, and how many each should have."""

    def __init__(
        self,
        leases: Sequence[LeaseView],
        workers: Sequence[WorkerView],
        me: str,
        rng: Random | None,
        failover_s: float,
        leases_max: int | None,
    ) -> None:
        self.me = me
        self.rng = rng
        self.failover_s = failover_s
        self.ours = sorted({worker.id for worker in workers if worker.present} | {me})
        self.avoids = next((worker.avoids for worker in workers if worker.id == me), frozenset())
        self.available: list[LeaseView] = []
        self.renewed: list[LeaseView] = []
        failovers = {worker.id: worker.failover_s for worker in workers}
        readable = {lease.key for lease in startable(leases)}
        for lease in sorted(leases, key=lambda lease: lease.key):
            wait_s = max(failover_s, failovers.get(lease.owner or "", failover_s))
            if lease.owner is not None and (lease.owner == me or lease.unmoved_s <= wait_s):
                self.renewed.append(lease)
            elif lease.key in readable:  # The KCL takes what it cannot read, or has read, too.
                self.available.append(lease)
        self.held = Counter(lease.owner for lease in self.renewed if lease.owner is not None)
        everybody = {*self.held, *self.ours}
        self.target = 1 if len(everybody) >= len(leases) else ceil(len(leases) / len(everybody))
        self.room = (len(leases) if leases_max is None else leases_max) - self.held[me]
        self.need = min(self.target - self.held[me], self.room)

    def moves(self, steal_max: int) -> Moves:
        if self.room <= 0:
            return Moves()
        if self.available:
            return Moves(take=self._to_take())
        victim = max(self.held, key=lambda worker: (self.held[worker], worker), default=self.me)
        surplus = self.held[victim] - self.target
        if self.need <= 0 or victim == self.me or surplus < 0:
            return Moves()
        # An owner that has exactly the target loses a lease only to a worker that lacks more than one: else the two
        # would swap their places, and the lease would move back and forth.
        count = min(self.need, surplus) or (1 if self.need > 1 else 0)
        theirs = [lease.key for lease in self.renewed if lease.owner == victim and not lease.ended]
        if victim in self.ours:
            return Moves(ask=self._share_of(theirs, surplus, count))
        return Moves(steal=self._share_of(theirs, surplus, min(count, steal_max)))

    def _to_take(self) -> tuple[str, ...]:
        keys = [lease.key for lease in self.available]
        very_old_s = VERY_OLD_FAILOVERS * self.failover_s
        very_old = [
            lease.key for lease in self.available if lease.unmoved_s > very_old_s and lease.key not in self.avoids
        ]
        chosen = self._share_of(keys, len(keys), self.need)
        return tuple(dict.fromkeys([*chosen, *very_old]))[: self.room]

    def _share_of(self, keys: Sequence[str], surplus: int, count: int) -> tuple[str, ...]:
        """Return the part of worker ``me`` of the leases that several Shardway workers go for: every n-th, from its
        place on.

        When no other worker is in need, it chooses at random among all of them, as a KCL worker does.
        """
        if count <= 0:
            return ()
        in_need = [worker for worker in self.ours if self.held[worker] < self.target]
        place = in_need.index(self.me)
        if place >= max(surplus, 1):
            return ()
        mine = [key for key in keys[place :: len(in_need)] if key not in self.avoids]
        if len(in_need) == 1 and self.rng is not None:
            self.rng.shuffle(mine)
        return tuple(mine[:count])


# --- KCL 3.x --------------------------------------------------------------------------------------
# In a KCL 3.x fleet the leader alone assigns leases. A follower never takes one.
#
# The leader writes the name of the new owner into the lease's row. It does so at once for a lease that is free or
# whose owner is silent. Where a live owner reads the shard, it writes the name of the next owner beside that of the
# present one, and the present owner hands over.


class Step(StrEnum):
    """The steps of a worker with a lease."""

    NOTHING = "nothing"
    READ = "read"
    """The lease is assigned to this worker: adopt it, unless it is held already."""
    WARM_UP = "warm up"
    """This worker is the next owner; the present one still reads."""
    HAND_OVER = "hand over"
    """The leader has named a next owner: drain, checkpoint, and give the lease to that worker, within 30 s.

    That is the KCL's ``gracefulLeaseHandoffTimeout``: its leader forces the move a failover time later.
    """
    CONFIRM = "confirm"
    """The row says that this worker hands over to itself: it keeps the lease, and ends that in one write."""


def step(lease: LeaseView, me: str) -> Step:
    """Return what worker ``me`` does with this lease now.

    The lease may have ended: the KCL keeps its row, with an owner, until it is cleaned up, and hands over none.
    """
    if lease.ended:
        return Step.NOTHING
    if lease.owner == me:
        if lease.next_owner is None:
            return Step.READ
        return Step.CONFIRM if lease.next_owner == me else Step.HAND_OVER
    return Step.WARM_UP if lease.next_owner == me else Step.NOTHING


def steps(leases: Iterable[LeaseView], me: str) -> dict[str, Step]:
    """Return the steps for many leases, without those that are none of ``me``'s business."""
    found = {lease.key: step(lease, me) for lease in leases}
    return {key: one for key, one in found.items() if one is not Step.NOTHING}
