"""Events with numbers, for what encodes them."""

from __future__ import annotations

from shardway import events
from shardway.events.consumer_snapshot import ShardLevels, WorkerLevels
from shardway.events.query_snapshot import QuerySnapshot
from shardway.runtime.producer.meter import ProducerMeter
from shardway.telemetry.consumer_meter import ConsumerMeter


def consumer_event(*, shards: int = 2, stream: str = "orders", application: str = "billing") -> events.ConsumerMetrics:
    """A consumer's busy 5 seconds."""
    meter = ConsumerMeter(1000.0, per_shard=True)
    held = []
    for number in range(shards):
        shard_id = f"shardId-{number:012}"
        meter.fetched(10, 1000)
        meter.read(stream, shard_id, 0.02)
        meter.delivered(stream, shard_id, 10, 1000)
        meter.handled(stream, shard_id, 0.25)
        held.append(
            ShardLevels(
                stream=stream, shard_id=shard_id, millis_behind_latest=1000 + number, since_read_s=0.25,
                oldest_unsettled_s=2.0, lag_s=2.0 + number, retention_used=0.25, records_held=3, bytes_held=300,
                records_in_flight=1, oldest_in_flight_s=1.5,
            )
        )  # fmt: skip
    meter.settled(17, 1700)
    meter.wrote(0.004, stores=False, confirmed=True)
    meter.wrote(0.004, stores=True, confirmed=False)
    if shards:
        meter.count(events.ReadFailed(stream, "shardId-000000000000", "InternalFailure", 0.1, "secret reason"))
    levels = WorkerLevels(at_s=1005.0, shards=tuple(held), leases=shards + 1, leases_free=1, workers=2)
    return events.ConsumerMetrics(stream, application, "worker-1", meter.interval(1005.0, "worker-1", levels))


def producer_event(*, stream: str = "orders") -> events.ProducerMetrics:
    """A producer's busy 5 seconds."""
    meter = ProducerMeter(1000.0, per_shard=True)
    meter.count_accepted(12)
    meter.count_put(8, 800, 0.5, 1, shard_id="shardId-000000000000")
    meter.count_failed(2)
    meter.count_expired(1)
    meter.count_records(900, 8, aggregate=True, shard_id="shardId-000000000000")
    meter.count_errors(1, "InternalFailure")
    meter.count_request(2, 10, 1000, 0.0625)
    return events.ProducerMetrics(stream, meter.interval(1005.0))


def query_event(*, stream: str = "orders", application: str = "orders_to_lake") -> events.QueryMetrics:
    """A query's batch of 5 seconds."""
    snapshot = QuerySnapshot(
        period_start_s=1000.0, period_end_s=1005.0, batches=1, records_read=20, bytes_read=2000,
        records_dead_lettered=2, records_duplicate=3, lag_s=1.5, shards=2, shards_unread=2,
    )  # fmt: skip
    snapshot.batch_s.add(4.0)
    return events.QueryMetrics(stream, application, snapshot)
