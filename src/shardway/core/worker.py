"""The machine of a worker among others is a function: `step` takes what the worker knows of itself, and one thing that
it learns, and answers with what is to be done. Only `step` changes `WorkerState`: the leases that the worker holds,
those on their way to it, and what it shows to the others.

A `View` is a round: the tables as they were read just now. The worker decides on its part of the assignment, and goes
through both sides of all handoffs. What happens between rounds (a lease is held, a shard is drained) is an input of its
own. An answer is made as a whole before any of it is done, and is done in its order: first what takes no time, then
what calls a table (`Slow`), for each lease in its order.

The order of a round comes from the rows that it reads. The workers' rows that a `View` shows were read after its
leases, wherever a silent worker counts (`shardway.core.leases.membership`). An awaited lease is looked at after the
workers' rows were read: the owner's word that the lease is given, or not, is older than the look (`LookAt`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardway.core.assignment.decide import decide
from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.kcl.kcl3 import Step
from shardway.core.assignment.shardway_fleet import receiver_for
from shardway.core.assignment.views import is_free, startable, worker_view
from shardway.core.handoff.owner import OwnerCommand, OwnerEvent, OwnerSide
from shardway.core.handoff.receiver import ReceiverCommand, ReceiverEvent, ReceiverSide, ReceiverState
from shardway.core.leases.membership import WorkerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from shardway.core.assignment.decide import Decision
    from shardway.core.assignment.strategies import Strategy
    from shardway.core.assignment.views import LeaseView, WorkerView
    from shardway.core.leases.row import Checkpoint, LeaseRow


# --- what it knows of itself ----------------------------------------------------------------------

READS_MAX = 32
"""A worker reads up to this many awaited leases one by one."""
LEASES_PER_READ_MAX = 8
"""A worker also reads more of them one by one, while they are fewer than one in this many of all leases: a consistent
read of one lease costs as much as a dozen small leases in a scan, which reads the whole table.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of a worker, for as long as it lives."""

    worker_id: str
    process: str = ""
    """The name of this process among all that ever had the worker's id."""
    failover_s: float
    leases_max: int | None = None
    warm_deadline_s: float
    drain_deadline_s: float
    upkeep_interval_s: float
    steal_wait_s: float = 0.0
    """The seconds that the worker waits before it delivers from a shard that it has stolen from a KCL worker, which
    reads on.
    """
    look_interval_s: float = 0.5
    """The interval at which the worker looks at the other workers' rows."""

    @property
    def upkeep_retry_s(self) -> float:
        """The pause after upkeep that failed. A shard may be waiting for its lease: the pause is shorter than when all
        is well.
        """
        return min(self.failover_s, self.upkeep_interval_s)


@dataclass(slots=True)
class OwnedLease:
    """A lease that the worker holds, and delivers from."""

    side: OwnerSide
    stopped_s: float | None = None
    """The time since which nothing is delivered, because the lease is to go. None: it is not to go."""
    given_to: str | None = None
    """The worker that the last write gives the lease to. None: the write frees it, or that worker has no row of its
    own.
    """


@dataclass(slots=True)
class Upkeep:
    """The times at which the leases of the streams are looked after next."""

    is_busy: bool = False
    searched: bool = False
    """True once the worker has asked which leases are missing, though the table has some: it asks once in its life."""
    at_s: float = float("-inf")
    gone_at_s: float = float("-inf")
    """The time at which leases are looked for whose rows were deleted."""
    measure_at_s: float = float("-inf")


