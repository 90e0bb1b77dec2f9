"""Two workers, one lease, and all that can go wrong between them: a state, and every state that may follow it.

The workers are the real tables. Around them: the lease's row, on which a write is applied if no other write came since
it was made (however late that is, and also after its writer's death); worker rows, looked at whenever it pleases; looks
at the lease that are answered now and acted upon later; crashes, pauses beyond the failover time, and a KCL worker that
steals and dies. What the tenure does is cut down to: a fallen fence is lifted by a renewal or not at all, and a write
is repeated until its outcome is known, or given up on after long silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.handoff.owner import OWNER, OwnerCommand, OwnerEvent, OwnerState
from shardway.core.handoff.receiver import POLLS, RECEIVER, ReceiverCommand, ReceiverEvent, ReceiverState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    State = OwnerState | ReceiverState
    Command = OwnerCommand | ReceiverCommand

O, OE, OC = OwnerState, OwnerEvent, OwnerCommand  # noqa: E741
R, RE, RC = ReceiverState, ReceiverEvent, ReceiverCommand
KCL = "kcl"
DELIVERS = frozenset({O.HOLDING, O.OFFERING})
"""The states in which an owner delivers, while its tenure's fence stands: after `OwnerCommand.STOP` it does not."""


class Write(NamedTuple):
    """A write that its worker waits for."""

    kind: str  # "give", "free" or "take"
    fate: str = "valid"  # then "applied", or "void": another write came before it

    def overtaken(self) -> Write:
        return self._replace(fate="void") if self.fate == "valid" else self


class Look(NamedTuple):
    """A look at the lease that was answered and is not acted upon yet."""

    given: ReceiverEvent
    valid: bool = True  # no write came since
    fresh: bool = True  # it was sent not long ago


class Worker(NamedTuple):
    state: OwnerState | ReceiverState
    up: str = "up"  # or "silent": nothing it writes is confirmed, its fence is down; or "dead"
    leaving: bool = False
    wants: bool = False
    warm: bool = False
    gives: bool = False
    accepted: bool = False  # it has seen the other want what it offers
    write: Write | None = None  # the write under way
    look: Look | None = None
    seen: bool = False  # it saw the row name the other, not long ago
    robbed: bool = False  # another worker had the lease since its tenure began

    @property
    def delivers(self) -> bool:
        return self.up == "up" and self.owns and self.state in DELIVERS

    @property
    def owns(self) -> bool:
        return isinstance(self.state, OwnerState)


class World(NamedTuple):
    workers: tuple[Worker, Worker]
    row: int | str | None  # the owner of the lease: 0, 1, the KCL worker, none
    kcl: str = "none"  # "away", then "there", then "dead"
    late: frozenset[tuple[int, str]] = frozenset()  # valid writes whose writers do not wait for them any more
    crashes: int = 0
    pauses: bool = False  # beyond the failover time, as often as one likes
    leaves: tuple[bool, bool] = (False, False)  # which of them may be told to leave

    def having(self, who: int, worker: Worker) -> World:
        workers = (worker, self.workers[1]) if who == 0 else (self.workers[0], worker)
        return self._replace(workers=workers)


def begin(**more: Any) -> World:
    return World((Worker(O.HOLDING), Worker(R.IDLE)), 0, **more)


# --- the machines -----------------------------------------------------------------------------------


def fed(world: World, who: int, given: OwnerEvent | ReceiverEvent, valid: bool = True) -> World | None:
    """The world after a worker has learnt something; None if it changes nothing."""
    worker = world.workers[who]
    # The pairs of a worker are looked up in the table of its side.
    table: Mapping[Any, tuple[State, tuple[Command, ...]]] = OWNER if worker.owns else RECEIVER
    if (worker.state, given) not in table:
        return None
    state, commands = table[worker.state, given]
    after = worker._replace(state=state)
    for command in commands:
        after = _do(after, command, valid)
    if RC.RECEIVE in commands:  # begins at once
        assert after.state in (R.TAKING, R.HOLDING)
        after = after._replace(state=R.HOLDING, wants=False, warm=False)
    if OC.NAME in commands or OC.UNNAME in commands:
        after = after._replace(accepted=False)
    if after.state not in POLLS:
        after = after._replace(seen=False)
    if after.state is R.HOLDING:
        after = Worker(O.HOLDING, after.up, after.leaving, write=after.write)
    if after.state is O.GONE:
        after = Worker(R.IDLE, after.up, after.leaving)
    return world.having(who, after)


