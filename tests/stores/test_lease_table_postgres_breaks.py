"""PostgreSQL's connections end at any moment: each call then ends in one of our errors, each write in an outcome."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Done, LeaseRow, Refused, Unknown, writes
from shardway.errors import InvalidArgumentError, TransportError, UnavailableError
from shardway.stores.postgres import PostgresLeaseTable
from tests.stores.postgres_proxy import FATAL, PostgresProxy, error_message, proxy_before

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

asyncpg = pytest.importorskip("asyncpg")

ROW = LeaseRow(key="a", counter=3, owner="w1")
pytestmark = pytest.mark.xdist_group("stores")


@pytest.fixture
async def proxy(postgres: dict[str, Any]) -> AsyncIterator[PostgresProxy]:
    async with proxy_before(postgres) as found:
        yield found


@pytest.fixture
async def table(proxy: PostgresProxy) -> AsyncIterator[PostgresLeaseTable]:
    """A table behind the proxy, with one lease and one connection, which is idle."""
    made = PostgresLeaseTable(
        name=f"l{uuid.uuid4().hex[:8]}", request_timeout_s=5.0, max_size=1, ssl=False, **proxy.connect
    )
    await made.ensure()
    await made.create(ROW)
    yield made
    await made.close()


@pytest.mark.parametrize(
    "message",
    [
        FATAL,
        error_message("FATAL", "57P05", "terminating connection due to idle-session timeout"),
        error_message("FATAL", "XX000", "something that no version of today says"),
        error_message("ERROR", "08P01", "query_wait_timeout"),  # as a pooler says it
        b"\xff" * 40,
    ],
    ids=["ended", "idle for too long", "unknown", "by a pooler", "noise"],
)
async def test_a_connection_that_was_told_something_while_it_was_idle_is_not_used_again(
    table: PostgresLeaseTable, proxy: PostgresProxy, message: bytes
) -> None:
    """The server's last word comes before the end of the connection, which a loaded machine may hear much later."""
    row = ROW
    for _ in range(10):
        proxy.tell_idle_connections(message)
        await asyncio.sleep(0)
        outcome = await table.write(writes.renew(row))
        assert isinstance(outcome, Done | Unknown)
        proxy.tell_idle_connections(message)
        found = await table.get("a")
        assert found is not None
        row = found


async def _writes_under(table: PostgresLeaseTable, proxy: PostgresProxy, passed: int) -> None:
    before = await table.get("a")
    assert before is not None
    proxy.pass_bytes_max = passed
    outcome = await table.write(writes.renew(before))
    proxy.pass_bytes_max = None
    after = await table.get("a")
    assert after is not None
    if isinstance(outcome, Done):
        assert after.counter == before.counter + 1
    else:
        assert isinstance(outcome, Unknown), outcome
        assert after.counter in (before.counter, before.counter + 1)


@pytest.mark.parametrize("stage", ["known", "new"])
async def test_an_answer_that_is_cut_after_any_byte_leaves_the_write_done_or_unknown(
    table: PostgresLeaseTable, proxy: PostgresProxy, stage: str
) -> None:
    """A new connection is cut while it signs in, or while it prepares the statement; a known one in its answer."""
    for passed in range(0, 700, 7):
        if stage == "new":
            await table.leave_loop()
            proxy.pass_bytes_max = passed
            outcome = await table.write(writes.renew(ROW))
            assert isinstance(outcome, Done | Unknown | Refused)
            proxy.pass_bytes_max = None
        else:
            await _writes_under(table, proxy, passed)
    assert proxy.broken >= 60


async def test_an_answer_that_goes_on_in_noise_leaves_the_write_done_or_unknown(
    table: PostgresLeaseTable, proxy: PostgresProxy
) -> None:
    chance = random.Random(7)
    for _ in range(60):
        proxy.instead = chance.randbytes(chance.randrange(1, 400))
        await _writes_under(table, proxy, chance.randrange(0, 300))
    assert proxy.broken >= 30


async def test_a_read_whose_answers_are_all_cut_ends_in_our_error(
    table: PostgresLeaseTable, proxy: PostgresProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.stores.postgres.READ_PAUSE_S", 0.001)
    for passed in range(0, 120, 5):
        await table.leave_loop()
        monkeypatch.setattr(proxy, "_passed", lambda data, passed=passed: (data[:passed], False))
        with pytest.raises((TransportError, UnavailableError)):
            await table.get("a")


async def test_a_value_that_the_server_cannot_hold_is_told_once_and_without_the_value(
    table: PostgresLeaseTable,
) -> None:
    for row in (LeaseRow(key="b", counter=1 << 70), LeaseRow(key="b\0secret"), LeaseRow(key="\ud800secret")):
        with pytest.raises(InvalidArgumentError) as told:
            await table.create(row)
        assert "secret" not in str(told.value)
        assert str(1 << 70) not in str(told.value)
    assert await table.get("a") == ROW
