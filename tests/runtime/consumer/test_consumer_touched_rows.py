"""Lease rows that a hand, or a TTL, touches under a living consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import StartingPosition
from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done
from shardway.events import LeaseUnreadable
from shardway.leases import MemoryLeaseTable
from shardway.runtime.worker.shard_leases import ShardLeases
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_LEASES, STREAM, consumer_of, put, until
from tests.runtime.consumer.faulty_tables import FaultyTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases import LeaseRow
    from shardway.local import LocalKinesis

STREAMS = {STREAM: 2}


class Reader:
    """Takes batches in the background."""

    def __init__(self, consumer: Any) -> None:
        self.got: list[bytes] = []
        self._task = asyncio.create_task(self._read(consumer))

    async def _read(self, consumer: Any) -> None:
        async for batch in consumer:
            with batch:
                self.got += [record.data for record in batch.records]


async def test_a_deleted_row_is_written_anew_by_its_owner(local: LocalKinesis, kinesis: Any) -> None:
    """What comes later goes on behind what was read, whatever the application begins with; counters go on."""
    table = MemoryLeaseTable()
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, table, **QUICK_LEASES) as consumer:
            reader = Reader(consumer)
            await until(lambda: len(consumer.statistics().shards) == 2)
            wanted = put(kinesis, range(100))
            await until(lambda: len(reader.got) >= 100)
            await until(lambda: all(row.counter > 3 for row in table.rows()))
            counters = {row.key: row.counter for row in table.rows()}
            for row in table.rows():
                while not isinstance(await table.write(writes.delete(await table.get(row.key) or row)), Done):
                    pass
            await until(lambda: len(table.rows()) == 2)
            assert all(row.counter > counters[row.key] for row in table.rows())
            wanted += put(kinesis, range(100, 200))
            await until(lambda: len(reader.got) >= 200)
            assert {event.token for event in consumer.statistics().shards} == {1}
        assert all(row.checkpoint.is_position for row in table.rows())
        wanted += put(kinesis, range(200, 300))
        async with consumer_of(local, table, starting_position=StartingPosition.LATEST, **QUICK_LEASES) as consumer:
            later = Reader(consumer)
            await until(lambda: len(later.got) >= 100)
    assert sorted(reader.got + later.got) == sorted(wanted)


async def test_a_row_that_is_deleted_while_the_table_is_away_is_made_anew_as_it_was_known(
    local: LocalKinesis, kinesis: Any
) -> None:
    """Its fence has fallen by then, and another worker could have the lease: so it is taken again, as any other."""
    table = MemoryLeaseTable()
    faulty = FaultyTable(table)
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, faulty, **QUICK_LEASES) as consumer:
            reader = Reader(consumer)
            wanted = put(kinesis, range(100))
            await until(lambda: len(reader.got) >= 100)
            await until(lambda: all(row.checkpoint.is_position for row in table.rows()))
            known = {row.key: row for row in table.rows()}
            faulty.is_cut = True
            held = list(consumer._session.run.worker.held.values())
            await until(lambda: not any(shard.keeper.may_deliver() for shard in held))
            table._rows.clear()
            wanted += put(kinesis, range(100, 200))
            faulty.is_cut = False
            await until(lambda: len(reader.got) >= 200)
            assert {key: row.counter > known[key].counter for key, row in _rows(table).items()} == dict.fromkeys(
                known, True
            )
    assert sorted(reader.got) == sorted(wanted)


def _rows(table: MemoryLeaseTable) -> dict[str, LeaseRow]:
    return {row.key: row for row in table.rows()}


async def test_a_counter_that_is_text_is_told_and_read_on_from_when_it_is_mended(
    local: LocalKinesis, kinesis: Any
) -> None:
    table, events = MemoryLeaseTable(), list[Any]()
    wanted = put(kinesis, range(100))
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, table, **QUICK_LEASES) as consumer:
            first = Reader(consumer)
            await until(lambda: len(first.got) >= 100)
        key, attributes = next(iter(table._rows.items()))
        counter = attributes["leaseCounter"]
        attributes["leaseCounter"] = str(counter)
        wanted += put(kinesis, range(100, 200))
        async with consumer_of(local, table, on_event=events.append, **QUICK_LEASES) as consumer:
            second = Reader(consumer)
            await until(lambda: any(isinstance(event, LeaseUnreadable) for event in events))
            told = [event for event in events if isinstance(event, LeaseUnreadable)]
            assert [event.key for event in told] == [key]
            assert "leaseCounter is str, not a whole number" in told[0].reason
            table._rows[key]["leaseCounter"] = counter
            await until(lambda: len(first.got + second.got) >= 200)
    assert sorted(first.got + second.got) == sorted(wanted)


async def test_no_task_of_a_worker_dies_unheard(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the search for missing leases: what it raises ends the consumer, and is raised where the program reads."""

    async def fails(shards: ShardLeases, rows: Mapping[str, LeaseRow]) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(ShardLeases, "missing", fails)
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), **QUICK_LEASES) as consumer:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await consumer.run_batches(lambda _: asyncio.sleep(0))
