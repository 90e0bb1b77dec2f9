"""Values of a plan that moves positions, and of what it is made from."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.leases import Checkpoint
from shardway.errors import OptionError
from shardway.inspect.moments import HOW, place
from shardway.inspect.values import Missing
from shardway.model import IteratorAt, Position

if TYPE_CHECKING:
    from collections.abc import Mapping


class Life(StrEnum):
    """Whether the owner of a lease is at work."""

    NONE = "no owner"
    SILENT = "silent owner"
    """The lease has an owner whose counter stood still for twice the failover time."""
    LIVE = "live owner"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A row as the plan saw it. A write to the row is made only if the row is still so."""

    counter: int
    owner: str | None
    checkpoint_owner: str | None
    process: str | None
    checkpoint: str
    sub_sequence_number: int
    pending: str | None
    """A checkpoint that was prepared and is not committed: a move drops this checkpoint."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one lease."""

    lease: str
    shard_id: str
    before: Seen | None
    """The row before the move. None: there is no row, and the move makes one."""
    checkpoint: str
    """A sequence number (all records up to it count as settled), TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END."""
    sub_sequence_number: int = 0
    exact: bool = True
    """False: where the next worker begins depends on its options, or on the time at which it starts."""
    why: str
    next_before: dt.datetime | None
    """When the record arrived that would be read next without the move; None: there is none, or it is not known."""
    next_after: dt.datetime | None
    """When the record arrived that is read next after the move; None: there is none yet, the shard is done, or it is
    not known.
    """
    distance_s: float | None
    """Seconds from ``next_before`` to ``next_after``; the time of the plan counts where no record has arrived yet. Less
    than 0: records are read again; more: they are left out. None: not known."""
    life: Life
    by_shardway: bool = False
    """True: the owner is a Shardway worker, which can hand the lease over."""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    first_hash_key: str | None = None
    last_hash_key: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What moving an application would write. Parents come before their children."""

    schema: str = "shardway.plan/1"
    application: str
    store: str
    """``dynamodb``, ``sqlite`` or ``postgresql``."""
    stream: str
    stream_arn: str
    stream_created_at: dt.datetime
    taken_at: dt.datetime
    moves: list[Move]
    stays: dict[str, str]
    """Leases and shards that are left as they are, and why."""
    refused: dict[str, str]
    """The leases or shards for whose sake nothing of the plan can be written, and why."""
    failover_s: float
    """The failover time of workers whose rows do not have theirs."""
    missing: list[Missing]
    calls: dict[str, int]

    @property
    def live(self) -> list[Move]:
        """The moves of leases that a live worker has."""
        return [one for one in self.moves if one.life is Life.LIVE]

    @property
    def inexact(self) -> list[Move]:
        """The moves that do not say exactly where reading goes on."""
        return [one for one in self.moves if not one.exact]


class Goal(NamedTuple):
    """Where an application is to go on: one place for all shards, or for those that are named."""

    to: str
    """The place as people write it: ``2h ago``, ``2026-11-22T10:00Z``, ``latest``, ``trim-horizon``; or a record of one
    shard, ``seq:NUMBER`` (which is read first) or ``after:NUMBER``, with ``/INDEX`` inside of an aggregate.
    """
    shards: tuple[str, ...] = ()

    def at(self, now_s: float) -> tuple[IteratorAt, int]:
        """Return the place, and the index in an aggregate. ``now_s``: the service's time. Raises OptionError."""
        text, slash, index = self.to.partition("/")
        if slash and not (index.isascii() and index.isdigit() and ":" in text):
            raise OptionError(f"{self.to!r} is no place: {HOW}, the last two with /INDEX inside of an aggregate")
        return place(text, now_s), int(index or 0)

    def begin(self, now_s: float) -> tuple[IteratorAt, Position | None]:
        """Return where a reading begins, and the last user record that it leaves out there. Raises OptionError."""
        at, index = self.at(now_s)
        number = at.sequence_number
        if number is None:
            return at, None
        if at.type == "AFTER_SEQUENCE_NUMBER":  # the rest of its aggregate comes, too
            return IteratorAt.at_sequence(number), Position(number, index)
        return at, Position(number, index - 1) if index else None


class Wishes(NamedTuple):
    """What a plan is to bring about."""

    targets: Mapping[str, Target]
    stays: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}


class Target(NamedTuple):
    """Where a shard is to go on."""

    checkpoint: Checkpoint
    why: str
    exact: bool = True
