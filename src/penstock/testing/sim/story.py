"""A shard of a simulation: its records, and how far they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.model import Position

BAD = b"!"
"""Data that ends so makes each handler fail."""


class Put(NamedTuple):
    """A user record as it is put."""

    key: str
    data: bytes

    @property
    def is_bad(self) -> bool:
        """True for one that can only become a dead letter."""
        return self.data.endswith(BAD)


@dataclass
class ShardStory:
    """One shard's records, and how far they are."""

    stream: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    gone: bool = False
    """The retention has taken all of it."""
    positions: list[Position] = field(default_factory=list)
    trimmed: int = 0
    """How many of the positions cannot be read any more."""
    puts: dict[Position, Put] = field(default_factory=dict)
    arrived: dict[Position, float] = field(default_factory=dict)
    """When each record arrived, by the service's clock."""
    lanes: dict[str, list[Position]] = field(default_factory=dict)
    """Positions by partition key."""
    settled: set[Position] = field(default_factory=set)
    left_out: set[Position] = field(default_factory=set)
    """Those of the settled that no handler needs to get, as they are duplicates, or trimmed, or have no parts."""
    handled: set[Position] = field(default_factory=set)
    """Those of the settled that a program said so of."""
    parts_left: dict[Position, set[int]] = field(default_factory=dict)
    """Parts that are not settled, of records that are split."""
    delivered: dict[tuple[Position, int], int] = field(default_factory=dict)
    """A part (0 where records are not split) with the token of the last delivery."""
    put_off: set[tuple[Position, int]] = field(default_factory=set)
    """The parts (0 where records are not split) that a program asked to be handed out again, and that were not yet."""
    prefix: int = 0
    """How many of the first positions are settled."""
    token: int = 0
    """The highest that a batch had."""
    tenure: str | None = None
    """The process that had that batch."""
    checkpoint: Checkpoint | None = None
    resumed: Position | None = None
    """Up to here an owner began behind its checkpoint, as it was told that what was prepared is done."""
    owner: str | None = None
    owner_counter: int = 0
    """The owner that the row names, and the counter with which it began to name that one."""
    born: bool = False
    """It has, or had, a lease."""
    ended: bool = False
    """That it is done was stored once."""
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    """The checkpoints, by the counter that their write left: a tenure's token is the one that it began with."""
    next_place: dict[tuple[int, str | None], int] = field(default_factory=dict)
    """Which position is handed out next for the first time, by token, and by key where order is by key."""
    out: dict[tuple[int, str], set[Position]] = field(default_factory=dict)
    """The positions that were handed out, by token and key."""
    cooling: dict[str, float] = field(default_factory=dict)
    """Processes that gave the shard up, and the time until which each leaves it alone."""

    @property
    def over(self) -> bool:
        """True when nothing more comes of it: it is stored as ended, or all of it is trimmed."""
        return self.ended or self.gone

    def settled_prefix(self) -> int:
        """How many of the first positions are settled by now."""
        positions, settled = self.positions, self.settled
        while self.prefix < len(positions) and positions[self.prefix] in settled:
            self.prefix += 1
        return self.prefix

    def settle(self, positions: Sequence[Position], parts: Sequence[int] | None = None) -> None:
        """These are done, or one part of each; a record is when all of its parts are."""
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
        """The record counts as settled, and no handler needs to get it."""
        self.left_out.add(position)
        self.settled.add(position)

    def lane(self, key: str | None) -> list[Position]:
        """The positions of a key; None: all."""
        return self.positions if key is None else self.lanes[key]
