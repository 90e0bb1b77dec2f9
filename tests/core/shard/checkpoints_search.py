"""All that can happen to the checkpoints of one tenure, with the real machine of the lease and a table of one row.

A world is the machine of checkpoints, the tenure, what the tenure is still to be told, the row, and how far the ledger
is. From each world every step that is possible is taken: records come and are settled, the program seeks, prepares,
commits, abandons, sets a bound; the tenure takes what it was told; a renewal falls due; a write is answered, or is
applied or not and has no answer; the lease is let go. Positions are small, and times and counters are always the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases import Done, LeaseRow, Refused, Unknown, lease_row
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.machine import claim
from shardway.core.leases.tenure.machine import step as lease_step
from shardway.core.leases.tenure.state import Tenure
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.shard.checkpoints import commands as checkpoint_commands
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.checkpoints import machine
from shardway.core.shard.checkpoints.cadence import Cadence, Prompt
from shardway.core.shard.checkpoints.state import ASKED, Checkpoints, Pending, Progress, State
from shardway.errors import CheckpointError
from shardway.policies import PendingChoice
from tests.core.leases.exploring import BrokenRuleError, explore
from tests.core.leases.leasing import at

if TYPE_CHECKING:
    from collections.abc import Iterator


TIMES = LeaseTimes(failover_s=1_000, renew_interval_s=1, margin_s=0, retry_s=0, unconfirmed_max_s=10_000)
RENEWAL_S = 1.0
"""Now is always 0; a renewal is due at this time."""
QUEUE_MAX = 2
PROMPT = Prompt()
BORN = LeaseRow(key="a", checkpoint=at(0), counter=1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the search goes."""

    position: int = 2
    """The last record."""
    cadence: Cadence = PROMPT
    found: Pending | None = None
    """What the former owner left pending."""
    choice: PendingChoice = PendingChoice.ABANDON
    seeks: int = 0
    bounds: bool = False
    lost: int = 1
    """Answers that are lost."""
    ends: bool = True

    def __str__(self) -> str:
        """What is not as usual."""
        found = f"found, {self.choice}" if self.found is not None else "nothing found"
        more = f"{self.seeks} seeks, {self.lost} lost{', bounds' * self.bounds}"
        return f"{self.position} records, {type(self.cadence).__name__}, {found}, {more}"


class World(NamedTuple):
    checkpoints: Checkpoints
    tenure: Tenure
    row: LeaseRow
    """In the table."""
    safe: int = 0
    came: int = 0
    settled: int = 0
    """The furthest that was ever settled."""
    queue: tuple[Any, ...] = ()
    """What the tenure is to be told, in this order."""
    seeks: int = 0
    lost: int = 0
    is_ending: bool = False
    is_over: bool = False

    @property
    def progress(self) -> Progress:
        return Progress(at(self.safe), self.safe)


