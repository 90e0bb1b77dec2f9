"""The story of one shard of a simulation: its records, and how far they are done."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.leases.checkpoint import Checkpoint
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM = "orders"
"""The name of the first stream."""
BAD = b"!"
"""The end of data that makes each handler fail."""


class Put(NamedTuple):
    """A user record as it is put."""

    key: str
    data: bytes

    @property
    def is_bad(self) -> bool:
        """True for a record that can only become a dead letter."""
        return self.data.endswith(BAD)


class Stint(NamedTuple):
    """A part of a tenure: from its begin, or from a seek, to the next seek or the end."""

    token: int
    seeks: int
    """The number of seeks of the tenure before it."""


class SoughtPlace(NamedTuple):
    """The place that the program asked for by the last seek of a tenure."""

    seeks: int
    first: int
    """The place of the first position that has to come."""
    earliest: int
    """The place of the first position that may come: LATEST may lie as far back as a service's clock is wrong."""
    hides_loss: bool
    """True where the tenure need not say any more that the retention took records: the program sought another place
    before the worker could miss them.
    """


class DrainWait(NamedTuple):
    """What a process says of a drain that waits for its handlers."""

    who: str
    until_s: float
    """The time at which the drain ends, whatever it still waits for."""
    handle_s: float
    """The longest time that a handler of the process takes."""