class WorkerState(Container[str]):
    """The worker's knowledge of itself. It contains the keys of the leases that the worker holds, from the claim on."""

    def __init__(self, terms: Terms, strategy: Strategy, rng: Random) -> None:
        """``strategy`` says which worker should hold which lease."""
        self.terms = terms
        self.strategy = strategy
        self.rng = rng
        self.held: dict[str, OwnedLease] = {}
        self.claims: set[str] = set()
        """The leases on their way to be held."""
        self.stolen: set[str] = set()
        """The claims that were stolen: their KCL workers have to notice first that they lost them."""
        self.receiving: dict[str, ReceiverSide] = {}
        """The leases that may come. A side stays until its lease is held, lest the same lease be taken twice."""
        self.heirs: set[str] = set()
        """The leases of the children of shards that ended here. The worker takes them at once, and evens them out
        later.
        """
        self.given: dict[str, LeaseRow] = {}
        """The leases as gives to others left them, until their receivers are seen to have begun."""
        self.wanted: set[str] = set()
        self.warm: set[str] = set()
        self.gives: dict[str, str] = {}
        """The worker that gets each lease, as the own row shows it."""
        self.leaving = False
        """True: the worker hands over what it holds, and takes nothing."""
        self.retreats = False
        """True: the worker shows itself as leaving, though it stays, so that others take the leases that it could not
        keep.
        """
        self.retreats_until_s = float("-inf")
        """The time until which others are to have a lease that was lost because no write was confirmed."""
        self.upkeep = Upkeep()
        self.workers: Mapping[str, WorkerView] = {}
        """The workers, as the last round saw them."""
        self.by_scan_s = float("-inf")
        """The time at which the scan was sent by which the awaited leases were looked at last."""
        self._avoided: dict[str, float] = {}

    def __contains__(self, key: object) -> bool:
        """True for a lease from its claim on."""
        return key in self.held or key in self.claims

    @property
    def waits(self) -> bool:
        """True while a lease may come at any moment."""
        return any(side.polls for side in self.receiving.values())

    @property
    def looks_closely(self) -> bool:
        """True while no old state of the table will do: something is waited for."""
        return bool(self.given or self.gives) or self.waits

    @property
    def looks_often(self) -> bool:
        """True while something is waited for that may come at any moment."""
        return bool(self.gives) or self.waits or self.leaving

    @property
    def is_done(self) -> bool:
        """True once a worker that leaves holds nothing any more, and no lease can come to it."""
        # A lease that came after the worker had gone would wait for its failover time.
        return self.leaving and not self.held and not self.claims and not self.waits

    def waits_for_many(self, lease_count: int) -> bool:
        """True while so large a part of all leases is awaited that one scan costs less than a read of each of them."""
        awaited = sum(side.polls for side in self.receiving.values())
        return awaited > READS_MAX and awaited * LEASES_PER_READ_MAX >= lease_count

    def avoid(self, key: str, until_s: float) -> None:
        """Avoid a lease until a time: do not take it before."""
        self._avoided[key] = until_s

    def avoids(self, now_s: float) -> frozenset[str]:
        """Return the leases that the worker will not have now."""
        self._avoided = {key: until_s for key, until_s in self._avoided.items() if until_s > now_s}
        return frozenset(self._avoided)

    def shown(self, now_s: float, counter: int = 0) -> WorkerRow:
        """Return the worker's row, as it would be written now."""
        terms = self.terms
        return WorkerRow(
            worker_id=terms.worker_id,
            counter=counter,
            failover_s=terms.failover_s,
            held=frozenset(self.held),
            wanted=frozenset(self.wanted),
            given=dict(self.gives),
            warm=frozenset(self.warm),
            leaving=self.leaving or self.retreats,
            leases_max=terms.leases_max,
            avoids=self.avoids(now_s),
            process=terms.process,
        )


STOPS_AT_ONCE = 64
"""The most leases that a worker hands over to other workers at the same time."""
STOPPING_TURNS_MAX = 16
"""A worker hands over more at the same time, where it would otherwise need more turns than this to let go of its
leases.
"""
STOP_COUNTS_S = 0.25
"""A handoff that has lasted longer counts no more against that limit: it does not wait for the table."""
MEASURES_PER_FAILOVER = 4
"""How often in a failover time the owner writes its throughput into the leases."""


