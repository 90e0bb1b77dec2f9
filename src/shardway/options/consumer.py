"""The options of a consumer, and those groups of them that are about the consumer alone.

``docs/reference/consumer.md`` is made from here, and from where the other groups stand: `shardway.options.leases`,
`shardway.options.metrics`; `shardway.policies` (`Retry`, `SettlingOptions`); the parts of `shardway.core` that use them
(`PollingOptions`, `Deduplicate`); and `shardway.aws.options` (`ConnectionOptions`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from shardway.core.ledger.policy import SHARD_BUFFER_BYTES_MAX, SHARD_RECORDS_MAX, LedgerPolicy
from shardway.core.log.buffer import BUFFER_BYTES_MAX
from shardway.core.log.pace import PollingOptions
from shardway.core.options.base import Options
from shardway.core.options.hints import Also
from shardway.core.shard.checkpoints.cadence import Cadence, Riding
from shardway.core.shard.duplicates import Deduplicate
from shardway.model import OutsidePolicy, Record, StartingPosition
from shardway.options.leases import LeaseOptions
from shardway.options.times import WorkerTimes
from shardway.policies import (
    ByKey,
    DeadLetterChoice,
    DeadLetters,
    OnPending,
    OrderPolicy,
    Redeliver,
    Retry,
    SettlingOptions,
    Stop,
    UnreadablePolicy,
)
from shardway.ports import LeaseTable

if TYPE_CHECKING:
    from collections.abc import Iterator

KCL_RENEWALS_PER_FAILOVER = 3
LATEST_WINS_BY_KEY = "settling.latest_wins: with keys side by side the newest record says nothing about those before it"


class HandoffOptions(Options, frozen=True, kw_only=True):
    """The options of how a shard goes from one worker to another."""

    warm_deadline_s: Annotated[float, Meta(ge=0)] = 3.0
    """How long an owner that hands a shard over waits until the next owner has read ahead of it."""
    drain_deadline_s: Annotated[float, Meta(gt=0)] = 10.0
    """How long an owner waits for records in flight to be settled, before it hands a shard over all the same (KCL:
    gracefulLeaseHandoffTimeoutMillis). It also waits for a program that has begun something of which it can take the
    rest only later: the parts of a record, or keys that wait behind others.
    """
    kcl_steal_wait_s: Annotated[float, Meta(ge=0)] | None = None
    """How long the worker waits before it delivers records of a shard that it has stolen from a KCL 2.x worker that
    lives, because that worker reads on until its next renewal fails. The worker steals one shard at a time. None: a
    third of ``failover_s``, in which the KCL renews, and a twentieth. 0: no wait. Both workers may still have the
    records that the KCL worker had handed to its processor by then, and more where its renewal comes late.
    """


class CheckpointOptions(Options, frozen=True, kw_only=True):
    """The options of when checkpoints are written, and of what becomes of one that a former owner left pending."""

    cadence: Cadence = msgspec.field(default_factory=Riding)
    """When the consumer writes checkpoints. Riding(): with the renewals of the leases, each half of ``failover_s``, and
    whenever it lets a shard go as planned. Every(): also after a number of records or seconds. Prompt(): also after
    each settled batch.
    """
    manual: bool = False
    """True: the consumer checkpoints settled records no further than `Shard.checkpoint_to` says, and stores a
    shard as ended when that says so.
    """
    on_pending: OnPending | None = None
    """A function that the consumer calls when it begins a shard whose former owner has prepared a checkpoint and did
    not commit it. The function says what becomes of that checkpoint. None: the consumer abandons it, as the KCL does.
    """


class BufferOptions(Options, frozen=True, kw_only=True):
    """The options of how much is fetched ahead of the program, and how much the program gets at once."""

    buffer_bytes_max: Annotated[int, Meta(gt=0)] = BUFFER_BYTES_MAX
    """The memory that fetched records of all shards together may take until they are settled: their data, and what
    Python needs for each of them. One half is divided evenly among the shards, so that a shard whose handler hangs
    keeps no other one waiting; the other half is for the shards that are behind.
    """
    shard_buffer_bytes_max: Annotated[int, Meta(gt=0)] = SHARD_BUFFER_BYTES_MAX
    """The consumer fetches no more of a shard while the records that it holds of it take this much memory: their data,
    and what Python needs for each of them (some 300 bytes).
    """
    shard_records_max: Annotated[int, Meta(gt=0)] = SHARD_RECORDS_MAX
    """The consumer fetches no more of a shard while this many of its records are not settled, delivered or not."""
    batch_records_max: Annotated[int, Meta(gt=0)] = 10_000
    """The most records that a batch has. A batch that was larger and failed comes again as it was."""


class FanOutOptions(Options, frozen=True, kw_only=True):
    """Enhanced fan-out: the service pushes the records, and the consumer polls a shard where that does not work."""

    consumer_name: str | None = None
    """The name under which the consumer is registered with the stream. None: the application's name."""
    subscriptions_per_s: Annotated[float, Meta(gt=0)] = 10.0
    """The most subscriptions that a process starts in a second."""


