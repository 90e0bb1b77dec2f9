"""A lease table that fails one worker, or all: no healthy owner loses a lease, no shard is read by two."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Done, writes
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import NotFoundError
from shardway.events import LeaseUpkeepFailed
from shardway.local import Fault, LocalKinesis
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.runtime.consumer.faulty_tables import FaultyTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S, STREAM, Fleet, fleet_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.core.leases import Outcome, Write
    from shardway.runtime.shard.shard_reader import ShardReader

SHARDS = 4
STREAMS = {STREAM: SHARDS}


class Load:
    """Puts records as long as it is open."""

    def __init__(self, kinesis: Any) -> None:
        self.put: set[bytes] = set()
        self._kinesis = kinesis

    async def __aenter__(self) -> Load:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def more(self, count: int) -> None:
        """Wait until so many more are put."""
        wanted = len(self.put) + count
        async with asyncio.timeout(DEADLINE_S):
            while len(self.put) < wanted:
                await asyncio.sleep(0.02)

    async def _run(self) -> None:
        for number in range(10**6):
            datas = {b"%d" % one for one in range(20 * number, 20 * number + 20)}
            records = [{"Data": data, "PartitionKey": data.decode()} for data in datas]
            await asyncio.to_thread(self._kinesis.put_records, StreamName=STREAM, Records=records)
            self.put |= datas
            await asyncio.sleep(0.05)


def readers(fleet: Fleet, name: str) -> dict[str, ShardReader]:
    return {key: held.reader for key, held in fleet.workers[name].held.items()}


async def test_writes_that_are_done_and_answered_with_an_error_cost_a_healthy_owner_nothing(
    local: LocalKinesis, kinesis: Any
) -> None:
    """KCL #2 and #325: the owner of a lease whose renewal was applied, and not answered, gave the shard up."""
    async with fleet_of(local, cadence=Prompt()) as fleet, Load(kinesis) as load:
        table = FaultyTable(fleet.table, Random(7))
        fleet.start("a", table)
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        reading = readers(fleet, "a")
        await fleet.until(lambda: table.answers_lost > 60)
        wanted = set(load.put)
        await fleet.account.until(wanted)
        assert readers(fleet, "a") == reading
        assert {reader.lost for reader in reading.values()} == {None}
        assert set(fleet.account.counts().values()) == {1}
        tokens = {(shard_id, token) for _, shard_id, token, _ in fleet.account.got}
        assert len(tokens) == SHARDS, "the same tenures throughout"


async def test_a_worker_that_is_cut_off_from_the_table_stops_before_the_others_take_its_shards(
    local: LocalKinesis, kinesis: Any
) -> None:
    """It still reaches Kinesis, under load: but for the fence it would deliver for as long as the cut lasts."""
    async with fleet_of(local) as fleet, Load(kinesis) as load:
        cut_off = FaultyTable(fleet.table)
        fleet.start("a", cut_off)
        fleet.start("b")
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        of_a = set(fleet.held()["a"])
        await fleet.until(lambda: {worker for _, worker, _ in fleet.account.times} == {"a", "b"})
        cut_off.is_cut, cut = True, len(fleet.account.times)
        await fleet.until(lambda: len(fleet.held()["b"]) == SHARDS)
        now = len(fleet.account.times)
        await fleet.until(lambda: of_a <= {shard_id for _, worker, shard_id in fleet.account.times[now:]})
        for shard_id in of_a:
            since = [(worker, at_s) for at_s, worker, shard in fleet.account.times[cut:] if shard == shard_id]
            last = max((at_s for worker, at_s in since if worker == "a"), default=0.0)
            assert last < min(at_s for worker, at_s in since if worker == "b")
        cut_off.is_cut = False
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        wanted = set(load.put)
        await fleet.account.until(wanted)
        assert fleet.account.tokens_rise()


@pytest.mark.slow
async def test_a_worker_that_cannot_write_its_leases_leaves_them_to_others_though_its_own_row_moves(
    local: LocalKinesis, kinesis: Any
) -> None:
    async with fleet_of(local, failover_s=1.0) as fleet, Load(kinesis) as load:
        cut_off = FaultyTable(fleet.table)
        fleet.start("a", cut_off)
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        fleet.start("b")
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        cut_off.writes_are_cut = True
        await fleet.until(lambda: len(fleet.held()["b"]) == SHARDS)
        cut_off.writes_are_cut = False
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        await fleet.account.until(set(load.put))
        assert fleet.account.tokens_rise()


@pytest.mark.slow
async def test_after_all_were_cut_off_none_waits_for_the_others(local: LocalKinesis, kinesis: Any) -> None:
    async with fleet_of(local, failover_s=1.0) as fleet, Load(kinesis) as load:
        tables = [FaultyTable(fleet.table), FaultyTable(fleet.table)]
        for name, table in zip("ab", tables, strict=True):
            fleet.start(name, table)
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        for table in tables:
            table.is_cut = True
        await fleet.until(lambda: not any(fleet.held().values()))
        for table in tables:
            table.is_cut = False
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        await fleet.account.until(set(load.put))
        assert fleet.account.tokens_rise()


