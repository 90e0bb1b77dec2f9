"""All that can happen to one lease among a few workers, searched through with the real machine's code.

A world is the row, and for each worker its tenure, its writes under way and what it last saw. From each world every
step that is possible is taken: time passes, a process is told the time (or not: then it sleeps), a write is applied,
answered, lost, answered with an error, or arrives late, a process dies, a lease is settled, given, received, freed.
Times are small whole numbers before now, which is always 0; counters are bounded. What steps a worker has depends on
the row and on itself alone, so each is computed once, and worlds are made of numbers. Workers are interchangeable:
each calls itself ``me`` and any other one ``other``; which of them that is does not matter to it. As twins they have
one name, and only the processes are called so. A worker that dies comes back as another process of its name: what its
former process wrote, or writes yet, is of ``gone`` to it, and to the others of ``other``, as before.

A hand may delete the row at any moment. Then there is none until an owner restores it, or it is made anew, which takes
that no living worker says that it holds the lease. So it begins where an application does, with tokens from 1 on.
An owner may also read the shard to its end, after which the row has served and is deleted: no worker may restore it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.assignment import views
from shardway.core.assignment.views import lease_view
from shardway.core.leases import Done, Kind, LeaseRow, Refused, Unknown, Write, counters, lease_row, writes
from shardway.core.leases.row import COUNTER, PROCESS, process_name
from shardway.core.leases.tenure import commands, events, machine
from shardway.core.leases.tenure.state import Loss, State, Tenure
from shardway.core.leases.tenure.times import LeaseTimes
from tests.core.leases.exploring import BrokenRuleError, explore
from tests.core.leases.leasing import at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.leases import Checkpoint

TIMES = LeaseTimes(failover_s=2, renew_interval_s=1, margin_s=0, retry_s=0, unconfirmed_max_s=100)
"""A tenure is not given up for its age: that a process may die at any time says the same."""
FENCE_AGE = 2
TAKE_AGE = 3
"""Of what is older nothing depends any more: a fence has fallen, a lease that did not move may be taken."""
GIVING_UP = replace(TIMES, unconfirmed_max_s=TIMES.failover_s)
"""A tenure may be given up for its age at any time from then on: a later one does the same."""
UNKNOWN = Unknown("?")
ME, OTHER, GONE = "me", "other", "gone"
"""Names of workers, and of processes: the last one is of a process of ``me`` that is dead."""
TWIN = "twin"
"""The one name of all workers, where they are twins."""
BORN = LeaseRow(key="a", checkpoint=at(0))
FORMER = 100
"""The first counter of a row that is made anew later. Its counters begin at 0 again, and are lower for long. That both
rows have one counter is a chance that is left out here: then a write to the former one would fit the new one.
"""


class Under(NamedTuple):
    """A write under way: a request (``outcome`` None) or an answer. ``fresh``: sent since the fence fell last.
    ``token``: of the tenure that writes a deleted row anew.
    """

    write: Write
    fresh: bool
    outcome: Any = None
    token: int = 0


class Seen(NamedTuple):
    """What a worker saw: the row, when it first and when it last looked like that."""

    row: LeaseRow
    since_s: float
    last_s: float


class Worker(NamedTuple):
    tenure: Tenure | None = None
    under: Under | None = None
    late: Under | None = None
    """A request that counts as unanswered, and may arrive yet."""
    seen: Seen | None = None


class Before(NamedTuple):
    """What a row was when it was deleted."""

    counter: int
    checkpoint: Checkpoint
    owners: int
    """See `Table`."""


class Table(NamedTuple):
    """What is not one worker's."""

    row: LeaseRow
    """Without an owner while there is none: `is_absent`."""
    fresh: bool = True
    """Of the request that made the row what it is."""
    token: int = 0
    """The highest that was given out."""
    owners: int = 0
    """The counter that the last change of owners wrote. An owner with a lower token is not the last one."""
    faults: int = 0
    """Answers that were lost, requests too, deaths, and tenures that were given up for their age."""
    ends: int = 0
    """Leases that were given or freed."""
    asks: int = 0
    """Handoffs that a leader of the KCL 3.x asked for."""
    deletes: int = 0
    """Rows that a hand deleted."""
    is_orphan: bool = False
    """The process that has the lease is dead."""
    is_absent: bool = False
    has_served: bool = False
    """It is absent since the shard was read to its end."""
    before: Before | None = None
    """From a deletion until another owner begins."""
    is_older: bool = False
    """The row was written anew by an owner that was not the last, or made anew: there may be owners that are not in it,
    and lose the lease by that.
    """


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the search goes: the counter, the last position that is settled, faults and ends on each path."""

    workers: int = 3
    counter: int = 2
    position: int = 0
    faults: int = 1
    ends: int = 0
    asks: int = 0
    """Both with two workers only: of three a lease would have to be given to one by name."""
    deletes: int = 0
    """Times that a hand deletes the row."""
    births: int = 0
    """1: a deleted row is made anew."""
    serves: int = 0
    """1: the shard has an end, and the row is deleted after it. Without ``deletes``: an owner's request to write a row
    anew that a hand deleted, and that arrives so late that the row was made, has served and is gone again, is made. No
    condition on a row that is not there can tell.
    """
    twins: bool = False
    """All are processes of one worker id."""


World = int
"""Numbers of the table as its owner sees it, and of each worker: the owner first, the others in rising order. They are
one number together, as a search holds millions of worlds.
"""
BITS = 20
NUMBERS_MAX = 1 << BITS


class Numbers:
    """Values and their numbers."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.values: list[Any] = []

    def __call__(self, value: Any) -> int:
        number = self.of.get(value)
        if number is None:
            number = self.of[value] = len(self.values)
            assert number < NUMBERS_MAX
            self.values.append(value)
        return number


