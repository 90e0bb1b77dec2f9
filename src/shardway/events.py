"""Events are what happened, as facts: the one source of metrics, logs and tests.

A part that runs calls one function with each fact: ``on_event``, which the user gives it. The part calls it on its own
event loop, so the function must return at once and raise nothing. `shardway.telemetry.log.log_events` makes one that
writes log lines.

Events carry counts, shard ids, error codes; never a payload or a partition key. ``stream`` is its name or ARN, as it
was given. "Records" are records of Kinesis; "user records" are what was put: an aggregate is one record and holds many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from shardway.core.signatures import SignedMeta

if TYPE_CHECKING:
    from shardway.model import Position
    from shardway.runtime.producer.metrics import ProducerSnapshot
    from shardway.telemetry.consumer_metrics import ConsumerSnapshot
    from shardway.telemetry.snapshots import QuerySnapshot


class Event(msgspec.Struct, frozen=True, metaclass=SignedMeta):
    """The base of all facts, for a function that is called with every one (``on_event``)."""

    if TYPE_CHECKING:

        @property
        def stream(self) -> str:
            """The stream's name or ARN, as it was given; the table or the application, where the fact is of no
            stream.
            """


class PutRecordsDone(Event, frozen=True, gc=False):
    """One PutRecords request ended: answered, or not."""

    stream: str
    records: int
    """The number of Kinesis records in the request."""
    user_records: int
    """The number of user records inside of those records."""
    payload_bytes: int
    """The bytes of data and partition keys, as the service counts a request's size."""
    refused: int
    """The number of records that the service refused for their shard's limits; they will be put again."""
    failed: int
    """The number of records that failed for another reason."""
    duration_s: float
    """Seconds from sending to the answer's last byte, or to the error."""
    error_code: str | None
    """The reason why the whole request failed: AWS's code, or the error's class when no answer came. None: it was
    answered.
    """
    in_flight: int
    """The number of requests that are still under way."""


class RecordsRefused(Event, frozen=True, gc=False):
    """A request was answered, and these records of it were not taken. They wait and are put again.

    ``error_code`` says why: ProvisionedThroughputExceededException when the shard took no more for now.
    """

    stream: str
    shard_id: str | None
    """The shard that was predicted; None when no shard could be predicted for the records."""
    records: int
    error_code: str


class RecordsExpired(Event, frozen=True, gc=False):
    """User records were not written within their time to live; their callers got an error."""

    stream: str
    shard_id: str | None
    """The shard that was predicted; None when no shard could be predicted for the records."""
    user_records: int
    may_be_written: bool
    """True when an attempt had an unknown outcome: the stream may hold them all the same."""


class RecordsFailed(Event, frozen=True, gc=False):
    """User records were given up: putting them again would not help, or the producer was closed (``ProducerClosed``).

    Their callers got an error.
    """

    stream: str
    shard_id: str | None
    user_records: int
    error_code: str


class AggregatesRepeated(Event, frozen=True, gc=False):
    """Aggregates landed on a shard whose hash range does not hold all their user records (the stream was resharded).

    Readers drop from an aggregate what does not belong to its shard, so the user records were put again, by shard.
    """

    stream: str
    shard_id: str
    aggregates: int
    user_records: int


class UnknownOutcome(Event, frozen=True, gc=False):
    """A request got no answer: its records may have been written. They are put again, which may write them twice."""

    stream: str
    records: int
    reason: str


class ShardMapChanged(Event, frozen=True):
    """The stream's open shards were listed for the first time, or are others than before."""

    stream: str
    open_shards: int
    added: tuple[str, ...]
    closed: tuple[str, ...]


class ShardMapFailed(Event, frozen=True, gc=False):
    """The stream's shards could not be listed. What is known of them is used until it succeeds."""

    stream: str
    reason: str
    retry_in_s: float


