"""What is settled is settled by the thread that says so: on the loop, off it, while the consumer ends, after that, by
two at once, and in a process that was forked off.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shardway import CheckpointError, Consumer, OptionError, StartingPosition, SyncConsumer
from shardway.checkpoints import Prompt
from shardway.dead_letters import DeadLettersTo
from shardway.events import RecordsSkipped
from shardway.leases import MemoryLeaseTable
from shardway.testing import MemoryStream
from tests.options_kit import arguments_of
from tests.runtime.consumer.face_kit import DEADLINE_S, POLL, QUICK_RETRIES, settings, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(DEADLINE_S)
COUNT = 400


def stream_of(count: int) -> MemoryStream:
    stream = MemoryStream("orders", shards=1)
    stream.put(*[str(number) for number in range(count)])
    return stream


def given(stream: MemoryStream, table: MemoryLeaseTable, **chosen: Any) -> dict[str, Any]:
    """Arguments for either face. A stream of the test's own making is read on the loop of the program."""
    events = chosen.pop("on_event", None)
    return {
        "stream": stream.source(), "application": "billing", "on_event": events,
        **arguments_of(table, **settings(retry=QUICK_RETRIES, cadence=Prompt(), polling=POLL, **chosen)),
    }  # fmt: skip


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


async def test_threads_settle_what_a_program_on_a_loop_was_handed(pool: ThreadPoolExecutor) -> None:
    """Each record by another thread, while the loop delivers more."""
    stream, table = stream_of(COUNT), MemoryLeaseTable()
    told: list[tuple[int, RecordsSkipped]] = []

    def hear(event: Any) -> None:
        if isinstance(event, RecordsSkipped):
            told.append((threading.get_ident(), event))

    async with Consumer(**given(stream, table, batch_records_max=7, on_event=hear)) as consumer:
        left, skipped = COUNT, 0
        results: list[Future[object]] = []
        while left:
            for batch in await consumer.getmany(50):
                left -= len(batch)
                skipped += len(batch) > 3
                results.extend(pool.submit(batch.skip if at == 3 else batch.ack, at) for at in range(len(batch)))
        assert all([await asyncio.wrap_future(one) for one in results])
        last = stream.records()[-1]
        await until(lambda: table.rows()[0].checkpoint.is_position)
        await until(lambda: table.rows()[0].checkpoint.position.sequence_number == last.sequence_number)
        await until(lambda: len(told) == skipped)
    assert {thread for thread, _ in told} == {threading.get_ident()}, "a function of the program's runs on its loop"


async def test_a_thread_settles_while_the_loop_waits_for_it(pool: ThreadPoolExecutor) -> None:
    """A settlement is not handed to the loop and waited for: a loop that is blocked meanwhile would never answer."""
    stream, table = stream_of(3), MemoryLeaseTable()
    async with Consumer(**given(stream, table)) as consumer:
        (batch,) = await consumer.getmany()
        assert pool.submit(batch.ack, 0).result(DEADLINE_S)  # this blocks the loop
        assert pool.submit(batch.unsettled).result(DEADLINE_S) == batch.unsettled()
        assert len(batch.unsettled()) == 2
        with pytest.raises(ValueError, match="at least 0"):
            pool.submit(batch.nack, delay_s=-1.0).result(DEADLINE_S)
        with pytest.raises(OptionError, match="dead_letters"):
            pool.submit(batch.dead_letter).result(DEADLINE_S)
        with pytest.raises(RuntimeError, match="another thread"):
            pool.submit(consumer.seek, batch, StartingPosition.LATEST).result(DEADLINE_S)
        pool.submit(batch.ack).result(DEADLINE_S)


