"""What people get wrong at first, and what they are told."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Consumer, Deliver, OptionError, Retry, Skip, StartingPosition, SyncConsumer, events
from shardway.leases import MemoryLeaseTable
from shardway.runtime.shard.driver import ShardDriver
from shardway.runtime.threads.own_thread import OwnThread
from tests.options_kit import options_of
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)


@pytest.mark.parametrize("face", ["iteration", "records", "getmany", "shards", "run", "collect"])
async def test_a_consumer_that_was_not_started_says_so(local: LocalKinesis, face: str) -> None:
    consumer = consumer_of(local, MemoryLeaseTable())
    reads: dict[str, Any] = {
        "iteration": lambda: anext(aiter(consumer)),
        "records": lambda: anext(consumer.records()),
        "getmany": lambda: consumer.getmany(),
        "shards": lambda: anext(consumer.shards()),
        "run": lambda: consumer.run_batches(print),
        "collect": lambda: anext(consumer.collect(len, records=1)),
    }
    with pytest.raises(RuntimeError, match=r"^the consumer is not started: use it in an `async with`"):
        await reads[face]()
    await consumer.close()


def test_a_consumer_of_threads_that_was_not_started_says_so(local: LocalKinesis) -> None:
    consumer = consumer_of(local, MemoryLeaseTable(), face=SyncConsumer)
    for read in (lambda: next(iter(consumer)), consumer.getmany, lambda: consumer.run_batches(print)):
        with pytest.raises(RuntimeError, match="is not started"):
            read()
    consumer.close()


async def test_statistics_are_for_any_thread(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(5))
    consumer = consumer_of(local, MemoryLeaseTable())
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(consumer.statistics).result().shards == ()
        async with consumer:
            batches = await consumer.getmany()
            told = await asyncio.get_running_loop().run_in_executor(pool, consumer.statistics)
            assert told.records_in_flight == sum(map(len, batches))
            assert told.shards[0].oldest_in_flight_s is not None
            for batch in batches:
                batch.ack()
        assert pool.submit(consumer.statistics).result().records_delivered == told.records_delivered


def test_a_start_as_text_or_as_a_time() -> None:
    assert options_of(starting_position="TRIM_HORIZON").starting_position == StartingPosition.TRIM_HORIZON
    assert options_of(starting_position="LATEST").starting_position == StartingPosition.LATEST
    time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert options_of(starting_position=time).starting_position == StartingPosition.at_timestamp(time)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"starting_position": "trim"}, "TRIM_HORIZON, LATEST or StartingPosition.at_timestamp"),
        ({"starting_position": dt.datetime(2026, 1, 1)}, "needs a time zone"),
        ({"starting_position": 17}, "starting_position is StartingPosition, not 17"),
        ({"failover_s": "10"}, "failover_s is a number, not a str"),
        ({"leases_max": 1.5}, "leases_max is a whole number, not 1.5"),
        ({"buffer": {}}, "buffer is BufferOptions, not a dict"),
        ({"unreadable": Skip}, r"unreadable is .*: call it, Skip\(\)"),
        ({"cadence": "Prompt"}, "cadence is Riding or Every or Prompt, not a str"),
        ({"fan_out": True}, "fan_out is FanOutOptions, not True"),
        ({"strategy": "equal"}, r"strategy is EqualCounts\(\), ByThroughput\(\), Fixed\(\) or a function, not a str"),
        ({"split": ","}, "split is a function, not a str"),
        ({"accept_ignored_keys": None}, "accept_ignored_keys is True or False, not None"),
    ],
    ids=str,
)
def test_settings_of_a_wrong_type_are_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        options_of(**wrong)


def test_policies_of_a_wrong_type_are_named() -> None:
    with pytest.raises(OptionError, match="failures_max is a whole number or None, not a str"):
        Retry(failures_max="3")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="then is DeadLetters or Skip or Stop or GiveUp, not a Deliver"):
        Retry(then=Deliver())  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="order is InOrder or AnyOrder or ByKey, not a str"):
        options_of(order="key")


@pytest.mark.parametrize("face", [Consumer, SyncConsumer])
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"leases": 17}, r"table is a name or a LeaseTable, not 17: SqliteLeaseTable\(path\)"),
        ({"deserializer": "json"}, "deserializer is a function, not a str"),
        ({"connection": {}}, "connection is ConnectionOptions, not a dict"),
        ({"application": None}, "application is a text, not None"),
        ({"stream": 17}, "stream is a name, an ARN, a RecordSource or a list of them, not 17"),
        ({"stream": [STREAM, None]}, r"stream\[1\] is a name, an ARN or a RecordSource, not None"),
        ({"on_event": "log"}, "on_event is a function"),
        ({"on_shards_lost": 1}, "on_shards_lost is a function, not 1"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type_are_named_before_anything_is_made(face: Any, wrong: Any, told: str) -> None:
    before = threading.active_count()
    with pytest.raises(OptionError, match=told):
        face(**{"stream": STREAM, "application": "billing", **wrong})
    assert threading.active_count() <= before + (face is SyncConsumer)


async def test_how_to_run_is_checked_too(local: LocalKinesis) -> None:
    consumer = consumer_of(local, MemoryLeaseTable())
    for wrong, told in (
        ({"handler": "print"}, "handler is a function"),
        ({"concurrency": "by_key"}, "concurrency is OneByOne or ByKey or Unordered, not a str"),
        ({"handlers_max": "3"}, "handlers_max is a whole number, not a str"),
    ):
        with pytest.raises(OptionError, match=told):
            await consumer.run_batches(**{"handler": print, **wrong})
    async with consumer:
        await until(lambda: consumer.statistics().shards)
        shard = consumer.statistics().shards[0].shard_id
        consumer.seek(shard, "TRIM_HORIZON")
        with pytest.raises(OptionError, match="a start is TRIM_HORIZON"):
            consumer.seek(shard, "latest")
        with pytest.raises(OptionError, match="to is Position or StartingPosition, not 5"):
            consumer.seek(shard, 5)


async def test_plain_functions_will_do_too(local: LocalKinesis, kinesis: Any) -> None:
    """A handler that returns nothing to wait for was called again and again, as if it had failed."""
    put(kinesis, range(5))
    told: list[Any] = []
    got: list[bytes] = []
    async with consumer_of(local, MemoryLeaseTable(), on_shards_assigned=told.extend) as consumer:
        running = asyncio.create_task(consumer.run_batches(lambda batch: got.extend(one.data for one in batch)))
        await until(lambda: len(got) == 5)
        await consumer.close()
        await running
    assert len(told) == 1


async def test_what_a_handoff_waits_for_is_told(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.core.shard.drain.DRAIN_TOLD_AFTER_S", 0.01)
    put(kinesis, range(5))
    heard: list[Any] = []
    going_on = asyncio.Event()

    async def hang(shards: Any) -> None:
        await going_on.wait()

    async with consumer_of(
        local, MemoryLeaseTable(), drain_deadline_s=DEADLINE_S, on_event=heard.append, on_shards_revoked=hang
    ) as consumer:
        (batch,) = await consumer.getmany()
        closing = asyncio.create_task(consumer.close())

        def waits() -> list[Any]:
            return [event for event in heard if isinstance(event, events.HandoffWaits)]

        await until(lambda: len(waits()) == 1)
        assert (waits()[0].waits_for, waits()[0].records) == ("on_shards_revoked", len(batch))
        assert waits()[0].position.sequence_number == batch.records[0].sequence_number
        assert 0 < waits()[0].left_s <= DEADLINE_S
        going_on.set()
        batch.ack()
        await closing


async def test_a_callback_that_is_awaited_before_the_one_of_the_handoff_is_named(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.core.shard.drain.DRAIN_TOLD_AFTER_S", 0.01)
    heard: list[Any] = []
    came, going_on = asyncio.Event(), asyncio.Event()

    async def hang(shards: Any) -> None:
        came.set()
        await going_on.wait()

    async def went(shards: Any) -> None:
        pass

    async with consumer_of(
        local, MemoryLeaseTable(), on_event=heard.append, on_shards_assigned=hang, on_shards_revoked=went
    ) as consumer:
        await came.wait()
        closing = asyncio.create_task(consumer.close())
        await until(lambda: any(isinstance(event, events.HandoffWaits) for event in heard))
        going_on.set()
        await closing
    assert [event.waits_for for event in heard if isinstance(event, events.HandoffWaits)] == ["on_shards_assigned"]


async def test_the_way_to_a_callback_is_not_told_as_waiting_for_it(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop with many shards to let go was late, and each shard was said to wait for the program."""
    monkeypatch.setattr("shardway.core.shard.drain.DRAIN_TOLD_AFTER_S", 0.01)
    heard: list[Any] = []
    went: list[Any] = []
    looks = 0
    real_look, real_outside = ShardDriver._ask_for_callers, OwnThread.outside

    def look(self: Any) -> None:
        nonlocal looks
        looks += 1
        real_look(self)

    async def late(self: Any, work: Any) -> object:
        before = looks
        await until(lambda: looks >= before + 3)
        return await real_outside(self, work)

    async def goes(shards: Any) -> None:
        went.append(shards)

    async with consumer_of(local, MemoryLeaseTable(), on_event=heard.append, on_shards_revoked=goes) as consumer:
        await until(lambda: consumer.statistics().shards)
        monkeypatch.setattr(ShardDriver, "_ask_for_callers", look)
        monkeypatch.setattr(OwnThread, "outside", late)
        await consumer.close()
    assert went
    assert looks >= 3
    assert not [event for event in heard if isinstance(event, events.HandoffWaits)]


async def test_a_handler_that_hangs_at_the_end_is_told(
    local: LocalKinesis, kinesis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardway.core.shard.drain.DRAIN_TOLD_AFTER_S", 0.01)
    put(kinesis, range(5))
    heard: list[Any] = []
    async with consumer_of(local, MemoryLeaseTable(), drain_deadline_s=0.5, on_event=heard.append) as consumer:
        (batch,) = await consumer.getmany()
        await consumer.close()
    (waits,) = [event for event in heard if isinstance(event, events.HandoffWaits)]
    assert (waits.waits_for, waits.records) == ("handlers", len(batch))
