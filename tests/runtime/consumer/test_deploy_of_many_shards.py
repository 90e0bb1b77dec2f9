"""A worker with many shards makes room for its successor: leases are looked at side by side, and handed over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from shardway import AssignedShard, Consumer
from shardway.core.worker import held, state
from shardway.events import ShardLeft
from shardway.leases import MemoryLeaseTable
from shardway.runtime.shard.listener import Origin
from shardway.testing.streams.memory_stream import MemoryStream
from shardway.waiting import LOOKS_AT_ONCE_MAX
from tests.options_kit import arguments_of
from tests.runtime.consumer.face_kit import DEADLINE_S, settings, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.leases import LeaseRow

pytestmark = pytest.mark.timeout(DEADLINE_S)
SHARDS = 2 * LOOKS_AT_ONCE_MAX


class CountingTable(MemoryLeaseTable):
    """It answers a look when others had the time to come; how many were there at the same time."""

    now = most = reads = 0

    async def get(self, key: str) -> LeaseRow | None:
        self.now += 1
        self.reads += 1
        self.most = max(self.most, self.now)
        for _ in range(LOOKS_AT_ONCE_MAX):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().get(key)


async def deploy(table: CountingTable, **of_old: Any) -> Counter[Origin]:
    """A new consumer beside the old one, which is closed when each has half. Returns how the shards came."""
    stream, origins = MemoryStream(shards=SHARDS), Counter[Origin]()

    async def came(shards: Sequence[AssignedShard]) -> None:
        origins.update(one.origin for one in shards)

    def consumer(name: str, **told: Any) -> Consumer[Any]:
        chosen = settings(drain_deadline_s=DEADLINE_S, warm_deadline_s=DEADLINE_S)
        return Consumer(
            stream.source(), application="many", worker_id=name, **told, **arguments_of(leases=table, **chosen)
        )

    async with consumer("old", **of_old) as old:
        await until(lambda: len(old.statistics().shards) == SHARDS)
        async with consumer("new", on_shards_assigned=came) as new:
            await until(lambda: len(new.statistics().shards) == SHARDS // 2)
            await old.close()
            await until(lambda: len(new.statistics().shards) == SHARDS)
            await until(lambda: origins.total() == SHARDS)
    return origins


async def test_the_leases_on_their_way_are_looked_at_side_by_side_and_none_is_freed() -> None:
    table = CountingTable()
    origins = await deploy(table)
    assert 1 < table.most <= LOOKS_AT_ONCE_MAX
    assert origins == {Origin.HANDED_OVER: SHARDS}


async def test_many_that_are_awaited_are_seen_in_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "READS_MAX", 0)
    monkeypatch.setattr(state, "LEASES_PER_READ_MAX", SHARDS)
    table = CountingTable()
    assert await deploy(table) == {Origin.HANDED_OVER: SHARDS}
    assert table.reads <= 3 * SHARDS  # to warm up, and when the offer is seen


async def test_few_stop_at_a_time_so_that_none_waits_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "STOPS_AT_ONCE", 4)
    monkeypatch.setattr(held, "STOPPING_TURNS_MAX", SHARDS)
    monkeypatch.setattr(held, "STOP_COUNTS_S", float("inf"))
    stopped, most = 0, 0

    async def goes(shards: Sequence[AssignedShard]) -> None:
        nonlocal stopped, most
        stopped += len(shards)
        most = max(most, stopped)

    def left(event: Any) -> None:
        nonlocal stopped
        stopped -= isinstance(event, ShardLeft)

    origins = await deploy(CountingTable(), on_shards_revoked=goes, on_event=left)
    assert origins == {Origin.HANDED_OVER: SHARDS}
    assert 1 <= most <= 4
