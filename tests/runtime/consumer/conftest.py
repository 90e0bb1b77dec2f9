"""A local Kinesis for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from tests.runtime.consumer.reading_kit import STREAM

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    """It has the streams that the test's module names in ``STREAMS``, with so many shards each; or one of one shard."""
    with LocalKinesis(streams=getattr(request.module, "STREAMS", {STREAM: 1})) as service:
        yield service
