"""A caller that is cancelled, at whatever moment: its record is certainly not written, or it goes on and is told of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.producer.chunk import CHUNK_OVERHEAD_BYTES
from shardway.errors import FlushTimeoutError, ProducerClosedError, PutError, RecordWithdrawnError
from shardway.model import OutRecord, PutResult
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, Heard, call, numbered, quick, read_all, until, wire_of
from tests.runtime.stepping import cancelled_at_every_await

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from shardway.local import LocalKinesis
    from shardway.runtime.producer.handles import PutHandle

    Case = tuple[Coroutine[Any, Any, Any], Callable[[], Awaitable[None]]]

LATE = pytest.mark.parametrize("late", [False, True], ids=["while it waits", "as it goes on"])
SMALL: dict[str, Any] = {"record_bytes_max": 2_048, "buffer_bytes_max": 4_096 + CHUNK_OVERHEAD_BYTES}


async def failure_of(handle: PutHandle) -> RecordWithdrawnError | None:
    (outcome,) = await asyncio.gather(handle, return_exceptions=True)
    assert isinstance(outcome, PutResult | RecordWithdrawnError)
    return outcome if isinstance(outcome, RecordWithdrawnError) else None


class Scene:
    """A producer on a stream that is emptied for each case."""

    def __init__(self, local: LocalKinesis, **options: Any) -> None:
        self.local = local
        self.options = quick(**options)

    async def fresh(self) -> Producer[OutRecord]:
        self.local.reset()
        self.local.faults.clear()
        return Producer[OutRecord](STREAM, connection=wire_of(self.local), options=self.options)

    async def account(self, producer: Producer[OutRecord], *, at_most: int) -> None:
        """Everything that was taken is in the stream, or was withdrawn and is not; nothing is held any more."""
        self.local.faults.clear()
        await producer.close()
        counts = producer.metrics()
        assert counts.user_records_pending == counts.buffer_bytes == 0
        assert counts.user_records_accepted == counts.user_records_put + counts.user_records_withdrawn <= at_most
        assert counts.user_records_failed == counts.user_records_expired == 0
        written = (await read_all(self.local)).counts()
        assert len(written) == counts.user_records_put
        assert set(written.values()) <= {1}


@LATE
async def test_cancellation_at_every_await_of_put(local: LocalKinesis, late: bool) -> None:
    scene = Scene(local)

    async def make() -> Case:
        producer = await scene.fresh()

        async def check() -> None:
            await producer.flush()
            await scene.account(producer, at_most=1)

        return producer.put(OutRecord(b"data", "key")), check

    assert await cancelled_at_every_await(make, late=late) >= 1


@LATE
async def test_cancellation_at_every_await_of_a_put_that_waits_for_room(local: LocalKinesis, late: bool) -> None:
    scene = Scene(local, **SMALL)

    async def make() -> Case:
        producer = await scene.fresh()
        for number in range(2):
            producer.put_nowait(OutRecord(b"%d" % number * 1_500, "key"))
        other = asyncio.create_task(producer.put(OutRecord(b"other" * 300, "key")))

        async def check() -> None:
            assert (await other).attempts == 1
            await scene.account(producer, at_most=4)

        return producer.put(OutRecord(b"data" * 300, "key")), check

    assert await cancelled_at_every_await(make, late=late) >= 2


@LATE
@pytest.mark.parametrize("aggregation", [False, True])
async def test_cancellation_at_every_await_of_put_many(local: LocalKinesis, late: bool, aggregation: bool) -> None:
    scene = Scene(local, **SMALL, aggregation=aggregation)

    async def make() -> Case:
        producer = await scene.fresh()

        async def check() -> None:
            await producer.flush()
            await scene.account(producer, at_most=100)

        return producer.put_many(numbered(range(100))), check

    assert await cancelled_at_every_await(make, late=late) >= 5


@LATE
async def test_cancellation_at_every_await_of_settled(local: LocalKinesis, late: bool) -> None:
    """A caller that waits for outcomes takes nothing back by going away."""
    scene = Scene(local, pacing=False)

    async def make() -> Case:
        producer = await scene.fresh()
        puts = await producer.put_many(numbered(range(2_500)))

        async def check() -> None:
            assert (
                len([result for result in (await puts.settled()).results() if isinstance(result, PutResult)]) == 2_500
            )
            await scene.account(producer, at_most=2_500)
            assert producer.metrics().user_records_put == 2_500

        return puts.settled(), check

    assert await cancelled_at_every_await(make, late=late) >= 1


@LATE
@pytest.mark.parametrize("deadline_s", [None, 30])
async def test_cancellation_at_every_await_of_flush(local: LocalKinesis, late: bool, deadline_s: float | None) -> None:
    scene = Scene(local, linger_s=3_600)

    async def make() -> Case:
        producer = await scene.fresh()
        for record in numbered(range(20)):
            producer.put_nowait(record)

        async def check() -> None:
            await producer.flush()
            await scene.account(producer, at_most=20)
            assert producer.metrics().user_records_put == 20

        return producer.flush(deadline_s), check

    assert await cancelled_at_every_await(make, late=late) >= 1


@LATE
async def test_cancellation_at_every_await_of_start(local: LocalKinesis, late: bool) -> None:
    scene = Scene(local)

    async def make() -> Case:
        producer = await scene.fresh()

        async def check() -> None:
            await producer.put(OutRecord(b"data", "key"))
            await scene.account(producer, at_most=1)
            assert producer.metrics().user_records_put == 1

        return producer.start(), check

    assert await cancelled_at_every_await(make, late=late) >= 1


@LATE
@pytest.mark.parametrize("stalled", [False, True], ids=["free", "stalled"])
async def test_cancellation_at_every_await_of_close(local: LocalKinesis, late: bool, stalled: bool) -> None:
    """A close that is cancelled ends all the same: at once, and every record has an outcome."""
    scene = Scene(local)

    async def make() -> Case:
        producer = await scene.fresh()
        await producer.start()
        if stalled:
            local.faults.add(Fault(how="delay", delay_s=0.03, operation="PutRecords"))
        handles = [producer.put_nowait(record) for record in numbered(range(20))]

        async def check() -> None:
            assert all(handle.done() for handle in handles)
            await producer.close()  # what was shielded is over then, too
            counts = producer.metrics()
            assert counts.user_records_pending == counts.buffer_bytes == 0
            assert counts.user_records_accepted == counts.user_records_put + counts.user_records_failed == 20
            written = (await read_all(local)).counts()
            for handle, record in zip(handles, numbered(range(20)), strict=True):
                error = await failure_of(handle)
                if error is None:
                    assert written[record.data] == 1
                else:
                    assert error.may_be_written or record.data not in written

        return producer.close(), check

    assert await cancelled_at_every_await(make, late=late) >= 2


@LATE
async def test_cancellation_at_every_await_of_a_whole_use(local: LocalKinesis, late: bool) -> None:
    scene = Scene(local)
    producers: list[Producer[OutRecord]] = []

    async def make() -> Case:
        producer = await scene.fresh()
        producers.append(producer)

        async def use() -> None:
            async with producer:
                producer.put_nowait(OutRecord(b"before", "key"))
                await producer.put(OutRecord(b"data", "key"))
                await producer.put_many(numbered(range(10)))

        async def check() -> None:
            await producer.close()
            counts = producer.metrics()
            assert counts.user_records_pending == counts.buffer_bytes == 0
            written = (await read_all(local)).counts()
            assert set(written.values()) <= {1}
            assert len(written) >= counts.user_records_put

        return use(), check

    assert await cancelled_at_every_await(make, late=late) >= 4
    assert producers[-1].metrics().user_records_put == 12


async def test_a_record_that_was_never_sent_is_withdrawn(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="delay", delay_s=0.05, operation="ListShards", count=1))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handle = producer.put_nowait(OutRecord(b"one", "key"))
    waiting = asyncio.create_task(producer.put(OutRecord(b"two", "key")))
    kept = producer.put_nowait(OutRecord(b"three", "key"))
    puts = await producer.put_many(numbered(range(10)))
    await asyncio.sleep(0)
    assert handle.withdraw()
    assert not handle.withdraw()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(RecordWithdrawnError) as told:
        await handle
    assert (told.value.attempts, told.value.may_be_written) == (0, False)
    assert puts.withdraw() == 10
    assert (await kept).attempts == 1
    assert not kept.withdraw()
    await producer.close()
    assert (await read_all(local)).counts() == {b"three": 1}
    counts = producer.metrics()
    assert (counts.user_records_withdrawn, counts.buffer_bytes) == (12, 0)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("aggregation", [False, True])
async def test_records_withdrawn_out_of_the_middle(local: LocalKinesis, aggregation: bool, ordered: bool) -> None:
    """While others of the same chunk were sent, refused, and wait to be sent again."""
    fault = local.faults.add(Fault(how="partial", operation="PutRecords", share=0.5))
    options = quick(
        aggregation=aggregation, ordered_by_key=ordered, request_records_max=10, requests_in_flight_max=1,
        aggregate_bytes_max=200,
    )  # fmt: skip
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        puts = await producer.put_many(numbered(range(500)))
        handles = [producer.put_nowait(record) for record in numbered(range(1_000, 1_500))]
        while fault.hits < 3:
            await asyncio.sleep(0)  # at each turn of the loop: a few milliseconds later, all may be sent
        gone = [handle.withdraw() for handle in handles[::2]]
        assert any(gone)
        fault.clear()
        await puts.settled()
        puts.raise_failure()
        outcomes = await asyncio.gather(*handles, return_exceptions=True)
    withdrawn = {number for number, outcome in enumerate(outcomes, 1_000) if isinstance(outcome, PutError)}
    assert len(withdrawn) == sum(gone)
    written = (await read_all(local)).counts()
    assert sorted(map(int, written)) == sorted({*range(500), *range(1_000, 1_500)} - withdrawn)
    assert set(written.values()) == {1}
    counts = producer.metrics()
    assert (counts.user_records_withdrawn, counts.buffer_bytes) == (len(withdrawn), 0)


async def test_a_cancelled_put_that_was_sent_goes_on(local: LocalKinesis) -> None:
    heard = Heard()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(), on_event=heard.append
    ) as producer:
        fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
        waiting = asyncio.create_task(producer.put(OutRecord(b"sent", "key")))
        await until(lambda: fault.hits)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        fault.clear()
        await producer.flush()
        counts = producer.metrics()
        assert (counts.user_records_put, counts.user_records_withdrawn) == (1, 0)
    assert (await read_all(local)).counts() == {b"sent": 1}


async def test_a_start_that_is_closed_meanwhile_ends(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="delay", delay_s=30, operation="ListShards"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    starting = asyncio.create_task(producer.start())
    await until(lambda: local.stats().operations.get("DescribeStreamSummary"))
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await starting


async def test_a_second_close_hurries_the_first(local: LocalKinesis) -> None:
    fault = local.faults.add(Fault(how="throttle", operation="PutRecords"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    handle = producer.put_nowait(OutRecord(b"data", "key"))
    first = asyncio.create_task(producer.close())
    await until(lambda: fault.hits)
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)
    await first
    with pytest.raises(RecordWithdrawnError):
        handle.result()
    await call(local, "DescribeStreamSummary", StreamName=STREAM)
