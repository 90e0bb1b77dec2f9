"""Checkpoints that are prepared, and committed later: in the KCL's columns, told to the next owner, waited for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import writes
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.conditional_write import Done
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import CheckpointError
from shardway.events import PendingCheckpointFound
from shardway.model import Position
from shardway.policies import FoundPending, PendingChoice
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.outcome_kit import checkpoint_reaches, consumer_of, of, put, until
from tests.runtime.consumer.reading_kit import DEADLINE_S, SHARD_ID, lease_of, reading

if TYPE_CHECKING:
    from shardway.local import LocalKinesis


def at(number: int) -> Checkpoint:
    return Checkpoint.at(Position(number))


async def test_a_prepared_checkpoint_is_stored_as_pending_and_becomes_one_by_its_commit(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), reading(local, table, failover_s=60) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        prepared = await one.prepare(batch, b"my state")
        assert (prepared.position, prepared.state) == (Position(numbers[1]), b"my state")
        row = await lease_of(table)
        assert (row.checkpoint, row.pending, row.pending_state) == (
            Checkpoint.TRIM_HORIZON, at(numbers[1]), b"my state",
        )  # fmt: skip
        with pytest.raises(CheckpointError, match="settle the others"):
            await one.reader.checkpointing.commit(prepared)
        batch.ack()
        await one.reader.checkpointing.commit(prepared)
        row = await lease_of(table)
        assert (row.checkpoint, row.pending, row.pending_state) == (at(numbers[1]), None, None)
        assert one.reader.checkpointing.pending is None
        with pytest.raises(CheckpointError, match="not pending any more"):
            await one.reader.checkpointing.commit(prepared)


async def test_riding_checkpoints_hold_still_while_one_is_pending(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), reading(local, table, failover_s=1.5, cadence=Prompt()) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        prepared = await one.prepare(batch, index=0)
        batch.ack()
        counter = (await lease_of(table)).counter
        while (row := await lease_of(table)).counter < counter + 3:  # renewals
            await asyncio.sleep(0.01)
        assert (row.checkpoint, row.pending) == (Checkpoint.TRIM_HORIZON, at(numbers[0]))
        await one.reader.checkpointing.commit(prepared)
        await checkpoint_reaches(table, numbers[1])  # and what was settled meanwhile follows


async def test_an_abandoned_checkpoint_is_cleared_and_what_is_settled_is_stored(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), reading(local, table, failover_s=60) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        prepared = await one.prepare(batch)
        batch.ack(0)
        await one.reader.checkpointing.abandon(prepared)
        row = await lease_of(table)
        assert (row.checkpoint, row.pending) == (at(numbers[0]), None)
        again = await one.prepare(batch)
        assert (await lease_of(table)).pending == at(numbers[1])
        other = await one.prepare(batch, b"newer")  # takes its place
        with pytest.raises(CheckpointError, match="not pending any more"):
            await one.reader.checkpointing.abandon(again)
        batch.ack()
        await one.reader.checkpointing.commit(other)
        assert (await lease_of(table)).checkpoint == at(numbers[1])


async def test_what_is_checkpointed_or_not_fetched_cannot_be_prepared(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    async with asyncio.timeout(DEADLINE_S), reading(local, MemoryLeaseTable(), failover_s=60) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        batch.ack()
        with pytest.raises(CheckpointError, match="prepare before it is settled") as told:
            await one.prepare(batch, index=0)
        assert told.value.goes_back
        with pytest.raises(CheckpointError, match="cannot be prepared: the last record that came"):
            await one.reader.checkpointing.prepare(Position(numbers[1] + 1))
        prepared = await one.prepare(batch)  # where all is settled up to now
        await one.reader.checkpointing.commit(prepared)


async def leave_pending(local: LocalKinesis, table: MemoryLeaseTable) -> None:
    """A worker prepares a checkpoint, and dies."""
    async with reading(local, table, "worker-1") as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        await one.prepare(batch, b"state", index=1)


@pytest.mark.parametrize("asked", [True, False], ids=["chosen", "by default"])
async def test_the_next_owner_delivers_the_records_again_and_its_checkpoint_clears_the_pending_one(
    local: LocalKinesis, kinesis: Any, asked: bool
) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    table, found = MemoryLeaseTable(), []

    def choose(pending: FoundPending) -> PendingChoice:
        found.append(pending)
        return PendingChoice.ABANDON

    async with asyncio.timeout(DEADLINE_S):
        await leave_pending(local, table)
        async with reading(local, table, "worker-2", on_pending=choose if asked else None, cadence=Prompt()) as two:
            assert two.reader.checkpointing.pending is None
            assert await two.take(3) == [b"0", b"1", b"2"]
            await checkpoint_reaches(table, numbers[2])
            assert (await lease_of(table)).pending is None
            (told,) = of(two.events, PendingCheckpointFound)
    assert (told.position, told.choice) == (Position(numbers[1]), "abandon")
    assert [(one.position, one.state) for one in found] == [(Position(numbers[1]), b"state")] * asked


async def test_the_next_owner_may_commit_what_it_knows_to_be_done(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S):
        await leave_pending(local, table)
        chosen: dict[str, Any] = {"on_pending": lambda pending: PendingChoice.COMMIT}
        async with reading(local, table, "worker-2", failover_s=60, **chosen) as two:
            await checkpoint_reaches(table, numbers[1])
            assert (await lease_of(table)).pending is None
            assert await two.take(1) == [b"2"]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abandon"])
async def test_the_next_owner_may_keep_it_and_decide_later(local: LocalKinesis, kinesis: Any, commits: bool) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S):
        await leave_pending(local, table)
        chosen: dict[str, Any] = {"on_pending": lambda pending: PendingChoice.KEEP}
        async with reading(local, table, "worker-2", failover_s=60, cadence=Prompt(), **chosen) as two:
            pending = two.reader.checkpointing.pending
            assert pending is not None
            assert (pending.position, pending.state) == (Position(numbers[1]), b"state")
            with pytest.raises(CheckpointError, match="settle the others"):
                await two.reader.checkpointing.commit(pending)
            assert await two.take(3) == [b"0", b"1", b"2"]
            assert (await lease_of(table)).checkpoint == Checkpoint.TRIM_HORIZON
            await (two.reader.checkpointing.commit(pending) if commits else two.reader.checkpointing.abandon(pending))
            await checkpoint_reaches(table, numbers[2])


async def test_a_choice_that_raises_loses_nothing(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0", b"1", b"2")
    table, told = MemoryLeaseTable(), []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["exception"]))

    def choose(pending: FoundPending) -> PendingChoice:
        raise RuntimeError("which one?")

    async with asyncio.timeout(DEADLINE_S):
        await leave_pending(local, table)
        async with reading(local, table, "worker-2", on_pending=choose) as two:
            assert two.reader.checkpointing.pending is not None
            assert of(two.events, PendingCheckpointFound)[0].choice == "keep"
    assert [type(error) for error in told] == [RuntimeError]


async def test_a_shard_that_is_lost_meanwhile_is_told_to_the_caller_that_prepares(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, b"0")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S), reading(local, table, failover_s=1.5) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        assert isinstance(await table.write(writes.take(await lease_of(table), "thief")), Done)
        with pytest.raises(CheckpointError, match="not held any more"):
            await one.prepare(batch)
        with pytest.raises(CheckpointError, match="not held any more"):
            await one.prepare(batch)


async def test_a_prepare_that_is_cancelled_is_found_where_the_pending_one_is(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    async with asyncio.timeout(DEADLINE_S), reading(local, MemoryLeaseTable(), failover_s=60) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        preparing = asyncio.create_task(one.prepare(batch))
        await asyncio.sleep(0)
        preparing.cancel()
        batch.ack()
        with pytest.raises(CheckpointError):  # the write is on its way
            await one.prepare(batch)
        await until(lambda: one.keeper.row.pending is not None)
        pending = one.reader.checkpointing.pending
        assert pending is not None
        await one.reader.checkpointing.commit(pending)
        assert one.reader.stored.is_position


async def test_a_handoff_waits_for_the_commit_and_goes_on_without_it_after_the_drains_deadline(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, table, drain_deadline_s=DEADLINE_S) as consumer:
            batch = await anext(aiter(consumer))
            prepared = await consumer.prepare(batch, index=0)
            batch.ack()
            closing = asyncio.create_task(consumer.close())
            await until(lambda: not closing.done() and batch.counts)
            await asyncio.sleep(0.1)
            assert not closing.done()
            await consumer.commit(prepared)
            await closing
        assert (await lease_of(table)).checkpoint == at(numbers[1])
        more = put(kinesis, b"2")
        async with consumer_of(local, table, drain_deadline_s=0.1) as consumer:
            batch = await anext(aiter(consumer))
            await consumer.prepare(batch, b"for the next")
            batch.ack()
        row = await lease_of(table)
        assert (row.owner, row.checkpoint, row.pending, row.pending_state) == (
            None, at(numbers[1]), at(more[0]), b"for the next",
        )  # fmt: skip
    assert row.key == SHARD_ID
