"""The buffer's bound: kept exactly, by waiting or by raising, in both faces."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import tracemalloc
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shardway.errors import BufferFullError, FlushTimeoutError, OptionError, ProducerClosedError
from shardway.model import OutRecord
from shardway.options import MetricsOptions, ProducerOptions
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, numbered, quick, read_all, read_sync, until, until_sync, wire_of

if TYPE_CHECKING:
    from shardway.local import LocalKinesis
    from shardway.local.faults import OrderedFault

KIB = 1024
SMALL: dict[str, Any] = {"record_bytes_max": 4 * KIB, "buffer_bytes_max": 9 * KIB}
"""Room for a chunk of 21 records of 128 bytes of data and key."""
CHUNK = 1024
"""What a chunk takes beside its records."""
FITTING = 21


def record(number: int, size: int = 128) -> OutRecord:
    data = b"%d" % number
    return OutRecord(data.ljust(size - 3), "key")


def stall(local: LocalKinesis) -> OrderedFault:
    """Nothing is written until the fault is cleared."""
    return local.faults.add(Fault(how="throttle", operation="PutRecords"))


def fill(producer: Producer[OutRecord] | SyncProducer[OutRecord]) -> None:
    if isinstance(producer, SyncProducer):
        producer.put_many([record(number) for number in range(FITTING)])
        return
    for number in range(FITTING):
        producer.put_nowait(record(number))


async def test_a_full_buffer_by_waiting(local: LocalKinesis) -> None:
    fault = stall(local)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL)) as producer:
        fill(producer)
        with pytest.raises(BufferFullError) as full:
            producer.put_nowait(record(FITTING))
        assert full.value.bytes_wanted == 128 + 256
        waiting = [asyncio.create_task(producer.put(record(FITTING + number))) for number in range(30)]
        many = asyncio.create_task(producer.put_many([record(100 + number) for number in range(200)]))
        await until(lambda: fault.hits > 2)
        assert not any(task.done() for task in [*waiting, many])
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (FITTING, FITTING * 384 + CHUNK)
        fault.clear()
        await asyncio.gather(*waiting)
        await (await many).settled()
        assert producer.metrics().buffer_bytes == 0
    content = await read_all(local)
    assert sorted(int(one.data) for one in content.records) == [*range(FITTING + 30), *range(100, 300)]


async def test_a_full_buffer_by_raising(local: LocalKinesis) -> None:
    fault = stall(local)
    options = quick(**SMALL, raise_when_full=True)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        fill(producer)
        with pytest.raises(BufferFullError) as full:
            await producer.put(record(1_000))
        assert full.value.bytes_wanted == 384
        assert "9088 of 9216" in str(full.value)
        with pytest.raises(BufferFullError):
            producer.put_nowait(record(1_000))
        with pytest.raises(BufferFullError):
            await producer.put_many([record(1_000)])
        fault.clear()
        await producer.flush()
        with pytest.raises(BufferFullError) as full:  # never a part of it, however it would be divided
            await producer.put_many([record(1_000 + number) for number in range(FITTING + 1)])
        assert full.value.bytes_wanted == (FITTING + 1) * 384 + 2 * CHUNK
        await (await producer.put_many([record(FITTING + number) for number in range(FITTING)])).settled()
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (2 * FITTING, 0)
    assert sorted(int(one.data) for one in (await read_all(local)).records) == [*range(2 * FITTING)]


def test_a_full_buffer_by_waiting_in_threads(local: LocalKinesis) -> None:
    fault = stall(local)
    with (
        SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL)) as producer,
        ThreadPoolExecutor(9) as pool,
    ):
        fill(producer)
        with pytest.raises(BufferFullError):
            producer.put_nowait(record(FITTING))
        waiting: list[Future[Any]] = [pool.submit(producer.put, record(FITTING + number)) for number in range(8)]
        many = pool.submit(producer.put_many, [record(100 + number) for number in range(200)])
        until_sync(lambda: fault.hits > 2)
        assert not any(future.done() for future in [*waiting, many])
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (FITTING, FITTING * 384 + CHUNK)
        fault.clear()
        assert all(future.result().attempts for future in waiting)
        many.result().wait()
        assert producer.metrics().buffer_bytes == 0
    assert sorted(int(one.data) for one in read_sync(local).records) == [*range(FITTING + 8), *range(100, 300)]


def test_a_full_buffer_by_raising_in_threads(local: LocalKinesis) -> None:
    fault = stall(local)
    options = quick(**SMALL, raise_when_full=True)
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        fill(producer)
        for put in (producer.put, producer.put_nowait, lambda one: producer.put_many([one])):
            with pytest.raises(BufferFullError) as full:
                put(record(1_000))
            assert full.value.bytes_wanted == 384 + CHUNK
        fault.clear()
        producer.flush()
        with pytest.raises(BufferFullError):
            producer.put_many([record(1_000 + number) for number in range(FITTING + 1)])
        producer.put_many([record(FITTING + number) for number in range(FITTING)]).wait()
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (2 * FITTING, 0)
    assert sorted(int(one.data) for one in read_sync(local).records) == [*range(2 * FITTING)]


def test_waiting_for_room_ends_with_the_timeout(local: LocalKinesis) -> None:
    fault = stall(local)
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL)) as producer:
        fill(producer)
        with pytest.raises(TimeoutError, match="not taken"):
            producer.put(record(1_000), timeout_s=0.05)
        fault.clear()
        producer.flush()
        counts = producer.metrics()
        assert (counts.user_records_accepted, counts.buffer_bytes) == (FITTING, 0)


async def test_close_wakes_callers_that_wait_for_room(local: LocalKinesis) -> None:
    fault = stall(local)
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL))
    await producer.start()
    fill(producer)
    waiting = [asyncio.create_task(producer.put(record(1_000))) for _ in range(3)]
    many = asyncio.create_task(producer.put_many([record(1_000)] * 50))
    await until(lambda: fault.hits)
    closing = asyncio.create_task(producer.close())
    outcomes = await asyncio.gather(*waiting, many, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ProducerClosedError}
    fault.clear()
    await closing
    counts = producer.metrics()
    assert (counts.user_records_put, counts.user_records_pending, counts.buffer_bytes) == (FITTING, 0, 0)
    assert len((await read_all(local)).records) == FITTING


def test_close_wakes_callers_that_wait_for_room_in_threads(local: LocalKinesis) -> None:
    fault = stall(local)
    producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL))
    producer.start()
    fill(producer)
    with ThreadPoolExecutor(4) as pool:
        waiting: list[Future[Any]] = [pool.submit(producer.put, record(1_000)) for _ in range(3)]
        many = pool.submit(producer.put_many, [record(1_000)] * 50)
        until_sync(lambda: fault.hits > 1)
        closing = threading.Thread(target=producer.close)
        closing.start()
        for future in [*waiting, many]:
            assert isinstance(future.exception(), ProducerClosedError)
        fault.clear()
        closing.join()
    counts = producer.metrics()
    assert (counts.user_records_put, counts.user_records_pending, counts.buffer_bytes) == (FITTING, 0, 0)


async def test_a_large_record_is_not_overtaken_for_ever(local: LocalKinesis) -> None:
    """The caller that asked first for room gets it first: small records that come later wait behind a large one."""
    fault = stall(local)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL)) as producer:
        fill(producer)
        order: list[str] = []

        async def put(name: str, size: int) -> None:
            await producer.put_many([record(1, size)])
            order.append(name)

        tasks = [asyncio.create_task(put("large", 4 * KIB))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(put(f"small {number}", 10)) for number in range(5)]
        await until(lambda: fault.hits)
        with pytest.raises(BufferFullError):  # there would be room for it, but others wait
            producer.put_nowait(record(1, 3))
        fault.clear()
        await asyncio.gather(*tasks)
    assert order == ["large", *(f"small {number}" for number in range(5))]


async def test_a_caller_that_goes_away_lets_the_next_one_in(local: LocalKinesis) -> None:
    """A large record that waits no longer stands in no other's way, though nothing became free."""
    stall(local)
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(**SMALL))
    for number in range(FITTING - 5):
        producer.put_nowait(record(number))
    large = asyncio.create_task(producer.put(record(1, 4 * KIB)))
    await asyncio.sleep(0)
    small = asyncio.create_task(producer.put_many([record(2)]))
    await asyncio.sleep(0)
    assert not small.done()
    large.cancel()
    assert len(await small) == 1
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)
    assert producer.metrics().buffer_bytes == 0


