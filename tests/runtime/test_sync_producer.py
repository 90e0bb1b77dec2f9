"""The producer for threads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.producer.withdrawal import WITHDRAWN_STEP_RECORDS
from shardway.errors import (
    BufferFullError,
    FlushTimeoutError,
    InvalidRecordError,
    NotFoundError,
    ProducerClosedError,
    RecordWithdrawnError,
)
from shardway.events import ProducerMetrics, PutRecordsDone
from shardway.model import HASH_KEY_MAX, OutRecord, PutResult
from shardway.options import MetricsOptions
from shardway.runtime.producer.intake import CHUNK_RECORDS_MAX
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.interrupting import MemorySink
from tests.runtime.producing import STREAM, Heard, numbered, place_of, places, quick, read_sync, until_sync, wire_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.local import LocalKinesis
    from shardway.runtime.producer.handles import SyncPuts
    from tests.put_entries import Answer, Entry

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
RECORD = OutRecord(b"data", "key")
SMALL: dict[str, Any] = {"record_bytes_max": 4_096, "buffer_bytes_max": 16 * 1024}


@BOTH
def test_results_say_where_the_records_are(local: LocalKinesis, aggregation: bool) -> None:
    records = numbered(range(1_000))
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)) as producer:
        one = producer.put(records[0])
        handles = [producer.put_nowait(record) for record in records[1:100]]
        puts = producer.put_many(records[100:550])
        pairs = producer.put_many([(record.partition_key, record.data) for record in records[550:]])
        results = [one, *(handle.result(20) for handle in handles), *puts.wait().results(), *pairs.wait(20).results()]
    assert place_of(read_sync(local)) == {
        record.data: [place] for record, place in zip(records, places(results), strict=True)
    }


def test_a_subscriber_may_ask_for_the_numbers(local: LocalKinesis) -> None:
    found: list[int] = []

    def on_event(event: Any) -> None:  # on the producer's own thread
        if isinstance(event, PutRecordsDone):
            found.append(producer.metrics().user_records_put)
            assert producer.oldest_pending_s() >= 0

    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(), on_event=on_event) as producer:
        producer.put(RECORD)
    assert found == [1]
    assert producer.metrics().user_records_put == 1


@BOTH
@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
def test_many_threads_put_at_once(local: LocalKinesis, aggregation: bool, ordered: bool) -> None:
    """Every result is that of its own record, each thread's records stay in order, and the bound holds."""
    levels: list[int] = []

    def listen(event: object) -> None:
        if isinstance(event, ProducerMetrics):
            levels.append(event.snapshot.buffer_bytes)

    options = quick(aggregation=aggregation, ordered_by_key=ordered, pacing=False, **SMALL)
    often = MetricsOptions(interval_s=0.002)
    with SyncProducer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=often, on_event=listen
    ) as producer:

        def work(thread: int) -> list[tuple[OutRecord, PutResult]]:
            done: list[tuple[OutRecord, Any]] = []
            for turn in range(10):
                some = [OutRecord(b"%d-%d-%d" % (thread, turn, n), f"thread-{thread}") for n in range(12)]
                done.append((some[0], producer.put(some[0])))
                done += zip(some[1:10], producer.put_many(some[1:10]).wait().results(), strict=True)
                for record in some[10:]:
                    while True:
                        try:
                            handle = producer.put_nowait(record)
                            break
                        except BufferFullError:
                            producer.flush()
                    done.append((record, handle.result()))
            return done

        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(work, range(8)))
        counts = producer.metrics()
    content = read_sync(local)
    found = place_of(content)
    assert len(found) == len(content.records) == 8 * 120
    for pairs in done:
        for record, result in pairs:
            assert found[record.data] == places([result])
    for thread in range(8):
        expected = [b"%d-%d-%d" % (thread, turn, n) for turn in range(10) for n in range(12)]
        assert content.of_key(f"thread-{thread}") == expected  # nothing was refused, and each put was waited for
    assert (counts.user_records_accepted, counts.user_records_pending, counts.buffer_bytes) == (960, 0, 0)
    assert 0 < max(levels) <= 16 * 1024
    assert min(levels) >= 0


