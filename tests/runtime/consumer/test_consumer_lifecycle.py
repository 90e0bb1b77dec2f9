"""What callbacks are told of shards that come and go, when, and that they are waited for."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway import StartingPosition
from shardway.core.leases import writes
from shardway.leases import MemoryLeaseTable, Origin
from shardway.local import LocalKinesis
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway import AssignedShard, Batch
    from shardway.core.leases import LeaseRow

pytestmark = pytest.mark.timeout(DEADLINE_S)


class Diary:
    """Writes down what is told; ``on_*`` may be made to wait by ``gate``."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Origin]] = []
        self.shards: list[AssignedShard] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def _note(self, what: str) -> Any:
        async def note(shards: Sequence[AssignedShard]) -> None:
            await self.gate.wait()
            self.told += [(what, shard.shard_id[-1], shard.origin) for shard in shards]
            self.shards += shards

        return note

    def callbacks(self) -> dict[str, Any]:
        return {f"on_shards_{what}": self._note(what) for what in ("assigned", "ended", "revoked", "lost")}


async def test_nothing_is_delivered_before_the_assignment_was_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(5))
    diary = Diary()
    diary.gate.clear()
    async with consumer_of(local, MemoryLeaseTable(), **diary.callbacks()) as consumer:
        await until(lambda: any(shard.records_held == 5 for shard in consumer.statistics().shards))
        assert await consumer.getmany(wait_s=0.02) == []
        diary.gate.set()
        (batch,) = await consumer.getmany()
        assert diary.told == [("assigned", "0", Origin.NEW)]
        assert (diary.shards[0].stream, diary.shards[0].token) == (STREAM, batch.token)
        batch.ack()
    assert [what for what, *_ in diary.told] == ["assigned", "revoked"]


async def test_what_is_gathered_is_settled_while_the_shard_is_revoked(local: LocalKinesis, kinesis: Any) -> None:
    """The other consumer is told that it was handed over, and gets nothing again."""
    wanted = put(kinesis, range(20))
    table, diary, gathered = MemoryLeaseTable(), Diary(), list[Any]()
    got: Counter[bytes] = Counter()

    async def flush(shards: Sequence[AssignedShard]) -> None:
        await asyncio.sleep(0.02)
        while gathered:
            gathered.pop().ack()
        assert [shard.shard_id for shard in shards] == [shard_id]

    async with consumer_of(local, table, on_shards_revoked=flush) as one:
        for batch in await one.getmany():
            shard_id = batch.shard_id
            gathered.append(batch)
            got.update(record.data for record in batch)
        async with consumer_of(local, table, leases_max=1, **diary.callbacks()) as other:
            closing = asyncio.create_task(one.close())
            await until(lambda: diary.told)
            assert diary.told == [("assigned", "0", Origin.HANDED_OVER)]
            await closing
            assert gathered == []
            more = put(kinesis, range(20, 25))
            while set(got) != set(wanted + more):
                for batch in await other.getmany():
                    got.update(record.data for record in batch)
                    batch.ack()
    assert set(got.values()) == {1}


async def test_children_begin_once_the_end_of_their_parent_was_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(10))
    table, diary = MemoryLeaseTable(), Diary()

    async def take(batch: Batch[Any]) -> None:
        taken.append(batch)

    taken: list[Batch[Any]] = []
    async with consumer_of(local, table, **diary.callbacks()) as consumer:
        running = asyncio.create_task(consumer.run_batches(take))
        await until(lambda: sum(map(len, taken)) == 10)
        diary.gate.clear()
        kinesis.split_shard(StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127))
        put(kinesis, range(10, 30))
        rows: dict[str, LeaseRow] = {}
        while len(rows) < 3:  # the children have their leases, and wait
            rows = {row.key[-1]: row for row in (await table.scan()).rows}
            await asyncio.sleep(0.01)
        assert not rows["0"].ended
        assert [batch.shard_id for batch in taken if batch.shard_id[-1] != "0"] == []
        diary.gate.set()
        await until(lambda: sum(map(len, taken)) == 30)
        assert diary.told[:2] == [("assigned", "0", Origin.NEW), ("ended", "0", Origin.NEW)]
        assert sorted(diary.told[2:]) == [("assigned", "1", Origin.NEW), ("assigned", "2", Origin.NEW)]
        await consumer.close()
        await running


