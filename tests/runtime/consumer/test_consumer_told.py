"""What an operator reads when something is wrong: what, where, what follows; once; and nothing of the data."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from shardway import OptionError
from shardway.core.leases import LeaseRow, Outcome, Write
from shardway.core.leases.worker_row import WorkerRow
from shardway.errors import AccessDeniedError, NotFoundError, TransportError
from shardway.events import BatchFailed, LeaseTableFailed, TaskFailed, WorkerIdShared
from shardway.leases import MemoryLeaseTable
from shardway.options import LeaseOptions
from shardway.testing import Fault
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_RETRIES, consumer_of, put, until, wire
from tests.runtime.consumer.faulty_tables import FaultyTable

if TYPE_CHECKING:
    from shardway.local import LocalKinesis
    from shardway.model import Record
    from shardway.runtime.shard.batch import Batch

pytestmark = pytest.mark.timeout(DEADLINE_S)
SECRET = b"the card number"


def of(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def read(consumer: Any, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        for batch in await consumer.getmany():
            got += [record.data for record in batch]
            batch.ack()
    return got


class NoWrites(MemoryLeaseTable):
    """Whose policy has forgotten UpdateItem."""

    denied = True

    async def write(self, write: Write) -> Outcome:
        if not self.denied:
            return await super().write(write)
        raise AccessDeniedError("AccessDeniedException", "not authorized: UpdateItem", operation="UpdateItem")


async def test_a_lease_table_that_may_not_be_written_is_told_with_what_is_missing(local: LocalKinesis) -> None:
    events: list[Any] = []
    table = NoWrites()
    async with consumer_of(local, table, on_event=events.append, failover_s=5.0):
        await until(lambda: of(events, LeaseTableFailed))
        table.denied = False
    told = of(events, LeaseTableFailed)[0]
    assert (told.table, told.call, told.error_code) == (table.name, "write", "AccessDeniedException")
    assert "not authorized: UpdateItem" in told.reason


async def test_a_lease_table_that_does_not_answer_is_told_and_afterwards_all_goes_on(
    local: LocalKinesis, kinesis: Any
) -> None:
    events: list[Any] = []
    table = FaultyTable(MemoryLeaseTable())
    async with consumer_of(local, table, on_event=events.append) as consumer:
        await until(lambda: consumer.statistics().shards)
        table.is_cut = True
        await until(lambda: "workers" in {event.call for event in of(events, LeaseTableFailed)})
        table.is_cut = False
        wanted = put(kinesis, range(5))
        got = await read(consumer, len(wanted))
    assert got == wanted


async def test_a_consumer_that_starts_while_its_table_is_away_waits_for_it(local: LocalKinesis, kinesis: Any) -> None:
    events: list[Any] = []
    table = FaultyTable(MemoryLeaseTable())
    table.is_cut = True
    wanted = put(kinesis, range(5))
    async with consumer_of(local, table, on_event=events.append) as consumer:
        await until(lambda: len([event for event in of(events, LeaseTableFailed) if event.call == "ensure"]) > 1)
        table.is_cut = False
        assert await read(consumer, len(wanted)) == wanted


async def test_a_consumer_ends_at_once_though_its_table_was_never_there(local: LocalKinesis) -> None:
    events: list[Any] = []
    table = FaultyTable(MemoryLeaseTable())
    table.is_cut = True
    async with consumer_of(local, table, on_event=events.append, drain_deadline_s=600.0):
        await until(lambda: of(events, LeaseTableFailed))
        table.is_cut = False


class AwayAtFirst:
    """A place for dead letters that cannot be reached the first times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.kept: list[Any] = []

    async def start(self) -> None:
        if self.failures:
            self.failures -= 1
            raise TransportError("no connection to the stream of dead letters")

    async def write(self, letter: Any) -> None:
        self.kept.append(letter)

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_place_for_dead_letters_that_is_away_at_the_start_is_waited_for_and_told(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    letters = AwayAtFirst(failures=2)
    monkeypatch.setattr("shardway.runtime.consumer.worker_run.open_letters", lambda *_: letters)
    wanted = put(kinesis, range(5))
    async with consumer_of(local, MemoryLeaseTable(), on_event=events.append) as consumer:
        assert await read(consumer, len(wanted)) == wanted
    told = of(events, TaskFailed)
    assert [event.error_type for event in told] == ["TransportError"] * 2
    assert {event.work for event in told} == {"opening the place for dead letters"}


async def test_a_close_waits_for_a_table_that_does_not_answer_as_long_as_it_is_told(local: LocalKinesis) -> None:
    """Its lease ends by itself after ten minutes: no container platform waits for that."""
    table = FaultyTable(MemoryLeaseTable())
    bounds = {"failover_s": 600.0, "drain_deadline_s": 0.1, "close_grace_s": 0.1}
    async with consumer_of(local, table, **bounds) as consumer:
        await until(lambda: consumer.statistics().shards)
        table.is_cut = True
    assert next(iter((await table._table.scan()).rows)).owner is not None, "its successors have to wait"


async def test_a_table_that_works_is_not_told(local: LocalKinesis) -> None:
    events: list[Any] = []
    table = MemoryLeaseTable()
    await table.create(LeaseRow(key="shardId-000000000000", counter=4))
    async with consumer_of(local, table, on_event=events.append) as consumer:
        await until(lambda: consumer.statistics().shards)
    assert of(events, LeaseTableFailed) == []


async def test_two_processes_with_one_worker_id_are_told(local: LocalKinesis) -> None:
    events: list[Any] = []
    table = MemoryLeaseTable()
    quick = {"worker_id": "one", "failover_s": 1.0, "on_event": events.append}
    async with consumer_of(local, table, **quick) as first:
        await until(lambda: first.statistics().shards)
        async with consumer_of(local, table, **quick):
            await until(lambda: of(events, WorkerIdShared))
    assert of(events, WorkerIdShared)[0] == WorkerIdShared(table.name, "one")


async def test_another_stream_under_an_application_that_lives_is_refused(local: LocalKinesis, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="returns", ShardCount=1)
    await until(
        lambda: kinesis.describe_stream_summary(StreamName="returns")["StreamDescriptionSummary"]["OpenShardCount"]
    )
    table = MemoryLeaseTable()
    wanted = put(kinesis, range(3))
    async with consumer_of(local, table, failover_s=2.0) as first:
        await until(lambda: first.statistics().shards)
        with pytest.raises(
            OptionError, match=r"^application: in the table .* are of arn:.*/orders .* not of arn:.*/returns"
        ):
            async with consumer_of(local, table, stream="returns") as other:
                await other.getmany()
        assert await read(first, len(wanted)) == wanted


async def test_another_stream_under_an_application_that_is_dead_is_read(local: LocalKinesis) -> None:
    table = MemoryLeaseTable()
    held = frozenset({"shardId-000000000000"})
    await table.put_worker(WorkerRow(worker_id="dead", failover_s=0.4, held=held, stream="arn:another"))
    async with consumer_of(local, table, failover_s=1.0) as consumer:
        await until(lambda: consumer.statistics().shards)


async def test_a_row_that_a_crash_has_left_is_no_second_process(local: LocalKinesis) -> None:
    events: list[Any] = []
    table = MemoryLeaseTable()
    await table.put_worker(WorkerRow(worker_id="one", counter=5000, failover_s=10.0))
    async with consumer_of(local, table, worker_id="one", on_event=events.append) as consumer:
        await until(lambda: consumer.statistics().shards)
    assert of(events, WorkerIdShared) == []


async def test_a_handler_that_fails_is_told_by_its_own_line_and_without_its_message(
    local: LocalKinesis, kinesis: Any
) -> None:
    events: list[Any] = []

    async def handle(batch: Any) -> None:
        if not of(events, BatchFailed):
            int(bytes(batch.records[0].data))

    async with consumer_of(local, MemoryLeaseTable(), on_event=events.append, retry=QUICK_RETRIES) as consumer:
        put(kinesis, [SECRET], key=lambda _: "a key")

        async def end() -> None:
            await until(lambda: consumer.statistics().shards and consumer.statistics().shards[0].settled)
            await consumer.close()

        ending = asyncio.create_task(end())
        await consumer.run_batches(handle)
        await ending
    (failed,) = of(events, BatchFailed)
    line = handle.__code__.co_firstlineno + 2
    assert (failed.error_type, failed.error_at) == ("ValueError", f"test_consumer_told.py:{line}")


async def test_what_is_told_is_logged_when_no_other_function_listens(
    local: LocalKinesis, kinesis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(kinesis, [SECRET], key=lambda _: "a key")
    caplog.set_level(logging.INFO, logger="shardway")
    batch: Batch[Record]
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        async for batch in consumer:
            with batch:
                raise ValueError(SECRET.decode())
            break
    lines = [record.getMessage() for record in caplog.records if record.name == "shardway"]
    (failed,) = [line for line in lines if "the handler failed" in line]
    assert failed.startswith("orders: shardId-000000000000: the handler failed for 1 records from 4")
    assert "ValueError (test_consumer_told.py:" in failed
    assert not any("card" in line or "a key" in line for line in lines)


STUCK = """
import asyncio, sys, time
from shardway import Consumer, HandoffOptions, SyncConsumer
from shardway.leases import MemoryLeaseTable

options = {"starting_position": "TRIM_HORIZON", "handoff": HandoffOptions(drain_deadline_s=600.0)}

def stand(batch):
    print("stuck", flush=True)
    time.sleep(600)

async def wait(batch):
    print("stuck", flush=True)
    await asyncio.sleep(600)

async def main():
    async with Consumer("orders", application="billing", leases=MemoryLeaseTable(), **options) as consumer:
        consumer.close_on_signals()
        await consumer.run_batches(wait)

if sys.argv[1] == "tasks":
    asyncio.run(main())
else:
    with SyncConsumer("orders", application="billing", leases=MemoryLeaseTable(), **options) as consumer:
        consumer.close_on_signals()
        consumer.run_batches(stand)
"""


@pytest.mark.parametrize("face", ["tasks", "threads"])
def test_a_second_signal_ends_a_process_whose_handler_is_stuck(local: LocalKinesis, kinesis: Any, face: str) -> None:
    put(kinesis, range(1))
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, face], env={**os.environ, **local.environment()}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        deadline_s = time.monotonic() + DEADLINE_S / 2
        while process.poll() is None and time.monotonic() < deadline_s:  # the first may come again before it is heard
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        assert process.poll() == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", ["throttle", "server_error", "reset"])
async def test_a_start_waits_for_what_passes(local: LocalKinesis, kinesis: Any, how: Any) -> None:
    wanted = put(kinesis, range(3))
    local.faults.add(Fault(how=how, operation="DescribeStreamSummary", count=4))
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        got = await read(consumer, len(wanted))
    assert got == wanted


async def test_an_error_of_a_service_says_which_region_and_table_were_asked(local: LocalKinesis) -> None:
    with pytest.raises(NotFoundError, match=r"^DescribeStreamSummary: .*Stream ordres.*\(us-east-1, request "):
        async with consumer_of(local, MemoryLeaseTable(), stream="ordres"):
            pass
    local.faults.add(Fault(how="access_denied", operation="DescribeTable"))
    with pytest.raises(AccessDeniedError, match=r"^DescribeTable: .*\(table billing(-Workers)?, us-east-1, request "):
        async with consumer_of(local, LeaseOptions(connection=wire(local))) as consumer:
            await consumer.getmany()
