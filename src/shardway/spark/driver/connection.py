"""The tasks look for the stream where the driver finds it."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from shardway.aws.options import ConnectionOptions
from shardway.aws.sdk import Sdk
from shardway.errors import ShardwayError

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
