"""An owner whose own row may stand still, and another worker that takes its lease for that: every order of their steps.

The same kind of search as in ``lease_search``: times are whole numbers before now, which is 0.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases import Done, LeaseRow, Refused, Unknown, lease_row
from shardway.core.leases.membership import WorkerRows
from shardway.core.leases.tenure import commands, events, machine
from shardway.core.leases.tenure.state import State, Tenure
from shardway.core.leases.worker_row import WorkerRow
from tests.core.leases.exploring import BrokenRuleError
from tests.core.leases.lease_search import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.leases import Write

FENCE_AGE = 2
TAKE_AGE = 3
OWNER, TAKER = "owner", "taker"


class Put(NamedTuple):
    """A write to the owner's own row that is under way."""

    sent_s: float
    arrived: bool = False


class World(NamedTuple):
    row: LeaseRow
    beats: int
    """The counter in the owner's own row."""
    tenure: Tenure
    under: tuple[Write, Any] | None = None
    """The owner's write to the lease: with None a request, else with its outcome."""
    late: Write | None = None
    put: Put | None = None
    seen: tuple[int, float] = (0, 0)
    """The taker: the owner's beats, and since when."""
    read: LeaseRow | None = None
    """The lease as the taker read it."""


@dataclass
class MemberSearch:
    """Breadth first. ``looks_first`` is the wrong order: the worker's row before the leases."""

    counter: int = 3
    beats: int = 2
    looks_first: bool = False
    states: int = 0
    moves: int = 0
    takes: int = 0

    def run(self) -> MemberSearch:
        """Raise BrokenRuleError for the first world in which the owner delivers what the taker has."""
        tenure, _ = machine.claim(LeaseRow(key="a"), OWNER, TIMES, 0, alive_s=0)
        row = LeaseRow(key="a", owner=OWNER, counter=1)
        tenure, follows = machine.step(tenure, events.WriteAnswered(Done(row)), 0)
        assert tenure.may_deliver(0)
        assert not any(isinstance(one, commands.SendWrite) for one in follows)
        first = World(row, 0, tenure)
        known, queue = {first}, deque([first])
        while queue:
            world = queue.popleft()
            self.states += 1
            for step, after in self._steps(world):
                self.moves += 1
                if after.row.owner == TAKER and after.tenure.may_deliver(0):
                    raise BrokenRuleError(f"the owner delivers what the taker has, after {step}: {world}")
                after = _useful(after)
                if after not in known:
                    known.add(after)
                    queue.append(after)
        return self

    def _steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield "time passes", _older(world)
        yield "the owner is told the time", _told(world, events.TimerFired())
        if world.under is not None:
            yield from self._lease_write(world, *world.under)
        if world.late is not None:
            yield "a late write arrives", _arrive(world._replace(late=None), world.late)[0]
        yield from self._beating(world)
        if world.row.owner == OWNER:
            yield from self._taking(world)

    def _lease_write(self, world: World, write: Write, outcome: Any) -> Iterator[tuple[str, World]]:
        gone = world._replace(under=None)
        if outcome is not None:
            yield "answered", _told(gone, events.WriteAnswered(outcome))
            return
        after, outcome = _arrive(world, write)
        if after.row.counter <= self.counter:
            yield "write arrives", after._replace(under=(write, outcome))
        yield "write is lost", _told(gone, events.WriteAnswered(Unknown("?")))
        yield "write stays away", _told(gone._replace(late=write), events.WriteAnswered(Unknown("?")))

    def _beating(self, world: World) -> Iterator[tuple[str, World]]:
        if world.put is None:
            if world.beats < self.beats:
                yield "the owner writes its row", world._replace(put=Put(0))
        elif not world.put.arrived:
            yield "its row arrives", world._replace(beats=world.beats + 1, put=world.put._replace(arrived=True))
            yield "its row is lost", world._replace(put=None)
        else:
            yield "its row is confirmed", _told(world._replace(put=None), events.WorkerRowConfirmed(world.put.sent_s))
            yield "the answer is lost", world._replace(put=None)

    def _taking(self, world: World) -> Iterator[tuple[str, World]]:
        beats, since_s = world.seen
        if beats != world.beats:
            yield "the taker looks", world._replace(seen=(world.beats, 0))
        yield "the taker reads the lease", world._replace(read=world.row)
        if world.read is None:
            return
        members = WorkerRows(TAKER, TIMES.failover_s)
        members.look([_beat(beats)], since_s)
        if not self.looks_first:
            members.look([_beat(world.beats)], 0)
        if OWNER in members.silent(leases_answered_s=0, look_sent_s=0, now_s=0):
            _, (command,) = machine.claim(world.row if self.looks_first else world.read, TAKER, TIMES, 0)
            assert isinstance(command, commands.SendWrite)
            after, outcome = _arrive(world, command.write)
            self.takes += isinstance(outcome, Done)
            yield "the taker looks, and takes", after


def _beat(beats: int) -> WorkerRow:
    return WorkerRow(worker_id=OWNER, counter=beats, failover_s=TIMES.failover_s)


def _arrive(world: World, write: Write) -> tuple[World, Any]:
    attributes = world.row.attributes()
    if not write.allowed_on(attributes):
        return world, Refused(world.row)
    row = lease_row(write.onto(attributes))
    return world._replace(row=row), Done(row)


def _told(world: World, given: Any) -> World:
    tenure, follows = machine.step(world.tenure, given, 0)
    for command in follows:
        if isinstance(command, commands.SendWrite):
            world = world._replace(under=(command.write, None))
    if tenure.state is State.OVER:
        world = world._replace(under=None, late=None, put=None)
    return world._replace(tenure=tenure)


def _useful(world: World) -> World:
    """Without what can have no effect any more."""
    if world.late is not None and dict(world.late.expects)["leaseCounter"] < world.row.counter:
        world = world._replace(late=None)
    if world.row.owner == TAKER:
        return world._replace(seen=(0, 0), read=None)
    if world.read is not None and world.read.counter < world.row.counter:
        world = world._replace(read=None)
    return world


def _age(time_s: float, age_max: float = FENCE_AGE) -> float:
    return max(time_s - 1, -age_max)


def _older(world: World) -> World:
    tenure, sent = world.tenure, world.tenure.sent
    if sent is not None:
        sent = replace(sent, first_s=_age(sent.first_s), last_s=_age(sent.last_s))
    assert tenure.alive_s is not None
    tenure = replace(tenure, lease_s=_age(tenure.lease_s), alive_s=_age(tenure.alive_s), sent=sent)
    put = world.put
    return world._replace(
        tenure=tenure,
        put=None if put is None else put._replace(sent_s=_age(put.sent_s)),
        seen=(world.seen[0], _age(world.seen[1], TAKE_AGE)),
    )
