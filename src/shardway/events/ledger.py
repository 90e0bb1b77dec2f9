"""The facts that the settlement of a shard's records emits, in one tenure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shardway.events.base import Event

if TYPE_CHECKING:
    from shardway.model import Position


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
    """How many seconds the shard waits at most."""


class ShardGivenUp(Event, frozen=True, gc=False):
    """The worker leaves the shard to another one; with ``Stop`` it keeps the shard, and delivers nothing of it until
    the consumer is started again.
    """

    stream: str
    shard_id: str
    action: str
    """The name of the policy: GiveUp or Stop."""
    reason: str
    cool_down_s: float
    """How many seconds this worker leaves the shard alone, after GiveUp; 0 with Stop."""


class DedupeWindowCut(Event, frozen=True, gc=False):
    """The keys of the deduplication's window do not fit into its bounds: the oldest are forgotten."""

    stream: str
    shard_id: str
    keys: int
    key_bytes: int
    window_s: float
    """How many seconds the keys reach back that are left."""


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
    """The function ``Deduplicate.key`` raised, or returned what is no key: that record is taken for no duplicate."""

    stream: str
    shard_id: str
    position: Position
    error_type: str
    """The class of the error; TypeError where the function returned a value of another type."""
    failure: str
    """What the function did: the error's class and the lines of code, or the type that it returned. The error's message
    is left out, because it may be the record.
    """


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
