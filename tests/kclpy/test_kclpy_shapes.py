"""Processors of amazon_kclpy's three shapes, unchanged: records, checkpoints, the ends of a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done
from shardway.stores.memory import MemoryLeaseTable
from tests.kclpy.kclpy_kit import SHARD_ID, STREAM, Journal, put, running

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

SHAPES = ["V1", "V2", "V3"]
ENDED = {
    "V1": ("shutdown", "TERMINATE"),
    "V2": ("shutdown", "TERMINATE"),
    "V3": ("shard_ended", None),
}
LOST = {
    "V1": ("shutdown", "ZOMBIE"),
    "V2": ("shutdown", "ZOMBIE"),
    "V3": ("lease_lost", None),
}


def end_of(journal: Journal, shard_id: str) -> list[tuple[str, str | None]]:
    """What a shard's processor was told besides records."""
    return [
        (note["what"], note.get("reason"))
        for note in journal.lines()
        if note.get("shard") == shard_id and note["what"] not in ("record", "initialize")
    ]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_processor_takes_records_and_the_next_worker_goes_on_where_it_was_asked_to_leave(
    local: LocalKinesis, kinesis: Any, journal: Journal, shape: str
) -> None:
    table = MemoryLeaseTable()
    numbers = put(kinesis, "0", "1", "2")
    async with running(local, table, f"shapes:{shape}") as worker:
        await worker.until(lambda: len(journal.datas()) == 3)
        await worker.end()
    assert journal.datas() == ["0", "1", "2"]
    assert [note["number"] for note in journal.lines("record")] == numbers
    assert {note["key"] for note in journal.lines("record")} == {"k"}
    assert {note["age_ms"] for note in journal.lines("record")} == {0}
    assert end_of(journal, SHARD_ID) == [("shutdown_requested", None), LOST[shape]]
    row = await table.get(SHARD_ID)
    assert row is not None
    assert row.checkpoint.text == numbers[-1]
    assert row.owner is None
    put(kinesis, "3")
    async with running(local, table, f"shapes:{shape}") as worker:
        await worker.until(lambda: len(journal.datas()) == 4)
    assert journal.datas() == ["0", "1", "2", "3"]
    first, second = journal.lines("initialize")
    assert first["pid"] != second["pid"]
    if shape != "V1":
        assert (first["start"], second["start"]) == ("TRIM_HORIZON/0", f"{numbers[-1]}/0")


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_shard_that_ends_is_told_checkpointed_and_followed_by_its_children(
    local: LocalKinesis, kinesis: Any, journal: Journal, shape: str
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0", "1")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    put(kinesis, "2")
    async with running(local, table, f"shapes:{shape}") as worker:
        await worker.until(lambda: len(journal.lines("initialize")) == 3 and len(journal.datas()) == 3)
    assert journal.datas() == ["0", "1", "2"]
    assert end_of(journal, SHARD_ID) == [ENDED[shape]]
    kinds = [(note["what"], note["shard"]) for note in journal.lines()]
    told = kinds.index((ENDED[shape][0], SHARD_ID))
    assert all(shard == SHARD_ID for _, shard in kinds[:told])
    assert len({note["pid"] for note in journal.lines("initialize")}) == 3
    row = await table.get(SHARD_ID)
    assert row is not None
    assert row.ended


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_lease_that_another_has_taken_is_told_as_lost_and_nothing_is_stored(
    local: LocalKinesis, kinesis: Any, journal: Journal, shape: str
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, f"shapes:{shape}", failover_s=0.5) as worker:
        await worker.until(lambda: len(journal.datas()) == 1)
        row = await table.get(SHARD_ID)
        while row is not None and not isinstance(await table.write(writes.take(row, "thief")), Done):
            row = await table.get(SHARD_ID)
        await worker.until(lambda: end_of(journal, SHARD_ID))
        assert end_of(journal, SHARD_ID) == [LOST[shape]]


async def test_an_aggregates_records_are_given_one_by_one_and_checkpointed_inside_of_it(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    blob = encode_aggregate([("k", text.encode(), None) for text in "abc"])
    number = kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=blob)["SequenceNumber"]
    async with running(local, table, "shapes:V2") as worker:
        await worker.until(lambda: len(journal.datas()) == 3)
    assert [(note["data"], note["sub"]) for note in journal.lines("record")] == [("a", 0), ("b", 1), ("c", 2)]
    row = await table.get(SHARD_ID)
    assert row is not None
    assert (row.checkpoint.text, row.checkpoint.sub_sequence_number) == (number, 2)


async def test_a_checkpoint_by_the_number_alone_leaves_the_rest_of_an_aggregate_as_by_the_kcl(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    blob = encode_aggregate([("k", text.encode(), None) for text in "abc"])
    kinesis.put_record(StreamName=STREAM, PartitionKey="k", Data=blob)
    async with running(local, table, "shapes:V1", failover_s=0.5) as worker:
        await worker.until(lambda: table.rows() and table.rows()[0].checkpoint.is_position)
        assert len(journal.datas()) == 3
        row = await table.get(SHARD_ID)
        while row is not None and not isinstance(await table.write(writes.take(row, "thief")), Done):
            row = await table.get(SHARD_ID)
        await worker.until(lambda: end_of(journal, SHARD_ID))
    row = await table.get(SHARD_ID)
    assert row is not None
    assert row.checkpoint.sub_sequence_number == 0
    assert row.checkpoint.is_position
