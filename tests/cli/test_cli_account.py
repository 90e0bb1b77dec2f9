"""The account of what was put, the end of a run, and how both are told."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.cli.accounts import RANGES_MAX, Account, NumberRanges, Report
from shardway.cli.delivery import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Batcher
from shardway.cli.interrupt import StoppedError, Stopping
from shardway.cli.output import of_bytes, of_seconds
from shardway.cli.progress import RATE_OVER_S, Rate
from shardway.errors import RecordExpiredError, RecordRefusedError
from shardway.model import OutRecord
from shardway.runtime.producer.meter import ProducerMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


# --- numbers of records ---------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 60), max_size=RANGES_MAX, unique=True))
def test_ranges_hold_the_numbers(numbers: list[int]) -> None:
    ranges = NumberRanges()
    for number in numbers:
        ranges.add(number)
    assert [n for first, last in ranges.ranges for n in range(first, last + 1)] == numbers


def test_ranges_are_told_short() -> None:
    ranges = NumberRanges()
    for number in (5, 6, 7, 12, 20, 21):
        ranges.add(number)
    assert str(ranges) == "5-7, 12, 20-21"
    for number in range(100, 100 + 4 * RANGES_MAX, 2):
        ranges.add(number)
    assert len(ranges.ranges) == RANGES_MAX
    assert ranges.left_out == 2 * RANGES_MAX - (RANGES_MAX - 3)
    assert str(ranges).endswith(f", and {ranges.left_out} more")


@given(st.lists(st.integers(0, BATCH_BYTES_MAX * 2), max_size=60), st.integers(0, 2 * BATCH_RECORDS_MAX))
def test_batches_are_small_enough_to_be_taken_as_a_whole(sizes: list[int], small: int) -> None:
    batcher = Batcher()
    records = [OutRecord(bytes(size), "k") for size in [*sizes, *[1] * small]]
    batches = [batch for number, record in enumerate(records) for batch in batcher.add(number, record)]
    batches += list(batcher.take())
    assert list(batcher.take()) == []
    assert [record for batch in batches for record in batch.records] == records
    assert [number for batch in batches for number in batch.numbers] == list(range(len(records)))
    for batch in batches:
        assert len(batch.records) <= BATCH_RECORDS_MAX
        largest = max(len(record.data) for record in batch.records)
        assert len(batch.records) == 1 or len(batch.records) * largest <= BATCH_BYTES_MAX


# --- the end --------------------------------------------------------------------------------------------


def report(account: Account, **values: object) -> Report:
    meter = ProducerMeter(0.0)
    meter.count_accepted(account.given)
    meter.count_put(account.written, 2048, 0.05, 1, duplicates_possible=True)
    meter.count_errors(3, "Throttled", refused=True)
    return Report(stream="orders", account=account, metrics=meter.snapshot(2.0), what="lines", **values)  # type: ignore[arg-type]


def test_a_report_of_success() -> None:
    account = Account()
    account.given = 10
    account.settle(range(1, 11), [])
    found = report(account)
    assert (found.status, found.complaints()) == (0, [])
    assert found.to_text() == (
        "orders: 10 records written, 2.0 KiB, in 2.0 s: 5 records/s, 1.0 KiB/s; p50 50 ms, p99 50 ms; "
        "3 refusals; 10 may be written twice"
    )


def test_a_report_of_failure() -> None:
    account = Account()
    account.given = 13
    expired = RecordExpiredError("x", attempts=2, may_be_written=True, reason="Throttled")
    refused = RecordRefusedError("x", attempts=1, may_be_written=False, reason="")
    account.settle(range(1, 11), [(0, expired), (8, expired), (9, refused)])
    account.lose([11, 12, 13], "never sent", may_be_written=False)
    found = report(account, interrupted=signal.SIGTERM, fault="input, line 14: it is bad")
    assert found.status == 128 + signal.SIGTERM
    assert found.complaints() == [
        "input, line 14: it is bad",
        "ended by SIGTERM",
        "6 records are not written: 3 never sent, 2 expired (Throttled), 1 refused; 2 may be written all the same; "
        "lines 1, 9-13",
    ]
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (told["records"], told["written"], told["not_written"], told["may_be_written"]) == (13, 7, 6, 2)
    assert told["not_written_lines"] == [[1, 1], [9, 13]]


def test_a_fault_alone_is_no_success() -> None:
    assert report(Account(), fault="it is bad").status == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**20, "5.0 MiB"), (2.5 * 2**40, "2560.0 GiB")],
)
def test_bytes_for_people(count: float, text: str) -> None:
    assert of_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.0001, "0.1 ms"), (0.0123, "12 ms"), (0.9, "900 ms"), (61.25, "61.2 s")]
)
def test_seconds_for_people(seconds: float | None, text: str) -> None:
    assert of_seconds(seconds) == text


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.note(10.0, 500) == 0.0
    assert rate.note(11.0, 600) == 100.0
    for second in range(12, 30):
        last = rate.note(float(second), 600)
    assert last == 0.0
    assert rate.note(30.0, 600 + int(1000 * RATE_OVER_S)) == pytest.approx(1000, rel=0.4)


# --- being stopped --------------------------------------------------------------------------------------


async def forever() -> None:
    await asyncio.Event().wait()


async def test_work_ends_when_the_end_is_asked_for() -> None:
    stopping = Stopping()
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await forever()
        finally:
            ended.set()

    asyncio.get_running_loop().call_soon(stopping.ask)
    with pytest.raises(StoppedError):
        await stopping.unless_asked(work())
    assert ended.is_set()


async def test_work_that_is_done_counts_even_if_the_end_was_asked_for() -> None:
    stopping = Stopping()

    async def work() -> int:
        stopping.ask()
        return 7

    assert await stopping.unless_asked(work()) == 7

    async def fail() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await Stopping().unless_asked(fail())


async def test_items_are_given_until_the_end_is_asked_for() -> None:
    stopping = Stopping()

    async def items() -> AsyncIterator[int]:
        yield 1
        yield 2
        stopping.ask()
        yield 3
        yield 4

    assert [item async for item in stopping.until_asked(items())] == [1, 2, 3]

    async def few() -> AsyncIterator[int]:
        yield 1

    assert [item async for item in Stopping().until_asked(few())] == [1]


async def test_the_first_signal_asks_and_the_second_one_urges() -> None:
    stopping = Stopping()
    before = signal.getsignal(signal.SIGTERM)
    with stopping.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stopping.signalled.wait(), 10)
        assert (stopping.asked, stopping.signal, stopping.at_once.is_set()) == (True, signal.SIGTERM, False)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(stopping.at_once.wait(), 10)
    assert stopping.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


async def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    def listen() -> bool:
        async def run() -> bool:
            with Stopping().listening():
                return True

        return asyncio.run(run())

    assert await asyncio.to_thread(listen)
