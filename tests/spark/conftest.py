from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.local.embedded import LocalKinesis
from shardway.model import StreamName
from tests.spark.planning import World
from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture
async def world() -> AsyncIterator[World]:
    with LocalKinesis() as local:
        settings = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="driver")
        async with Wire(settings) as wire:
            yield World(local, KinesisClient(wire), StreamName("orders"))


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    """A stream of two shards; ``@pytest.mark.parametrize("stream", [n], indirect=True)`` for n."""
    with LocalKinesis() as local:
        made = Stream(local, StreamName("orders"))
        made.call("CreateStream", ShardCount=getattr(request, "param", 2))
        yield made
        made.close()