class Work(StrEnum):
    """The kinds of upkeep of the streams' leases."""

    GONE = "gone"
    """The work that makes the leases anew whose rows were deleted while this worker had them, if they are missing."""
    SEARCH = "search"
    """The work that makes the leases that are missing."""
    CLEAN = "clean"
    """The work that deletes the leases that have served, and repairs holes. One worker does it for all."""


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The tables, as a round sees them."""

    fleet: Fleet
    leases: Mapping[str, LeaseView]
    rows: Mapping[str, LeaseRow]
    """The rows of the same leases."""
    workers: Mapping[str, WorkerView]
    """The workers but for this one."""
    named: Collection[str]
    """The leases that have this worker's name, are this process's, and are not held by it."""
    robbed: Collection[str] = ()
    """The leases of KCL workers that renew them: a take of one is a steal, of which its owner hears later."""
    given_up: Collection[str] = ()
    """The held leases whose shards the policies for failing records want given up, or stopped."""
    is_complete: bool = True
    """False while one of the streams has no lease at all."""
    has_gone: bool = False
    """True when there are leases for `Work.GONE`."""
    scanned_s: float
    """The time at which the last scan of the leases was answered."""
    scan_sent_s: float
    """The time at which the last scan was sent."""
    before: Mapping[str, LeaseRow]
    """The leases as they were known before the last scan."""


@dataclass(frozen=True, slots=True)
class WorkersSeen:
    """A consistent look at the workers' rows was answered. It was sent when ``given`` had been given already."""

    given: Collection[str]
    workers: Mapping[str, WorkerRow]
    leases: Mapping[str, LeaseRow]


@dataclass(frozen=True, slots=True)
class Freed:
    """The worker has done `FreeRows` for these leases."""

    keys: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """An awaited lease was read by itself."""

    key: str
    row: LeaseRow | None
    """The row of the lease; None: it is gone."""
    lease: LeaseView | None
    known: LeaseRow | None
    """The row as it was known before the read."""
    sent_s: float
    is_robbed: bool = False
    """True for a steal; see `View.robbed`."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What is read ahead has come to the tip, or is as much as there is room for."""

    key: str


@dataclass(frozen=True, slots=True)
class NotReadable:
    """A lease that is on its way here cannot be read ahead."""

    key: str


@dataclass(frozen=True, slots=True)
class Began:
    """A tenure has begun, or will not begin."""

    key: str
    began: bool


@dataclass(frozen=True, slots=True)
class Delivers:
    """The worker begins to read the shard of a lease, and may hand it over."""

    key: str


@dataclass(frozen=True, slots=True)
class Over:
    """The tenure or claim that was begun with a lease is over."""

    key: str
    row: LeaseRow
    """The row as it was last confirmed."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A lease was lost because no write was confirmed."""


@dataclass(frozen=True, slots=True)
class LeaderNamed:
    """A KCL leader has named the worker that gets a lease which this worker holds."""

    key: str
    receiver: str


@dataclass(frozen=True, slots=True)
class OwnerLearnt:
    """The owner's side of a lease learns what its table names."""

    key: str
    given: OwnerEvent


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The program, or a policy, wants another worker to have a lease."""

    key: str
    cool_down_s: float


@dataclass(frozen=True, slots=True)
class Inherited:
    """The lease of a child of a shard that ended here is there, and has no owner."""

    key: str
    may_start: bool
    """True when the child's other parents have ended, as far as is known."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Hand over everything, and take nothing."""


@dataclass(frozen=True, slots=True)
class UpkeepOver:
    """`KeepUp` was done, or has failed."""

    work: Work
    failed: bool


Input: TypeAlias = (
    View | WorkersSeen | Freed | LeaseSeen | Warmed | NotReadable | Began | Delivers | Over | Unconfirmed | LeaderNamed
    | OwnerLearnt | GaveUp | Inherited | Leave | UpkeepOver
)  # fmt: skip

# --- actions that take no time --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishRow:
    """Write the worker's own row: there is something new in it."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Make another round at once."""


@dataclass(frozen=True, slots=True)
class Take:
    """Begin a tenure."""

    key: str
    receives: bool
    """True: the tenure begins without a write of its own; False: it claims the lease."""
    unmoved_s: float | None
    """The time at which the last look was sent that still showed the former owner, where it ``receives``."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Read ahead in a shard that is likely to be this worker's soon, unless that is done already."""

    key: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Drop what was read ahead before the owner's stored progress: it is not needed."""

    key: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Discard:
    """Stop reading ahead in a shard, and drop what was read."""

    key: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let the program read the shard."""

    key: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Deliver nothing more of a shard; say `OwnerLearnt` when all is settled, or when it is ``due_s``."""

    key: str
    due_s: float


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with a shard that was stopped."""

    key: str


@dataclass(frozen=True, slots=True)
class EndTenure:
    """Give the lease to a worker, or free it (None), with the last checkpoint."""

    key: str
    to: str | None
    process: str | None
    """The process of that name that gets the lease; None: its row does not say."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Have the leases' next renewals store how much is read."""


