"""How a worker reads, shares and settles."""

from __future__ import annotations

import datetime as dt
import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from penstock.core.assignment.strategies import EQUAL_COUNTS, Custom, Strategy
from penstock.core.feeding.allowance import BUFFER_BYTES_MAX, PollingOptions
from penstock.core.given import not_callable, not_numbers, not_of, shown
from penstock.core.leases.tenure import FAILOVER_S, LeaseTimes
from penstock.core.ledger.parts import PARTS_MAX
from penstock.core.ledger.settings import DeadLetters, LedgerSettings, Redeliver, Retry, Skip, Stop
from penstock.core.shard.checkpoints import Cadence, Every, Prompt, Riding
from penstock.core.shard.duplicates import Deduplicate
from penstock.errors import OptionError
from penstock.model import OutsidePolicy, StartingPosition
from penstock.runtime.dead_letters import DeadLettersTo, DeadLettersToFile, DeadLettersToStream
from penstock.runtime.feeds import FanOutOptions
from penstock.runtime.shard.pages import Deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.core.assignment.views import LeaseView, WorkerView
    from penstock.model import Record
    from penstock.runtime.dead_letters import DeadLetterChoice
    from penstock.runtime.shard.batch import OnPending
    from penstock.runtime.shard.pages import UnreadablePolicy