async def test_one_with_serves_tasks_and_threads(pool: ThreadPoolExecutor) -> None:
    """Left well it is done, left by an error it has failed, left by an interrupt it is delivered again."""
    stream, table = stream_of(9), MemoryLeaseTable()
    failed, interrupted = False, False

    def handle(batch: Any) -> None:
        nonlocal failed, interrupted
        with batch:
            if not failed:
                failed = True
                raise ValueError("not yet")
            if not interrupted:
                interrupted = True
                raise KeyboardInterrupt

    async with Consumer(**given(stream, table, batch_records_max=3)) as consumer:
        done = 0
        while done < 9:
            (batch,) = await consumer.getmany(3)
            try:
                await asyncio.wrap_future(pool.submit(handle, batch))
            except KeyboardInterrupt:
                continue
            done += len(batch) - len(batch.unsettled()) if batch.attempt > 1 or (failed and interrupted) else 0
        assert failed
        assert interrupted
    with SyncConsumer(**given(stream, table)) as threads:
        assert threads.getmany(wait_s=0.05) == []


async def test_two_that_settle_the_same_at_once_count_once_and_both_are_told_true(pool: ThreadPoolExecutor) -> None:
    stream, table = stream_of(200), MemoryLeaseTable()
    async with Consumer(**given(stream, table, batch_records_max=1)) as consumer:
        for _ in range(200):
            (batch,) = await consumer.getmany(1)
            both = threading.Barrier(2)

            def settle(batch: Any = batch, both: threading.Barrier = both) -> bool:
                both.wait(DEADLINE_S)
                return bool(batch.ack())

            assert all(await asyncio.gather(*(asyncio.wrap_future(pool.submit(settle)) for _ in range(2))))
            assert batch.ack(), "also a third time"
        await until(lambda: consumer.statistics().shards[0].records_held == 0)
        assert consumer.statistics().records_in_flight == 0
        assert consumer.statistics().records_delivered == 200


def test_threads_that_settle_while_the_consumer_closes_are_told_what_counts() -> None:
    """True up to the end of the tenure, False from then on; never an error, and what counted is stored."""
    for _ in range(5):
        stream, table = stream_of(COUNT), MemoryLeaseTable()
        counted: list[int] = []
        begun = threading.Barrier(3)

        def settle(batches: list[Any], counted: list[int] = counted, begun: threading.Barrier = begun) -> None:
            begun.wait(DEADLINE_S)
            counted.extend(batch.records[0].sequence_number for batch in batches if batch.ack())

        with SyncConsumer(**given(stream, table, batch_records_max=1, drain_deadline_s=0.02)) as consumer:
            batches: list[Any] = []
            while len(batches) < COUNT:
                batches += consumer.getmany(COUNT)
            threads = [threading.Thread(target=settle, args=(batches[part::2],)) for part in range(2)]
            for one in threads:
                one.start()
            begun.wait(DEADLINE_S)
        for one in threads:
            one.join(DEADLINE_S)
            assert not one.is_alive()
        numbers = [record.sequence_number for record in stream.records()]
        prefix = next((at for at, number in enumerate(numbers) if number not in counted), COUNT)
        (row,) = table.rows()
        assert row.checkpoint.is_position == (prefix > 0)
        if prefix:
            assert row.checkpoint.position.sequence_number == numbers[prefix - 1]


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_after_the_close_nothing_counts(face: str) -> None:
    stream, table = stream_of(8), MemoryLeaseTable()
    chosen = given(stream, table, drain_deadline_s=0.05, batch_records_max=4)

    async def take() -> Any:
        async with Consumer(**chosen) as consumer:
            return (await consumer.getmany(4))[0]

    if face == "tasks":
        batch = asyncio.run(take())
    else:
        with SyncConsumer(**chosen) as consumer:
            (batch,) = consumer.getmany(4)
            (pending,) = [consumer.prepare(batch)]
        for waits in (lambda: consumer.prepare(batch), lambda: consumer.commit(pending)):
            with pytest.raises(CheckpointError, match="closed"):
                waits()
    settles: list[Callable[[], bool]] = [
        *(batch.ack, batch.nack, batch.skip, lambda: batch.fail(ValueError()), lambda: batch.settle_through(0)),
        lambda: batch.ack(1),
    ]
    for settle in settles:
        assert settle() is False
        with ThreadPoolExecutor(1) as other:
            assert other.submit(settle).result(DEADLINE_S) is False
    with batch:
        pass
    assert not batch.counts
    assert len(batch.unsettled()) == 4