class PaceChanged(Event, frozen=True, gc=False):
    """The part of a shard's limit that this producer uses has changed: down after a refusal, up while all is taken."""

    stream: str
    shard_id: str
    share: float
    """The part of the shard's limit: 1.0 is all of it."""


class AggregationOff(Event, frozen=True, gc=False):
    """The producer begins to put each user record as a record of its own, because aggregates cannot be placed."""

    stream: str
    reason: str


class ProducerMetrics(Event, frozen=True):
    """A producer reports what it did since the event of this kind before."""

    stream: str
    snapshot: ProducerSnapshot
    last: bool = False
    """True once the producer is closed: no further event follows."""


ProducerEvent: TypeAlias = (
    PutRecordsDone
    | RecordsRefused
    | RecordsExpired
    | RecordsFailed
    | AggregatesRepeated
    | UnknownOutcome
    | ShardMapChanged
    | ShardMapFailed
    | PaceChanged
    | AggregationOff
    | ProducerMetrics
)
"""The facts that a producer emits: ``match`` over them is complete."""


# --- what a consumer's ledger emits: one shard, one tenure ----------------------------------------


class RecordsStalled(Event, frozen=True):
    """Records were delivered and not settled for longer than `SettlingOptions.deadline_s`."""

    stream: str
    shard_id: str
    positions: tuple[Position, ...]
    """The positions of the first of these records, up to 20."""
    records: int
    waiting: int
    """The number of these records that the handler has not: they wait for a retry, or as dead letters to be written."""
    age_s: float
    """Seconds since the records were first delivered."""
    action: str
    """The policy that is applied: Warn, Redeliver, DeadLetters, Skip, Stop or GiveUp."""


class BatchFailed(Event, frozen=True, gc=False):
    """A handler raised for a batch, or for one record."""

    stream: str
    shard_id: str
    position: Position
    """The position of the first record that was not settled by then."""
    records: int
    attempt: int
    """The number of times that these records were delivered so far."""
    error_type: str
    next_step: str
    """The next step: Redelivery, Halve, or the policy's end: DeadLetters, Skip, Stop, GiveUp."""
    delay_s: float
    """Seconds before the retry."""
    error_at: str = "not raised"
    """The file and line of the handler, and of the deepest call below it."""
    message: str | None = None
    """The error's own message, where `SettlingOptions.log_errors` asks for it: it may hold what a record holds."""
    trace: str | None = None
    """The traceback, where `SettlingOptions.log_errors` asks for it."""
    payload_bytes: int = 0
    """The data bytes of the records."""


class RecordDeadLettered(Event, frozen=True, gc=False):
    """A record was given up and written where dead letters go. It counts as settled now."""

    stream: str
    shard_id: str
    position: Position
    part: int | None
    """The number of the part in its record, where records are split."""
    attempts: int
    """The number of times that the record was delivered: in larger batches, and also where another record of its batch
    failed.
    """
    error_type: str
    failures: int = 0
    """The number of times that the record failed by itself: `Retry.failures_max` counts it."""
    payload_bytes: int = 0
    """The data bytes of the record."""


class DeadLetterFailed(Event, frozen=True, gc=False):
    """A dead letter could not be written. Its record stays unsettled, and writing is tried again."""

    stream: str
    shard_id: str
    position: Position
    error_type: str
    """The error's class, with the service's code, or what the system said of a file."""
    failures: int
    """The number of times that writing the letter has failed."""
    delay_s: float


class RecordsSkipped(Event, frozen=True, gc=False):
    """Records count as settled without having been processed."""

    stream: str
    shard_id: str
    first: Position
    last: Position
    records: int
    """The number of records from the first to the last, both included; others in between may be settled."""
    reason: str
    payload_bytes: int = 0
    """The data bytes of the records."""


class RecordsUnsettled(Event, frozen=True):
    """The program has not settled records that it was handed: this worker or the next owner delivers them again."""

    stream: str
    shard_id: str
    positions: tuple[Position, ...]
    """The positions of the first of these records, up to 20."""
    records: int
    reason: str
    """The reason why the event is emitted now."""
    advice: str


