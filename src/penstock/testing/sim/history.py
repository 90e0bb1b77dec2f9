"""What happened in a simulation, and the rules that it must not break.

The history sees everything at once: what was put, each write to the lease table as it is applied, each batch as it is
handed out, each settlement as it is said. None of the processes knows as much.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.leases.checkpoint import Checkpoint
from penstock.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.core.leases import LeaseRow

FAULTS_MAX = 20
"""A run that breaks rules goes on breaking them."""


class Broken(NamedTuple):
    """A rule that was broken."""

    rule: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.rule}: {self.what}"


@dataclass
class ShardStory:
    """One shard's records, and how far they are."""

    parents: tuple[str, ...] = ()
    closed: bool = False
    positions: list[Position] = field(default_factory=list)
    settled: set[Position] = field(default_factory=set)
    delivered: dict[Position, int] = field(default_factory=dict)
    """With the token of the last delivery."""
    prefix: int = 0
    """So many of the first positions are settled."""
    token: int = 0
    """The highest that a batch had."""
    tenure: str | None = None
    """Who had it."""
    checkpoint: Checkpoint | None = None
    owner: str | None = None
    owner_counter: int = 0
    """Whom the row names, and the counter by which it began to."""
    born: bool = False
    """It has, or had, a lease."""
    ended: bool = False
    """That it is done was stored once."""
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    """By the counter that a write left: a tenure's token is the one that it began with."""
    next_place: dict[int, int] = field(default_factory=dict)
    """By token: which of the positions is handed out next for the first time."""

    def settled_prefix(self) -> int:
        """How many of the first positions are settled by now."""
        positions, settled = self.positions, self.settled
        while self.prefix < len(positions) and positions[self.prefix] in settled:
            self.prefix += 1
        return self.prefix


