"""Write to a Kinesis stream for a producer (`shardway.ports.RecordSink`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.aws.calls.retry import ONCE
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.wire import Wire
from shardway.errors import AccessDeniedError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.aws.kinesis.shapes import PutResult
    from shardway.aws.options import ConnectionOptions
    from shardway.model import ListedShard, StreamName


class KinesisSink:
    """Writes to one stream by PutRecords, over a wire of its own."""

    def __init__(self, stream: StreamName, connection: ConnectionOptions) -> None:
        self._stream = stream
        self._client = KinesisClient(Wire(connection))
        self.entry = PutEntry
        self.record_bytes_max: int | None = None
        """The most bytes of data and partition key that the stream takes as a record; None until it was asked for its
        shards, or where it does not say.
        """

    @property
    def stream(self) -> str:
        """The stream's name or ARN."""
        return str(self._stream)

    async def shards(self) -> list[ListedShard] | None:
        """Return the open shards (ListShards, AT_LATEST); None if the stream ignores partition keys."""
        if await self._ignores_keys():
            return None
        return await self._client.list_shards(self._stream, shard_filter={"Type": "AT_LATEST"})

    async def put(self, entries: Sequence[PutEntry]) -> Sequence[PutResult]:
        """Call PutRecords, which is sent once."""
        return (await self._client.put_records(self._stream, entries, retry=ONCE)).records

    async def close(self) -> None:
        """Close the connections."""
        await self._client.wire.close()

    async def _ignores_keys(self) -> bool:
        try:
            summary = await self._client.describe_stream_summary(self._stream)
        except (AccessDeniedError, InvalidArgumentError):
            # The program may not ask, or the endpoint does not know the call: such a stream is the exception.
            return False
        if summary.max_record_size_kib is not None:
            self.record_bytes_max = summary.max_record_size_kib * 1024
        return summary.ignores_keys