@pytest.mark.slow
async def test_a_worker_with_another_failover_time_is_waited_for_by_its_own(local: LocalKinesis, kinesis: Any) -> None:
    async with fleet_of(local) as fleet, Load(kinesis) as load:
        slow = FaultyTable(fleet.table)
        fleet.start("slow", slow, failover_s=60.0)
        await fleet.until(lambda: len(fleet.held()["slow"]) == SHARDS)
        quick = fleet.start("quick", failover_s=3.0)
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {SHARDS // 2})
        reading = readers(fleet, "slow")
        slow.is_cut = True
        shown = {row.worker_id: row.counter for row in await fleet.table.workers()}
        leases = {row.key: row.counter for row in (await fleet.table.scan()).rows if row.owner == "quick"}

        def long_ago() -> bool:
            """The quick one has renewed its own leases for longer than its failover time."""
            return all(quick.held[key].keeper.row.counter >= counter + 4 for key, counter in leases.items())

        await fleet.until(long_ago)
        rows = {row.worker_id: row.counter for row in await fleet.table.workers()}
        assert rows["slow"] == shown["slow"], "it was silent for longer than the other's failover time"
        assert set(fleet.held()["quick"]) == set(leases)
        slow.is_cut = False
        await fleet.account.until(set(load.put))
        assert readers(fleet, "slow") == reading
        assert set(fleet.account.counts().values()) == {1}


class CountingTable(MemoryLeaseTable):
    """Counts the writes to each lease."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    async def write(self, write: Write) -> Outcome:
        self.counts[write.key] += 1
        return await super().write(write)


@pytest.mark.parametrize("loaded", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_leases_cost_two_writes_per_failover_time_whatever_is_read_and_settled(
    local: LocalKinesis, kinesis: Any, loaded: bool
) -> None:
    """720 per shard and hour at 10 s. The KCL: 1,100, and 3,205 with a checkpoint after each batch."""
    table = CountingTable()
    async with fleet_of(local, table) as fleet, Load(kinesis) as load:
        if not loaded:
            await load.__aexit__()
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        if loaded:
            await fleet.account.until(set(load.put))
        loop = asyncio.get_running_loop()
        table.counts.clear()
        since_s = loop.time()
        await fleet.until(lambda: min(table.counts.values(), default=0) >= 3)
        failovers = (loop.time() - since_s) / 2.0
        assert max(table.counts.values()) <= 2 * failovers + 1
        if loaded:
            checkpoints = [row.checkpoint for row in (await table.scan()).rows]
            assert all(checkpoint.is_position for checkpoint in checkpoints)


async def test_a_table_that_is_deleted_ends_its_workers_with_an_error_that_names_it(
    local: LocalKinesis, kinesis: Any, tmp_path: Path
) -> None:
    """Nothing is delivered without a lease, and no worker makes the table anew, as if nothing had ever been read."""
    path = tmp_path / "leases.sqlite"
    fleet = Fleet(local, SqliteLeaseTable(path))
    try:
        async with Load(kinesis) as load:
            fleet.start("a")
            await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS and bool(load.put))
            await fleet.account.until(set(load.put))
            with contextlib.closing(sqlite3.connect(path, timeout=DEADLINE_S, isolation_level=None)) as other:
                other.execute('DROP TABLE "leases"')
            with pytest.raises(NotFoundError, match="no such table: leases"):
                await fleet.until(lambda: False)
            delivered = len(fleet.account.got)
            await load.more(100)
            assert len(fleet.account.got) == delivered
    finally:
        await fleet.close()
        await fleet.table.close()


async def test_writes_that_the_tables_capacity_refuses_for_longer_than_the_failover_time(
    local: LocalKinesis, kinesis: Any
) -> None:
    """Delivering stops in time, though no other worker is there, and goes on once there is capacity again."""
    async with fleet_of(local, failover_s=1.0) as fleet, Load(kinesis) as load:
        table = FaultyTable(fleet.table)
        fleet.start("a", table)
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        await fleet.account.until(set(load.put))
        table.writes_are_cut = True
        await fleet.until(lambda: not any(held.keeper.may_deliver() for held in fleet.workers["a"].held.values()))
        await load.more(40)  # what was delivered before has arrived
        delivered = len(fleet.account.got)
        await load.more(100)
        assert len(fleet.account.got) == delivered
        table.writes_are_cut = False
        await fleet.account.until(set(load.put))
        assert fleet.account.tokens_rise()


async def test_listings_that_the_account_refuses_hold_up_neither_the_start_nor_a_merge(
    local: LocalKinesis, kinesis: Any
) -> None:
    """ListShards is also asked by other programs that are deployed at the same time."""
    refused = Fault(how="error", operation="ListShards", code="LimitExceededException", message="slower", count=3)
    local.faults.add(refused)
    async with fleet_of(local, failover_s=10.0) as fleet, Load(kinesis) as load:
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS)
        assert local.stats().operations["ListShards"].calls > 3
        shards = sorted(fleet.held()["a"])
        local.faults.add(refused)
        kinesis.merge_shards(StreamName=STREAM, ShardToMerge=shards[0], AdjacentShardToMerge=shards[1])
        await fleet.until(lambda: len(fleet.held()["a"]) == SHARDS - 1)
        await fleet.account.until(set(load.put))
        assert set(fleet.account.counts().values()) == {1}


async def test_a_search_for_missing_leases_that_failed_is_soon_made_again(local: LocalKinesis, kinesis: Any) -> None:
    """A shard without a lease waits for it, which is longer than all is cleaned up where nothing fails."""
    async with fleet_of(local, failover_s=1.0, upkeep_interval_s=3600.0) as fleet:
        fleet.start("first")
        await fleet.until(lambda: len(fleet.held()["first"]) == SHARDS)
        await fleet.stop("first")
        row = sorted((await fleet.table.scan()).rows, key=lambda row: row.key)[0]
        assert isinstance(await fleet.table.write(writes.delete(row)), Done)
        local.faults.add(
            Fault(how="error", operation="ListShards", code="AccessDeniedException", message="no", count=1)
        )
        fleet.start("second")
        await fleet.until(lambda: len(fleet.held()["second"]) == SHARDS)
        told = [event for event in fleet.account.events if isinstance(event, LeaseUpkeepFailed)]
        assert [(event.reason, event.retry_in_s) for event in told] == [("AccessDeniedException", 1.0)]
