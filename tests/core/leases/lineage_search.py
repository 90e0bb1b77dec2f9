"""A parent's lease, its child's, and two workers: all that can happen to them, with the real machine's code.

Each of the two rows is searched as in ``lease_search``; a world is both, and for each worker its part in both. What
ties them together is what the runtime does by the rules of lineage: the worker that has read the parent to its end
creates the child's lease, and only then stores the end; a lease whose parent is not ended is not taken; one that has
ended is let go of. Workers are interchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.leases import Checkpoint, LeaseRow
from shardway.core.leases.tenure import events, machine
from tests.core.leases.exploring import BrokenRuleError, explore
from tests.core.leases.lease_search import Numbers, Search, Table, Worker, _is_honoured, _without_tenure
from tests.core.leases.leasing import at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.leases.tenure.state import Tenure
    from tests.core.leases.lease_search import Bounds

ENDS = "reads to the end"
PARENT, CHILD = 0, 1


class Row(Search):
    """One of the rows: ``lease_search``'s steps, and those of a shard that ends."""

    def begin(self, row: LeaseRow) -> int:
        """The number of the table with this row."""
        self._tables, self._workers = Numbers(), Numbers()
        self._steps = {}
        self._older, self._honoured, self._useful = {}, {}, {}
        self.nobody = self._workers(Worker())
        return self._tables(Table(row))

    def table(self, number: int) -> Table:
        """What a number stands for."""
        found: Table = self._tables.values[number]
        return found

    def worker(self, number: int) -> Worker:
        """The same."""
        found: Worker = self._workers.values[number]
        return found

    def steps(self, table: int, worker: int, owns: bool) -> list[tuple[str, int, int, str | None]]:
        """Of one worker."""
        return self._steps_of(table, worker, owns)

    def later(self, worker: int) -> int:
        """Some time has passed."""
        return self._later(worker)

    def dead(self, worker: int) -> int:
        """Its process has died. It comes back as if it were the same one, which takes its lease without waiting."""
        return self._workers(_without_tenure(self.worker(worker)))

    def useful(self, worker: int, table: int, owns: bool) -> int:
        """Without what can have no effect any more."""
        if self.table(table).row.ended and self.worker(worker).seen is not None:
            worker = self._workers(self.worker(worker)._replace(seen=None))
        return self._use(worker, table, owns)

    def honoured(self, table: int, worker: int, owns: bool) -> bool:
        """True for a tenure that the table would honour. Raises BrokenRuleError for one that delivers without it."""
        return _is_honoured(self._as_seen(table, owns).row, self.worker(worker))

    def delivers(self, worker: int) -> bool:
        """True while records of the shard may be delivered here."""
        tenure = self.worker(worker).tenure
        if tenure is None or tenure.row.ended or not tenure.may_deliver(0):
            return False
        return tenure.wish.checkpoint is None or not tenure.wish.checkpoint.is_end  # else all was read, and settled

    def _as_seen(self, table: int, owns: bool) -> Table:
        from tests.core.leases.lease_search import _as_seen

        return _as_seen(self.table(table), owns)

    def _looking(self, table: Table, worker: Worker) -> Iterator[tuple[str, Table, Worker]]:
        ended = worker.seen is not None and worker.seen.row.ended
        for step, after, changed in super()._looking(table, worker):
            if not (ended and step in ("claims", "receives")):
                yield step, after, changed

    def _holding(self, table: Table, worker: Worker, tenure: Tenure) -> Iterator[tuple[str, Table, Worker]]:
        if tenure.row.ended:
            yield "lets go", *self._said(table, machine.step(tenure, events.AbandonTenure(), 0), worker)
            return
        yield from super()._holding(table, worker, tenure)
        wish = tenure.wish.checkpoint
        if self.bounds.asks < 0 and tenure.may_deliver(0) and (wish is None or not wish.is_end):
            given = events.StoreCheckpoint(Checkpoint.SHARD_END, at_once=True)
            yield ENDS, *self._said(table, machine.step(tenure, given, 0), worker)


class World(NamedTuple):
    """Numbers of the rows as their owners see them, their owners, and both workers' parts."""

    parent: int
    parent_owner: int | None
    child: int | None
    child_owner: int | None
    workers: tuple[tuple[int, int], tuple[int, int]]


