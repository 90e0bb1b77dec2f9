"""The strategies that say which worker should hold which lease: equal counts, by throughput, fixed lists, or a
function of the program's.

A strategy gets the leases that may be read now and the workers that are present, and answers with a worker's id for
each lease that it wants held. All workers ask the same strategy with the same rows, each does its own part of the
answer, and where they see different rows, the leases' conditional writes let one of them win. So a strategy is a pure
function, and once its answer is carried out, it gives that answer again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shardway.core.assignment.balance import balance
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shardway.core.assignment.views import LeaseView, WorkerView


_UNITS_PER_KIB_S = 1024


class Strategy(Protocol):
    """Says which worker should hold which lease."""

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """Return leases by key to workers by id; no worker holds a lease that is not in the answer.

        A lease has an owner only where that is one of ``workers``. ``preferred`` names, for leases whose parents have
        ended, the worker that read a parent last.
        """


class EqualCounts:
    """Deals out as many leases to each worker, give or take one, with as few moves as possible. It is the default."""

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `Strategy`."""
        return balance(leases, workers, weights={lease.key: 1 for lease in leases}, preferred=preferred)


EQUAL_COUNTS = EqualCounts()


class ByThroughput:
    """Deals out as much to read to each worker.

    A lease weighs what its owner read of late plus ``base_kib_s``, since a silent shard costs something too; one that
    no worker has read yet weighs as much as the mean of the others. Leases move when a worker has more than
    ``tolerance`` (0.1: a tenth) above the mean, which keeps them still while rates swing by less.
    """

    def __init__(self, *, tolerance: float = 0.1, base_kib_s: float = 1.0) -> None:
        faults = []
        if not 0 <= tolerance <= 1:
            faults.append(f"tolerance is a share from 0 to 1, not {tolerance}")
        if not 1 / _UNITS_PER_KIB_S <= base_kib_s <= _UNITS_PER_KIB_S**2:
            faults.append(f"base_kib_s is from 1/1024 to 1024**2 KiB/s, not {base_kib_s}")
        if faults:
            raise OptionError(faults)
        self.tolerance = tolerance
        self.base_kib_s = base_kib_s

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `Strategy`."""
        rates = {lease.key: max(0.0, lease.throughput_kib_s) for lease in leases if lease.throughput_kib_s is not None}
        mean = sum(rates.values()) / len(rates) if rates else 0.0
        weights = {
            lease.key: round((rates.get(lease.key, mean) + self.base_kib_s) * _UNITS_PER_KIB_S) for lease in leases
        }
        return balance(leases, workers, weights=weights, tolerance=self.tolerance, preferred=preferred)


class Fixed:
    """Deals out leases by lists: these leases to this worker.

    A child of a listed shard is for the same worker. ``others`` deals out the leases that are in no list, and the
    leases of a listed worker that is not there. With None, a lease that is in no list stays with the worker of its
    parent, and the leases of a listed worker that is not there wait for that worker.
    """

    def __init__(self, lists: Mapping[str, Iterable[str]], *, others: Strategy | None = EQUAL_COUNTS) -> None:
        """``lists`` has lease keys (shard ids) by worker id. They count more than a worker's ``leases_max``."""
        self._worker_of: dict[str, str] = {}
        faults = []
        for worker, keys in lists.items():
            for key in keys:
                other = self._worker_of.setdefault(key, worker)
                if other != worker:
                    faults.append(f"{key} is in the lists of {other} and {worker}")
        if faults:
            raise OptionError(faults)
        self._other_strategy = others

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `Strategy`."""
        present = {worker.id for worker in workers}
        wanted = {lease.key: self._listed_worker(lease) or self._heir(lease, preferred) for lease in leases}
        chosen = {key: worker for key, worker in wanted.items() if worker in present}
        if self._other_strategy is None:
            return chosen
        rest = [lease for lease in leases if lease.key not in chosen]
        return {**self._other_strategy(rest, workers, preferred), **chosen}

    def _listed_worker(self, lease: LeaseView) -> str | None:
        return next((self._worker_of[key] for key in (lease.key, *lease.parents) if key in self._worker_of), None)

    def _heir(self, lease: LeaseView, preferred: Mapping[str, str]) -> str | None:
        return lease.owner or preferred.get(lease.key) if self._other_strategy is None else None


class Custom:
    """Asks a function of the user's, whose answers are checked.

    The function gets leases and workers, and returns worker ids by lease key. No worker holds a lease that it leaves
    out: the records of that shard wait.
    """

    def __init__(
        self, function: Callable[[Sequence[LeaseView], Sequence[WorkerView]], Mapping[str, str]], *, name: str = ""
    ) -> None:
        self._function = function
        self._name = name or getattr(function, "__qualname__", type(function).__name__)

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], _preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `Strategy`. Raises OptionError for an answer that names what is not there."""
        answer = self._function(leases, workers)
        known = {lease.key for lease in leases}
        present = {worker.id for worker in workers}
        faults = [f"a lease {key!r} that may not be read now, or does not exist" for key in answer if key not in known]
        faults += sorted(
            {f"a worker {worker!r} that is not there" for worker in answer.values() if worker not in present}
        )
        if faults:
            raise OptionError(f"the assignment by {self._name} names {faults[0]} ({len(faults)} faults in all)")
        return dict(answer)
