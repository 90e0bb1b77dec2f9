"""A worker's own row: it shows to the others which leases the worker holds, wants and gives.

The rows lie in a table of their own, which no KCL reads. A worker writes its row every F/5 and at every change; the
counter in it grows with each write. The table refuses a write that arrives after a newer one of the same process: it
would make a dead worker seem to live, and leases would be given to that worker.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardway.core.leases.row import COUNTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


WORKER_ID = "workerId"
VERSION = "version"
FAILOVER_MILLIS = "failoverMillis"
HELD = "held"
WANTED = "wanted"
GIVEN = "given"
WARM = "warm"
LEAVING = "leaving"
LEASES_MAX = "leasesMax"
AVOIDS = "avoids"
STREAM = "stream"
APPLICATION = "application"
PROCESS = "process"
WRITTEN_MILLIS = "writtenMillis"
UNSETTLED = "unsettled"

WRITES_PER_FAILOVER = 5
"""The least number of times that a worker writes its row within the failover time."""

UNSETTLED_FROM_S = 10.0
"""A row names a lease whose oldest unsettled record has been the oldest for this time, and no other one: a worker that
makes progress writes no more than before.
"""
UNSETTLED_LEASES_MAX = 200
"""The leases that a row names so: those with the oldest records. It bounds the row's size."""

_NONE: Mapping[str, str] = MappingProxyType({})
_NONE_UNSETTLED: Mapping[str, float] = MappingProxyType({})


class NotAWorkerError(ValueError):
    """A row of the table of workers cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """One worker, as it shows itself to the others. Its leases are named by their keys."""

    worker_id: str
    """The worker's id, unique among all processes that live at the same time."""
    counter: int = 0
    failover_s: float
    """The worker's own F: others wait for it at least as long."""
    version: str = ""
    """The version of the program, for rolling upgrades."""
    held: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()
    given: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    """The worker that is to receive each lease."""
    warm: frozenset[str] = frozenset()
    """The leases of others that the worker could go on with at once."""
    leaving: bool = False
    """True: the worker hands over what it holds, and takes nothing."""
    leases_max: int | None = None
    """The most leases that the worker will hold."""
    avoids: frozenset[str] = frozenset()
    """The leases that the worker gave up and will not have back for now."""
    stream: str = ""
    """The ARN of the one stream that the worker reads, where lease keys do not name it; else nothing."""
    application: str = ""
    """The application whose row it is, where the table is for one application and does not know which; else nothing."""

    process: str = ""
    """The process of this id, as leases name it (`shardway.core.leases.row.process_name`)."""
    written_ms: int | None = None
    """When the row was written, by the service's time (epoch milliseconds). It is for those that look from outside: no
    worker compares it, since each worker times the counters of others on its own clock. None: a version wrote the row
    that did not say it.
    """
    unsettled: Mapping[str, float] = field(default_factory=lambda: _NONE_UNSETTLED, hash=False)
    """The seconds, by lease keys, for which the oldest record that is fetched and not settled has been the oldest one.
    A lease that makes progress is not named (`UNSETTLED_FROM_S`).
    """

    def next(self) -> WorkerRow:
        """Return the row as it is written next."""
        return replace(self, counter=self.counter + 1)

    def is_newer_than(self, row: WorkerRow) -> bool:
        """True when the same process has written this row after ``row``. Where a row does not name its process, its
        counter does not say which of the two is newer.
        """
        return bool(row.process) and self.process == row.process and self.counter > row.counter

    def attributes(self) -> dict[str, Any]:
        """Return the plain attributes: str, int and frozenset[str]; empty ones are absent."""
        values: dict[str, Any] = {
            WORKER_ID: self.worker_id,
            COUNTER: self.counter,
            FAILOVER_MILLIS: round(self.failover_s * 1000),
            VERSION: self.version,
            HELD: self.held,
            WANTED: self.wanted,
            GIVEN: json.dumps(dict(self.given), sort_keys=True) if self.given else "",
            WARM: self.warm,
            LEAVING: "yes" if self.leaving else "",
            LEASES_MAX: "" if self.leases_max is None else self.leases_max,
            AVOIDS: self.avoids,
            STREAM: self.stream,
            APPLICATION: self.application,
            PROCESS: self.process,
            WRITTEN_MILLIS: "" if self.written_ms is None else self.written_ms,
            UNSETTLED: json.dumps(dict(self.unsettled), sort_keys=True) if self.unsettled else "",
        }
        return {name: value for name, value in values.items() if isinstance(value, int) or value}


def worker_row(attributes: Mapping[str, Any]) -> WorkerRow:
    """Make a worker's row of plain attributes. Raises NotAWorkerError."""
    try:
        return WorkerRow(
            worker_id=attributes[WORKER_ID],
            counter=int(attributes[COUNTER]),
            failover_s=int(attributes[FAILOVER_MILLIS]) / 1000,
            version=attributes.get(VERSION, ""),
            held=frozenset(attributes.get(HELD, ())),
            wanted=frozenset(attributes.get(WANTED, ())),
            given=MappingProxyType(json.loads(attributes.get(GIVEN) or "{}")),
            warm=frozenset(attributes.get(WARM, ())),
            leaving=bool(attributes.get(LEAVING)),
            leases_max=None if attributes.get(LEASES_MAX) is None else int(attributes[LEASES_MAX]),
            avoids=frozenset(attributes.get(AVOIDS, ())),
            stream=attributes.get(STREAM) or "",
            application=attributes.get(APPLICATION) or "",
            process=attributes.get(PROCESS) or "",
            written_ms=_millis_of(attributes.get(WRITTEN_MILLIS)),
            unsettled=_unsettled_of(attributes.get(UNSETTLED)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as fault:
        raise NotAWorkerError(f"the row {attributes.get(WORKER_ID)!r} cannot be read: {fault!r}") from fault


def longest_unsettled(seconds: Mapping[str, float]) -> Mapping[str, float]:
    """Return what a worker's row says of these leases: those that make no progress, whole seconds, within the bound."""
    stands = sorted(
        ((key, float(int(one_s))) for key, one_s in seconds.items() if one_s >= UNSETTLED_FROM_S),
        key=lambda one: (-one[1], one[0]),
    )
    return MappingProxyType(dict(stands[:UNSETTLED_LEASES_MAX])) if stands else _NONE_UNSETTLED


def _unsettled_of(text: object) -> Mapping[str, float]:
    # No worker acts on it, so what cannot be read of it must not hide the row, and with it the worker.
    try:
        found = json.loads(text) if isinstance(text, str) and text else {}
        return MappingProxyType({str(key): float(seconds) for key, seconds in found.items()})
    except (AttributeError, TypeError, ValueError, RecursionError):
        return _NONE_UNSETTLED


def _millis_of(value: object) -> int | None:
    return value if isinstance(value, int) else None


def worker_rows(items: Iterable[Mapping[str, Any]]) -> list[WorkerRow]:
    """Return all rows that can be read: the row of one worker, of a later version perhaps, must not hide the others."""
    rows = []
    for item in items:
        with contextlib.suppress(NotAWorkerError):
            rows.append(worker_row(item))
    return rows