@dataclass
class LineageSearch:
    """Breadth first. ``awaits_parent`` and ``creates_first`` are the rules that can be taken away."""

    parent: Bounds
    child: Bounds
    faults: int
    ends: int
    awaits_parent: bool = True
    creates_first: bool = True
    states: int = 0
    moves: int = 0
    reached: set[str] = field(default_factory=set)
    """Kinds of worlds that show that the search gets somewhere."""

    def run(self) -> LineageSearch:
        """Raise BrokenRuleError for the first world that breaks a rule."""
        self._rows = (Row(self.parent), Row(self.child))
        start = self._rows[PARENT].begin(LeaseRow(key="a", checkpoint=at(0)))
        self._newborn = self._rows[CHILD].begin(LeaseRow(key="a", checkpoint=Checkpoint.TRIM_HORIZON))
        nobody = (self._rows[PARENT].nobody, self._rows[CHILD].nobody)
        first = World(start, None, None, None, (nobody, nobody))
        explore(self, first, self._steps, self._check)
        return self

    # --- steps ------------------------------------------------------------------------------------

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        parent, child = self._rows
        aged = [(parent.later(mine), child.later(its)) for mine, its in world.workers]
        yield "time passes", self._useful(world._replace(workers=(aged[0], aged[1])))
        for me in (0, 1):
            if me and world.workers[0] == world.workers[1] and _alike(world):
                continue
            yield from self._of_parent(world, me)
            if world.child is not None:
                yield from self._of_child(world, me, world.child)
            if self._faults(world) < self.faults and world.workers[me] != (parent.nobody, child.nobody):
                dead = (parent.dead(world.workers[me][PARENT]), child.dead(world.workers[me][CHILD]))
                yield f"{me} dies", self._useful(self._fault(_with(world, me, dead)))

    def _of_parent(self, world: World, me: int) -> Iterator[tuple[str, World]]:
        row, (mine, its) = self._rows[PARENT], world.workers[me]
        if world.child is None and row.delivers(mine):
            yield f"{me} creates the child's lease", world._replace(child=self._newborn)
        for step, table, worker, owner in row.steps(world.parent, mine, world.parent_owner == me):
            if step == "dies" or (step == ENDS and world.child is None and self.creates_first):
                continue
            after = _with(world, me, (worker, its))._replace(parent=table, parent_owner=_place(owner, me))
            if self._within(after):
                yield f"{me} {step} (parent)", self._useful(after)

    def _of_child(self, world: World, me: int, child: int) -> Iterator[tuple[str, World]]:
        row, (mine, its) = self._rows[CHILD], world.workers[me]
        may_start = self._rows[PARENT].table(world.parent).row.ended or not self.awaits_parent
        for step, table, worker, owner in row.steps(child, its, world.child_owner == me):
            # The worker that takes it has seen, with it or before it, that the parent has ended; and that stays so.
            if step == "dies" or (step == "looks" and not may_start):
                continue
            after = _with(world, me, (mine, worker))._replace(child=table, child_owner=_place(owner, me))
            if self._within(after):
                yield f"{me} {step} (child)", self._useful(after)

    def _faults(self, world: World) -> int:
        return sum(table.faults for table in self._tables(world))

    def _within(self, world: World) -> bool:
        return self._faults(world) <= self.faults and sum(one.ends for one in self._tables(world)) <= self.ends

    def _fault(self, world: World) -> World:
        row = self._rows[PARENT]
        table = row.table(world.parent)
        return world._replace(parent=row._tables(table._replace(faults=table.faults + 1)))

    def _tables(self, world: World) -> list[Table]:
        found = [self._rows[PARENT].table(world.parent)]
        return found if world.child is None else [*found, self._rows[CHILD].table(world.child)]

    def _useful(self, world: World) -> World:
        """One world for all that mean the same: also for the one with the workers' places changed."""
        parent, child = self._rows
        parts = []
        for me, (mine, its) in enumerate(world.workers):
            mine = parent.useful(mine, world.parent, world.parent_owner == me)
            if world.child is not None:
                its = child.useful(its, world.child, world.child_owner == me)
            parts.append((mine, its))
        here = world._replace(workers=(parts[0], parts[1]))
        there = here._replace(
            workers=(parts[1], parts[0]),
            parent_owner=_other(here.parent_owner),
            child_owner=_other(here.child_owner),
        )
        return min(here, there, key=_order)

    # --- rules ------------------------------------------------------------------------------------

    def _check(self, world: World) -> None:
        parent, child = self._rows
        ended = parent.table(world.parent).row.ended
        if ended and world.child is None:
            raise BrokenRuleError("a parent is stored as ended, and its child has no lease")
        if sum(parent.honoured(world.parent, mine, world.parent_owner == me) for me, mine in _parts(world, PARENT)) > 1:
            raise BrokenRuleError("the table honours two tenures of the parent")
        if world.child is None:
            return
        if sum(child.honoured(world.child, its, world.child_owner == me) for me, its in _parts(world, CHILD)) > 1:
            raise BrokenRuleError("the table honours two tenures of the child")
        reads = any(child.delivers(its) for _, its in world.workers)
        if reads and not ended:
            raise BrokenRuleError("a child is read before its parent is stored as ended")
        if reads and any(parent.delivers(mine) for mine, _ in world.workers):
            raise BrokenRuleError("a parent is read beside its child")
        self.reached |= {"ended"} if ended else {"child, not yet ended"}
        self.reached |= {"child read"} if reads else set()
        if ended and any(parent.worker(mine).tenure is not None for mine, _ in world.workers):
            self.reached.add("a tenure of the parent beyond its end")


def _parts(world: World, row: int) -> Iterator[tuple[int, int]]:
    return ((me, parts[row]) for me, parts in enumerate(world.workers))


def _with(world: World, me: int, parts: tuple[int, int]) -> World:
    return world._replace(workers=(parts, world.workers[1]) if me == 0 else (world.workers[0], parts))


def _place(owner: str | None, me: int) -> int | None:
    return None if owner is None else me if owner == "me" else 1 - me


def _other(owner: int | None) -> int | None:
    return None if owner is None else 1 - owner


def _alike(world: World) -> bool:
    return world.parent_owner is None and world.child_owner is None


def _order(world: World) -> tuple[object, ...]:
    return world.workers, -1 if world.parent_owner is None else world.parent_owner, world.child_owner or 0