@dataclass
class Search:
    """Breadth first, so what is found is found in the fewest steps."""

    bounds: Bounds
    states: int = 0
    moves: int = 0

    def __post_init__(self) -> None:
        self.seen: set[State] = set()

    def first(self) -> World:
        row = BORN
        if (found := self.bounds.found) is not None:
            row = replace(row, pending=found.checkpoint, pending_state=found.state)
        tenure, (sent,) = claim(row, "me", TIMES, 0.0)
        assert isinstance(sent, tenure_commands.SendWrite)
        row = lease_row(sent.write.onto(row.attributes()))
        tenure, _ = lease_step(tenure, tenure_events.WriteAnswered(Done(row)), 0.0)
        begun = machine.begin(
            tenure.row, self.bounds.choice, where="a", cadence=self.bounds.cadence, bound=None, now_s=0.0
        )
        after = begun.settled.position.sequence_number
        world = _plain(World(begun.checkpoints, tenure, tenure.row, after, after, after))
        return self._given(world, checkpoint_events.Flush(at_once=True)) if begun.settled > row.checkpoint else world

    def run(self) -> Search:
        """Raise BrokenRuleError for the first world that breaks a rule."""
        explore(self, self.first(), self.steps, self.check)
        return self

    # --- rules ------------------------------------------------------------------------------------

    def check(self, world: World) -> None:
        one, row, tenure = world.checkpoints, world.row, world.tenure
        self.seen.add(one.state)
        if row.checkpoint > at(world.settled):
            raise BrokenRuleError("a checkpoint is ahead of what is settled")
        if one.state is State.PREPARED:
            assert one.pending is not None
            if (row.pending, row.pending_state) != one.pending:
                raise BrokenRuleError("a checkpoint that counts as pending is not in the table")
        found = self.bounds.found
        if found is not None and self.bounds.choice is PendingChoice.COMMIT:
            is_pending = (row.pending, row.pending_state) == found
            if not is_pending and row.checkpoint < found.checkpoint:
                raise BrokenRuleError("a next owner would not learn that what was found pending is done")
        if one.told < one.stored:
            raise BrokenRuleError("more is stored than was told")
        if one.stored > row.checkpoint:
            raise BrokenRuleError("what counts as stored is not in the table")
        wish = tenure.wish
        rests = not world.queue and tenure.sent is None and wish.checkpoint is None and wish.prepare is None
        if rests and not world.is_over:
            if one.state in ASKED:
                raise BrokenRuleError(f"a caller waits, and no write is on its way ({one.state})")
            if one.writing is not None:
                raise BrokenRuleError("a write of its own is waited for that is not on its way")
            if one.idle and one.told != one.stored:
                raise BrokenRuleError("what was told is not stored, and is not on its way")

    def _said(self, before: Checkpoints, world: World, answer: checkpoint_commands.Answer) -> None:
        """A caller has its answer: what it asked for has to be in the table."""
        row, pending = world.row, before.pending
        if answer.error is not None:
            return
        if before.state is State.PREPARING and (row.pending, row.pending_state) != pending:
            raise BrokenRuleError("a prepared checkpoint is not in the table")
        if before.state is State.COMMITTING:
            assert pending is not None
            if row.checkpoint < pending.checkpoint or row.pending is not None:
                raise BrokenRuleError("a committed checkpoint is not in the table")
        if before.state is State.ABANDONING and row.pending is not None:
            raise BrokenRuleError("an abandoned checkpoint is still pending")

    # --- steps ------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        if world.is_over:
            return
        yield from self._of_the_tenure(world)
        if len(world.queue) < QUEUE_MAX and not world.is_ending:
            yield from self._of_the_program(world)

    def _of_the_program(self, world: World) -> Iterator[tuple[str, World]]:
        one, bounds = world.checkpoints, self.bounds
        if world.came < bounds.position:
            yield "a record comes", world._replace(came=world.came + 1)
        if world.safe < world.came:
            safe = world.safe + 1
            settled = world._replace(safe=safe, settled=max(safe, world.settled))
            yield "a record is settled", self._given(settled, checkpoint_events.Look())
        if one.idle and world.seeks < bounds.seeks:
            for place in range(world.came + 1):
                sought = world._replace(
                    safe=place, came=place, settled=max(place, world.settled), seeks=world.seeks + 1
                )
                yield f"seek {place}", self._given(sought, checkpoint_events.Look())
        asked: list[Any] = [
            checkpoint_events.Prepare(at(place), bytes([place]), at(world.came)) for place in range(bounds.position + 1)
        ]
        if one.pending is not None:
            asked += [checkpoint_events.Commit(one.pending), checkpoint_events.Abandon(one.pending)]
        if bounds.bounds:
            asked += [checkpoint_events.SetBound(at(place)) for place in range(bounds.position + 1)]
        for given in (
            *asked,
            checkpoint_events.Look(),
            checkpoint_events.Flush(),
            checkpoint_events.Flush(at_once=True),
        ):
            try:
                yield f"{given}", self._given(world, given)
            except CheckpointError:
                continue
        if bounds.ends:
            ending = self._given(world, checkpoint_events.Flush())
            yield "is let go", ending._replace(queue=(*ending.queue, tenure_events.EndTenure(None)), is_ending=True)

    def _of_the_tenure(self, world: World) -> Iterator[tuple[str, World]]:
        if world.queue:
            given = world.queue[0]
            yield f"the tenure takes {given}", self._tenure(world._replace(queue=world.queue[1:]), given)
        sent = world.tenure.sent
        if sent is None:
            yield "a renewal is due", self._tenure(world, tenure_events.TimerFired(), RENEWAL_S)
        elif sent.doubtful:
            yield "it is repeated", self._tenure(world, tenure_events.TimerFired())
        else:
            row = world.row
            is_allowed = sent.write.allowed_on(row.attributes())
            after = lease_row(sent.write.onto(row.attributes())) if is_allowed else row
            outcome = Done(after) if is_allowed else Refused(row)
            yield "is answered", self._tenure(world._replace(row=after), tenure_events.WriteAnswered(outcome))
            if world.lost < self.bounds.lost:
                lost = world._replace(lost=world.lost + 1)
                yield (
                    "the answer is lost",
                    self._tenure(lost._replace(row=after), tenure_events.WriteAnswered(Unknown("?"))),
                )
                yield "the write is lost", self._tenure(lost, tenure_events.WriteAnswered(Unknown("?")))

    def _tenure(self, world: World, given: Any, now_s: float = 0.0) -> World:
        try:
            tenure, commands = lease_step(world.tenure, given, now_s)
        except ValueError as error:
            raise BrokenRuleError(f"the tenure cannot do as it is told: {error}") from None
        world = _plain(world._replace(tenure=tenure))
        for command in commands:
            if isinstance(command, tenure_commands.CheckpointStored | tenure_commands.PendingStored):
                world = self._given(world, command)
                if isinstance(command, tenure_commands.CheckpointStored):
                    world = self._given(world, checkpoint_events.Look())
            elif isinstance(command, tenure_commands.TenureEnded):
                world = self._given(world, checkpoint_events.Close("let go"))._replace(is_over=True)
        return world

    def _given(self, world: World, given: Any) -> World:
        before = world.checkpoints
        after, outputs = machine.step(before, given, world.progress, 0.0)
        world = world._replace(checkpoints=after)
        for output in outputs:
            if isinstance(output, checkpoint_commands.Answer):
                self._said(before, world, output)
            else:
                world = world._replace(queue=_queued(world.queue, output))
        return world


def _queued(
    queue: tuple[Any, ...], given: tenure_events.StoreCheckpoint | tenure_events.StorePending
) -> tuple[Any, ...]:
    """As the keeper of a tenure does: what only rides is told once."""
    last = queue[-1] if queue else None
    if isinstance(last, tenure_events.StoreCheckpoint) and isinstance(given, tenure_events.StoreCheckpoint):
        if not (last.at_once or last.commit or given.at_once or given.commit):
            return (*queue[:-1], tenure_events.StoreCheckpoint(max(last.checkpoint, given.checkpoint)))
        if last == given:
            return queue
    return (*queue, given)


def _plain(world: World) -> World:
    """The same with all times 0, and the counter 1 where no write is under way."""
    tenure, row = world.tenure, world.row
    sent = tenure.sent
    if sent is not None:
        return world._replace(tenure=replace(tenure, lease_s=0.0, sent=replace(sent, first_s=0.0, last_s=0.0)))
    return world._replace(
        tenure=replace(tenure, lease_s=0.0, token=1, row=replace(tenure.row, counter=1)), row=replace(row, counter=1)
    )
