"""A flush waits for what was put before it, and tells by record what has no outcome when its deadline passes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.core.producer.limits import RUN_WORK, STEP_RECORDS
from shardway.errors import FlushTimeoutError, RecordWithdrawnError
from shardway.model import OutRecord, PutResult
from shardway.runtime.producer.handles import Unwritten
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.interrupting import MemorySink
from tests.runtime.producing import STREAM, numbered, quick, read_all, read_sync, until, until_sync, wire_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from shardway.local import LocalKinesis
    from tests.put_entries import Answer, Entry

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
FIRST = "shardId-000000000000"


def goes_to_first(record: OutRecord) -> bool:
    key = hash_key(record.partition_key) if record.explicit_hash_key is None else record.explicit_hash_key
    return key < (HASH_KEY_MAX + 1) // 4


def told(unwritten: Sequence[object]) -> dict[OutRecord, bool]:
    assert all(isinstance(one, Unwritten) for one in unwritten)
    found = {one.record: one.sent for one in unwritten if isinstance(one, Unwritten)}
    assert len(found) == len(unwritten)
    return found


@BOTH
@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
async def test_a_flush_whose_deadline_passes(local: LocalKinesis, aggregation: bool, ordered: bool) -> None:
    """What was not written is told by record, each once, and nothing else; then it is written all the same."""
    fault = local.faults.add(Fault(how="partial", operation="PutRecords", shard=FIRST))
    hashed = [OutRecord(b"hashed %d" % number, "other", number) for number in range(5)]
    records = [*numbered(range(300)), *hashed]
    options = quick(aggregation=aggregation, ordered_by_key=ordered, aggregate_bytes_max=500)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        puts = await producer.put_many(records)
        handles = [producer.put_nowait(record) for record in numbered(range(1_000, 1_100))]
        all_records = [*records, *numbered(range(1_000, 1_100))]
        stuck = set(filter(goes_to_first, all_records))
        await until(lambda: producer.metrics().user_records_pending == len(stuck) and fault.hits)
        with pytest.raises(FlushTimeoutError, match="no outcome after") as passed:
            await producer.flush(0.05)
        missing = told(passed.value.unwritten)
        assert set(missing) == stuck >= set(hashed)
        assert any(missing.values())
        assert isinstance(passed.value, TimeoutError)
        fault.clear()
        await producer.flush()
        assert puts.done()
        assert all(handle.done() for handle in handles)
        puts.raise_failure()
    assert (await read_all(local)).counts() == {record.data: 1 for record in all_records}


@BOTH
def test_a_flush_whose_deadline_passes_in_threads(local: LocalKinesis, aggregation: bool) -> None:
    fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick(aggregation=aggregation)) as producer:
        puts = producer.put_many(numbered(range(100)))
        until_sync(lambda: fault.hits)
        with pytest.raises(FlushTimeoutError) as passed:
            producer.flush(0.05)
        assert set(told(passed.value.unwritten)) == set(numbered(range(100)))
        with pytest.raises(TimeoutError):
            puts.wait(0.01)
        fault.clear()
        producer.flush(20)
        assert puts.done()
    assert len(read_sync(local).records) == 100


async def test_what_was_never_sent_is_told_so(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    puts = await producer.put_many(numbered(range(10)))
    with pytest.raises(FlushTimeoutError) as passed:
        await producer.flush(0.02)
    assert told(passed.value.unwritten) == dict.fromkeys(numbered(range(10)), False)
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)
    for failure in [error for _, error in puts.failures()]:
        assert isinstance(failure, RecordWithdrawnError)
        assert (failure.attempts, failure.may_be_written) == (0, False)
    assert len(puts.failures()) == 10
    assert producer.metrics().buffer_bytes == 0


async def test_what_was_withdrawn_is_not_told(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="ListShards"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handles = [producer.put_nowait(record) for record in numbered(range(10))]
    assert all(handle.withdraw() for handle in handles[1::2])
    with pytest.raises(FlushTimeoutError) as passed:
        await producer.flush(0)
    assert set(told(passed.value.unwritten)) == set(numbered(range(0, 10, 2)))
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)


async def test_a_flush_is_not_held_up_by_what_was_put_after_it(local: LocalKinesis) -> None:
    options = quick(linger_s=3_600)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
        before = producer.put_nowait(OutRecord(b"before", "key"))
        flushing = asyncio.create_task(producer.flush(20))
        timed = asyncio.create_task(producer.flush(0.05))
        await asyncio.sleep(0)
        producer.put_nowait(OutRecord(b"after", "key"))
        with pytest.raises(FlushTimeoutError) as passed:
            await timed
        assert set(told(passed.value.unwritten)) == {OutRecord(b"before", "key")}
        fault.clear()
        await flushing
        assert before.done()


async def test_a_flush_that_is_overtaken_ends(local: LocalKinesis) -> None:
    """Others may put without end: a flush waits for what was there, not for silence."""
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(pacing=False)) as producer:
        going = True

        async def put_on() -> None:
            while going:
                await producer.put_many(numbered(range(50)))
                await asyncio.sleep(0)

        putting = asyncio.create_task(put_on())
        for _ in range(5):
            handle = producer.put_nowait(OutRecord(b"mine", "key"))
            await producer.flush(20)
            assert handle.done()
        going = False
        await putting


async def test_several_flushes_at_once(local: LocalKinesis) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(linger_s=3_600)) as producer:
        handles = []
        flushes = []
        for record in numbered(range(20)):
            handles.append(producer.put_nowait(record))
            flushes.append(asyncio.create_task(producer.flush()))
            await asyncio.sleep(0)
        await asyncio.gather(*flushes)
        assert all(handle.done() for handle in handles)
        assert all(isinstance(handle.result(), PutResult) for handle in handles)


async def test_a_flush_of_nothing_ends_at_once(local: LocalKinesis) -> None:
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    await producer.flush()
    await producer.flush(0)
    await producer.close()
    await producer.flush(0)


@BOTH
async def test_closing_with_a_deadline_gives_up_what_is_left(local: LocalKinesis, aggregation: bool) -> None:
    """Each record has one outcome, and what is called certainly unwritten is not in the stream."""
    local.faults.add(Fault(how="partial", operation="PutRecords", shard=FIRST))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(aggregation=aggregation))
    records = numbered(range(400))
    puts = await producer.put_many(records)
    stuck = set(filter(goes_to_first, records))
    await until(lambda: producer.metrics().user_records_pending == len(stuck))
    with pytest.raises(FlushTimeoutError) as passed:
        await producer.close(0.05)
    failures = dict(puts.failures())
    assert {records[number] for number in failures} == set(told(passed.value.unwritten)) == stuck
    written = (await read_all(local)).counts()
    assert set(written.values()) == {1}
    for number, record in enumerate(records):
        error = failures.get(number)
        assert (record.data in written) == (error is None)
        assert error is None or (isinstance(error, RecordWithdrawnError) and error.attempts > 0)
    counts = producer.metrics()
    assert (counts.user_records_put, counts.user_records_failed) == (len(written), len(failures))
    assert (counts.user_records_pending, counts.buffer_bytes) == (0, 0)


async def test_closing_while_requests_have_no_answer(local: LocalKinesis) -> None:
    """What is on its way then may be written: it is said so."""
    fault = local.faults.add(Fault(how="delay", operation="PutRecords", delay_s=30))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handle = producer.put_nowait(OutRecord(b"data", "key"))
    await until(lambda: fault.hits)
    with pytest.raises(FlushTimeoutError) as passed:
        await producer.close(0)
    assert told(passed.value.unwritten) == {OutRecord(b"data", "key"): True}
    with pytest.raises(RecordWithdrawnError) as closed:
        await handle
    assert (closed.value.may_be_written, closed.value.attempts) == (True, 1)


def test_unwritten_shows_no_data() -> None:
    shown = repr(Unwritten(OutRecord(b"secret", "secret"), sent=True))
    assert "secret" not in shown
    assert "6 bytes" in shown


class SlowSink(MemorySink):
    """It notes what it is given before it answers, which it may do never."""

    def __init__(self, *, stuck: bool) -> None:
        super().__init__()
        self.given: set[bytes] = set()
        self._stuck = stuck

    async def put(self, entries: Sequence[Entry]) -> list[Answer]:
        self.given.update(entry.data for entry in entries)
        if self._stuck:
            await asyncio.Event().wait()
        return await super().put(entries)


@contextlib.asynccontextmanager
async def turns_counted() -> AsyncIterator[list[None]]:
    """It grows as long as the loop has turns for other tasks."""
    turns = list[None]()

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    task = asyncio.create_task(count())
    try:
        yield turns
    finally:
        task.cancel()


async def held(count: int, *, alone: bool, **options: Any) -> tuple[Producer[OutRecord], list[Any]]:
    """A producer that holds so many records, whose stream does not answer."""
    producer = Producer[OutRecord](SlowSink(stuck=True), options=quick(record_ttl_s=600.0, **options))
    await producer.start()
    alone_s = 500.0 if alone else None
    return producer, [producer.put_nowait(record, record_ttl_s=alone_s) for record in numbered(range(count))]


@pytest.mark.parametrize("options", [{}, {"aggregation": True}, {"ordered_by_key": True}])
@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
async def test_others_run_while_many_records_are_given_up(alone: bool, options: dict[str, Any]) -> None:
    """What a close tells and gives up it takes in steps; ``alone``: each record is a chunk of its own."""
    count = 4_000 if alone else 30_000
    producer, handles = await held(count, alone=alone, **options)
    async with turns_counted() as turns:
        with pytest.raises(FlushTimeoutError) as passed:
            await producer.close(0)
        steps = 2 * count * (1 + RUN_WORK if alone else 1) // STEP_RECORDS
        assert len(turns) >= steps // 2
    assert len(told(passed.value.unwritten)) == count
    outcomes = [handle._chunk.outcomes[handle._index] for handle in handles]
    assert {outcome.kind for outcome in outcomes} == {RecordWithdrawnError}
    counts = producer.metrics()
    assert (counts.user_records_failed, counts.user_records_pending, counts.buffer_bytes) == (count, 0, 0)


async def test_what_is_told_as_never_sent_was_not_sent_when_it_is_told() -> None:
    """A flush that tells many records lets the loop run; requests that were on their way may end meanwhile."""
    sink = SlowSink(stuck=False)
    async with Producer[OutRecord](sink, options=quick()) as producer:
        puts = await producer.put_many(numbered(range(30_000)))
        with pytest.raises(FlushTimeoutError) as passed:
            await producer.flush(0)
        given = set(sink.given)
        missing = told(passed.value.unwritten)
        assert not [record for record, sent in missing.items() if not sent and record.data in given]
        await producer.flush()
        (await puts.settled()).raise_failure()
    assert len(sink.written) == 30_000


@pytest.mark.parametrize("again", ["cancelled", "closed again", "asked"])
async def test_a_close_that_is_disturbed_while_it_gives_up_many_records(again: str) -> None:
    producer, handles = await held(30_000, alone=False)
    closing = asyncio.create_task(producer.close(0))
    while not producer._session.send_loop.has_ended:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not producer._session.is_finished
    if again == "cancelled":
        closing.cancel()
    elif again == "closed again":
        await producer.close(0)
    else:
        assert handles[-1].withdraw()
        assert not handles[0].withdraw()
        assert producer.metrics().buffer_bytes > 0
        assert producer.oldest_pending_s() > 0
    with pytest.raises((FlushTimeoutError, asyncio.CancelledError)):
        await closing
    assert all(handle.done() for handle in handles)
    await producer.close()
    counts = producer.metrics()
    assert counts.user_records_failed + counts.user_records_withdrawn == 30_000
    assert (counts.user_records_pending, counts.buffer_bytes) == (0, 0)
