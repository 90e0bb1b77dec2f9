"""Workers share a stream's shards: none is read by two, none is left out, and every record arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Done, writes
from shardway.core.leases.conditional_write import Kind
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.local import LocalKinesis
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import STREAM, Fleet, fleet_of

if TYPE_CHECKING:
    from shardway.core.leases import Outcome, Write
    from shardway.core.leases.listing import Listing

SHARDS = 8
STREAMS = {STREAM: SHARDS}


def put(kinesis: Any, start: int, stop: int) -> set[bytes]:
    datas = [b"%d" % number for number in range(start, stop)]
    for at in range(0, len(datas), 100):
        answer = kinesis.put_records(
            StreamName=STREAM,
            Records=[{"Data": data, "PartitionKey": data.decode()} for data in datas[at : at + 100]],
        )
        assert answer["FailedRecordCount"] == 0
    return set(datas)


async def test_one_worker_reads_all_shards(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 400)
    async with fleet_of(local) as fleet:
        fleet.start("a")
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        assert len(fleet.held()["a"]) == SHARDS
        await fleet.stop("a")
        rows = (await fleet.table.scan()).rows
        assert {row.owner for row in rows} == {None}
        assert await fleet.table.workers() == []
        fleet.start("b")  # goes on behind what was settled
        more = put(kinesis, 400, 500)
        await fleet.account.until(wanted | more)
        assert set(fleet.account.counts().values()) == {1}


async def test_a_worker_that_joins_gets_its_share_by_handoffs_and_nothing_comes_twice(
    local: LocalKinesis, kinesis: Any
) -> None:
    wanted = put(kinesis, 0, 200)
    async with fleet_of(local) as fleet:
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        fleet.start("b")
        for number in range(2, 12):
            wanted |= await asyncio.to_thread(put, kinesis, number * 100, number * 100 + 100)
            await asyncio.sleep(0.05)
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        wanted |= put(kinesis, 1200, 1300)
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        assert fleet.account.tokens_rise()


async def test_a_deploy_one_by_one_loses_and_repeats_nothing(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 100)
    async with fleet_of(local) as fleet:
        for name in ("a", "b", "c"):
            fleet.start(name)
        await fleet.until(lambda: sum(map(len, fleet.held().values())) == SHARDS and all(fleet.held().values()))
        for number, old in enumerate(("a", "b", "c")):
            fleet.start(f"new-{old}")
            wanted |= await asyncio.to_thread(put, kinesis, 1000 * (number + 1), 1000 * (number + 1) + 200)
            await fleet.stop(old)
        wanted |= put(kinesis, 5000, 5100)
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        assert fleet.account.tokens_rise()
        await fleet.until(lambda: sum(map(len, fleet.held().values())) == SHARDS)


class NotingTable(MemoryLeaseTable):
    """Notes the kinds of the writes to leases."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[Kind] = []

    async def write(self, write: Write) -> Outcome:
        self.kinds.append(write.kind)
        return await super().write(write)


async def test_a_worker_that_leaves_gives_each_shard_to_a_warm_receiver(local: LocalKinesis, kinesis: Any) -> None:
    """None is freed for any worker that comes, none is waited for until a deadline: that would be a gap."""
    put(kinesis, 0, 100)
    table = NotingTable()
    async with fleet_of(local, table, warm_deadline_s=30.0, drain_deadline_s=30.0) as fleet:
        fleet.start("a")
        fleet.start("b")
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        table.kinds.clear()
        await fleet.stop("a")
        assert table.kinds.count(Kind.GIVE) == SHARDS // 2
        assert Kind.FREE not in table.kinds
        await fleet.until(lambda: len(fleet.held()["b"]) == SHARDS)


class GivingTable(MemoryLeaseTable):
    """Once told, its next whole look at the leases comes just after another worker gave one away."""

    to: str | None = None

    async def scan(self, *, consistent: bool = False) -> Listing:
        if self.to is not None:
            row = next(iter((await super().scan()).rows))
            taken = await super().write(writes.take(row, "another"))
            assert isinstance(taken, Done)
            assert taken.row is not None
            await super().write(writes.give(taken.row, self.to))
            self.to = None
        return await super().scan(consistent=consistent)


