"""The strategies that say which worker should hold which lease: equal counts, by throughput, fixed lists, or a
function of the user's; and what they are given, leases and workers as an observer sees them.

A strategy gets the leases that may be read now and the workers that are present, and answers with a worker's id for
each lease that it wants held. All workers ask the same strategy with the same rows, each does its own part of the
answer, and where they see different rows, the leases' conditional writes let one of them win. So a strategy is a
pure function, and once its answer is carried out, it gives that answer again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from shardway.core.leases.row import Checkpoint, LeaseKey
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from shardway.core.leases.membership import WorkerRow
    from shardway.core.leases.row import LeaseRow


# --- what strategies are given --------------------------------------------------------------------
# A view is a lease or a worker as an observer sees it at one time, in whatever kind of row.

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease as an observer sees it. Keys of leases stand for shards throughout, also among parents and children."""

    key: str
    owner: str | None = None
    """The worker that may read the lease now; for a lease that has ended, the worker that read its last record. None:
    free.
    """
    next_owner: str | None = None
    """The worker that the KCL 3.x's leader wants the lease handed over to."""
    ended: bool = False
    """True when the shard is read to its end."""
    started: bool = True
    """False while the checkpoint still says where to begin."""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """The keys of the children that the row names; empty until a worker writes them."""
    unmoved_s: float = 0.0
    """The seconds for which the observer has seen the counter stand still; 0 when it sees it for the first time."""
    throughput_kib_s: float | None = None
    """The rate that the owner read of late, in KiB/s. None: not known."""
    hash_range: tuple[int, int] | None = None
    """The hash range of the shard; both bounds belong to it. None: the row does not name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A Shardway worker, as its row shows it."""

    id: str
    alive: bool = True
    """False once the worker's row has not moved for the failover time."""
    leaving: bool = False
    """True: the worker hands over what it holds, and takes nothing."""
    failover_s: float = 0.0
    """The worker's own failover time: another worker takes its leases only after at least as long a silence."""
    unmoved_s: float = 0.0
    """The seconds for which the observer has seen the worker's row stand still."""
    leases_max: int | None = None
    """The most leases that the worker will hold."""
    avoids: frozenset[str] = frozenset()
    """The leases that the worker gave up and will not have back for now."""
    wants: frozenset[str] = frozenset()
    """The leases of others that the worker asks for, or has agreed to receive."""
    gives: Mapping[str, str] = field(default_factory=lambda: _NONE, hash=False)
    """The leases that the worker is about to hand over, and the worker that gets each."""
    warm: frozenset[str] = frozenset()
    """The leases that the worker could deliver from at once."""
    process: str | None = None
    """The process of the worker's id; None: its row does not name it."""

    @property
    def present(self) -> bool:
        """True when leases may go to the worker."""
        return self.alive and not self.leaving


def startable(leases: Iterable[LeaseView]) -> list[LeaseView]:
    """Return the leases that may be read now: not ended, and each parent is absent or ended (as the KCL has it)."""
    listed = list(leases)
    reading = {lease.key for lease in listed if not lease.ended}
    return [lease for lease in listed if lease.key in reading and reading.isdisjoint(lease.parents)]


ABANDONED_FAILOVERS = 3
"""The failover times after which a lease whose counter has not moved is free though its owner lives.

The owner stopped delivering after one failover time and gave the lease up after two. It could not write that into the
row, or it has forgotten the lease.
"""


def is_free(lease: LeaseView, workers: Mapping[str, WorkerView], failover_s: float) -> bool:
    """True when any worker may take the lease: it has no owner, a dead one, or one that has given it up.

    A Shardway worker is dead when its row says so. Of others nothing is known but the lease's own counter.
    """
    if lease.owner is None:
        return True
    worker = workers.get(lease.owner)
    if worker is None:
        return lease.unmoved_s > failover_s
    return not worker.alive or lease.unmoved_s > ABANDONED_FAILOVERS * max(failover_s, worker.failover_s)


# --- views of rows --------------------------------------------------------------------------------
# Rows, and what was observed of them, become the views that decisions look at.

_NOT_BEGUN = (Checkpoint.AT_TIMESTAMP, Checkpoint.TRIM_HORIZON)


def lease_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """Return the view of a lease. ``unmoved_s``: for how long the observer has seen the row's counter stand still."""
    known = row.first_hash_key is not None and row.last_hash_key is not None
    return LeaseView(
        key=row.key,
        owner=row.actual_owner,
        next_owner=row.handoff_to,
        ended=row.ended,
        # The KCL counts so when it cleans up: LATEST is as good as a position.
        started=row.checkpoint not in _NOT_BEGUN,
        parents=_keys(row, row.parents),
        children=_keys(row, row.children),
        unmoved_s=unmoved_s,
        throughput_kib_s=row.throughput_kib_s,
        hash_range=(row.first_hash_key or 0, row.last_hash_key or 0) if known else None,
    )


