"""Two applications whose consumers keep their leases in one database: each reads everything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Consumer, OptionError
from shardway.leases import MemoryLeaseTable, SqliteLeaseTable
from shardway.local import LocalKinesis
from shardway.options import LeaseOptions
from tests.options_kit import arguments_of
from tests.runtime.consumer.face_kit import DEADLINE_S, POLL, STREAM, put, settings, wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDS = 400
STREAMS = {STREAM: 4, "returns": 2}


@pytest.fixture(params=["memory", "sqlite"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    if request.param == "memory":
        shared = MemoryLeaseTable()
        return lambda: shared
    return lambda: SqliteLeaseTable(tmp_path / "leases.db")


async def everything(local: LocalKinesis, application: str, leases: Any, wanted: set[bytes], stream: str) -> set[bytes]:
    got: set[bytes] = set()
    async with Consumer(
        stream, application=application, connection=wire(local), **arguments_of(leases=leases, **settings(polling=POLL))
    ) as consumer:
        async for batch in consumer:
            with batch:
                got |= {record.data for record in batch.records}
            if got >= wanted:
                return got
    return got


async def test_both_at_once(local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]) -> None:
    wanted = set(put(kinesis, range(RECORDS)))
    async with asyncio.timeout(DEADLINE_S):
        both = await asyncio.gather(
            *(everything(local, name, leases(), wanted, STREAM) for name in ("billing", "audit"))
        )
    assert both == [wanted, wanted]


async def test_one_after_the_other_on_two_streams(local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]) -> None:
    orders, returns = set(put(kinesis, range(100))), set(put(kinesis, range(1000, 1100), stream="returns"))
    async with asyncio.timeout(DEADLINE_S):
        assert await everything(local, "billing", leases(), orders, STREAM) == orders
        assert await everything(local, "audit", leases(), returns, "returns") == returns


async def test_where_a_table_cannot_tell_them_apart_the_second_is_refused(local: LocalKinesis, kinesis: Any) -> None:
    """In DynamoDB the key of a row is the KCL's."""
    put(kinesis, range(10))
    options = LeaseOptions(table="leases", request_timeout_s=30.0)
    billing = Consumer(
        STREAM, application="billing", connection=wire(local), **arguments_of(leases=options, **settings())
    )
    async with asyncio.timeout(DEADLINE_S), billing:
        async for batch in billing:
            with batch:
                break
        with pytest.raises(OptionError, match=r"of the application 'billing' reads by the leases in leases"):
            await everything(local, "audit", options, {b""}, STREAM)
