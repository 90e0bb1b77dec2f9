"""What lies outside of the runtime, as protocols. ``wiring`` puts AWS behind them; others may put their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.batching import EntryResult
    from penstock.core.leases import LeaseRow, Outcome, Write
    from penstock.core.leases.listing import Listing
    from penstock.core.leases.membership import WorkerRow
    from penstock.model import Shard


class RecordSink(Protocol):
    """Where a producer's records go: a Kinesis stream. Used on one event loop."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN, as messages show it."""

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        """One record in the form that ``put`` takes."""

    async def shards(self) -> list[Shard] | None:
        """The shards that are open now; None if partition keys do not choose the shard of this stream.

        Raises ServiceError, TransportError, CredentialsError.
        """

    async def put(self, entries: Sequence[Any]) -> Sequence[EntryResult]:
        """PutRecords, sent once: a result for each entry, in their order.

        Raises ServiceError by class, TransportError (``sent`` tells whether something may have been written),
        CredentialsError.
        """

    async def close(self) -> None:
        """Close the connections."""


class LeaseTable(Protocol):
    """Where the workers of an application keep their leases, and show themselves to each other.

    Every write ends in one of three outcomes, within the table's answer timeout: Done, Refused (with the row as it was
    read afterwards) or Unknown. Errors that repeating does not mend are raised: AccessDeniedError, NotFoundError (no
    such table), InvalidArgumentError, CredentialsError. Reads are repeated, and raise what the last attempt met.
    A cancelled write may be applied all the same.
    """

    @property
    def name(self) -> str:
        """The table, as messages show it."""

    async def ensure(self) -> None:
        """Make the tables unless they are there; others may do so at the same time."""

    async def create(self, row: LeaseRow) -> Outcome:
        """Add a lease; refused if its key is there already. Attributes that nobody here knows are not written."""

    async def write(self, write: Write) -> Outcome:
        """Change or delete one row, if its condition holds. Done tells the row as it is since then."""

    async def get(self, key: str) -> LeaseRow | None:
        """One lease, by a consistent read. Raises NotALeaseError for a row that is none."""

    async def scan(self, *, consistent: bool = False) -> Listing:
        """All leases. Without ``consistent`` some rows may be shown as they were a moment ago."""

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """Write a worker's row, whatever was there: Done (without a row) or Unknown."""

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """All workers' rows that can be read."""

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """Remove a worker's row: one's own, or another's on condition that its counter is still this one.

        Done also when it is gone; Refused (without a row) when the counter has moved.
        """

    async def close(self) -> None:
        """Close connections. What is under way is given up."""
