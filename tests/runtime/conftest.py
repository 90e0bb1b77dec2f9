"""A local stream for the tests of the producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.local import LocalKinesis
from tests.runtime.producing import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """A service with a stream of four shards; ``@pytest.mark.parametrize("local", [{...}], indirect=True)`` for
    one with these settings.
    """
    with LocalKinesis(**{"streams": {STREAM: 4}, **getattr(request, "param", {})}) as service:
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