@dataclass
class Search:
    """Breadth first, so what is found is found in the fewest steps."""

    bounds: Bounds
    states: int = 0
    moves: int = 0
    tokens: set[int] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    """Tokens that tenures began with, and kinds of what they said: show that the search gets somewhere."""

    def run(self) -> Search:
        """Raise BrokenRuleError for the first world that breaks a rule."""
        assert self.bounds.workers <= 2 or not (self.bounds.ends or self.bounds.asks)
        self._tables, self._workers = Numbers(), Numbers()
        self._steps: dict[tuple[int, int, bool], list[tuple[str, int, int, str | None]]] = {}
        self._older: dict[int, int] = {}
        self._honoured: dict[tuple[int, int, bool], bool] = {}
        self._useful: dict[tuple[int, int, bool], int] = {}
        idle = self._workers(Worker())
        row = replace(BORN, counter=FORMER) if self.bounds.births else BORN
        first = self._world(self._tables(Table(row)), [idle] * self.bounds.workers, False)
        explore(self, first, self._moves, self._check)
        return self

    def _moves(self, world: World) -> Iterator[tuple[str, World]]:
        table, workers = self._numbers(world)
        owned = self._tables.values[table].row.actual_owner is not None
        yield "time passes", self._world(table, [self._later(worker) for worker in workers], owned)
        yield from self._of_the_row(self._tables.values[table], workers)
        for place, worker in enumerate(workers):
            if place > owned and worker == workers[place - 1]:
                continue  # does the same as the one before it
            for step, after, changed, owner in self._steps_of(table, worker, owned and place == 0):
                rest = [*workers[:place], *workers[place + 1 :]]
                if owner == ME:
                    moved = self._world(after, [changed, *rest], True)
                elif owner is None:
                    moved = self._world(after, [changed, *rest], False)
                elif place == 0:  # given, and there is one other
                    moved = self._world(after, [*rest, changed], True)
                else:
                    moved = self._world(after, [rest[0], changed, *rest[1:]], True)
                yield f"{'owner' if owned and place == 0 else place} {step}", moved

    def _of_the_row(self, table: Table, workers: list[int]) -> Iterator[tuple[str, World]]:
        """The row is deleted, or is, and is made anew."""
        if not table.is_absent:
            table = _deleted(table)
        is_bounded = table.deletes <= self.bounds.deletes and self.bounds.births and not table.has_served
        if is_bounded and not any(self._holds_up(self._workers.values[worker]) for worker in workers):
            anew = table._replace(is_absent=False, fresh=True, token=0, owners=0, is_older=True)
            yield "the row is made anew", self._world(self._tables(anew), workers, False)

    def _holds_up(self, worker: Worker) -> bool:
        """True for a worker that has written within the failover time: it lives, and says that it holds the lease."""
        tenure = worker.tenure
        if tenure is None:
            return False
        return tenure.may_deliver(0) or (tenure.sent is not None and tenure.sent.last_s > -FENCE_AGE)

    def _steps_of(self, table: int, worker: int, owns: bool) -> list[tuple[str, int, int, str | None]]:
        """All steps: the table and the worker as they are then, and the name by which it calls the owner."""
        found = self._steps.get((table, worker, owns))
        if found is None:
            seen = _as_seen(self._tables.values[table], owns)
            found = self._steps[table, worker, owns] = [
                (step, self._tables(_as_seen(after, True)), self._workers(changed), _place_of(after.row))
                for step, after, changed in self._of_worker(seen, self._workers.values[worker])
                if self._is_within(after.row.counter)
            ]
        return found

    def _is_within(self, counter: int) -> bool:
        return counter <= self.bounds.counter or FORMER <= counter <= FORMER + self.bounds.counter

    def _world(self, table: int, workers: list[int], owned: bool) -> World:
        useful = [self._use(worker, table, owned and place == 0) for place, worker in enumerate(workers)]
        world = table
        for worker in (*useful[:owned], *sorted(useful[owned:])):
            world = world << BITS | worker
        return world

    def _numbers(self, world: World) -> tuple[int, list[int]]:
        workers = []
        for _ in range(self.bounds.workers):
            workers.append(world & NUMBERS_MAX - 1)
            world >>= BITS
        return world, workers[::-1]

    # --- rules ------------------------------------------------------------------------------------

    def _check(self, world: World) -> None:
        table, workers = self._numbers(world)
        owned = self._tables.values[table].row.actual_owner is not None
        honoured = 0
        for place, worker in enumerate(workers):
            owns = owned and place == 0
            known = self._honoured.get((table, worker, owns))
            if known is None:
                seen = _as_seen(self._tables.values[table], owns)
                known = self._honoured[table, worker, owns] = _is_honoured(
                    seen.row, self._workers.values[worker], shown=not (seen.deletes or seen.has_served)
                )
            honoured += known
        if honoured > 1:
            raise BrokenRuleError("the table honours two tenures")

    def _said(self, table: Table, result: tuple[Tenure, tuple[Any, ...]], worker: Worker) -> tuple[Table, Worker]:
        """Do what a machine says, and check it."""
        tenure, follows = result
        worker = worker._replace(tenure=tenure, seen=None)
        for command in follows:
            self.told.add(type(command).__name__)
            match command:
                case commands.SendWrite(write):
                    token = tenure.token if write.kind is Kind.RESTORE else 0
                    worker = worker._replace(under=Under(write, True, None, token))
                case commands.FenceFell():
                    worker = worker._replace(under=_stale(worker.under), late=_stale(worker.late))
                case commands.FenceLifted() if not table.fresh:
                    raise BrokenRuleError("a fence was lifted by a write that is older than its fall")
                case commands.TenureBegan(token):
                    self.tokens.add(token)
                    if _owner_of(table.row) == ME or not table.deletes:
                        table = _begun(table, token)
                case commands.LeaseLost(Loss.TAKEN) if (
                    _owner_of(table.row) == ME and table.token <= tenure.token and not table.is_older
                ):
                    raise BrokenRuleError("a healthy owner lost its lease")
        return (table, _without_tenure(worker)) if tenure.state is State.OVER else (table, worker)

    # --- steps ------------------------------------------------------------------------------------

    def _of_worker(self, table: Table, worker: Worker) -> Iterator[tuple[str, Table, Worker]]:
        late = worker.late
        fault = table._replace(faults=table.faults + 1)
        if worker.under is not None:
            yield from self._network(table, worker, worker.under)
        if late is not None:
            for step, found in self._tables_to_write(table):
                yield f"late write arrives{step}", _applied(found, late)[0], worker._replace(late=None)
        owner = _owner_of(table.row)
        if table.row.owner == ME and table.row.checkpoint_owner is None and table.asks < self.bounds.asks:
            asked = lease_row(writes.ask_handoff(table.row, OTHER).onto(table.row.attributes()))
            yield "is asked for a handoff", table._replace(row=asked, asks=table.asks + 1), worker
        if worker.tenure is None:
            yield from self._looking(table, worker)
        else:
            yield from self._holding(table, worker, worker.tenure)
        if fault.faults <= self.bounds.faults and (worker.tenure is not None or worker.seen is not None or owner == ME):
            yield "dies", fault._replace(is_orphan=table.is_orphan or owner == ME), _dead(worker)

    def _looking(self, table: Table, worker: Worker) -> Iterator[tuple[str, Table, Worker]]:
        row, seen = table.row, worker.seen
        same = seen is not None and (seen.row.counter, _owner_of(seen.row)) == (row.counter, _owner_of(row))
        if not table.is_absent:
            yield "looks", table, worker._replace(seen=Seen(row, seen.since_s if same and seen is not None else 0, 0))
        if seen is None:
            return
        watch = counters.ObservedCounters()
        watch.look("a", seen.row.counter, seen.since_s, owner=seen.row.actual_owner)
        lease = lease_view(seen.row, watch.unmoved_s("a", 0))
        name, process = self._name(ME), self._process(ME)
        if (twin := seen.row.twin_of(name, process)) is not None:
            lease = replace(lease, owner=twin)
        if views.is_free(lease, {}, TIMES.failover_s) or lease.owner == name:
            yield "claims", *self._said(table, machine.claim(seen.row, name, TIMES, 0, None, process), worker)
        came = _owner_of(row) == ME and row.checkpoint_owner is None
        if came and seen.row.counter < row.counter and _owner_of(seen.row) == OTHER:
            received = machine.receive(row, name, TIMES, 0, seen.last_s, None, process)
            yield "receives", *self._said(table, received, worker)

    def _holding(self, table: Table, worker: Worker, tenure: Tenure) -> Iterator[tuple[str, Table, Worker]]:
        def handle(given: Any, to: Table = table) -> tuple[Table, Worker]:
            return self._said(to, machine.step(tenure, given, 0), worker)

        yield "is told the time", *handle(events.TimerFired())
        lease_s = tenure.lease_s if tenure.state in (State.HELD, State.FENCED) else -FENCE_AGE
        given_up = machine.step(replace(tenure, times=GIVING_UP, lease_s=lease_s), events.TimerFired(), 0)
        if given_up[0].state is State.OVER and table.faults < self.bounds.faults:
            yield "gives up", *self._said(table._replace(faults=table.faults + 1), given_up, worker)
        if not table.is_absent:
            yield "looks", *handle(events.LeaseSeen(table.row))
        if self.bounds.serves and not table.is_absent and _owner_of(table.row) == ME and tenure.may_deliver(0):
            served = table._replace(row=BORN, is_absent=True, has_served=True, is_orphan=False)
            yield "comes to the end, and the row is deleted", served, _without_tenure(worker)
        if tenure.may_deliver(0):
            settled = (tenure.wish.checkpoint or tenure.row.checkpoint).position.sequence_number
            if settled < self.bounds.position:
                yield "settles", *handle(events.StoreCheckpoint(at(settled + 1), at_once=True))
        if tenure.state is State.HELD and table.ends < self.bounds.ends:
            ended = table._replace(ends=table.ends + 1)
            yield "frees", *handle(events.EndTenure(), ended)
            if self.bounds.workers == 2 and not self.bounds.twins:
                yield "gives", *handle(events.EndTenure(OTHER, self._process(OTHER)), ended)

    def _network(self, table: Table, worker: Worker, under: Under) -> Iterator[tuple[str, Table, Worker]]:
        gone, fault = worker._replace(under=None), table._replace(faults=table.faults + 1)
        assert worker.tenure is not None
        lost = machine.step(worker.tenure, events.WriteAnswered(UNKNOWN), 0)
        if under.outcome is None:
            for step, found in self._tables_to_write(table):
                after, outcome = _applied(found, under)
                yield f"write arrives{step}", after, worker._replace(under=under._replace(outcome=outcome))
            if fault.faults <= self.bounds.faults:
                yield "write is lost", *self._said(fault, lost, gone)
                yield "write stays away", *self._said(fault, lost, gone._replace(late=under))
        else:
            yield (
                "is answered",
                *self._said(table, machine.step(worker.tenure, events.WriteAnswered(under.outcome), 0), gone),
            )
            if fault.faults <= self.bounds.faults:
                yield "is answered with an error", *self._said(fault, lost, gone)

    def _tables_to_write(self, table: Table) -> Iterator[tuple[str, Table]]:
        """What a write may find. That a hand has deleted the row nothing shows before, so that is when it happens."""
        yield "", table
        if table.deletes < self.bounds.deletes and not table.is_absent:
            yield " at a row that a hand has deleted", _deleted(table)

    def _name(self, one: str) -> str:
        return TWIN if self.bounds.twins else one

    def _process(self, one: str) -> str:
        return process_name(one, self._name(one))

    # --- one world for all that mean the same -----------------------------------------------------

    def _later(self, worker: int) -> int:
        found = self._older.get(worker)
        if found is None:
            found = self._older[worker] = self._workers(_older(self._workers.values[worker]))
        return found

    def _use(self, worker: int, table: int, owns: bool) -> int:
        found = self._useful.get((worker, table, owns))
        if found is None:
            row = _as_seen(self._tables.values[table], owns).row
            found = self._useful[worker, table, owns] = self._workers(
                _useful(self._workers.values[worker], row, may_restore=self.bounds.deletes + self.bounds.serves > 0)
            )
        return found


