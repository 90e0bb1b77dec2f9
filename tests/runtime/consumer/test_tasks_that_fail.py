"""What goes on beside the reading of shards fails in a way that nothing foresees: it is told, and something follows
from it. Nothing hangs, and nothing stops in silence.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Retry
from shardway.aws.record_source import KinesisSource
from shardway.core.leases import Outcome, Write
from shardway.core.ledger.letters import Letters
from shardway.dead_letters import DeadLettersTo
from shardway.events import ShardLeft, TaskFailed
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from shardway.runtime.consumer import lifecycle
from shardway.runtime.consumer.lifecycle import Lifecycle
from shardway.runtime.consumer.streams import OpenStream
from shardway.runtime.threads.own_thread import OwnThread
from shardway.runtime.worker.reading_ahead import WarmUp
from shardway.runtime.worker.worker import Worker
from shardway.tasks import NotAskedToEndError
from shardway.waiting import side_by_side
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_LEASES, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STREAMS = {STREAM: 2}


async def bug(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a bug")


async def cancelled(*_: object, **__: object) -> Any:
    """What it waits for is cancelled by others."""
    waited_for = asyncio.get_running_loop().create_future()
    waited_for.cancel()
    await waited_for


def failed(events: list[Any], work: str) -> list[TaskFailed]:
    return [one for one in events if isinstance(one, TaskFailed) and work in one.work]


async def read(consumer: Any, got: list[bytes], count: int) -> None:
    async for batch in consumer:
        with batch:
            got += [record.data for record in batch.records]
        if len(got) >= count:
            return


@asynccontextmanager
async def heard(local: LocalKinesis, events: list[Any], **given: Any) -> AsyncIterator[Any]:
    async with asyncio.timeout(DEADLINE_S):
        leases = given.pop("leases", None) or MemoryLeaseTable()
        async with consumer_of(local, leases, on_event=events.append, **{**QUICK_LEASES, **given}) as consumer:
            yield consumer


async def test_asking_for_the_retention_is_told_and_reading_goes_on(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, got, events = put(kinesis, range(50)), list[bytes](), list[Any]()
    monkeypatch.setattr(OpenStream, "_describe_again", bug)
    monkeypatch.setattr("shardway.runtime.consumer.streams.FACTS_AGE_MAX_S", 0.0)
    async with heard(local, events) as consumer:
        await read(consumer, got, 50)
        await until(lambda: failed(events, "retention"))
    assert sorted(got) == sorted(wanted)
    one = failed(events, "retention")[0]
    assert (one.stream, one.shard_id, one.error_type) == (STREAM, None, "ZeroDivisionError")
    assert one.error_at.startswith("test_tasks_that_fail.py:")


async def test_a_search_for_the_registration_that_all_have_left_is_told(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that wait for it have its error; where none waits any more, an event has."""
    goes_on, events = asyncio.Event(), list[Any]()

    async def fails(source: KinesisSource, name: str) -> str:
        await goes_on.wait()
        never: str = await bug()
        return never

    async with heard(local, events, own_thread=False) as consumer:
        stream = consumer._session.streams[STREAM]
        stream._consumer, stream._consumer_arn = "billing", "arn"
        monkeypatch.setattr(KinesisSource, "registered", fails)
        goes_on.set()
        found = await asyncio.gather(stream._find_consumer(), stream._find_consumer(), return_exceptions=True)
        assert [type(one) for one in found] == [ZeroDivisionError] * 2
        assert not failed(events, "fan-out")
        goes_on.clear()
        asking = asyncio.create_task(stream._find_consumer())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait((asking,))
        goes_on.set()
        await until(lambda: failed(events, "fan-out"))


async def test_what_is_done_before_a_shards_end_lets_the_shard_go(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kinesis, range(10))
    kinesis.split_shard(
        StreamName=STREAM, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126)
    )  # fmt: skip
    events, got = list[Any](), list[bytes]()
    monkeypatch.setattr(Lifecycle, "ending", bug)

    async def ended(_: object) -> None:
        raise AssertionError("is not called")

    async with heard(local, events, on_shards_ended=ended) as consumer:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await read(consumer, got, 1_000)
        await until(lambda: [one for one in events if isinstance(one, ShardLeft)])
    assert failed(events, "before its end")[0].shard_id == "shardId-000000000000"


