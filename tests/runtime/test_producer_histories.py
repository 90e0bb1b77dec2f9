"""Random histories on a real stream: whatever is put, cancelled, withdrawn, refused, lost and resharded at the same
time, every record has one outcome, and the stream holds what the outcomes say.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.wire import Wire
from shardway.errors import BufferFullError, FlushTimeoutError, PutError, ServiceError
from shardway.events import AggregatesRepeated
from shardway.model import OutRecord, PutResult, StreamName
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, Heard, place_of, places, quick, read_all, wire_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from shardway.local import LocalKinesis
    from shardway.runtime.producer.handles import PutHandle, Puts

STEPS = 120
KEYS = [f"key-{number}" for number in range(12)]


class History:
    """One producer, and what became of everything that was put into it."""

    def __init__(self, local: LocalKinesis, producer: Producer[OutRecord], client: KinesisClient, seed: int) -> None:
        self.local = local
        self.producer = producer
        self.client = client
        self.rng = random.Random(seed)
        self.number = 0
        self.told: dict[bytes, PutResult | PutError | None] = {}
        """By data: None where the caller was cancelled."""
        self.handles: list[tuple[list[OutRecord], PutHandle | Puts]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def some(self, count: int, caller: str) -> list[OutRecord]:
        """Numbered records. Those of one caller are put one after the other."""
        start, self.number = self.number, self.number + count
        rng = self.rng
        return [
            OutRecord(f"{number}.{caller}.".encode() + bytes(rng.choice((0, 10, 300))), rng.choice(KEYS))
            for number in range(start, self.number)
        ]

    # --- what may happen --------------------------------------------------------------------------

    async def put(self) -> None:
        (record,) = self.some(1, f"put {self.number}")

        async def put() -> None:
            self.told[record.data] = None
            try:
                self.told[record.data] = await self.producer.put(record)
            except PutError as error:
                self.told[record.data] = error

        self.tasks.append(asyncio.create_task(put()))

    async def put_nowait(self) -> None:
        for record in self.some(self.rng.randrange(1, 30), "put_nowait"):
            try:
                record_ttl_s = self.rng.choice((None, None, None, 0.02))
                self.handles.append(([record], self.producer.put_nowait(record, record_ttl_s=record_ttl_s)))
            except BufferFullError:
                break

    async def put_many(self) -> None:
        records = self.some(self.rng.randrange(1, 60), f"put_many {self.number}")

        async def put() -> None:
            self.told.update((record.data, None) for record in records)
            self.handles.append((records, await self.producer.put_many(records)))

        self.tasks.append(asyncio.create_task(put()))

    async def cancel(self) -> None:
        waiting = [task for task in self.tasks if not task.done()]
        if waiting:
            self.rng.choice(waiting).cancel()

    async def withdraw(self) -> None:
        if self.handles:
            self.rng.choice(self.handles[-10:])[1].withdraw()

    async def flush(self) -> None:
        with contextlib.suppress(FlushTimeoutError):
            await self.producer.flush(self.rng.choice((0, 0.001, 0.02)))

    async def rest(self) -> None:
        await asyncio.sleep(self.rng.choice((0, 0, 0.001, 0.01)))

    async def reshard(self) -> None:
        shards = await self.client.list_shards(StreamName(STREAM), shard_filter={"Type": "AT_LATEST"})
        at = self.rng.randrange(len(shards))
        shard = shards[at]
        with contextlib.suppress(ServiceError):  # neighbours only can be merged
            if len(shards) < 6:
                middle = (shard.first_hash_key + shard.last_hash_key) // 2
                await self.call("SplitShard", ShardToSplit=shard.shard_id, NewStartingHashKey=str(middle))
            else:
                other = shards[at - 1].shard_id
                await self.call("MergeShards", ShardToMerge=shard.shard_id, AdjacentShardToMerge=other)

    async def call(self, operation: str, **params: Any) -> None:
        await self.client.call(operation, {"StreamName": STREAM, **params})

    def ways(self) -> list[Callable[[], Awaitable[None]]]:
        often = [self.put, self.put_nowait, self.put_many, self.rest, self.rest]
        return [*often, *often, *often, self.cancel, self.withdraw, self.flush, self.reshard]

    # --- the end ----------------------------------------------------------------------------------

    async def settle(self) -> None:
        self.local.faults.clear()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.producer.flush()
        for records, handle in self.handles:
            if len(records) == 1 and not hasattr(handle, "results"):
                outcomes: Iterable[Any] = await asyncio.gather(handle, return_exceptions=True)
            else:
                outcomes = handle.results()  # type: ignore[union-attr]
            self.told.update(zip([record.data for record in records], outcomes, strict=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ordered", [False, True], ids=["", "ordered"])
@pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
async def test_a_random_history(local: LocalKinesis, aggregation: bool, ordered: bool, seed: int) -> None:
    heard = Heard()
    for number, how in enumerate(("throttle", "server_error", "reset", "lost_reply", "delay")):
        delay_s = 0.02 if how == "delay" else 0.0
        local.faults.add(
            Fault(how=how, operation="PutRecords", probability=0.03, seed=10 * seed + number, delay_s=delay_s)  # type: ignore[arg-type]
        )
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.05, seed=seed))
    options = quick(
        aggregation=aggregation, ordered_by_key=ordered, record_bytes_max=2_048, buffer_bytes_max=32 * 1024,
        aggregate_bytes_max=1_000, linger_s=0.002, requests_in_flight_max=4,
    )  # fmt: skip
    async with (
        Wire(wire_of(local)) as wire,
        Producer[OutRecord](STREAM, connection=wire_of(local), options=options, on_event=heard.append) as producer,
    ):
        history = History(local, producer, KinesisClient(wire), seed)
        ways = history.ways()
        for _ in range(STEPS):
            await history.rng.choice(ways)()
        await history.settle()
        counts = producer.metrics()

    content = await read_all(local)
    found = place_of(content)
    written = {data: outcome for data, outcome in history.told.items() if isinstance(outcome, PutResult)}
    for data, result in written.items():
        assert places([result])[0] in found[data]
        assert len(found[data]) == 1 or result.duplicates_possible
    for data, outcome in history.told.items():
        if isinstance(outcome, PutError):
            assert data not in found or outcome.may_be_written
    assert set(found) <= set(history.told)
    assert counts.user_records_pending == counts.buffer_bytes == 0
    gone = counts.user_records_withdrawn + counts.user_records_expired
    assert (counts.user_records_accepted, counts.user_records_failed) == (counts.user_records_put + gone, 0)
    doubtful = [data for data, outcome in history.told.items() if isinstance(outcome, PutError) and data in found]
    assert counts.user_records_put == len(found) - len(doubtful)
    assert counts.aggregates_repeated == sum(event.aggregates for event in heard.of(AggregatesRepeated))
    if ordered:
        for key in KEYS:
            by_caller: dict[bytes, list[int]] = {}
            for data in dict.fromkeys(content.of_key(key)):
                digits, caller, _ = data.split(b".")
                by_caller.setdefault(caller, []).append(int(digits))
            assert all(numbers == sorted(numbers) for numbers in by_caller.values())
