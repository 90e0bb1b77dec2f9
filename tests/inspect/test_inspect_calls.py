"""What looking costs: calls are counted, writes are refused, a shard is asked within its share."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import boto3
import pytest

from shardway.errors import OptionError
from shardway.inspect import Inspector
from shardway.inspect.reads.paces import ShardPaces
from shardway.inspect.reads.wire import READS, ReadingWire
from shardway.local import LocalKinesis
from shardway.model import IteratorAt, StreamName
from shardway.testing.sim.loop import VirtualLoop
from shardway.testing.sim.virtual_time import VirtualTime
from shardway.wiring import ConnectionOptions

WRITES = (
    "Put",
    "Create",
    "Delete",
    "Update",
    "Merge",
    "Split",
    "Add",
    "Register",
    "Deregister",
    "Start",
    "Batch",
    "Tag",
)


def test_no_call_of_the_read_model_writes() -> None:
    assert [operation for _, operation in READS if operation.startswith(WRITES)] == []


def test_the_policy_allows_what_the_read_model_calls_and_nothing_else() -> None:
    policy = json.loads((Path(__file__).parents[2] / "docs" / "iam" / "inspect.json").read_text())
    allowed: set[str] = set()
    for statement in policy["Statement"]:
        actions = statement["Action"]
        allowed |= {actions} if isinstance(actions, str) else set(actions)
    assert allowed - {"kms:Decrypt"} == {f"{service}:{operation}" for service, operation in READS}


async def test_a_call_that_writes_is_refused_before_it_is_sent() -> None:
    wire = ReadingWire(ConnectionOptions(region="us-east-1", endpoint_url="http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="kinesis:PutRecord is no call of the read model"):
        await wire.call("kinesis", "PutRecord", b"{}")
    with pytest.raises(ValueError, match="kinesis:PutRecord is no call of the read model"):
        await anext(wire.stream("kinesis", "PutRecord", b"{}"))
    assert wire.calls == {}


@pytest.mark.parametrize("rate", [0.0, -1.0, 5.5, float("nan")])
def test_a_rate_beyond_what_a_shard_allows_is_no_rate(rate: float) -> None:
    with pytest.raises(OptionError, match="a shard allows 5 read calls a second"):
        ShardPaces(rate)


def asked_within(seconds: float, paces: ShardPaces, payload_bytes: int) -> int:
    """How often one shard is asked by a reader that never rests."""

    async def read() -> int:
        loop = asyncio.get_running_loop()
        calls = 0
        end_s = loop.time() + seconds
        while True:
            await paces.wait_turn("orders", "shardId-000000000000", "GetRecords")
            if loop.time() > end_s:
                return calls
            calls += 1
            paces.note_read("orders", "shardId-000000000000", 100, payload_bytes)

    loop = VirtualLoop(VirtualTime())
    try:
        calls: int = loop.run_until_complete(read())
    finally:
        loop.close()
    return calls


def test_two_calls_a_second_and_two_fifths_of_the_bytes_unless_the_caller_says_otherwise() -> None:
    assert asked_within(100, ShardPaces(), 0) in (200, 201)
    assert asked_within(100, ShardPaces(5.0), 0) in (500, 501)
    assert asked_within(100, ShardPaces(), 2 * 1024 * 1024) in (40, 41, 42)  # a call with 2 MiB takes 2.5 s


async def test_a_page_takes_no_more_than_one_call_s_share_of_the_bytes() -> None:
    paces, shard = ShardPaces(), ("orders", "shardId-000000000000")
    share = 2 * 1024 * 1024 / 5
    assert paces.page_records(*shard) == 2_000
    for records, record_bytes in ((2_000, 110), (3_800, 2_000), (200, 1024 * 1024), (1, 50)):
        paces.note_read(*shard, records, records * record_bytes)
        assert paces.page_records(*shard) == min(max(int(share / record_bytes), 1), 10_000)
    before = paces.page_records(*shard)
    paces.note_read(*shard, 0, 0)  # at the tip nothing is known of what comes
    assert paces.page_records(*shard) == before
    assert paces.page_records("orders", "shardId-000000000001") == 2_000


async def test_readers_of_one_shard_take_turns() -> None:
    paces, asked, done = ShardPaces(5.0), list[str](), asyncio.Event()

    async def read(name: str) -> None:
        while not done.is_set():
            await paces.wait_turn("orders", "shardId-000000000000", "GetRecords")
            asked.append(name)
            if len(asked) >= 6:
                done.set()

    async with asyncio.timeout(30):
        await asyncio.gather(read("a"), read("b"))
    assert asked[1:6] in (["b", "a", "b", "a", "b"], ["a", "b", "a", "b", "a"])


async def test_attempts_are_counted_those_that_were_refused_too() -> None:
    from shardway.testing import Fault

    with LocalKinesis(streams={"orders": 1}) as local:
        local.faults.add(Fault(how="throttle", operation="ListShards", count=2))
        wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        async with Inspector(wire) as inspector:
            report = await inspector.stream("orders")
            assert report.shards is not None
            assert inspector.wire.refusals == {"ListShards": 2}
            assert report.calls == {"DescribeStreamSummary": 1, "ListShards": 3, "ListStreamConsumers": 1}
            assert {name: local.stats().calls(name) for name in report.calls} == report.calls


async def test_pages_go_on_after_an_iterator_that_expired() -> None:
    from shardway.testing import Fault

    with LocalKinesis(streams={"orders": 1}) as local:
        local.faults.add(Fault(how="expired_iterator", operation="GetRecords", count=1))
        wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        async with Inspector(wire, calls_per_s=5.0) as inspector:
            pages = inspector.pages(StreamName("orders"), "shardId-000000000000", IteratorAt.trim_horizon())
            page = await anext(pages)
            await pages.aclose()
            assert (page.records, inspector.calls["GetShardIterator"]) == ([], 2)


@pytest.mark.parametrize("behind_s", [0.0, 1_000.0])
@pytest.mark.parametrize("put_first", [0, 2])
async def test_what_comes_while_an_iterator_at_the_newest_record_expires_is_read(
    put_first: int, behind_s: float
) -> None:
    from shardway.testing import Fault

    with LocalKinesis(streams={"orders": 1}, clock_start_s=time.time() - behind_s) as local:
        wire = ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)
        client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
        client.put_record(StreamName="orders", PartitionKey="k", Data=b"before")
        local.clock.advance(10)
        async with Inspector(wire, calls_per_s=5.0) as inspector:
            pages = inspector.pages(StreamName("orders"), "shardId-000000000000", IteratorAt.latest())
            assert (await anext(pages)).records == []
            found: list[bytes] = []
            for number in range(put_first):
                client.put_record(StreamName="orders", PartitionKey="k", Data=f"{number}".encode())
            while len(found) < put_first:
                found += [one.data for one in (await anext(pages)).records]
            local.clock.advance(600)  # iterators last for five minutes
            local.faults.add(Fault(how="expired_iterator", operation="GetRecords", count=1))
            client.put_record(StreamName="orders", PartitionKey="k", Data=b"meanwhile")
            while b"meanwhile" not in found:
                found += [one.data for one in (await anext(pages)).records]
            await pages.aclose()
            assert found == [*(f"{number}".encode() for number in range(put_first)), b"meanwhile"]
            assert inspector.calls["GetShardIterator"] == 2
        client.close()
