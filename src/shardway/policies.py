"""Policies: the values that a program chooses among its options, and that several parts of the package know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from shardway.aws.options import ConnectionOptions
from shardway.core.options.base import Options
from shardway.ports import RecordSink

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from shardway.core.ledger.letter import Letter
    from shardway.model import Position


SETTLE_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The record becomes a dead letter, with its position, attempts and error."""


@dataclass(frozen=True, slots=True)
class Skip:
    """The record counts as settled; an event names it."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The consumer delivers nothing more of the shard, and the program that asks for its records gets a
    ShardStoppedError.
    """


class GiveUp(Options, frozen=True, kw_only=True):
    """The worker gives the shard up, for another worker to try."""

    cool_down_s: Annotated[float, Meta(ge=0)] = 60.0
    """This worker leaves the shard alone for this long."""


LastResort: TypeAlias = DeadLetters | Skip | Stop | GiveUp


class Retry(Options, frozen=True, kw_only=True):
    """What the consumer does when a handler raises."""

    batch_failures_max: Annotated[int, Meta(gt=0)] = 2
    """A batch of several records that failed this often is halved. Each half that fails is halved at once, until the
    record that fails is alone.
    """
    halve: bool = True
    """False: the consumer does not halve a batch that failed. It retries the batch as a whole, and all its records meet
    ``then``.
    """
    failures_max: Annotated[int, Meta(gt=0)] | None = 3
    """A record that failed this often while it was alone (or a batch that is not halved) meets ``then``. Failures in a
    larger batch, or behind a record that failed, do not count. None: the consumer retries it for ever.
    """
    base_s: Annotated[float, Meta(gt=0)] = 0.2
    """The bound of the pause after the first failure. Each further failure doubles it."""
    cap_s: Annotated[float, Meta(gt=0)] = 30.0
    """The highest bound. The pause is random: from 0 to base_s · 2ⁿ⁻¹ after n failures, at most cap_s."""
    then: LastResort = msgspec.field(default_factory=DeadLetters)
    """The resort for a record whose attempts are used up. The default, DeadLetters(), asks for ``dead_letters=...`` of
    the consumer; Skip(), Stop() and GiveUp() do not, and ``failures_max=None`` never comes to it. A consumer without
    ``retry`` and without ``dead_letters`` gives nothing up.
    """
    transient: tuple[type[BaseException], ...] = ()
    """Errors that no record causes (a database that is down): the consumer retries the batch as it is, for ever."""
    give_up_after_s: Annotated[float, Meta(gt=0)] | None = None
    """The worker gives the shard up when no record was settled for this long and all failures were transient. None:
    never.
    """
    cool_down_s: Annotated[float, Meta(ge=0)] = 60.0
    """How many seconds this worker leaves a shard alone that it gave up."""


@dataclass(frozen=True, slots=True)
class Warn:
    """An event reports the records, each time that the deadline passes; nothing else happens."""


class Redeliver(Options, frozen=True, kw_only=True):
    """The consumer delivers the records again, as if their handler had died; late settlements of the handler count all
    the same.
    """

    times_max: Annotated[int, Meta(gt=0)] = 1
    then: Warn | LastResort = msgspec.field(default_factory=Warn)


StallPolicy: TypeAlias = Warn | Redeliver | LastResort


@dataclass(frozen=True, slots=True)
class InOrder:
    """The consumer delivers nothing new while an earlier record waits to be delivered again."""


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """Records that are to be delivered again come when they are due, and hold up no others."""


class ByKey(Options, frozen=True, kw_only=True):
    """Each delivery is of one partition key, and each key has one delivery at a time: each key keeps its order, and
    keys run side by side.
    """

    slots_max: Annotated[int, Meta(gt=0)] = 16
    """The number of deliveries of a shard that are in flight at the same time."""


OrderPolicy: TypeAlias = InOrder | AnyOrder | ByKey


class SettlingOptions(Options, frozen=True, kw_only=True):
    """The consumer's choices about records that are late, and what it reports of failures."""

    deadline_s: Annotated[float, Meta(gt=0)] = SETTLE_DEADLINE_S
    """The consumer reports a record that is not settled this long after it was first delivered, and ``stalled`` acts
    (KCL: logWarningForTaskAfterMillis).
    """
    stalled: StallPolicy = msgspec.field(default_factory=Warn)
    """What the consumer does about records that are not settled within ``deadline_s``."""
    latest_wins: bool = False
    """True: the newest settlement counts for all records before it; those that were not settled are reported as
    skipped.
    """
    log_errors: Literal["place", "with_message"] = "place"
    """What an event says of a handler's error: ``"place"``, its class and the lines of code; or ``"with_message"``,
    also its message and the traceback, which may hold what a record holds.
    """


class DeadLettersToStream(Options, frozen=True, kw_only=True):
    """Each dead letter is a record of this stream: a line of JSON, as `Letter.to_json` makes it."""

    stream: str | RecordSink
    """The stream's name or ARN; or a RecordSink, which is closed with the consumer."""
    connection: ConnectionOptions | None = None
    """The way to reach a stream given by name; None: the consumer reaches it like its own."""
    with_data: bool = True
    """The letter holds the record's data and keys too. Without them a record can only be replayed as long as the stream
    that it came from keeps it. Data that is too large for a record of this stream is left out, which the letter says.
    """


class DeadLettersToFile(Options, frozen=True, kw_only=True):
    """Each dead letter is a line of JSON at the end of this file, which is synced to the disk."""

    path: Path | str
    """The path of the file. The file is made if it is not there, for its owner alone to read. Several consumers may
    write to one file of a local disk.
    """
    with_data: bool = True
    """See `DeadLettersToStream.with_data`: it means the same."""


@dataclass(frozen=True)
class DeadLettersTo:
    """A function is called with each dead letter."""

    write: Callable[[Letter], Awaitable[object] | object] = field(repr=False)
    """When it returns (or what it returns was awaited) the letter is kept; an exception means that it is called again
    later. A plain function is called on the event loop and must not block it.
    """


DeadLetterChoice: TypeAlias = DeadLettersToStream | DeadLettersToFile | DeadLettersTo


class PendingChoice(StrEnum):
    """The choices for a pending checkpoint that a former owner left."""

    ABANDON = "abandon"
    """Its records are delivered again, and the next checkpoint clears it: as the KCL does."""
    COMMIT = "commit"
    """What was prepared is known to be done: reading goes on behind it."""
    KEEP = "keep"
    """Its records are delivered again, and nothing is checkpointed until `PendingCheckpoint.commit` or `abandon`."""


class FoundPending(NamedTuple):
    """A pending checkpoint that the former owner of a shard left."""

    stream: str
    shard_id: str
    position: Position | None
    """The position up to which all was prepared; None: the whole shard, to its end."""
    state: bytes | None
    """The bytes that the application stored with the checkpoint."""


OnPending: TypeAlias = Callable[[FoundPending], PendingChoice]


@dataclass(frozen=True, slots=True)
class Deliver:
    """The record is delivered with an `Unreadable` in place of its value."""


UnreadablePolicy: TypeAlias = DeadLetters | Skip | Stop | Deliver
