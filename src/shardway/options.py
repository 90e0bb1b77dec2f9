"""The options of services: frozen, keyword-only, checked in one place, all faults at once.

Each option is documented where it stands; ``docs/reference/producer.md`` and ``docs/reference/consumer.md`` are made
from here. Some groups stand in the parts of `shardway.core` that use them: `Retry` and `SettlingOptions`,
`PollingOptions`, `Deduplicate`; and `ConnectionOptions` stands in `shardway.aws`.
"""

from __future__ import annotations

import datetime as dt
import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast, get_type_hints

import msgspec
from msgspec import Meta

from shardway.aws.options import ConnectionOptions
from shardway.core.aggregation.writer import AGGREGATE_BYTES_MAX
from shardway.core.assignment.strategies import EQUAL_COUNTS, Custom, Strategy
from shardway.core.assignment.views import LeaseView, WorkerView
from shardway.core.leases.tenure.times import FAILOVER_S, LeaseTimes
from shardway.core.ledger.policy import SHARD_BUFFER_BYTES_MAX, SHARD_RECORDS_MAX, LedgerPolicy
from shardway.core.log.buffer import BUFFER_BYTES_MAX
from shardway.core.log.pace import PollingOptions
from shardway.core.options.base import Options, known_names
from shardway.core.options.check import check
from shardway.core.options.hints import ENDLESS, shown
from shardway.core.producer.chunk import RECORD_OVERHEAD_BYTES
from shardway.core.producer.limits import REQUEST_BYTES_MAX, REQUEST_RECORDS_MAX
from shardway.core.shard.checkpoints import Cadence, Riding
from shardway.core.shard.duplicates import Deduplicate
from shardway.errors import OptionError
from shardway.events import Event
from shardway.model import OutsidePolicy, Record, StartingPosition
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
from shardway.ports import IntervalWish, LeaseTable, ShardDetailWish, Tracer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from shardway.runtime.consumer.lifecycle import AssignedShard
    from shardway.runtime.feeds.fan_out import SubscriptionTimes

__all__ = [
    "BufferOptions",
    "CheckpointOptions",
    "ConsumerOptions",
    "FanOutOptions",
    "HandoffOptions",
    "LeaseOptions",
    "MetricsOptions",
    "ProducerOptions",
]

MIB = 1024 * 1024
PUT_RECORDS = "AWS API reference, PutRecords"


# --- numbers --------------------------------------------------------------------------------------


class MetricsOptions(Options, frozen=True, kw_only=True):
    """The intervals at which a consumer or a producer reports its numbers, and their detail."""

    interval_s: Annotated[float, Meta(gt=0)] | None = None
    """How often an event (`ConsumerMetrics`, `ProducerMetrics`) reports what happened since the one before. None: as
    often as an exporter that is the ``on_event`` wants it, and each 60 seconds for anything else.
    """
    per_shard: bool = False
    """True: numbers are counted by shard, too. An exporter that reports numbers by shard has that done in any case."""


METRICS_INTERVAL_S = 60.0
"""The interval at which the numbers are reported where neither the options nor the subscriber name one."""


def metrics_for(options: MetricsOptions, on_event: object) -> tuple[float, bool]:
    """Return how often the numbers are reported to this subscriber, in seconds, and whether by shard, too. An exporter
    says what it wants: see `IntervalWish` and `ShardDetailWish`.
    """
    wanted_s = on_event.metrics_interval_s if isinstance(on_event, IntervalWish) else None
    per_shard = isinstance(on_event, ShardDetailWish) and on_event.metrics_per_shard
    return options.interval_s or wanted_s or METRICS_INTERVAL_S, options.per_shard or per_shard


# --- the producer ---------------------------------------------------------------------------------


