"""The figures to watch tell the truth while nothing works: reads fail, a handler fails, a handler hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock import LedgerSettings, MemoryLeaseTable, Retry
from penstock.testing import Fault
from tests.runtime.consumer.face_kit import DEADLINE_S, consumer_of, put, until

if TYPE_CHECKING:
    from penstock.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
AGE_S = 0.6
"""Longer than a shard at its tip goes without a read here."""
FOREVER = LedgerSettings(retry=Retry(tries_max=None))


async def test_a_shard_that_cannot_be_read_shows_for_how_long(local: LocalKinesis, kinesis: Any) -> None:
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        await until(lambda: consumer.statistics().millis_behind_latest == 0)
        fresh = consumer.statistics()
        local.faults.add(Fault(how="server_error", operation="GetRecords"))
        put(kinesis, range(5))
        await until(lambda: (consumer.statistics().since_read_s or 0.0) > max(AGE_S, fresh.since_read_s))
        broken = consumer.statistics()
        assert broken.millis_behind_latest == 0, "the last read that succeeded knew no better"
        assert broken.shards[0].since_read_s <= consumer.statistics().shards[0].since_read_s
        local.faults.clear()
        (batch,) = await consumer.getmany()
        assert consumer.statistics().since_read_s < broken.since_read_s
        batch.ack()


async def test_a_shard_that_was_never_read_shows_for_how_long_it_is_waited_for(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="server_error", operation="GetRecords"))
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        assert consumer.statistics().since_read_s is None
        await until(lambda: (consumer.statistics().since_read_s or 0.0) > AGE_S)
        assert consumer.statistics().millis_behind_latest is None


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_handler_that_gets_nowhere_shows_as_the_age_of_what_it_has(
    local: LocalKinesis, kinesis: Any, how: str
) -> None:
    wanted = put(kinesis, range(5))
    works = asyncio.Event()
    got: list[bytes] = []

    async def handler(batch: Any) -> None:
        if how == "hangs":
            await works.wait()
        elif not works.is_set():
            raise RuntimeError("the database is away")
        got.extend(record.data for record in batch)

    async with consumer_of(local, MemoryLeaseTable(), ledger=FOREVER) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        await until(lambda: (consumer.statistics().oldest_unsettled_s or 0.0) > AGE_S)
        stuck = consumer.statistics()
        assert stuck.millis_behind_latest == 0, "all was fetched"
        assert stuck.shards[0].oldest_unsettled_s == stuck.oldest_unsettled_s
        works.set()
        await until(lambda: len(got) >= len(wanted) and consumer.statistics().oldest_unsettled_s is None)
        await consumer.close()
        await running
