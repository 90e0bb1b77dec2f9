"""A shard read under a lease: what is settled is checkpointed, what is not comes again, and nothing after the lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway.core.leases import LeaseRow, writes
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.conditional_write import Done, Unknown
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.machine import claim
from shardway.core.leases.tenure.state import Loss
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.shard.checkpoints.cadence import Every, Prompt
from shardway.model import Position
from shardway.policies import Retry
from shardway.runtime.shard.listener import ShardListener
from shardway.runtime.shard.shard_reader import ShardReader
from shardway.runtime.shard.tenure_keeper import TenureKeeper
from shardway.stores.memory import MemoryLeaseTable
from tests.momentary import now
from tests.runtime.consumer.reading_kit import DEADLINE_S, SHARD_ID, STREAM, lease_of, reading

if TYPE_CHECKING:
    from shardway.core.leases import Outcome, Write
    from shardway.local import LocalKinesis


def put(kinesis: Any, *datas: bytes) -> list[int]:
    return [int(kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=data)["SequenceNumber"]) for data in datas]


async def until_stored(table: MemoryLeaseTable, checkpoint: Checkpoint) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await lease_of(table)).checkpoint != checkpoint:
            await asyncio.sleep(0.01)


async def test_what_is_settled_rides_on_the_renewals_and_the_next_owner_goes_on_behind_it(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=0.4) as first:
        assert await first.take(3) == [b"0", b"1", b"2"]
        await until_stored(table, Checkpoint.at(Position(numbers[-1])))
        token = first.keeper.token
    put(kinesis, b"3")
    async with reading(local, table, "worker-2") as second:
        assert await second.take(1) == [b"3"]
        assert second.keeper.token > token


async def test_what_is_not_settled_comes_again_to_the_next_owner(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with reading(local, table, cadence=Prompt()) as first:
        batch = await first.reader.delivery.next_batch()
        assert batch is not None
        assert [record.data for record in batch] == [b"0", b"1"]
        batch.ack(0)
        await until_stored(table, Checkpoint.at(Position(batch.records[0].sequence_number)))
    async with reading(local, table, "worker-2") as second:
        assert await second.take(1) == [b"1"]


async def test_a_prompt_checkpoint_is_written_at_once_and_follows_what_comes_meanwhile(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, *[b"%d" % number for number in range(6)])
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=60, cadence=Prompt()) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        for index in (0, 1, 2, 4):
            batch.ack(index)
        await until_stored(table, Checkpoint.at(Position(numbers[2])))
        batch.ack(3)
        await until_stored(table, Checkpoint.at(Position(numbers[4])))


async def test_a_checkpoint_by_time_is_written_though_nothing_more_happens(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=60, cadence=Every(seconds=0.3)) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        batch.ack(0)
        await until_stored(table, Checkpoint.at(Position(numbers[0])))
        batch.ack(1)
        await until_stored(table, Checkpoint.at(Position(numbers[1])))


async def test_a_shard_that_ends_is_told_with_its_children_and_checkpointed_as_ended(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, b"0")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=60) as one:
        assert await one.take(2) == [b"0"]
        assert one.reader.is_over
        children = {child.shard_id for child in one.reader.fetcher.children}
        assert children == {"shardId-000000000001", "shardId-000000000002"}
    assert (await lease_of(table)).ended


async def test_a_lease_that_another_took_is_lost_once_and_nothing_is_delivered_after_it(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, b"0")
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=0.4) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        stolen = await table.write(writes.take(await lease_of(table), "thief"))
        assert isinstance(stolen, Done)
        async with asyncio.timeout(DEADLINE_S):
            assert await one.reader.delivery.next_batch() is None
        assert [command.why for command in one.commands if isinstance(command, tenure_commands.LeaseLost)] == [
            Loss.TAKEN
        ]
        assert batch.ack() is False
    assert (await lease_of(table)).owner == "thief"


class DeafTable(MemoryLeaseTable):
    """Applies writes, and then answers nothing of use."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf = False
        self.cut = False

    async def write(self, write: Write) -> Outcome:
        if self.cut:
            return Unknown("no connection")
        outcome = await super().write(write)
        return Unknown("the answer was lost") if self.deaf else outcome


