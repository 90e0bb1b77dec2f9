"""The ports say what the runtime asks of the outside, as protocols. ``wiring`` puts AWS behind them; others may put
their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from shardway.core.assignment.kcl.fleet import Coordination, Place
    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.core.log.pages import ReadPage, StreamFacts
    from shardway.core.producer.outcome import EntryResult
    from shardway.events import Event
    from shardway.model import IteratorAt, ListedShard, Record, Tags


class RecordSink(Protocol):
    """The sink of a producer's records: a Kinesis stream. It is used on one event loop.

    A sink may have an attribute ``record_bytes_max``: the largest record that its stream takes, in bytes, for messages.
    """

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as messages show it."""

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        """Return one record in the form that ``put`` takes. An error becomes the outcome of the record: it is not
        written.
        """

    async def shards(self) -> list[ListedShard] | None:
        """Return the shards that are open now; None if partition keys do not choose the shard of this stream.

        Raises ServiceError, TransportError, CredentialsError.
        """

    async def put(self, entries: Sequence[Any]) -> Sequence[EntryResult]:
        """Send PutRecords once; return a result for each entry, in their order.

        Raises ServiceError by class, TransportError (``sent`` says whether something may have been written),
        CredentialsError; InvalidRecordError when an entry can not be sent, and nothing was. Any other error counts as
        an unknown outcome.
        """

    async def close(self) -> None:
        """Close the connections."""


class RecordSource(Protocol):
    """A stream that is read. It is used on one event loop. Calls are sent once, and raise ServiceError by class,
    TransportError, CredentialsError.
    """

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as messages show it."""

    @property
    def now_s(self) -> float:
        """The service's time, in epoch seconds, as its answers have shown it."""

    async def describe(self) -> StreamFacts:
        """Return the facts of the stream as a whole."""

    async def shards(self) -> list[ListedShard]:
        """Return all shards that the retention still covers, closed ones with them."""

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Return an iterator: a place to `read` from, good for five minutes."""

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """Return the next records, up to 10 MiB of them. ExpiredIteratorError: ask for another iterator."""

    async def register(self, consumer: str) -> str:
        """Register a consumer for enhanced fan-out, unless it is registered; return its ARN, once it is active."""

    async def registered(self, consumer: str) -> str | None:
        """Return the ARN of the active consumer that is registered under this name; None: there is none."""

    async def deregister(self, consumer: str) -> None:
        """Remove the consumer that is registered under this name; nothing happens if there is none."""

    def subscribe(self, consumer_arn: str, shard_id: str, at: IteratorAt) -> AsyncGenerator[ReadPage, None]:
        """Iterate over pages as they are pushed, for at most five minutes. A subscription that another one took over
        ends with InUseError, and a subscription that was asked for too soon begins with it.
        """

    async def close(self) -> None:
        """Close the connections."""


class LeaseTable(Protocol):
    """The table in which the workers of an application keep their leases, and show themselves to each other.

    Every write ends in one of three outcomes, within the table's answer timeout: Done, Refused (with the row as it was
    read afterwards) or Unknown. Errors that repeating does not mend are raised: AccessDeniedError, NotFoundError (no
    such table), InvalidArgumentError, CredentialsError. Reads are repeated, and raise what the last attempt met.
    A cancelled write may be applied all the same.

    A table that is not `UsableOnAnyLoop` is used on the loop on which the consumer is started.
    """

    @property
    def name(self) -> str:
        """The name of the table, as messages show it."""

    async def ensure(self) -> None:
        """Make the tables unless they are there; others may do so at the same time."""

    async def create(self, row: LeaseRow) -> Outcome:
        """Add a lease; refused if its key is there already. Attributes that Shardway does not know are not written."""

    async def write(self, write: Write) -> Outcome:
        """Change or delete one row, if its condition holds. Done has the row as it is since then."""

    async def get(self, key: str) -> LeaseRow | None:
        """Read one lease by a consistent read; None: there is none. Raises NotALeaseError for a row that is no
        lease.
        """

    async def scan(self, *, consistent: bool = False) -> Listing:
        """Read all leases. Without ``consistent`` some rows may be shown as they were a moment ago."""

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """Write a worker's row, which replaces the whole row that was there.

        Refused (without a row) when the table has a row of the same ``process`` with a higher counter: a write that
        arrives late must not bring back what the worker showed earlier, and must not make a dead worker seem to live.
        A row without a process replaces any row, and any row replaces it.
        """

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """Return all workers' rows that can be read."""

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """Remove a worker's row: one's own, or another's on condition that its counter is still this one.

        The outcome is Done also when the row is gone; Refused (without a row) when the counter has moved.
        """

    async def close(self) -> None:
        """Close the connections. What is under way is given up."""


