"""Each kind of write to the tables is done, or is not, and answered with an error: nothing is lost, nothing repeated.

KCL #2 and #325 were of one kind, a renewal. Here the first answers of every kind are lost, to every worker, in a life
that has them all: begin, checkpoint, join, hand over, reshard, clean up, give up, leave.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Done, Kind, Unknown, Write
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.local import LocalKinesis
from tests.runtime.consumer.faulty_tables import FaultyTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S, STREAM, fleet_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from shardway.core.leases import LeaseRow, Outcome
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.ports import LeaseTable

LOST = 2
"""So many answers of each kind, to each worker."""
KINDS = {
    Kind.TAKE, Kind.RENEW, Kind.CHECKPOINT, Kind.GIVE, Kind.FREE, Kind.METADATA, Kind.DELETE,
    "create", "put_worker", "delete_worker",
}  # fmt: skip


class LosingTable(FaultyTable):
    """Answers the first writes of each kind with an error: they were done, or (``applied`` False) were not."""

    def __init__(self, table: LeaseTable, lost: Counter[str], *, applied: bool) -> None:
        super().__init__(table)
        self._lost = lost
        self._mine: Counter[str] = Counter()
        self._applied = applied
        self.notes: dict[str, Outcome] = {}
        """Of each ended shard, what became of the last try to write down its children."""

    async def write(self, write: Write) -> Outcome:
        outcome = await self._lose(write.kind, self._table.write(write))
        if write.kind is Kind.METADATA:
            self.notes[write.key] = outcome
        return outcome

    async def create(self, row: LeaseRow) -> Outcome:
        return await self._lose("create", self._table.create(row))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        return await self._lose("put_worker", self._table.put_worker(row))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        return await self._lose("delete_worker", self._table.delete_worker(worker_id, counter=counter))

    async def _lose(self, kind: str, call: Coroutine[Any, Any, Outcome]) -> Outcome:
        loses = self._mine[kind] < LOST
        if loses and not self._applied:
            call.close()
        else:
            outcome = await call
            if not loses or not isinstance(outcome, Done):
                return outcome
        self._mine[kind] += 1
        self._lost[kind] += 1
        return Unknown("the connection was reset")


STREAMS = {STREAM: 2}


class Log:
    """Records that are put over the whole hash range, and the shards as an operator changes them."""

    def __init__(self, kinesis: Any) -> None:
        self.put: set[bytes] = set()
        self._kinesis = kinesis

    async def more(self, count: int = 40) -> None:
        numbers = range(len(self.put), len(self.put) + count)
        records: list[dict[str, Any]] = [
            {"Data": b"%d" % one, "PartitionKey": "k", "ExplicitHashKey": str(one % 8 * (2**128 // 8))}
            for one in numbers
        ]
        await asyncio.to_thread(self._kinesis.put_records, StreamName=STREAM, Records=records)
        self.put |= {record["Data"] for record in records}

    def open(self) -> list[dict[str, Any]]:
        shards = self._kinesis.list_shards(StreamName=STREAM)["Shards"]
        found = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(found, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self) -> None:
        self._kinesis.split_shard(
            StreamName=STREAM, ShardToSplit=self.open()[0]["ShardId"], NewStartingHashKey=str(2**126)
        )

    def merge(self) -> None:
        left, right = [shard["ShardId"] for shard in self.open()[:2]]
        self._kinesis.merge_shards(StreamName=STREAM, ShardToMerge=left, AdjacentShardToMerge=right)


@pytest.mark.parametrize(
    "applied", [pytest.param(True, id="done"), pytest.param(False, id="not done", marks=pytest.mark.slow)]
)
async def test_every_kind_of_write_that_is_answered_with_an_error_costs_nothing(
    local: LocalKinesis, kinesis: Any, applied: bool
) -> None:
    lost: Counter[str] = Counter()
    log = Log(kinesis)
    async with fleet_of(local, cadence=Prompt(), failover_s=15.0, upkeep_interval_s=0.2) as fleet:
        account = fleet.account

        tables = {name: LosingTable(fleet.table, lost, applied=applied) for name in "ab"}

        def start(name: str) -> None:
            fleet.start(name, tables[name])

        async def until_read(count: int = 40) -> None:
            await log.more(count)
            await account.until(log.put)

        async def until_leases_are(wanted: set[str]) -> None:
            async with asyncio.timeout(DEADLINE_S):
                while {row.key for row in (await fleet.table.scan()).rows} != wanted:
                    await asyncio.sleep(0.02)

        start("a")
        await until_read()
        start("b")
        await fleet.until(lambda: {len(held) for held in fleet.held().values()} == {1})
        await until_read()
        for change in (log.split, log.merge):
            change()
            await until_read()
            await until_leases_are({shard["ShardId"] for shard in log.open()})
        holder = next(name for name, held in fleet.held().items() if held)
        fleet.workers[holder].give_up(min(fleet.held()[holder]), 60.0)
        await until_read()
        await fleet.stop("a")
        await until_read()
        await fleet.until(lambda: lost[Kind.RENEW] > 0)
        await fleet.stop("b")
        rows = (await fleet.table.scan()).rows
        assert {row.owner for row in rows} == {None}
        assert set(account.counts()) == log.put
        assert set(account.counts().values()) == {1}
        assert account.tokens_rise()
        assert set(lost) == KINDS
        newest: dict[int, int] = {}
        for *_, data in account.got:
            number = int(data)
            assert newest.get(number % 8, -1) < number, "out of order"
            newest[number % 8] = number
        notes = [*tables["a"].notes.values(), *tables["b"].notes.values()]
        assert len(notes) == 3
        assert not any(isinstance(outcome, Unknown) for outcome in notes), "the KCL's cleanup goes by them"
        if applied:
            assert await fleet.table.workers() == []
