"""Dead letters of a running consumer: a record counts as settled once its letter is kept, and not before."""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.ledger.letter import Letter
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.errors import NotFoundError, OptionError
from shardway.events import DeadLetterFailed, RecordDeadLettered
from shardway.model import Position
from shardway.policies import DeadLetters, DeadLettersTo, DeadLettersToFile, DeadLettersToStream, Redeliver, Retry
from shardway.runtime.dead_letters.writers import FileLetters, StreamLetters
from shardway.runtime.worker import holding
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import options_of
from tests.runtime.consumer.fleet_kit import DEADLINE_S, STREAM
from tests.runtime.consumer.outcome_kit import FAST, SHARD_ID, checkpoint_reaches, consumer_of, of, put, until, wire_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.local import LocalKinesis


async def read_with_a_poison_record(local: LocalKinesis, kinesis: Any, choice: Any, **more: Any) -> list[int]:
    """Five records, of which the handler does not like the third; returns when all of them are checkpointed."""
    numbers = put(kinesis, b"0", b"1", b"poison", b"3", b"4")
    leases, got = MemoryLeaseTable(), set()
    settings = {"retry": FAST, "dead_letters": choice, "cadence": Prompt(), **more}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, **settings) as consumer:
        async for batch in consumer:
            with batch:
                if b"poison" in {record.data for record in batch}:
                    raise ValueError("not this one")
                got |= {record.data for record in batch}
            if len(got) == 4:
                await checkpoint_reaches(leases, numbers[-1])
                break
    return numbers


async def test_dead_letters_go_to_a_file(local: LocalKinesis, kinesis: Any, tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    numbers = await read_with_a_poison_record(local, kinesis, DeadLettersToFile(path=path))
    (line,) = path.read_bytes().splitlines()
    letter = Letter.from_json(line)
    assert (letter.stream, letter.shard_id, letter.position) == (STREAM, SHARD_ID, Position(numbers[2]))
    assert (letter.error_type, letter.error_message, letter.data) == ("ValueError", "not this one", b"poison")
    assert letter.attempts >= 2
    assert letter.token > 0
    assert letter.worker
    assert letter.part is None
    assert letter.arrived_at is not None
    assert letter.written_at >= letter.arrived_at.replace(microsecond=0)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_dead_letters_go_to_a_stream(local: LocalKinesis, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="graves", ShardCount=1)
    numbers = await read_with_a_poison_record(local, kinesis, DeadLettersToStream(stream="graves"))
    (record,) = records_of(kinesis, "graves")
    letter = Letter.from_json(record["Data"])
    assert (letter.position, letter.data, letter.partition_key) == (Position(numbers[2]), b"poison", "poison")
    assert record["PartitionKey"] == "poison"


async def test_dead_letters_go_to_a_callable(local: LocalKinesis, kinesis: Any) -> None:
    kept: list[Letter] = []

    async def keep(letter: Letter) -> None:
        await asyncio.sleep(0)
        kept.append(letter)

    numbers = await read_with_a_poison_record(local, kinesis, DeadLettersTo(keep))
    assert [letter.position for letter in kept] == [Position(numbers[2])]


async def test_a_letter_that_is_not_to_hold_the_record_does_not(
    local: LocalKinesis, kinesis: Any, tmp_path: Path
) -> None:
    path = tmp_path / "dead.jsonl"
    await read_with_a_poison_record(local, kinesis, DeadLettersToFile(path=path, with_data=False))
    letter = Letter.from_json(path.read_bytes())
    assert (letter.data, letter.partition_key, letter.record()) == (None, None, None)


async def test_a_destination_that_fails_is_told_and_tried_again_and_the_record_is_not_settled_before(
    local: LocalKinesis, kinesis: Any
) -> None:
    numbers = put(kinesis, b"poison", b"1")
    leases, kept = MemoryLeaseTable(), []
    events: list[Any] = []
    works = False

    def keep(letter: Letter) -> None:
        if not works:
            raise OSError("full")
        kept.append(letter)

    chosen: dict[str, Any] = {"retry": FAST, "dead_letters": DeadLettersTo(keep), "cadence": Prompt()}
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, leases, events=events, **chosen) as consumer:

        async def handle(batch: Any) -> None:
            if b"poison" in {record.data for record in batch}:
                raise ValueError("not this one")

        running = asyncio.create_task(consumer.run_batches(handle))
        await until(lambda: len(of(events, DeadLetterFailed)) >= 2)
        assert not of(events, RecordDeadLettered)
        row = await leases.get(SHARD_ID)
        assert row is not None
        assert not row.checkpoint.is_position, "passed a record that is kept nowhere"
        works = True
        await checkpoint_reaches(leases, numbers[1])
        await consumer.close()
        await running
    assert [letter.position.sequence_number for letter in kept] == [numbers[0]]
    assert of(events, DeadLetterFailed)[0].error_type == "OSError"
    assert len(of(events, RecordDeadLettered)) == 1


