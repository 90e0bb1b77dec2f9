"""Reads by the KCL's rules, to its end, a stream that a benchmark has written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.wire import Wire
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.lineage import Lineage
from shardway.model import IteratorAt, StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.local.spawned import SpawnedKinesis
    from shardway.model import ListedShard


class UserRecords(NamedTuple):
    """The user records of a stream in the order of reading, with the number of aggregates."""

    records: list[tuple[str, bytes]]
    """The records, as (partition key, data)."""
    aggregates: int
    dropped: int
    """The number of aggregates of which the KCL delivers nothing, as one of their user records is outside of the
    shard's hash range.
    """


def client(local: SpawnedKinesis) -> KinesisClient:
    """Return a client of the local service. The caller closes its wire."""
    return KinesisClient(Wire(ConnectionOptions(region=local.region, endpoint_url=local.endpoint_url)))


async def wire_records(kinesis: KinesisClient, stream: StreamName) -> AsyncIterator[tuple[ListedShard, WireRecord]]:
    """Yield all records that are there now as (shard, record), each shard after its parents."""
    for shard in Lineage(await kinesis.list_shards(stream)).shards.values():
        iterator: str | None = await kinesis.get_shard_iterator(stream, shard.shard_id, IteratorAt.trim_horizon())
        while iterator is not None:
            page = await kinesis.get_records(iterator)
            for record in page.records:
                yield shard, record
            at_the_tip = not page.records and not page.millis_behind_latest and not shard.closed
            iterator = None if at_the_tip else page.next_shard_iterator


async def user_records(local: SpawnedKinesis, stream: str) -> UserRecords:
    """Return the user records of a stream as the KCL delivers them: an aggregate whole, or not at all."""
    kinesis = client(local)
    records: list[tuple[str, bytes]] = []
    aggregates = dropped = 0
    async for shard, record in wire_records(kinesis, StreamName(stream)):
        aggregate = open_aggregate(record.data)
        if aggregate is None:
            records.append((record.partition_key or "", record.data))
            continue
        aggregates += 1
        if aggregate.outside(shard.first_hash_key, shard.last_hash_key):
            dropped += 1
        else:
            records += zip(aggregate.partition_keys(), aggregate.datas, strict=True)
    await kinesis.wire.close()
    return UserRecords(records, aggregates, dropped)


async def arrivals(local: SpawnedKinesis, stream: str) -> list[tuple[float, int]]:
    """Return (time of arrival in epoch seconds, data and key in bytes) of each record of Kinesis."""
    kinesis = client(local)
    found = [
        (record.approximate_arrival_timestamp, len(record.data) + len((record.partition_key or "").encode()))
        async for _, record in wire_records(kinesis, StreamName(stream))
    ]
    await kinesis.wire.close()
    return found
