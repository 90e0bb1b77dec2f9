"""The rows that a KCL 3.x fleet keeps besides leases, as plain attributes: those that are read, and the one that a
Shardway worker writes.

``Migration3.0`` and ``TableMigration3.5`` say how the fleet works and where its rows are. ``Leader`` names its leader.
A metrics row per worker shows to the leader that it lives and how busy it is. Shapes: KCL 3.5.1 (``MigrationState``,
``WorkerMetricStats``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Coordination, Place
from shardway.core.leases.row import ENTITY, KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Rows = Mapping[str, Mapping[str, Any]]


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