@dataclass
class ShardStory:
    """The records of one shard, and how far they are done."""

    stream: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    gone: bool = False
    """True where the retention has taken all of the shard."""
    positions: list[Position] = field(default_factory=list)
    trimmed: int = 0
    """The number of the positions that cannot be read any more."""
    puts: dict[Position, Put] = field(default_factory=dict)
    arrived: dict[Position, float] = field(default_factory=dict)
    """The time at which each record arrived, by the service's clock."""
    lanes: dict[str, list[Position]] = field(default_factory=dict)
    """The positions by partition key."""
    settled: set[Position] = field(default_factory=set)
    left_out: set[Position] = field(default_factory=set)
    """The settled positions that no handler needs to get, as they are duplicates, or trimmed, or have no parts."""
    handled: set[Position] = field(default_factory=set)
    """The settled positions that a program has settled."""
    parts_left: dict[Position, set[int]] = field(default_factory=dict)
    """The parts that are not settled, of each record that is split."""
    delivered: dict[tuple[Position, int], Stint] = field(default_factory=dict)
    """The stint of the last delivery of each part (0 where records are not split)."""
    done_in: dict[tuple[Position, int], Stint] = field(default_factory=dict)
    """The stint in which the program settled each part."""
    with_handler: set[tuple[Position, int]] = field(default_factory=set)
    """The parts that a handler has got, and neither settled nor gave back."""
    sought: dict[int, SoughtPlace] = field(default_factory=dict)
    """The place that was sought last, by the token of the tenure."""
    untold: Position | None = None
    """The last of the unsettled records that the retention took, while no worker has said so yet."""
    passed_over: set[Position] = field(default_factory=set)
    """The positions that were not settled when a seek of the present tenure passed over them. The checkpoint may pass
    over them as well; where it has not, the next owner has to deliver them.
    """
    put_off: set[tuple[Position, int]] = field(default_factory=set)
    """The parts (0 where records are not split) that a program asked to be delivered again, and that were not yet."""
    prefix: int = 0
    """The number of the first positions that are settled."""
    token: int = 0
    """The highest token that a batch had."""
    tenure: str | None = None
    """The process that had that batch."""
    checkpoint: Checkpoint | None = None
    resumed: Position | None = None
    """The position behind its checkpoint at which an owner began, as it was told that what was prepared is done."""
    owner: str | None = None
    owner_counter: int = 0
    """The counter with which the row began to name the owner."""
    born: bool = False
    """True where the shard has, or had, a lease."""
    start_s: float | None = None
    """The time at which its lease begins, by the service's clock: what arrived before is not wanted. None: it begins at
    the oldest record, or no owner has stored that time yet.
    """
    passed: bool = False
    """True where the application begins at LATEST, with a descendant."""
    before_start: set[Position] = field(default_factory=set)
    """The positions that lie before the start."""
    twins: dict[Position, tuple[str, Position]] = field(default_factory=dict)
    """The record before it with the same key, of each record that is a duplicate, with its shard."""
    ended: bool = False
    """True once it was stored that the shard is done."""
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    """The checkpoints, by the counter that their write left: a tenure's token is the counter that it began with."""
    next_place: dict[tuple[Stint, str | None], int] = field(default_factory=dict)
    """The place of the position that is delivered next for the first time, by stint, and by key where order is by key.
    """
    out: dict[tuple[Stint, str], set[Position]] = field(default_factory=dict)
    """The positions that were delivered, by stint and key."""
    cooling: dict[str, tuple[float, Stint]] = field(default_factory=dict)
    """The time until which each process that gave the shard up leaves it alone, and the stint in which it did so."""

    drain: DrainWait | None = None
    """The last drain that waited."""
    cut_short: set[int] = field(default_factory=set)
    """The tokens of the tenures whose drains ended before all was settled, with good reason: at their deadline, while
    handlers still worked, or as the program had left its run.
    """

    @property
    def over(self) -> bool:
        """True when nothing more comes of the shard: it is stored as ended, all of it is trimmed, or none of it is
        wanted.
        """
        return self.ended or self.gone or self.passed

    def settled_prefix(self) -> int:
        """Return how many of the first positions are settled by now."""
        positions, settled = self.positions, self.settled
        while self.prefix < len(positions) and positions[self.prefix] in settled:
            self.prefix += 1
        return self.prefix

    def stint(self, token: int) -> Stint:
        """Return the present stint of a tenure."""
        sought = self.sought.get(token)
        return Stint(token, 0 if sought is None else sought.seeks)

    def is_dropped(self, stint: Stint) -> bool:
        """True when a later seek has dropped what a stint had: what of it was not stored comes again."""
        return stint != self.stint(stint.token)

    @property
    def hides_loss(self) -> bool:
        """True where the present tenure need not say that records are lost. A seek holds for its tenure: the next owner
        begins at the checkpoint, and says so, unless the checkpoint has passed them.
        """
        sought = self.sought.get(self.owner_counter)
        return sought is not None and sought.hides_loss

    def hides_loss_from(self, token: int, first: int, is_record: bool) -> bool:
        """Return whether a seek hides a loss. That a record is trimmed is noticed where reading goes on behind it; a
        time, LATEST and the oldest record say nothing of what lay before. What the tenure delivered before the seek lay
        behind the loss, so that had to be told by then.
        """
        stint, sought = self.stint(token), self.sought.get(token)
        if self.untold is None or (is_record and first <= self.place(self.untold)):
            return False
        return (sought is not None and sought.hides_loss) or all(by != stint for by, _ in self.next_place)

    def pass_over(self, first: int) -> None:
        """Take note that a seek passes over what lies before a place and is not settled."""
        found = [one for one in self.positions[:first] if one not in self.settled]
        self.passed_over.update(found)
        for position in found:
            self.leave_out(position)

    def want_again(self, checkpoint: Checkpoint, start_s: float | None) -> None:
        """Take note that a seek holds no longer: what it passed over is wanted, unless the checkpoint has passed it,
        or the time (epoch seconds) at which the lease begins.
        """
        again = {
            one
            for one in self.passed_over
            if checkpoint < Checkpoint.at(one)
            and (start_s is None or self.arrived[one] >= start_s)
            and self.place(one) >= self.trimmed
        }
        self.passed_over.clear()
        # A seek by time may bring what it passed over, and a handler may settle that. It comes again all the same,
        # because the checkpoint lies before it.
        self.left_out -= again
        unsettled = again - self.handled
        self.settled -= unsettled
        if unsettled:
            self.prefix = min(self.prefix, self.place(min(unsettled)))

    def place(self, position: Position) -> int:
        """Return the place of a position among all of the shard."""
        return bisect_left(self.positions, position)

    def settle(self, positions: Sequence[Position], parts: Sequence[int] | None = None) -> None:
        """Take note that positions are done, or one part of each; a record is done when all of its parts are."""
        if parts is None:
            self.settled.update(positions)
            self.handled.update(positions)
            return
        for position, part in zip(positions, parts, strict=True):
            left = self.parts_left[position]
            left.discard(part)
            if not left:
                self.settled.add(position)
                self.handled.add(position)

    def leave_out(self, position: Position) -> None:
        """Count a record as settled, which no handler needs to get."""
        self.left_out.add(position)
        self.settled.add(position)

    def start(self, start_s: float) -> None:
        """Take note that the lease begins at this time."""
        self.start_s = start_s
        early = [one for one in self.positions if self.arrived[one] < start_s]
        self.before_start.update(early)
        for position in early:
            self.leave_out(position)

    def lane(self, key: str | None) -> list[Position]:
        """Return the positions of a key, or all for None."""
        return self.positions if key is None else self.lanes[key]