def test_a_loop_that_ended_without_a_close_counts_nothing_any_more() -> None:
    stream, table = stream_of(2), MemoryLeaseTable()
    kept: list[Any] = []

    async def leave() -> None:
        consumer = Consumer(**given(stream, table))
        await consumer.start()
        kept.extend([consumer, *await consumer.getmany()])

    asyncio.run(leave())
    with ThreadPoolExecutor(1) as other:
        assert other.submit(kept[1].ack, 0).result(DEADLINE_S) is False


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("apart", [False, True])
def test_a_forked_process_is_told_where_to_settle(apart: bool) -> None:
    """It must neither wait for a lock that a thread of its parent holds, nor take a record for settled."""
    stream, table = stream_of(3), MemoryLeaseTable()
    with SyncConsumer(**given(stream, table)) as consumer:
        (batch,) = consumer.getmany()
        lock: Any = batch._lock
        held = threading.Event()
        over = threading.Event()

        def hold() -> None:
            with lock:
                held.set()
                over.wait(DEADLINE_S)

        holder = threading.Thread(target=hold)
        if apart:
            holder.start()
            held.wait(DEADLINE_S)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            said = []
            for call in (batch.ack, batch.nack, batch.unsettled, consumer.getmany):
                try:
                    call()
                    said.append("nothing")
                except RuntimeError as error:
                    said.append(str(error))
            os.write(writes, "\n".join(said).encode())
            os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as told:
            lines = told.read().splitlines()
        os.waitpid(child, 0)
        over.set()
        if apart:
            holder.join(DEADLINE_S)
        assert [line.partition(" belong to the process that made it")[0] for line in lines[:3]] == [
            "this consumer, and what it delivered,"
        ] * 3
        assert "stayed in the process" in lines[3]
        assert batch.ack(), "the parent goes on"


async def test_what_waits_is_asked_of_the_consumer_that_handed_it_out() -> None:
    stream, table = stream_of(2), MemoryLeaseTable()
    async with Consumer(**given(stream, table)) as consumer:
        (batch,) = await consumer.getmany()
        async with Consumer(**given(stream, MemoryLeaseTable())) as other:
            with pytest.raises(CheckpointError, match="another consumer delivered this"):
                await other.prepare(batch)
            pending = await consumer.prepare(batch)
            with pytest.raises(CheckpointError, match="another consumer delivered this"):
                await other.commit(pending)
        assert (pending.stream, pending.shard_id) == (batch.stream, batch.shard_id)
        batch.ack()
        await consumer.commit(pending)


def test_a_call_that_waits_raises_on_the_loops_own_thread() -> None:
    stream, table = stream_of(2), MemoryLeaseTable()
    told: list[str] = []

    def hear(event: Any) -> None:
        if isinstance(event, RecordsSkipped):
            try:
                consumer.getmany()
            except RuntimeError as error:
                told.append(str(error))

    with SyncConsumer(**given(stream, table, on_event=hear)) as consumer:
        (batch,) = consumer.getmany()
        assert batch.skip()
        assert consumer.statistics().records_in_flight == 0
    assert len(told) == 1
    assert "it would wait for itself" in told[0]


def test_a_letter_that_a_thread_gives_up_is_written_on_the_loop() -> None:
    stream, table = stream_of(2), MemoryLeaseTable()
    letters: list[Any] = []
    with SyncConsumer(**given(stream, table, dead_letters=DeadLettersTo(letters.append))) as consumer:
        (batch,) = consumer.getmany()
        assert batch.dead_letter(0, error=ValueError("no"))
        assert batch.ack(1)
    assert [letter.data for letter in letters] == [b"0"]