async def test_an_update_that_was_applied_but_failed_does_not_cost_the_lease(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = DeafTable()
    async with reading(local, table, failover_s=0.8) as one:
        table.deaf = True
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        batch.ack()
        await until_stored(table, Checkpoint.at(Position(numbers[-1])))
        await asyncio.sleep(0.2)
        table.deaf = False
        put(kinesis, b"2")
        assert await one.take(1) == [b"2"]
        assert not any(isinstance(command, tenure_commands.LeaseLost) for command in one.commands)


async def test_an_owner_whose_writes_are_not_confirmed_stops_delivering_and_goes_on_when_they_are(
    local: LocalKinesis, kinesis: Any
) -> None:
    table = DeafTable()
    async with reading(local, table, failover_s=0.6) as one:
        table.cut = True
        async with asyncio.timeout(DEADLINE_S):
            while one.keeper.may_deliver():
                await asyncio.sleep(0.01)
        put(kinesis, b"0")
        asking = asyncio.create_task(one.reader.delivery.next_batch())
        await asyncio.sleep(0.15)
        assert not asking.done()
        table.cut = False
        batch = await asyncio.wait_for(asking, DEADLINE_S)
        assert batch is not None
        assert [record.data for record in batch] == [b"0"]


async def test_a_batch_that_fails_comes_again_and_is_halved_until_the_bad_record_is_alone(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, *[b"%d" % number for number in range(8)])
    table = MemoryLeaseTable()
    policy = LedgerPolicy(retry=Retry(batch_failures_max=1, failures_max=2, base_s=0.001, cap_s=0.002))
    done: list[bytes] = []
    async with reading(local, table, policy=policy) as one:
        async with asyncio.timeout(DEADLINE_S):
            while len(done) < 7:
                batch = await one.reader.delivery.next_batch()
                assert batch is not None
                with batch:
                    if any(record.data == b"5" for record in batch):
                        raise ValueError("no fives")
                    done += [record.data for record in batch]
        letters = one.reader.ledger.letters.take(asyncio.get_running_loop().time())
    assert done == [b"0", b"1", b"2", b"3", b"4", b"6", b"7"]
    assert [(letter.record.data, letter.error_type) for letter in letters] == [(b"5", "ValueError")]


async def test_a_drain_waits_for_what_is_out_and_a_handoff_carries_the_last_checkpoint(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"0", b"1")
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=60) as one:
        batch = await one.reader.delivery.next_batch()
        assert batch is not None
        draining = one.reader.handle.drain(DEADLINE_S)
        await asyncio.sleep(0.05)
        assert not draining.done()
        batch.ack()
        assert await draining
        await one.keeper.end(to="worker-2")
        row = await lease_of(table)
        assert (row.owner, row.checkpoint) == ("worker-2", Checkpoint.at(Position(numbers[-1])))
        assert await one.reader.handle.drain(0.01)


async def test_a_reader_that_is_told_what_to_checkpoint_stores_that_and_the_end_only_when_it_is_told(
    local: LocalKinesis, kinesis: Any
) -> None:
    first, second = put(kinesis, b"0", b"1")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    table = MemoryLeaseTable()
    async with reading(local, table, failover_s=60, cadence=Prompt(), checkpoint_manually=True) as one:
        async with asyncio.timeout(DEADLINE_S):
            while (batch := await one.reader.delivery.next_batch()) is not None:
                batch.ack()
            assert one.reader.ledger.progress.safe.is_end
            assert not now(one.reader.is_over)
            assert one.reader.stored == Checkpoint.TRIM_HORIZON
            for number in (first, second):
                wanted = Checkpoint.at(Position(number))
                one.reader.checkpointing.checkpoint_to(wanted)
                assert await one.reader.checkpointing.until_stored(wanted)
                assert (await lease_of(table)).checkpoint == wanted
            one.reader.checkpointing.checkpoint_to(Checkpoint.SHARD_END)
            assert await one.reader.checkpointing.until_stored(Checkpoint.SHARD_END)
        assert one.reader.is_over
    assert (await lease_of(table)).ended


async def test_before_a_shard_is_let_go_of_its_reader_may_still_checkpoint(local: LocalKinesis, kinesis: Any) -> None:
    (number,) = put(kinesis, b"0")
    table = MemoryLeaseTable()
    wanted = Checkpoint.at(Position(number))
    async with reading(local, table, failover_s=60, checkpoint_manually=True) as one:
        assert await one.take(1) == [b"0"]

        class LastWords(ShardListener):
            async def leaving(self, reader: ShardReader) -> None:
                await asyncio.sleep(0)
                reader.checkpointing.checkpoint_to(wanted)

        one.reader.listen(LastWords())
        assert await one.reader.handle.drain(DEADLINE_S)
        one.reader.handle.hand_over()
        async with asyncio.timeout(DEADLINE_S):
            await one.keeper.end()
    assert (await lease_of(table)).checkpoint == wanted
    assert (await lease_of(table)).owner is None


async def test_a_program_that_does_not_get_ready_to_leave_is_waited_for_until_the_deadline(
    local: LocalKinesis, kinesis: Any
) -> None:
    class Stays(ShardListener):
        async def leaving(self, reader: ShardReader) -> None:
            await asyncio.Event().wait()

    async with reading(local, MemoryLeaseTable(), failover_s=60) as one:
        one.reader.listen(Stays())
        async with asyncio.timeout(DEADLINE_S):
            assert await one.reader.handle.drain(0.05)


async def test_what_a_tenure_says_before_a_part_listens_is_heard_then() -> None:
    table, loop = MemoryLeaseTable(), asyncio.get_running_loop()
    await table.create(LeaseRow(key=SHARD_ID))
    keeper = TenureKeeper(table, claim(await lease_of(table), "one", LeaseTimes.of(60.0), loop.time()))
    keeping = asyncio.create_task(keeper.run())
    async with asyncio.timeout(DEADLINE_S):
        assert await keeper.began
        keeper.handle(tenure_events.StoreCheckpoint(Checkpoint.at(Position(5)), at_once=True))
        while not keeper.row.checkpoint.is_position:
            await asyncio.sleep(0)
        heard: list[Any] = []
        keeper.listen(heard.append)
        assert [type(one) for one in heard] == [tenure_commands.TenureBegan, tenure_commands.CheckpointStored]
        await keeper.end()
        assert [type(one) for one in heard] == [
            tenure_commands.TenureBegan,
            tenure_commands.CheckpointStored,
            tenure_commands.TenureEnded,
        ]
        assert keeper.lost is None
        await keeping