async def test_put_many_of_more_than_the_buffer(local: LocalKinesis) -> None:
    """In portions, each of which fits, and with the largest record that there may be."""
    options = quick(record_bytes_max=KIB, buffer_bytes_max=KIB + 256)
    pairs = [("k" * (number % 200 + 1), b"%d" % number) for number in range(300)]
    pairs += [("\N{SNOWMAN}" * 100, bytes(KIB - 300)), ("key", bytes(KIB - 3))]
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        puts = await producer.put_many(pairs)
        await puts.settled()
        puts.raise_failure()
        assert producer.metrics().buffer_bytes == 0
    assert len((await read_all(local)).counts()) == 302


@pytest.mark.parametrize("aggregation", [False, True])
async def test_the_bound_holds_while_the_endpoint_stalls(local: LocalKinesis, aggregation: bool) -> None:
    levels: list[int] = []

    def note(event: object) -> None:
        levels.append(producer.metrics().buffer_bytes)

    options = quick(aggregation=aggregation, record_bytes_max=4 * KIB, buffer_bytes_max=32 * KIB)
    often = MetricsOptions(interval_s=0.001)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=often, on_event=note
    ) as producer:
        fault = stall(local)
        putting = [asyncio.create_task(producer.put_many(numbered(range(n, n + 500)))) for n in range(0, 2_000, 500)]
        await until(lambda: fault.hits > 3)
        fault.clear()
        for puts in await asyncio.gather(*putting):
            await puts.settled()
            puts.raise_failure()
    assert 24 * KIB < max(levels) <= 32 * KIB
    assert min(levels) >= 0
    assert producer.metrics().buffer_bytes == 0
    assert len((await read_all(local)).counts()) == 2_000


