"""One contract, every lease table: ``table`` is one of them, empty; ``again`` opens the same one once more."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions
from shardway.local.embedded import LocalKinesis
from shardway.options import LeaseOptions
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.stores import dynamodb_local_server, postgres_server
from tests.stores.lease_kit import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from shardway.ports import LeaseTable


@pytest.fixture(scope="session")
def local() -> Iterator[LocalKinesis]:
    """A local service, and its own DynamoDB."""
    with LocalKinesis() as service:
        yield service


@pytest.fixture
def dynamodb(local: LocalKinesis) -> Iterator[LocalKinesis]:
    """The same, without faults."""
    local.faults.clear()
    yield local
    local.faults.clear()


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[str]:
    """The address of Amazon's own DynamoDB for tests."""
    try:
        with dynamodb_local_server.running() as url:
            yield url
    except dynamodb_local_server.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def postgres() -> Iterator[dict[str, Any]]:
    """What to connect to a PostgreSQL server with."""
    pytest.importorskip("asyncpg")
    try:
        with postgres_server.running() as connect:
            yield connect
    except postgres_server.UnavailableError as reason:
        pytest.skip(str(reason))


# Their servers are started once, so all that need them run in one process.
STORES = pytest.mark.xdist_group("stores")
SERVED = [
    pytest.param("dynamodb", marks=STORES),
    pytest.param("postgres", marks=STORES),
    pytest.param("dynamodb-local", marks=[STORES, pytest.mark.slow]),
]
TABLES = ["memory", "sqlite", *SERVED]


@pytest.fixture(params=TABLES)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LeaseTable]:
    """Opens the same table each time, as another process would. Nothing is made yet."""
    name = f"leases-{uuid.uuid4().hex[:8]}"
    if request.param == "memory":
        shared = MemoryLeaseTable(name)
        return lambda: shared
    if request.param.startswith("dynamodb"):
        if request.param == "dynamodb":
            url = request.getfixturevalue("dynamodb").endpoint_url
        else:
            url = request.getfixturevalue("dynamodb_local")
        settings = ConnectionOptions(endpoint_url=url, region="us-east-1", credentials=CREDENTIALS)
        options = LeaseOptions(request_timeout_s=30.0)
        return lambda: DynamoLeaseTable(name, settings, options)
    if request.param == "postgres":
        connect = request.getfixturevalue("postgres")
        return lambda: PostgresLeaseTable(name=name, request_timeout_s=30.0, **connect)
    assert request.param == "sqlite"
    return lambda: SqliteLeaseTable(tmp_path / "leases.sqlite", name)


@pytest.fixture
async def again(opener: Callable[[], LeaseTable]) -> AsyncIterator[Callable[[], LeaseTable]]:
    """Opens the table once more; closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def one_more() -> LeaseTable:
            table = opener()
            stack.push_async_callback(table.close)
            return table

        yield one_more


@pytest.fixture
async def table(again: Callable[[], LeaseTable]) -> LeaseTable:
    """An empty table that is there."""
    opened = again()
    await opened.ensure()
    return opened
