"""Where the stream is, for tasks: where the driver finds it."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from penstock.aws.sdk import Sdk
from penstock.aws.settings import WireSettings
from penstock.errors import PenstockError

_ENDPOINTS = "AWS_ENDPOINT_URL"
"""So begin the variables that name endpoints: for all services, or for one."""


def as_the_driver_finds_it(settings: WireSettings) -> WireSettings:
    """Settings for tasks, with the region and the endpoint that the driver's environment gives.

    An executor is another machine. With an environment of its own it would look for a stream of that name in another
    region, or find no region at all. Credentials are not looked up: each machine has its own. What the driver does
    not find either is left open, and said where it is needed.
    """
    sdk = Sdk(settings.profile)
    region, endpoint_url = settings.region, settings.endpoint_url
    with suppress(PenstockError):
        region = region or sdk.region()
        if endpoint_url is None and any(name.startswith(_ENDPOINTS) for name in os.environ):
            endpoint_url = sdk.configured_endpoint("kinesis")
    return msgspec.structs.replace(settings, region=region, endpoint_url=endpoint_url)
