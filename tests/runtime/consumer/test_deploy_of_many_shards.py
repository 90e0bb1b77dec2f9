"""A worker with many shards makes room for its successor: leases are looked at side by side, and handed over."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from face_kit import DEADLINE_S, settings, until

from penstock import AssignedShard, Consumer, MemoryLeaseTable
from penstock.runtime.shard.origin import Origin
from penstock.runtime.waiting import LOOKS_AT_ONCE_MAX
from penstock.testing.memory_stream import MemoryStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.leases import LeaseRow

pytestmark = pytest.mark.timeout(DEADLINE_S)
SHARDS = 2 * LOOKS_AT_ONCE_MAX


class CountingTable(MemoryLeaseTable):
    """It answers a look when others had the time to come; how many were there at the same time."""

    now = most = 0

    async def get(self, key: str) -> LeaseRow | None:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(LOOKS_AT_ONCE_MAX):
            await asyncio.sleep(0)
        self.now -= 1
        return await super().get(key)


async def test_the_leases_on_their_way_are_looked_at_side_by_side_and_none_is_freed() -> None:
    stream, table = MemoryStream(shards=SHARDS), CountingTable()
    origins: Counter[Origin] = Counter()

    async def came(shards: Sequence[AssignedShard]) -> None:
        origins.update(one.origin for one in shards)

    def consumer(name: str, **told: object) -> Consumer:
        chosen = settings(drain_deadline_s=DEADLINE_S, warm_deadline_s=DEADLINE_S)
        return Consumer(
            stream.source(), application="many", worker_id=name, leases=table, settings=chosen, **told  # type: ignore[arg-type]
        )  # fmt: skip

    async with consumer("old") as old:
        await until(lambda: len(old.statistics().shards) == SHARDS)
        async with consumer("new", on_shards_assigned=came) as new:
            await until(lambda: len(new.statistics().shards) == SHARDS // 2)
            await old.close()
            await until(lambda: len(new.statistics().shards) == SHARDS)
            await until(lambda: origins.total() == SHARDS)
    assert 1 < table.most <= LOOKS_AT_ONCE_MAX
    assert origins == {Origin.HANDED_OVER: SHARDS}