class LateSettlement(Event, frozen=True, gc=False):
    """The program settles records of a tenure that has ended: it counts for nothing, and is emitted once per tenure."""

    stream: str
    shard_id: str
    records: int
    reason: str
    """The reason why the tenure ended."""


class FetchingHeld(Event, frozen=True, gc=False):
    """The consumer fetches nothing more of the shard although a caller waits for records: what was delivered and not
    settled is at a bound of the shard, or the buffer that all shards share is full.
    """

    stream: str
    shard_id: str
    records: int
    bytes_held: int
    """The memory that those records take, in bytes."""
    position: Position
    """The position of the oldest record."""
    held_s: float


class HandoffWaits(Event, frozen=True, gc=False):
    """A shard is to be handed over, and waits for what is in flight. What is not settled by then comes again elsewhere.
    The time that this process needs to come to a callback does not count as waiting for it.
    """

    stream: str
    shard_id: str
    waits_for: str
    """The thing that is waited for: handlers, dead letters, a pending checkpoint, callers that may take what lies
    before records that were delivered, or a callback that runs: ``on_shards_revoked``, or the callback that is awaited
    before it.
    """
    records: int
    """The number of records that are in flight."""
    position: Position | None
    """The position of the oldest record that is not settled."""
    left_s: float
    """The seconds for which the shard waits at most."""


class ShardGivenUp(Event, frozen=True, gc=False):
    """The worker leaves the shard to another one; with ``Stop`` it keeps the shard, and delivers nothing of it until
    the consumer is started anew.
    """

    stream: str
    shard_id: str
    action: str
    """The name of the policy: GiveUp or Stop."""
    reason: str
    cool_down_s: float


class DedupeWindowCut(Event, frozen=True, gc=False):
    """The keys of the deduplication's window do not fit into its bounds: the oldest are forgotten."""

    stream: str
    shard_id: str
    keys: int
    key_bytes: int
    window_s: float
    """The seconds for which the keys reach back that are left."""


class DedupeWindowRebuilding(Event, frozen=True, gc=False):
    """A shard begins, and the window of its duplicates is not known yet: it is being read again."""

    stream: str
    shard_id: str
    waits: bool
    """True: nothing is delivered before the window is known. False: records are, and duplicates may be among them."""


class DedupeWindowRebuilt(Event, frozen=True, gc=False):
    """The window of a shard's duplicates has become known."""

    stream: str
    shard_id: str
    keys: int
    shards: int
    """The number of shards that were read for it: this shard, and its ancestors."""
    duration_s: float
    delivered_before: int
    """The number of records that were delivered before the window was known: duplicates may be among them."""


class DuplicatesLeftOut(Event, frozen=True, gc=False):
    """Records have a key that was there within the window: they count as settled, and no handler gets them."""

    stream: str
    shard_id: str
    records: int
    first: Position
    payload_bytes: int = 0
    """The data bytes of the records."""


class DedupeKeyFailed(Event, frozen=True, gc=False):
    """The function that returns a record's key raised: that record is taken for no duplicate."""

    stream: str
    shard_id: str
    position: Position
    error_type: str


class PendingCheckpointFound(Event, frozen=True, gc=False):
    """The former owner of a shard has prepared a checkpoint, and did not commit it."""

    stream: str
    shard_id: str
    position: Position | None
    """The position up to which the checkpoint goes; None: the whole shard, to its end."""
    choice: str
    """The choice for the checkpoint: abandon, commit or keep."""


class TaskFailed(Event, frozen=True, gc=False):
    """A task beside the reading of a shard, or of all shards, has met an error that it knows no answer to: a fault of
    the program's own functions, or a fault in Shardway.
    """

    stream: str
    shard_id: str | None
    """The id of the shard; None: the task was for all shards."""
    work: str
    """The work that was being done."""
    error_type: str
    """The error's class, with a service's code, or what the system says."""
    error_at: str
    """The line of code that raised."""
    what_follows: str
    """The consequence: what becomes of the shard, or when the work is begun again."""


