"""Which leases the end of a shard makes, in a table that others write too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock import MemoryLeaseTable, StartAt
from penstock.core.leases import Checkpoint, LeaseRow
from penstock.core.sequence import shard_id_of
from penstock.model import HASH_KEY_MAX, Shard
from penstock.runtime.worker.shard_leases import ShardLeases
from penstock.runtime.worker.stream_part import StreamPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.runtime.feeds.polling import PollingFeed

MIDDLE = 2**127


def lease(shard_id: str, first: int, last: int) -> LeaseRow:
    return LeaseRow(key=shard_id, checkpoint=Checkpoint.parse("1"), first_hash_key=first, last_hash_key=last)


async def test_two_trimmed_parents_that_end_at_the_same_moment_leave_their_child_a_lease() -> None:
    """Nothing is left of them in a listing, and a read of them tells no children: neither may leave it to the other."""
    left, right, child = map(shard_id_of, range(3))
    merged = Shard(
        shard_id=child,
        parents=(left, right),
        first_hash_key=0,
        last_hash_key=HASH_KEY_MAX,
        first_sequence_number=7,
    )

    async def list_shards() -> Sequence[Shard]:
        return [merged]

    def unused(row: LeaseRow) -> PollingFeed:
        raise AssertionError

    table = MemoryLeaseTable()
    await table.ensure()
    for row in (lease(left, 0, MIDDLE - 1), lease(right, MIDDLE, HASH_KEY_MAX)):
        await table.create(row)
    part = StreamPart(name="orders", list_shards=list_shards, open_feed=unused)
    shards = ShardLeases(table, {None: part}, StartAt.LATEST, retry_s=0.01, changed=lambda: None, owned=frozenset)
    await asyncio.gather(*(shards.at_end(parent, None, ()) for parent in (left, right)))
    rows = {row.key: row for row in (await table.scan(consistent=True)).rows}
    assert rows[child].checkpoint.text == "TRIM_HORIZON"
    assert rows[child].parents == {left, right}
    assert [rows[parent].children for parent in (left, right)] == [{child}, {child}]
