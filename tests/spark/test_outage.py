"""How long the driver and a task wait for a service that does not answer: equally long, and as they are told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.errors import TransportError
from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import StreamName
from shardway.spark.driver.planner import PlanOptions
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import TaskOptions
from shardway.spark.source import ShardwayDataSource, ShardwayStreamReader
from tests.spark.planning import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Passing:
    """Time that passes by being slept."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def now(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def passing() -> Passing:
    return Passing(time.time())


@pytest.fixture
async def idle_world(passing: Passing) -> AsyncIterator[World]:
    with LocalKinesis() as local:
        settings = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url, user_agent_tag="driver")
        async with Wire(settings, now=passing.now, sleep=passing.sleep) as wire:
            yield World(local, KinesisClient(wire), StreamName("orders"))


@pytest.mark.parametrize(("outage_s", "refused"), [(120.0, 30), (20.0, 6)])
async def test_an_outage_that_ends_in_time_is_waited_for(
    idle_world: World, passing: Passing, outage_s: float, refused: int
) -> None:
    world = idle_world
    await world.create(1)
    planner = world.planner(outage_s=outage_s)
    await planner.begin(None)
    await planner.plan()
    order = world.local.faults.add(Fault(how="reset", operation="GetRecords", count=refused))
    began_s = passing.now_s
    await planner.plan()
    assert order.hits == refused
    assert passing.now_s - began_s < outage_s


@pytest.mark.parametrize("outage_s", [120.0, 20.0])
async def test_an_outage_that_lasts_ends_the_plan(idle_world: World, passing: Passing, outage_s: float) -> None:
    world = idle_world
    await world.create(1)
    planner = world.planner(outage_s=outage_s)
    await planner.begin(None)
    await planner.plan()
    world.local.faults.add(Fault(how="reset", operation="GetRecords"))
    began_s = passing.now_s
    with pytest.raises(TransportError):
        await planner.plan()
    assert outage_s - 4.0 < passing.now_s - began_s <= outage_s


def test_the_driver_and_a_task_wait_equally_long() -> None:
    options = ReadOptions()
    assert PlanOptions.of(options).outage_s == TaskOptions.of(options, ConnectionOptions()).no_progress_s == 120.0


@pytest.mark.parametrize(("given", "told_s"), [({}, 120.0), ({"outageTimeoutMs": "1000"}, 1.0)])
def test_a_setting_says_how_long(given: dict[str, str], told_s: float) -> None:
    """It reaches tasks in their options, and the driver: which would wait two minutes else."""
    with LocalKinesis(streams={"orders": 1}) as local:
        options = {"streamName": "orders", "region": local.region, "endpointUrl": local.endpoint_url, **given}
        schema = StructType([StructField("data", BinaryType())])
        reader = ShardwayDataSource(options).streamReader(schema)
        assert isinstance(reader, ShardwayStreamReader)
        assert reader._task_options.no_progress_s == told_s
        if not given:
            return
        try:
            local.faults.add(Fault(how="reset", tag="driver"))
            with pytest.raises(TransportError):
                reader.latestOffset()
        finally:
            reader.stop()