@dataclass(frozen=True, slots=True)
class KeepUp:
    """Begin upkeep; say `UpkeepOver`."""

    work: Work


# --- actions that call a table ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateMissing:
    """A stream has no leases: make them. Nothing else is done in this round."""


@dataclass(frozen=True, slots=True)
class FreeRows:
    """Free leases that are not held here, as their rows were seen, and say `Freed`."""

    rows: list[LeaseRow]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Read a shard ahead from its stored checkpoint on, while it is still to come here; say `Warmed`."""

    key: str


@dataclass(frozen=True, slots=True)
class LookAt:
    """Read a lease, consistently, and say `LeaseSeen`."""

    key: str


Slow: TypeAlias = CreateMissing | FreeRows | WarmUp | LookAt
SLOW = (CreateMissing, FreeRows, WarmUp, LookAt)
Action: TypeAlias = (
    PublishRow
    | Wake
    | Take
    | ReadAhead
    | Follow
    | Discard
    | Deliver
    | Stop
    | Resume
    | EndTenure
    | Measure
    | KeepUp
    | Slow
)

SHOW = PublishRow()
STIR = Wake()
MEASURE = Measure()
CREATE_MISSING = CreateMissing()


def step(mine: WorkerState, given: Input, now_s: float) -> list[Action]:
    """Change ``mine`` by an input, and return what follows. The same state, input and time always lead to the same."""
    said: list[Action] = []
    _RULES[type(given)](mine, given, now_s, said)
    return said


# --- a round ----------------------------------------------------------------------------------------


def _round(mine: WorkerState, view: View, now_s: float, said: list[Action]) -> None:
    _retreat(mine, view, now_s, said)
    if not mine.leaving and not view.is_complete:
        said.append(CREATE_MISSING)
        return
    terms, leases = mine.terms, view.leases
    me = worker_view(mine.shown(now_s))
    mine.workers = workers = {**view.workers, me.id: me}
    if view.fleet is Fleet.KCL2:
        # What is being taken counts as held, or rounds that follow each other would steal too much.
        leases = {**leases, **{key: replace(leases[key], owner=me.id) for key in mine.claims if key in leases}}
    part = decide(
        view.fleet,
        leases.values(),
        workers.values(),
        me.id,
        strategy=mine.strategy,
        rng=mine.rng,
        failover_s=terms.failover_s,
        steal_max=0 if mine.stolen else 1,
    )
    _keep_up(mine, view, now_s, said)
    _give(mine, part, view, now_s, said)
    _let_go(mine, now_s, said)
    _forward(mine, part, view, said)
    _receive(mine, part, view, now_s, said)


def _retreat(mine: WorkerState, view: View, now_s: float, said: list[Action]) -> None:
    """Leave the leases to others for a while, if there are any, after a time in which no write was possible."""
    others = any(not worker.leaving for worker in view.workers.values())
    retreats = now_s < mine.retreats_until_s and others
    if retreats != mine.retreats:
        mine.retreats = retreats
        said.append(SHOW)


def _keep_up(mine: WorkerState, view: View, now_s: float, said: list[Action]) -> None:
    """Look once at the start which leases are missing; clean up at intervals, one worker for all."""
    upkeep, terms = mine.upkeep, mine.terms
    if now_s >= upkeep.measure_at_s:
        upkeep.measure_at_s = now_s + terms.failover_s / MEASURES_PER_FAILOVER
        said.append(MEASURE)
    if upkeep.is_busy:
        return
    if view.has_gone and now_s >= upkeep.gone_at_s:
        work = Work.GONE
    elif now_s < upkeep.at_s:
        return
    elif not upkeep.searched:
        work = Work.SEARCH
    elif terms.worker_id == min(one for one, worker in mine.workers.items() if worker.alive):
        work = Work.CLEAN
    else:
        return
    if work is not Work.GONE:
        upkeep.at_s = now_s + terms.upkeep_interval_s
    upkeep.is_busy = True
    said.append(KeepUp(work))


def _upkeep_over(mine: WorkerState, given: UpkeepOver, now_s: float, said: list[Action]) -> None:
    upkeep = mine.upkeep
    upkeep.is_busy = False
    if given.failed:
        upkeep.at_s = upkeep.gone_at_s = now_s + mine.terms.upkeep_retry_s
    elif given.work is Work.SEARCH:
        upkeep.searched = True


# --- what is held, and is to go -----------------------------------------------------------------------


def _give(mine: WorkerState, part: Decision, view: View, now_s: float, said: list[Action]) -> None:
    """Offer leases to the workers that are to have them."""
    load = Counter(lease.owner for lease in view.leases.values() if lease.owner and not lease.ended)
    me, workers, avoids = mine.terms.worker_id, mine.workers, mine.avoids(now_s)
    for key, owned in mine.held.items():
        side = owned.side
        if mine.leaving or key in avoids or key in view.given_up:
            receiver = part.give.get(key)
            if receiver is None or receiver in side.tried:
                receiver = receiver_for(key, load, workers.values(), me, side.tried)
            if receiver is None:
                _own(mine, key, side.handle(OwnerEvent.FREE, now_s), now_s, said)
            else:
                _own(mine, key, side.offer(receiver, now_s), now_s, said)
                load[receiver] += 1
        elif (wanting := part.give.get(key)) is not None and key in workers[wanting].wants:
            _own(mine, key, side.offer(wanting, now_s), now_s, said)
        elif key in part.free and not mine.retreats:  # While it retreats, others ask for what they are to have.
            _own(mine, key, side.handle(OwnerEvent.FREE, now_s), now_s, said)


def _let_go(mine: WorkerState, now_s: float, said: list[Action]) -> None:
    """Stop what is to go once its receiver is ready, few at a time: a shard waits without a reader for all that stop
    together with it. A shard that takes long to be settled keeps no other from stopping.
    """
    ages_s = [now_s - owned.stopped_s for owned in mine.held.values() if owned.stopped_s is not None]
    most = max(STOPS_AT_ONCE, len(mine.held) // STOPPING_TURNS_MAX)
    room = most - sum(age_s < STOP_COUNTS_S for age_s in ages_s)
    for key, owned in mine.held.items():
        before, may_stop = owned.stopped_s, room > 0
        _own(mine, key, owned.side.look(mine.workers, now_s, may_stop=may_stop), now_s, said)
        _own(mine, key, owned.side.tick(now_s, may_stop=may_stop), now_s, said)
        if before is None and owned.stopped_s is not None:
            room -= 1


def _own(mine: WorkerState, key: str, commands: Iterable[OwnerCommand], now_s: float, said: list[Action]) -> None:
    """Carry the commands of an owner's side into the own row, and into actions."""
    for command in commands:
        owned = mine.held[key]
        receiver = owned.side.receiver
        if command is OwnerCommand.NAME:
            assert receiver is not None
            mine.gives[key] = receiver
            said.append(SHOW)
        elif command is OwnerCommand.UNNAME:
            mine.gives.pop(key, None)
            said.append(SHOW)
        elif command is OwnerCommand.STOP:
            assert owned.side.due_s is not None
            owned.stopped_s = now_s
            said.append(Stop(key, owned.side.due_s))
        elif command is OwnerCommand.RESUME:
            owned.stopped_s = None
            said.append(Resume(key))
        elif command is OwnerCommand.GIVE:
            known = None if receiver is None else mine.workers.get(receiver)
            owned.given_to = None if known is None else receiver
            said.append(EndTenure(key, receiver, None if known is None else known.process))
        elif command is OwnerCommand.FREE:
            owned.given_to = None
            said.append(EndTenure(key, None, None))


