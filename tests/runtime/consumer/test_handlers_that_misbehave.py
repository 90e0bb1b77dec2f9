"""Handlers, callbacks and functions of the user's that end in ways that are easily forgotten: no record is lost by it,
no shard stands still for it, and it is told.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

import pytest

from shardway import (
    AnyOrder,
    Deduplicate,
    OneByOne,
    Retry,
    Skip,
    Stop,
    Warn,
    by_key,
    events,
    unordered,
)
from shardway.dead_letters import DeadLettersTo
from shardway.errors import ShardStoppedError
from shardway.model import StartingPosition
from shardway.testing import SyncTestConsumer, TestConsumer
from tests.options_kit import arguments_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway import AssignedShard, Delivered

pytestmark = pytest.mark.timeout(60)
QUICK = Retry(batch_failures_max=1, failures_max=2, base_s=0.001, cap_s=0.002, then=Skip())
FOR_EVER = Retry(failures_max=None, base_s=0.001, cap_s=0.002)
DATAS = [b"%d" % number for number in range(6)]


def settings(retry: Retry = QUICK, **more: Any) -> dict[str, Any]:
    return {"retry": retry, **more}


async def cancelled_inside() -> None:
    """Something that the handler waits for was cancelled by other code."""
    waiting = asyncio.get_running_loop().create_future()
    waiting.cancel()
    await waiting


# --- put off, and left ----------------------------------------------------------------------------------


async def test_a_record_that_was_put_off_in_its_block_comes_again() -> None:
    got: list[tuple[bytes, int]] = []
    async with TestConsumer(DATAS) as consumer:
        async for record in consumer.records():
            with record:
                got.append((record.data, record.attempt))
                if record.attempt == 1 and record.data in (b"1", b"4"):
                    record.nack()
    assert sorted(got) == sorted([(data, 1) for data in DATAS] + [(b"1", 2), (b"4", 2)])


async def test_a_record_that_was_given_up_in_its_block_is_a_dead_letter() -> None:
    async with TestConsumer(
        DATAS, **arguments_of(**settings(dead_letters=DeadLettersTo(lambda letter: None)))
    ) as consumer:
        async for record in consumer.records():
            with record:
                if record.data == b"3":
                    record.dead_letter(ValueError("not wanted"))
    assert [letter.data for letter in consumer.dead_letters] == [b"3"]


@pytest.mark.parametrize(
    ("concurrency", "order", "wanted"),
    [
        (None, None, b"0 1 2 2 3 4 5"),
        (by_key(2), None, b"0 1 2 2 3 4 5"),
        (None, AnyOrder(), b"0 1 2 3 4 5 2"),
        (unordered(1), None, b"0 1 2 3 4 5 2"),
    ],
    ids=["one by one", "by key", "one by one in any order", "unordered"],
)
async def test_a_record_that_a_handler_put_off_comes_again_in_the_order_that_is_kept(
    concurrency: Any, order: Any, wanted: bytes
) -> None:
    got: list[bytes] = []

    async def handle(record: Delivered[Any]) -> None:
        got.append(record.data)
        if record.attempt == 1 and record.data == b"2":
            record.nack()

    chosen = dict[str, Any](order=order, retry=FOR_EVER)
    async with TestConsumer(ends=True, **arguments_of(**chosen)) as consumer:
        consumer.feed(*DATAS, key="one")
        await consumer.run_records(handle, concurrency=concurrency)
    assert got == wanted.split()


async def test_what_is_put_off_for_long_holds_up_no_close_and_the_next_consumer_has_it_at_once() -> None:
    async with TestConsumer(DATAS, ends=False, **arguments_of(drain_deadline_s=10_000.0)) as consumer:
        (batch,) = await consumer.getmany()
        assert batch.ack(0, 1)
        assert batch.nack(delay_s=100_000.0)
    async with consumer.successor(ends=False) as other:
        (again,) = await other.getmany()
        assert [record.data for record in again] == DATAS[2:]
        assert again.ack()


async def test_a_collection_that_was_put_off_in_its_block_comes_again() -> None:
    got: list[tuple[int, ...]] = []
    async with TestConsumer(DATAS) as consumer:
        async for group in consumer.collect(lambda record: int(record.data) % 2, records=3, age_s=0.05):
            with group:
                got.append(tuple(sorted(int(record.data) for record in group.records)))
                if len(got) == 1:
                    group.nack()
    assert sorted(got) == sorted([got[0], (0, 2, 4), (1, 3, 5)])


# --- lost in the middle of a batch ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", ["records", OneByOne(), by_key(1), unordered(2)], ids=["iterated", "one by one", "by key", "unordered"]
)
async def test_no_record_is_delivered_after_its_shard_was_lost_in_the_middle_of_a_batch(way: Any) -> None:
    """Records of one batch go to a handler one at a time: each of them is a delivery."""
    got: list[tuple[int, bytes]] = []

    async def handle(record: Delivered[Any]) -> None:
        first = not got
        got.append((record.token, record.data))
        if first:
            await consumer.lose()
            losing.set()
        await losing.wait()

    async def iterate() -> None:
        async for record in consumer.records():
            with record:
                await handle(record)

    losing = asyncio.Event()
    async with TestConsumer(ends=False, **arguments_of(retry=FOR_EVER)) as consumer:
        consumer.feed(*DATAS, key="one")
        running = asyncio.create_task(iterate() if way == "records" else consumer.run_records(handle, concurrency=way))
        await losing.wait()
        token = got[0][0]
        await consumer.get_back(consumer.stream.shards()[0])
        while {data for one, data in got if one > token} != set(DATAS):
            await asyncio.sleep(0.001)
        await consumer.close()
        await running
    at_once = 2 if way == unordered(2) else 1
    assert [data for one, data in got if one == token] == DATAS[:at_once]


# --- a cancellation that was not asked for --------------------------------------------------------------


@pytest.mark.parametrize("way", ["run_batches", "run_records"])
@pytest.mark.parametrize("concurrency", [None, by_key(2), unordered(2)], ids=["one by one", "by key", "unordered"])
async def test_a_handler_that_was_cancelled_from_within_has_failed(concurrency: Any, way: str) -> None:
    got: list[bytes] = []

    async def handle(given: Any) -> None:
        datas = [given.data] if way == "run_records" else [record.data for record in given]
        if b"2" in datas:
            await cancelled_inside()
        got.extend(datas)

    async with TestConsumer(DATAS, **arguments_of(**settings())) as consumer:
        await getattr(consumer, way)(handle, concurrency=concurrency)
    assert sorted(got) == [b"0", b"1", b"3", b"4", b"5"]
    assert [skipped.records for skipped in consumer.skipped] == [1]
    assert {event.error_type for event in consumer.events if isinstance(event, events.BatchFailed)} == {
        "HandlerCancelledError"
    }


async def test_a_run_that_is_cancelled_gives_back_and_fails_nothing() -> None:
    begun = asyncio.Event()

    async def handle(batch: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with TestConsumer(DATAS, ends=False) as consumer:
        running = asyncio.create_task(consumer.run_batches(handle))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        (batch,) = await consumer.getmany()
        assert [record.data for record in batch] == DATAS
        assert batch.ack()
    assert not [event for event in consumer.events if isinstance(event, events.BatchFailed)]


async def test_a_letter_whose_writing_was_cancelled_from_within_is_written_later() -> None:
    tries = 0

    async def write(letter: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            await cancelled_inside()

    chosen = dict[str, Any](retry=Retry(failures_max=1), dead_letters=DeadLettersTo(write))
    async with TestConsumer([b"poison"], skip_waits=True, **arguments_of(**chosen)) as consumer:
        async for batch in consumer:
            with batch:
                raise ValueError("no")
    assert tries == 2
    assert [event.error_type for event in consumer.events if isinstance(event, events.DeadLetterFailed)] == [
        "CancelledError"
    ]


async def test_a_callback_that_was_cancelled_from_within_has_failed_and_the_others_are_told() -> None:
    told: list[str] = []

    async def assigned(shards: Sequence[AssignedShard]) -> None:
        await cancelled_inside()

    async def revoked(shards: Sequence[AssignedShard]) -> None:
        told.extend(shard.shard_id for shard in shards)

    async with TestConsumer(shards=2, on_shards_assigned=assigned, on_shards_revoked=revoked) as consumer:
        with pytest.raises(RuntimeError, match="cancelled"):
            await consumer.getmany()
    assert len(told) == 2


# --- in threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StopIteration, concurrent.futures.CancelledError])
def test_errors_that_a_loop_cannot_carry_are_failures_of_the_handler(error: type[Exception]) -> None:
    got: list[bytes] = []

    def handle(record: Any) -> None:
        if record.data == b"2":
            raise error
        got.append(record.data)

    with SyncTestConsumer(DATAS, **arguments_of(**settings())) as consumer:
        consumer.run_records(handle)
    assert got == [b"0", b"1", b"3", b"4", b"5"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_exit_of_a_handler_ends_the_run_and_leaves_the_consumer_alive(error: type[BaseException]) -> None:
    def handle(batch: Any) -> None:
        raise error

    with SyncTestConsumer(DATAS, ends=False, **arguments_of(**settings(FOR_EVER))) as consumer:
        with pytest.raises(error):
            consumer.run_batches(handle)
        (batch,) = consumer.getmany()
        assert [record.data for record in batch] == DATAS
        assert batch.ack()
        consumer.settled()
    assert len(consumer.checkpoints) == 1


@pytest.mark.parametrize("error", [StopIteration, SystemExit])
def test_callbacks_in_a_thread_that_raise_what_a_loop_cannot_carry(error: type[BaseException]) -> None:
    def assigned(shards: Any) -> None:
        raise error

    with SyncTestConsumer(DATAS, ends=False, on_shards_assigned=assigned) as consumer:
        with pytest.raises((RuntimeError, error)):
            consumer.getmany()
        (batch,) = consumer.getmany()
        assert batch.ack()


# --- asked in odd ways ----------------------------------------------------------------------------------


async def test_asking_without_waiting_in_a_loop_lets_the_others_work() -> None:
    got: list[bytes] = []
    async with TestConsumer(DATAS) as consumer:
        while len(got) < len(DATAS):
            for batch in await consumer.getmany(wait_s=0):
                got += [record.data for record in batch]
                batch.ack()
    assert got == DATAS


@pytest.mark.parametrize("delay_s", [-1.0, float("nan")])
async def test_a_delay_that_is_none_is_refused(delay_s: float) -> None:
    async with TestConsumer(DATAS, ends=False) as consumer:
        (batch,) = await consumer.getmany()
        with pytest.raises(ValueError, match="delay_s"):
            batch.nack(delay_s=delay_s)
        assert batch.ack()


async def test_a_shard_that_stopped_and_was_sought_stops_again() -> None:
    async def handle(batch: Any) -> None:
        with batch:
            raise ValueError("no")

    chosen = settings(Retry(batch_failures_max=1, failures_max=1, halve=False, then=Stop()))
    async with TestConsumer(DATAS, ends=False, **arguments_of(**chosen)) as consumer:
        (batch,) = await consumer.getmany()
        for _ in range(2):
            await handle(batch)
            with pytest.raises(ShardStoppedError):
                await consumer.getmany()
            consumer.seek(batch, StartingPosition.TRIM_HORIZON)
            (batch,) = await consumer.getmany()
        batch.ack()


@pytest.mark.parametrize(
    ("key", "failure"),
    [
        (17, "returned int, not bytes, str or None"),
        ("\ud800", "returned a str that UTF-8 cannot encode"),
    ],
    ids=["a number", "no text"],
)
async def test_a_key_of_duplicates_that_is_none_delivers_the_record(key: Any, failure: str) -> None:
    got: list[bytes] = []
    chosen = settings(deduplicate=Deduplicate(key=lambda record: key if record.data == b"2" else record.data))
    async with TestConsumer(DATAS, **arguments_of(**chosen)) as consumer:
        async for batch in consumer:
            with batch:
                got += [record.data for record in batch]
    assert got == DATAS
    assert [event.failure for event in consumer.events if isinstance(event, events.DedupeKeyFailed)] == [failure]


async def test_a_pause_does_not_hide_a_stall() -> None:
    chosen = dict[str, Any](order=AnyOrder(), deadline_s=5.0, stalled=Warn(), retry=FOR_EVER)
    async with TestConsumer(DATAS, ends=False, **arguments_of(**chosen)) as consumer:
        (batch,) = await consumer.getmany()
        consumer.pause()
        await consumer.pass_time(6.0)
        (stalled,) = [event for event in consumer.events if isinstance(event, events.RecordsStalled)]
        assert stalled.records == len(DATAS)
        consumer.resume()
        assert batch.ack()
