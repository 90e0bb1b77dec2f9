"""Which worker reads what, by choice, with real ones: lists, a function, by throughput; and rows of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardway import OptionError
from shardway.core.leases import Checkpoint, LeaseRow, writes
from shardway.leases import ByThroughput, Fixed
from shardway.local import LocalKinesis
from shardway.model import HASH_KEY_MAX
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import STREAM, Fleet, fleet_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.assignment.views import LeaseView, WorkerView

ZERO, ONE, TWO, THREE, FOUR = (f"shardId-{number:012d}" for number in range(5))
STREAMS = {STREAM: 4}


def put(kinesis: Any, shard: int, *datas: bytes) -> set[bytes]:
    """Into one of the four shards."""
    middle = str((2 * shard + 1) * (HASH_KEY_MAX // 8))
    records = [{"Data": data, "PartitionKey": "k", "ExplicitHashKey": middle} for data in datas]
    assert kinesis.put_records(StreamName=STREAM, Records=records)["FailedRecordCount"] == 0
    return set(datas)


async def test_fixed_lists_hold_also_for_the_children(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, 0, b"a") | put(kinesis, 3, b"b")
    lists = Fixed({"few": [ZERO], "many": [ONE, TWO, THREE]})
    async with fleet_of(local, strategy=lists) as fleet:
        fleet.start("few")
        await fleet.until(lambda: len(fleet.held()["few"]) == 4)  # no other worker is there
        fleet.start("many")
        await fleet.until(lambda: fleet.held() == {"few": {ZERO}, "many": {ONE, TWO, THREE}})
        await fleet.account.until(wanted)
        quarter = HASH_KEY_MAX // 4
        kinesis.split_shard(StreamName=STREAM, ShardToSplit=ZERO, NewStartingHashKey=str(quarter // 2))
        wanted |= put(kinesis, 0, b"c")
        await fleet.until(lambda: fleet.held() == {"few": {FOUR, f"shardId-{5:012d}"}, "many": {ONE, TWO, THREE}})
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}


async def test_a_function_of_the_users_says_which_worker_reads_what(local: LocalKinesis, kinesis: Any) -> None:
    """Here all goes to the worker whose name is the last one; what the function leaves out no worker reads."""

    def last_one(leases: Sequence[LeaseView], workers: Sequence[WorkerView]) -> Mapping[str, str]:
        last = max(worker.id for worker in workers)
        return {lease.key: last for lease in leases if lease.key != THREE}

    wanted = put(kinesis, 0, b"a") | put(kinesis, 1, b"b")
    put(kinesis, 3, b"no worker's")
    async with fleet_of(local, strategy=last_one) as fleet:
        fleet.start("a")
        await fleet.until(lambda: fleet.held() == {"a": {ZERO, ONE, TWO}})
        fleet.start("b")
        await fleet.until(lambda: fleet.held() == {"a": set(), "b": {ZERO, ONE, TWO}})
        wanted |= put(kinesis, 2, b"c")
        await fleet.account.until(wanted)
        assert fleet.account.counts() == dict.fromkeys(wanted, 1)


async def test_a_function_that_names_a_worker_that_is_not_there_is_told(local: LocalKinesis) -> None:
    """Else no worker would read its shards, and nothing would say why."""
    fleet = Fleet(local, MemoryLeaseTable(), strategy=lambda leases, workers: {lease.key: "c" for lease in leases})
    fleet.start("a")
    try:
        with pytest.raises(OptionError, match="names a worker 'c' that is not there"):
            await fleet.until(lambda: False)
    finally:
        await fleet.close()


async def test_by_throughput_the_busy_shard_has_a_worker_of_its_own(local: LocalKinesis, kinesis: Any) -> None:
    """By equal counts each would have two shards for ever."""
    async with fleet_of(local, strategy=ByThroughput(tolerance=0.2)) as fleet:
        fleet.start("a")
        fleet.start("b")
        shares = {frozenset({ZERO}), frozenset({ONE, TWO, THREE})}

        async def load() -> None:
            for number in range(10**6):
                await asyncio.to_thread(put, kinesis, 0, b"%d" % number + b"x" * 2000)
                await asyncio.sleep(0.01)

        loading = asyncio.create_task(load())
        await fleet.until(lambda: set(map(frozenset, fleet.held().values())) == shares)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        rows = {row.key: row.throughput_kib_s for row in (await fleet.table.scan()).rows}
        assert (rows[ZERO] or 0.0) > 10 * max(rows[key] or 0.0 for key in (ONE, TWO, THREE))


# --- a table that others use, too ----------------------------------------------------------------------


def of_others() -> list[LeaseRow]:
    """What an application of another stream keeps in the same table: ended, free, and with an owner that is silent."""
    key = "123456789012:payments:1700000000"
    row = LeaseRow(
        key=f"{key}:{ZERO}", stream=key, shard_id=ZERO, checkpoint=Checkpoint.TRIM_HORIZON, first_hash_key=0,
        last_hash_key=HASH_KEY_MAX,
    )  # fmt: skip
    return [
        replace(row, key=f"{key}:{ONE}", shard_id=ONE, checkpoint=Checkpoint.SHARD_END, children=frozenset({TWO})),
        replace(row, key=f"{key}:{TWO}", shard_id=TWO, owner="silent since long ago", counter=7),
        row,
    ]


async def rows_of_others(fleet: Fleet) -> list[LeaseRow]:
    return sorted(
        (row for row in (await fleet.table.scan()).rows if row.stream is not None), key=lambda row: row.key
    )  # fmt: skip


async def test_rows_of_other_applications_in_the_table_are_left_alone(local: LocalKinesis, kinesis: Any) -> None:
    """They are not read, taken over, cleaned up or counted as holes, while its own are."""
    table = MemoryLeaseTable()
    theirs = of_others()
    for row in theirs:
        await table.create(row)
    before = sorted((await table.scan()).rows, key=lambda row: row.key)
    wanted = put(kinesis, 0, b"a") | put(kinesis, 3, b"b")
    async with fleet_of(local, table, failover_s=1.0, upkeep_interval_s=0.1) as fleet:
        fleet.start("dead")
        await fleet.account.until(wanted)
        await fleet.kill("dead")
        fleet.start("a")  # waits for longer than the failover time of all of them
        await fleet.until(lambda: len(fleet.held()["a"]) == 4)
        async with asyncio.timeout(30):
            # A hole of its own is repaired at the third look, as any of theirs would be.
            while (own := await fleet.table.get(ZERO)) is not None:
                await fleet.table.write(writes.delete(own))
            while await fleet.table.get(ZERO) is None:
                await asyncio.sleep(0.02)
        wanted |= put(kinesis, 0, b"c")
        await fleet.account.until(wanted)
        assert fleet.held() == {"a": {ZERO, ONE, TWO, THREE}}
        assert await rows_of_others(fleet) == before
