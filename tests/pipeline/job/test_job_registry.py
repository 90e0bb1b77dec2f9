"""Jobs over records in the frame of a schema registry."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from tests.payloads.lying_registry import VERSION, Registry
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DDL = "id BIGINT NOT NULL, note STRING, price DECIMAL(10,2), at TIMESTAMP"
REST = """
[dead_letters]
path = "{folder}/dead"

[[sinks]]
format = "parquet"
path = "{folder}/rows"
"""
PRICED = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "note", "type": ["null", "string"]},
        {"name": "id", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "unknown", "type": "double"},
    ],
}
"""The schema of a writer that is ahead of the job: fields in another order, narrower types, one more field."""
PRICED_ORDER = b"\2\4ab" + b"\x10" + b"\2\x64" + b"\x02" + bytes(8)
ORDER = b"\x0e"
"""The order 7."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
    running = Registry()
    running.schemas[2] = {"schema": json.dumps(PRICED)}
    running.schemas[3] = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    running.schemas[4] = {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}
    yield running
    running.close()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def framed(data: bytes, number: int = 1) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def job(format: str, place: str) -> str:
    return f'{HEAD}[decode]\nformat = "{format}"\nschema = "{DDL}"\nregistry = {place}\n{REST}{ONCE}'


def test_records_of_several_schemas_become_rows_and_the_others_dead_letters(world: World, registry: Registry) -> None:
    """In one batch, which is run again: nothing is there twice."""
    bad = {
        framed(ORDER, 11): f"it cannot be read: the registry {registry.url} has no schema 11",
        framed(ORDER, 4): "it cannot be read: the registry says that its schema 4 is PROTOBUF, which is not decoded",
        framed(ORDER + b"\0"): "it is not of the schema 1: 1 bytes are left over: the data is of another schema",
        b'{"id": 1}': "it is in no frame of a schema registry: that is a zero byte and an id of four bytes",
        framed(b'{"id": "seven"}', 3): "id is not bigint",
        framed(b'{"note": "half \\ud83d"}', 3): "id is missing",
    }
    world.put(framed(ORDER), framed(PRICED_ORDER, 2), framed(b'{"id": 9, "price": "1.5"}', 3), *bad)
    text = job("confluent", f'{{ url = "{registry.url}" }}')
    ended = world.run(text)
    assert (ended.errors, ended.code) == ("", ExitCode.DONE)
    assert ended.summary["dead_letters"] == len(bad)
    at = dt.datetime(1970, 1, 1, 0, 0, 0, 1)  # in UTC
    rows = [
        (7, None, None, None),
        (8, "ab", Decimal("1.00"), at),
        (9, None, Decimal("1.50"), None),
    ]
    assert world.rows("rows", "id", "note", "price", "at") == rows
    assert dict(world.rows("dead", "data", "reason")) == bad

    world.forget_last_commit()
    assert world.run(text).code is ExitCode.DONE
    assert (len(world.rows("rows", "id")), len(world.rows("dead", "reason"))) == (len(rows), len(bad))


def test_glue_is_asked_in_the_region_of_the_stream(world: World, registry: Registry) -> None:
    world.put(bytes([3, 0]) + VERSION.bytes + ORDER, bytes([3, 0]) + bytes(16) + ORDER)
    ended = world.run(job("glue", f'{{ endpoint_url = "{registry.url}" }}'))
    assert (ended.errors, ended.code) == ("", ExitCode.DONE)
    assert world.rows("rows", "id") == [(7,)]
    ((reason,),) = world.rows("dead", "reason")
    assert "has no schema 00000000-0000-0000-0000-000000000000" in reason


def test_a_registry_that_is_away_ends_the_job_and_loses_nothing(world: World, registry: Registry) -> None:
    world.put(framed(ORDER), b"no frame")
    text = job("confluent", f'{{ url = "{registry.url}", wait = "1 second" }}')
    registry.status = 503
    ended = world.run(text)
    assert ended.code is ExitCode.FAILED
    assert ended.of("error")[0]["step"] == "decode"
    assert "decode failed in batch 0: the schema registry" in ended.message
    assert "answers 503. Records wait until it does: see that it answers" in ended.message
    assert not world.rows("rows", "id")
    assert not world.rows("dead", "reason")
    registry.status = 200
    assert world.run(text).code is ExitCode.DONE
    assert (world.rows("rows", "id"), len(world.rows("dead", "reason"))) == ([(7,)], 1)