class ProducerOptions(Options, frozen=True, kw_only=True):
    """The options of a `Producer`. Raises OptionError with all faults."""

    aggregation: bool = False
    """Pack user records into KPL aggregates, by predicted shard. The stream then gets far fewer and larger Kinesis
    records, which cost less and allow more throughput. Readers must open them (the KCL, the KPL's readers and Shardway
    do). The producer switches this off by itself where the stream ignores partition keys, or where it can't list the
    shards.
    """
    aggregate_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = AGGREGATE_BYTES_MAX
    """An aggregate is no larger than this, unless a single user record is. This is the KPL's AggregationMaxSize."""
    ordered_by_key: bool = False
    """Keep the order of each partition key, also when the service refuses records. With aggregation each shard has one
    aggregate in flight; without it each key has one record in flight. This costs throughput where one shard or key is
    hot. False: throughput comes first, and records of a key may be written out of order after a refusal. A record that
    failed as maybe written (`PutError.may_be_written`) may still arrive, behind records of its key that were put later.
    """

    buffer_bytes_max: Annotated[int, Meta(gt=0)] = 16 * MIB
    """The most memory for records that have no outcome yet: each counts with its data, its partition key and 256 bytes
    of book-keeping, and each chunk of them with 1,024 bytes.
    """
    raise_when_full: bool = False
    """True: ``put`` and ``put_many`` raise BufferFullError when there is no room. False: they wait for it."""
    record_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = REQUEST_BYTES_MAX
    """The producer refuses a record with more data and key at once. The stream's own limit (MaxRecordSizeInKiB) may be
    lower.
    """

    linger_s: Annotated[float, Meta(ge=0)] = 0.005
    """How long a record waits for others that can share its request, and the least time between two requests that
    others could still join. The first record after a pause does not wait. More time gives larger requests and
    aggregates; with 0 no record waits.
    """
    request_records_max: Annotated[int, Meta(gt=0, le=REQUEST_RECORDS_MAX, description=PUT_RECORDS)] = (
        REQUEST_RECORDS_MAX
    )
    """The most Kinesis records in a PutRecords request."""
    request_bytes_max: Annotated[int, Meta(gt=0, le=REQUEST_BYTES_MAX, description=PUT_RECORDS)] = REQUEST_BYTES_MAX
    """The most data and partition keys in a request. If an endpoint refuses that much, the producer lowers it to 5 MiB
    by itself.
    """
    request_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """The producer gives up a request that has no answer after this time; it is then unknown whether the service has
    done it.
    """
    requests_in_flight_max: Annotated[int, Meta(gt=0)] = 24
    """The most requests that wait for their answer at the same time."""
    in_flight_bytes_max: Annotated[int, Meta(gt=0)] = 8 * MIB
    """The producer begins no further request while those in flight have this much payload."""

    record_ttl_s: Annotated[float, Meta(gt=0), ENDLESS] = 30.0
    """A record that is not written by then fails with RecordExpiredError, whether it waited, was refused or was never
    sent. A record that is in flight at that time gets its outcome when its answer comes, or when ``request_timeout_s``
    has passed.
    """
    retry_base_s: Annotated[float, Meta(ge=0)] = 0.1
    """The pause before the first retry is random, up to this bound; each further bound is twice the one before."""
    retry_cap_s: Annotated[float, Meta(gt=0)] = 5.0
    """The highest of these bounds."""

    pacing: bool = True
    """Keep to each shard's limits. Where other writers share a shard, keep to less, which the producer learns from
    refusals.
    """
    shard_records_per_s: Annotated[float, Meta(gt=0)] = 1_000
    """How many records a shard takes in a second (AWS: Kinesis quotas)."""
    shard_bytes_per_s: Annotated[float, Meta(gt=0)] = MIB
    """How much a shard takes in a second, data and partition keys together."""
    shard_map_refresh_s: Annotated[float, Meta(gt=0)] = 60.0
    """How often the producer lists the shards. It also does so whenever an answer shows that they changed."""

    def _rules(self) -> Iterator[str]:
        if self.retry_base_s > self.retry_cap_s:
            yield "retry_base_s must not be above retry_cap_s"
        if self.record_bytes_max + RECORD_OVERHEAD_BYTES > self.buffer_bytes_max:
            yield "buffer_bytes_max must hold at least one record of record_bytes_max, and 256 bytes"


