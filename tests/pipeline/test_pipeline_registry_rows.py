"""What a task makes of records in the frame of a schema registry, which can be away and can lie."""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import RegistryError
from shardway.payloads import avro_data
from shardway.pipeline.payload_rows import PayloadRows
from shardway.pipeline.registry_rows import FramedData, RegistryPlace
from tests.payloads.lying_registry import SCHEMA, VERSION, Registry

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = b"\x0e"
"""The order 7."""
KINDS: list[Any] = [
    "bytes",
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "int", "logicalType": "date"},
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "map", "values": "long"},
    ["null", "string"],
    "double",
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Registry]:
    running = Registry()
    running.schemas[9] = {"schema": json.dumps({"type": "array", "items": ["null", SCHEMA_OF_MUCH]})}
    yield running
    running.close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    running = Registry()
    yield running
    running.close()


SCHEMA_OF_MUCH = {"type": "record", "name": "M", "fields": [{"name": "n" * 1_000, "type": "null"}]}


def framed(data: bytes, number: int = 1) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def confluent(registry: Registry, wait_s: float = 0.0, **more: Any) -> FramedData:
    place = RegistryPlace("confluent", url=registry.url, wait_s=wait_s)
    return FramedData(place, more.get("compression"), 1_000_000)


def glue(registry: Registry) -> FramedData:
    return FramedData(RegistryPlace("glue", region="eu-west-1", endpoint_url=registry.url, wait_s=0.0), None, 1_000)


def read(made: FramedData, *datas: bytes | None) -> list[tuple[bytes | None, str | None]]:
    rows = pa.RecordBatch.from_arrays([pa.array(datas, pa.binary())], ["data"])
    pieces = PayloadRows(pickle.loads(pickle.dumps(made)), "json", "reason").added(iter([rows]))
    return [(row["json"], row["reason"]) for piece in pieces for row in piece.to_pylist()]


def test_each_record_is_read_by_the_schema_it_was_written_with(registry: Registry) -> None:
    later = json.loads(SCHEMA)
    later["fields"].insert(0, {"name": "note", "type": ["null", "string"]})
    registry.schemas[2] = {"schema": json.dumps(later)}
    registry.schemas[3] = {"schema": '{"type": "object"}', "schemaType": "JSON"}
    datas = [framed(ORDER), framed(b"\2\4ab" + ORDER, 2), framed(b'{"id": 7}', 3), gzip.compress(framed(ORDER))]
    made = confluent(registry, compression="auto")
    assert read(made, *datas) == [
        (b'{"id":7}', None),
        (b'{"note":"ab","id":7}', None),
        (b'{"id": 7}', None),
        (b'{"id":7}', None),
    ]
    assert sorted(path for path, _ in registry.asked) == [f"/schemas/ids/{number}" for number in (1, 2, 3)]


def test_values_are_those_that_a_ddl_takes(registry: Registry) -> None:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(KINDS)]
    registry.schemas[1] = {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
    data = b"\4\x01\x02" + b"\2\x64" + b"\x02" + b"\x02" + b"\2" + b"\2\2k\4\0" + b"\0" + bytes(8)
    ((made, reason),) = read(confluent(registry), framed(data))
    assert reason is None
    assert list(msgspec.json.decode(made or b"").values()) == [
        "AQI=", "1.00", "1970-01-01T00:00:00.000001+00:00", "1970-01-02", "B", {"k": 2}, None, 0.0
    ]  # fmt: skip


def test_glue(registry: Registry) -> None:
    head = bytes([3, 0]) + VERSION.bytes
    packed = bytes([3, 5]) + VERSION.bytes + zlib.compress(ORDER)
    bomb = bytes([3, 5]) + VERSION.bytes + zlib.compress(bytes(5_000))
    unknown = bytes([3, 0]) + bytes(16) + ORDER
    found = read(glue(registry), head + ORDER, packed, bomb, unknown, b"\0plain", None)
    assert found[:2] == [(b'{"id":7}', None)] * 2
    reasons = [str(reason) for _, reason in found[2:]]
    assert "it opens to more than 1000 bytes" in reasons[0]
    assert "has no schema 00000000-0000-0000-0000-000000000000" in reasons[1]
    assert reasons[2] == "it is in no frame of the Glue registry: that is two bytes and an id of sixteen bytes"
    assert reasons[3] == "there is no data"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "x", "schemaType": "PROTOBUF"}, "PROTOBUF, which is not decoded"),
        ({"schema": SCHEMA, "references": [{"name": "other"}]}, "refers to others"),
        ({"schema": '{"type": "record"}'}, "cannot be used: the schema is no Avro schema (KeyError)"),
        ({"schema": '"string"'}, "it is not of the schema 1: it ends too soon"),
    ],
)
def test_what_a_schema_cannot_read_has_a_reason(registry: Registry, answer: dict[str, Any], reason: str) -> None:
    registry.schemas[1] = answer
    ((value, told),) = read(confluent(registry), framed(ORDER))
    assert value is None
    assert reason in str(told)


@pytest.mark.parametrize("status", [500, 403, 302, 404])
def test_a_registry_that_is_away_fails_the_task_and_makes_no_record_unreadable(registry: Registry, status: int) -> None:
    registry.status = status
    registry.lie = b"{}" if status == 404 else None
    with pytest.raises(RegistryError, match=r"gives no schema: .* Records wait until it does"):
        read(confluent(registry), framed(ORDER))


@pytest.mark.parametrize("lie", [b"<html>", b"[]", b"{}", b'{"schema": 7}', b"\xff"])
def test_a_registry_that_lies_fails_the_task(registry: Registry, lie: bytes) -> None:
    registry.lie = lie
    with pytest.raises(RegistryError, match="gives no schema"):
        read(confluent(registry), framed(ORDER))


def test_a_task_waits_for_a_registry_that_comes_back(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.status = 500

    def sleep(seconds: float) -> None:
        registry.status = 200 if seconds else 500

    with pytest.raises(RegistryError):
        read(confluent(registry), framed(ORDER))
    monkeypatch.setattr("shardway.pipeline.registry_rows.time.sleep", sleep)
    assert read(confluent(registry, wait_s=30.0), framed(ORDER)) == [(b'{"id":7}', None)]


def test_names_that_a_schema_has_repeated_are_bounded(shared: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand values of no byte, each with a name of a kilobyte, would be JSON of 100 MB."""
    monkeypatch.setattr(avro_data, "NAMES_CHARS_MAX", 5_000)
    few = framed(b"\x0a" + b"\2" * 5 + b"\0", 9)
    much = framed(b"\x0c" + b"\2" * 6 + b"\0", 9)
    (good, bad) = read(confluent(shared), few, much)
    assert len(good[0] or b"") > 5_000
    assert bad == (None, "it is not of the schema 9: the names of its fields have more than 5000 characters together")


@given(st.binary(max_size=40), st.integers(0, 12), st.booleans())
def test_any_data_gives_json_or_a_reason(shared: Registry, data: bytes, number: int, packed: bool) -> None:
    """A task that fails would fail again and again: the job would read no further."""
    data = framed(data, number) if number < 11 else data
    data = gzip.compress(data) if packed else data
    ((value, reason),) = read(confluent(shared, compression="auto"), data)
    assert (value is None) == (reason is not None)
    if value is not None:
        msgspec.json.decode(value)
