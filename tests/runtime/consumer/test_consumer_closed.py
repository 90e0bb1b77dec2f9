"""A loop of the program's own around `getmany` ends once the consumer is closed, by an error or by `closed`."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from shardway import SyncConsumer
from shardway.errors import ConsumerClosedError
from shardway.leases import MemoryLeaseTable
from shardway.testing import SyncTestConsumer, TestConsumer
from tests.runtime.consumer.face_kit import DEADLINE_S, consumer_of, put

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
SAYS = "billing: the consumer is closed and delivers no more records: leave the loop that asks for them"


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 60.0])
async def test_a_loop_that_waits_a_while_ends_after_a_signal(local: LocalKinesis, kinesis: Any, wait_s: float) -> None:
    wanted = put(kinesis, range(20))
    got: list[bytes] = []
    empty_since_close = 0
    table = MemoryLeaseTable()
    async with consumer_of(local, table) as consumer:
        consumer.close_on_signals(signal.SIGUSR1)

        async def loop() -> None:
            nonlocal empty_since_close
            while True:
                closed = consumer.closed
                batches = await consumer.getmany(500, wait_s=wait_s)
                empty_since_close += closed
                for batch in batches:
                    with batch:
                        got.extend(record.data for record in batch)
                if len(got) == len(wanted):
                    os.kill(os.getpid(), signal.SIGUSR1)
                    wanted.append(b"never")
                await asyncio.sleep(0)

        with pytest.raises(ConsumerClosedError, match=SAYS):
            await loop()
        assert consumer.closed
    assert empty_since_close == 0, "once it is closed, no call returns"
    assert [row.owner for row in (await table.scan()).rows] == [None], "the lease is free"


async def test_a_loop_ends_by_the_property_without_an_error(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        assert not consumer.closed
        got = 0
        while not consumer.closed:
            for batch in await consumer.getmany(500, wait_s=30.0):
                with batch:
                    got += len(batch)
            if got == 3:
                got = 0
                closing = asyncio.create_task(consumer.close())
        await closing
        assert await consumer.getmany() == [], "without wait_s an empty list says that it is closed"


async def test_a_worker_that_has_ended_by_an_error_is_told_without_a_wait(local: LocalKinesis) -> None:
    class Broken(MemoryLeaseTable):
        broken = False

        async def scan(self, **given: Any) -> Any:
            if self.broken:
                raise KeyError("broken")
            return await super().scan(**given)

    table = Broken()
    async with consumer_of(local, table) as consumer:
        table.broken = True

        async def loop() -> None:
            while True:
                assert await consumer.getmany(wait_s=0) == []
                await asyncio.sleep(0.01)

        with pytest.raises(KeyError, match="broken"):
            await loop()


def test_a_loop_in_a_thread_ends(local: LocalKinesis) -> None:
    with consumer_of(local, MemoryLeaseTable(), face=SyncConsumer) as consumer:
        assert consumer.getmany(1, wait_s=0.01) == []
        assert not consumer.closed
        consumer.close()
        assert consumer.closed
        with pytest.raises(ConsumerClosedError, match=SAYS):
            consumer.getmany(1, wait_s=0.01)
        assert consumer.getmany(1) == []
        assert list(consumer) == []
        assert list(consumer.records()) == []
        assert list(consumer.shards()) == []


async def test_the_consumers_for_tests_do_the_same() -> None:
    async with TestConsumer() as consumer:
        await consumer.close()
        assert consumer.closed
        with pytest.raises(ConsumerClosedError):
            await consumer.getmany(wait_s=0.0)
        assert [batch async for batch in consumer] == []


def test_the_consumer_for_tests_in_threads_does_the_same() -> None:
    with SyncTestConsumer() as consumer:
        consumer.close()
        assert consumer.closed
        with pytest.raises(ConsumerClosedError):
            consumer.getmany(wait_s=0.0)