def test_threads_that_wait_for_room_while_others_withdraw(local: LocalKinesis) -> None:
    """Room that was taken back goes to the callers that wait, exactly."""
    fault = local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL))
    handles = []
    while True:
        try:
            handles.append(producer.put_nowait(OutRecord(bytes(1_000), "key")))
        except BufferFullError:
            break
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(producer.put, record) for record in numbered(range(4))]
        until_sync(lambda: fault.hits)
        assert all(handle.withdraw() for handle in handles)
        until_sync(lambda: producer.metrics().user_records_accepted == len(handles) + 4)
        fault.clear()
        assert [future.result().attempts for future in waiting] == [1] * 4
    counts = producer.metrics()
    assert (counts.user_records_withdrawn, counts.user_records_put, counts.buffer_bytes) == (len(handles), 4, 0)
    producer.close()


@pytest.mark.parametrize("options", [{}, {"ordered_by_key": True}], ids=["", "ordered"])
def test_others_run_while_many_records_are_withdrawn(options: dict[str, Any]) -> None:
    """The loop gets a turn after so many records. What waits behind a record of its key is withdrawn one by one."""

    class Silent(MemorySink):
        async def put(self, entries: Sequence[Entry]) -> list[Answer]:
            await asyncio.Event().wait()
            raise AssertionError

    count = 40_000
    left: list[int] = []
    stopped = threading.Event()

    async def watch(puts: SyncPuts) -> None:
        while not stopped.is_set():
            left.append(sum(chunk.unsettled for chunk in puts._chunks))
            await asyncio.sleep(0)

    producer = SyncProducer[OutRecord](Silent(), options=quick(record_ttl_s=600.0, **options))
    producer.start()
    puts = producer.put_many([(f"key-{number % 9}", b"%d" % number) for number in range(count)])
    until_sync(lambda: producer._session.driver.tasks)
    watching = asyncio.run_coroutine_threadsafe(watch(puts), producer._errands.thread.loop)
    until_sync(lambda: left)
    withdrawn = puts.withdraw()
    stopped.set()
    watching.result(20)
    sent = count - withdrawn
    assert withdrawn > count // 2
    assert left[-1] == sent
    assert max(before - after for before, after in pairwise(left)) < WITHDRAWN_STEP_RECORDS + CHUNK_RECORDS_MAX
    assert producer.metrics().user_records_withdrawn == withdrawn
    with pytest.raises(FlushTimeoutError):
        producer.close(0)
    assert producer.metrics().buffer_bytes == 0
    assert len(puts.failures()) == count


def test_put_with_a_timeout(local: LocalKinesis) -> None:
    """What was never sent is withdrawn; what was sent goes on."""
    fault = local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    with pytest.raises(TimeoutError):
        producer.put(OutRecord(b"never sent", "key"), timeout_s=0.05)
    fault.clear()
    producer.start()
    fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
    with pytest.raises(TimeoutError):
        producer.put(OutRecord(b"sent", "key"), timeout_s=0.6)
    assert fault.hits
    fault.clear()
    assert producer.put(OutRecord(b"in time", "key"), timeout_s=20).attempts == 1
    producer.close()
    assert read_sync(local).counts() == {b"sent": 1, b"in time": 1}
    counts = producer.metrics()
    assert (counts.user_records_withdrawn, counts.user_records_put) == (1, 2)


def test_handles_in_threads(local: LocalKinesis) -> None:
    fault = local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    first, second = producer.put_nowait(RECORD), producer.put_nowait(RECORD)
    with pytest.raises(TimeoutError):
        first.result(0.01)
    assert not first.done()
    assert first.withdraw()
    assert not first.withdraw()
    with pytest.raises(RecordWithdrawnError):
        first.result()
    puts = producer.put_many([RECORD] * 10)
    assert puts.withdraw() == 10
    assert [type(error) for _, error in puts.failures()] == [RecordWithdrawnError] * 10
    fault.clear()
    assert second.result(20).attempts == 1
    assert not second.withdraw()
    producer.close()
    assert not second.withdraw()
    assert puts.withdraw() == 0
    assert len({first, second}) == 2


def test_a_serializer_in_threads(local: LocalKinesis) -> None:
    calls: list[int] = []

    def serialize(number: int) -> OutRecord:
        calls.append(number)
        return OutRecord(b"%d" % number * len(calls), "key", HASH_KEY_MAX)

    options = quick(record_bytes_max=1_024, buffer_bytes_max=1_280)
    with (
        SyncProducer[int](STREAM, connection=wire_of(local), options=options, serializer=serialize) as producer,
        ThreadPoolExecutor(4) as pool,
    ):
        results = list(pool.map(producer.put, range(20)))
        results += producer.put_many(range(20, 23)).wait().results()  # type: ignore[arg-type]
        results.append(producer.put_nowait(23).result())
        assert producer.metrics().buffer_bytes == 0
    assert {result.shard_id for result in results} == {"shardId-000000000003"}
    assert sorted(calls) == list(range(24))


