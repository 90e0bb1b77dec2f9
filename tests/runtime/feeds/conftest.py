"""A local stream of one shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from feeding_kit import STREAM

from penstock.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A service with a stream of one shard; with settings as in the fixture of the producer's tests."""
    with LocalKinesis(**{"streams": {STREAM: 1}, **getattr(request, "param", {})}) as service:
        yield service


@pytest.fixture
def kinesis(local: LocalKinesis) -> Any:
    """boto3's client of it."""
    return boto3.client(
        "kinesis",
        endpoint_url=local.endpoint_url,
        region_name=local.region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
