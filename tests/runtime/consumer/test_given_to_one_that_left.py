"""A lease is given to a worker that leaves at the same moment. The giver looks once more, and frees the lease: nothing
waits for the failover time, which is longer here than a test may take.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases.conditional_write import Done, Kind, Unknown
from shardway.local import LocalKinesis
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.faulty_tables import FaultyTable
from tests.runtime.consumer.fleet_kit import DEADLINE_S, STREAM, Fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.core.leases import Outcome, Write
    from shardway.core.leases.worker_row import WorkerRow

pytestmark = pytest.mark.timeout(DEADLINE_S)
SHARDS = 4
NEVER_S = 300.0
LATE_S = 0.3
FAILOVER_S = 1.0


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: SHARDS}) as service:
        yield service


class SlowGives(FaultyTable):
    """Gives arrive once the receiver has gone. It does not see before that a lease is meant for it: else it waits."""

    def __init__(self, table: MemoryLeaseTable) -> None:
        super().__init__(table)
        self.given = asyncio.Event()
        self.let_through = asyncio.Event()
        self.arrived = asyncio.Event()

    async def write(self, write: Write) -> Outcome:
        if write.kind is not Kind.GIVE:
            return await super().write(write)
        self.given.set()
        await self.let_through.wait()
        outcome = await super().write(write)
        self.arrived.set()
        return outcome

    async def put_worker(self, row: WorkerRow) -> Outcome:
        if row.given:
            await self.let_through.wait()
        return await super().put_worker(row)


class SlowRows(FaultyTable):
    """A write of the worker's row takes longer than the worker needs to leave. It arrives also where the worker does
    not wait for its answer any more, as on a network.
    """

    def __init__(self, table: MemoryLeaseTable) -> None:
        super().__init__(table)
        self.under_way: asyncio.Future[Outcome] | None = None
        """The write that was sent last."""

    async def put_worker(self, row: WorkerRow) -> Outcome:
        if not row.leaving:
            return await super().put_worker(row)
        self.under_way = asyncio.ensure_future(self._arrive_late(row))
        return await asyncio.shield(self.under_way)

    async def _arrive_late(self, row: WorkerRow) -> Outcome:
        await asyncio.sleep(LATE_S)
        return await super().put_worker(row)


async def owners(table: MemoryLeaseTable) -> list[Any]:
    return [row.owner for row in (await table.scan()).rows]


async def until_the_giver_has_all(table: MemoryLeaseTable) -> None:
    while await owners(table) != ["giver"] * SHARDS:
        await asyncio.sleep(0.01)


async def begun(local: LocalKinesis) -> tuple[MemoryLeaseTable, SlowGives, Fleet]:
    """A giver that holds all shards, and a receiver that has asked for its part, and is being given it."""
    table = MemoryLeaseTable()
    slow, fleet = SlowGives(table), Fleet(local, table, failover_s=NEVER_S, warm_deadline_s=0.0)
    fleet.start("giver", slow)
    async with asyncio.timeout(DEADLINE_S / 2):
        await until_the_giver_has_all(table)
        fleet.start("receiver")
        await slow.given.wait()
    return table, slow, fleet


async def test_a_giver_that_stays_takes_it_back(local: LocalKinesis) -> None:
    table, slow, fleet = await begun(local)
    try:
        await fleet.stop("receiver")
        slow.let_through.set()
        await slow.arrived.wait()
        async with asyncio.timeout(DEADLINE_S / 2):
            await until_the_giver_has_all(table)
    finally:
        await fleet.close()


async def test_a_giver_that_leaves_too_frees_it(local: LocalKinesis) -> None:
    table, slow, fleet = await begun(local)
    try:
        stopping = asyncio.create_task(fleet.stop("giver"))
        await fleet.stop("receiver")
        slow.let_through.set()
        await stopping
        assert await owners(table) == [None] * SHARDS
    finally:
        await fleet.close()


async def test_a_row_that_is_on_its_way_when_its_worker_leaves_shows_no_worker_that_is_not_there(
    local: LocalKinesis,
) -> None:
    table = MemoryLeaseTable()
    slow, fleet = SlowRows(table), Fleet(local, table, failover_s=NEVER_S, warm_deadline_s=0.0)
    fleet.start("giver", slow)
    try:
        async with asyncio.timeout(DEADLINE_S / 2):
            await until_the_giver_has_all(table)
        await fleet.stop("giver")
        assert await owners(table) == [None] * SHARDS
        assert slow.under_way is not None
        await slow.under_way
        assert await table.workers() == []
    finally:
        await fleet.close()


class LateRow(FaultyTable):
    """A write of the worker's row has an unknown outcome, and arrives when the worker has long left."""

    def __init__(self, table: MemoryLeaseTable) -> None:
        super().__init__(table)
        self.late: WorkerRow | None = None

    async def put_worker(self, row: WorkerRow) -> Outcome:
        if row.wanted and self.late is None:
            self.late = row
            return Unknown("no answer")
        return await super().put_worker(row)


async def test_a_row_that_arrives_when_its_worker_has_left_holds_leases_for_its_failover_time_at_most(
    local: LocalKinesis,
) -> None:
    """No condition refuses it, as nothing of the worker is left to compare it with. That is the bound."""
    table = MemoryLeaseTable()
    late, fleet = LateRow(table), Fleet(local, table, failover_s=FAILOVER_S, warm_deadline_s=0.0)
    fleet.start("giver")
    try:
        async with asyncio.timeout(DEADLINE_S):
            await until_the_giver_has_all(table)
            fleet.start("leaver", late)
            while late.late is None:
                await asyncio.sleep(0.01)
            await fleet.stop("leaver")
            await until_the_giver_has_all(table)
            assert isinstance(await table.put_worker(late.late), Done)
            while "leaver" not in [row.owner for row in (await table.scan()).rows]:
                await asyncio.sleep(0.01)
            await until_the_giver_has_all(table)
    finally:
        await fleet.close()