def test_bad_records_in_threads(local: LocalKinesis) -> None:
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        for _ in range(2):
            for bad in (OutRecord("text", "key"), OutRecord(b"", ""), None, OutRecord(b"", "k" * 257)):  # type: ignore[arg-type]
                for put in (producer.put, producer.put_nowait, lambda one: producer.put_many([RECORD, one])):
                    with pytest.raises(InvalidRecordError):
                        put(bad)  # type: ignore[arg-type]
            producer.put_nowait(RECORD)
        producer.flush()
        assert producer.metrics().user_records_accepted == 2
        assert producer.metrics().buffer_bytes == 0


def test_after_close_in_threads(local: LocalKinesis) -> None:
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    producer.put(RECORD)
    producer.close()
    producer.close()
    for put in (producer.put, producer.put_nowait, lambda one: producer.put_many([one])):
        with pytest.raises(ProducerClosedError):
            put(RECORD)
    with pytest.raises(ProducerClosedError):
        producer.start()
    producer.flush()
    producer.flush(1)
    counts = producer.metrics()
    assert (counts.user_records_put, counts.buffer_bytes) == (1, 0)


def test_closing_with_a_deadline_in_threads(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handle = producer.put_nowait(RECORD)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(producer.put, RECORD)
        until_sync(lambda: producer.metrics().user_records_accepted == 2)
        with pytest.raises(FlushTimeoutError) as passed:
            producer.close(0.05)
        assert len(passed.value.unwritten) == 2
        assert isinstance(waiting.exception(), RecordWithdrawnError)
    with pytest.raises(RecordWithdrawnError):
        handle.result()
    assert producer.metrics().user_records_pending == 0


def test_nothing_is_left_running(local: LocalKinesis) -> None:
    before = set(threading.enumerate())
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        producer.put(RECORD)
        assert set(threading.enumerate()) > before
    with pytest.raises(NotFoundError), SyncProducer("nowhere", connection=wire_of(local)):
        pass
    assert set(threading.enumerate()) == before
    gc.collect()  # what was left open would warn


def test_an_error_in_the_block_still_writes_what_was_put(local: LocalKinesis) -> None:
    def fail() -> None:
        with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
            producer.put_nowait(RECORD)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_sync(local).counts() == {b"data": 1}


def test_an_interrupt_withdraws_what_was_not_sent(local: LocalKinesis) -> None:
    """Ctrl-C while it waits: for room, for an outcome."""
    fault = local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL))

    def interrupt_when(condition: Any) -> threading.Thread:
        def wait() -> None:
            until_sync(condition)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    thread = interrupt_when(lambda: fault.hits)
    with pytest.raises(KeyboardInterrupt):
        producer.put(RECORD)
    thread.join()
    thread = interrupt_when(lambda: producer.metrics().user_records_accepted > 10)
    with pytest.raises(KeyboardInterrupt):
        producer.put_many(numbered(range(1_000)))
    thread.join()
    counts = producer.metrics()
    assert counts.user_records_withdrawn == counts.user_records_accepted > 10
    assert counts.buffer_bytes == 0
    fault.clear()
    producer.close()
    assert read_sync(local).records == []


def test_events_come_on_the_loops_thread_and_may_put(local: LocalKinesis) -> None:
    heard = Heard()
    threads = set()

    def listen(event: Any) -> None:
        threads.add(threading.get_ident())
        heard.append(event)
        if len(heard.of(PutRecordsDone)) == 1 and isinstance(event, PutRecordsDone):
            producer.put_nowait(OutRecord(b"from a listener", "key"))

    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(), on_event=listen) as producer:
        producer.put(RECORD)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert read_sync(local).counts() == {b"data": 1, b"from a listener": 1}


async def test_it_can_be_used_beside_a_loop(local: LocalKinesis) -> None:
    """In an event loop's thread it blocks it, but works; elsewhere it is awaited through a thread."""
    producer = await asyncio.to_thread(SyncProducer[OutRecord], STREAM, connection=wire_of(local), options=quick())
    result = await asyncio.to_thread(producer.put, RECORD)
    assert result.attempts == 1
    assert producer.put(RECORD).attempts == 1
    await asyncio.to_thread(producer.close)