def _owner_learnt(mine: WorkerState, given: OwnerLearnt, now_s: float, said: list[Action]) -> None:
    if (owned := mine.held.get(given.key)) is not None:
        _own(mine, given.key, owned.side.handle(given.given, now_s), now_s, said)


def _leader_named(mine: WorkerState, given: LeaderNamed, now_s: float, said: list[Action]) -> None:
    if (owned := mine.held.get(given.key)) is not None:
        _own(mine, given.key, owned.side.leader_named(given.receiver, now_s), now_s, said)


# --- what was given, and is not held ------------------------------------------------------------------


def _workers_seen(mine: WorkerState, given: WorkersSeen, now_s: float, said: list[Action]) -> None:
    """Free what was given to a worker that has left meanwhile: it would wait for that worker's failover time.

    A worker that began with the lease wrote to the lease's row before its own row went: then the free is refused.
    """
    orphans = []
    for key in given.given:  # What was given since does not count: the look may be older than the receiver's row.
        if (row := mine.given.get(key)) is None:
            continue
        now, receiver = given.leases.get(key), given.workers.get(row.actual_owner or "")
        if now is None or now.counter > row.counter or (receiver is not None and key in receiver.held):
            del mine.given[key]
        elif receiver is None:
            orphans.append(row)
    if orphans:
        said.append(FreeRows(orphans))


