"""Avro's binary encoding: what it says, and that no schema and no data takes more than its bound."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from typing import Any

import pytest

from shardway.payloads.avro_data import VALUES_MAX, value_of
from shardway.payloads.avro_schemas import DEPTH_MAX, AvroError, parse


def long(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def text(value: str) -> bytes:
    return long(len(value.encode())) + value.encode()


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more})


def read(schema: str, data: bytes) -> Any:
    return value_of(parse(schema), data)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\1", True),
        ("int", b"\x7f", -64),
        ("long", b"\x80\x01", 64),
        ("long", long(2**63 - 1), 2**63 - 1),
        ("long", long(-(2**63)), -(2**63)),
        ("float", struct.pack("<f", 1.5), 1.5),
        ("double", struct.pack("<d", -0.1), -0.1),
        ("double", struct.pack("<d", float("nan")), "nan"),
        ("bytes", b"\x06\0\1\xff", "AAH/"),
        ("string", b"\x06foo", "foo"),
        (["null", "string"], b"\x02\x02a", "a"),
        ({"type": "array", "items": "long"}, b"\x04\x06\x36\0", [3, 27]),
        ({"type": "array", "items": "long"}, b"\x03\x04\x06\x36\x02\x02\0", [3, 27, 1]),
        ({"type": "map", "values": "int"}, b"\x02" + text("a") + b"\x02\0", {"a": 1}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x02", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\0\1", "AAE="),
        ({"type": {"type": "string"}}, b"\x02a", "a"),
        ({"type": "int", "logicalType": "date"}, long(20_000), "2024-10-04"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long(1_500), "1970-01-01T00:00:01.500000+00:00"),
        ({"type": "long", "logicalType": "timestamp-micros"}, long(-1), "1969-12-31T23:59:59.999999+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, long(0), "1970-01-01T00:00:00"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long(2**62), 2**62),
        ({"type": "long", "logicalType": "unheard of"}, long(7), 7),
        ({"type": "bytes", "logicalType": "decimal", "scale": 2}, b"\x04\xff\x85", "-1.23"),
        ({"type": "bytes", "logicalType": "decimal", "scale": 40}, b"\x02\x01", "0." + "0" * 39 + "1"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02u", "u"),
        (
            {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
            bytes(15) + b"\1",
            "00000000-0000-0000-0000-000000000001",
        ),
    ],
)
def test_each_type_as_json_has_it(kind: Any, data: bytes, value: Any) -> None:
    assert read(json.dumps(kind), data) == value
    json.dumps(read(json.dumps(kind), data), allow_nan=False)


def test_a_record_with_names_that_are_used_again() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
    schema = record(("a", inner), ("b", "Inner"), ("c", ["null", "com.Inner"]), name="Outer", namespace="com")
    assert read(schema, b"\x02\x04\x02\x06") == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}


def test_a_list_that_refers_to_itself() -> None:
    schema = record(("value", "long"), ("next", ["null", "R"]))
    assert read(schema, b"\x02\x02\x04\0") == {"value": 1, "next": {"value": 2, "next": None}}
    with pytest.raises(AvroError, match=f"lie more than {DEPTH_MAX} deep"):
        read(schema, b"\x02\x02" * 100_000)


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("int", b"", "it ends too soon"),
        ("string", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "it ends too soon"),
        ("string", b"\x01", "it ends too soon, or names a length"),
        ("string", b"\x02\xff", "a text is not UTF-8"),
        ("long", b"\xff" * 11, "more than ten bytes"),
        ("int", b"\0\0\0", "2 bytes are left over"),
        (["null"], b"\x02", "it chooses what the schema does not have"),
        (["null"], b"\x01", "it chooses what the schema does not have"),
        ({"type": "array", "items": "null"}, long(2**62), f"more than {VALUES_MAX} values"),
        ({"type": "map", "values": "null"}, long(2**62), "it ends too soon"),
        ({"type": "fixed", "name": "F", "size": 2**40}, b"x", "it ends too soon"),
    ],
)
def test_what_is_not_of_the_schema_is_said(kind: Any, data: bytes, why: str) -> None:
    with pytest.raises(AvroError, match=why):
        read(json.dumps(kind), data)


MANY = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null"] * 20_000}]}


@pytest.mark.parametrize(
    "schema",
    [
        *("", "{", "7", "null", "{}", '"Unknown"', '{"type": "array"}', "[" * 100_000, json.dumps(MANY)),
        *('{"type": "record", "name": "R"}', '{"type": "record", "name": "R", "fields": 5}'),
        *('{"type": "enum", "name": "E"}', '{"type": "fixed", "name": "F", "size": -1}'),
        '{"type":"array","items":' * 100 + '"int"' + "}" * 100,
    ],
)
def test_what_is_no_schema_is_said(schema: str) -> None:
    with pytest.raises(AvroError):
        parse(schema)


def test_any_bytes_end_in_a_value_or_an_error() -> None:
    rng = random.Random(7)
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": ["null", "In", "string", "double"]}]}
    schema = parse(record(("a", {"type": "array", "items": inner}), ("m", {"type": "map", "values": "bytes"})))
    for _ in range(2_000):
        data = bytes(rng.choice(b"\0\1\2\3\4\5\6\x80\xff") for _ in range(rng.randrange(40)))
        with contextlib.suppress(AvroError):
            json.dumps(value_of(schema, data), allow_nan=False)