class ProducerArguments(TypedDict, total=False):
    """The arguments that `Producer` and `SyncProducer` are given by name, beside the serializer."""

    connection: ConnectionOptions | None
    options: ProducerOptions | None
    metrics: MetricsOptions | None
    tracing: Tracer | None
    on_event: Callable[[Event], None] | None
    rng: random.Random | None


def check_producer(arguments: ProducerArguments, options: ProducerOptions) -> None:
    """Raise OptionError for arguments of wrong types, and for names that are gone."""
    known_names("Producer", arguments, ProducerArguments.__annotations__)
    hints = get_type_hints(ProducerArguments)
    check(dict.fromkeys(hints) | arguments | {"options": options}, hints)


# --- the consumer, by subject ---------------------------------------------------------------------


class LeaseOptions(Options, frozen=True, kw_only=True):
    """The options of the lease table, of how many shards each consumer takes, and of when one counts as dead."""

    table: Annotated[
        str | LeaseTable | None,
        Meta(
            title="a name or a LeaseTable",
            description="SqliteLeaseTable(path) keeps leases in a file, a name is that of a table in DynamoDB",
        ),
    ] = None
    """The lease table: the name of a table in DynamoDB (None: the application's name), or a table of another kind, as
    ``SqliteLeaseTable(path)``, which the consumer does not close. A table in DynamoDB is made if it is not there.
    """
    failover_s: Annotated[float, Meta(gt=0)] = FAILOVER_S
    """A worker that has shown no sign of life for this long counts as dead, and other workers take its shards over
    (KCL: failoverTimeMillis). A lease is renewed twice in this time, and a worker stops delivering a twentieth of it
    before others may take its shards.
    """
    leases_max: Annotated[int, Meta(ge=0)] | None = None
    """The most shards that this worker reads (KCL: maxLeasesForWorker)."""
    strategy: Annotated[
        Strategy | Callable[[Sequence[LeaseView], Sequence[WorkerView]], Mapping[str, str]],
        Meta(title="EqualCounts(), ByThroughput(), Fixed() or a function"),
    ] = EQUAL_COUNTS
    """Which worker should read which shard: EqualCounts(), ByThroughput(), Fixed(), or a function. The function gets
    the leases that may be read now and the workers that are present, and returns workers' ids by lease key. It has to
    be the same for all workers.
    """
    other_stream_begins_anew: bool = False
    """What the consumer does when the leases belong to another stream: to one that the application read before, or to
    one that was deleted and made anew under its name. False: it ends with an OptionError. True: once no owner of these
    leases lives, it begins them anew, where ``starting_position`` says.
    """
    upkeep_interval_s: Annotated[float, Meta(gt=0)] = 60.0
    """How often one of the workers deletes leases that are no longer needed, and looks for holes in the hash range
    (KCL: leasesRecoveryAuditorExecutionFrequencyMillis). It repairs a hole that was there three times in a row. It
    retries upkeep that failed after ``failover_s``, if that is sooner.
    """
    kcl_report_interval_s: Annotated[float, Meta(gt=0)] = 30.0
    """How often this worker shows itself to the leader of a KCL 3.x fleet (its ``workerMetricsReporterFreqInMillis``):
    the leader assigns no lease to a worker that it has not seen for twice as long.
    """

    connection: ConnectionOptions | None = None
    """How the consumer reaches a table in DynamoDB. None: in the same way as the stream."""
    request_timeout_s: Annotated[float, Meta(gt=0)] = 2.0
    """How long a worker waits for DynamoDB's answer to a write (KCL: dynamoDbRequestTimeout). A consumer waits at most
    a fifth of ``failover_s``, which leaves room for retries before it has to stop delivering.
    """
    workers_table: str | None = None
    """The table of workers in DynamoDB; None: the lease table's name with ``-Workers``."""
    coordinator_table: str | None = None
    metrics_table: str | None = None
    """Where KCL workers of 3.0 to 3.4 keep their rows; None: the lease table's name with ``-CoordinatorState`` and
    ``-WorkerMetricStats``. Shardway never makes these tables.
    """
    read_capacity_units: Annotated[int, Meta(gt=0)] | None = None
    write_capacity_units: Annotated[int, Meta(gt=0)] | None = None
    """The provisioned capacity of each table and of the index; give both. None: AWS bills the tables by request."""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    """Tags that both tables are made with."""
    owner_index: bool = False
    """True: the index by owner that workers of the KCL 3.x need is also added to a table that is there without it. A
    new table has it in any case.
    """
    deletion_protection: bool = False
    """True: tables that Shardway makes cannot be deleted before an administrator switches this off at the table."""

    def _rules(self) -> Iterator[str]:
        if isinstance(self.strategy, type):
            yield f"strategy is EqualCounts(), ByThroughput(), Fixed() or a function, not {shown(self.strategy)}"
        if (self.read_capacity_units is None) != (self.write_capacity_units is None):
            yield "read_capacity_units and write_capacity_units are given together, or not at all"
        if isinstance(self.table, str):
            yield from _name_faults(self.table)
        elif self.table is not None:
            defaults = self._defaults()
            given = [name for name in _OF_DYNAMODB if getattr(self, name) != defaults[name]]
            yield from (f"{name} is for a table in DynamoDB, and table is another kind" for name in given)

    @property
    def assignment(self) -> Strategy:
        """The strategy. Where it is a function, its answers are checked."""
        return Custom(self.strategy) if inspect.isroutine(self.strategy) else cast("Strategy", self.strategy)