def shard_view(row: LeaseRow, unmoved_s: float = 0.0) -> LeaseView:
    """Return the view of a lease by the bare ids of shards, for what looks at one stream's lineage (births, served,
    holes).
    """
    view = lease_view(row, unmoved_s)
    parents, children = tuple(sorted(row.parents)), tuple(sorted(row.children))
    return replace(view, key=LeaseKey.parse(row.key).shard_id, parents=parents, children=children)


def worker_view(row: WorkerRow, *, alive: bool = True, unmoved_s: float = 0.0) -> WorkerView:
    """Return the view of a worker. ``alive``: its row has moved within the failover time; ``unmoved_s``: for how long
    the row was seen to stand still.
    """
    return WorkerView(
        id=row.worker_id,
        alive=alive,
        leaving=row.leaving,
        failover_s=row.failover_s,
        unmoved_s=unmoved_s,
        leases_max=row.leases_max,
        avoids=row.avoids,
        wants=row.wanted,
        gives=row.given,
        warm=row.warm,
        process=row.process or None,
    )


def _keys(row: LeaseRow, shard_ids: frozenset[str]) -> tuple[str, ...]:
    """Return keys of leases: rows of multi-stream tables name parents and children by bare ids too."""
    return tuple(sorted(one if row.stream is None else f"{row.stream}:{one}" for one in shard_ids))


# --- strategies -----------------------------------------------------------------------------------
# --- placing and moving ---------------------------------------------------------------------------
# Leases are placed with workers and moved until no move makes the loads more equal.
#
# A lease stays with its owner unless a move lessens that owner's load without making another's as high. Moves depend
# only on which worker holds which lease, and `balance` ends when no move is left. So once a fleet has carried out an
# answer, the next answer is the same, and moves nothing. Weights are whole numbers, so that sums do not depend on
# their order.

_BEHIND_ALL = "\U0010ffff"  # It sorts behind every key.
_Item = tuple[int, str]  # An item is a weight and a key.


class _Load:
    """A worker and the leases that it is to hold."""

    __slots__ = ("avoids", "count", "count_max", "held", "id", "new", "total")

    def __init__(self, worker: WorkerView) -> None:
        self.id = worker.id
        self.avoids = worker.avoids
        self.count_max = worker.leases_max
        self.count = 0
        self.total = 0
        # Both lists are sorted: what the worker had before, and what it is given now, which costs nothing to give
        # elsewhere.
        self.held: list[_Item] = []
        self.new: list[_Item] = []

    def takes(self, key: str) -> bool:
        """True when there is room for one more lease, and it may be this one."""
        return (self.count_max is None or self.count < self.count_max) and key not in self.avoids

    def add(self, item: _Item, *, new: bool) -> None:
        insort(self.new if new else self.held, item)
        self.total += item[0]
        self.count += 1

    def drop(self, of: list[_Item], item: _Item) -> None:
        del of[bisect_left(of, item)]
        self.total -= item[0]
        self.count -= 1


def balance(
    leases: Sequence[LeaseView],
    workers: Sequence[WorkerView],
    *,
    weights: Mapping[str, int],
    tolerance: float = 0.0,
    preferred: Mapping[str, str],
) -> dict[str, str]:
    """Return a worker for each lease that one can be found for. A lease that no other worker has room for stays where
    it is.

    ``leases`` are those that may be read, with an owner only where it is one of ``workers``, which are all present.
    ``weights`` has a number above zero for each lease. Nothing is moved while no worker's load is more than
    ``tolerance`` (0.1: a tenth) above the mean; when one is, all are brought down to half of that. ``preferred`` names
    the worker that could begin a free lease with the least effort (it read the parent of a child).
    """
    loads = [_Load(worker) for worker in sorted(workers, key=lambda worker: worker.id)]
    if not loads:
        return {}
    by_id = {load.id: load for load in loads}
    free = _keep(leases, by_id, weights)
    free = _to_the_preferred(free, by_id, preferred, ceil(len(leases) / len(loads)))
    left = _to_the_idle(free, loads)
    while _even_out(loads, tolerance) and left:
        left = _to_the_idle(left, loads)  # A move may have made room for a lease that others avoid.
    placed = {key: load.id for load in loads for _, key in (*load.held, *load.new)}
    owners = {lease.key: lease.owner for lease in leases if lease.owner is not None}
    return {key: owners[key] for _, key in left if key in owners} | placed


