"""Worker processes whose leases are in a PostgreSQL server that is restarted, killed, and told to end connections: no
worker ends by itself, and every record comes once.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from tests.local.botoclient import client_of
from tests.runtime.consumer.copying_kit import Copiers, Load
from tests.runtime.consumer.copying_process import STREAM
from tests.stores import postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

asyncpg = pytest.importorskip("asyncpg")
WORKERS = 3
OFTEN = [pytest.mark.slow, pytest.mark.timeout(900)]
TERMINATE = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


@pytest.fixture
def server() -> Iterator[postgres_server.PostgresServer]:
    """A server of the test's own."""
    try:
        with postgres_server.started() as found:
            yield found
    except postgres_server.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    """A local Kinesis with the copiers' stream."""
    with LocalKinesis(streams={STREAM: 4}) as service:
        yield service


@pytest.fixture
def copiers(
    local: LocalKinesis, server: postgres_server.PostgresServer, tmp_path: Path, start: str
) -> Iterator[Copiers]:
    """Worker processes with their leases in the server."""
    found = Copiers(local.endpoint_url, tmp_path, leases=server.dsn, start=start)
    for _ in range(WORKERS):
        found.start()
    yield found
    found.close()


def restart(server: postgres_server.PostgresServer, chance: random.Random) -> None:
    """As a minor upgrade does, or as a failover after a crash does."""
    time.sleep(chance.uniform(0.1, 1.5))  # The fleet works between the faults.
    server.stop(chance.choice(["fast", "fast", "immediate"]))
    time.sleep(chance.choice([0.0, 0.0, 0.5]))
    server.start()


def terminate(server: postgres_server.PostgresServer, chance: random.Random) -> None:
    """As an administrator, or a pooler, ends all connections of a database."""

    async def end_connections() -> int:
        connection = await asyncpg.connect(**server.connect)
        try:
            return int(await connection.fetchval(TERMINATE))
        finally:
            await connection.close()

    time.sleep(chance.uniform(0.05, 1.0))  # The fleet works between the faults.
    asyncio.run(end_connections())


@pytest.mark.parametrize(
    ("fault", "times", "start"),
    [
        (restart, 8, "LATEST"),
        (terminate, 8, "AT_TIMESTAMP"),
        (restart, 8, "TRIM_HORIZON"),
        pytest.param(restart, 100, "AT_TIMESTAMP", marks=OFTEN),
        pytest.param(terminate, 100, "LATEST", marks=OFTEN),
        pytest.param(terminate, 100, "TRIM_HORIZON", marks=OFTEN),
    ],
)
def test_a_fleet_outlives_its_servers_restarts_and_ended_connections(
    local: LocalKinesis, server: postgres_server.PostgresServer, copiers: Copiers, fault: Any, times: int
) -> None:
    chance = random.Random(times)
    with Load(client_of(local.endpoint_url)) as load:
        for _ in range(times):
            fault(server, chance)
            assert all(process.poll() is None for process in copiers.running), "a worker ended by itself"
    copiers.until(lambda: len(copiers.copies()) >= len(load.wanted))
    assert sorted(copiers.copies(), key=int) == load.wanted
    for process in list(copiers.running):
        copiers.stop(process)