def test_a_buffer_too_small_for_a_record_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="buffer_bytes_max"):
        ProducerOptions(record_bytes_max=KIB, buffer_bytes_max=KIB)


@pytest.mark.parametrize("record_ttl_s", [0, -1, float("nan")])
async def test_a_time_to_live_that_is_none(local: LocalKinesis, record_ttl_s: float) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        for _ in range(2):
            with pytest.raises(OptionError, match="record_ttl_s"):
                producer.put_nowait(record(1), record_ttl_s=record_ttl_s)
            with pytest.raises(OptionError, match="record_ttl_s"):
                await producer.put(record(1), record_ttl_s=record_ttl_s)
            with pytest.raises(OptionError, match="record_ttl_s"):
                await producer.put_many([record(1)], record_ttl_s=record_ttl_s)
            producer.put_nowait(record(2))
        await producer.flush()
        assert producer.metrics().user_records_accepted == 2
        assert producer.metrics().buffer_bytes == 0


@pytest.mark.parametrize("style", ["one by one", "time to live", "many of one", "wide keys"])
async def test_what_is_kept_is_not_more_than_the_bound(local: LocalKinesis, style: str) -> None:
    """Also where each record is a chunk of its own, and where a key takes eight bytes for a character."""
    stall(local)
    options = quick(raise_when_full=True, record_bytes_max=4 * KIB, buffer_bytes_max=1024 * KIB, pacing=False)
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=options)
    await producer.start()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        number = 0
        with contextlib.suppress(BufferFullError):
            while True:
                number += 1
                data, key = b"%100d" % number, f"key-{number}"
                if style == "many of one":
                    await producer.put_many([(key, data)])
                elif style == "wide keys":
                    producer.put_nowait(OutRecord(data, key + "\N{GRINNING FACE}" * 240))
                else:
                    producer.put_nowait(OutRecord(data, key), record_ttl_s=60 if style == "time to live" else None)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 1.25 * 1024 * KIB
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)