MIB = 1024 * 1024
_WHOLE = ("leases_max", "warm_bytes_max", "dead_letters_at_once_max", "parts_max", "batch_records_max")
KCL_RENEWALS_PER_FAILOVER = 3
_NUMBERS = (
    "failover_s", "renew_interval_s", "margin_s", "retry_s", "unconfirmed_max_s", "warm_deadline_s", "drain_deadline_s",
    "look_interval_s", "wait_interval_s", "scan_interval_s", "close_grace_s", "kcl_report_interval_s",
    "kcl_look_interval_s", "kcl_steal_wait_s", "upkeep_interval_s", "dead_letter_timeout_s", "subscriptions_per_s",
)  # fmt: skip
_NONE = (
    "leases_max", "renew_interval_s", "margin_s", "retry_s", "unconfirmed_max_s", "scan_interval_s", "dead_letters",
    "deduplicate", "fan_out", "fan_out_consumer", "kcl_steal_wait_s",
)  # fmt: skip
_KINDS: dict[str, tuple[type | str, ...]] = {
    "starting_position": (StartingPosition,),
    "ledger": (LedgerSettings,),
    "dead_letters": (DeadLettersToStream, DeadLettersToFile, DeadLettersTo),
    "deduplicate": (Deduplicate,),
    "cadence": (Riding, Every, Prompt),
    "checkpoint_when_told": (bool,),
    "polling": (PollingOptions,),
    "fan_out": (FanOutOptions,),
    "fan_out_consumer": (str,),
    "aggregates_outside_range": (OutsidePolicy,),
    "accept_ignored_keys": (bool,),
    "unreadable": (DeadLetters, Skip, Stop, Deliver),
    "own_thread": (bool,),
}
NOTHING_GIVEN_UP = LedgerSettings(retry=Retry(failures_max=None))


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Every bound and interval of a worker. Raises OptionError for what can't be."""

    failover_s: float = FAILOVER_S
    """A worker that has shown no sign of life for this long counts as dead, and other workers take its shards over
    (KCL: the same).
    """
    renew_interval_s: float | None = None
    """The time from one confirmed write of a lease to the next. None: half of ``failover_s``."""
    margin_s: float | None = None
    """A worker stops delivering this long before other workers may take its shards. The margin covers clocks that do
    not run alike, and a delivery that is under way. None: a twentieth of ``failover_s``.
    """
    retry_s: float | None = None
    """The time after which the worker repeats a call to the lease table that failed, or whose outcome is unknown. None:
    a fortieth of ``failover_s``.
    """
    unconfirmed_max_s: float | None = None
    """The worker gives up a lease of which no write was confirmed for this long. None: twice ``failover_s``."""
    starting_position: StartingPosition = StartingPosition.LATEST
    """Where the consumer begins in shards that no worker of the application has read. It reads the children of shards
    that were read from their start. The value may also be a text, ``"TRIM_HORIZON"``, or an aware datetime.
    """
    other_stream_begins_anew: bool = False
    """What the consumer does when the leases belong to another stream: to one that the application read before, or to
    one that was deleted and made anew under its name. False: it ends with an OptionError. True: once no owner of these
    leases lives, it begins them anew, where ``starting_position`` says.
    """
    strategy: Strategy | Callable[[Sequence[LeaseView], Sequence[WorkerView]], Mapping[str, str]] = EQUAL_COUNTS
    """Which worker should read which shard: EqualCounts(), ByThroughput(), Fixed(), or a function. The function gets
    the leases that may be read now and the workers that are present, and returns workers' ids by lease key. It has to
    be the same for all workers.
    """
    leases_max: int | None = None
    """The most shards that this worker reads."""
    warm_deadline_s: float = 3.0
    """How long an owner that hands a shard over waits until the next owner has read ahead of it."""
    drain_deadline_s: float = 10.0
    """How long an owner waits for records in flight to be settled, before it hands a shard over all the same. It also
    waits for a program that has begun something of which it can take the rest only later: the parts of a record, or
    keys that wait behind others.
    """
    warm_bytes_max: int = 16 * MIB
    """How much a worker reads ahead of a shard that another worker is about to hand over to it."""
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    """The memory that fetched records of all shards together may take until they are settled: their data, and what
    Python needs for each of them. One half is divided evenly among the shards, so that a shard whose handler hangs
    keeps no other one waiting; the other half is for the shards that are behind. `LedgerSettings.bytes_max` bounds one
    shard.
    """
    look_interval_s: float = 0.5
    """How often the worker looks at the other workers' rows."""
    wait_interval_s: float = 0.05
    """How often the worker looks at the other workers' rows while a shard is being handed over."""
    scan_interval_s: float | None = None
    """How often the worker reads all leases when nothing shows sooner that they have changed. None: twice in
    ``failover_s``; five times beside KCL workers, because only their leases show that they live.
    """
    close_grace_s: float = 5.0
    """How long a close may go on after the drain's deadline, for the writes that give the leases away."""
    kcl_report_interval_s: float = 30.0
    """How often this worker shows itself to the leader of a KCL 3.x fleet (its ``workerMetricsReporterFreqInMillis``):
    the leader assigns no lease to a worker that it has not seen for twice as long.
    """
    kcl_look_interval_s: float = 60.0
    """How often the worker looks at the tables that a KCL 3.x fleet has beside the leases."""
    kcl_steal_wait_s: float | None = None
    """How long the worker waits before it delivers records of a shard that it has stolen from a KCL 2.x worker that
    lives, because that worker reads on until its next renewal fails. The worker steals one shard at a time. None: a
    third of ``failover_s``, in which the KCL renews, and ``margin_s``. 0: no wait. Both workers may still have the
    records that the KCL worker had handed to its processor by then, and more where its renewal comes late.
    """
    upkeep_interval_s: float = 60.0
    """How often one of the workers deletes leases that are no longer needed, and looks for holes in the hash range. It
    repairs a hole that was there three times in a row. It retries upkeep that failed after ``failover_s``, if that is
    sooner.
    """
    ledger: LedgerSettings = NOTHING_GIVEN_UP
    """How the consumer delivers and settles records. By default it retries what fails until it succeeds, at last the
    bad record of a batch alone: it gives nothing up as long as no option says where dead letters go. Where
    ``dead_letters`` says so, the default is `LedgerSettings()`.
    """
    dead_letters: DeadLetterChoice | None = None
    """Where the consumer writes dead letters: records that it gives up. Such a record counts as settled once its dead
    letter is written. None: no policy of ``ledger`` may make dead letters.
    """
    dead_letter_timeout_s: float = 60.0
    """A dead letter that is not written within this time counts as failed, and is written again later."""
    dead_letters_at_once_max: int = 16
    """How many dead letters of a shard the consumer writes side by side: a failing dependency can make thousands."""
    deduplicate: Deduplicate | None = None
    """If set, the consumer leaves out records whose key came shortly before. None: it leaves out no record."""
    split: Callable[[Record], Iterable[Any]] | None = field(default=None, repr=False)
    """A function from a record to its parts. The consumer delivers these in place of the record, each as a `Part`, and
    the record is settled when all of its parts are. The parts must follow from the record alone, so that a replay gives
    the same. A record for which the function raises becomes a dead letter. The parts are the values: no deserializer is
    called.
    """
    parts_max: int = PARTS_MAX
    """A record with more parts than this becomes a dead letter."""
    cadence: Cadence = field(default_factory=Riding)
    """When the consumer writes checkpoints. Riding(): with the renewals of the leases, each half of ``failover_s``, and
    whenever it lets a shard go as planned. Every(): also each so many records or seconds. Prompt(): also after each
    settled batch.
    """
    on_pending: OnPending | None = None
    """A function that the consumer calls when it begins a shard whose former owner has prepared a checkpoint and did
    not commit it. The function says what becomes of that checkpoint. None: the consumer abandons it, as the KCL does.
    """
    checkpoint_when_told: bool = False
    """True: the consumer checkpoints settled records no further than `Shard.checkpoint_to` says, and stores a
    shard as ended when that says so.
    """
    polling: PollingOptions = field(default_factory=PollingOptions)
    """How often the consumer asks shards for records."""
    fan_out: FanOutOptions | None = None
    """If set, the consumer reads shards by enhanced fan-out, and polls them where that does not work. None: it polls
    them.
    """
    fan_out_consumer: str | None = None
    """The name under which the consumer is registered with the stream. None: the application's name."""
    subscriptions_per_s: float = 10.0
    """The most subscriptions that a process starts in a second."""
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    """What becomes of an aggregate with user records of another shard's hash range (its producer had an old map of the
    shards): DELIVER, DROP (the KCL's rule) or RAISE.
    """
    accept_ignored_keys: bool = False
    """False: the consumer refuses a stream that ignores partition keys (record distribution AUTO) where an order was
    chosen: InOrder(), ByKey(), OneByOne(). True: it reads the stream all the same, each shard in its own order, and
    reports it with the event `KeysIgnored`.
    """
    batch_records_max: int = 10_000
    """The most records that a batch has. A batch that was larger and failed comes again as it was."""
    unreadable: UnreadablePolicy = field(default_factory=Stop)
    """What becomes of a record that the consumer's deserializer cannot read."""

    own_thread: bool = True
    """True: leases, checkpoints and reading go on in a thread of their own while the program's code blocks its event
    loop. The thread also calls ``split``, ``strategy``, ``on_pending`` and the key of ``deduplicate``. False, or with a
    stream or a lease table of the program's own making: everything runs on the program's loop.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "starting_position", start_of(self.starting_position))
        if faults := _wrong_types(vars(self)):
            raise OptionError(faults)
        faults = [
            f"{name} must be more than 0, not {value}"
            for name in (
                "failover_s",
                "warm_bytes_max",
                "buffer_bytes_max",
                "look_interval_s",
                "wait_interval_s",
                "upkeep_interval_s",
                "kcl_report_interval_s",
                "kcl_look_interval_s",
                "close_grace_s",
                "drain_deadline_s",
                "batch_records_max",
                "subscriptions_per_s",
                "dead_letter_timeout_s",
                "dead_letters_at_once_max",
                "parts_max",
            )
            if not (value := getattr(self, name)) > 0
        ]
        if self.kcl_steal_wait_s is not None and self.kcl_steal_wait_s < 0:
            faults.append(f"kcl_steal_wait_s must be at least 0, not {self.kcl_steal_wait_s}")
        if self.warm_deadline_s < 0:
            faults.append(f"warm_deadline_s must be at least 0, not {self.warm_deadline_s}")
        if self.look_interval_s > self.failover_s / 5:
            faults.append("look_interval_s is at most a fifth of failover_s: else a dead worker is noticed late")
        faults += self._bad_times()
        if self.dead_letters is None:
            faults += self._without_dead_letters()
        elif self.ledger is NOTHING_GIVEN_UP:
            object.__setattr__(self, "ledger", LedgerSettings())
        if faults:
            raise OptionError(faults)

    def _without_dead_letters(self) -> list[str]:
        """Faults for the policies that make dead letters, while ``dead_letters`` does not say where those go."""
        retry, stalled = self.ledger.retry, self.ledger.stalled
        names = {
            "ledger.retry.then": retry.then if retry.failures_max is not None else None,
            "unreadable": self.unreadable,
            "ledger.stalled": stalled.then if isinstance(stalled, Redeliver) else stalled,
        }
        found = [
            f"{name} makes dead letters, and dead_letters does not say where they go: give it, or another policy: "
            "retry=Retry(failures_max=None) tries for ever, Retry(then=Skip()) goes on without the record"
            if name == "ledger.retry.then"
            else f"{name} makes dead letters, and dead_letters does not say where they go"
            for name, resort in names.items()
            if isinstance(resort, DeadLetters)
        ]
        if self.split is not None:
            found.append("split: records that cannot be split become dead letters: say by dead_letters where they go")
        return found

    def _bad_times(self) -> list[str]:
        if self.scan_interval_s is not None and not 0 < self.scan_interval_s <= self.failover_s:
            return [f"scan_interval_s is more than 0 and at most failover_s, not {self.scan_interval_s}"]
        try:
            times = self.times
        except ValueError as fault:
            return [str(fault)]
        return [] if times.renew_interval_s and times.retry_s else ["renew_interval_s and retry_s must be more than 0"]

    @property
    def assignment(self) -> Strategy:
        """The strategy; a function's answers are checked."""
        return Custom(self.strategy) if inspect.isroutine(self.strategy) else cast("Strategy", self.strategy)

    @property
    def steal_wait_s(self) -> float:
        """See ``kcl_steal_wait_s``."""
        chosen = self.kcl_steal_wait_s
        return self.failover_s / KCL_RENEWALS_PER_FAILOVER + self.times.margin_s if chosen is None else chosen

    @property
    def times(self) -> LeaseTimes:
        """The times of each lease."""
        names = ("renew_interval_s", "margin_s", "retry_s", "unconfirmed_max_s")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(LeaseTimes.of(self.failover_s), **given)


def start_of(given: Any) -> Any:
    """A start position, from its text or a time as well. Raises OptionError."""
    if isinstance(given, str) and given in (StartingPosition.TRIM_HORIZON.kind, StartingPosition.LATEST.kind):
        return StartingPosition(given)
    if isinstance(given, str):
        raise OptionError(f"a start is TRIM_HORIZON, LATEST or StartingPosition.at_timestamp(...), not {given!r}")
    if isinstance(given, dt.datetime):
        try:
            return StartingPosition.at_timestamp(given)
        except ValueError as fault:
            raise OptionError(f"a start: {fault}") from fault
    return given


def _wrong_types(given: Mapping[str, object]) -> list[str]:
    """What is of another type than its option."""
    faults = not_numbers({name: given[name] for name in (*_NUMBERS, *_WHOLE)}, optional=_NONE, whole=_WHOLE)
    faults += not_of(given, _KINDS, optional=_NONE)
    faults += not_callable(given, ("split", "on_pending", "strategy"))
    if given["strategy"] is None or isinstance(given["strategy"], type):
        faults.append(
            f"strategy is EqualCounts(), ByThroughput(), Fixed() or a function, not {shown(given['strategy'])}"
        )
    return faults