async def test_what_is_given_to_a_worker_in_the_moment_it_leaves_is_free_at_once(
    local: LocalKinesis, kinesis: Any
) -> None:
    """It holds nothing any more: no worker would read the shard until the failover time is over."""
    put(kinesis, 0, 100)
    table = GivingTable()
    async with fleet_of(local, table) as fleet:
        worker = fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        leave = worker._leave

        async def leaving() -> None:
            assert worker.held == {}
            table.to = "a"
            await leave()

        worker._leave = leaving  # type: ignore[method-assign]
        await fleet.stop("a")
        assert table.to is None
        assert {row.owner for row in (await table.scan()).rows} == {None}


async def test_the_shards_of_a_dead_worker_are_taken_over_after_the_failover_time(
    local: LocalKinesis, kinesis: Any
) -> None:
    wanted = put(kinesis, 0, 200)
    async with fleet_of(local, failover_s=1.0, cadence=Prompt()) as fleet:
        fleet.start("a")
        fleet.start("b")
        await fleet.until(lambda: sum(map(len, fleet.held().values())) == SHARDS and all(fleet.held().values()))
        await fleet.account.until(wanted)
        await asyncio.sleep(0.5)
        await fleet.kill("a")
        wanted |= put(kinesis, 200, 400)
        await fleet.account.until(wanted)
        assert fleet.account.tokens_rise()
        assert len(fleet.held()["b"]) == SHARDS
        assert set(fleet.account.counts().values()) == {1}


async def test_a_split_and_a_merge_while_two_workers_run(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, 200)
    async with fleet_of(local) as fleet:
        fleet.start("a")
        fleet.start("b")
        await fleet.until(lambda: sum(map(len, fleet.held().values())) == SHARDS)
        kinesis.split_shard(StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**124))
        wanted |= put(kinesis, 200, 400)
        await wait_active(kinesis)
        kinesis.merge_shards(
            StreamName=STREAM, ShardToMerge="shardId-000000000001", AdjacentShardToMerge="shardId-000000000002"
        )
        wanted |= put(kinesis, 400, 600)
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        # Two ended as one came of them, and one ended as two came of it.
        await fleet.until(lambda: sum(map(len, fleet.held().values())) == SHARDS)
        shards = {shard_id for held in fleet.held().values() for shard_id in held}
        assert shards.isdisjoint({"shardId-000000000000", "shardId-000000000001", "shardId-000000000002"})


async def wait_active(kinesis: Any) -> None:
    async with asyncio.timeout(20):
        while True:
            summary = await asyncio.to_thread(kinesis.describe_stream_summary, StreamName=STREAM)
            if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                return
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_worker_with_a_living_workers_name_takes_nothing_from_it(local: LocalKinesis, kinesis: Any) -> None:
    """Two processes were given one id: which of them a lease belongs to, its row does not tell."""
    wanted = put(kinesis, 0, 100)
    async with fleet_of(local, failover_s=4.0) as fleet:
        fleet.start("a")
        await fleet.account.until(wanted)
        readers = {key: held.reader for key, held in fleet.workers["a"].held.items()}
        twin = Fleet(local, fleet.table, failover_s=4.0)
        try:
            other = twin.start("a")
            counters = {row.key: row.counter for row in (await fleet.table.scan()).rows}
            async with asyncio.timeout(40):
                while True:
                    rows = {row.key: row.counter for row in (await fleet.table.scan()).rows}
                    if all(rows[key] >= counter + 2 for key, counter in counters.items()):
                        break
                    await asyncio.sleep(0.02)
            assert other.held == {}
            await twin.stop("a")
            assert {key: held.reader for key, held in fleet.workers["a"].held.items()} == readers
            assert all(not reader.is_over for reader in readers.values())
        finally:
            await twin.close()


async def test_a_worker_that_comes_back_with_its_name_goes_on_with_its_leases(
    local: LocalKinesis, kinesis: Any
) -> None:
    wanted = put(kinesis, 0, 100)
    async with fleet_of(local, cadence=Prompt()) as fleet:
        fleet.start("a")
        await fleet.account.until(wanted)
        await fleet.kill("a")
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        wanted |= put(kinesis, 100, 200)
        await fleet.account.until(wanted)
        assert fleet.account.tokens_rise()
