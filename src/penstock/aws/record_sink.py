"""A Kinesis stream that a producer writes to (`penstock.ports.RecordSink`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.aws.kinesis import KinesisClient, PutEntry
from penstock.aws.retry import ONCE
from penstock.aws.wire import Wire
from penstock.errors import AccessDeniedError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.aws.kinesis import PutResult
    from penstock.aws.settings import WireSettings
    from penstock.model import Shard, StreamName


class KinesisSink:
    """PutRecords to one stream over a wire of its own."""

    def __init__(self, stream: StreamName, settings: WireSettings) -> None:
        self._stream = stream
        self._client = KinesisClient(Wire(settings))
        self.entry = PutEntry
        self.record_bytes_max: int | None = None
        """What the stream takes as a record, data and partition key, once it was asked for its shards."""

    @property
    def stream(self) -> str:
        """The stream's name or ARN."""
        return str(self._stream)

    async def shards(self) -> list[Shard] | None:
        """The open shards (ListShards, AT_LATEST); None if the stream ignores partition keys."""
        if await self._ignores_keys():
            return None
        return await self._client.list_shards(self._stream, shard_filter={"Type": "AT_LATEST"})

    async def put(self, entries: Sequence[PutEntry]) -> Sequence[PutResult]:
        """PutRecords, sent once."""
        return (await self._client.put_records(self._stream, entries, retry=ONCE)).records

    async def close(self) -> None:
        """Close the connections."""
        await self._client.wire.close()

    async def _ignores_keys(self) -> bool:
        try:
            summary = await self._client.describe_stream_summary(self._stream)
        except (AccessDeniedError, InvalidArgumentError):
            # Not allowed to ask, or an endpoint that does not know the call: such a stream is the exception.
            return False
        if summary.max_record_size_kib is not None:
            self.record_bytes_max = summary.max_record_size_kib * 1024
        return summary.ignores_keys
