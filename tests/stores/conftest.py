"""One contract, every lease table: ``table`` is one of them, empty; ``again`` opens the same one once more."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import pytest

from penstock.stores.memory import MemoryLeaseTable
from penstock.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from penstock.ports import LeaseTable


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LeaseTable]:
    """Opens the same table each time, as another process would. Nothing is made yet."""
    name = f"leases-{uuid.uuid4().hex[:8]}"
    if request.param == "memory":
        shared = MemoryLeaseTable(name)
        return lambda: shared
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
