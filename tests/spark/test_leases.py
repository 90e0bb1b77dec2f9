"""A query and its application's lease table, as the driver keeps them: without Spark, with a real DynamoDB table."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest

from shardway.aws.kinesis.shapes import PutEntry
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases import Checkpoint, Done, LeaseRow
from shardway.core.leases.writes import take
from shardway.core.log.pace import PollingOptions
from shardway.errors import AccessDeniedError, DataLossError, OptionError, ShardwayError
from shardway.events import CheckpointTrimmed
from shardway.local.embedded import LocalKinesis
from shardway.local.faults import Fault
from shardway.model import Position, StartingPosition, StreamName
from shardway.runtime.consumer.consumer import Consumer
from shardway.spark.leases.claim import LeasesInUseError
from tests.options_kit import arguments_of
from tests.spark.lease_query import DEADLINE_S, FAILOVER_S, Query
from tests.spark.querying import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR_S = 3600
POLICY = Path(__file__).resolve().parents[2] / "docs" / "iam" / "spark-source.json"
LEASE_CALLS = {
    action.removeprefix("dynamodb:")
    for statement in json.loads(POLICY.read_text(encoding="utf-8"))["Statement"]
    if statement["Sid"].startswith("OnlyWithApplicationName")
    for action in statement["Action"]
}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalKinesis]:
    """One for all: its DynamoDB takes a while to start."""
    with LocalKinesis() as service:
        yield service


@pytest.fixture
def query(local: LocalKinesis) -> Iterator[Query]:
    """On a stream of two shards and an application of its own."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    stream = Stream(local, StreamName(name))
    stream.call("CreateStream", ShardCount=2)
    made = Query(stream, f"app-{name}")
    yield made
    made.stop()
    stream.close()


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not come to that"
        time.sleep(0.02)


def consumer_of(
    query: Query, events: list[Any], starting_position: StartingPosition = StartingPosition.TRIM_HORIZON
) -> Consumer[Any]:
    """A Shardway consumer of the same application."""
    local = query.stream.local
    return Consumer(
        query.stream.name.name or "",
        application=query.application,
        connection=ConnectionOptions(
            endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("a", "b")
        ),
        on_event=events.append,
        **arguments_of(
            failover_s=FAILOVER_S,
            look_interval_s=0.1,
            starting_position=starting_position,
            polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        ),
    )


def consume(
    query: Query, wanted: int, starting_position: StartingPosition = StartingPosition.TRIM_HORIZON
) -> tuple[list[bytes], list[Any]]:
    """What it gets, and its events."""
    got: list[bytes] = []
    events: list[Any] = []

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), consumer_of(query, events, starting_position) as consumer:
            async for batch in consumer:
                with batch:
                    got.extend(record.data for record in batch.records)
                if len(got) >= wanted:
                    break

    asyncio.run(main())
    return got, events


def everything(query: Query, *got: list[bytes]) -> None:
    """Every record once."""
    assert sorted(data for some in got for data in some) == sorted(query.stream.written)


def test_a_new_directory_goes_on_where_the_last_one_was_committed(query: Query) -> None:
    query.stream.put(50)
    query.stream.settle()
    query.stream.put(10)
    first = query.start(maxRecordsPerTrigger="20").batch()
    query.batch()  # the second one is not committed: no batch comes after it
    query.until_mirrored()
    query.stop()
    rows = query.rows()
    assert {row.owner for row in rows.values()} == {None}
    assert sorted(row.first_hash_key or 0 for row in rows.values()) == [0, 2**127]
    assert 0 < len(first) < 60
    everything(query, first, query.start().read(60 - len(first)))


def test_a_killed_query_costs_nothing_that_was_mirrored(query: Query) -> None:
    query.stream.put(50)
    got = query.start().read(50)
    query.until_mirrored()
    query.driver = None  # it is not closed
    query.stream.put(20)
    everything(query, got, query.start().read(20))


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_row_that_is_deleted_while_the_query_runs_comes_back_with_a_higher_counter(
    query: Query, made_anew: bool
) -> None:
    """Fencing tokens come of the counter, and an outside system refuses those that go back."""
    query.stream.put(50)
    query.start().read(50)
    query.until_mirrored()
    before = {}
    for key in query.rows():
        before[key] = query.delete_row(key)
        if made_anew:
            query.put_row(LeaseRow(key=key, checkpoint=Checkpoint.LATEST))
    query.stream.put(50)
    query.read(50)
    query.until_mirrored()
    after = query.rows()
    assert {key: row.counter > before[key].counter for key, row in after.items()} == dict.fromkeys(before, True)
    assert all(row.checkpoint > before[key].checkpoint for key, row in after.items())


