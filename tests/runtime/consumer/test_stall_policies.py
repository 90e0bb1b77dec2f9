"""Records that stay unsettled are told, and the policy acts, though no call asks for more; a shard is given up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import ShardStoppedError
from shardway.events import RecordsSkipped, RecordsStalled, RecordsUnsettled, ShardGivenUp
from shardway.model import Position
from shardway.policies import DeadLetters, DeadLettersTo, GiveUp, Redeliver, Retry, Skip, Stop, Warn
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S
from tests.runtime.consumer.outcome_kit import FOR_EVER, SHARD_ID, checkpoint_reaches, consumer_of, of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis


def stalled(policy: Any, **more: Any) -> dict[str, Any]:
    ledger = dict[str, Any](retry=FOR_EVER, stalled=policy, deadline_s=0.1, **more)
    return {**ledger, "cadence": Prompt()}


async def test_stall_warn_tells_the_records_each_time_and_does_nothing(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **stalled(Warn())) as consumer:
        (reader,) = [shard async for shard in take(consumer.shards(), 1)]
        batch = await reader.next_batch()
        assert batch is not None
        batch.ack(1)
        await until(lambda: len(of(events, RecordsStalled)) >= 2)
        told = of(events, RecordsStalled)[0]
        assert told.positions == (Position(numbers[0]), Position(numbers[2]))
        assert told.action == "Warn"
        assert batch.unsettled() == list(told.positions)
        batch.settle_through(batch.records[2])
        await checkpoint_reaches(leases, numbers[2])


async def test_stall_redeliver_delivers_the_records_again_and_late_settlements_count(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen = stalled(Redeliver(times_max=1))
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        (reader,) = [shard async for shard in take(consumer.shards(), 1)]
        first = await reader.next_batch()
        again = await reader.next_batch()
        assert first is not None
        assert again is not None
        assert [record.data for record in again] == [b"0", b"1"]
        assert again.attempt == 2
        first.ack(0)  # its handler was only slow
        assert again.unsettled() == [Position(numbers[1])]
        again.ack()
        await checkpoint_reaches(leases, numbers[1])
    assert of(events, RecordsStalled)[0].action == "Redeliver"


async def test_stall_dead_letters_keeps_them_and_goes_on(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    kept: list[Any] = []
    chosen = {**stalled(DeadLetters()), "dead_letters": DeadLettersTo(kept.append)}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        batch = await anext(aiter(consumer))
        assert len(batch) == 2
        await checkpoint_reaches(leases, numbers[1])
    assert [(letter.data, letter.error_type) for letter in kept] == [
        (b"0", "not settled in time"), (b"1", "not settled in time"),
    ]  # fmt: skip
    assert of(events, RecordsStalled)[0].action == "DeadLetters"


async def test_stall_skip_settles_them_and_says_so(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **stalled(Skip())) as consumer:
        await anext(aiter(consumer))
        await checkpoint_reaches(leases, numbers[1])
    (told,) = of(events, RecordsSkipped)
    assert (told.first, told.last, told.records) == (Position(numbers[0]), Position(numbers[1]), 2)


async def test_stall_stop_raises_where_records_are_asked_for(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    events: list[Any] = []
    chosen = stalled(Stop())
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), events=events, **chosen) as consumer:
        batches = aiter(consumer)
        await anext(batches)
        with pytest.raises(ShardStoppedError, match="not settled in time"):
            await anext(batches)
        assert of(events, ShardGivenUp)[0].action == "Stop"


async def test_a_handlers_error_that_stops_a_shard_is_the_cause_of_what_is_raised(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, b"0")
    ledger = dict[str, Any](retry=Retry(failures_max=1, then=Stop()))
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), **ledger) as consumer:
        batches = aiter(consumer)
        async with await anext(batches):
            raise KeyError("x")
        with pytest.raises(ShardStoppedError, match="failed: KeyError") as raised:
            await anext(batches)
        assert isinstance(raised.value.__cause__, KeyError)


async def test_stall_give_up_lets_another_worker_have_the_shard_and_not_this_one_before_its_cool_down(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, b"0")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    got: list[str] = []
    chosen = {**stalled(GiveUp(cool_down_s=3600.0)), "drain_deadline_s": 0.2}

    async def consume(consumer: Any, *, settles: bool) -> None:
        async for batch in consumer:
            got.append(consumer.worker_id)
            if settles:
                batch.ack()

    async with (
        asyncio.timeout(DEADLINE_S),
        consumer_of(local, leases, worker_id="stuck", events=events, **chosen) as one,
    ):
        stuck = asyncio.create_task(consume(one, settles=False))
        await until(lambda: got == ["stuck"])
        async with consumer_of(local, leases, worker_id="well", **chosen) as other:
            well = asyncio.create_task(consume(other, settles=True))
            await until(lambda: "well" in got)
            numbers = put(kinesis, b"1", b"2")
            await checkpoint_reaches(leases, numbers[-1])
            row = await leases.get(SHARD_ID)
            assert row is not None
            assert row.owner == "well"
            assert got.count("stuck") == 1
            assert (await workers(leases))["stuck"].avoids == {SHARD_ID}
        await well
        await one.close()
        await stuck
    assert of(events, ShardGivenUp)[0].cool_down_s == 3600.0
    assert of(events, RecordsUnsettled)


async def test_a_worker_alone_takes_a_shard_back_after_the_cool_down(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    works = asyncio.Event()
    retry = Retry(
        failures_max=None, base_s=0.001, cap_s=0.01, transient=(OSError,), give_up_after_s=0.1, cool_down_s=0.5
    )
    chosen: dict[str, Any] = {"retry": retry, "cadence": Prompt()}
    loop = asyncio.get_running_loop()
    failed_s: list[float] = []
    tokens: list[int] = []

    async def handle(batch: Any) -> None:
        tokens.append(batch.token)
        if not works.is_set():
            failed_s.append(loop.time())
            raise OSError("the database is down")

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        await until(lambda: of(events, ShardGivenUp))
        works.set()
        before_s, tries = failed_s[-1], len(tokens)
        await until(lambda: len(tokens) > tries)
        assert loop.time() - before_s >= 0.5
        assert tokens[-1] > tokens[0]
        await consumer.close()
        await running
    assert [event.reason for event in of(events, ShardGivenUp)] == ["failed: OSError"]


async def test_a_shard_that_is_given_up_without_a_cool_down_begins_anew(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    tokens: list[int] = []
    retry = Retry(failures_max=1, then=GiveUp(cool_down_s=0.0))
    chosen: dict[str, Any] = {"retry": retry, "cadence": Prompt()}

    async def handle(batch: Any) -> None:
        tokens.append(batch.token)
        if len(tokens) == 1:
            raise OSError

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        await checkpoint_reaches(leases, numbers[0])
        await consumer.close()
        await running
    assert len(tokens) == 2
    assert tokens[1] > tokens[0]


async def workers(leases: MemoryLeaseTable) -> dict[str, Any]:
    return {row.worker_id: row for row in await leases.workers()}


async def take(found: Any, count: int) -> Any:
    """The first few."""
    async for each in found:
        yield each
        count -= 1
        if not count:
            return
