"""The balance places leases with workers, and moves them until no move makes the loads more equal.

A lease stays with its owner unless a move lessens that owner's load without making another's as high. Moves depend only
on which worker holds which lease, and `balance` ends when no move is left. So once a fleet has carried out an answer,
the next answer is the same, and moves nothing. Weights are whole numbers, so that sums do not depend on their order.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardway.core.assignment.views import LeaseView, WorkerView


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