def _do(worker: Worker, command: OwnerCommand | ReceiverCommand, valid: bool) -> Worker:
    match command:
        case OC.NAME:
            return worker._replace(gives=True)
        case OC.UNNAME:
            return worker._replace(gives=False)
        case OC.GIVE | OC.FREE:
            return worker._replace(write=Write(command.value, "void" if worker.robbed else "valid"))
        case RC.TAKE:
            return worker._replace(write=Write("take", "valid" if valid else "void"), look=None)
        case RC.SAY_WANTED:
            return worker._replace(wants=True)
        case RC.SAY_WARM:
            return worker._replace(warm=True)
        case RC.UNSAY:
            return worker._replace(wants=False, warm=False)
        case RC.READ:
            return worker._replace(look=None)  # looks that were sent before do not count
    return worker


# --- the lease's row --------------------------------------------------------------------------------


def written(world: World, by: int | str, row: int | str | None) -> World:
    """The row after a write: what others made of its former state is void."""
    workers = list(world.workers)
    for who, worker in enumerate(workers):
        if who == by:
            continue
        workers[who] = worker._replace(
            write=worker.write and worker.write.overtaken(),
            look=worker.look and worker.look._replace(valid=False),
            robbed=worker.robbed or (worker.owns and row != who) or (worker.owns and world.row != who),
        )
    if isinstance(by, int):
        look = workers[by].look
        workers[by] = workers[by]._replace(look=look and look._replace(valid=False))
    return world._replace(workers=(workers[0], workers[1]), row=row, late=frozenset())


def target(who: int, kind: str) -> int | None:
    return {"give": 1 - who, "free": None, "take": who}[kind]


def looked(world: World, who: int) -> ReceiverEvent:
    """What the row shows to a worker that does not hold the lease."""
    worker, other = world.workers[who], world.workers[1 - who]
    if world.row == who:
        return RE.MINE if worker.seen and worker.state in POLLS else RE.MINE_UNSEEN
    if world.row is None:
        return RE.TAKEABLE
    if world.row == KCL:
        return RE.TAKEABLE if world.kcl == "dead" else RE.OTHERS
    return RE.THEIRS if other.up == "up" else RE.TAKEABLE


# --- what may happen --------------------------------------------------------------------------------


def calm(world: World) -> Iterator[tuple[str, World]]:
    """What happens while nothing more goes wrong."""
    for who, worker in enumerate(world.workers):
        if worker.up == "dead":
            continue
        moves = _owner_moves(world, who, worker) if worker.owns else _receiver_moves(world, who, worker)
        for name, after in (*moves, *_write_moves(world, who, worker)):
            if after is not None and after != world:
                yield f"{'AB'[who]}: {name}", after
        if worker.leaving and worker.state is R.IDLE and not worker.write:
            yield f"{'AB'[who]}: exits", world.having(who, Worker(R.IDLE, "dead", True))


def faults(world: World) -> Iterator[tuple[str, World]]:
    """What may go wrong, or is decided elsewhere."""
    for who, worker in enumerate(world.workers):
        name = "AB"[who]
        for late in world.late:
            if late[0] == who:
                yield f"{name}: a late {late[1]} is applied", written(world, "late", target(*late))
        if worker.up == "dead":
            continue
        if world.pauses and worker.up == "up" and (worker.owns or world.row == who or worker.write):
            yield f"{name}: silent", world.having(who, worker._replace(up="silent", seen=False))
        if world.crashes:
            after = world.having(who, Worker(worker.state, "dead", gives=worker.gives))
            yield f"{name}: crash", after._replace(crashes=world.crashes - 1, late=world.late | pending(who, worker))
        if world.leaves[who] and not worker.leaving:
            yield f"{name}: told to leave", world.having(who, worker._replace(leaving=True))
        if not worker.owns and worker.state is not R.TAKING and (dropped := fed(world, who, RE.DROP)):
            yield f"{name}: drop", dropped
        if worker.up == "silent" and worker.write and (given_up := _given_up(world, who, worker)):
            yield f"{name}: gives up on a write", given_up
        if worker.up == "silent" and worker.owns and not worker.write:
            yield f"{name}: unconfirmed for long", fed(world, who, OE.LOST) or world
    if world.kcl == "away":
        yield "the KCL steals", written(world, KCL, KCL)._replace(kcl="there")
    if world.kcl == "there" and (without := _without_kcl(world)):
        yield "the KCL worker is dead for the failover time", without


def _without_kcl(world: World) -> World | None:
    """So much later no worker that is awake believes in a tenure that is over, and looks of before are old."""
    for who, worker in enumerate(world.workers):
        if worker.up == "up" and (worker.robbed or worker.write == Write("take", "applied")):
            return None
        aged = worker._replace(seen=False, look=worker.look and worker.look._replace(fresh=False))
        world = world.having(who, aged)
    return world._replace(kcl="dead")


