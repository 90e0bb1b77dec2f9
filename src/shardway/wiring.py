"""Wiring is where runtime and AWS meet: it makes what speaks AWS and hands it to the runtime, which sees its ports
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.errors import OptionError
from shardway.model import StreamName
from shardway.shown import url_without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.options.leases import LeaseOptions
    from shardway.ports import LeaseTable, Poster, RecordSink, RecordSource

__all__ = [
    "ConnectionOptions",
    "Credentials",
    "connection_of",
    "lease_table_for",
    "metric_data_poster",
    "poster_for",
    "sink_for",
    "source_for",
    "stream_name",
]


PLAIN = ("region", "endpoint_url", "profile")
"""The options of a connection that programs also give as arguments of their own."""
NOT_BY_NAME = "connection, region, endpoint_url and profile say how to reach a stream that is given by name or ARN"


def connection_of(arguments: Mapping[str, Any]) -> ConnectionOptions | None:
    """Return the connection that the arguments of a consumer or producer make: ``connection``, with those of `PLAIN`.
    None where there is none of them. Raises OptionError where an argument and the connection contradict each other.
    """
    connection: ConnectionOptions | None = arguments.get("connection")
    plain = {name: arguments[name] for name in PLAIN if arguments.get(name) is not None}
    if connection is None or not plain:
        return ConnectionOptions(**plain) if plain else connection
    faults = [
        f"{name} is given twice: {url_without_password(given)!r} as an argument, and {url_without_password(other)!r} "
        "in connection: leave one of them out"
        for name, given in plain.items()
        if (other := getattr(connection, name)) not in (None, given)
    ]
    if faults:
        raise OptionError(faults)
    return msgspec.structs.replace(connection, **plain)


def sink_for(stream: str | RecordSink, connection: ConnectionOptions | None) -> RecordSink:
    """Return a sink for a stream's name or ARN; a sink is returned as it is. Raises OptionError."""
    if not isinstance(stream, str):
        if connection is not None:
            raise OptionError(f"{NOT_BY_NAME}, not a sink")
        return stream
    from shardway.aws.record_sink import KinesisSink

    return KinesisSink(stream_name(stream), connection or ConnectionOptions())


def source_for(stream: str | RecordSource, connection: ConnectionOptions | None) -> RecordSource:
    """Return a source for a stream's name or ARN; a source is returned as it is. Raises OptionError."""
    if not isinstance(stream, str):
        if connection is not None:
            raise OptionError(f"{NOT_BY_NAME}, not a source")
        return stream
    from shardway.aws.record_source import KinesisSource

    return KinesisSource(stream_name(stream), connection or ConnectionOptions())


def lease_table_for(application: str, connection: ConnectionOptions | None, options: LeaseOptions) -> LeaseTable:
    """Return a lease table in DynamoDB: the one that the options name, by default with the application's name."""
    from shardway.aws.dynamodb.lease_table import DynamoLeaseTable

    # Several attempts of a write have to fit into the time until the fence falls.
    request_timeout_s = min(options.request_timeout_s, options.failover_s / 5)
    return DynamoLeaseTable(
        options.table if isinstance(options.table, str) else application,
        options.connection or connection or ConnectionOptions(),
        msgspec.structs.replace(options, request_timeout_s=request_timeout_s),
    )


def poster_for(url: str, connection: ConnectionOptions | None, *, sign_for: str | None) -> Poster:
    """Return a poster to a URL, which signs for a service of AWS or not at all. Raises OptionError."""
    from shardway.aws.posters import UrlPoster

    return UrlPoster(url, connection or ConnectionOptions(), sign_for=sign_for)


def metric_data_poster(connection: ConnectionOptions | None) -> Poster:
    """Return a poster that makes calls of CloudWatch's PutMetricData."""
    from shardway.aws.posters import MetricDataPoster

    return MetricDataPoster(connection or ConnectionOptions())


def stream_name(stream: str) -> StreamName:
    """Return a stream's name as people give it: a name, or an ARN. Raises OptionError for an empty text."""
    if not stream:
        raise OptionError("stream is empty: give the name or the ARN of a stream")
    return StreamName(arn=stream) if stream.startswith("arn:") else StreamName(stream)