async def test_a_shard_that_is_left_is_not_stored_as_ended_before_its_end_was_told(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(10))
    table, diary = MemoryLeaseTable(), Diary()
    async with consumer_of(local, table, **diary.callbacks()) as consumer:
        (batch,) = await consumer.getmany()
        diary.gate.clear()
        kinesis.split_shard(StreamName=STREAM, ShardToSplit=batch.shard_id, NewStartingHashKey=str(2**127))
        while len((await table.scan()).rows) < 3:  # read to its end
            await asyncio.sleep(0.01)
        assert batch.ack()
        iteration = asyncio.create_task(anext(aiter(consumer)))
        await asyncio.sleep(0)
        iteration.cancel()
        await asyncio.wait((iteration,))
        row = await table.get(batch.shard_id)
        while row is None or not row.checkpoint.is_position:  # what is settled is stored as it is left
            await asyncio.sleep(0.01)
            row = await table.get(batch.shard_id)
        assert row.checkpoint.position.sequence_number == batch.records[-1].sequence_number
        assert [what for what, *_ in diary.told] == ["assigned"]
        diary.gate.set()
        while row is None or not row.ended:
            await asyncio.sleep(0.01)
            row = await table.get(batch.shard_id)
        assert ("ended", "0", Origin.NEW) in diary.told


async def test_a_stolen_lease_is_told_as_lost_and_comes_back_as_taken(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))
    table, diary = MemoryLeaseTable(), Diary()
    async with consumer_of(local, table, failover_s=1.0, **diary.callbacks()) as consumer:
        (batch,) = await consumer.getmany()
        row = (await table.scan()).rows[0]
        await table.write(writes.take(row, "a stranger that never reads"))
        taken = ("assigned", "0", Origin.TAKEN)
        await until(lambda: taken in diary.told)
        assert not batch.ack()
        (again,) = await consumer.getmany()
        assert again.token > batch.token
        assert [record.data for record in again] == [record.data for record in batch]
        again.ack()
    assert diary.told[0] == ("assigned", "0", Origin.NEW)
    assert diary.told[diary.told.index(taken) - 1][0] == "lost"


async def test_a_free_shard_is_continued(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))
    table, diary = MemoryLeaseTable(), Diary()
    for _ in range(2):
        async with consumer_of(local, table, **diary.callbacks()) as consumer:
            put(kinesis, [b"more"])
            for batch in await consumer.getmany():
                batch.ack()
    assert [origin for what, _, origin in diary.told if what == "assigned"] == [Origin.NEW, Origin.CONTINUED]


async def test_what_a_callback_raises_is_raised_where_records_are_asked_for(local: LocalKinesis, kinesis: Any) -> None:
    async def refuse(shards: Sequence[AssignedShard]) -> None:
        raise LookupError("no state for it")

    put(kinesis, range(3))
    async with consumer_of(local, MemoryLeaseTable(), on_shards_assigned=refuse) as consumer:
        with pytest.raises(LookupError, match="no state"):
            await consumer.getmany()
    async with consumer_of(local, MemoryLeaseTable(), on_shards_assigned=refuse) as consumer:
        with pytest.raises(LookupError, match="no state"):
            await consumer.run_batches(refuse)


async def test_a_callback_that_hangs_does_not_hold_up_a_close_beyond_its_deadline(
    local: LocalKinesis, kinesis: Any
) -> None:
    table = MemoryLeaseTable()

    async def hang(shards: Sequence[AssignedShard]) -> None:
        await asyncio.Event().wait()

    async with consumer_of(local, table, on_shards_revoked=hang, drain_deadline_s=0.1) as consumer:
        await until(lambda: consumer.statistics().shards)
    assert {row.owner for row in (await table.scan()).rows} == {None}


async def test_a_seek_while_a_shard_is_assigned_is_where_it_begins(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))

    async def begin(shards: Sequence[AssignedShard]) -> None:
        for shard in shards:
            consumer.seek(shard, StartingPosition.TRIM_HORIZON)

    async with consumer_of(
        local, MemoryLeaseTable(), on_shards_assigned=begin, starting_position=StartingPosition.LATEST
    ) as consumer:
        (batch,) = await consumer.getmany()
        assert [record.data for record in batch] == [b"0", b"1", b"2"]
        batch.ack()