def test_a_signal_while_the_query_stops_does_not_break_off_its_last_write(query: Query) -> None:
    """Spark closes the connection to the source's process and sends SIGTERM: one comes first."""
    options = query.start(leaseIntervalMs="100000").options  # the first commit is written at once, the next at the end
    query.stop()
    program = Path(__file__).with_name("stopping_process.py")
    command = [sys.executable, str(program), json.dumps(options)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before: dict[str, LeaseRow] = {}
        for _ in range(2):
            query.stream.put(40)
            query.stream.settle()
            print(file=process.stdin, flush=True)
            assert process.stdout.readline() == "committed\n"
            if not before:
                until(lambda: len(query.rows()) == 2)
                before = query.rows()
        fault = query.stream.local.faults.add(Fault(how="delay", operation="UpdateItem", delay_s=0.5))
        process.stdin.close()
        until(lambda: fault.hits > 0)
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
        fault.clear()
    after = query.rows()
    assert {key: row.checkpoint > before[key].checkpoint for key, row in after.items()} == dict.fromkeys(before, True)


def test_a_start_that_says_so_wins_over_the_leases_and_puts_none_back(query: Query) -> None:
    query.stream.put(30)
    query.start().read(30)
    query.until_mirrored()
    query.stop()
    before = {key: row.checkpoint for key, row in query.rows().items()}
    assert len(query.start(continueFromLeases="false", maxRecordsPerTrigger="10").read(30)) == 30
    query.stop()
    assert {key: row.checkpoint for key, row in query.rows().items()} == before


def test_leases_of_another_stream_are_refused_or_begun_anew(query: Query) -> None:
    """As after the stream was deleted and made anew; the same where no row says which stream it is of."""
    query.stream.put(30)
    other = "arn:aws:kinesis:us-east-1:123456789012:stream/other 1700000000"
    old = Checkpoint.parse("49590338271490256608559692538361571095921575989136588898")
    query.put_row(LeaseRow(key="shardId-000000000000", counter=7, checkpoint=old, of_stream=other))
    query.put_row(LeaseRow(key="shardId-000000000001", counter=3, checkpoint=old))
    query.put_row(LeaseRow(key="shardId-000000000009", checkpoint=Checkpoint.LATEST, of_stream=other))
    with pytest.raises(OptionError, match=r"3 leases .* are of .*other .*set continueFromLeases to false"):
        query.start().batch()
    query.stop()
    assert len(query.start(continueFromLeases="false").read(30)) == 30
    query.until_mirrored()
    query.stop()
    rows = query.rows()
    assert sorted(rows) == ["shardId-000000000000", "shardId-000000000001"]
    assert all(row.checkpoint.is_position and row.checkpoint > old for row in rows.values())
    assert {str(row.of_stream).rpartition("/")[2].split()[0] for row in rows.values()} == {query.stream.name.name}
    assert rows["shardId-000000000000"].counter > 7
    query.stream.put(5)
    assert len(query.start().read(5)) == 5


def test_reshards_have_rows_and_trimmed_shards_have_none(query: Query) -> None:
    query.stream.local.reset_stats()
    query.stream.put(30)
    query.start()
    got = query.read(30)
    query.stream.split(0)
    query.stream.put(30)
    got += query.read(30)
    query.until_mirrored()
    rows = query.rows()
    parent = "shardId-000000000000"
    children = {key for key, row in rows.items() if row.parents == {parent}}
    assert rows[parent].checkpoint == Checkpoint.SHARD_END
    assert rows[parent].children == children
    assert len(children) == 2
    assert all(rows[child].checkpoint.is_position for child in children)
    query.stream.settle(13 * HOUR_S)
    query.stream.put(5)
    got += query.read(5)
    query.stream.settle(13 * HOUR_S)
    query.stop()
    query.stream.put(5)
    query.start(query.end)  # a query that looks at the stream anew finds the shard gone
    got += query.read(5)
    query.until_mirrored()
    query.stop()
    assert parent not in query.rows()
    known = botocore.session.get_session().get_service_model("dynamodb").operation_names
    called = set(query.stream.local.stats().operations) & set(known)
    assert called | {"GetItem"} == LEASE_CALLS  # that one only after a write without an answer
    query.stream.put(5)
    everything(query, got, query.start().read(5))


def test_a_silent_shard_of_a_query_from_latest_is_not_left_behind(query: Query) -> None:
    """What arrives between the two queries is read, also where there was nothing to read before."""
    query.stream.put(10)
    query.stream.settle()
    query.start(startingPosition="LATEST").batch()
    query.batch()
    query.until_mirrored()
    query.stop()
    assert {row.checkpoint for row in query.rows().values()} == {Checkpoint.LATEST}
    query.stream.written.clear()
    query.stream.put(10)
    query.stream.settle()
    got, _ = consume(query, 10, starting_position=StartingPosition.LATEST)
    everything(query, got)
    query.stream.put(10)
    query.stream.settle()
    everything(query, got, query.start(startingPosition="LATEST").read(10))


def test_a_consumer_goes_on_where_the_query_stood_and_the_query_where_the_consumer_did(query: Query) -> None:
    query.stream.put(40)
    query.stream.settle()
    query.stream.put(20)
    got = query.start(maxRecordsPerTrigger="30").batch()
    query.batch()
    query.until_mirrored()
    query.stop()
    theirs, events = consume(query, 60 - len(got))
    everything(query, got, theirs)
    assert not [event for event in events if isinstance(event, CheckpointTrimmed)]
    query.stream.put(25)
    got += query.start().read(25)
    query.stop()  # at the tip: the last record that was done is known, and all of it
    query.stream.put(5)
    more, events = consume(query, 5)
    everything(query, got, theirs, more)
    assert not [event for event in events if isinstance(event, CheckpointTrimmed)]


def test_a_worker_that_lives_is_refused_beside_the_query(query: Query) -> None:
    query.stream.put(10)
    holding, done = threading.Event(), threading.Event()

    async def main() -> None:
        async with consumer_of(query, []) as consumer:
            async for batch in consumer:
                with batch:
                    holding.set()
                    while not done.is_set():
                        await asyncio.sleep(0.02)
                return

    worker = threading.Thread(target=asyncio.run, args=(main(),))
    worker.start()
    try:
        assert holding.wait(DEADLINE_S)
        with pytest.raises(LeasesInUseError, match="is alive and owns"):
            query.start().batch()
    finally:
        done.set()
        worker.join(DEADLINE_S)


def test_the_leases_of_a_dead_worker_are_gone_on_from(query: Query) -> None:
    query.stream.put(20)
    got = query.start().read(20)
    query.until_mirrored()
    query.stop()

    async def own() -> None:
        table = query.table()
        for row in (await table.scan()).rows:
            assert isinstance(await table.write(take(row, "killed")), Done)
        await table.close()

    asyncio.run(own())
    query.stream.put(10)
    got += query.start().read(10)
    query.until_mirrored()
    everything(query, got)
    assert {row.owner for row in query.rows().values()} == {None}


@pytest.mark.slow
def test_a_lease_that_is_taken_while_the_query_runs_is_left_alone_and_told(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.stream.put(20)
    query.start().read(20)
    query.until_mirrored()

    async def own() -> LeaseRow:
        table = query.table()
        row = await table.get("shardId-000000000000")
        assert row is not None
        outcome = await table.write(take(row, "a-kcl-worker"))
        assert isinstance(outcome, Done)
        assert outcome.row is not None
        await table.close()
        return outcome.row

    theirs = asyncio.run(own())
    query.stream.put(20)
    assert len(query.read(20)) == 20
    until(lambda: "have an owner now, a-kcl-worker" in caplog.text)
    query.stop()
    assert query.rows()["shardId-000000000000"] == theirs


def test_a_table_that_fails_is_told_and_tried_again_and_the_query_goes_on(
    query: Query, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.spark.leases.mirror.BACKOFF_S", 0.05)
    query.stream.put(20)
    got = query.start().batch()
    faults = query.stream.local.faults
    for operation in ("PutItem", "UpdateItem"):
        faults.add(Fault(how="access_denied", operation=operation))
    try:
        got += query.read(20 - len(got))
        until(lambda: "are behind what the query has committed" in caplog.text)
        assert f"stream {query.stream.name}" in caplog.text
        assert "shardId-00000000000" in caplog.text
        assert query.behind() > 0
    finally:
        faults.clear()
    query.until_mirrored()
    everything(query, got)


def test_of_an_aggregate_that_was_done_in_part_the_whole_comes_again(query: Query) -> None:
    aggregate = encode_aggregate([(f"key-{number}", b"%08d" % number, 0) for number in range(5)])
    query.stream.put_entries([PutEntry(aggregate, "a", "0")])
    assert len(query.start(maxRecordsPerTrigger="1").read(5)) == 5
    query.stop()
    row = query.rows()["shardId-000000000000"]
    number = row.checkpoint.position.sequence_number
    for sub, wanted in ((1, 5), (4, 0)):
        other = Query(query.stream, f"{query.application}-{sub}")
        other.put_row(replace(row, others={}, checkpoint=Checkpoint.at(Position(number, sub))))
        other.put_row(LeaseRow(key="shardId-000000000001"))
        other.start()
        assert len(other.read(wanted)) == wanted
        other.stop()


@pytest.mark.slow
def test_a_checkpoint_that_is_trimmed_is_a_loss_by_the_policy(query: Query) -> None:
    query.stream.put(20)
    query.start().read(20)
    query.stop()
    rows = query.rows()
    query.stream.settle(25 * HOUR_S)
    query.stream.put(4)
    other = Query(query.stream, f"{query.application}-kcl")
    for row in rows.values():
        position = Position(row.checkpoint.position.sequence_number)
        other.put_row(replace(row, others={}, checkpoint=Checkpoint.at(position)))
    with pytest.raises(DataLossError, match="records may have been lost"):
        other.start().batch()
    other.stop()
    assert sorted(other.start(failOnDataLoss="false").read(4)) == query.stream.written[-4:]
    other.stop()
    silent = Query(query.stream, f"{query.application}-silent")
    for row in rows.values():  # as a consumer leaves it that has seen the shard empty an hour ago
        until_ms = int((query.stream.local.clock.now() - HOUR_S) * 1000)
        position = Position(row.checkpoint.position.sequence_number)
        silent.put_row(replace(row, others={}, checkpoint=Checkpoint.at(position), read_until_ms=until_ms))
    assert sorted(silent.start().read(4)) == query.stream.written[-4:]
    silent.stop()


@pytest.mark.parametrize("silent_until", [None, "the tip", "the record"])
def test_a_query_begins_by_leases_with_hours_of_silence_behind_them(query: Query, silent_until: str | None) -> None:
    """The record of the checkpoint is there, and empty pages lie between it and what follows. Rows are as the KCL
    leaves them, or as a consumer that was at the tip then, or later.
    """
    query.stream.put(20)
    query.start().read(20)
    query.stop()
    rows, done_s = query.rows(), query.stream.local.clock.now()
    query.stream.settle(10 * HOUR_S)
    seen_s = {None: None, "the record": done_s, "the tip": query.stream.local.clock.now()}[silent_until]
    query.stream.settle(5 * HOUR_S)
    query.stream.put(6)
    query.stream.settle(3 * HOUR_S)
    other = Query(query.stream, f"{query.application}-other")
    for row in rows.values():
        position = Position(row.checkpoint.position.sequence_number)
        until_ms = None if seen_s is None else int(seen_s * 1000)
        other.put_row(replace(row, others={}, checkpoint=Checkpoint.at(position), read_until_ms=until_ms))
    assert sorted(other.start().read(6)) == sorted(query.stream.written[-6:])
    other.stop()


def test_leases_of_a_former_stream_of_that_name_are_no_place_to_begin(query: Query) -> None:
    query.put_row(LeaseRow(key="shardId-000000000000", checkpoint=Checkpoint.at(Position(7))))
    query.put_row(LeaseRow(key="shardId-000000000001"))
    with pytest.raises(OptionError, match="the query can't go on where its lease says"):
        query.start().batch()


def test_leases_that_are_ahead_of_the_directory_are_told(query: Query, caplog: pytest.LogCaptureFixture) -> None:
    query.stream.put(20)
    query.stream.settle()
    query.stream.put(20)
    query.start(maxRecordsPerTrigger="10").batch()
    old = query.end
    query.read(20)
    query.until_mirrored()
    query.stop()
    query.start(old)
    query.batch()
    assert "are ahead of the Spark checkpoint directory" in caplog.text


def test_a_table_of_several_streams_is_refused(query: Query) -> None:
    query.put_row(LeaseRow(key="1:orders:2:shardId-000000000000", stream="1:orders:2", shard_id="shardId-000000000000"))
    with pytest.raises(OptionError, match="holds leases of several streams") as caught:
        query.start().batch()
    assert any(query.application in note for note in caught.value.__notes__)


def test_a_lease_that_cannot_be_read_is_no_lease_that_is_not_there(query: Query) -> None:
    """Else its shard would begin as if it had never been read."""

    async def spoil() -> None:
        table = query.table()
        await table.ensure()
        row = {"leaseKey": {"S": "shardId-000000000000"}, "leaseCounter": {"N": "1"}, "checkpoint": {"S": "?"}}
        await table._client.call("PutItem", {"TableName": query.application, "Item": row})
        await table.close()

    asyncio.run(spoil())
    with pytest.raises(ShardwayError, match="cannot be read as leases"):
        query.start().batch()


def test_a_table_that_cannot_be_read_at_the_start_is_told(query: Query) -> None:
    """A query that does not know where to begin does not begin."""
    fault = query.stream.local.faults.add(Fault(how="access_denied", operation="Scan"))
    try:
        with pytest.raises(AccessDeniedError) as caught:
            query.start().batch()
    finally:
        fault.clear()
    assert any(query.application in note for note in caught.value.__notes__)