def _as_seen(table: Table, by_owner: bool) -> Table:
    """With the worker of the lease's owner called ``me`` or ``other``."""
    row = table.row
    if row.actual_owner is None:
        return table
    me, other = (ME, OTHER) if by_owner else (OTHER, ME)
    process, name = GONE if by_owner and table.is_orphan else me, me
    if row.actual_owner == TWIN:
        name = TWIN
    elif row.named_process is None:
        process = other  # it was let go for the one that a leader had named
    row = replace(row, process=process_name(process, other if process == other else name))
    if row.checkpoint_owner is not None:
        row = replace(row, checkpoint_owner=me, owner=other)
    elif row.owner != TWIN:
        row = replace(row, owner=me)
    return table._replace(row=row)


def _owner_of(row: LeaseRow) -> str | None:
    """What the worker that looks calls the owner: the process, or the worker where no process is named."""
    named = row.named_process
    return row.actual_owner if named is None else named.partition("/")[0]


def _place_of(row: LeaseRow) -> str | None:
    """The same, as the worker of the process."""
    owner = _owner_of(row)
    return ME if owner == GONE else owner


def _is_honoured(row: LeaseRow, worker: Worker, *, shown: bool = True) -> bool:
    """``shown``: the row shows which tenures there are. After one was deleted it does not: only one tenure delivers."""
    tenure = worker.tenure
    if tenure is None or not tenure.token:
        return False
    if tenure.may_deliver(0) and tenure.lease_s + TIMES.failover_s <= 0:
        raise BrokenRuleError("a worker past its self-fence delivers")
    if not shown:
        return tenure.may_deliver(0)
    if tenure.may_deliver(0) and _owner_of(row) != ME:
        raise BrokenRuleError("a worker that does not own the lease delivers")
    return writes.renew(tenure.row).allowed_on(row.attributes())