class ConsumerOptions(Options, frozen=True, kw_only=True):
    """The options of a consumer: the arguments of `Consumer` that are options, each a value or a group."""

    starting_position: Annotated[StartingPosition, Also(str | dt.datetime)] = StartingPosition.LATEST
    """Where the consumer begins in shards that no worker of the application has read (KCL: initialPositionInStream). It
    is fixed when the shard's lease is made: LATEST is that moment, for each owner. The consumer reads the children of
    shards that were read from their start. The value may also be a text, ``"TRIM_HORIZON"``, or an aware datetime.
    """
    order: OrderPolicy | None = None
    """What may be delivered while an earlier record waits for its retry: InOrder(), AnyOrder(), ByKey(). None: the same
    as InOrder(), but not as a promise, so the consumer also reads a stream that ignores partition keys.
    """
    accept_ignored_keys: bool = False
    """False: the consumer refuses a stream that ignores partition keys (record distribution AUTO) where an order was
    chosen: InOrder(), ByKey(), OneByOne(). True: it reads the stream all the same, each shard in its own order, and
    reports it with the event `KeysIgnored`.
    """
    retry: Retry | None = None
    """What the consumer does when a handler raises. None: it retries what fails until it succeeds, at last the bad
    record of a batch alone, and gives nothing up; where ``dead_letters`` says where dead letters go, as `Retry()` says.
    """
    dead_letters: DeadLetterChoice | None = None
    """Where the consumer writes dead letters: records that it gives up. Such a record counts as settled once its dead
    letter is written. None: no policy may make dead letters.
    """
    deduplicate: Deduplicate | None = None
    """If set, the consumer leaves out records whose key came shortly before. None: it leaves out no record."""
    split: Callable[[Record], Iterable[Any]] | None = None
    """A function from a record to its parts, 10,000 at most. The consumer delivers these in place of the record, each
    as a `Part`, and the record is settled when all of its parts are. The parts must follow from the record alone, so
    that a replay gives the same. Where the function raises, the record becomes a dead letter. The parts are the
    values: no deserializer is called.
    """
    unreadable: UnreadablePolicy = msgspec.field(default_factory=Stop)
    """What becomes of a record that the consumer's deserializer cannot read."""
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    """What becomes of an aggregate with user records of another shard's hash range (its producer had an old map of the
    shards): DELIVER, DROP (the KCL's rule) or RAISE.
    """
    leases: Annotated[LeaseOptions, Also(LeaseTable)] = LeaseOptions()
    """Where the consumers of the application agree, and when one of them counts as dead. A LeaseTable alone stands for
    ``LeaseOptions(table=...)``.
    """
    handoff: HandoffOptions = HandoffOptions()
    """How a shard goes from one worker to another."""
    checkpoints: CheckpointOptions = CheckpointOptions()
    """When checkpoints are written."""
    settling: SettlingOptions = SettlingOptions()
    """What the consumer does about records that are late."""
    buffer: BufferOptions = BufferOptions()
    """How much the consumer fetches ahead of the program."""
    polling: PollingOptions = PollingOptions()
    """How often the consumer asks shards for records."""
    fan_out: FanOutOptions | None = None
    """If set, the consumer reads shards by enhanced fan-out, and polls them where that does not work. None: it polls
    them.
    """
    own_thread: bool = True
    """True: leases, checkpoints and reading go on in a thread of their own while the program's code blocks its event
    loop. The thread also calls ``split``, ``strategy``, ``on_pending`` and the key of ``deduplicate``. False, or with a
    stream or a lease table of the program's own making: everything runs on the program's loop.
    """

    _times: WorkerTimes | None = None
    """The times that tests set; None: the times that follow from the failover time."""

    def _rules(self) -> Iterator[str]:
        if self.dead_letters is None:
            yield from self._without_dead_letters()
        if self.settling.latest_wins and isinstance(self.order, ByKey):
            yield LATEST_WINS_BY_KEY

    def _without_dead_letters(self) -> Iterator[str]:
        """Yield faults for the policies that make dead letters, while ``dead_letters`` does not say where those go."""
        retry, stalled = self.retry, self.settling.stalled
        resorts = {
            "retry.then": retry.then if retry is not None and retry.failures_max is not None else None,
            "unreadable": self.unreadable,
            "settling.stalled": stalled.then if isinstance(stalled, Redeliver) else stalled,
        }
        for name, resort in resorts.items():
            if isinstance(resort, DeadLetters):
                yield f"{name} makes dead letters, and dead_letters does not say where they go" + (
                    ": give it, or another policy: retry=Retry(failures_max=None) tries for ever, "
                    "Retry(then=Skip()) goes on without the record"
                    if name == "retry.then"
                    else ""
                )
        if self.split is not None:
            yield "split: records that cannot be split become dead letters: say by dead_letters where they go"

    @property
    def ledger(self) -> LedgerPolicy:
        """The policy of each shard's ledger."""
        settling, buffer = self.settling, self.buffer
        return LedgerPolicy(
            order=self.order,
            retry=self.retry or (Retry(failures_max=None) if self.dead_letters is None else Retry()),
            settle_deadline_s=settling.deadline_s,
            stalled=settling.stalled,
            latest_wins=settling.latest_wins,
            log_errors=settling.log_errors,
            records_max=buffer.shard_records_max,
            bytes_max=buffer.shard_buffer_bytes_max,
            **self.times.ledger,
        )

    @property
    def times(self) -> WorkerTimes:
        """The times that follow from the failover time."""
        return self._times or WorkerTimes.of(self.leases.failover_s)

    @property
    def steal_wait_s(self) -> float:
        """The seconds of ``kcl_steal_wait_s``, or what follows from the failover time where it is None."""
        chosen = self.handoff.kcl_steal_wait_s
        if chosen is not None:
            return chosen
        return self.leases.failover_s / KCL_RENEWALS_PER_FAILOVER + self.times.lease.margin_s

    def arguments(self) -> dict[str, Any]:
        """Return the options as arguments of a consumer."""
        return {name: getattr(self, name) for name in self.__struct_fields__}
