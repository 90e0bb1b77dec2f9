"""What a program meets in its first hour: values with all that a record has, and errors that say what to do."""

from __future__ import annotations

import datetime as dt
import inspect
from typing import Any

import msgspec
import pytest

from shardway import (
    Batch,
    Consumer,
    DeadLetters,
    Delivered,
    LeaseOptions,
    OptionError,
    OutRecord,
    Record,
    Retry,
    ShardReadError,
    Stop,
    SyncConsumer,
)
from shardway.errors import ShardStoppedError
from shardway.testing import TestConsumer


async def test_a_delivered_record_has_all_that_a_record_has() -> None:
    seen: list[Delivered[Any]] = []
    async with TestConsumer([OutRecord(b"data", "customer-17")], ends=True) as consumer:
        await consumer.run_records(seen.append)
    (one,) = seen
    for name in Record.__struct_fields__:
        assert getattr(one, name) == getattr(one.record, name), name
    assert (one.partition_key, one.data) == ("customer-17", b"data")
    assert isinstance(one.approximate_arrival_timestamp, dt.datetime)


async def test_with_batch_takes_an_exception_and_the_program_goes_on() -> None:
    went_on, attempts = 0, []
    async with TestConsumer([b"data"], ends=True) as consumer:
        async for batch in consumer:
            attempts.append(batch.attempt)
            with batch:
                if batch.attempt == 1:
                    raise ValueError("it fails once")
            went_on += 1
    assert (went_on, attempts) == (2, [1, 2])
    for kind in (Batch, Delivered):
        assert "the program goes on behind the block" in " ".join((kind.__doc__ or "").split())


async def test_collections_have_the_values_of_the_deserializer_in_the_order_of_their_records() -> None:
    given = [OutRecord(msgspec.json.encode({"order": number}), f"key-{number % 2}") for number in range(8)]
    async with TestConsumer(given, ends=True, deserializer=msgspec.json.decode) as consumer:
        async for group in consumer.collect(lambda record: record.partition_key, records=4):
            with group:
                assert group.values == [msgspec.json.decode(record.data) for record in group.records]
                assert len(group.values) == 4
    async with TestConsumer([b"a", b"b"], ends=True) as plain:
        async for group in plain.collect(lambda record: 1, records=2):
            with group:
                assert sorted(group.values) == [b"a", b"b"]


@pytest.mark.parametrize("face", [Consumer, SyncConsumer])
@pytest.mark.parametrize("leases", ["leases.db", "/var/lib/leases", "postgresql://host/db", "billing-leases"])
def test_a_text_is_no_lease_table(face: Any, leases: str) -> None:
    with pytest.raises(OptionError, match=r"not a str: SqliteLeaseTable\(path\) keeps leases in a file"):
        face("orders", application="billing", leases=leases)


@pytest.mark.parametrize(
    "table", ["leases.db", "x.sqlite3", "/var/lib/leases", "./leases", "postgresql://me:hush@host/db"]
)
def test_a_path_or_address_is_no_name_of_a_table(table: str) -> None:
    with pytest.raises(OptionError, match="table is the name of a table in DynamoDB, and this text") as refused:
        LeaseOptions(table=table)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("table", [None, "billing-leases", "billing.leases", "a_b-c.d", "db"])
def test_names_of_tables_are_taken(table: Any) -> None:
    assert LeaseOptions(table=table).table == table


@pytest.mark.parametrize("face", [Consumer, SyncConsumer])
def test_a_wrong_argument_is_told_of_the_class_that_was_called(face: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{face.__name__} has no argument 'retyr': is 'retry' meant\?$"):
        face("orders", application="billing", retyr=Retry())


async def test_the_error_of_a_stopped_shard_names_the_line_that_raised_and_no_payload() -> None:
    def handle(batch: Batch[Any]) -> None:
        raise AttributeError(f"no field in {batch.values[0]!r}")

    line = inspect.getsourcelines(handle)[1] + 1
    async with TestConsumer([b"secret"], ends=True, retry=Retry(failures_max=1, then=Stop())) as consumer:
        with pytest.raises(ShardStoppedError, match=rf"AttributeError, at test_first_hour\.py:{line}\)") as stopped:
            await consumer.run_batches(handle)
    assert "secret" not in str(stopped.value)
    assert not isinstance(stopped.value, ShardReadError)


def test_retry_says_what_asks_for_dead_letters() -> None:
    with pytest.raises(OptionError, match=r"retry.then makes dead letters, and dead_letters does not say where"):
        Consumer("orders", application="billing", retry=Retry())
    assert Retry().then == DeadLetters()
    assert "A consumer without ``retry`` and without ``dead_letters`` gives nothing up." in " ".join(
        (Retry.__doc__ or "").split()
    )


def test_no_docstring_of_a_consumer_has_a_line_twice() -> None:
    for face in (Consumer, SyncConsumer):
        for name, member in vars(face).items():
            lines = [line.strip() for line in (getattr(member, "__doc__", None) or "").splitlines() if line.strip()]
            assert len(lines) == len(set(lines)), name