class History:
    """Facts, in their order, checked as they come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shards: dict[str, ShardStory] = {}
        self.broken: list[Broken] = []
        self.deliveries = 0
        self.duplicates = 0
        self.done_again = 0
        """Deliveries of what was settled before."""
        self.handed_twice = 0
        """Deliveries of what another tenure had handed out before."""
        self.tenures = 0
        self.told: Counter[str] = Counter()
        """Kinds of events that the workers told."""
        self.moves: list[tuple[float, str, str | None]] = []
        """When a lease's owner changed, and to whom."""
        self.on_note: Callable[[float, tuple[object, ...]], None] | None = None
        """Hears each fact, in order: for looking at a run."""
        self._clock = clock
        self._trace = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """The same for two runs that took the same steps at the same times."""
        return self._trace.hexdigest()

    def note(self, *facts: object) -> None:
        """Something that two runs of one seed must have in common."""
        self._trace.update(f"{self._clock():.9f} {facts}\n".encode())
        if self.on_note is not None:
            self.on_note(self._clock(), facts)

    def fault(self, rule: str, what: str) -> None:
        """A rule was broken now."""
        self.note(rule, what)
        if len(self.broken) < FAULTS_MAX:
            self.broken.append(Broken(rule, self._clock(), what))

    # --- the stream -----------------------------------------------------------------------------

    def shard(self, shard_id: str, parents: Iterable[str], taking: bool) -> None:
        """A shard as a listing shows it."""
        story = self.shards.setdefault(shard_id, ShardStory())
        story.parents, story.closed = tuple(parents), not taking

    def put(self, shard_id: str, sequence_number: int, user_records: int) -> None:
        """Records that were written."""
        self.note("put", shard_id, sequence_number, user_records)
        story = self.shards[shard_id]
        story.positions += [Position(sequence_number, sub) for sub in range(user_records)]

    # --- the table ------------------------------------------------------------------------------

    def row_written(self, before: LeaseRow | None, row: LeaseRow | None, kind: str) -> None:
        """A write to a lease was applied. ``row`` None: it was deleted."""
        key = (row or before).key  # type: ignore[union-attr]
        self.note(kind, key, None if row is None else (row.counter, row.owner, row.checkpoint.text))
        story = self.shards.get(key)
        if story is None or row is None:
            return
        story.born = True
        if row.actual_owner != story.owner:
            self.moves.append((self._clock(), key, row.actual_owner))
            story.owner, story.owner_counter = row.actual_owner, row.counter
        elif kind == "take":
            story.owner_counter = row.counter
        if row.actual_owner is not None:
            story.stored[row.counter] = row.checkpoint
        if story.checkpoint is None or row.checkpoint != story.checkpoint:
            self._checkpointed(key, story, row.checkpoint)

    def _checkpointed(self, key: str, story: ShardStory, checkpoint: Checkpoint) -> None:
        known = story.checkpoint
        if known is not None and checkpoint < known:
            self.fault("a checkpoint goes back", f"{key} from {known.text} to {checkpoint.text}")
            return
        story.checkpoint = checkpoint
        done = story.settled_prefix()
        if checkpoint.is_position:
            covered = bisect_right(story.positions, checkpoint.position)
        elif checkpoint.is_end:
            story.ended, covered = True, len(story.positions)
            if not story.closed:
                self.fault("a shard that is open is stored as ended", key)
            for child in self._unborn(key):
                self.fault("an end before the children have leases", f"{key} is stored as ended, {child} has none")
        else:
            covered = 0
        if covered > done:
            missing = _shown(story.positions[done])
            self.fault(
                "a checkpoint ahead of settlement",
                f"{key} at {_short(checkpoint)}, while {missing} is not settled ({covered - done} records)",
            )

    def _unborn(self, key: str) -> list[str]:
        """Children without a lease, of which this was the last parent: with another one to end, that one sees to it."""
        return [
            child
            for child, story in self.shards.items()
            if key in story.parents and not story.born and all(self.shards[one].ended for one in story.parents)
        ]

    # --- the processes --------------------------------------------------------------------------

    def delivered(self, who: str, shard_id: str, token: int, positions: list[Position]) -> None:
        """A process got a batch."""
        self.note("got", who, shard_id, token, positions[0], len(positions))
        story = self.shards[shard_id]
        self.deliveries += len(positions)
        self._check_tenure(story, who, shard_id, token)
        for parent in story.parents:
            if parent in self.shards and not self.shards[parent].ended:
                self.fault("an early child", f"{who} has a record of {shard_id}, whose parent {parent} is not done")
        begun = story.stored.get(token)
        if begun is None:
            self.fault("a batch without a tenure", f"{who} has {shard_id} with token {token}, which nobody wrote")
            return
        self._check_order(story, who, shard_id, token, begun, positions)
        for position in positions:
            before = story.delivered.get(position)
            if before is not None:
                self.duplicates += 1
                self.done_again += position in story.settled
                self.handed_twice += before != token
            story.delivered[position] = token

    def _check_tenure(self, story: ShardStory, who: str, shard_id: str, token: int) -> None:
        if token < story.token:
            self.fault(
                "two readers",
                f"{who} is handed out {shard_id} with token {token}, after {story.tenure} was with {story.token}",
            )
        elif token > story.token:
            story.token, story.tenure = token, who
            self.tenures += 1
        elif who != story.tenure:
            self.fault("a token that does not grow", f"{who} has {shard_id} with {token}, as {story.tenure} had it")

    def _check_order(
        self, story: ShardStory, who: str, shard_id: str, token: int, begun: Checkpoint, positions: list[Position]
    ) -> None:
        """From the stored checkpoint on, without a gap; a repetition may come at any time."""
        place = story.next_place.get(token)
        if place is None:
            place = bisect_right(story.positions, begun.position) if begun.is_position else 0
        for position in positions:
            if place < len(story.positions) and position == story.positions[place]:
                place += 1
                continue
            found = bisect_left(story.positions, position)
            if found > place or found == len(story.positions):
                expected = _shown(story.positions[place]) if place < len(story.positions) else "nothing"
                self.fault("a gap", f"{who} got {_shown(position)} of {shard_id} where {expected} is next")
                place = found + 1
            elif begun.is_position and position <= begun.position:
                self.fault("settled before", f"{who} got {_shown(position)} of {shard_id} again, behind its checkpoint")
        story.next_place[token] = place

    def settled(self, who: str, shard_id: str, token: int, positions: list[Position], counts: bool) -> None:
        """A process says that these are done, and the consumer says whether that counts."""
        self.note("settled", who, shard_id, token, positions[0] if positions else None, len(positions), counts)
        if counts:
            self.shards[shard_id].settled.update(positions)

    def handed_out(self, shard_id: str, token: int, last: Position) -> list[Position]:
        """What a tenure has handed out, up to and with a position."""
        found = self.shards[shard_id].delivered.items()
        return [position for position, by in found if by == token and position <= last]

    def lease_lost(self, who: str, worker_id: str, key: str, token: int) -> None:
        """A process believes that another has its lease."""
        self.note("lost", who, key, token)
        story = self.shards[key]
        if story.owner == worker_id and story.owner_counter <= token:
            self.fault("a healthy owner lost its lease", f"{who} let go of {key}, which is its own since {token}")

    # --- the end --------------------------------------------------------------------------------

    def unsettled(self) -> dict[str, int]:
        """How many records of each shard are not settled."""
        left = {one: len(story.positions) - story.settled_prefix() for one, story in self.shards.items()}
        return {one: count for one, count in left.items() if count}

    def lost(self) -> None:
        """Records that nobody will ever be given: the stored checkpoint has passed them."""
        for one, story in self.shards.items():
            done, checkpoint = story.settled_prefix(), story.checkpoint
            if done == len(story.positions) or checkpoint is None:
                continue
            first = story.positions[done]
            if checkpoint.is_end or (checkpoint.is_position and first <= checkpoint.position):
                self.fault("a lost record", f"{_shown(first)} of {one} was not settled, and is behind the checkpoint")

    def event(self, event: Any) -> None:
        """What a worker tells."""
        self.told[type(event).__name__] += 1


def _shown(position: Position) -> str:
    return f"…{str(position.sequence_number)[-14:]}/{position.sub_sequence_number}"


def _short(checkpoint: Checkpoint) -> str:
    return _shown(checkpoint.position) if checkpoint.is_position else checkpoint.text