LedgerEvent: TypeAlias = (
    RecordsStalled
    | BatchFailed
    | RecordDeadLettered
    | DeadLetterFailed
    | RecordsSkipped
    | RecordsUnsettled
    | LateSettlement
    | FetchingHeld
    | HandoffWaits
    | ShardGivenUp
    | DedupeWindowCut
    | DedupeWindowRebuilding
    | DedupeWindowRebuilt
    | DuplicatesLeftOut
    | DedupeKeyFailed
    | PendingCheckpointFound
    | TaskFailed
)
"""The facts that the settlement of a shard's records emits."""


class ReadRefused(Event, frozen=True, gc=False):
    """The shard's limits refused a read: others read it too. It is repeated. Once all reads of a minute were refused,
    its line is a WARNING, one in a minute.
    """

    stream: str
    shard_id: str
    calls_per_s: float
    """The rate at which this reader goes on: it assumes that the others leave this much."""
    retry_in_s: float
    refused_for_s: float = 0.0
    """Seconds since the first of the reads that were refused without one between them that was not."""


class ReadFailed(Event, frozen=True, gc=False):
    """A read failed, for a reason that may pass. It is repeated."""

    stream: str
    shard_id: str
    error_code: str
    """The code of AWS, or the error's class when no answer came."""
    retry_in_s: float
    reason: str
    """The error's message, as a whole."""


class CheckpointTrimmed(Event, frozen=True, gc=False):
    """A shard's checkpoint is older than the stream's retention. Reading goes on at the oldest record left."""

    stream: str
    shard_id: str
    position: Position
    """The checkpoint; or the last record that came, where the reader was cut off for longer than the retention."""
    resumes_at: Position | None
    """The position of the oldest record left; None while there is no record."""
    surely_nothing_lost: bool
    """True when the shard was only silent: it was read to its tip at a time that the retention still covers."""


class AggregatesOutsideRange(Event, frozen=True, gc=False):
    """Aggregates held user records of another shard's hash range: a producer had an old map of the shards."""

    stream: str
    shard_id: str
    aggregates: int
    dropped: int
    """The number of user records that were left out with them; 0 where they are delivered."""


class FanOutLeft(Event, frozen=True, gc=False):
    """A shard is polled for a while, as its subscription does not work."""

    stream: str
    shard_id: str
    reason: str
    return_in_s: float


class FanOutReturned(Event, frozen=True, gc=False):
    """A shard that was polled for a while is read by subscription again."""

    stream: str
    shard_id: str


class _OfTable(Event, frozen=True, gc=False):
    """The base of facts of a lease table, which stands for all streams of its application."""

    table: str

    @property
    def stream(self) -> str:
        """The name of the table: lines of a log begin with it."""
        return self.table


class FleetChanged(_OfTable, frozen=True, gc=False):
    """A consumer finds itself among other workers than before, and their rules hold for it from then on."""

    fleet: str
    """The name of the fleet: alone, kcl 2.x or kcl 3.x."""


class LeaseUpkeepFailed(_OfTable, frozen=True, gc=False):
    """Leases that have served could not be deleted, or missing leases not be made. It is tried again."""

    reason: str
    retry_in_s: float


class LeaseTableFailed(_OfTable, frozen=True, gc=False):
    """A call to the lease table failed, or got no answer. It is tried again; what the call was for waits."""

    call: str
    """The call, as `shardway.ports.LeaseTable` names it: ``write`` and ``create`` are of leases."""
    error_code: str
    """The code of AWS, or the error's class."""
    reason: str
    """The error's message, as a whole."""


class WorkerIdShared(_OfTable, frozen=True, gc=False):
    """Another process has this worker's id, too. Whichever of the two came later gets none of the other's shards for as
    long as the other renews its leases; it takes those that stand still for ``failover_s``. It is emitted once.
    """

    worker_id: str


