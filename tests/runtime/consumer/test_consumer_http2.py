"""Fan-out over HTTP/2 against the local service: many subscriptions and calls over few connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway import ConnectionOptions, Consumer, Credentials, FanOutOptions, Producer, Retry
from shardway.aws import transport
from shardway.aws.record_source import KinesisSource
from shardway.local import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import IteratorAt, StreamName
from shardway.runtime.feeds.fan_out import SubscriptionTimes
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import arguments_of
from tests.runtime.consumer.face_kit import DEADLINE_S, settings, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from shardway import Batch
    from shardway.aws.http.http1.connection import Connection
    from shardway.aws.http.http2.connection import MultiplexedConnection
    from shardway.core.log.pages import ReadPage

STREAM = "orders"
HORIZON = IteratorAt("TRIM_HORIZON")


def wire(local: LocalKinesis, **given: Any) -> ConnectionOptions:
    return ConnectionOptions(
        endpoint_url=local.endpoint_url,
        region=local.region,
        credentials=Credentials("local", "local"),
        ca_bundle=local.ca_file,
        **given,
    )


def client(local: LocalKinesis) -> Any:
    return boto3.client(
        "kinesis",
        endpoint_url=local.endpoint_url,
        region_name=local.region,
        aws_access_key_id="local",
        aws_secret_access_key="local",
        verify=local.ca_file,
    )


def put_to_each(local: LocalKinesis, data: bytes, *, times: int = 1) -> list[str]:
    """The same record into each shard; their names."""
    kinesis = client(local)
    shards = kinesis.list_shards(StreamName=STREAM)["Shards"]
    entries = [
        {"Data": data, "PartitionKey": "k", "ExplicitHashKey": shard["HashKeyRange"]["StartingHashKey"]}
        for shard in shards
    ]
    for _ in range(times):
        assert kinesis.put_records(StreamName=STREAM, Records=entries)["FailedRecordCount"] == 0
    return [shard["ShardId"] for shard in shards]


def open_connections(source: KinesisSource) -> list[Connection | MultiplexedConnection]:
    parts = source._client.wire._parts
    assert parts is not None
    return list(parts.transport._dialer.open)


async def first_records(pages: AsyncGenerator[ReadPage, None], count: int) -> list[bytes]:
    got: list[bytes] = []
    async for page in pages:
        got += [bytes(raw.data) for raw in page.records]
        if len(got) >= count:
            break
    return got


@pytest.mark.parametrize(
    ("service", "chosen", "expected"),
    [
        ({"tls": True}, {"http2": "all"}, 1),
        ({}, {"http2": "all", "http2_cleartext": True}, 1),
        ({"tls": True, "http2_streams_max": 26}, {"http2": "all"}, 2),
        ({"tls": True}, {"http2": "subscriptions"}, 2),
        ({"tls": True, "http2": False}, {"http2": "all"}, 51),
    ],
)
async def test_fifty_subscriptions_and_calls(service: dict[str, Any], chosen: dict[str, Any], expected: int) -> None:
    """All subscribed at the same time, with calls in between: over one connection, or as many as it takes."""
    with LocalKinesis(streams={STREAM: 50}, **service) as local:
        shards = put_to_each(local, b"first")
        source = KinesisSource(StreamName(STREAM), wire(local, **chosen))
        async with asyncio.timeout(DEADLINE_S):
            arn = await source.register("billing")
            subscriptions = [source.subscribe(arn, shard_id, HORIZON) for shard_id in shards]
            got = await asyncio.gather(*[first_records(pages, 1) for pages in subscriptions])
            assert got == [[b"first"]] * 50
            iterators = [await source.iterator(shard_id, HORIZON) for shard_id in shards[:5]]
            for iterator in iterators:
                assert [bytes(raw.data) for raw in (await source.read(iterator, 10)).records] == [b"first"]
            assert len(open_connections(source)) == expected
            for pages in subscriptions:
                await pages.aclose()
            await source.close()
        assert local.stats().operations["SubscribeToShard"].calls == 50


async def test_a_consumer_that_does_not_read_one_shard_gets_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One subscription is left alone while far more than its window comes for it, over the connection of all."""
    monkeypatch.setattr(transport, "BOUNDS", transport.Bounds(http2_window_bytes=65_536))
    with LocalKinesis(streams={STREAM: 5}, tls=True) as local:
        shards = put_to_each(local, b"x" * 100_000, times=40)
        source = KinesisSource(StreamName(STREAM), wire(local, http2="all"))
        async with asyncio.timeout(DEADLINE_S):
            arn = await source.register("billing")
            slow, *others = [source.subscribe(arn, shard_id, HORIZON) for shard_id in shards]
            page = await anext(slow)
            for got in await asyncio.gather(*[first_records(pages, 40) for pages in others]):
                assert len(got) == 40
            assert len(open_connections(source)) == 1
            left = 40 - len(page.records)
            assert left > 0
            assert len(await first_records(slow, left)) == left
            for pages in (slow, *others):
                await pages.aclose()
            await source.close()


