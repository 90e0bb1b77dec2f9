"""A consumer whose deserializer asks a schema registry: one that is away loses no record and lets go of no shard."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Skip, SyncConsumer, deserializers, events
from shardway.checkpoints import Prompt
from shardway.leases import MemoryLeaseTable
from tests.payloads.lying_registry import Registry
from tests.runtime.consumer.face_kit import DEADLINE_S, QUICK_RETRIES, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway import Batch
    from shardway.local import LocalKinesis

pytestmark = pytest.mark.timeout(DEADLINE_S)
ORDERS = [b"\0\0\0\0\1" + bytes([2 * number]) for number in range(5)]
UNKNOWN = b"\0\0\0\0\2\2"


@pytest.fixture
def registry() -> Iterator[Registry]:
    running = Registry()
    yield running
    running.close()


async def test_records_wait_for_a_registry_that_is_away(local: LocalKinesis, kinesis: Any, registry: Registry) -> None:
    """They are neither unreadable nor skipped, and come in order once it is back."""
    registry.status = 503
    put(kinesis, ORDERS, key=lambda _: "one")
    told: list[Any] = []
    seen: list[int] = []
    options = {
        "deserializer": deserializers.confluent(registry.url),
        "unreadable": Skip(),
        "retry": QUICK_RETRIES,
        "on_event": told.append,
        "cadence": Prompt(),
    }
    table = MemoryLeaseTable()
    async with consumer_of(local, table, **options) as consumer:

        async def read(batch: Batch[Any]) -> None:
            seen.extend(value["id"] for value in batch.values)

        running = asyncio.create_task(consumer.run_batches(read))
        await until(lambda: sum(isinstance(one, events.BatchFailed) for one in told) > 1)
        assert seen == []
        registry.status = 200
        await until(lambda: len(seen) == len(ORDERS))
        running.cancel()
    assert seen == [0, 1, 2, 3, 4]
    failed = [one for one in told if isinstance(one, events.BatchFailed)]
    assert {(one.error_type, one.next_step) for one in failed} == {("RegistryError", "Redelivery")}
    assert [one for one in told if isinstance(one, events.RecordsSkipped)] == []


async def test_a_schema_on_its_way_is_no_failure(local: LocalKinesis, kinesis: Any, registry: Registry) -> None:
    put(kinesis, [*ORDERS[:2], UNKNOWN, *ORDERS[2:]], key=lambda _: "one")
    told: list[Any] = []
    read = deserializers.confluent(registry.url)
    async with consumer_of(
        local, MemoryLeaseTable(), deserializer=read, unreadable=Skip(), on_event=told.append
    ) as consumer:
        seen: list[int] = []
        async for batch in consumer:
            seen.extend(value["id"] for value in batch.values)
            batch.ack()
            if len(seen) == len(ORDERS):
                break
    assert seen == [0, 1, 2, 3, 4]
    assert [one for one in told if isinstance(one, events.BatchFailed)] == []
    assert [one.reason for one in told if isinstance(one, events.RecordsSkipped)] == ["unreadable: PayloadError"]
    assert sorted(path for path, _ in registry.asked) == ["/schemas/ids/1", "/schemas/ids/2"]


def test_a_consumer_of_threads_waits_as_well(local: LocalKinesis, kinesis: Any, registry: Registry) -> None:
    registry.status = 500
    put(kinesis, ORDERS, key=lambda _: "one")
    failed = threading.Event()

    def hear(event: object) -> None:
        if isinstance(event, events.BatchFailed):
            registry.status = 200
            failed.set()

    options = {"deserializer": deserializers.confluent(registry.url), "retry": QUICK_RETRIES, "on_event": hear}
    seen: list[int] = []
    with consumer_of(local, MemoryLeaseTable(), face=SyncConsumer, **options) as consumer:
        for batch in consumer:
            seen.extend(value["id"] for value in batch.values)
            batch.ack()
            if len(seen) == len(ORDERS):
                break
    assert seen == [0, 1, 2, 3, 4]
    assert failed.is_set()
