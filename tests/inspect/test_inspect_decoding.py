"""What is inside of a record, layer by layer; a bomb is told and left closed."""

from __future__ import annotations

import base64
import gzip
import json
import uuid
import zlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.aggregation import MAGIC
from penstock.inspect import decode

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = uuid.UUID("3f2b8a54-70ab-4a4e-9d0c-1f5a52b7c2aa")
OBJECT = b'{"id": 7}'


def kinds(data: bytes) -> list[str]:
    return [step.kind for step in decode(data).steps]


@pytest.mark.parametrize(
    ("data", "found"),
    [  # each has a name of its own: the bytes of gzip tell the second in which they were made
        pytest.param(b"", ["text"], id="nothing"),
        pytest.param("grün".encode(), ["text"], id="text"),
        pytest.param(b"12", ["text"], id="digits"),
        pytest.param(OBJECT, ["json"], id="object"),
        pytest.param(b'{"a": 1}\n{"a": 2}\n', ["ndjson"], id="lines"),
        pytest.param(b'{"a": 1} and more', ["text"], id="object-and-text"),
        pytest.param(b"\xff\xfe", ["binary"], id="no-utf8"),
        pytest.param(b"a\0b", ["binary"], id="a-zero"),
        pytest.param(gzip.compress(OBJECT), ["gzip", "json"], id="gzip"),
        pytest.param(gzip.compress(b"a") + gzip.compress(b"b"), ["gzip", "text"], id="two-members"),
        pytest.param(gzip.compress(gzip.compress(b"a")), ["gzip", "gzip", "text"], id="gzip-twice"),
        pytest.param(zstandard.compress(OBJECT), ["zstd", "json"], id="zstd"),
        pytest.param(base64.b64encode(gzip.compress(OBJECT)), ["base64", "gzip", "json"], id="base64"),
        pytest.param(b"\x03\x00" + SCHEMA.bytes + OBJECT, ["glue", "json"], id="glue"),
        pytest.param(b"\x03\x05" + SCHEMA.bytes + zlib.compress(OBJECT), ["glue", "json"], id="glue-deflated"),
        pytest.param(b"\x00\x00\x00\x00\x07" + OBJECT, ["confluent", "json"], id="confluent"),
        pytest.param(
            gzip.compress(b'{"messageType": "DATA_MESSAGE", "logEvents": []}'),
            ["gzip", "cloudwatch-logs"],
            id="cloudwatch",
        ),
        pytest.param(MAGIC + b"broken", ["kpl"], id="broken-aggregate"),
        pytest.param(b"\x1f\x8bno gzip", ["binary"], id="broken-gzip"),
        pytest.param(gzip.compress(OBJECT)[:-4], ["binary"], id="cut-gzip"),
        pytest.param(b"\x28\xb5\x2f\xfdno zstd", ["binary"], id="broken-zstd"),
        pytest.param(b"[" * 100_000, ["text"], id="deep"),
    ],
)
def test_layers(data: bytes, found: list[str]) -> None:
    assert kinds(data) == found


def test_each_layer_says_what_it_was_known_by() -> None:
    found = decode(b"\x03\x05" + SCHEMA.bytes + zlib.compress(OBJECT))
    assert found.steps[0].schema_id == str(SCHEMA)
    assert [step.why for step in found.steps] == [
        "it begins with 03 05 and the id of a schema version of the Glue registry",
        "it is one value of JSON",
    ]
    assert (found.value, found.text, found.data) == ({"id": 7}, OBJECT.decode(), OBJECT)


@pytest.mark.parametrize(
    "made",
    [
        lambda: gzip.compress(b"0" * 50_000_000),
        lambda: gzip.compress(b"0" * 10_000_000) * 5,
        lambda: zstandard.compress(b"0" * 50_000_000),
        lambda: b"\x03\x05" + SCHEMA.bytes + zlib.compress(b"0" * 50_000_000),
    ],
    ids=["gzip", "many members", "zstd", "glue"],
)
def test_a_bomb_is_told_and_left_closed(made: Callable[[], bytes]) -> None:
    bomb = made()
    found = decode(bomb)
    (step,) = found.steps
    assert not step.opened
    assert "it opens to more than 16777216 bytes, and is left closed" in step.why
    assert (found.data, found.text) == (bomb, None)


def test_layers_without_end_are_left_at_a_bound() -> None:
    data = b"x"
    for _ in range(20):
        data = gzip.compress(data)
    assert kinds(data) == ["gzip"] * 8 + ["binary"]


@given(
    st.binary(max_size=64)
    | st.builds(
        bytes.__add__,
        st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x03\x05", b"\0", b"H4sI", MAGIC]),
        st.binary(max_size=64),
    )
)
def test_nothing_makes_it_fail(data: bytes) -> None:
    found = decode(data)
    assert found.steps
    assert found.shown is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_json_is_read_as_it_is(value: object) -> None:
    found = decode(json.dumps({"value": value}).encode())
    assert found.value == {"value": value}
