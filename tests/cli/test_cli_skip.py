"""``shardway app skip`` passes over one record on a live fleet, and keeps the record that hangs a real worker."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway import BufferOptions, CheckpointOptions, Consumer, HandoffOptions, LeaseOptions, PollingOptions
from shardway.checkpoints import Prompt
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.ledger.letter import Letter
from tests.cli.tables_kit import SHARDS, lease, make_table, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

DEADLINE_S = 120.0
POISON = b"the record in the way"
pytestmark = [pytest.mark.xdist_group("moved-tables"), pytest.mark.timeout(180)]


@pytest.fixture
def local(service: LocalKinesis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalKinesis]:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield service
    service.faults.clear()


def letters(path: str) -> list[Letter]:
    return [Letter.from_json(line) for line in Path(path).read_bytes().splitlines()]


def checkpoint_of(dynamodb: Any, table: str, shard_id: str = SHARDS[0]) -> str:
    item = dynamodb.get_item(TableName=table, Key={"leaseKey": {"S": shard_id}}, ConsistentRead=True)["Item"]
    return f"{item['checkpoint']['S']}/{item['checkpointSubSequenceNumber']['N']}"


async def test_one_record_is_passed_while_the_fleet_goes_on(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    kinesis.create_stream(StreamName="poisoned", ShardCount=2)
    put(kinesis, "poisoned", 0, b"a0")
    number = put(kinesis, "poisoned", 0, POISON)
    put(kinesis, "poisoned", 0, b"a1")
    put(kinesis, "poisoned", 1, b"b0")
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        if POISON in [record.data for record in batch]:
            await asyncio.Event().wait()
        got.extend(record.data for record in batch)

    consumer: Consumer[Any] = Consumer(
        "poisoned",
        application="poisoned-app",
        starting_position="TRIM_HORIZON",
        buffer=BufferOptions(batch_records_max=1),
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        checkpoints=CheckpointOptions(cadence=Prompt()),
        leases=LeaseOptions(failover_s=2.0),
        handoff=HandoffOptions(drain_deadline_s=1.0),
    )
    words = ("app", "skip", "poisoned-app", "--shard", SHARDS[0], "--failover", "2s")
    async with asyncio.timeout(DEADLINE_S), consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        while sorted(got) != [b"a0", b"b0"]:
            await asyncio.sleep(0.02)
        preview = await asyncio.to_thread(run, *words)
        assert (preview.status, os.listdir()) == (0, [])
        assert number in preview.stderr
        assert f"has {len(POISON)} bytes" in preview.stderr
        assert POISON.decode() not in preview.stdout + preview.stderr
        put(kinesis, "poisoned", 1, b"b1")
        done = await asyncio.to_thread(
            run, *words, "--at", number, "--letters", "letters.jsonl", "--reason", "it hangs", "--apply", "--yes"
        )
        assert done.status == 0, done.stderr
        while sorted(got) != [b"a0", b"a1", b"b0", b"b1"]:
            await asyncio.sleep(0.02)
        running.cancel()
    (letter,) = letters("letters.jsonl")
    assert (letter.data, str(letter.position.sequence_number), letter.shard_id) == (POISON, number, SHARDS[0])
    assert (letter.error_type, letter.error_message, letter.worker) == (
        "SkippedByOperator",
        "it hangs",
        consumer.worker_id,
    )


def test_a_record_inside_of_an_aggregate(run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis) -> None:
    kinesis.create_stream(StreamName="inside", ShardCount=1)
    blob = encode_aggregate([("k", b"x%d" % number, None) for number in range(3)])
    number = put(kinesis, "inside", 0, blob)
    row = {**lease(SHARDS[0], number, owner=None), "checkpointSubSequenceNumber": {"N": "0"}}
    make_table(dynamodb, "inside-app", row)
    words = ("app", "skip", "inside-app", "--stream", "inside", "--shard", SHARDS[0], "--letters", "letters.jsonl")
    assert run(*words, "--at", f"{number}/1", "--apply", "--yes").status == 0
    assert checkpoint_of(dynamodb, "inside-app") == f"{number}/1"
    assert run(*words, "--apply", "--yes").status == 0
    assert checkpoint_of(dynamodb, "inside-app") == f"{number}/2"
    assert [one.data for one in letters("letters.jsonl")] == [b"x1", b"x2"]
    done = run(*words, "--apply", "--yes")
    assert (done.status, "no record waits behind the checkpoint" in done.stderr) == (1, True)


def test_no_other_record_is_passed_over(run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis) -> None:
    kinesis.create_stream(StreamName="second", ShardCount=1)
    first, second = (put(kinesis, "second", 0) for _ in range(2))
    make_table(dynamodb, "second-app", lease(SHARDS[0], "TRIM_HORIZON", owner=None))
    words = ("app", "skip", "second-app", "--stream", "second", "--shard", SHARDS[0], "--apply", "--yes")
    done = run(*words, "--at", second)
    assert (done.status, f"the record behind the checkpoint is {first}, and not {second}" in done.stderr) == (1, True)
    assert "no record is in the way" in run(*words[:5], "--shard", "shardId-000000000009").stderr
    assert "write a sequence number" in run(*words, "--at", "soon").stderr
    assert "choose one of" in run(*words, "--letters", "x", "--letters-stream", "y").stderr
    assert checkpoint_of(dynamodb, "second-app") == "TRIM_HORIZON/0"


def test_a_letter_that_cannot_be_written_moves_nothing(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    kinesis.create_stream(StreamName="unkept", ShardCount=1)
    put(kinesis, "unkept", 0)
    make_table(dynamodb, "unkept-app", lease(SHARDS[0], "TRIM_HORIZON", owner=None))
    words = ("app", "skip", "unkept-app", "--stream", "unkept", "--shard", SHARDS[0], "--apply", "--yes")
    done = run(*words, "--letters", "no/such/folder/letters.jsonl")
    assert (done.status, "the dead letter cannot be written: No such file" in done.stderr) == (1, True)
    assert checkpoint_of(dynamodb, "unkept-app") == "TRIM_HORIZON/0"
    assert run(*words, "-o", "json").status == 0
    (path,) = Path().glob("unkept-app-*.dead-letters.jsonl")
    assert json.loads(path.read_bytes())["kind"] == "shardway dead letter"
