"""A producer whose shard map is old: readers with the KCL's rules get every record all the same."""

from __future__ import annotations

import asyncio

import pytest

from shardway.events import AggregatesRepeated, ShardMapChanged
from shardway.local import LocalKinesis
from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import (
    STREAM,
    Heard,
    call,
    merge,
    numbered,
    place_of,
    places,
    quick,
    read_all,
    split,
    until,
    wire_of,
)

FIRST = "shardId-000000000000"
SECOND = "shardId-000000000001"


async def put_around(
    local: LocalKinesis, heard: Heard, change: object, *, before: int, after: int
) -> Producer[OutRecord]:
    """Put, change the shards, put again with the old map; everything that was put is there to be read."""
    options = quick(aggregation=True)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        puts = await producer.put_many(numbered(range(before)))
        await puts.settled()
        await change()  # type: ignore[operator]
        later = await producer.put_many(numbered(range(before, before + after)))
        await later.settled()
        results = [*puts.results(), *later.results()]
        counts = producer.metrics()
    content = await read_all(local)
    told = places(results)
    found = place_of(content)
    repeated = 0
    for record, place, result in zip(numbered(range(before + after)), told, results, strict=True):
        at = found[record.data]
        assert at[-1] == place  # the last is what the result says
        repeated += len(at) - 1
        if len(at) > 1 or result.attempts > 1:
            assert result.duplicates_possible  # type: ignore[union-attr]
    marked = sum(result.duplicates_possible for result in results)  # type: ignore[union-attr]
    assert marked == counts.duplicates_possible == sum(one.user_records for one in heard.of(AggregatesRepeated))
    assert content.dropped == counts.aggregates_repeated == sum(one.aggregates for one in heard.of(AggregatesRepeated))
    assert counts.user_records_put == before + after
    assert repeated == 0  # the KCL shows each once: it drops what landed wrong, whole
    return producer


async def test_a_stale_shard_map_after_a_split(local: LocalKinesis) -> None:
    heard = Heard()

    async def change() -> None:
        await split(local, FIRST, (HASH_KEY_MAX + 1) // 8)

    producer = await put_around(local, heard, change, before=200, after=2_000)
    assert producer.metrics().aggregates_repeated > 0
    assert producer.metrics().duplicates_possible > 0
    changes = heard.of(ShardMapChanged)
    assert [one.open_shards for one in changes] == [4, 5]
    assert (changes[-1].closed, len(changes[-1].added)) == ((FIRST,), 2)


async def test_a_stale_shard_map_after_a_merge(local: LocalKinesis) -> None:
    """A merged shard holds all that its parents would: nothing is put again."""
    heard = Heard()

    async def change() -> None:
        await merge(local, FIRST, SECOND)

    producer = await put_around(local, heard, change, before=200, after=2_000)
    assert producer.metrics().aggregates_repeated == 0
    assert producer.metrics().duplicates_possible == 0
    assert [one.open_shards for one in heard.of(ShardMapChanged)] == [4, 3]


async def test_a_stale_shard_map_after_many_changes(local: LocalKinesis) -> None:
    heard = Heard()

    async def change() -> None:
        await call(local, "UpdateShardCount", StreamName=STREAM, TargetShardCount=7, ScalingType="UNIFORM_SCALING")

    producer = await put_around(local, heard, change, before=200, after=2_000)
    assert producer.metrics().aggregates_repeated > 0


@pytest.mark.parametrize("aggregation", [False, True])
async def test_records_with_hash_keys_after_a_split(local: LocalKinesis, aggregation: bool) -> None:
    """The range rule looks at explicit hash keys; plain records are right wherever they land."""
    eighth = (HASH_KEY_MAX + 1) // 8
    records = [OutRecord(b"%d" % number, "same", number * eighth // 8) for number in range(64)]
    options = quick(aggregation=aggregation)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        await producer.put(records[0])
        await split(local, FIRST, eighth)
        puts = await producer.put_many(records)
        await puts.settled()
        puts.raise_failure()
    content = await read_all(local)
    counts = content.counts()
    counts[b"0"] -= 1
    assert counts == {record.data: 1 for record in records}
    assert (content.dropped > 0) == aggregation


async def test_a_shard_that_no_listing_shows_yet(local: LocalKinesis) -> None:
    """An answer names a new shard before ListShards does: the outcome waits for the listing."""
    heard = Heard()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=True), on_event=heard.append
    ) as producer:
        await producer.put(OutRecord(b"before", "key"))
        fault = local.faults.add(Fault(how="throttle", operation="ListShards"))
        await split_all(local)
        puts = await producer.put_many(numbered(range(400)))
        await until(lambda: fault.hits)
        assert not puts.done()
        fault.clear()
        await puts.settled()
        puts.raise_failure()
    content = await read_all(local)
    assert set(content.counts()) == {b"before", *(b"%d" % number for number in range(400))}


async def split_all(local: LocalKinesis) -> None:
    for number in range(4):
        await split(local, f"shardId-{number:012d}", (2 * number + 1) * (HASH_KEY_MAX + 1) // 8)


async def test_records_flow_while_the_stream_is_resharded(local: LocalKinesis) -> None:
    heard = Heard()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(aggregation=True), on_event=heard.append
    ) as producer:
        puts = []
        resharding = asyncio.create_task(split_all(local))
        for start in range(0, 4_000, 100):
            puts.append(await producer.put_many(numbered(range(start, start + 100), keys=500)))
            await asyncio.sleep(0.002)
        await resharding
        await merge(local, "shardId-000000000004", "shardId-000000000005")
        puts.append(await producer.put_many(numbered(range(4_000, 4_500), keys=500)))
        results = [result for some in puts for result in (await some.settled()).results()]
        counts = producer.metrics()
    content = await read_all(local)
    found = place_of(content)
    assert len(found) == 4_500
    for record, place, result in zip(numbered(range(4_500)), places(results), results, strict=True):
        assert place in found[record.data]
        # A shard may be closed again before a listing shows it; what landed there is put again to be sure.
        assert len(found[record.data]) == 1 or result.duplicates_possible  # type: ignore[union-attr]
    assert counts.aggregates_repeated >= content.dropped