@runtime_checkable
class SharedWithKcl(Protocol):
    """The calls that a LeaseTable has besides if KCL workers can reach it. Beside a table without them there
    are none.
    """

    async def coordination(self) -> Coordination | None:
        """Read what workers of the KCL 3.0 to 3.4 keep in tables of their own; None: there are no such tables."""

    async def show_metrics(self, place: Place, row: Mapping[str, Any]) -> Outcome:
        """Write this worker's metrics row for the leader of a KCL 3.x fleet: Done (without a row) or Unknown."""

    async def withdraw_metrics(self, place: Place, worker_id: str) -> Outcome:
        """Take the metrics row away: Done (without a row) or Unknown."""

    async def owned_keys(self, worker_id: str) -> list[str] | None:
        """Return the keys of the leases that name this worker as owner, as they were some moments ago; None: only a
        scan shows them.
        """


@runtime_checkable
class UsableOnAnyLoop(Protocol):
    """The members that a LeaseTable has besides if it may be used on whichever event loop: a consumer takes it along to
    the thread of its own.
    """

    @property
    def any_loop(self) -> bool:
        """True. A table that derives from such a table, and belongs to one loop, has False."""

    async def leave_loop(self) -> None:
        """Close what belongs to the running loop: the consumer uses the table no more, and the loop is about to end."""


@runtime_checkable
class ForApplications(Protocol):
    """The call that a LeaseTable has besides if it keeps the leases of several applications apart. A table without it
    is for one application alone.
    """

    def of(self, application: str) -> LeaseTable:
        """Return the part of one application: rows are its own, whatever keys others have."""


@runtime_checkable
class EventExporter(Protocol):
    """The call that a subscriber of events has besides if it takes them on any thread. Others are called on the
    program's event loop.
    """

    def at_once(self, event: Event) -> None:
        """Take note of an event. It returns at once, and raises nothing."""


@runtime_checkable
class SharedExporter(EventExporter, Protocol):
    """What an `EventExporter` has besides if it gives events to a subscriber that is called on the program's loop."""

    on_loop: Callable[[Event], object] | None
    """The function that is called with each event on the program's event loop; None: there is none."""


@runtime_checkable
class IntervalWish(Protocol):
    """What a subscriber of events has if it wants the numbers at an interval of its own. `ShardDetailWish` stands
    apart, since a subscriber may have either of them alone.
    """

    metrics_interval_s: float | None
    """The interval at which it wants the numbers; None: any will do."""


@runtime_checkable
class ShardDetailWish(Protocol):
    """What a subscriber of events has if it may want the numbers of each shard."""

    metrics_per_shard: bool
    """True: it wants the numbers of each shard, too."""


class Poster(Protocol):
    """The part that an exporter of numbers sends by. It is used on one event loop."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body, once; header names are in lower case. Return when it was taken.

        Raises ServiceError, TransportError, CredentialsError, OptionError.
        """

    async def close(self) -> None:
        """Close the connections."""


class BatchSpan(Protocol):
    """The span of a block that processes records. It is the current span until `processed`."""

    def processed(self, error: BaseException | None) -> None:
        """Note that the block is left; what settles its records follows."""

    def settled(self) -> None:
        """Note that the records are settled."""


class RequestSpan(Protocol):
    """The span of a request that carries records."""

    def sent(self, error: str | None) -> None:
        """Note that the request has its answer. ``error``: the reason why none of its records is known to be
        written.
        """


class Tracer(Protocol):
    """Makes spans of what producers and consumers do: `shardway.telemetry.OpenTelemetryTracing`. None of its methods
    raises.
    """

    def for_application(self, application: str) -> Tracer:
        """Return a tracer for a consumer of this application."""

    def context_tags(self) -> Tags:
        """Return the tags that carry the caller's context in an aggregate; none where the caller has no context."""

    def data_with_context(self, data: bytes) -> bytes:
        """Return a record's data, as it is to be put."""

    def sending(self, stream: str, records: int, payload_bytes: int, contexts: Iterable[Tags]) -> RequestSpan:
        """Begin the span of a request that is sent. ``contexts``: those of its records, each once."""

    def received(self, stream: str, shard_id: str, records: int, took_s: float) -> None:
        """Note that a page with records came."""

    def processing(self, stream: str, shard_id: str, records: Sequence[Record]) -> BatchSpan:
        """Begin the span of a block that processes records."""
