"""The policies that a ledger follows: order, retries, what happens to a record that stays unsettled, and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import msgspec

from shardway.core.given import Options
from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1024 * 1024
SHARD_BUFFER_BYTES_MAX = 64 * MIB
SHARD_RECORDS_MAX = 100_000
SETTLE_DEADLINE_S = 300.0
REPEAT_RECORDS_MAX = 1_000_000
"""The consumer fetches no more of a shard while this many records lie behind its oldest unsettled one: a crash would
repeat them.
"""
FULL_AFTER_S = 5.0
"""An event reports it when the program asks for records and gets none for this long, because the records that it has
not settled are at a bound.
"""
LETTER_BACKOFF_S = 0.5
LETTER_BACKOFF_MAX_S = 60.0
"""The consumer writes a dead letter that could not be written again after a random pause, up to a bound that doubles
from the first time to the second.
"""


# --- what happens in the end ---


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

    cool_down_s: float = 60.0
    """This worker leaves the shard alone for this long."""

    _at_least: ClassVar[Mapping[str, float]] = {"cool_down_s": 0}


LastResort: TypeAlias = DeadLetters | Skip | Stop | GiveUp


# --- failures ---


class Retry(Options, frozen=True, kw_only=True):
    """What the consumer does when a handler raises."""

    batch_failures_max: int = 2
    """A batch of several records that failed this often is halved. Each half that fails is halved at once, until the
    record that fails is alone.
    """
    halve: bool = True
    """False: the consumer does not halve a batch that failed. It retries the batch as a whole, and all its records meet
    ``then``.
    """
    failures_max: int | None = 3
    """A record that failed this often while it was alone (or a batch that is not halved) meets ``then``. Failures in a
    larger batch, or behind a record that failed, do not count. None: the consumer retries it for ever.
    """
    base_s: float = 0.2
    cap_s: float = 30.0
    """Tries are a random time apart: from 0 to base_s · 2ⁿ after n failures, at most cap_s."""
    then: LastResort = msgspec.field(default_factory=DeadLetters)
    """The resort for a record whose attempts are used up. The default, DeadLetters(), asks for ``dead_letters=...`` of
    the consumer; Skip(), Stop() and GiveUp() do not, and ``failures_max=None`` never comes to it. A consumer without
    ``retry`` and without ``dead_letters`` gives nothing up.
    """
    transient: tuple[type[BaseException], ...] = ()
    """Errors that no record causes (a database that is down): the consumer retries the batch as it is, for ever."""
    give_up_after_s: float | None = None
    """The worker gives the shard up when no record was settled for this long and all failures were transient. None:
    never.
    """
    cool_down_s: float = 60.0
    """The seconds for which this worker leaves a shard alone that it gave up."""

    _at_least: ClassVar[Mapping[str, float]] = {"cool_down_s": 0}

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {
            "then": (DeadLetters, Skip, Stop, GiveUp),
            "transient": (tuple,),
            "failures_max": (int, NoneType),
            "give_up_after_s": (float,),
        }


# --- records that stay unsettled ---


@dataclass(frozen=True, slots=True)
class Warn:
    """An event reports the records, each time that the deadline passes; nothing else happens."""


class Redeliver(Options, frozen=True, kw_only=True):
    """The consumer delivers the records again, as if their handler had died; late settlements of the handler count all
    the same.
    """

    times_max: int = 1
    then: Warn | LastResort = msgspec.field(default_factory=Warn)

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {"then": (Warn, DeadLetters, Skip, Stop, GiveUp)}


StallPolicy: TypeAlias = Warn | Redeliver | LastResort


# --- order ---


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

    slots_max: int = 16
    """The number of deliveries of a shard that are in flight at the same time."""


OrderPolicy: TypeAlias = InOrder | AnyOrder | ByKey


# --- settling ---


class SettlingOptions(Options, frozen=True, kw_only=True):
    """The consumer's choices about records that are late, and what it reports of failures."""

    deadline_s: float = SETTLE_DEADLINE_S
    """The consumer reports a record that is not settled this long after it was first delivered, and ``stalled`` acts
    (KCL: logWarningForTaskAfterMillis).
    """
    stalled: StallPolicy = msgspec.field(default_factory=Warn)
    """What the consumer does about records that are not settled within ``deadline_s``."""
    latest_wins: bool = False
    """True: the newest settlement counts for all records before it; those that were not settled are reported as
    skipped.
    """
    log_errors: str = "place"
    """What an event says of a handler's error: ``"place"``, its class and the lines of code; or ``"with_message"``,
    also its message and the traceback, which may hold what a record holds.
    """

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {"stalled": (Warn, Redeliver, DeadLetters, Skip, Stop, GiveUp)}

    def _faults(self) -> list[str]:
        if self.log_errors in ("place", "with_message"):
            return []
        return [f'log_errors is "place" or "with_message", not {self.log_errors!r}']


# --- all of it ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPolicy:
    """How one shard's records are delivered and settled: what a ledger needs of the consumer's options, and the bounds
    that no option sets. The options were checked where they were given.
    """

    order: OrderPolicy | None = None
    retry: Retry = field(default_factory=Retry)
    settle_deadline_s: float = SETTLE_DEADLINE_S
    stalled: StallPolicy = field(default_factory=Warn)
    latest_wins: bool = False
    log_errors: str = "place"
    records_max: int = SHARD_RECORDS_MAX
    bytes_max: int = SHARD_BUFFER_BYTES_MAX
    repeat_records_max: int = REPEAT_RECORDS_MAX
    full_after_s: float = FULL_AFTER_S
    letter_backoff_s: float = LETTER_BACKOFF_S
    letter_backoff_max_s: float = LETTER_BACKOFF_MAX_S

    def __post_init__(self) -> None:
        if self.latest_wins and isinstance(self.order, ByKey):
            raise OptionError(
                "latest_wins: with keys side by side the newest record says nothing about those before it"
            )
