"""Splitting, keys side by side, the newest record wins; what is settled is stored, however a shard's stream ends."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done
from shardway.core.ledger.parts import Part
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import OptionError, ShardReadError
from shardway.events import LateSettlement, RecordsSkipped, RecordsUnsettled
from shardway.model import Position
from shardway.policies import ByKey, DeadLettersTo
from shardway.runtime.consumer.shards import reader_of
from shardway.runtime.worker import holding
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import options_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, STREAM
from tests.runtime.consumer.outcome_kit import FAST, FOR_EVER, SHARD_ID, checkpoint_reaches, consumer_of, of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis
    from shardway.runtime.shard.batch import Batch


# --- splitting ----------------------------------------------------------------------------------------------


def parts(batch: Batch[Any]) -> list[Part[Any]]:
    return [record for record in batch if isinstance(record, Part) or pytest.fail("no part")]


async def test_a_record_is_settled_when_all_of_its_parts_are_and_a_replay_gives_the_same(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"a b c", b"d e", key="k")
    leases = MemoryLeaseTable()
    chosen: dict[str, Any] = {
        "split": lambda record: record.data.split(),
        "dead_letters": DeadLettersTo(print),
        "cadence": Prompt(),
        "drain_deadline_s": 0.1,
        "retry": FOR_EVER,
    }
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, **chosen) as consumer:
            batch: Batch[Any] = await anext(aiter(consumer))
            assert [(part.value, part.part, part.parts) for part in parts(batch)] == [
                (b"a", 0, 3), (b"b", 1, 3), (b"c", 2, 3), (b"d", 0, 2), (b"e", 1, 2),
            ]  # fmt: skip
            assert {part.record.data for part in parts(batch)} == {b"a b c", b"d e"}
            batch.ack(0, 1, 3, 4)
        row = await leases.get(SHARD_ID)
        assert row is not None
        assert not row.checkpoint.is_position, "a part is missing"
        async with consumer_of(local, leases, **chosen) as consumer:
            batch = await anext(aiter(consumer))
            assert [part.value for part in parts(batch)] == [b"a", b"b", b"c", b"d", b"e"]
            batch.settle_through(batch.records[2])
            await checkpoint_reaches(leases, numbers[0])
            batch.ack()
            await checkpoint_reaches(leases, numbers[1])


async def test_what_cannot_be_split_and_a_part_that_fails_are_dead_letters_of_their_record(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "PARTS_MAX", 3)
    numbers = put(kinesis, b"1 2", b"\xff", b"3 4 5 6", b"7", key="k")
    leases = MemoryLeaseTable()
    got: list[str] = []
    letters: list[Any] = []
    chosen: dict[str, Any] = {
        "split": lambda record: record.data.decode().split(),
        "dead_letters": DeadLettersTo(letters.append),
        "cadence": Prompt(),
        "retry": FAST,
    }
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:

        async def handle(batch: Any) -> None:
            if any(part.value == "2" for part in batch):
                raise ValueError("no twos")
            got.extend(part.value for part in batch)

        running = asyncio.create_task(consumer.run_batches(handle))
        await checkpoint_reaches(leases, numbers[-1])
        await consumer.close()
        await running
    assert got == ["1", "7"]
    found = {letter.position.sequence_number: (letter.error_type, letter.part, letter.data) for letter in letters}
    assert found == {
        numbers[0]: ("ValueError", 1, b"1 2"),
        numbers[1]: ("UnicodeDecodeError", None, b"\xff"),
        numbers[2]: ("SplitError", None, b"3 4 5 6"),
    }


def test_splitting_needs_to_know_where_dead_letters_go() -> None:
    with pytest.raises(OptionError, match=r"split: .* say by dead_letters"):
        options_of(split=lambda record: [record])


# --- order ---------------------------------------------------------------------------------------------------


async def test_keys_side_by_side_keep_the_order_of_each_and_the_checkpoint_the_prefix(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = [put(kinesis, b"%d" % number, key="ABC"[number % 3])[0] for number in range(30)]
    leases = MemoryLeaseTable()
    got: dict[str, list[int]] = defaultdict(list)
    at_work: set[str] = set()
    most = 0
    go_on = asyncio.Event()
    chosen: dict[str, Any] = {
        "retry": FOR_EVER,
        "order": ByKey(slots_max=2),
        "cadence": Prompt(),
        "batch_records_max": 4,
    }

    async def work(reader: Any) -> None:
        nonlocal most
        while (batch := await reader.next_batch()) is not None:
            (key,) = {record.partition_key for record in batch}
            assert key not in at_work, "two batches of one key at a time"
            at_work.add(key)
            most = max(most, len(at_work))
            if key == "A":
                await go_on.wait()
            await asyncio.sleep(0)
            at_work.discard(key)
            got[key] += [int(record.data) for record in batch]
            batch.ack()

    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:
        reader = await anext(consumer.shards())
        tasks = [asyncio.create_task(work(reader)) for _ in range(3)]
        await until(lambda: len(got["B"]) == len(got["C"]) == 10)  # A holds up neither
        row = await leases.get(SHARD_ID)
        assert row is not None
        assert not row.checkpoint.is_position, "the first record, of A, is not settled"
        go_on.set()
        await checkpoint_reaches(leases, numbers[-1])
        await consumer.close()
        await asyncio.gather(*tasks)
    assert got == {key: list(range(place, 30, 3)) for place, key in enumerate("ABC")}
    assert most == 2


async def test_the_newest_settlement_wins_and_what_it_passes_is_told(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2", b"3")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    ledger = dict[str, Any](retry=FOR_EVER, latest_wins=True)
    chosen: dict[str, Any] = {**ledger, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        batch = await anext(aiter(consumer))
        batch.ack(1)
        batch.ack(3)
        await checkpoint_reaches(leases, numbers[3])
    told = [(event.first, event.last, event.records, event.reason) for event in of(events, RecordsSkipped)]
    assert told == [
        (Position(numbers[0]), Position(numbers[0]), 1, "latest wins"),
        (Position(numbers[2]), Position(numbers[2]), 1, "latest wins"),
    ]


# --- however it ends: what is settled is stored --------------------------------------------------------------


async def first_of(consumer: Any) -> Any:
    """Three records, of which the first is settled."""
    batch = await anext(aiter(consumer))
    assert len(batch) == 3
    batch.ack(0)
    return batch


async def test_ends_with_a_stop(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"failover_s": 60.0, "drain_deadline_s": 0.1}
    async with asyncio.timeout(DEADLINE_S):
        async with consumer_of(local, leases, events=events, **chosen) as consumer:
            batch = await first_of(consumer)
        await checkpoint_reaches(leases, numbers[0])
        assert batch.ack() is False
        assert batch.ack(1) is False
    assert len(of(events, LateSettlement)) == 1, "told once, not per record"
    (told,) = of(events, RecordsUnsettled)
    assert told.positions == (Position(numbers[1]), Position(numbers[2]))
    assert "settle_through" in told.advice


async def test_ends_with_an_error_of_the_program(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()

    async def program() -> None:
        async with consumer_of(local, leases, failover_s=60.0, drain_deadline_s=0.1) as consumer:
            await first_of(consumer)
            raise KeyError("a fault of the program")

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(KeyError):
            await program()
        await checkpoint_reaches(leases, numbers[0])


async def test_ends_with_a_cancellation(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases, has_begun = MemoryLeaseTable(), asyncio.Event()

    async def program() -> None:
        async with consumer_of(local, leases, failover_s=60.0, drain_deadline_s=0.1) as consumer:
            await first_of(consumer)
            has_begun.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(program())
        await has_begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await checkpoint_reaches(leases, numbers[0])


async def test_ends_with_an_error_of_the_stream(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()

    async def program() -> None:
        async with consumer_of(local, leases, failover_s=60.0, drain_deadline_s=0.1) as consumer:
            async for batch in consumer:
                batch.ack(0)
                kinesis.delete_stream(StreamName=STREAM)

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ShardReadError):
            await program()
        await checkpoint_reaches(leases, numbers[0])


async def test_ends_with_a_lost_lease_which_is_told_once(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"0", b"1", b"2")
    leases = MemoryLeaseTable()
    events: list[Any] = []
    chosen: dict[str, Any] = {"failover_s": 2.0, "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:
        batch = await first_of(consumer)
        await checkpoint_reaches(leases, numbers[0])
        while True:
            row = await leases.get(SHARD_ID)
            assert row is not None
            if isinstance(await leases.write(writes.take(row, "thief")), Done):
                break
        await until(lambda: not batch.counts)
        for index in (0, 1, 2):
            assert batch.ack(index) is False
    assert len(of(events, RecordsUnsettled)) == 1
    assert len(of(events, LateSettlement)) == 1


async def test_ends_with_an_iteration_that_is_left_early_and_the_shard_is_offered_anew(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, *[b"%d" % number for number in range(6)])
    leases = MemoryLeaseTable()
    chosen: dict[str, Any] = {"failover_s": 60.0, "batch_records_max": 3}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **chosen) as consumer:
        shards = consumer.shards()
        shard = await anext(shards)
        batches: Any = aiter(shard)
        batch = await anext(batches)
        batch.ack(0)
        await batches.aclose()
        await checkpoint_reaches(leases, numbers[0])  # at once, not with the next renewal
        again = await anext(shards)
        assert (again.shard_id, again.token) == (shard.shard_id, shard.token)
        anew = await again.next_batch()
        assert anew is not None
        assert [record.data for record in anew] == [b"1", b"2"]
        assert anew.attempt == 2
        more = await again.next_batch()
        assert more is not None
        assert [record.data for record in more] == [b"3", b"4", b"5"]
        more.settle_through(2)
        reader_of(again).delivery.take_back()
        await checkpoint_reaches(leases, numbers[-1])
