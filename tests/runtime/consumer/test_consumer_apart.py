"""A program that blocks its event loop: what goes on meanwhile, in a thread of its own; and what is called where."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Retry, Skip, SyncConsumer, deserializers, events
from shardway.checkpoints import Prompt
from shardway.dead_letters import DeadLettersTo
from shardway.leases import MemoryLeaseTable, SqliteLeaseTable
from shardway.runtime.consumer.shards import reader_of
from shardway.runtime.threads.host import SameLoop
from shardway.runtime.threads.own_thread import OwnThread
from tests.runtime.consumer.face_kit import DEADLINE_S, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
QUICK: dict[str, Any] = {"failover_s": 1.0, "look_interval_s": 0.1}


def block_until(condition: Callable[[], object]) -> None:
    """As a handler does that waits for something without `await`: the loop stands still."""
    while not condition():
        time.sleep(0.005)


async def first(consumer: Any) -> Any:
    async for batch in consumer:
        return batch
    raise AssertionError("the consumer has ended")


async def test_leases_checkpoints_and_reading_go_on_while_the_loop_is_blocked(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(10), key=lambda _: "one")
    table = MemoryLeaseTable()
    async with consumer_of(local, table, batch_records_max=5, **QUICK) as consumer:
        (one,) = await consumer.getmany(5)
        one.ack()
        (two,) = await consumer.getmany(5)
        (row,) = table.rows()
        ends_s = time.monotonic() + 2.5 * QUICK["failover_s"]
        last = one.records[-1].sequence_number

        def went_on() -> bool:
            (now,) = table.rows()
            stored = now.checkpoint.is_position and now.checkpoint.position.sequence_number == last
            return stored and now.counter > row.counter + 3 and time.monotonic() > ends_s

        block_until(went_on)
        put(kinesis, range(10, 15), key=lambda _: "one")
        block_until(lambda: consumer.statistics().shards[0].records_held == 10)
        assert two.ack()
        (three,) = await consumer.getmany()
        assert [record.data for record in three] == [b"%d" % number for number in range(10, 15)]
        three.ack()
    (row,) = table.rows()
    assert row.checkpoint.position.sequence_number == three.records[-1].sequence_number


def is_past(end_s: float) -> bool:
    return time.monotonic() > end_s


async def test_another_consumer_takes_nothing_from_one_that_blocks(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(40), key=lambda _: "one")
    table, got = MemoryLeaseTable(), list[bytes]()
    other = consumer_of(local, table, face=SyncConsumer, leases_max=1, **QUICK)
    async with consumer_of(local, table, batch_records_max=10, **QUICK) as consumer:
        await until(lambda: consumer.statistics().shards)
        with other:
            async for batch in consumer:
                with batch:
                    ends_s = time.monotonic() + 1.5 * QUICK["failover_s"]
                    block_until(partial(is_past, ends_s))
                    got += [record.data for record in batch]
                if len(got) >= len(wanted):
                    break
            assert other.statistics().records_delivered == 0
    assert got == wanted


async def test_a_handler_that_is_stuck_is_found_though_the_loop_is_blocked(
    local: LocalKinesis, kinesis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    put(kinesis, range(3), key=lambda _: "one")
    caplog.set_level(logging.WARNING, "shardway")
    heard: list[Any] = []
    ledger = dict[str, Any](retry=Retry(failures_max=None), deadline_s=0.2)
    async with consumer_of(local, MemoryLeaseTable(), **ledger, on_event=heard.append, **QUICK) as consumer:
        (batch,) = await consumer.getmany()
        told = consumer.statistics
        block_until(lambda: told().events.get("RecordsStalled") and told().events.get("LoopBlocked"))
        # A listener on the blocked loop hears of it late; the log does not wait for that.
        block_until(lambda: "are not settled after" in caplog.text)
        block_until(lambda: "the event loop was blocked for" in caplog.text)
        assert not [event for event in heard if isinstance(event, events.RecordsStalled | events.LoopBlocked)]
        batch.ack()
        await until(lambda: [event for event in heard if isinstance(event, events.RecordsStalled)])

        def blocks() -> list[Any]:
            return [event for event in heard if isinstance(event, events.LoopBlocked)]

        await until(lambda: blocks() and not blocks()[-1].so_far)
        assert blocks()[-1].seconds >= blocks()[0].seconds >= QUICK["failover_s"] / 4


async def test_what_a_settlement_tells_is_told_before_it_returns_while_the_consumer_goes_on(
    local: LocalKinesis, kinesis: Any
) -> None:
    put(kinesis, range(3), key=lambda _: "one")
    table, heard = MemoryLeaseTable(), list[int]()

    def on_event(event: Any) -> None:
        if isinstance(event, events.RecordsSkipped):
            counter = table.rows()[0].counter
            block_until(lambda: table.rows()[0].counter > counter)  # a function that takes long stops no renewal
            heard.append(event.records)

    async with consumer_of(local, table, on_event=on_event, **QUICK) as consumer:
        (batch,) = await consumer.getmany()
        assert batch.skip()
        assert heard == [3]


async def test_what_is_the_users_is_called_on_the_users_loop(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, [b"1", b"x"], key=lambda _: "one")
    threads: dict[str, set[int]] = {}

    def here(what: str) -> None:
        asyncio.get_running_loop()
        threads.setdefault(what, set()).add(threading.get_ident())

    def deserialize(data: bytes) -> int:
        here("deserializer")
        return int(data)

    async def assigned(shards: Any) -> None:
        here("assigned")
        await asyncio.sleep(0)

    async def revoked(shards: Any) -> None:
        here("revoked")

    def write(letter: Any) -> None:
        here("letters")

    async def handle(batch: Any) -> None:
        here("handler")
        batch.dead_letter(0)

    async with consumer_of(
        local,
        MemoryLeaseTable(),
        deserializer=deserialize,
        unreadable=Skip(),
        dead_letters=DeadLettersTo(write),
        on_shards_assigned=assigned,
        on_shards_revoked=revoked,
        on_event=lambda event: here("events"),
    ) as consumer:
        assert isinstance(consumer._session.host, OwnThread)
        running = asyncio.create_task(consumer.run_batches(handle))
        await until(lambda: "letters" in threads)
        await consumer.close()
        await running
    assert threads.keys() == {"deserializer", "assigned", "revoked", "letters", "handler", "events"}
    assert set.union(*threads.values()) == {threading.get_ident()}


class OwnTable(MemoryLeaseTable):
    """A table of the user's own making, which may belong to one loop."""

    any_loop = False


