"""What is inside of a record, layer by layer; a bomb is told and left closed."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import random
import sys
import uuid
import zlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.aggregation.wire_format import MAGIC
from shardway.inspect import decode
from shardway.payloads.opening import OpeningBudget

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = uuid.UUID("3f2b8a54-70ab-4a4e-9d0c-1f5a52b7c2aa")
OBJECT = b'{"id": 7}'


class Looks:
    """A clock that stands still, and counts the looks at it: there is one before each call of a decompressor."""

    count = 0

    def __call__(self) -> float:
        self.count += 1
        return 0.0


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
        pytest.param(zstd.compress(OBJECT), ["zstd", "json"], id="zstd"),
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
        pytest.param(zstd.compress(OBJECT)[:-1], ["binary"], id="half of zstd"),
        pytest.param(zstd.compress(OBJECT) + b"rest", ["binary"], id="zstd and more"),
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
        lambda: zstd.compress(b"0" * 50_000_000),
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


EMPTY = gzip.compress(b"", mtime=0)
FRAME = zstd.compress(b"")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        pytest.param(lambda: EMPTY * 50_000, "more than 1000 members", id="empty members"),
        pytest.param(lambda: gzip.compress(EMPTY * 800_000), "more than 1000 members", id="empty members in gzip"),
        pytest.param(
            lambda: gzip.compress(gzip.compress(EMPTY * 800_000)), "more than 1000 members", id="the same in gzip again"
        ),
        pytest.param(
            lambda: gzip.compress(gzip.compress(EMPTY * 600) * 600),
            "more than 1000 members",
            id="members of two layers",
        ),
        pytest.param(lambda: FRAME * 50_000, "more than 1000 members", id="empty frames of zstd"),
        pytest.param(
            lambda: FRAME + b"\x50\x2a\x4d\x18\0\0\0\0" * 50_000, "more than 1000 members", id="frames to skip"
        ),
        pytest.param(
            lambda: gzip.compress(gzip.compress(gzip.compress(b"0" * 12_000_000, 0), 0), 0),
            "more than 16777216 bytes",
            id="layers that are within the bound one by one",
        ),
        pytest.param(
            lambda: gzip.compress(base64.b64encode(gzip.compress(b"0" * 9_000_000, 0))),
            "more than 16777216 bytes",
            id="base64 between gzip",
        ),
        pytest.param(
            lambda: gzip.compress(zstd.compress(b"\x03\x05" + SCHEMA.bytes + zlib.compress(b"0" * 50_000_000))),
            "more than 16777216 bytes",
            id="all kinds",
        ),
    ],
)
def test_the_layers_of_a_record_share_one_budget(made: Callable[[], bytes], why: str) -> None:
    clock = Looks()
    found = decode(made(), budget=OpeningBudget(clock=clock))
    assert not found.steps[-1].opened
    assert why in found.steps[-1].why
    assert clock.count < 3_000


def test_time_is_a_bound_too_on_a_machine_that_is_slow() -> None:
    seconds = itertools.count()
    found = decode(
        gzip.compress(b"0" * 8_000_000, 0), budget=OpeningBudget(time_max_s=5.0, clock=lambda: next(seconds))
    )
    assert [step.opened for step in found.steps] == [False]
    assert "it takes more than 5 s to open, and is left closed" in found.steps[0].why


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 1_048_575, 1_048_576, 1_048_577, 3_000_000])
@pytest.mark.parametrize("level", [0, 9])
def test_data_of_any_size_is_opened_whole_slice_by_slice(size: int, level: int) -> None:
    data = random.Random(size).randbytes(size // 2) + b"0" * (size - size // 2)
    two = gzip.compress(data, level) + gzip.compress(b"end", level)
    assert decode(two).data == data + b"end"
    assert decode(zstd.compress(data) + zstd.compress(b"end")).data == data + b"end"
    assert decode(b"\x03\x05" + SCHEMA.bytes + zlib.compress(data, level)).data == data


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" + "[]," * 500_000 + "[]]", id="lists"),
        pytest.param('{"a":' + "[1" + ",1" * 600_000 + "]}", id="numbers"),
        pytest.param("{}\n" * 600_000, id="lines"),
        pytest.param("[" * 101 + "]" * 101, id="deep"),
        pytest.param('{"a":' * 101 + "1" + "}" * 101, id="deep objects"),
        pytest.param('{"a":' * 900 + "1" + "}" * 900, id="deeper"),
        pytest.param("[" + "9" * 5_000 + "]", id="a number that is too long"),
    ],
)
def test_json_beyond_its_bounds_is_text(text: str) -> None:
    assert kinds(gzip.compress(text.encode())) == ["gzip", "text"]


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "[" + "9" * 4_000 + "]", "[" + "1," * 400_000 + "1]"])
def test_json_within_its_bounds_is_written_and_read_again(text: str) -> None:
    found = decode(text.encode())
    assert found.is_json
    assert json.loads(msgspec.json.encode(found.value)) == json.loads(text)
    assert json.dumps(found.value, indent=2)


def test_half_an_emoji_is_replaced_and_a_whole_one_is_put_together() -> None:
    found = decode(rb'{"cut \ud83d": ["\uDE00 end", {"whole": "\ud83d\ude00", "no escape": "\\ud83d"}], "n": 1}')
    assert found.value == {
        "cut \ufffd": ["\ufffd end", {"whole": "\U0001f600", "no escape": "\\ud83d"}], "n": 1,
    }  # fmt: skip
    assert found.text is not None
    assert "ud83d" in found.text  # the text is the record's own


LAYERS: list[Callable[[bytes], bytes]] = [
    gzip.compress,
    zstd.compress,
    lambda data: base64.b64encode(gzip.compress(data)),
    lambda data: b"\x03\x05" + SCHEMA.bytes + zlib.compress(data),
    lambda data: b"\x03\x00" + SCHEMA.bytes + data,
    lambda data: b"\x00\x00\x00\x00\x07" + data,
    lambda data: gzip.compress(data) * 3,
    lambda data: EMPTY * 500 + gzip.compress(data),
    lambda data: gzip.compress(data)[:-3],
    lambda data: zstd.compress(data) + b"\x50\x2a\x4d\x18\0\0\0\0" * 600,
]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(LAYERS), max_size=6),
    st.sampled_from([b"[" * 2_000, b'"\\ud800"', b"9" * 5_000, b"0" * 3_000_000, b"{}\n" * 9_000, EMPTY * 900, MAGIC])
    | st.binary(max_size=64),
)
def test_layers_of_any_kind_in_any_order_cost_little(layers: list[Callable[[bytes], bytes]], data: bytes) -> None:
    for layer in layers:
        data = layer(data)
    clock = Looks()
    found = decode(data, budget=OpeningBudget(clock=clock))
    assert clock.count < 5_000
    assert len(found.data) <= max(len(data), 16 * 1024 * 1024)
    msgspec.json.encode([found.steps, found.value, found.text, found.shown])


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
