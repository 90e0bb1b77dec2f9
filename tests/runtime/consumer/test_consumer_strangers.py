"""A consumer whose stream is read by others too, and whose subscriptions do not work for a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.log.pace import PollingOptions
from shardway.events import FanOutLeft, FanOutReturned, ReadRefused
from shardway.local import Fault, LocalKinesis
from shardway.model import StartingPosition
from shardway.options import FanOutOptions
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.feeds.fan_out import SubscriptionTimes
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import arguments_of
from tests.runtime.consumer.beside import Beside
from tests.runtime.consumer.fleet_kit import DEADLINE_S, POLL, STREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHARDS = 2
FAN_OUT: dict[str, Any] = {
    "fan_out": FanOutOptions(),
    "subscriptions": SubscriptionTimes(again_after_s=0.1, failures_max=2, return_after_s=0.3, backoff_max_s=0.2),
}


@pytest.fixture
def local(request: pytest.FixtureRequest) -> Iterator[LocalKinesis]:
    with LocalKinesis(**{"streams": {STREAM: SHARDS}, **getattr(request, "param", {})}) as service:
        yield service


class Reading:
    """One consumer, what it got, and its events."""

    def __init__(self, local: LocalKinesis, **settings: Any) -> None:
        self.got: Counter[bytes] = Counter()
        self.latencies_s: list[float] = []
        self.events: list[Any] = []
        self.consumer = Consumer(
            STREAM,
            application="billing",
            connection=ConnectionOptions(
                endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
            ),
            on_event=self.events.append,
            **arguments_of(
                leases=MemoryLeaseTable(),
                **{"starting_position": StartingPosition.TRIM_HORIZON, "polling": POLL, **settings},
            ),
        )

    async def __aenter__(self) -> Reading:
        await self.consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.consumer.close()
        await self._task

    async def _read(self) -> None:
        async for batch in self.consumer:
            with batch:
                now_s = time.monotonic()
                for record in batch.records:
                    self.got[record.data] += 1
                    with contextlib.suppress(ValueError):
                        self.latencies_s.append(now_s - float(record.data))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                assert not self._task.done(), "the consumer has ended"
                await asyncio.sleep(0.02)

    def shards_of(self, kind: type[FanOutLeft | FanOutReturned]) -> set[str]:
        return {event.shard_id for event in self.events if isinstance(event, kind)}


def put(kinesis: Any, start: int, stop: int) -> set[bytes]:
    datas = [b"n%d" % number for number in range(start, stop)]
    kinesis.put_records(StreamName=STREAM, Records=[{"Data": data, "PartitionKey": data.decode()} for data in datas])
    return set(datas)


@pytest.mark.slow  # the service refuses a second subscription for five seconds
async def test_fall_back_from_fan_out_and_return(local: LocalKinesis, kinesis: Any) -> None:
    """Subscriptions break and are refused; each shard is polled meanwhile, and subscribed to again when that works."""
    wanted = put(kinesis, 0, 40)
    async with Reading(local, **FAN_OUT) as reading:
        await reading.until(lambda: set(reading.got) == wanted)
        for fault in (
            Fault(how="server_error", operation="SubscribeToShard"),
            Fault(how="reset", operation="SubscribeToShardEvent"),
        ):
            local.faults.add(fault)
        wanted |= put(kinesis, 40, 80)
        await reading.until(lambda: set(reading.got) == wanted and len(reading.shards_of(FanOutLeft)) == SHARDS)
        local.faults.clear()
        await reading.until(lambda: len(reading.shards_of(FanOutReturned)) == SHARDS)
        wanted |= put(kinesis, 80, 120)
        await reading.until(lambda: set(reading.got) == wanted)
    assert set(reading.got.values()) == {1}


async def test_what_is_registered_for_fan_out_is_removed_on_request(local: LocalKinesis, kinesis: Any) -> None:
    """Also while it is used: then the shards are polled."""
    arn = kinesis.describe_stream_summary(StreamName=STREAM)["StreamDescriptionSummary"]["StreamARN"]
    wanted = put(kinesis, 0, 20)
    async with Reading(local, **FAN_OUT) as reading:
        await reading.until(lambda: set(reading.got) == wanted)
        assert [one["ConsumerName"] for one in kinesis.list_stream_consumers(StreamARN=arn)["Consumers"]] == ["billing"]
        await reading.consumer.deregister()
        assert kinesis.list_stream_consumers(StreamARN=arn)["Consumers"] == []
        wanted |= put(kinesis, 20, 40)
        await reading.until(lambda: set(reading.got) == wanted)
    await reading.consumer.deregister()
    assert set(reading.got.values()) == {1}


class Stranger(Beside):
    """A plain boto3 loop on the first shard: half of its five calls a second."""

    def __init__(self, kinesis: Any) -> None:
        super().__init__(kinesis, turn_s=0.4)
        self.answered = self.refused = 0
        self._place = ""

    def begin(self) -> None:
        shard_id = self.kinesis.list_shards(StreamName=STREAM)["Shards"][0]["ShardId"]
        iterator = self.kinesis.get_shard_iterator(StreamName=STREAM, ShardId=shard_id, ShardIteratorType="LATEST")
        self._place = iterator["ShardIterator"]

    def turn(self) -> None:
        try:
            self._place = self.kinesis.get_records(ShardIterator=self._place, Limit=100)["NextShardIterator"]
            self.answered += 1
        except self.kinesis.exceptions.ProvisionedThroughputExceededException:
            self.refused += 1


@pytest.mark.slow
@pytest.mark.parametrize("local", [{"streams": {STREAM: 1}, "limits": True}], indirect=True)
async def test_a_stranger_that_takes_half_of_a_shards_calls(local: LocalKinesis, kinesis: Any) -> None:
    """Everything arrives, soon; few calls are refused, once the reader knows what is left to it; both get on."""
    turns, turn_s = 150, 0.2
    reading = Reading(local, polling=PollingOptions())
    with Stranger(kinesis) as stranger:
        async with reading:
            await reading.until(lambda: stranger.answered > 0)
            local.reset_stats()
            for _ in range(turns):
                data = str(time.monotonic()).encode()
                await asyncio.to_thread(kinesis.put_record, StreamName=STREAM, Data=data, PartitionKey="k")
                await asyncio.sleep(turn_s)
            await reading.until(lambda: len(reading.got) == turns)
            calls = local.stats().operations["GetRecords"].calls
    assert set(reading.got.values()) == {1}
    refused = sum(isinstance(event, ReadRefused) for event in reading.events)
    assert 0 < refused < calls / 10  # a reader that forgets each refusal at once has one of seven
    assert stranger.answered > stranger.refused
    latencies_s = sorted(reading.latencies_s)
    # Alone it is a quarter of a second at most. A reader that forgets each refusal at once, or waits longer after each,
    # has more.
    assert latencies_s[int(len(latencies_s) * 0.99)] < 5