_FILE_ENDS = (".db", ".sqlite", ".sqlite3", ".db3")


def _name_faults(name: str) -> Iterator[str]:
    """Yield what is wrong with the name of a table in DynamoDB: most such texts are a file's path or an address."""
    if not name:
        yield "table: there is no name"
    elif name.endswith(_FILE_ENDS):
        yield "table is the name of a table in DynamoDB, and this text looks like a file: SqliteLeaseTable(path)"
    elif "://" in name:
        yield "table is the name of a table in DynamoDB, and this text is an address: PostgresLeaseTable(url)"
    elif "/" in name and not name.startswith("arn:"):
        yield "table is the name of a table in DynamoDB, and this text looks like a path: SqliteLeaseTable(path)"


_OF_DYNAMODB = (
    "connection", "workers_table", "coordinator_table", "metrics_table", "read_capacity_units", "write_capacity_units",
    "owner_index", "deletion_protection",
)  # fmt: skip


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


# --- the consumer ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WorkerTimes:
    """The times that follow from ``failover_s``, or are the same for all programs. No option sets them; tests do."""

    lease: LeaseTimes
    look_interval_s: float
    """How often the worker looks at the other workers' rows."""
    wait_interval_s: float = 0.05
    """How often the worker looks at the other workers' rows while a shard is being handed over."""
    scan_interval_s: float | None = None
    """How often the worker reads all leases when nothing shows sooner that they have changed. None: twice in
    ``failover_s``; five times beside KCL workers, because only their leases show that they live.
    """
    close_grace_s: float = 5.0
    """How long a close may go on after the drain's deadline, for the writes that give the leases away."""
    kcl_look_interval_s: float = 60.0
    """How often the worker looks at the tables that a KCL 3.x fleet has beside the leases."""
    warm_bytes_max: int = 16 * MIB
    """How much a worker reads ahead of a shard that another worker is about to hand over to it."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """Bounds of a `LedgerPolicy` that no option sets."""
    subscriptions: SubscriptionTimes | None = None
    """When a subscription is renewed, given up, and tried again; None: the times that AWS sets."""

    @classmethod
    def of(cls, failover_s: float, **others: Any) -> WorkerTimes:
        """Return the times for a failover time; a dead worker is noticed within a fifth of it."""
        given: dict[str, Any] = {
            "lease": LeaseTimes.of(failover_s),
            "look_interval_s": min(LOOK_INTERVAL_S, failover_s / 5),
        }
        return cls(**(given | others))


LOOK_INTERVAL_S = 0.5
KCL_RENEWALS_PER_FAILOVER = 3
LATEST_WINS_BY_KEY = "settling.latest_wins: with keys side by side the newest record says nothing about those before it"


class ConsumerOptions(Options, frozen=True, kw_only=True):
    """The options of a consumer: the arguments of `Consumer` that are options, each a value or a group."""

    starting_position: StartingPosition = StartingPosition.LATEST
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
    that a replay gives the same. A record for which the function raises becomes a dead letter. The parts are the
    values: no deserializer is called.
    """
    unreadable: UnreadablePolicy = msgspec.field(default_factory=Stop)
    """What becomes of a record that the consumer's deserializer cannot read."""
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    """What becomes of an aggregate with user records of another shard's hash range (its producer had an old map of the
    shards): DELIVER, DROP (the KCL's rule) or RAISE.
    """
    leases: LeaseOptions = LeaseOptions()
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