def _keep(leases: Iterable[LeaseView], loads: Mapping[str, _Load], weights: Mapping[str, int]) -> list[_Item]:
    """Leave each lease to its owner, as far as that one takes it. Returns the rest."""
    free = []
    for lease in sorted(leases, key=lambda lease: lease.key):
        item = (weights[lease.key], lease.key)
        load = None if lease.owner is None else loads[lease.owner]
        if load is not None and load.takes(lease.key):
            load.add(item, new=False)
        else:
            free.append(item)
    return free


def _to_the_preferred(
    free: list[_Item], loads: Mapping[str, _Load], preferred: Mapping[str, str], share: int
) -> list[_Item]:
    """Give to each preferred worker up to its share of leases. Returns the rest."""
    rest = []
    for item in free:
        load = loads.get(preferred.get(item[1], ""))
        if load is not None and load.count < share and load.takes(item[1]):
            load.add(item, new=True)
        else:
            rest.append(item)
    return rest


def _to_the_idle(free: list[_Item], loads: list[_Load]) -> list[_Item]:
    """Give each lease to the least loaded worker, the heaviest lease first. Returns the leases that found no worker.

    Leases that some workers avoid come before those that each worker takes: they have fewer places to go to.
    """
    avoided = {key for load in loads for key in load.avoids}
    rest = []
    for item in sorted(free, key=lambda item: (item[1] not in avoided, -item[0], item[1])):
        able = [load for load in loads if load.takes(item[1])]
        if able:
            min(able, key=_by_load).add(item, new=True)
        else:
            rest.append(item)
    return rest


def _by_load(load: _Load) -> tuple[int, int, str]:
    return (load.total, load.count, load.id)


def _even_out(loads: list[_Load], tolerance: float) -> bool:
    """Move leases from the more to the less loaded until it helps no more; True if there was something to move.

    It ends, as each move lessens the sum of the loads' squares.
    """
    mean = sum(load.total for load in loads) / len(loads)
    if max(load.total for load in loads) <= mean * (1 + tolerance):
        return False
    moved = False
    while _move_one(loads, mean * (1 + tolerance / 2), mean * tolerance):
        moved = True
    return moved


def _move_one(loads: list[_Load], enough: float, gain_min: float) -> bool:
    loads.sort(key=_by_load)
    for new in (True, False):  # A lease that was given only now costs nothing to give elsewhere.
        for giver in reversed(loads):
            if giver.total <= enough:
                break
            if not (giver.new if new else giver.held):
                continue
            for receiver in loads:
                if receiver.total >= giver.total:
                    break
                if _move(giver, receiver, gain_min, new=new):
                    return True
    return False


def _move(giver: _Load, receiver: _Load, gain_min: float, *, new: bool) -> bool:
    """Move one lease if that helps: one that the giver has been given only now, or one that it had before.

    The lease is the largest that leaves the receiver not above the giver; where each is too large for that, one after
    which the higher of both is clearly lower than before.
    the higher of both is clearly lower than before.
    """
    of = giver.new if new else giver.held
    difference = giver.total - receiver.total
    end = bisect_right(of, (difference // 2, _BEHIND_ALL))
    for at in range(end - 1, -1, -1):
        if receiver.takes(of[at][1]):
            _carry_over(of, of[at], giver, receiver)
            return True
    for item in of[end:]:
        gain = difference - item[0]  # It is less than the weight, or it would fit.
        if gain <= 0 or gain < gain_min:
            break
        if receiver.takes(item[1]):
            _carry_over(of, item, giver, receiver)
            return True
    return False


def _carry_over(of: list[_Item], item: _Item, giver: _Load, receiver: _Load) -> None:
    giver.drop(of, item)
    receiver.add(item, new=True)


# --- the strategies -------------------------------------------------------------------------------

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

    A child of a listed shard is for the same worker. ``others`` deals out the leases that are in no list, or that are
    listed for a worker that is not there. With None, a lease that is in no list stays with the worker of its parent,
    and one that is listed for a worker that is not there is read by no worker until that one comes.
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
        self._others = others

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `Strategy`."""
        present = {worker.id for worker in workers}
        wanted = {lease.key: self._listed(lease) or self._heir(lease, preferred) for lease in leases}
        chosen = {key: worker for key, worker in wanted.items() if worker in present}
        if self._others is None:
            return chosen
        rest = [lease for lease in leases if lease.key not in chosen]
        return {**self._others(rest, workers, preferred), **chosen}

    def _listed(self, lease: LeaseView) -> str | None:
        return next((self._worker_of[key] for key in (lease.key, *lease.parents) if key in self._worker_of), None)

    def _heir(self, lease: LeaseView, preferred: Mapping[str, str]) -> str | None:
        return lease.owner or preferred.get(lease.key) if self._others is None else None


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
