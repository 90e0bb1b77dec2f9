"""Every face of the consumer on `TestConsumer`, and the one for threads."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from shardway.errors import ShardStoppedError
from shardway.policies import DeadLetters, DeadLettersTo, Retry, Stop
from shardway.runtime.consumer.concurrency import by_key, unordered
from shardway.testing import SyncTestConsumer, TestConsumer, UnsettledError
from tests.options_kit import arguments_of

SHARD = "shardId-000000000000"


@pytest.mark.parametrize("concurrency", [None, by_key(4), unordered(4)])
@pytest.mark.parametrize("way", ["run_batches", "run_records"])
async def test_a_handler_gets_all_of_it(concurrency: Any, way: str) -> None:
    got: list[bytes] = []

    async def handle(given: Any) -> None:
        await asyncio.sleep(0.001)
        got.extend([given.record.data] if way == "run_records" else [record.data for record in given])

    async with TestConsumer(map(str, range(40)), shards=2, **arguments_of(batch_records_max=7)) as consumer:
        await getattr(consumer, way)(handle, concurrency=concurrency)
    assert sorted(got, key=int) == [b"%d" % number for number in range(40)]


async def test_batches_are_asked_for() -> None:
    got: list[bytes] = []
    async with TestConsumer(["a", "b"]) as consumer:
        while batches := await consumer.getmany(10):
            for batch in batches:
                with batch:
                    got += [record.data for record in batch]
    assert got == [b"a", b"b"]


async def test_nothing_is_fed() -> None:
    async with TestConsumer(ends=True) as consumer:
        assert [batch async for batch in consumer] == []


async def test_a_record_that_cannot_be_read_is_a_dead_letter_by_choice() -> None:
    settings = dict[str, Any](unreadable=DeadLetters(), dead_letters=DeadLettersTo(lambda _: None))
    got: list[Any] = []
    async with TestConsumer(
        [{"a": 1}, "no", {"a": 2}], deserializer=json.loads, **arguments_of(**settings)
    ) as consumer:
        async for batch in consumer:
            with batch:
                got += batch.values
    assert got == [{"a": 1}, {"a": 2}]
    assert [letter.data for letter in consumer.dead_letters] == [b"no"]


async def test_a_shard_that_is_stopped_is_raised() -> None:
    settings = dict[str, Any](retry=Retry(batch_failures_max=1, failures_max=1, then=Stop()))

    async def run() -> None:
        async with TestConsumer(["a"], **arguments_of(**settings)) as consumer:
            async for batch in consumer:
                with batch:
                    raise ValueError

    with pytest.raises(ShardStoppedError):
        await run()


async def test_some_shards_are_elsewhere_and_the_others_go_on() -> None:
    shards = [f"shardId-00000000000{number}" for number in range(3)]
    async with TestConsumer(shards=3) as consumer:
        got: list[tuple[str, bytes]] = []

        async def note(batch: Any) -> None:
            got.extend((batch.shard_id, record.data) for record in batch)

        running = asyncio.create_task(consumer.run_batches(note))
        consumer.feed(*["first"] * 3)
        for shard in shards:
            consumer.feed("begin", shard=shard)
        await consumer.settled()
        got.clear()
        await consumer.lose(shards[1])
        await consumer.hand_over(shards[2])
        for shard in shards:
            consumer.feed("x", shard=shard)
        await consumer.settled()
        assert got == [(shards[0], b"x")]
        await consumer.get_back(shards[2])
        await consumer.get_back(shards[1])
        await consumer.settled()
        assert set(got) == {(shard, b"x") for shard in shards}
        await consumer.close()
        await running


def test_a_program_of_threads_runs_to_the_end() -> None:
    threads: set[str] = set()
    got: list[Any] = []

    def told(shards: Any) -> None:
        threads.add(threading.current_thread().name)

    with SyncTestConsumer([{"a": 1}, {"a": 2}], deserializer=json.loads, on_shards_assigned=told) as consumer:
        for batch in consumer:
            with batch:
                got += batch.values
    assert got == [{"a": 1}, {"a": 2}]
    assert len(threads) == 1
    assert not threads & {"MainThread", "shardway-consumer"}
    assert consumer.unsettled == consumer.not_checkpointed == []
    assert consumer.dead_letters == []
    assert consumer.skipped == []
    assert isinstance(consumer.checkpoints[SHARD], tuple)
    with consumer.successor([{"a": 3}]) as second:
        second.run_batches(lambda batch: got.extend(batch.values))
    assert got[2:] == [{"a": 3}]


def test_a_test_of_threads_has_the_same_in_hand() -> None:
    with SyncTestConsumer(ends=False) as consumer:
        consumer.feed("a", "b")
        for batch in consumer:
            batch.skip(0)
            batch.nack(1, delay_s=300.0)
            consumer.pass_time(299.0)
            assert [record.data for record in consumer.unsettled] == [b"b"]
            consumer.pass_time(2.0)
            break
        for batch in consumer:
            assert [record.data for record in batch.records] == [b"b"]
            consumer.lose()
            assert batch.ack() is False
            break
        consumer.get_back(SHARD)
        consumer.hand_over(SHARD)
        consumer.get_back(SHARD)
        children = consumer.split()
        for batch in consumer:
            with batch:
                assert batch.records[0].data == b"b"
            break
        merged = consumer.merge(*children)
        consumer.feed("z")
        for batch in consumer:
            with batch:
                assert batch.shard_id == merged
            break
        consumer.settled()
        assert [one.records for one in consumer.skipped] == [1]
        assert consumer.retried == []
        assert consumer.events


def test_records_of_threads_that_are_never_settled_are_named() -> None:
    def forget() -> None:
        with SyncTestConsumer(["a"], patience_s=0.2) as consumer:
            for _ in consumer:
                pass

    with pytest.raises(UnsettledError, match="1 records are not settled"):
        forget()
