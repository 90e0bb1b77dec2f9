"""A handoff waits for the rest of what was begun: parts of a record, keys that are behind; also while the only program
that can take it is busy with another shard.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shardway import ByKey, Retry, SyncConsumer
from shardway.dead_letters import DeadLettersTo
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shardway import Batch, Consumer

pytestmark = pytest.mark.timeout(DEADLINE_S)
PARTS = 4
NEVER_GIVEN_UP = Retry(failures_max=None)
STREAMS = {STREAM: 2}


def in_parts(_: object) -> range:
    return range(PARTS)


IN_PARTS = {"split": in_parts, "batch_records_max": 1, "dead_letters": DeadLettersTo(lambda _: None)}


def names(batch: Any) -> list[tuple[bytes, int]]:
    return [(record.data, getattr(record, "part", 0)) for record in batch.records]


def held(consumer: Consumer[Any]) -> int:
    return sum(shard.records_held for shard in consumer.statistics().shards)


async def iterated(consumer: Consumer[Any]) -> AsyncIterator[Batch[Any]]:
    async for batch in consumer:
        yield batch


async def by_getmany(consumer: Consumer[Any]) -> AsyncIterator[Batch[Any]]:
    while found := await consumer.getmany(1):
        for batch in found:
            yield batch


async def everything(local: LocalKinesis, table: MemoryLeaseTable, count: int, **given: Any) -> Counter[Any]:
    """What a further consumer gets, until that and what is known before are all."""
    got: Counter[Any] = Counter()
    async with consumer_of(local, table, **given) as consumer:
        while len(got) < count:
            for batch in await consumer.getmany():
                got.update(names(batch))
                batch.ack()
    return got


@pytest.mark.parametrize("face", [iterated, by_getmany])
@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (IN_PARTS, PARTS),
        # A key is delivered once it is free: what lies before its records waits for a key that is behind.
        ({"order": ByKey(slots_max=4), "retry": NEVER_GIVEN_UP, "batch_records_max": 1}, 1),
    ],
    ids=["parts", "keys"],
)
async def test_a_close_waits_for_a_program_that_is_busy_with_another_shard(
    local: LocalKinesis, kinesis: Any, face: Callable[[Any], AsyncIterator[Any]], given: dict[str, Any], parts: int
) -> None:
    """Nothing that was delivered comes again, though the program asks for nothing while the handoff begins."""
    puts = put(kinesis, range(24), key=lambda data: str(4 + int(data) // 4))
    table, got, late = MemoryLeaseTable(), Counter[Any](), asyncio.Event()
    busy = asyncio.Event()

    async def program(consumer: Consumer[Any]) -> None:
        async for batch in face(consumer):
            got.update(names(batch))
            if got.total() == 5:
                busy.set()
                await late.wait()
            batch.ack()

    async with consumer_of(local, table, drain_deadline_s=DEADLINE_S, **given) as consumer:
        await until(lambda: held(consumer) == len(puts) * parts)
        running = asyncio.create_task(program(consumer))
        await busy.wait()
        closing = asyncio.create_task(consumer.close())
        await until(lambda: all(reader.ledger.draining for reader in consumer._session.turns.held))
        late.set()
        await closing
        await running
    left = len(puts) * parts - got.total()
    assert left > 0
    got += await everything(local, table, left, **given)
    assert set(got.values()) == {1}, got


async def test_a_thread_that_is_busy_with_another_shard_is_waited_for(local: LocalKinesis, kinesis: Any) -> None:
    puts = put(kinesis, range(8), key=lambda data: str(4 + int(data)))
    table, got, given = MemoryLeaseTable(), Counter[Any](), IN_PARTS
    consumer = consumer_of(local, table, face=SyncConsumer, drain_deadline_s=DEADLINE_S, **given)
    loop, closing = asyncio.get_running_loop(), asyncio.Future[Any]()

    def close() -> Any:
        return loop.run_in_executor(pool, consumer.close)

    def program() -> None:
        while found := consumer.getmany(1):
            for batch in found:
                got.update(names(batch))
                if got.total() == 3:
                    closed = asyncio.run_coroutine_threadsafe(begin_to_close(), loop)
                    closed.result(DEADLINE_S)
                batch.ack()

    async def begin_to_close() -> None:
        closing.set_result(close())
        readers = consumer._session.turns.held
        await until(lambda: all(reader.ledger.draining for reader in readers))

    with ThreadPoolExecutor(2) as pool:
        await asyncio.to_thread(consumer.start)
        await until(lambda: held(consumer) == len(puts) * PARTS)
        await loop.run_in_executor(pool, program)
        await (await closing)
    left = len(puts) * PARTS - got.total()
    assert left > 0
    got += await everything(local, table, left, **given)
    assert set(got.values()) == {1}, got


async def test_a_program_that_closes_inside_of_its_own_loop_is_not_waited_for(
    local: LocalKinesis, kinesis: Any
) -> None:
    """It takes nothing more: what it has begun comes again, elsewhere, and the handoff does not wait for that."""
    put(kinesis, range(8))
    given: dict[str, Any] = {**IN_PARTS, "drain_deadline_s": 2 * DEADLINE_S}
    async with consumer_of(local, MemoryLeaseTable(), **given) as consumer:
        async for batch in consumer:
            batch.ack()
            await consumer.close()
    async with consumer_of(local, MemoryLeaseTable(), **given) as consumer:
        for batch in await consumer.getmany(1):
            batch.ack()
    consumer = consumer_of(local, MemoryLeaseTable(), face=SyncConsumer, **given)

    def program() -> None:
        with consumer:
            for batch in consumer:
                batch.ack()
                consumer.close()

    await asyncio.to_thread(program)


async def test_parts_behind_one_that_waits_for_its_next_try_are_not_waited_for(
    local: LocalKinesis, kinesis: Any
) -> None:
    """The record comes again as a whole, wherever: the shard goes at once."""
    put(kinesis, range(4))
    slow = dict[str, Any](retry=Retry(failures_max=None, base_s=10 * DEADLINE_S, cap_s=10 * DEADLINE_S))
    given: dict[str, Any] = {**IN_PARTS, **slow}
    async with consumer_of(local, MemoryLeaseTable(), drain_deadline_s=2 * DEADLINE_S, **given) as consumer:
        handed = asyncio.Event()

        async def program() -> None:
            async for batch in consumer:
                batch.fail(RuntimeError("not now"))
                handed.set()

        running = asyncio.create_task(program())
        await handed.wait()
        await consumer.close()
        await running