async def test_a_destination_that_hangs_counts_as_failed(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kinesis, b"poison")
    events: list[Any] = []
    calls = 0

    async def keep(letter: Letter) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()

    chosen: dict[str, Any] = {"retry": FAST, "dead_letters": DeadLettersTo(keep)}
    monkeypatch.setattr(holding, "DEAD_LETTER_TIMEOUT_S", 0.05)
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), events=events, **chosen) as consumer:
        async for batch in consumer:
            batch.dead_letter()
            break
        await until(lambda: of(events, RecordDeadLettered))
    assert [event.error_type for event in of(events, DeadLetterFailed)] == ["TimeoutError"]


async def test_a_drain_waits_for_letters_that_are_being_written(local: LocalKinesis, kinesis: Any) -> None:
    numbers = put(kinesis, b"poison")
    leases = MemoryLeaseTable()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def keep(letter: Letter) -> None:
        begun.set()
        await go_on.wait()

    async with asyncio.timeout(DEADLINE_S):
        consumer = consumer_of(local, leases, dead_letters=DeadLettersTo(keep))
        async with consumer:
            async for batch in consumer:
                batch.dead_letter()
                break
            await begun.wait()
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            go_on.set()
            await closing
    row = await leases.get(SHARD_ID)
    assert row is not None
    assert row.checkpoint.position == Position(numbers[0])


async def test_a_stream_for_dead_letters_that_is_not_there_is_told(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    chosen = DeadLettersToStream(stream="nowhere")
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable(), dead_letters=chosen) as consumer:
        with pytest.raises(NotFoundError, match="nowhere"):
            await anext(aiter(consumer))


async def test_a_batch_makes_no_dead_letters_that_are_written_nowhere(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, b"0")
    async with asyncio.timeout(DEADLINE_S), consumer_of(local, MemoryLeaseTable()) as consumer:
        batch = await anext(aiter(consumer))
        with pytest.raises(OptionError, match="where they go"):
            batch.dead_letter()
        assert batch.unsettled() == [Position(batch.records[0].sequence_number)]


def letter_of(data: bytes | None, number: int = 1) -> Letter:
    import datetime as dt

    return Letter(
        stream=STREAM, shard_id=SHARD_ID, position=Position(number), attempts=1, error_type="E",
        written_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), partition_key="k", data=data,
    )  # fmt: skip


async def test_data_that_does_not_fit_into_the_stream_is_left_out_and_the_letter_says_so(
    local: LocalKinesis, kinesis: Any
) -> None:
    kinesis.create_stream(StreamName="graves", ShardCount=1)
    sink = StreamLetters(DeadLettersToStream(stream="graves"), wire_of(local))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await sink.write(letter_of(b"x" * 900_000))  # with base64 above a record's limit of 1 MiB
            await sink.write(letter_of(b"x" * 1000))
    finally:
        await sink.close()
    large, small = [Letter.from_json(record["Data"]) for record in records_of(kinesis, "graves")]
    assert (large.data, large.left_out_bytes) == (None, 900_000)
    assert (small.data, small.left_out_bytes) == (b"x" * 1000, 0)


async def test_a_file_that_ends_in_the_middle_of_a_line_costs_no_other_letter(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    path.write_bytes(b'{"kind": "shardway dead le')
    letters = FileLetters(path)
    async with asyncio.timeout(DEADLINE_S):
        await letters.start()
        await asyncio.gather(*[letters.write(letter_of(b"x", number)) for number in range(1, 30)])
        await letters.close()
    lines = path.read_bytes().splitlines()
    assert len(lines) == 30
    assert [Letter.from_json(line).position.sequence_number for line in lines[1:]] == list(range(1, 30))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
async def test_a_disk_that_is_full_is_told_to_all_that_wait(tmp_path: Path) -> None:
    letters = FileLetters(tmp_path / "full")
    letters.path.symlink_to("/dev/full")
    async with asyncio.timeout(DEADLINE_S):
        found = await asyncio.gather(
            letters.write(letter_of(b"x")), letters.write(letter_of(b"y")), return_exceptions=True
        )
        await letters.close()
    assert [type(error) for error in found] == [OSError, OSError]


@pytest.mark.parametrize(
    "ledger",
    [
        {"retry": Retry()},
        {"retry": Retry(failures_max=None), "stalled": DeadLetters()},
        {"retry": Retry(failures_max=None), "stalled": Redeliver(then=DeadLetters())},
    ],
    ids=["retry", "stalled", "redelivered"],
)
def test_policies_that_make_dead_letters_need_to_know_where_to(ledger: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="dead_letters does not say where"):
        options_of(**ledger)
    chosen = options_of(**ledger, dead_letters=DeadLettersTo(print)).ledger
    assert {name: getattr(chosen, name) for name in ledger} == ledger


def test_the_default_gives_records_up_only_where_there_is_somewhere_to_keep_them() -> None:
    assert options_of().ledger.retry.failures_max is None
    assert options_of(dead_letters=DeadLettersTo(print)).ledger.retry.failures_max is not None


def records_of(kinesis: Any, stream: str) -> list[dict[str, Any]]:
    shard_id = kinesis.list_shards(StreamName=stream)["Shards"][0]["ShardId"]
    iterator = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON")
    found: list[dict[str, Any]] = kinesis.get_records(ShardIterator=iterator["ShardIterator"])["Records"]
    return found
