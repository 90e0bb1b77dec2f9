"""What a test sees of a lease table in an SQLite file that other processes write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.errors import NotFoundError
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.core.leases import LeaseRow


def leases_in(path: Path, application: str) -> list[LeaseRow]:
    """The leases that are there by now: a shard begins where it begins from the moment at which it has one."""

    async def scan() -> list[LeaseRow]:
        table = SqliteLeaseTable(str(path)).of(application)
        try:
            return (await table.scan(consistent=True)).rows
        except NotFoundError:  # The first worker has not made it yet.
            return []
        finally:
            await table.close()

    return asyncio.run(scan())
