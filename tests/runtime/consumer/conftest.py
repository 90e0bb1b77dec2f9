"""A local stream of one shard, and boto3's client of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from reading_kit import STREAM

from penstock.local import LocalKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: 1}) as service:
        yield service


@pytest.fixture
def kinesis(local: LocalKinesis) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=local.endpoint_url,
        region_name=local.region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )
