"""Several applications in one table: each has its own rows, by whatever keys, and sees no others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shardway.core.leases import Done, LeaseRow, Refused, writes
from shardway.core.leases.worker_row import WorkerRow
from shardway.ports import ForApplications
from tests.stores.lease_kit import done, made

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.ports import LeaseTable

NAMES = ["billing", 'it\'s "a\\b" ü']
OF_SEVERAL = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("stores"))]


@pytest.fixture
async def two(again: Callable[[], LeaseTable]) -> list[LeaseTable]:
    """The parts of two applications in one table."""
    tables = []
    for name in NAMES:
        opened = again()
        assert isinstance(opened, ForApplications)
        table = opened.of(name)
        await table.ensure()
        tables.append(table)
    return tables


@pytest.mark.parametrize("opener", OF_SEVERAL, indirect=True)
async def test_a_key_is_each_applications_own(two: list[LeaseTable]) -> None:
    billing, audit = two
    row = await made(billing, LeaseRow(key="a", counter=3))
    assert await audit.get("a") is None
    assert (await audit.scan(consistent=True)).rows == []
    assert await audit.write(writes.renew(row)) == Refused(None)
    other = await made(audit, LeaseRow(key="a", counter=7))
    taken = done(await billing.write(writes.take(row, "w1")))
    assert (await billing.scan()).rows == [taken]
    assert await billing.create(row) == Refused(taken)
    assert await audit.get("a") == other
    assert isinstance(await audit.write(writes.delete(other)), Done)
    assert await billing.get("a") == taken


@pytest.mark.parametrize("opener", OF_SEVERAL, indirect=True)
async def test_a_workers_id_is_each_applications_own(two: list[LeaseTable]) -> None:
    billing, audit = two
    row = WorkerRow(worker_id="w1", failover_s=10.0, held=frozenset({"a"}))
    await billing.put_worker(row)
    assert await audit.workers(consistent=True) == []
    await audit.put_worker(replace(row, counter=5))
    await billing.put_worker(replace(row, counter=1))
    assert await billing.workers() == [replace(row, counter=1)]
    assert await audit.delete_worker("w1") == Done(None)
    assert await billing.workers() == [replace(row, counter=1)]
    assert await audit.workers() == []


@pytest.mark.parametrize("opener", OF_SEVERAL, indirect=True)
async def test_an_object_is_of_the_application_that_it_is_given_to_first(table: LeaseTable) -> None:
    assert isinstance(table, ForApplications)
    assert table.of("billing") is table
    await made(table, LeaseRow(key="a"))
    audit = table.of("audit")
    assert audit is not table
    assert await audit.get("a") is None
    again = table.of("billing")
    assert (await again.scan()).rows == [LeaseRow(key="a")]
