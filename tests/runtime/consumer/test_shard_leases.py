"""Which leases the end of a shard makes, in a table that others write too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shardway import StartingPosition
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.core.sequence import shard_id_of
from shardway.leases import MemoryLeaseTable
from shardway.model import HASH_KEY_MAX, ListedShard
from shardway.runtime.worker.shard_leases import ShardLeases
from shardway.runtime.worker.sharded_stream import StreamPart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.runtime.feeds.polling import PollingFeed

MIDDLE = 2**127


def lease(shard_id: str, first: int, last: int) -> LeaseRow:
    return LeaseRow(key=shard_id, checkpoint=Checkpoint.parse("1"), first_hash_key=first, last_hash_key=last)


def half_of(parent: str, shard_id: str, first: int, last: int) -> ListedShard:
    return ListedShard(
        shard_id=shard_id, parents=(parent,), first_hash_key=first, last_hash_key=last, first_sequence_number=10
    )


class Listed:
    """A stream whose shards are listed, and not read."""

    name = "orders"
    now_s = 0.0

    def __init__(self, *shards: ListedShard) -> None:
        self._shards = shards

    async def list_shards(self) -> Sequence[ListedShard]:
        return self._shards

    def start_ms(self, checkpoint: Checkpoint) -> int | None:
        return 7_000 if checkpoint == Checkpoint.LATEST else None

    def open_feed(self, row: LeaseRow) -> PollingFeed:
        raise AssertionError

    def promote(self, feed: PollingFeed) -> PollingFeed:
        raise AssertionError

    def open_window(self, row: LeaseRow) -> None:
        raise AssertionError


async def test_two_trimmed_parents_that_end_at_the_same_moment_leave_their_child_a_lease() -> None:
    """Nothing is left of them in a listing, and a read of them tells no children: neither may leave it to the other."""
    left, right, child = map(shard_id_of, range(3))
    merged = ListedShard(
        shard_id=child,
        parents=(left, right),
        first_hash_key=0,
        last_hash_key=HASH_KEY_MAX,
        first_sequence_number=7,
    )

    table = MemoryLeaseTable()
    await table.ensure()
    for row in (lease(left, 0, MIDDLE - 1), lease(right, MIDDLE, HASH_KEY_MAX)):
        await table.create(row)
    part = StreamPart(stream=Listed(merged))
    shards = ShardLeases(
        table, {None: part}, StartingPosition.LATEST, retry_s=0.01, changed=lambda: None, owned=frozenset
    )
    await asyncio.gather(*(shards.at_end(parent, None, ()) for parent in (left, right)))
    rows = {row.key: row for row in (await table.scan(consistent=True)).rows}
    assert rows[child].checkpoint.text == "TRIM_HORIZON"
    assert rows[child].parents == {left, right}
    assert [rows[parent].children for parent in (left, right)] == [{child}, {child}]


@pytest.mark.parametrize(
    ("leased", "born"),
    [((), {0: "7"}), ((1,), {2: "TRIM_HORIZON"}), ((1, 2), {})],
    ids=["children without leases", "one child has a lease", "both children have leases"],
)
async def test_a_row_that_was_deleted_is_made_as_it_was_known_unless_its_shard_is_done(
    leased: tuple[int, ...], born: dict[int, str]
) -> None:
    """Its worker slept: another one may have read the shard to its end, and deleted the row since it had served."""
    parent, left, right = map(shard_id_of, range(3))
    whole = ListedShard(
        shard_id=parent,
        parents=(),
        first_hash_key=0,
        last_hash_key=HASH_KEY_MAX,
        first_sequence_number=1,
        last_sequence_number=9,
    )
    halves = [
        half_of(parent, left, 0, MIDDLE - 1),
        half_of(parent, right, MIDDLE, HASH_KEY_MAX),
    ]

    table = MemoryLeaseTable()
    await table.ensure()
    for number in leased:
        half = halves[number - 1]
        await table.create(lease(half.shard_id, half.first_hash_key, half.last_hash_key))
    part = StreamPart(stream=Listed(whole, *halves))
    shards = ShardLeases(
        table, {None: part}, StartingPosition.LATEST, retry_s=0.01, changed=lambda: None, owned=frozenset
    )
    known = replace(lease(parent, 0, HASH_KEY_MAX), checkpoint=Checkpoint.parse("7"), counter=55)
    shards.gone(known)
    has_gone = [shards.has_gone]
    await shards.missing_of_gone()
    assert [*has_gone, shards.has_gone] == [True, False]
    rows = {row.key: row for row in (await table.scan(consistent=True)).rows}
    made = {shard_id_of(number): checkpoint for number, checkpoint in born.items()}
    before = {shard_id_of(number) for number in leased}
    assert {key: row.checkpoint.text for key, row in rows.items() if key not in before} == made
    if parent in rows:
        assert rows[parent] == known
