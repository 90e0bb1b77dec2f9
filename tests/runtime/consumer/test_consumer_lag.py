"""The figures to watch tell the truth while nothing works: reads fail, a handler fails, a handler hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from shardway import (
    ConnectionOptions,
    Consumer,
    DeadLetters,
    OptionError,
    Retry,
    SettlingOptions,
    SyncConsumer,
)
from shardway.dead_letters import DeadLettersTo
from shardway.errors import AccessDeniedError, ShardReadError
from shardway.events import BatchFailed, ConsumerMetrics, StopBegun, StopWaits
from shardway.leases import MemoryLeaseTable
from shardway.statistics import ConsumerSnapshot, MetricsOptions
from shardway.telemetry import PrometheusExporter, together
from shardway.testing import Fault
from tests.options_kit import arguments_of
from tests.runtime.consumer.face_kit import DEADLINE_S, STREAM, consumer_of, put, settings, until

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
AGE_S = 0.6
"""Longer than a shard at its tip goes without a read here."""
FOREVER = dict[str, Any](retry=Retry(failures_max=None))


async def test_a_shard_that_cannot_be_read_shows_for_how_long(local: LocalKinesis, kinesis: Any) -> None:
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        await until(lambda: consumer.statistics().millis_behind_latest == 0)
        fresh = consumer.statistics()
        local.faults.add(Fault(how="server_error", operation="GetRecords"))
        put(kinesis, range(5))
        await until(lambda: (consumer.statistics().since_read_s or 0.0) > max(AGE_S, fresh.since_read_s))
        broken = consumer.statistics()
        assert broken.millis_behind_latest == 0, "the last read that succeeded knew no better"
        assert broken.shards[0].since_read_s <= consumer.statistics().shards[0].since_read_s
        local.faults.clear()
        (batch,) = await consumer.getmany()
        assert consumer.statistics().since_read_s < broken.since_read_s
        batch.ack()


async def test_a_shard_that_was_never_read_shows_for_how_long_it_is_waited_for(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="server_error", operation="GetRecords"))
    async with consumer_of(local, MemoryLeaseTable()) as consumer:
        assert consumer.statistics().since_read_s is None
        await until(lambda: (consumer.statistics().since_read_s or 0.0) > AGE_S)
        assert consumer.statistics().millis_behind_latest is None


async def test_credentials_that_end_show_and_the_consumer_goes_on_once_they_are_renewed(
    local: LocalKinesis, kinesis: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    file.write_text("[shop]\naws_access_key_id = ID\naws_secret_access_key = secret\n", encoding="utf-8")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    connection = ConnectionOptions(endpoint_url=local.endpoint_url, region=local.region, profile="shop")
    consumer: Any = Consumer(STREAM, application="billing", connection=connection, **arguments_of(**settings()))
    async with consumer:
        await until(lambda: consumer.statistics().millis_behind_latest == 0)
        local.faults.add(Fault(how="expired_token"))
        await until(lambda: (consumer.statistics().since_read_s or 0.0) > AGE_S)
        await until(lambda: "ExpiredTokenException" in consumer.metrics().tables_failed)
        assert set(consumer.metrics().fetches_failed) == {"ExpiredTokenException"}
        local.faults.clear()
        put(kinesis, range(5))
        (batch,) = await consumer.getmany()
        batch.ack()


async def test_credentials_that_the_program_gave_end_the_consumer(local: LocalKinesis) -> None:
    async def consume() -> None:
        async with consumer_of(local, MemoryLeaseTable()) as consumer:
            await until(lambda: consumer.statistics().millis_behind_latest == 0)
            local.faults.add(Fault(how="expired_token"))
            async for _ in consumer:
                pass

    with pytest.raises(ShardReadError, match="ExpiredTokenException") as ended:
        await consume()
    assert isinstance(ended.value.__cause__, AccessDeniedError)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_handler_that_gets_nowhere_shows_as_the_age_of_what_it_has(
    local: LocalKinesis, kinesis: Any, how: str
) -> None:
    wanted = put(kinesis, range(5))
    works = asyncio.Event()
    got: list[bytes] = []

    async def handler(batch: Any) -> None:
        if how == "hangs":
            await works.wait()
        elif not works.is_set():
            raise RuntimeError("the database is away")
        got.extend(record.data for record in batch)

    async with consumer_of(local, MemoryLeaseTable(), **FOREVER) as consumer:
        running = asyncio.create_task(consumer.run_batches(handler))
        await until(lambda: (consumer.statistics().oldest_unsettled_s or 0.0) > AGE_S)
        stuck = consumer.statistics()
        assert stuck.millis_behind_latest == 0, "all was fetched"
        assert stuck.shards[0].oldest_unsettled_s == stuck.oldest_unsettled_s
        works.set()
        await until(lambda: len(got) >= len(wanted) and consumer.statistics().oldest_unsettled_s is None)
        await consumer.close()
        await running


async def test_lag_grows_while_reads_fail_and_while_a_handler_hangs_and_an_event_tells_it(
    local: LocalKinesis, kinesis: Any
) -> None:
    told: list[ConsumerMetrics] = []

    def on_event(event: Any) -> None:
        if isinstance(event, ConsumerMetrics):
            told.append(event)

    def lag_s() -> float:
        return (told[-1].snapshot.lag_s or 0.0) if told else 0.0

    consumer = consumer_of(local, MemoryLeaseTable(), on_event=on_event, metrics=MetricsOptions(interval_s=0.05))
    async with consumer:
        await until(lambda: consumer.statistics().millis_behind_latest == 0)
        local.faults.add(Fault(how="server_error", operation="GetRecords"))
        await until(lambda: lag_s() > AGE_S)
        failed = consumer.metrics()
        assert sum(failed.fetches_failed.values()) > 0
        local.faults.clear()
        put(kinesis, range(3))
        (batch,) = await consumer.getmany()
        await until(lambda: lag_s() > AGE_S and told[-1].snapshot.shards[0].oldest_unsettled_s is not None)
        shard = told[-1].snapshot.shards[0]
        assert shard.lag_s >= (shard.oldest_unsettled_s or 0.0)
        assert shard.retention_used == pytest.approx(shard.lag_s / 86_400)
        batch.ack()
        await until(lambda: lag_s() < AGE_S and consumer.metrics().store_s.count > 0)
        whole = consumer.metrics()
        assert (whole.records_fetched, whole.records_delivered, whole.records_settled) == (3, 3, 3)
    last = told[-1].snapshot.workers[consumer.worker_id]
    assert (last.left, last.shards) == (True, ()), "a consumer that is closed says so"
    summed = told[0].snapshot
    for event in told[1:]:
        summed += event.snapshot
    assert (summed.records_settled, summed.records_delivered) == (3, 3)
    assert summed.handler_s.count == 0, "no block and no handler had the batch"


async def test_any_thread_may_ask_for_the_numbers(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(200))
    every = MetricsOptions(interval_s=0.001)
    async with consumer_of(local, MemoryLeaseTable(), metrics=every) as consumer:
        stop = threading.Event()

        def ask() -> int:
            count, before = 0, consumer.metrics()
            while not stop.is_set():
                found = consumer.metrics()
                assert ConsumerSnapshot.from_dict(found.to_dict()) == found, "no histogram is half counted"
                assert found.records_settled <= found.records_fetched
                for name in ("fetches", "records_fetched", "records_delivered", "records_settled", "bytes_settled"):
                    assert getattr(found, name) >= getattr(before, name), "no count goes back"
                before = found
                consumer.statistics()
                count += 1
            return count

        asking = [asyncio.ensure_future(asyncio.to_thread(ask)) for _ in range(2)]
        got = 0
        async for record in consumer.records():
            with record:
                got += 1
            if got == 200:
                break
        stop.set()
        assert all([await one > 0 for one in asking])
        assert consumer.metrics().records_settled == 200


async def test_a_handler_that_is_run_is_timed_and_its_failures_are_counted(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(4))
    failures = iter([KeyError("secret")])

    async def handler(record: Any) -> None:
        for failure in failures:
            raise failure

    async with consumer_of(local, MemoryLeaseTable(), **FOREVER) as consumer:
        running = asyncio.create_task(consumer.run_records(handler))
        await until(lambda: consumer.metrics().records_settled == 4)
        found = consumer.metrics()
        assert found.batches_failed == {"KeyError": 1}
        assert (found.records_failed, found.bytes_failed) == (1, found.bytes_fetched // 4)
        assert found.bytes_settled == found.bytes_fetched > 0
        assert found.handler_s.count == found.batches_delivered >= 2
        await consumer.close()
        await running


async def test_the_bytes_of_what_is_given_up_are_counted(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(3))
    letters: list[Any] = []

    async def handler(record: Any) -> None:
        raise KeyError("secret")

    retry = Retry(failures_max=1, base_s=0.001, cap_s=0.001, then=DeadLetters())
    chosen = {"retry": retry, "dead_letters": DeadLettersTo(letters.append)}
    async with consumer_of(local, MemoryLeaseTable(), **chosen) as consumer:
        running = asyncio.create_task(consumer.run_records(handler))
        await until(lambda: consumer.metrics().records_settled == 3)
        found = consumer.metrics()
        assert (found.records_dead_lettered, found.bytes_dead_lettered) == (3, found.bytes_fetched)
        assert found.bytes_settled == found.bytes_fetched
        await consumer.close()
        await running


@pytest.mark.parametrize("log_errors", ["place", "with_message"])
async def test_the_message_of_a_handlers_error_is_told_only_where_it_is_asked_for(
    local: LocalKinesis, kinesis: Any, log_errors: str
) -> None:
    put(kinesis, range(1))
    failed: asyncio.Future[BatchFailed] = asyncio.get_running_loop().create_future()

    def on_event(event: Any) -> None:
        if isinstance(event, BatchFailed) and not failed.done():
            failed.set_result(event)

    async def handler(batch: Any) -> None:
        raise ValueError("secret of a record")

    ledger = dict[str, Any](retry=Retry(failures_max=None), log_errors=log_errors)
    async with consumer_of(local, MemoryLeaseTable(), **ledger, on_event=on_event) as consumer:
        running = asyncio.create_task(consumer.run_batches(handler))
        event = await failed
        await consumer.close()
        await running
    assert event.error_type == "ValueError"
    if log_errors == "place":
        assert (event.message, event.trace) == (None, None)
    else:
        assert event.message == "secret of a record"
        assert event.trace is not None
        assert 'raise ValueError("secret of a record")' in event.trace
    with pytest.raises(OptionError, match="log_errors is"):
        SettlingOptions(log_errors="all")  # type: ignore[arg-type]


async def test_a_stop_by_a_signal_is_told_and_what_it_waits_for(local: LocalKinesis, kinesis: Any) -> None:
    put(kinesis, range(1))
    told: list[Any] = []
    entered, go_on = asyncio.Event(), asyncio.Event()

    def on_event(event: Any) -> None:
        told.append(event)
        if isinstance(event, StopWaits):
            go_on.set()

    async def handler(batch: Any) -> None:
        entered.set()
        await go_on.wait()

    async with consumer_of(local, MemoryLeaseTable(), on_event=on_event) as consumer:
        consumer.close_on_signals(signal.SIGUSR1)
        running = asyncio.create_task(consumer.run_batches(handler))
        await entered.wait()
        os.kill(os.getpid(), signal.SIGUSR1)
        await running
    assert [event for event in told if isinstance(event, StopBegun)] == [StopBegun("billing", "SIGUSR1")]
    (waits, *_) = [event for event in told if isinstance(event, StopWaits)]
    assert (waits.shards, waits.records, waits.held) == (1, 1, ("orders/shardId-000000000000: 1",))


def test_a_consumer_for_threads_tells_that_a_signal_stops_it(local: LocalKinesis, kinesis: Any) -> None:
    told: list[Any] = []
    put(kinesis, range(1))
    with consumer_of(local, MemoryLeaseTable(), face=SyncConsumer, on_event=told.append) as consumer:
        consumer.close_on_signals(signal.SIGUSR1)
        for batch in consumer:
            with batch:
                os.kill(os.getpid(), signal.SIGUSR1)
    assert [event for event in told if isinstance(event, StopBegun)] == [StopBegun("billing", "SIGUSR1")]


async def test_an_exporter_that_raises_and_one_that_is_closed_do_not_end_the_work(
    local: LocalKinesis, kinesis: Any
) -> None:
    class Raising:
        metrics_interval_s = 0.02
        told = 0

        def at_once(self, event: Any) -> None:
            self.told += 1
            raise KeyError("secret")

        def __call__(self, event: Any) -> None:
            raise AssertionError("a consumer calls at_once")

    put(kinesis, range(20))
    raising, heard = Raising(), list[Any]()
    with PrometheusExporter(0) as exporter:
        both = together(heard.append, exporter)
        async with (
            consumer_of(local, MemoryLeaseTable(), on_event=raising) as one,
            consumer_of(local, MemoryLeaseTable(), on_event=both) as other,
        ):
            for consumer in (one, other):
                got = 0
                while got < 20:
                    for batch in await consumer.getmany():
                        got += len(batch)
                        batch.ack()
            await until(lambda: raising.told > 5)
            url = f"http://127.0.0.1:{exporter.port}/metrics"
            while b"shardway_consumer_settled_total{" not in await asyncio.to_thread(lambda: urlopen(url).read()):
                await asyncio.sleep(0.05)
            exporter.close()
    assert [event for event in heard if isinstance(event, ConsumerMetrics)], "the others are told on the loop"
