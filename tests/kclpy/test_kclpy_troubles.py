"""Processors that raise, die, block, refuse; and what their shard's records meet then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done
from shardway.events import BatchFailed, RecordsSkipped
from shardway.kclpy.processor import ProcessorGoneError, ProcessorProcess
from shardway.kclpy.session import OnError, SessionOptions, ShardSession
from shardway.stores.memory import MemoryLeaseTable
from tests.kclpy.kclpy_kit import DEADLINE_S, SHARD_ID, STREAM, Journal, put, running

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.local import LocalKinesis
    from shardway.ports import LeaseTable


async def stored(table: LeaseTable) -> str:
    row = await table.get(SHARD_ID)
    assert row is not None
    return row.checkpoint.text


async def steal(table: LeaseTable) -> None:
    while True:
        row = await table.get(SHARD_ID)
        assert row is not None
        if isinstance(await table.write(writes.take(row, "thief")), Done):
            return


async def test_a_shard_whose_end_is_not_checkpointed_is_not_ended_and_the_processor_is_asked_again(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
    async with running(local, table, "troubles:EndsLate") as worker:
        await worker.until(lambda: len(journal.lines("initialize")) == 3)
        assert sum("has not put a checkpoint" in line for line in worker.said) == 2
    kinds = journal.kinds()
    assert kinds[:5] == ["initialize", "record", "shard_ended", "shard_ended", "shard_ended"]
    assert "initialize" not in kinds[1:5]
    assert await stored(table) == "SHARD_END"


async def test_records_that_a_processor_raises_for_are_given_again_the_bad_one_alone(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    numbers = put(kinesis, "0", "bad", "1")
    async with running(local, table, "troubles:Raises") as worker:
        await worker.until(lambda: len(journal.datas()) == 3)
        assert len([event for event in worker.events if isinstance(event, BatchFailed)]) == 2
    assert journal.datas() == ["0", "bad", "1"]
    assert await stored(table) == numbers[-1]


async def test_records_that_a_processor_raises_for_may_be_passed_over_as_by_amazon_kclpy(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "bad")
    async with running(
        local, table, "troubles:Raises", session=SessionOptions(on_error=OnError.SKIP, end_again_s=0.01)
    ) as worker:
        await worker.until(lambda: journal.lines("raises"))
        put(kinesis, "1")
        await worker.until(lambda: journal.datas() == ["1"])
        (skipped,) = [event for event in worker.events if isinstance(event, RecordsSkipped)]
        assert (skipped.records, skipped.reason) == (1, "the processor raised ValueError")


async def test_a_processor_that_dies_is_followed_by_another_one_from_the_checkpoint(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    numbers = put(kinesis, "0", "1", "deadly", "2")
    async with running(local, table, "troubles:Dies") as worker:
        await worker.until(lambda: len(journal.datas()) == 4)
        (line,) = worker.said
        assert "has ended with status 7" in line
        assert "read again from its checkpoint" in line
    assert journal.datas() == ["0", "1", "deadly", "2"]
    assert len({note["pid"] for note in journal.lines("initialize")}) == 2
    assert await stored(table) == numbers[-1]


async def test_a_processor_that_cannot_begin_yet_is_begun_again(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    put(kinesis, "0")
    async with running(local, MemoryLeaseTable(), "troubles:RaisesAtFirst") as worker:
        await worker.until(lambda: journal.datas() == ["0"])
        (line,) = worker.said
        assert "raised ConnectionError in initialize" in line


@pytest.mark.parametrize("target", ["troubles:CannotBegin", "troubles:Nothing", "nowhere:Processor", "nowhere.py"])
async def test_a_program_that_never_answers_ends_the_worker(
    local: LocalKinesis, journal: Journal, target: str, capfd: pytest.CaptureFixture[str]
) -> None:
    table = MemoryLeaseTable()
    async with running(local, table, target) as worker:
        with pytest.raises(ProcessorGoneError, match=r"with status [12], before it answered anything"):
            await worker.task
    assert journal.lines() == []
    assert "Error" in capfd.readouterr().err
    row = await table.get(SHARD_ID)
    assert row is None or row.owner is None


async def test_a_processor_that_blocks_is_ended_at_its_time_limit(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    options = SessionOptions(answer_timeout_s=0.5)
    async with running(local, table, "troubles:Blocks", session=options, stop_s=0.1) as worker:
        await worker.until(lambda: len({note["pid"] for note in journal.lines("blocks")}) == 2)
        assert "has not answered processRecords within 0.5 s" in worker.said[0]
    assert await stored(table) == "TRIM_HORIZON"


async def test_a_worker_that_stops_does_not_wait_for_ever_for_a_processor_that_blocks(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, "troubles:Blocks", stop_s=0.1, drain_deadline_s=0.2) as worker:
        await worker.until(lambda: journal.lines("blocks"))
        await worker.end()
    row = await table.get(SHARD_ID)
    assert row is not None
    assert (row.owner, row.checkpoint.text) == (None, "TRIM_HORIZON")


async def test_a_processor_that_holds_records_is_waited_for_and_checkpoints_before_it_leaves(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    (number,) = put(kinesis, "0")
    async with running(local, table, "troubles:Slow") as worker:
        await worker.until(lambda: journal.lines("holds"))
        worker.stop.set()
        journal.release()
        await worker.end()
    assert journal.kinds() == ["initialize", "holds", "shutdown_requested", "shutdown"]
    assert await stored(table) == number


async def drained(reader: Any, deadline_s: float) -> bool:
    """Where the reader runs."""
    in_time: bool = await reader.handle.drain(deadline_s)
    return in_time


async def test_a_shard_that_stays_after_its_processor_was_told_to_leave_gets_another_one(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    """As when the worker that was to have it has vanished. What the first one took and kept comes again."""
    put(kinesis, "0")
    async with running(local, MemoryLeaseTable(), "troubles:Keeps") as worker:
        await worker.until(lambda: journal.datas() == ["0"])
        (reader,) = worker.readers
        assert await reader.host.run(lambda: drained(reader, DEADLINE_S))
        assert journal.kinds() == ["initialize", "record", "shutdown_requested"]
        reader.host.ask(reader.handle.resume)
        await worker.until(lambda: journal.datas() == ["0", "0"])
        assert len({note["pid"] for note in journal.lines("initialize")}) == 2


async def test_a_processor_that_was_not_told_yet_goes_on_with_a_shard_that_stays(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, "troubles:Slow") as worker:
        await worker.until(lambda: journal.lines("holds"))
        (reader,) = worker.readers
        assert not await reader.host.run(lambda: drained(reader, 0.05))
        reader.host.ask(reader.handle.resume)
        journal.release()
        (number,) = put(kinesis, "1")
        async with asyncio.timeout(DEADLINE_S):
            while await stored(table) != number:
                await asyncio.sleep(0.01)
        assert journal.kinds() == ["initialize", "holds", "holds"]


async def test_a_late_checkpoint_is_refused_with_the_kcls_exception(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, "troubles:Slow", failover_s=0.5) as worker:
        await worker.until(lambda: journal.lines("holds"))
        (reader,) = worker.readers
        await steal(table)
        await worker.until(lambda: reader.is_over)
        journal.release()
        await worker.until(lambda: journal.lines("shutdown"))
    (refused,) = journal.lines("refused")
    assert (refused["value"], refused["text"]) == ("ShutdownException", "'ShutdownException'")
    assert await stored(table) == "TRIM_HORIZON"


async def test_checkpoints_that_make_no_sense_are_refused_and_change_nothing(
    local: LocalKinesis, kinesis: Any, journal: Journal
) -> None:
    table = MemoryLeaseTable()
    numbers = put(kinesis, "0", "1", "2")
    async with running(local, table, "troubles:Asks") as worker:
        await worker.until(lambda: len(journal.lines("asked")) == 6)
        assert await stored(table) == numbers[-1]
    assert [(note["name"], note["value"]) for note in journal.lines("asked")] == [
        ("behind the last", "IllegalArgumentException"),
        ("no number", "IllegalArgumentException"),
        ("the last", None),
        ("before the stored one", "IllegalArgumentException"),
        ("the last again", None),
        ("the last as a number", None),
    ]


async def test_a_silent_shard_may_call_a_processor_without_records(
    local: LocalKinesis, kinesis: Any, journal: Journal, tmp_path: Path
) -> None:
    options = SessionOptions(empty_call_after_s=0.02)
    async with running(local, MemoryLeaseTable(), "troubles:Counts", session=options) as worker:
        await worker.until(lambda: len(journal.lines("called")) >= 3)
        put(kinesis, "0")
        await worker.until(lambda: any(note["records"] for note in journal.lines("called")))
    assert {note["records"] for note in journal.lines("called")} == {0, 1}


async def test_a_script_is_run_as_the_program_that_it_is(local: LocalKinesis, kinesis: Any, journal: Journal) -> None:
    from tests.kclpy.kclpy_kit import PROGRAMS

    numbers = put(kinesis, "0", "1")
    table = MemoryLeaseTable()
    async with running(local, table, str(PROGRAMS / "script.py")) as worker:
        await worker.until(lambda: len(journal.datas()) == 2)
        await worker.end()
    assert journal.datas() == ["0", "1"]
    assert await stored(table) == numbers[-1]


async def test_a_goodbye_that_fails_is_told_and_the_shard_goes(
    local: LocalKinesis, kinesis: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_call = ShardSession._last_call

    async def fails(session: ShardSession, message: dict[str, Any]) -> None:
        if message["action"] == "shutdownRequested":
            raise ZeroDivisionError("a bug")
        await last_call(session, message)

    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, "troubles:Raises") as worker:
        await worker.until(lambda: journal.datas() == ["0"])
        monkeypatch.setattr(ShardSession, "_last_call", fails)
    assert [line for line in worker.said if "telling the processor that the shard goes" in line]
    row = await table.get(SHARD_ID)
    assert row is not None
    assert row.owner is None


async def test_a_process_that_could_not_be_started_ahead_is_told_and_started_when_it_is_needed(
    local: LocalKinesis, kinesis: Any, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start serves the shard; the one for a shard to come fails."""
    starts: list[int] = []
    start = ProcessorProcess.start.__func__  # type: ignore[attr-defined]

    async def fails_second(kind: type[ProcessorProcess], target: str, *, shim: bool = False) -> ProcessorProcess:
        starts.append(1)
        if len(starts) == 2:
            raise OSError("no more processes")
        process: ProcessorProcess = await start(kind, target, shim=shim)
        return process

    monkeypatch.setattr(ProcessorProcess, "start", classmethod(fails_second))
    table = MemoryLeaseTable()
    put(kinesis, "0")
    async with running(local, table, "troubles:Raises") as worker:
        await worker.until(lambda: journal.datas() == ["0"])
        await worker.until(lambda: [line for line in worker.said if "could not be started: OSError" in line])
        kinesis.split_shard(StreamName=STREAM, ShardToSplit=SHARD_ID, NewStartingHashKey=str(2**127))
        await worker.until(lambda: len(journal.lines("initialize")) == 3)
