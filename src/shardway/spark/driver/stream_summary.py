"""The stream as the service describes it, and whose a checkpoint directory is."""

from __future__ import annotations

from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import StreamSummary
from shardway.errors import NotFoundError, OptionError, ShardwayError
from shardway.model import StreamName


class CheckpointMismatchError(OptionError):
    """The Spark checkpoint directory belongs to another stream than the options name."""


async def describe(client: KinesisClient, stream: StreamName, retry: RetryPolicy) -> StreamSummary:
    """Return what the service says of the stream. Raises ShardwayError when there is no such stream."""
    try:
        return await client.describe_stream_summary(stream, retry=retry)
    except NotFoundError as error:
        raise ShardwayError(
            f"there is no stream {stream} in region {client.wire.region} for these credentials: check streamName, "
            "region and endpointUrl"
        ) from error


def check_owner(stored_arn: str, stream_arn: str) -> None:
    """Raise CheckpointMismatchError where a checkpoint directory was made for another stream than the options name."""
    if stored_arn != stream_arn:
        raise CheckpointMismatchError(
            f"the Spark checkpoint directory belongs to {stored_arn}, the options name {stream_arn}: use a checkpoint "
            "directory of its own for each stream"
        )