def _freed(mine: WorkerState, given: Freed, now_s: float, said: list[Action]) -> None:
    for key in given.keys:
        mine.given.pop(key, None)


def _forward(mine: WorkerState, part: Decision, view: View, said: list[Action]) -> None:
    """Pass on what a leader wants handed over by this worker, which does not hold it: the worker held it in a former
    life.
    """
    wanted = [key for key, one in part.follow.items() if one is Step.HAND_OVER]
    former = [view.rows[key] for key in wanted if key not in mine and key in view.named]
    if former:
        said.append(FreeRows(former))


# --- what may come --------------------------------------------------------------------------------------


class _Facts(NamedTuple):
    """The facts that a round knows besides the worker's own."""

    view: View
    part: Decision
    planned: Collection[str]
    """The leases that are taken unasked."""
    avoids: Collection[str]
    at_s: float


def _receive(mine: WorkerState, part: Decision, view: View, now_s: float, said: list[Action]) -> None:
    """Take, ask, warm up; look closely at the leases that are on their way here."""
    me, failover_s = mine.terms.worker_id, mine.terms.failover_s
    unasked = _unasked(mine, view, now_s, said)
    offered = [key for owner in mine.workers.values() for key, to in owner.gives.items() if to == me]
    coming = [key for key, one in part.follow.items() if one is Step.WARM_UP]
    for key in (*part.take, *part.ask, *unasked, *coming, *offered):
        if key not in mine and key not in mine.receiving:
            mine.receiving[key] = ReceiverSide(key, me, failover_s=failover_s)
    now = _Facts(view, part, {*part.take, *unasked}, mine.avoids(now_s), now_s)
    by_scan = mine.waits_for_many(len(view.leases)) and view.scan_sent_s > mine.by_scan_s
    if by_scan:
        mine.by_scan_s = view.scan_sent_s
    for side in list(mine.receiving.values()):
        _approach(mine, side, now, said)
        if side.polls and by_scan:
            _look(mine, side, _by_scan(view, side.key), now_s, said)
        elif side.polls:
            # The read comes after the owner's row was: what that row does not name any more may be given by now.
            said.append(LookAt(side.key))
        _drop_idle(mine, side)


def _unasked(mine: WorkerState, view: View, now_s: float, said: list[Action]) -> list[str]:
    """Return the leases to take although no plan says so: those that have this worker's name and that it does not hold,
    and children of shards that have ended here.
    """
    if mine.leaving or mine.retreats:
        return []
    _disinherit(mine, view, said)
    readable = {lease.key: lease for lease in startable(view.leases.values())}
    next_owners, leases_max, avoids = (None, mine.terms.worker_id), mine.terms.leases_max, mine.avoids(now_s)
    named = [key for key, one in readable.items() if key in view.named and one.next_owner in next_owners]
    has_room = leases_max is None or len(mine.held) + len(mine.claims) < leases_max
    heirs = sorted(mine.heirs & readable.keys()) if has_room and view.fleet is not Fleet.KCL3 else []
    return [key for key in (*named, *heirs) if key not in mine and key not in avoids]