def _applied(table: Table, under: Under) -> tuple[Table, Any]:
    write, attributes = under.write, None if table.is_absent else table.row.attributes()
    born = writes.creates(write)
    if not (table.is_absent if born is not None else write.allowed_on(attributes)):
        return table, Refused(None if table.is_absent else table.row)
    row = born if born is not None else lease_row(write.onto(attributes or {}))
    if table.has_served:
        raise BrokenRuleError("a lease that has served is made anew")
    if write.kind is Kind.RESTORE:
        table = _restored(table, under, row)
    elif row.checkpoint < table.row.checkpoint:
        raise BrokenRuleError("a checkpoint went back")
    elif write.kind in (Kind.TAKE, Kind.GIVE):
        table = table._replace(owners=row.counter)
    after = table._replace(row=row, fresh=under.fresh, is_absent=False, is_orphan=_owner_of(row) == GONE)
    return after, Done(row)


def _begun(table: Table, token: int) -> Table:
    if token <= table.token:
        raise BrokenRuleError("a token does not grow")
    return table._replace(token=token, before=None)


def _deleted(table: Table) -> Table:
    before = Before(table.row.counter, table.row.checkpoint, table.owners)
    return table._replace(row=BORN, is_absent=True, is_orphan=False, deletes=table.deletes + 1, before=before)