class _Arguments(TypedDict, total=False):
    """The arguments that both consumers are given by name, beside the application, callbacks, and the two functions
    that make the values (the deserializer, ``split``): the fields of `ConsumerOptions`, and what does not say how the
    work is done.
    """

    starting_position: StartingPosition | str | dt.datetime
    order: OrderPolicy | None
    accept_ignored_keys: bool
    retry: Retry | None
    dead_letters: DeadLetterChoice | None
    deduplicate: Deduplicate | None
    unreadable: UnreadablePolicy
    aggregates_outside_range: OutsidePolicy
    leases: LeaseOptions | LeaseTable
    handoff: HandoffOptions
    checkpoints: CheckpointOptions
    settling: SettlingOptions
    buffer: BufferOptions
    polling: PollingOptions
    fan_out: FanOutOptions | None
    own_thread: bool
    worker_id: str | None
    connection: ConnectionOptions | None
    metrics: MetricsOptions | None
    tracing: Tracer | None
    on_event: Callable[[Event], None] | None
    rng: random.Random | None


class ConsumerArguments(_Arguments, total=False):
    """The arguments that a `Consumer` is given by name."""

    on_shards_assigned: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_ended: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_revoked: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_lost: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None


class SyncConsumerArguments(_Arguments, total=False):
    """The arguments that a `SyncConsumer` is given by name."""

    on_shards_assigned: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_ended: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_revoked: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_lost: Callable[[Sequence[AssignedShard]], object] | None


CALLBACKS = ("on_shards_assigned", "on_shards_ended", "on_shards_revoked", "on_shards_lost")


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Return the options among a consumer's arguments: a start may be a text or a time, and leases a table. Raises
    OptionError for all faults at once.
    """
    options = dict(given)
    if "starting_position" in options:
        options["starting_position"] = start_of(options["starting_position"])
    leases = options.get("leases", LeaseOptions())
    if isinstance(leases, str):  # As the name of a table in DynamoDB, the path of a file would make two tables.
        raise OptionError(
            "leases is LeaseOptions or a lease table, not a str: SqliteLeaseTable(path) keeps leases in a file, "
            "PostgresLeaseTable(url) in PostgreSQL, LeaseOptions(table=name) in a table of DynamoDB of that name"
        )
    if not isinstance(leases, LeaseOptions):
        options["leases"] = LeaseOptions(table=leases)
    return ConsumerOptions(**options)


def start_of(given: Any) -> Any:
    """Return a starting position, from its text or a time as well. Raises OptionError."""
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