class LeasesBegunAnew(_OfTable, frozen=True, gc=False):
    """Leases were of another stream, and are begun anew for this one, as the options say."""

    begun_for: str
    """The stream that is read, for which the leases are begun anew."""
    leases: int


class LeaseUnreadable(_OfTable, frozen=True, gc=False):
    """A row cannot be read as a lease, so no worker reads its shard. It goes on when the row is mended."""

    key: str
    """The key of the row."""
    reason: str


class LoopBlocked(Event, frozen=True, gc=False):
    """The program's own code did not let its event loop run, as a call that waits without ``await`` does."""

    application: str
    seconds: float
    so_far: bool
    """True: the loop is still blocked. The event is emitted once, and once more when it is over."""
    effect: str
    """The effect on leases and pages meanwhile."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


class StopBegun(Event, frozen=True, gc=False):
    """A signal asked the consumer to stop. Its shards are handed over, within the drain's deadline."""

    application: str
    signal: str
    """The name of the signal."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


class StopWaits(Event, frozen=True):
    """The consumer is being stopped, and has not ended. The event is emitted each second."""

    application: str
    shards: int
    """The number of shards that are still held."""
    records: int
    """The number of records that are in flight."""
    since_s: float
    left_s: float
    """The seconds that the stop may still take; then what is not settled comes again elsewhere."""
    held: tuple[str, ...] = ()
    """Ten of these shards at most, those with most records in flight first, each as ``STREAM/SHARD: RECORDS``."""

    @property
    def stream(self) -> str:
        """The name of the application: lines of a log begin with it."""
        return self.application


WorkerEvent: TypeAlias = (
    FleetChanged
    | LeaseUpkeepFailed
    | LeaseTableFailed
    | WorkerIdShared
    | LeasesBegunAnew
    | LeaseUnreadable
    | LoopBlocked
    | StopBegun
    | StopWaits
)
"""The facts that a consumer emits as it shares shards with other workers."""


class ShardBegun(Event, frozen=True, gc=False):
    """The consumer begins to read a shard."""

    stream: str
    shard_id: str
    token: int
    """The fencing token of its batches."""
    origin: str
    """The way in which the shard came: new, continued, handed over, or taken from a worker that fell silent."""


class ShardLeft(Event, frozen=True, gc=False):
    """The consumer reads a shard no more."""

    stream: str
    shard_id: str
    token: int
    reason: str


class KeysIgnored(Event, frozen=True, gc=False):
    """The stream spreads records over its shards whatever their partition keys are (record distribution AUTO)."""

    stream: str


class ConsumerMetrics(Event, frozen=True):
    """A consumer reports what it did since the event of this kind before, and how far it is."""

    stream: str
    """The stream's name or ARN; of several streams their names, with a comma between them."""
    application: str
    worker_id: str
    snapshot: ConsumerSnapshot


ConsumerEvent: TypeAlias = ShardBegun | ShardLeft | KeysIgnored | ConsumerMetrics
"""The facts that a consumer emits of its shards and streams."""


class QueryMetrics(Event, frozen=True):
    """A Spark query reports what it did with a stream that it reads since the event of this kind before, and how far it
    is.
    """

    stream: str
    application: str
    """The name of the query, or the beginning of its id where it has none."""
    snapshot: QuerySnapshot
    last: bool = False
    """True when the query was stopped, and has not failed: no further event follows."""


QueryEvent: TypeAlias = QueryMetrics
"""The facts that a Spark query emits, on its driver."""

FeedEvent: TypeAlias = (
    ReadRefused | ReadFailed | CheckpointTrimmed | AggregatesOutsideRange | FanOutLeft | FanOutReturned
)
"""The facts that the reading of a shard emits."""

AnyEvent: TypeAlias = ProducerEvent | LedgerEvent | FeedEvent | ConsumerEvent | WorkerEvent | QueryEvent
"""All facts that any part emits."""