def _restored(table: Table, under: Under, row: LeaseRow) -> Table:
    """The last owner knows how far the row was. One that was not knows nothing of those after it. Neither knows what
    an owner did in a row that was made anew meanwhile.
    """
    before = table.before
    if before is not None and under.token >= before.owners:
        if row.counter <= before.counter:
            raise BrokenRuleError("a row that is written anew has an old counter")
        if row.checkpoint < before.checkpoint:
            raise BrokenRuleError("a checkpoint went back")
    is_older = table.is_older or before is None or under.token < before.owners
    return table._replace(token=under.token, owners=under.token, is_older=is_older)


def _without_tenure(worker: Worker) -> Worker:
    """A request that is under way may still arrive; no tenure waits for an answer."""
    under = worker.under
    return Worker(late=under if under is not None and under.outcome is None else worker.late)


def _dead(worker: Worker) -> Worker:
    """What comes back is another process of the same name."""
    late = _without_tenure(worker).late
    if late is None:
        return Worker()
    write = late.write
    write = replace(write, expects=_of_gone(write.expects), changes=_of_gone(write.changes))
    return Worker(late=late._replace(write=write))


def _of_gone(values: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    mine = f"{ME}/"
    return tuple(
        (name, GONE + value.removeprefix(ME) if name == PROCESS and str(value).startswith(mine) else value)
        for name, value in values
    )


def _stale(under: Under | None) -> Under | None:
    return None if under is None else under._replace(fresh=False)


def _useful(worker: Worker, row: LeaseRow, *, may_restore: bool = False) -> Worker:
    """Without what can have no effect any more, and without times that nothing is compared with. ``may_restore``: an
    owner that ends asks whether its fence was down.
    """
    tenure, late, seen = worker.tenure, worker.late, worker.seen
    if late is not None and dict(late.write.expects).get(COUNTER, 0) < row.counter:
        late = None
    if late is not None and tenure is None:
        late = late._replace(fresh=True)
    if tenure is not None:
        tenure = tenure if may_restore and tenure.state is State.ENDING else _without_times(tenure)
    if seen is not None:
        old = seen.row.counter != row.counter
        given = _owner_of(row) == ME if old else _owner_of(seen.row) == OTHER
        seen = Seen(seen.row, 0 if old else seen.since_s, seen.last_s if given else 0)
    return worker._replace(tenure=tenure, late=late, seen=seen)


def _without_times(tenure: Tenure) -> Tenure:
    sent = tenure.sent
    if tenure.state is State.ENDING:
        sent = None if sent is None else replace(sent, first_s=0, last_s=0, first_lifts=True, last_lifts=True)
        return replace(tenure, lease_s=0, sent=sent)
    if tenure.state is State.CLAIMING:
        return replace(tenure, lease_s=0)
    return tenure


def _age(time_s: float, age_max: float = FENCE_AGE) -> float:
    return max(time_s - 1, -age_max)


def _older(worker: Worker) -> Worker:
    tenure, seen = worker.tenure, worker.seen
    if tenure is not None:
        sent = tenure.sent
        if sent is not None:
            sent = replace(sent, first_s=_age(sent.first_s), last_s=_age(sent.last_s))
        tenure = replace(tenure, lease_s=_age(tenure.lease_s), sent=sent)
    if seen is not None:
        seen = Seen(seen.row, _age(seen.since_s, TAKE_AGE), _age(seen.last_s))
    return worker._replace(tenure=tenure, seen=seen)
