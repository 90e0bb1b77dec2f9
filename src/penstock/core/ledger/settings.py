"""The choices that a ledger follows: order, retries, what happens to a record that stays unsettled, bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.core.given import not_numbers, not_of
from penstock.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB = 1024 * 1024


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """The worker gives the shard up, for another worker to try."""

    cool_down_s: float = 60.0
    """This worker leaves the shard alone for this long."""

    def __post_init__(self) -> None:
        _check({"cool_down_s": self.cool_down_s}, above_zero=False)


LastResort: TypeAlias = DeadLetters | Skip | Stop | GiveUp


# --- failures ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
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
    then: LastResort = field(default_factory=DeadLetters)
    """What becomes of a record that has failed too often."""
    transient: tuple[type[BaseException], ...] = ()
    """Errors that no record causes (a database that is down): the consumer retries the batch as it is, for ever."""
    give_up_after_s: float | None = None
    """The worker gives the shard up when no record was settled for this long and all failures were transient. None:
    never.
    """
    cool_down_s: float = 60.0
    """How long this worker leaves a shard alone that it gave up."""

    def __post_init__(self) -> None:
        given = {"then": self.then, "transient": self.transient}
        if faults := not_of(given, {"then": (DeadLetters, Skip, Stop, GiveUp), "transient": (tuple,)}):
            raise OptionError(faults)
        _check({"base_s": self.base_s, "cap_s": self.cap_s, "batch_failures_max": self.batch_failures_max})
        _check({"cool_down_s": self.cool_down_s}, above_zero=False)
        if self.failures_max is not None:
            _check({"failures_max": self.failures_max})
        if self.give_up_after_s is not None:
            _check({"give_up_after_s": self.give_up_after_s})


# --- records that stay unsettled ---


@dataclass(frozen=True, slots=True)
class Warn:
    """An event reports the records, each time that the deadline passes; nothing else happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redeliver:
    """The consumer delivers the records again, as if their handler had died; late settlements of the handler count all
    the same.
    """

    times_max: int = 1
    then: Warn | LastResort = field(default_factory=Warn)

    def __post_init__(self) -> None:
        _check({"times_max": self.times_max})


StallPolicy: TypeAlias = Warn | Redeliver | LastResort


# --- order ---


@dataclass(frozen=True, slots=True)
class InOrder:
    """The consumer delivers nothing new while an earlier record waits to be delivered again."""


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """Records that are to be delivered again come when they are due, and hold up no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKey:
    """Each delivery is of one partition key, and each key has one delivery at a time: each key keeps its order, and
    keys run side by side.
    """

    slots_max: int = 16
    """How many deliveries of a shard are in flight at the same time."""

    def __post_init__(self) -> None:
        _check({"slots_max": self.slots_max})


OrderPolicy: TypeAlias = InOrder | AnyOrder | ByKey


# --- all of it ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSettings:
    """How one shard's records are delivered and settled. Raises OptionError for what can't be."""

    order: OrderPolicy | None = None
    """What may be delivered while an earlier record waits for its next try: InOrder(), AnyOrder(), ByKey(). None: the
    same as InOrder(), but not as a promise, so the consumer also reads a stream that ignores partition keys.
    """
    retry: Retry = field(default_factory=Retry)
    """What the consumer does when a handler raises."""
    settle_deadline_s: float = 300.0
    """The consumer reports a record that is not settled this long after it was first delivered, and ``stalled`` acts.
    """
    stalled: StallPolicy = field(default_factory=Warn)
    """What the consumer does about records that are not settled within ``settle_deadline_s``."""
    records_max: int = 100_000
    """The consumer fetches no more of a shard while this many of its records are not settled, delivered or not."""
    bytes_max: int = 64 * MIB
    """The consumer fetches no more of a shard while the records that it holds of it take this much memory: their data,
    and what Python needs for each of them (some 300 bytes). `WorkerSettings.buffer_bytes_max` is the bound of all
    shards together.
    """
    repeat_records_max: int = 1_000_000
    """The consumer fetches no more of a shard while this many records lie behind its oldest unsettled one: a crash
    would repeat them.
    """
    full_after_s: float = 5.0
    """An event reports it when the program asks for records and gets none for this long, because the records that it
    has not settled are at a bound.
    """
    latest_wins: bool = False
    """True: the newest settlement counts for all records before it; those that were not settled are reported as
    skipped.
    """
    letter_backoff_s: float = 0.5
    """The consumer writes a dead letter that could not be written again after a random pause, up to a bound that
    doubles from this.
    """
    letter_backoff_max_s: float = 60.0
    """The longest of these pauses."""
    log_errors: str = "place"
    """What is told of a handler's error: ``"place"``, its class and the lines of code; or ``"with_message"``, also its
    message and the traceback, which may hold what a record holds.
    """

    def __post_init__(self) -> None:
        kinds = {
            "order": (InOrder, AnyOrder, ByKey),
            "retry": (Retry,),
            "stalled": (Warn, Redeliver, DeadLetters, Skip, Stop, GiveUp),
        }
        given = {"order": self.order, "retry": self.retry, "stalled": self.stalled}
        if faults := not_of(given, kinds, optional=("order",)):
            raise OptionError(faults)
        if self.log_errors not in ("place", "with_message"):
            raise OptionError(f'log_errors is "place" or "with_message", not {self.log_errors!r}')
        _check(
            {
                "settle_deadline_s": self.settle_deadline_s,
                "records_max": self.records_max,
                "bytes_max": self.bytes_max,
                "repeat_records_max": self.repeat_records_max,
                "full_after_s": self.full_after_s,
                "letter_backoff_s": self.letter_backoff_s,
                "letter_backoff_max_s": self.letter_backoff_max_s,
            }
        )
        if self.latest_wins and isinstance(self.order, ByKey):
            raise OptionError(
                "latest_wins: with keys side by side the newest record says nothing about those before it"
            )


def payload_bytes_of(record: Any) -> int:
    """The data of a record, or of a part of one, in bytes."""
    size: int | None = getattr(record, "payload_bytes", None)
    return len(getattr(record, "data", b"")) if size is None else size


def payload_bytes_of_all(records: Sequence[Any]) -> int:
    """The same of several; those of a page know it."""
    known: int | None = getattr(records, "payload_bytes", None)
    return sum(map(payload_bytes_of, records)) if known is None else known


def _check(values: dict[str, float], *, above_zero: bool = True) -> None:
    """Raise for bounds and intervals that are none."""
    if faults := not_numbers(values):
        raise OptionError(faults)
    faults = [
        f"{name}: {value!r} is not {'above' if above_zero else 'at least'} 0"
        for name, value in values.items()
        if not (value > 0 or (value == 0 and not above_zero))
    ]
    if faults:
        raise OptionError(faults)