async def test_a_consumer_whose_handler_keeps_one_shard_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler of one shard waits until all others have got everything: over one connection."""
    monkeypatch.setattr(transport, "BOUNDS", transport.Bounds(http2_window_bytes=65_536))
    with LocalKinesis(streams={STREAM: 12}, tls=True) as local:
        shards = put_to_each(local, b"x" * 50_000, times=40)
        source = KinesisSource(StreamName(STREAM), wire(local, http2="subscriptions"))
        counts = dict.fromkeys(shards, 0)
        others_done = asyncio.Event()

        async def handle(batch: Batch[Any]) -> None:
            if batch.shard_id == shards[0]:
                await others_done.wait()
            counts[batch.shard_id] += len(batch.records)
            if all(counts[shard_id] == 40 for shard_id in shards[1:]):
                others_done.set()

        consumer = Consumer(
            source,
            application="billing",
            **arguments_of(
                leases=MemoryLeaseTable(),
                **settings(
                    fan_out=FanOutOptions(subscriptions_per_s=1000.0),
                    shard_buffer_bytes_max=200_000,
                    retry=Retry(failures_max=None),
                ),
            ),
        )
        async with asyncio.timeout(DEADLINE_S), consumer:
            running = asyncio.create_task(consumer.run_batches(handle))
            await until(lambda: all(count == 40 for count in counts.values()))
            await until(lambda: local.stats().operations["SubscribeToShard"].calls >= 12)
            assert sum(connection.is_shared for connection in open_connections(source)) == 1
            await consumer.close()
            await running


@pytest.mark.parametrize("how", ["go_away", "disconnect", "reset"])
async def test_nothing_is_lost_where_shared_connections_end(how: Any) -> None:
    """The connection of all subscriptions is drained or torn down between events, or one subscription is reset."""
    with LocalKinesis(streams={STREAM: 8}, tls=True) as local:
        source = KinesisSource(StreamName(STREAM), wire(local, http2="subscriptions"))
        got: dict[str, list[bytes]] = {}

        async def handle(batch: Batch[Any]) -> None:
            got.setdefault(batch.shard_id, []).extend(record.data for record in batch.records)

        consumer = Consumer(
            source,
            application="billing",
            **arguments_of(
                leases=MemoryLeaseTable(),
                **settings(
                    fan_out=FanOutOptions(subscriptions_per_s=1000.0),
                    subscriptions=SubscriptionTimes(again_after_s=0.05, backoff_max_s=0.1),
                ),
            ),
        )
        expected: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S), consumer:
            running = asyncio.create_task(consumer.run_batches(handle))
            for number in range(6):
                order = local.faults.add(Fault(how=how, operation="SubscribeToShardEvent", count=1))
                data = b"%d" % number
                await asyncio.to_thread(put_to_each, local, data)
                expected.append(data)
                await until(lambda: len(got) == 8 and all(datas[-1] == data for datas in got.values()))  # noqa: B023
                order.clear()
            await consumer.close()
            await running
        assert list(got.values()) == [expected] * 8
        assert local.stats().operations["SubscribeToShard"].calls >= 8


async def test_a_producer_over_http2() -> None:
    """Also large requests, in CBOR."""
    with LocalKinesis(streams={STREAM: 2}, tls=True) as local:
        async with Producer(STREAM, connection=wire(local, http2="all")) as producer:
            await producer.put_many([(f"k-{number}", bytes(50_000)) for number in range(30)])
            await producer.flush()
        assert local.stats().operations["PutRecords"].errors == 0
