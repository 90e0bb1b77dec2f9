"""The tasks look for the stream where the driver finds it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from shardway.aws.sdk import Sdk
from shardway.aws.wire import ConnectionOptions
from shardway.errors import ShardwayError

if TYPE_CHECKING:
    from shardway.spark.options import ReadOptions


def connection_options(options: ReadOptions, tag: str) -> ConnectionOptions:
    """Return how the driver (``tag`` driver) and the tasks (``tag`` task) reach AWS. There are no secrets in it: each
    side has its own.
    """
    return ConnectionOptions(
        region=options.region,
        endpoint_url=options.endpoint_url,
        role_arn=options.role_arn,
        role_session_name=options.role_session_name,
        role_external_id=options.role_external_id,
        sts_endpoint_url=options.sts_endpoint_url,
        user_agent_tag=tag,
    )


_ENDPOINTS = "AWS_ENDPOINT_URL"
"""The beginning of the names of variables that name endpoints, for all services or for one."""


def locate(connection: ConnectionOptions) -> ConnectionOptions:
    """Return the connection of tasks, with the region and the endpoint that the driver's environment gives.

    An executor is another machine. With an environment of its own it would look for a stream of that name in another
    region, or find no region at all. Credentials are not looked up: each machine has its own. What the driver does
    not find either is left open, and is an error where it is needed.
    """
    sdk = Sdk(connection.profile)
    region, endpoint_url = connection.region, connection.endpoint_url
    with suppress(ShardwayError):
        region = region or sdk.region()
        if endpoint_url is None and any(name.startswith(_ENDPOINTS) for name in os.environ):
            endpoint_url = sdk.configured_endpoint("kinesis")
    return msgspec.structs.replace(connection, region=region, endpoint_url=endpoint_url)
