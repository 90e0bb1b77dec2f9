"""Numbers and events of a producer: they are what happened."""

from __future__ import annotations

import asyncio
import threading
from functools import reduce
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, get_args

import pytest

from shardway import events
from shardway.errors import FlushTimeoutError, RecordExpiredError, RecordRefusedError
from shardway.events import PaceChanged, ProducerMetrics, PutRecordsDone, RecordsRefused
from shardway.events.producer_snapshot import ProducerSnapshot
from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.options import MetricsOptions
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, Heard, numbered, quick, read_all, split, until, wire_of

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
THROTTLED = "ProvisionedThroughputExceededException"
MIB = 1024 * 1024


@BOTH
async def test_intervals_add_up_to_the_whole(local: LocalKinesis, aggregation: bool) -> None:
    heard = Heard()
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.1, seed=5))
    options = quick(aggregation=aggregation, aggregate_bytes_max=500)
    metrics = MetricsOptions(interval_s=0.05, per_shard=True)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=metrics, on_event=heard.append
    ) as producer:
        for start in range(0, 1_000, 100):
            await producer.put_many(numbered(range(start, start + 100)))
            await asyncio.sleep(0.02)
        await producer.put_many([OutRecord(bytes(MIB + 1), "large")])
    intervals = [event.snapshot for event in heard.of(ProducerMetrics)]
    assert len(intervals) > 2
    whole = reduce(add, intervals)
    told = producer.metrics()
    assert whole.period_start_s == told.period_start_s
    assert [one.period_end_s for one in intervals[:-1]] == [one.period_start_s for one in intervals[1:]]
    told.period_end_s = whole.period_end_s
    assert whole.to_dict() == told.to_dict()
    assert (whole.user_records_put, whole.user_records_failed, whole.user_records_pending) == (1_000, 1, 0)


async def test_an_exporter_says_how_often_and_whether_by_shard(local: LocalKinesis) -> None:
    twice = asyncio.Event()

    class Exporter:
        metrics_interval_s = 0.02
        metrics_per_shard = True

        def __init__(self) -> None:
            self.told: list[ProducerMetrics] = []

        def __call__(self, event: events.Event) -> None:
            if isinstance(event, ProducerMetrics):
                self.told.append(event)
                if len(self.told) > 1:
                    twice.set()

    exporter = Exporter()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(), on_event=exporter
    ) as producer:  # fmt: skip
        await (await producer.put_many(numbered(range(10)))).settled()
        await twice.wait()
    whole = reduce(add, [event.snapshot for event in exporter.told])
    assert sum(one.user_records_put for one in whole.per_shard.values()) == 10


async def test_any_thread_may_ask_for_the_numbers(local: LocalKinesis) -> None:
    stop = threading.Event()
    options = quick()
    metrics = MetricsOptions(interval_s=0.001, per_shard=True)
    heard = Heard()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=metrics, on_event=heard.append
    ) as made:

        def ask() -> int:
            count, before = 0, made.metrics()
            while not stop.is_set():
                found = made.metrics()
                assert ProducerSnapshot.from_dict(found.to_dict()) == found, "no histogram is half counted"
                assert found.user_records_pending >= 0
                for name in ("user_records_accepted", "user_records_put", "records_put", "requests", "user_bytes_put"):
                    assert getattr(found, name) >= getattr(before, name), "no count goes back"
                assert made.oldest_pending_s() >= 0
                before = found
                count += 1
            return count

        asking = [asyncio.ensure_future(asyncio.to_thread(ask)) for _ in range(2)]
        for start in range(0, 2_000, 20):
            for record in numbered(range(start, start + 20)):
                made.put_nowait(record)
            await asyncio.sleep(0)
        await made.flush()
        stop.set()
        assert all([await one > 0 for one in asking])
    told = await asyncio.to_thread(made.metrics)
    assert (told.user_records_put, told.user_records_pending) == (2_000, 0)


