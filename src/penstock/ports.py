"""What lies outside of the runtime, as protocols. ``wiring`` puts AWS behind them; others may put their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.batching import EntryResult
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
