"""A start at LATEST beside a service whose clock is ten minutes behind this machine's: no record is passed over."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway import StartingPosition, SyncConsumer
from shardway.local import LocalKinesis
from shardway.options import LeaseOptions
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put
from tests.runtime.consumer.test_starts_at_latest import readers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(DEADLINE_S)
BEHIND_S = 600.0
SHARDS = 2


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: SHARDS}, clock_start_s=time.time() - BEHIND_S) as service:
        yield service


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Returns the lease table for one more consumer."""
    table = MemoryLeaseTable()
    made: dict[str, Callable[[], Any]] = {
        "memory": lambda: table,
        "sqlite": lambda: SqliteLeaseTable(tmp_path / "leases.db", busy_timeout_s=10.0),
        "dynamodb": lambda: LeaseOptions(request_timeout_s=30.0),
    }
    return made[request.param]


async def test_what_comes_after_the_first_start_is_read(
    local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]
) -> None:
    async with readers_of(local, leases) as readers:
        old = await readers.start()
        while len(old.shards) < SHARDS:
            await asyncio.sleep(0.01)
        begun_s = local.clock.now()
        readers.all.remove(old)
        await old.stop()
        wanted = set(put(kinesis, range(50)))
        new = await readers.start()
        while not wanted <= new.handled:
            await asyncio.sleep(0.01)
        assert new.handled == wanted
    assert begun_s < local.clock.now() < time.time() - BEHIND_S / 2


def test_a_consumer_for_threads_reads_what_comes_after_its_first_start(local: LocalKinesis, kinesis: Any) -> None:
    table = MemoryLeaseTable()
    got: set[bytes] = set()

    def consumer() -> SyncConsumer[Any]:
        found: SyncConsumer[Any] = consumer_of(
            local, table, face=SyncConsumer[Any], starting_position=StartingPosition.LATEST
        )
        return found

    waiting = threading.Event()
    with consumer() as first:
        while len(first.statistics().shards) < SHARDS:
            waiting.wait(0.01)
    wanted = set(put(kinesis, range(20)))
    with consumer() as second:
        for batch in second:
            with batch:
                got.update(record.data for record in batch)
            if wanted <= got:
                break
    assert got == wanted
