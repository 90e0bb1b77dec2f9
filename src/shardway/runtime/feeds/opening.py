"""Opens the aggregates of a page beside the event loop, where they are large."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.core.log.user_records import OPENED_AT_ONCE_BYTES_MAX, aggregate_bytes_of, counts_of, open_all, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.log.pages import RawRecord
    from shardway.core.log.user_records import OpenedRecords, ShardView, UserRecords
    from shardway.model import Position


async def opened_ahead(shard: ShardView, raws: Sequence[RawRecord]) -> OpenedRecords | None:
    """Open the aggregates of a page in a thread, where they are large: ten of 1 MiB take a second or two, in which the
    loop could not renew a lease. Return None where they may be opened at once.
    """
    aggregate_bytes = aggregate_bytes_of(raws)
    if aggregate_bytes <= OPENED_AT_ONCE_BYTES_MAX:
        return None if aggregate_bytes else ()
    return await asyncio.to_thread(open_all, shard, raws)


async def user_records(shard: ShardView, raws: Sequence[RawRecord], *, done: Position | None = None) -> UserRecords:
    """Return the user records of a page, without those up to and with ``done``, which lies in the first record.
    Where the page has large aggregates, a thread makes them.
    """
    if aggregate_bytes_of(raws) <= OPENED_AT_ONCE_BYTES_MAX:
        return opened(shard, raws, done=done).records
    return (await asyncio.to_thread(opened, shard, raws, done=done)).records


async def user_record_counts(raws: Sequence[RawRecord]) -> list[int]:
    """Return how many user records each Kinesis record of a page holds. Where the page has large aggregates, a thread
    counts them: hostile ones of 10 MiB take seconds, and are plain records in the end.
    """
    if aggregate_bytes_of(raws) <= OPENED_AT_ONCE_BYTES_MAX:
        return counts_of(raws)
    return await asyncio.to_thread(counts_of, raws)
