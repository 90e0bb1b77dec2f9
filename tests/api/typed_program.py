"""A program as a user of the library writes it: mypy and pyright read it, and no test runs it.

`assert_type` says what a checker makes of a value. A line that a comment lets pass is an error that the checker
has to find: both tell of a comment that is not used.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import TypedDict, assert_type

from shardway import (
    Batch,
    BufferOptions,
    Collection,
    Consumer,
    Delivered,
    LeaseOptions,
    OutRecord,
    Producer,
    Record,
    Retry,
    SettlingOptions,
    Skip,
    SyncConsumer,
    SyncProducer,
    by_key,
)


class Order(TypedDict):
    customer: str
    cents: int


def orders_in(record: Record) -> list[Order]:
    return list(json.loads(record.data))


def order_of(data: bytes) -> Order:
    order: Order = json.loads(data)
    return order


def record_of(order: Order) -> OutRecord:
    return OutRecord(json.dumps(order).encode(), order["customer"])


# --- options ---


def options() -> None:
    assert_type(Retry(), Retry)
    assert_type(Retry(failures_max=3, then=Skip()).failures_max, int | None)
    assert_type(LeaseOptions(failover_s=10).failover_s, float)
    Retry(failure_max=3)  # type: ignore[call-arg]
    LeaseOptions(failover=10)  # type: ignore[call-arg]
    Retry(failures_max="three")  # type: ignore[arg-type]
    SettlingOptions(True)  # type: ignore[call-arg]
    Consumer("orders", application="billing", retry=BufferOptions())  # type: ignore[call-overload]


# --- what a consumer delivers ---


async def values() -> None:
    async for plain in Consumer("orders", application="billing"):
        assert_type(plain, Batch[bytes])
    async for batch in Consumer("orders", application="billing", deserializer=order_of):
        assert_type(batch.values, Sequence[Order])
    consumer = Consumer("orders", application="billing", split=orders_in, retry=Retry())
    assert_type(consumer, Consumer[Order])
    async for one in consumer.records():
        assert_type(one, Delivered[Order])
        assert_type(one.value, Order)
        assert_type(one.record, Record)
    for each in SyncConsumer("orders", application="billing", split=orders_in):
        assert_type(each.values[0], Order)
    await consumer.run_records(handler, concurrency=by_key(16))


async def handler(record: Delivered[Order]) -> None:
    assert_type(record.value["cents"], int)


async def from_any(consumer: Consumer, other: SyncConsumer) -> None:
    """A consumer without a type argument delivers bytes."""
    async for batch in consumer:
        assert_type(batch, Batch[bytes])
    for each in other:
        assert_type(each.values, Sequence[bytes])


# --- what a producer takes ---


async def put(producer: Producer, other: SyncProducer) -> None:
    """A producer without a type argument takes records."""
    assert_type(producer, Producer[OutRecord])
    assert_type(other, SyncProducer[OutRecord])
    await producer.put(OutRecord(b"", "customer-17"))


async def puts() -> None:
    await put(Producer("orders"), SyncProducer("orders"))
    typed = Producer("orders", serializer=record_of)
    assert_type(typed, Producer[Order])
    await typed.put({"customer": "17", "cents": 5})
    by_lambda = SyncProducer[Order]("orders", serializer=lambda order: OutRecord(b"", order["customer"]))
    assert_type(by_lambda, SyncProducer[Order])
    named: SyncProducer[bytes] = SyncProducer("orders", serializer=lambda data: OutRecord(data, "1"))
    named.put(b"")
    by_lambda.put(17)  # type: ignore[arg-type]


def keys(collection: Collection) -> Hashable:
    assert_type(collection.records, Sequence[Record])
    return collection.key