async def test_a_block_of_a_loop_that_does_everything_is_told_too(local: LocalKinesis) -> None:
    heard: list[Any] = []
    async with consumer_of(local, OwnTable(), on_event=heard.append, **QUICK) as consumer:
        await until(lambda: consumer.statistics().shards)
        ends_s = time.monotonic() + 1.5
        block_until(lambda: time.monotonic() > ends_s)
        await until(lambda: [event for event in heard if isinstance(event, events.LoopBlocked)])
        (told,) = [event for event in heard if isinstance(event, events.LoopBlocked)]
        assert not told.so_far
        assert told.seconds >= 0.5
        assert "no lease was renewed" in told.effect


async def test_which_consumers_live_apart(local: LocalKinesis, tmp_path: Path) -> None:
    sqlite = SqliteLeaseTable(tmp_path / "leases.db")
    for table, given, home in (
        (MemoryLeaseTable(), {}, OwnThread),
        (sqlite, {}, OwnThread),
        (OwnTable(), {}, SameLoop),
        (MemoryLeaseTable(), {"own_thread": False}, SameLoop),
    ):
        async with consumer_of(local, table, **given) as consumer:
            assert isinstance(consumer._session.host, home)
    with consumer_of(local, MemoryLeaseTable(), face=SyncConsumer) as consumer:
        assert isinstance(consumer._session.host, SameLoop)
    await sqlite.close()


def test_a_consumer_whose_loop_is_closed_leaves_its_shards_to_others(local: LocalKinesis, kinesis: Any) -> None:
    """The consumer handles nothing any more: its leases must not be kept by a thread."""
    put(kinesis, range(5), key=lambda _: "one")
    table = MemoryLeaseTable()
    consumer = consumer_of(local, table, drain_deadline_s=0.2, cadence=Prompt(), **QUICK)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(consumer.start())
    batch = loop.run_until_complete(first(consumer))
    assert len(batch) == 5
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    block_until(lambda: [row.owner for row in table.rows()] == [None])
    block_until(
        lambda: consumer._session.host._thread.loop.is_closed() or not consumer._session.host._thread._thread.is_alive()
    )


async def test_a_task_that_is_cancelled_while_it_waits_loses_nothing(local: LocalKinesis, kinesis: Any) -> None:
    got: list[bytes] = []
    async with consumer_of(local, MemoryLeaseTable(), batch_records_max=1) as consumer:
        await until(lambda: consumer.statistics().shards)
        for _ in range(20):
            waiting = asyncio.create_task(consumer.getmany(1))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait((waiting,))
        wanted = put(kinesis, range(20), key=lambda _: "one")
        while len(got) < len(wanted):
            for batch in await consumer.getmany(3):
                got += [record.data for record in batch]
                batch.ack()
    assert got == wanted


async def test_records_settled_one_by_one_from_many_tasks(local: LocalKinesis, kinesis: Any) -> None:
    wanted = put(kinesis, range(300), key=lambda _: "one")
    table, got = MemoryLeaseTable(), list[bytes]()

    async def work(consumer: Any) -> None:
        async for record in consumer.records():
            await asyncio.sleep(0)
            got.append(record.data)
            record.ack()
            if len(set(got)) == len(wanted):
                closing.append(asyncio.ensure_future(consumer.close()))

    closing: list[Any] = []
    async with consumer_of(
        local, table, deserializer=deserializers.text(), batch_records_max=7, cadence=Prompt()
    ) as consumer:
        await asyncio.gather(*(work(consumer) for _ in range(5)))
    assert sorted(set(got)) == sorted(wanted)
    (row,) = table.rows()
    assert row.checkpoint.is_position
    with consumer_of(local, table, face=SyncConsumer) as again:
        assert again.getmany(wait_s=0.2) == []


async def test_the_end_of_a_shards_tenure_is_heard_on_the_loop_of_the_program(local: LocalKinesis) -> None:
    consumer = consumer_of(local, MemoryLeaseTable(), **QUICK)
    async with consumer:
        reader = reader_of(await anext(consumer.shards()))
        waiting = [asyncio.create_task(reader.handle.over()) for _ in range(2)]
        await asyncio.sleep(0)
        assert isinstance(reader.host, OwnThread)
        assert not any(one.done() for one in waiting)
    await asyncio.gather(*waiting)
    await reader.handle.over()
    assert reader.is_over