async def test_a_dead_letter_that_is_neither_written_nor_put_off_lets_the_shard_go(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kinesis, range(3))
    events = list[Any]()

    def written(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Letters, "written", written)
    letters = DeadLettersTo(lambda letter: asyncio.sleep(0))
    ledger = dict[str, Any](retry=Retry(failures_max=1))
    async with heard(local, events, **ledger, dead_letters=letters) as consumer:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await consumer.run_batches(bug)
    assert failed(events, "dead letter")[0].what_follows.startswith("the shard is let go")


async def test_a_drain_that_fails_hands_over_what_is_settled(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, events, got = MemoryLeaseTable(), list[Any](), list[bytes]()
    monkeypatch.setattr(Lifecycle, "leaving", bug)
    wanted = put(kinesis, range(50))
    async with heard(local, events, leases=table, on_shards_revoked=cancelled) as consumer:
        await read(consumer, got, 50)
    assert len(failed(events, "the end of its delivery")) == 2
    assert [row.owner for row in table.rows()] == [None, None]
    assert sorted(got) == sorted(wanted)
    assert all(row.checkpoint.is_position for row in table.rows())


async def test_a_shard_that_cannot_be_read_ahead_stays_with_its_owner(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, events, got, other = MemoryLeaseTable(), list[Any](), list[bytes](), list[Any]()
    monkeypatch.setattr(WarmUp, "_run", bug)
    async with heard(local, events, leases=table) as first:
        reading = asyncio.create_task(read(first, got, 50))
        await until(lambda: len(first.statistics().shards) == 2)
        async with heard(local, other, leases=table) as second:
            await until(lambda: failed(other, "reading ahead"))
            wanted = put(kinesis, range(50))
            await reading
            assert len(second.statistics().shards) == 0
    assert sorted(got) == sorted(wanted)
    told = failed(other, "reading ahead")[0]
    assert told.shard_id is not None
    assert told.what_follows == "it is left to others for 2 s"


async def test_what_tells_callbacks_ends_the_consumer(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(lifecycle, "_answer", answer)

    async def assigned(_: object) -> None:
        """Hears of it."""

    async with heard(local, [], on_shards_assigned=assigned) as consumer:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await read(consumer, [], 1)


async def test_a_worker_that_is_cancelled_by_what_it_waits_for_is_no_silent_end(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[Any]()
    async with heard(local, events) as consumer:
        await until(lambda: len(consumer.statistics().shards) == 2)
        monkeypatch.setattr(Worker, "_round", cancelled)
        with pytest.raises(NotAskedToEndError):
            await read(consumer, [], 1)
    assert failed(events, "sharing shards")


class CancelsTable(MemoryLeaseTable):
    """Some of its writes meet a future that others have cancelled."""

    cancels = False
    count = 0

    async def write(self, write: Write) -> Outcome:
        if self.cancels:
            self.count += 1
            if self.count % 2:
                await cancelled()
        return await super().write(write)


async def test_a_write_to_a_lease_that_ends_cancelled_has_no_answer_and_is_repeated(
    local: LocalKinesis, kinesis: Any
) -> None:
    table, got = CancelsTable(), list[bytes]()
    async with heard(local, [], leases=table) as consumer:
        reading = asyncio.create_task(read(consumer, got, 50))
        await until(lambda: len(consumer.statistics().shards) == 2)
        table.cancels = True
        put(kinesis, range(50))
        await reading
        await until(lambda: all(row.checkpoint.is_position for row in table.rows()))
        assert table.count > 1
        table.cancels = False


async def test_watching_the_users_loop_is_begun_again(local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    events, begun = list[Any](), list[int]()
    watch = OwnThread.watch

    async def fails_first(*given: Any) -> None:
        begun.append(1)
        await (bug() if len(begun) == 1 else watch(*given))

    monkeypatch.setattr(OwnThread, "watch", fails_first)
    table = MemoryLeaseTable()
    monkeypatch.setattr(MemoryLeaseTable, "any_loop", True, raising=False)
    async with heard(local, events, leases=table):
        await until(lambda: len(begun) == 2)
    assert len(failed(events, "event loop")) == 1


async def test_work_side_by_side_that_ends_cancelled_is_an_error() -> None:
    """A group takes a task that ends cancelled for one that has done its work."""
    from shardway.errors import TransportError

    done = list[int]()

    async def work(number: int) -> None:
        if number == 1:
            await cancelled()
        done.append(number)

    with pytest.raises(TransportError, match="was cancelled"):
        await side_by_side(work, range(4), 2)
    assert sorted(done) == [0, 2, 3]
