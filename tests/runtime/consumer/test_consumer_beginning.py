"""Between the moment when a lease is a worker's and the moment when it delivers, the worker does not take it again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.local import LocalKinesis
from shardway.runtime.worker.reading_ahead import WarmUp
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer.fleet_kit import STREAM, Fleet

if TYPE_CHECKING:
    import pytest

    from shardway.runtime.shard.shard_reader import ShardReader

SHARDS = 4


class Counting(Fleet):
    """Knows each reader that was delivered."""

    def __init__(self, local: LocalKinesis) -> None:
        super().__init__(local, MemoryLeaseTable())
        self.begun: list[ShardReader] = []

    async def _handle(self, name: str, reader: ShardReader) -> None:
        self.begun.append(reader)
        await super()._handle(name, reader)


async def test_a_tenure_whose_warm_up_ends_slowly_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = WarmUp.stop

    async def slowly(warming: WarmUp) -> None:
        await stop(warming)
        await asyncio.sleep(0.5)  # several rounds of the worker

    monkeypatch.setattr(WarmUp, "stop", slowly)
    with LocalKinesis(streams={STREAM: SHARDS}) as local:
        fleet = Counting(local)
        try:
            fleet.start("first")
            await fleet.until(lambda: len(fleet.held().get("first", ())) == SHARDS)
            fleet.start("second")
            await fleet.until(lambda: [len(one) for one in fleet.held().values()] == [2, 2])
            await asyncio.sleep(1.5)  # a second tenure would take the lease from the first one, which ends then
            assert len(fleet.begun) == SHARDS + 2
            assert sum(reader.is_over for reader in fleet.begun) == 2
        finally:
            await fleet.close()