def _owner_moves(world: World, who: int, worker: Worker) -> Iterator[tuple[str, World | None]]:
    other = world.workers[1 - who]
    present = other.up != "dead" and not other.leaving
    wanted = other.wants or worker.leaving
    if worker.up == "silent" or worker.robbed or _is_disputed(world, who):
        yield "renews", _renewed(world, who, worker)
    if wanted and present and not other.owns and not worker.gives:
        yield "offers", fed(world, who, OE.OFFER)
        yield "offers cold", fed(world, who, OE.OFFER_COLD)
    if worker.leaving and not present:
        yield "frees", fed(world, who, OE.FREE)
    if worker.gives:
        if other.wants and not worker.accepted:
            yield "sees it wanted", world.having(who, worker._replace(accepted=True))
        if other.warm:
            yield "sees it warm", fed(world, who, OE.WARM)
        if worker.accepted:
            yield "waited enough", fed(world, who, OE.WARM_DEADLINE)
        silent = worker.state is O.OFFERING and not worker.accepted
        if other.up != "up" or other.leaving or (not other.wants and (worker.accepted or silent)):
            yield "receiver gone", fed(world, who, OE.RECEIVER_GONE)
    yield "drained", fed(world, who, OE.DRAINED)


def _receiver_moves(world: World, who: int, worker: Worker) -> Iterator[tuple[str, World | None]]:
    other = world.workers[1 - who]
    if worker.up == "silent" and not worker.write:
        # A take that was sent before counts from then: its tenure begins with a fence that is down.
        look = worker.look and worker.look._replace(fresh=False)
        yield "wakes", world.having(who, worker._replace(up="up", seen=False, look=look))
    if worker.look is not None:
        yield "acts on a look", _acted(world, who, worker)
    elif worker.state is not R.TAKING:
        given = looked(world, who)
        if worker.state in POLLS or (worker.state, given) in RECEIVER:
            yield "looks at the lease", world.having(who, worker._replace(look=Look(given)))
    if worker.state is R.IDLE and not worker.leaving and other.owns:
        yield "wants", fed(world, who, RE.WANT)
    if worker.leaving:
        yield "drops", fed(world, who, RE.DROP)
    if other.gives and not (worker.leaving and worker.state is R.IDLE):
        yield "sees itself named", fed(world, who, RE.NAMED)
    if not other.gives:
        yield "sees itself not named", fed(world, who, RE.UNNAMED)
    yield "warmed", fed(world, who, RE.WARMED)


def _acted(world: World, who: int, worker: Worker) -> World | None:
    assert worker.look is not None
    given, valid, fresh = worker.look
    fresh = fresh and worker.up == "up"
    if given is RE.MINE and not fresh:
        given = RE.MINE_UNSEEN
    if given is RE.TAKEABLE and worker.leaving and worker.state in (R.IDLE, R.ASKING):
        return world.having(who, worker._replace(look=None))
    seen = given is RE.THEIRS and worker.state in POLLS and fresh
    cleared = world.having(who, worker._replace(look=None, seen=seen))
    after = fed(cleared, who, given, valid)
    if after is None:
        return cleared
    now = after.workers[who]
    if now.owns and not valid:  # received a lease that has been written to since
        after = after.having(who, now._replace(robbed=world.row != who or now.robbed))
    return after


def _write_moves(world: World, who: int, worker: Worker) -> Iterator[tuple[str, World | None]]:
    if worker.write is None:
        return
    kind, fate = worker.write
    after = world.having(who, worker._replace(write=None))
    if fate == "valid":
        applied = world.having(who, worker._replace(write=Write(kind, "applied")))
        yield f"the {kind} is applied", written(applied, who, target(who, kind))
    elif worker.owns:
        yield "hears of its write", fed(after, who, OE.ENDED if fate == "applied" else OE.LOST)
    elif fate == "applied":
        began = fed(after, who, RE.BEGAN)
        assert began is not None
        yield "hears of its take", began.having(who, began.workers[who]._replace(robbed=world.row != who))
    else:
        yield "hears of its take", fed(after, who, RE.GIVEN_INSTEAD if world.row == who else RE.NOT_TAKEN)


def pending(who: int, worker: Worker) -> set[tuple[int, str]]:
    """What may still be applied after its worker waits for it no more."""
    return {(who, worker.write.kind)} if worker.write and worker.write.fate == "valid" else set()


def _given_up(world: World, who: int, worker: Worker) -> World | None:
    after = world.having(who, worker._replace(write=None))._replace(late=world.late | pending(who, worker))
    return fed(after, who, OE.ENDED if worker.owns else RE.NOT_TAKEN)


def _is_disputed(world: World, who: int) -> bool:
    other = world.workers[1 - who]
    contends = other.write is not None and other.write.fate == "valid"
    return bool(world.late) or contends or (other.look is not None and other.look.valid)


def _renewed(world: World, who: int, worker: Worker) -> World | None:
    """The tenure's next renewal, sent and answered: it goes on, or is over."""
    if worker.write:
        return None
    if worker.robbed or world.row != who:
        return fed(world, who, OE.LOST)
    return written(world.having(who, worker._replace(up="up")), who, who)
