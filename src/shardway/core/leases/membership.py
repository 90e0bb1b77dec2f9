"""One worker knows of the others by looks at their rows: which there are, and which have fallen silent.

**How a lease is taken from a silent worker.** The silent worker may have written to its lease rows since they were last
looked at, so the order counts. The taker first reads the leases. Then it reads, consistently, the owner's worker row,
which must not have moved for F. Then it takes, on condition of the leases as it read them. The owner's fence fell
before that second read. The owner sends a write to the lease that lifts the fence again only after a write to its own
worker row was confirmed. So that write comes after the second read and moves the lease's counter, and either the take
or that write is refused. `WorkerRows.silent` asks for both times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.leases.counters import ObservedCounters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.leases.worker_row import WorkerRow


FORGET_AFTER_FAILOVERS = 60
"""The row of a worker that did not end well is removed when it has not moved for this many failover times."""


class WorkerRows:
    """The knowledge that one worker has of the others, by looks at the table of workers."""

    __slots__ = ("_failover_s", "_observed_counters", "rows", "worker")

    def __init__(self, worker: str, failover_s: float) -> None:
        self.worker = worker
        self._failover_s = failover_s
        self._observed_counters = ObservedCounters()
        self.rows: dict[str, WorkerRow] = {}
        """The rows as they were seen last, without this worker's own."""

    def look(self, rows: Iterable[WorkerRow], now_s: float) -> None:
        """Note all rows as one look showed them, at the time of the answer.

        An old state of the table can make a row seem to have moved: then its worker is waited for anew, which is safe.
        """
        seen = {row.worker_id: row for row in rows}
        for worker_id in self.rows.keys() - seen.keys():
            self._observed_counters.forget(worker_id)
        seen.pop(self.worker, None)
        self.rows = seen
        for row in seen.values():
            # A process that comes back under its former id counts from the start. Its count can meet the one that an
            # old copy of the table shows for the former process, and then a worker that lives would seem to be silent.
            self._observed_counters.look(row.worker_id, row.counter, now_s, owner=row.process)

    def failover_s(self, worker_id: str | None) -> float:
        """Return how long to wait for an owner: the longer of its failover time and ours; ours where it has no worker
        row.

        The same time counts where the counter of the owner's lease decides.
        """
        row = self.rows.get(worker_id or "")
        return self._failover_s if row is None else max(self._failover_s, row.failover_s)

    def unmoved_s(self, worker_id: str, now_s: float) -> float:
        """Return how many seconds a worker's row was seen to stand still."""
        return self._observed_counters.unmoved_s(worker_id, now_s)

    def quiet(self, now_s: float) -> list[str]:
        """Return the workers whose rows have not moved for their failover time, as far as is known: a reason to look
        closer.
        """
        return [one for one in self.rows if self._observed_counters.unmoved_s(one, now_s) > self.failover_s(one)]

    def silent(self, *, leases_answered_s: float, look_sent_s: float, now_s: float) -> list[str]:
        """Return the workers whose leases may be taken, by their counters as they were read.

        Call it after `look` with a *consistent* read of the workers, sent at ``look_sent_s``, after a consistent read
        of the leases was answered at ``leases_answered_s``. Raises ValueError for the other order.
        """
        if look_sent_s < leases_answered_s:
            raise ValueError("the workers must be looked at after the leases were read")
        return self.quiet(now_s)

    def forgettable(self, now_s: float) -> list[WorkerRow]:
        """Return the rows to be removed, each on condition of its counter."""
        return [
            row
            for one, row in self.rows.items()
            if self._observed_counters.unmoved_s(one, now_s) > FORGET_AFTER_FAILOVERS * self.failover_s(one)
        ]
