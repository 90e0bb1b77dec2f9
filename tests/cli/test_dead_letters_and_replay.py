"""Dead letters and their replay, from end to end: a consumer gives a record up, and a mended one gets it again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Consumer, PollingOptions, Retry, StartingPosition
from shardway.checkpoints import Prompt
from shardway.core.aggregation.writer import encode_aggregate
from shardway.dead_letters import DeadLettersTo, DeadLettersToFile, DeadLettersToStream
from shardway.leases import MemoryLeaseTable
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

    Run = Callable[..., Any]

DEADLINE_S = 60.0
POISON = b"poison"


def consumer_of(leases: MemoryLeaseTable, **settings: Any) -> Consumer[Any]:
    """Of the stream to which the environment leads."""
    return Consumer(
        "orders",
        application="billing",
        **arguments_of(
            leases=leases,
            starting_position=StartingPosition.TRIM_HORIZON,
            polling=PollingOptions(interval_s=0.02, idle_interval_s=0.05),
            cadence=Prompt(),
            **settings,
        ),
    )


async def consume(consumer: Consumer[Any], wanted: set[bytes], *, mended: bool) -> list[bytes]:
    """What was taken, until all of it is there; not mended, it does not like one of the records."""
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        if not mended and POISON in {record.data for record in batch}:
            raise ValueError("not this one")
        got.extend(record.data for record in batch)

    async with asyncio.timeout(DEADLINE_S), consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        while not (wanted <= set(got) and (mended or consumer.statistics().events.get("RecordDeadLettered"))):
            await asyncio.sleep(0.01)
        await consumer.close()
        await running
    return got


@pytest.mark.parametrize("where", ["stream", "file", "callable"])
def test_dead_letters_and_their_replay(local: LocalKinesis, kinesis: Any, run: Run, tmp_path: Path, where: str) -> None:
    """The original is read again by its position (it is a part of an aggregate), and comes once more."""
    datas = [b"a", POISON, b"b"]
    aggregate = encode_aggregate([(f"key {number}", data, None) for number, data in enumerate(datas)])
    kinesis.put_record(StreamName="orders", PartitionKey="k", Data=aggregate)
    path = tmp_path / "dead.jsonl"
    choice: Any = DeadLettersToFile(path=path, with_data=False)
    source = [str(path)]
    if where == "stream":
        kinesis.create_stream(StreamName="graves", ShardCount=1)
        choice, source = DeadLettersToStream(stream="graves", with_data=False), ["--from", "graves"]
    elif where == "callable":
        choice = DeadLettersTo(lambda letter: path.write_bytes(letter.without_data().to_json() + b"\n"))
    leases = MemoryLeaseTable()
    ledger = dict[str, Any](retry=Retry(batch_failures_max=1, failures_max=1, base_s=0.001))
    failing = consumer_of(leases, dead_letters=choice, **ledger)
    assert asyncio.run(consume(failing, {b"a", b"b"}, mended=False)) == [b"a", b"b"]
    listed = run("dead-letters", "list", *source)
    assert (listed.status, listed.stdout.splitlines()[-1]) == (0, "1 dead letter: 1 ValueError")
    replayed = run("dead-letters", "replay", "--of", "orders", *source, "--to", "orders")
    assert (replayed.status, replayed.stdout) == (0, "1 records replayed, 0 of them from their letters\n")
    assert asyncio.run(consume(consumer_of(leases), {POISON}, mended=True)) == [POISON]
