from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from shardway.errors import OptionError
from shardway.pipeline import decode_bytes, decode_json, decode_text, explain_json, split

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    Frame = Callable[[list[dict[str, Any]]], DataFrame]

SCHEMA = (
    "id STRING NOT NULL, n INT NOT NULL, inner STRUCT<q: STRING NOT NULL, r: INT>, list ARRAY<STRING>,"
    " price DECIMAL(8,2), at TIMESTAMP, map MAP<STRING,STRING>, flag BOOLEAN"
)

GOOD = {
    '{"id":"a","n":1}': {"id": "a", "n": 1},
    ' {"n":1, "id":"a"}\n': {"id": "a", "n": 1},
    '{"id":"","n":-1}': {"id": "", "n": -1},
    '{"id":"grüße 😀","n":1}': {"id": "grüße 😀", "n": 1},
    '{"id":"a","n":1,"unknown":[1,{"x":2}]}': {"id": "a", "n": 1},
    '{"id":"a","n":1,"inner":null,"list":null}': {"id": "a", "n": 1},
    '{"id":"a","n":1,"inner":{"q":"z"}}': {"id": "a", "n": 1, "inner": {"q": "z", "r": None}},
    '{"id":"a","n":1,"list":["x",null]}': {"id": "a", "n": 1, "list": ["x", None]},
    '{"id":"a","n":1,"list":[]}': {"id": "a", "n": 1, "list": []},
    '{"id":"a","n":1,"price":12.345}': {"id": "a", "n": 1, "price": Decimal("12.35")},
    '{"id":"a","n":1,"price":"1.5"}': {"id": "a", "n": 1, "price": Decimal("1.50")},
    '{"id":"a","n":1,"at":"2026-11-21T10:00:00Z"}': {"id": "a", "n": 1, "at": dt.datetime(2026, 11, 21, 10)},
    '{"id":"a","n":1,"map":{"k":"v","l":null}}': {"id": "a", "n": 1, "map": {"k": "v", "l": None}},
    '{"id":"a","n":1,"flag":true}': {"id": "a", "n": 1, "flag": True},
    '{"id":"{\\"end\\":true}","n":1}': {"id": '{"end":true}', "n": 1},
}

BAD = {
    b"\xff{}": "not valid UTF-8",
    b"": "not exactly one JSON object",
    b"null": "not exactly one JSON object",
    b"5": "not exactly one JSON object",
    b'"x"': "not exactly one JSON object",
    b"[]": "not exactly one JSON object",
    b'[{"id":"a","n":1}]': "not exactly one JSON object",
    b'{"id":"a","n":1': "not exactly one JSON object",
    b'{"id":"a","n":1}{"id":"b","n":2}': "not exactly one JSON object",
    b'{"id":"a","n":1}\n{"id":"b","n":2}': "not exactly one JSON object",
    b'{"id":"a","n":1},{"id":"b","n":2}': "not exactly one JSON object",
    b'{"id":"a","n":1}} x': "not exactly one JSON object",
    b'{"id":"a","n":1}\x00': "not exactly one JSON object",
    b"{'id':'a','n':1}": "not exactly one JSON object",
    b'{"id":"a","n":NaN}': "not exactly one JSON object",
    b'{"id":"a","n":"1"}': "n is not int",
    b'{"id":"a","n":1.5}': "n is not int",
    b'{"id":"a","n":99999999999}': "n is not int",
    b'{"id":5,"n":1}': "id is not string",
    b'{"id":{"x":1},"n":"x"}': "id is not string, n is not int",
    b'{"id":"a","n":1,"inner":5}': "inner is not an object",
    b'{"id":"a","n":1,"inner":{"q":5}}': "inner.q is not string",
    b'{"id":"a","n":1,"list":["x",5]}': "list is not array<string>",
    b'{"id":"a","n":1,"list":"x"}': "list is not array<string>",
    b'{"id":"a","n":1,"map":{"k":5}}': "map is not map<string,string>",
    b'{"id":"a","n":1,"price":123456789}': "price is not decimal(8,2)",
    b'{"id":"a","n":1,"at":"yesterday"}': "at is not timestamp",
    b'{"id":"a","n":1,"flag":"true"}': "flag is not boolean",
    b'{"n":1}': "id is missing",
    b'{"id":null,"n":1}': "id is missing",
    b"{}": "id is missing, n is missing",
    b'{"id":"a","n":1,"inner":{"r":1}}': "inner.q is missing",
}


def test_json_that_fits_the_schema(frame: Frame, written: Any) -> None:
    rows = decode_json(frame([written.record(text) for text in GOOD]), SCHEMA).collect()
    decoded = {row.data.decode(): row for row in rows}
    assert {text: row.reason for text, row in decoded.items()} == dict.fromkeys(GOOD)
    for text, expected in GOOD.items():
        value = decoded[text].value.asDict(recursive=True)
        assert {name: item for name, item in value.items() if item is not None} == expected


def test_json_that_does_not_fit_says_why(frame: Frame, written: Any) -> None:
    decoded = decode_json(frame([written.record(data) for data in BAD]), SCHEMA)
    assert {bytes(row.data): row.value for row in decoded.collect()} == dict.fromkeys(BAD)
    dead = explain_json(split(decoded)[1], SCHEMA)
    assert {bytes(row.data): row.reason for row in dead.collect()} == BAD


def test_reasons_never_show_what_was_in_a_field(frame: Frame, written: Any) -> None:
    secrets = ['{"id":"a","n":"hunter2"}', '{"id":"hunter2"}', '"hunter2"', '{"id":"a","n":1,"price":"hunter2"}']
    decoded = decode_json(frame([written.record(text) for text in secrets]), SCHEMA)
    reasons = [row.reason for row in explain_json(split(decoded)[1], SCHEMA).collect()]
    assert len(reasons) == len(secrets)
    assert not [reason for reason in reasons if "hunter2" in reason]