def _disinherit(mine: WorkerState, view: View, said: list[Action]) -> None:
    """Drop what others have taken: it is not to be taken any more, nor read ahead."""
    for key in sorted(mine.heirs & view.leases.keys()):
        if view.leases[key].ended or view.leases[key].owner is not None:
            mine.heirs.discard(key)
            if key not in mine and key not in mine.receiving:
                said.append(Discard(key))


def _approach(mine: WorkerState, side: ReceiverSide, now: _Facts, said: list[Action]) -> None:
    """Tell a side what the round decided and what the rows show. It may have to look at its lease closely then."""
    key, view, part, leaving = side.key, now.view, now.part, mine.leaving
    lease, is_planned, is_robbed = view.leases.get(key), key in now.planned, key in view.robbed
    if key in part.ask and lease is not None and lease.owner is not None and not leaving:
        _do(mine, side, side.want(lease.owner), said)
    elif leaving or (side.state is ReceiverState.ASKING and not is_planned):
        # What an owner offers is taken, whatever the plan: the owner may be leaving.
        _do(mine, side, side.drop(), said)
    owner = mine.workers.get(side.owner or (lease.owner if lease is not None else None) or "")
    refuses = leaving or key in now.avoids  # The owner gives what this worker cannot read to another one.
    _do(mine, side, side.look_at_owner(owner, now.at_s, leaving=refuses), said, is_robbed=is_robbed)
    if side.polls or lease is None or not (is_planned or part.follow.get(key) is Step.WARM_UP):
        return
    looked = side.look_at_lease(
        lease,
        sent_s=view.scanned_s,
        now_s=now.at_s,
        # What is to be taken is free, or a KCL worker has too much of it.
        free=key in part.take or is_free(lease, mine.workers, mine.terms.failover_s),
        planned=is_planned,
        leaving=leaving,
    )
    _do(mine, side, looked, said, is_robbed=is_robbed)


def _by_scan(view: View, key: str) -> LeaseSeen:
    """Return an awaited lease as the last scan showed it, which was made just now, for this."""
    return LeaseSeen(
        key=key,
        row=view.rows.get(key),
        lease=view.leases.get(key),
        known=view.before.get(key),
        sent_s=view.scan_sent_s,
        is_robbed=key in view.robbed,
    )


def _lease_seen(mine: WorkerState, given: LeaseSeen, now_s: float, said: list[Action]) -> None:
    if (side := mine.receiving.get(given.key)) is not None:
        _look(mine, side, given, now_s, said)
        _drop_idle(mine, side)


def _look(mine: WorkerState, side: ReceiverSide, given: LeaseSeen, now_s: float, said: list[Action]) -> None:
    row, known, lease = given.row, given.known, given.lease
    if row is not None:
        said.append(Follow(given.key, row.checkpoint))
    # The owner's silence was looked at before this read: it counts only if the lease has not moved since the scan.
    moved = row is not None and row.owner is not None and (known is None or row.counter != known.counter)
    free = lease is not None and not moved and is_free(lease, mine.workers, mine.terms.failover_s)
    looked = side.look_at_lease(lease, sent_s=given.sent_s, now_s=now_s, free=free, leaving=mine.leaving)
    _do(mine, side, looked, said, is_robbed=given.is_robbed)


def _do(
    mine: WorkerState,
    side: ReceiverSide,
    commands: Iterable[ReceiverCommand],
    said: list[Action],
    *,
    is_robbed: bool = False,
) -> None:
    """Carry the commands of a receiver's side into the own row, and into actions."""
    key = side.key
    for command in commands:
        if command is ReceiverCommand.SAY_WANTED:
            mine.wanted.add(key)
            said.append(SHOW)
        elif command is ReceiverCommand.SAY_WARM:
            mine.warm.add(key)
            said += (SHOW, STIR)
        elif command is ReceiverCommand.UNSAY:
            mine.wanted.discard(key)
            mine.warm.discard(key)
            said.append(SHOW)
        elif command is ReceiverCommand.WARM_UP:
            said.append(WarmUp(key))
        elif command is ReceiverCommand.DISCARD:
            said.append(Discard(key))
        elif command in (ReceiverCommand.TAKE, ReceiverCommand.RECEIVE):
            mine.claims.add(key)
            if is_robbed:
                mine.stolen.add(key)
            receives = command is ReceiverCommand.RECEIVE
            said.append(Take(key, receives, side.unmoved_s if receives else None))
        elif command is ReceiverCommand.READ:
            said.append(STIR)