@BOTH
async def test_counters_match_what_happened(local: LocalKinesis, aggregation: bool) -> None:
    heard = Heard()
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.2, seed=5))
    options = quick(aggregation=aggregation, aggregate_bytes_max=500)
    metrics = MetricsOptions(per_shard=True)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=metrics, on_event=heard.append
    ) as producer:
        puts = [await producer.put_many(numbered(range(n, n + 100))) for n in range(0, 1_000, 100)]
        results = [result for some in puts for result in (await some.settled()).results()]
        counts = producer.metrics()
    content = await read_all(local)
    kinesis = content.plain + content.aggregates
    data_bytes = sum(len(record.data) for record in content.records)
    assert counts.user_records_accepted == counts.user_records_put == len(content.records) == 1_000
    assert counts.user_bytes_put == data_bytes
    assert (counts.records_put, counts.aggregates) == (kinesis, content.aggregates)
    if not aggregation:
        assert counts.record_bytes_put == data_bytes + sum(len(record.partition_key) for record in content.records)
    stats = local.stats().operations["PutRecords"]
    done = heard.of(PutRecordsDone)
    assert counts.requests == stats.calls == len(done)
    assert counts.records_put == stats.records == sum(event.records - event.refused - event.failed for event in done)
    assert counts.records_refused == sum(event.refused for event in done)
    assert counts.records_failed_attempts == {THROTTLED: counts.records_refused}
    assert counts.records_refused == sum(event.records for event in heard.of(RecordsRefused)) > 0
    assert counts.errors == counts.records_refused
    for histogram, count in [
        (counts.latency_s, 1_000), (counts.attempts, 1_000), (counts.buffering_s, 1_000),
        (counts.request_s, len(done)), (counts.request_records, len(done)), (counts.request_bytes, len(done)),
        (counts.record_bytes, kinesis), (counts.user_records_per_record, kinesis),
    ]:  # fmt: skip
        assert histogram.count == count
    attempts = sum(result.attempts for result in results)
    assert counts.attempts_mean == pytest.approx(attempts / 1_000)
    for shard_id, shard in counts.per_shard.items():
        there = [record for record in content.records if record.shard_id == shard_id]
        assert (shard.user_records_put, shard.user_bytes_put) == (len(there), sum(len(one.data) for one in there))
        assert shard.attempts == sum(result.attempts for result in results if result.shard_id == shard_id)
    assert sum(shard.records_put for shard in counts.per_shard.values()) == kinesis
    assert sum(shard.records_refused for shard in counts.per_shard.values()) == counts.records_refused
    assert sum(shard.record_bytes_put for shard in counts.per_shard.values()) == counts.record_bytes_put


async def test_what_was_put_is_pending_at_once(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick())
    producer.put_nowait(OutRecord(b"four", "key"))
    counts = producer.metrics()
    assert (counts.user_records_accepted, counts.user_records_pending, counts.buffer_bytes) == (
        1,
        1,
        4 + 3 + 256 + 1024,
    )
    with pytest.raises(FlushTimeoutError):
        await producer.close(0)


async def test_every_event_comes(local: LocalKinesis) -> None:
    """Each type of event, from a producer to which everything happens."""
    heard = Heard()
    options = quick(aggregation=True, record_ttl_s=0.2, shard_map_refresh_s=0.05, pacing=True)
    metrics = MetricsOptions(interval_s=0.05)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=metrics, on_event=heard.append
    ) as producer:

        async def put_all(count: int = 400) -> None:
            await (await producer.put_many(numbered(range(count)), record_ttl_s=60)).settled()

        await put_all()
        for fault in (
            Fault(how="lost_reply", operation="PutRecords", count=1),
            Fault(how="partial", operation="PutRecords", count=1),
        ):
            local.faults.add(fault)
            await put_all()
        denied = local.faults.add(Fault(how="access_denied", operation="ListShards"))
        await until(lambda: heard.of(events.ShardMapFailed))
        await split(local, "shardId-000000000000", (HASH_KEY_MAX + 1) // 8)
        putting = asyncio.create_task(put_all())
        await until(lambda: producer.metrics().user_records_pending)
        denied.clear()
        await putting
        with pytest.raises(RecordRefusedError):
            await producer.put(OutRecord(bytes(MIB + 1), "key"), record_ttl_s=60)
        throttled = local.faults.add(Fault(how="throttle", operation="PutRecords"))
        with pytest.raises(RecordExpiredError):
            await producer.put(OutRecord(b"data", "key"))
        throttled.clear()
        await until(lambda: heard.of(ProducerMetrics))
    off = Fault(how="access_denied", operation="ListShards")
    local.faults.add(off)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, metrics=metrics, on_event=heard.append
    ):
        pass
    assert set(map(type, heard)) == set(get_args(events.ProducerEvent))
    assert {event.stream for event in heard} == {STREAM}
    assert not [event for event in heard if "key-" in repr(event)]


async def test_a_pace_that_falls_and_recovers_is_told(local: LocalKinesis) -> None:
    heard = Heard()
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=quick(), on_event=heard.append
    ) as producer:
        await (await producer.put_many(numbered(range(400)))).settled()
        local.faults.add(Fault(how="partial", operation="PutRecords", shard="shardId-000000000000", count=3))
        await (await producer.put_many(numbered(range(400)))).settled()
        shares = [event.share for event in heard.of(PaceChanged) if event.shard_id == "shardId-000000000000"]
    assert all(0 < share <= 1 for share in shares)
    assert any(later < before for before, later in pairwise(shares))
