"""Wiring is where runtime and AWS meet: it makes what speaks AWS and hands it to the runtime, which sees its ports
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.errors import OptionError
from shardway.model import StreamName

if TYPE_CHECKING:
    from shardway.options.leases import LeaseOptions
    from shardway.ports import LeaseTable, Poster, RecordSink, RecordSource

__all__ = [
    "ConnectionOptions",
    "Credentials",
    "lease_table_for",
    "metric_data_poster",
    "poster_for",
    "sink_for",
    "source_for",
    "stream_name",
]


def sink_for(stream: str | RecordSink, connection: ConnectionOptions | None) -> RecordSink:
    """Return a sink for a stream's name or ARN; a sink is returned as it is. Raises OptionError."""
    if not isinstance(stream, str):
        if connection is not None:
            raise OptionError("connection says how to reach a stream that is given by name or ARN, not a sink")
        return stream
    from shardway.aws.record_streams import KinesisSink

    return KinesisSink(stream_name(stream), connection or ConnectionOptions())


def source_for(stream: str | RecordSource, connection: ConnectionOptions | None) -> RecordSource:
    """Return a source for a stream's name or ARN; a source is returned as it is. Raises OptionError."""
    if not isinstance(stream, str):
        if connection is not None:
            raise OptionError("connection says how to reach a stream that is given by name or ARN, not a source")
        return stream
    from shardway.aws.record_streams import KinesisSource

    return KinesisSource(stream_name(stream), connection or ConnectionOptions())


def lease_table_for(application: str, connection: ConnectionOptions | None, options: LeaseOptions) -> LeaseTable:
    """Return a lease table in DynamoDB: the one that the options name, by default with the application's name."""
    from shardway.aws.dynamodb import DynamoLeaseTable

    # Several attempts of a write have to fit into the time until the fence falls.
    request_timeout_s = min(options.request_timeout_s, options.failover_s / 5)
    return DynamoLeaseTable(
        options.table if isinstance(options.table, str) else application,
        options.connection or connection or ConnectionOptions(),
        msgspec.structs.replace(options, request_timeout_s=request_timeout_s),
    )


def poster_for(url: str, connection: ConnectionOptions | None, *, sign_for: str | None) -> Poster:
    """Return a poster to a URL, which signs for a service of AWS or not at all. Raises OptionError."""
    from shardway.aws.wire import UrlPoster

    return UrlPoster(url, connection or ConnectionOptions(), sign_for=sign_for)


def metric_data_poster(connection: ConnectionOptions | None) -> Poster:
    """Return a poster that makes calls of CloudWatch's PutMetricData."""
    from shardway.aws.wire import MetricDataPoster

    return MetricDataPoster(connection or ConnectionOptions())


def stream_name(stream: str) -> StreamName:
    """Return a stream's name as people give it: a name, or an ARN. Raises OptionError for an empty text."""
    if not stream:
        raise OptionError("stream is empty: give the name or the ARN of a stream")
    return StreamName(arn=stream) if stream.startswith("arn:") else StreamName(stream)
