"""What the tests of the producer share: a local stream, a way to read all of it back, and conditions to wait for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway import events
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.wire import Wire
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.model import IteratorAt, OutRecord, PutResult, StreamName
from shardway.options import ProducerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from shardway.errors import PutError
    from shardway.local import LocalKinesis

STREAM = "orders"
WAIT_S = 20.0
"""Far more than any condition takes: only a test that fails waits so long."""
QUICK = {"retry_base_s": 0.02, "retry_cap_s": 0.1}
"""Waits between repetitions that a test has time for."""


def wire_of(local: LocalKinesis, **changes: Any) -> ConnectionOptions:
    return ConnectionOptions(
        **{
            "endpoint_url": local.endpoint_url,
            "region": local.region,
            "credentials": Credentials("local", "local"),
            **changes,
        }
    )


def quick(**options: Any) -> ProducerOptions:
    return ProducerOptions(**{**QUICK, **options})


def numbered(numbers: Iterable[int], keys: int = 50) -> list[OutRecord]:
    """Records that can be told apart: the data is the number."""
    return [OutRecord(b"%d" % number, f"key-{number % keys}") for number in numbers]


class Seen(NamedTuple):
    """A user record as a reader with the KCL's rules gets it."""

    data: bytes
    partition_key: str
    shard_id: str
    sequence_number: int
    sub_sequence_number: int | None


class Content(NamedTuple):
    """All of a stream."""

    records: list[Seen]
    """User records in the order of each shard, without those of dropped aggregates."""
    dropped: int
    """Aggregates that the KCL drops whole, as a user record lies outside of the shard's range."""
    plain: int
    """Kinesis records that are no aggregates."""
    aggregates: int

    def counts(self) -> Counter[bytes]:
        return Counter(record.data for record in self.records)

    def of_key(self, key: str) -> list[bytes]:
        return [record.data for record in self.records if record.partition_key == key]


@asynccontextmanager
async def client_of(local: LocalKinesis) -> AsyncIterator[KinesisClient]:
    async with Wire(wire_of(local)) as wire:
        yield KinesisClient(wire)


async def call(local: LocalKinesis, operation: str, **params: Any) -> dict[str, Any]:
    async with client_of(local) as client:
        return await client.call(operation, params)


async def read_all(local: LocalKinesis, stream: str = STREAM) -> Content:
    """Everything in the stream, by the KCL's rule: an aggregate counts only if its shard's range holds all of it."""
    name = StreamName(stream)
    seen: list[Seen] = []
    dropped = plain = aggregates = 0
    async with client_of(local) as client:
        for shard in await client.list_shards(name):
            iterator: str | None = await client.get_shard_iterator(name, shard.shard_id, IteratorAt.trim_horizon())
            while iterator is not None:
                page = await client.get_records(iterator)
                for record in page.records:
                    number = int(record.sequence_number)
                    opened = open_aggregate(record.data)
                    if opened is None:
                        plain += 1
                        seen.append(Seen(record.data, record.partition_key or "", shard.shard_id, number, None))
                        continue
                    aggregates += 1
                    if opened.outside(shard.first_hash_key, shard.last_hash_key):
                        dropped += 1
                        continue
                    seen += [
                        Seen(one.data, one.partition_key, shard.shard_id, number, one.sub_sequence_number)
                        for one in opened
                    ]
                at_tip = not page.records and not page.millis_behind_latest
                iterator = None if at_tip else page.next_shard_iterator
    return Content(seen, dropped, plain, aggregates)


def read_sync(local: LocalKinesis, stream: str = STREAM) -> Content:
    return asyncio.run(read_all(local, stream))


def places(results: Iterable[PutResult | PutError]) -> list[tuple[str, int, int | None]]:
    """Where results say that records are."""
    found = []
    for result in results:
        assert isinstance(result, PutResult), result
        found.append((result.shard_id, result.sequence_number, result.sub_sequence_number))
    return found


def place_of(content: Content) -> dict[bytes, list[tuple[str, int, int | None]]]:
    found: dict[bytes, list[tuple[str, int, int | None]]] = {}
    for record in content.records:
        found.setdefault(record.data, []).append((record.shard_id, record.sequence_number, record.sub_sequence_number))
    return found


async def until(condition: Callable[[], Any]) -> None:
    """Wait until it holds."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        await asyncio.sleep(0.005)


def until_sync(condition: Callable[[], Any]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.005)


class Heard(list[events.Event]):
    """Events, in the order in which they came: pass ``heard.append`` as ``on_event``."""

    def of(self, kind: type) -> list[Any]:
        return [event for event in self if isinstance(event, kind)]


MIDDLE = (HASH_KEY_MAX + 1) // 2


async def split(local: LocalKinesis, shard_id: str, at: int, stream: str = STREAM) -> None:
    await call(local, "SplitShard", StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=str(at))


async def merge(local: LocalKinesis, one: str, other: str, stream: str = STREAM) -> None:
    await call(local, "MergeShards", StreamName=stream, ShardToMerge=one, AdjacentShardToMerge=other)