def _drop_idle(mine: WorkerState, side: ReceiverSide) -> None:
    if side.state is ReceiverState.IDLE and mine.receiving.get(side.key) is side:
        del mine.receiving[side.key]


# --- between rounds -------------------------------------------------------------------------------------


def _warmed(mine: WorkerState, given: Warmed, now_s: float, said: list[Action]) -> None:
    if (side := mine.receiving.get(given.key)) is not None:
        _do(mine, side, side.handle(ReceiverEvent.WARMED, now_s), said)


def _not_readable(mine: WorkerState, given: NotReadable, now_s: float, said: list[Action]) -> None:
    mine.avoid(given.key, now_s + mine.terms.failover_s)
    said.append(SHOW)
    if (side := mine.receiving.get(given.key)) is not None:
        _do(mine, side, side.drop(), said)


def _began(mine: WorkerState, given: Began, now_s: float, said: list[Action]) -> None:
    """Keep the side until the lease is delivered from, lest the same lease be taken twice."""
    side = mine.receiving.get(given.key)
    if side is not None and side.state is ReceiverState.TAKING:
        learnt = ReceiverEvent.BEGAN if given.began else ReceiverEvent.NOT_TAKEN
        _do(mine, side, side.handle(learnt, now_s), said)


def _delivers(mine: WorkerState, given: Delivers, now_s: float, said: list[Action]) -> None:
    key, terms = given.key, mine.terms
    mine.claims.discard(key)
    mine.stolen.discard(key)
    mine.receiving.pop(key, None)
    side = OwnerSide(key, warm_deadline_s=terms.warm_deadline_s, drain_deadline_s=terms.drain_deadline_s)
    mine.held[key] = OwnedLease(side)
    said += (Deliver(key), SHOW, STIR)


def _over(mine: WorkerState, given: Over, now_s: float, said: list[Action]) -> None:
    key, row = given.key, given.row
    mine.claims.discard(key)
    mine.stolen.discard(key)
    mine.receiving.pop(key, None)
    owned = mine.held.pop(key, None)
    if owned is not None and owned.given_to is not None and row.actual_owner == owned.given_to:
        # The receiver may have left since its row was looked at: then no worker waits for the lease.
        mine.given[key] = row
    mine.gives.pop(key, None)
    said += (SHOW, STIR)


def _unconfirmed(mine: WorkerState, given: Unconfirmed, now_s: float, said: list[Action]) -> None:
    mine.retreats_until_s = now_s + mine.terms.failover_s


def _gave_up(mine: WorkerState, given: GaveUp, now_s: float, said: list[Action]) -> None:
    mine.avoid(given.key, now_s + given.cool_down_s)
    said += (SHOW, STIR)


def _inherited(mine: WorkerState, given: Inherited, now_s: float, said: list[Action]) -> None:
    mine.heirs.add(given.key)
    if given.may_start and given.key not in mine.receiving:
        said.append(ReadAhead(given.key))


def _leave(mine: WorkerState, given: Leave, now_s: float, said: list[Action]) -> None:
    mine.leaving = True
    said += (SHOW, STIR)


_RULES: Mapping[type[Any], Callable[[WorkerState, Any, float, list[Action]], None]] = {
    View: _round,
    WorkersSeen: _workers_seen,
    Freed: _freed,
    LeaseSeen: _lease_seen,
    Warmed: _warmed,
    NotReadable: _not_readable,
    Began: _began,
    Delivers: _delivers,
    Over: _over,
    Unconfirmed: _unconfirmed,
    LeaderNamed: _leader_named,
    OwnerLearnt: _owner_learnt,
    GaveUp: _gave_up,
    Inherited: _inherited,
    Leave: _leave,
    UpkeepOver: _upkeep_over,
}
"""The rules of the machine, which are complete: there is a rule for every input."""