def test_required_items_of_arrays_and_maps(frame: Frame, written: Any) -> None:
    schema = StructType(
        [
            StructField("list", ArrayType(IntegerType(), containsNull=False)),
            StructField("map", MapType(StringType(), StringType(), valueContainsNull=False)),
        ]
    )
    texts = ['{"list":[1,2]}', '{"list":[1,null]}', '{"map":{"a":"b"}}', '{"map":{"a":null}}', "{}"]
    decoded = decode_json(frame([written.record(text) for text in texts]), schema)
    bad = {row.data.decode(): row.reason for row in explain_json(split(decoded)[1], schema).collect()}
    assert bad == dict.fromkeys(('{"list":[1,null]}', '{"map":{"a":null}}'), "a required field is missing")


def test_a_schema_without_strings_or_required_fields(frame: Frame, written: Any) -> None:
    texts = ['{"n":1}', "{}", '{"n":"x"}', "x"]
    rows = decode_json(frame([written.record(text) for text in texts]), "n INT").collect()
    assert [(row.value and row.value.n, row.reason) for row in rows] == [
        (1, None),
        (None, None),
        (None, "a field is not of its type"),
        (None, "not exactly one JSON object"),
    ]


LOOKS_LIKE_ANOTHER = [
    "5", "-5", "1.5e3", "-", ".", "/", "0x1", "5a", "2026-11-22", "-1-", "true", "false", "null", "truest", "TRUE",
    "[]", "[1]", "[", "{}", '{"a":1}', "{", "", " 5", "5 ", "\u0665",
]  # fmt: skip
NO_STRINGS = ["5", "-5", "1.5e3", "0", "true", "false", "[]", '["x"]', "{}", '{"a":"b"}']
PLACES = ['{"s":%s}', '{"in":{"s":%s}}', '{"list":["x",%s]}', '{"map":{"x":"y","k":%s}}', '{"deep":[{"m":{"k":[%s]}}]}']


@pytest.mark.parametrize("kind", ["STRING", "STRING COLLATE UTF8_LCASE"])
def test_a_string_may_look_like_any_other_value_and_no_other_value_is_a_string(
    frame: Frame, written: Any, kind: str
) -> None:
    deep = f"ARRAY<STRUCT<m: MAP<STRING,ARRAY<{kind}>>>>"
    schema = f"s {kind}, in STRUCT<s: {kind}>, list ARRAY<{kind}>, map MAP<STRING,{kind}>, deep {deep}"
    good = [place % json.dumps(text) for place in PLACES for text in LOOKS_LIKE_ANOTHER]
    bad = [place % value for place in PLACES for value in NO_STRINGS]
    rows = decode_json(frame([written.record(text) for text in good + bad]), schema).collect()
    judged = {row.data.decode(): row for row in rows}
    assert {text for text, row in judged.items() if row.reason} == set(bad)
    assert {judged[text].reason for text in bad} == {"a field is not of its type"}
    for text in good:
        found = {name: one for name, one in judged[text].value.asDict(recursive=True).items() if one is not None}
        assert found == json.loads(text)


@pytest.mark.parametrize("schema", ["", StructType([]), "STRING", StringType()])
def test_a_schema_has_fields(frame: Frame, written: Any, schema: Any) -> None:
    with pytest.raises(OptionError, match="at least one field"):
        decode_json(frame([written.record("{}")]), schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=st.lists(st.dictionaries(st.sampled_from(["id", "n", "x"]), JSON), min_size=60, max_size=60))
def test_any_json_object_is_judged_as_its_types_say(frame: Frame, written: Any, documents: list[Any]) -> None:
    def fits(document: dict[str, Any]) -> bool:
        number = document.get("n")
        of_type = number is None or (type(number) is int and -(2**63) <= number < 2**63)
        return isinstance(document.get("id"), str) and of_type

    texts = [json.dumps(document, ensure_ascii=False).encode(errors="replace") for document in documents]
    rows = decode_json(frame([written.record(text) for text in texts]), "id STRING NOT NULL, n BIGINT").collect()
    assert [row.reason is None for row in rows] == [fits(json.loads(text)) for text in texts]
    values = [(row.value.id, row.value.n) for row in rows if row.value]
    assert values == [(one["id"], one.get("n")) for one in map(json.loads, texts) if fits(one)]


def test_text(frame: Frame, written: Any) -> None:
    rows = decode_text(frame([written.record(data) for data in ("grüße".encode(), b"", b"\xc3(")])).collect()
    assert [(row.value, row.reason) for row in rows] == [("grüße", None), ("", None), (None, "not valid UTF-8")]


def test_bytes(frame: Frame, written: Any) -> None:
    rows = decode_bytes(frame([written.record(b"\x00\xff")])).collect()
    assert [(bytes(row.value), row.reason) for row in rows] == [(b"\x00\xff", None)]


def test_split_keeps_every_row_once_and_the_position_of_dead_letters(frame: Frame, written: Any) -> None:
    records = [written.record(data) for data in (b"good", b"\xff", b"better")]
    good, dead = split(decode_text(frame(records)))
    assert [row.value for row in good.collect()] == ["good", "better"]
    assert "reason" not in good.columns
    (row,) = dead.collect()
    assert "value" not in dead.columns
    assert (bytes(row.data), row.reason) == (b"\xff", "not valid UTF-8")
    kept = ("stream", "shard_id", "sequence_number", "sub_sequence_number", "partition_key")
    assert {name: row[name] for name in kept} == {name: records[1][name] for name in kept}
