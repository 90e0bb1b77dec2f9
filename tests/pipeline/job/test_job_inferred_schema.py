"""A schema that was inferred takes each of the objects that it was inferred from."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardway.pipeline.job.draft.inferred_schema import (
    DEPTH_MAX,
    PLACES_MAX,
    InferredSchema,
    members_of,
    quoted,
    same_column,
    shown,
)
from shardway.pipeline.job.file.ddl import ddl_faults


def inferred(*values: Any) -> InferredSchema:
    schema = InferredSchema()
    for value in values:
        members = members_of(value if isinstance(value, str) else json.dumps(value))
        assert members is not None
        schema.see(members)
    return schema


def ddl(*values: Any) -> str:
    return inferred(*values).ddl.replace(",\n", ", ")


# --- what decode_json accepts ---------------------------------------------------------------------
# These are the rules of ``decode_json``, without Spark: a type takes a value, or the record becomes a dead letter.


class Parsed:
    """A DDL text that the tests read by themselves: it is what this package writes, and no other DDL."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def fields(self, end: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.takes(end):
            name = self.name()
            self.takes(":")
            self.blanks()
            found[name] = self.type()
            self.takes(",")
            self.blanks()
        return found

    def takes(self, sign: str) -> bool:
        if sign == "":
            return self.at == len(self.text)
        if self.text.startswith(sign, self.at):
            self.at += len(sign)
            return True
        return False

    def blanks(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\n") and self.at < len(self.text):
            self.at += 1

    def name(self) -> str:
        if not self.takes("`"):
            begin = self.at
            while self.text[self.at].isalnum() or self.text[self.at] == "_":
                self.at += 1
            return self.text[begin : self.at]
        found = ""
        while True:
            if self.takes("``"):
                found += "`"
            elif self.takes("`"):
                return found
            else:
                found += self.text[self.at]
                self.at += 1

    def type(self) -> Any:
        if self.takes("STRUCT<"):
            return self.fields(">")
        if self.takes("ARRAY<"):
            inner = self.type()
            assert self.takes(">")
            return [inner]
        for one in ("STRING", "BIGINT", "DOUBLE", "BOOLEAN", "VARIANT", "DECIMAL(38,0)"):
            if self.takes(one):
                return one
        raise AssertionError(self.text[self.at :])


def takes(kind: Any, value: Any) -> bool:
    if value is None or kind == "VARIANT":
        return True
    if isinstance(kind, dict):
        return isinstance(value, dict) and all(takes(one, value.get(name)) for name, one in kind.items())
    if isinstance(kind, list):
        return isinstance(value, list) and all(takes(kind[0], one) for one in value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if kind == "BIGINT":
        return is_whole and -(2**63) <= value < 2**63
    if kind == "DECIMAL(38,0)":
        return is_whole and abs(value) < 10**38
    if kind == "DOUBLE":
        return is_whole or isinstance(value, float)
    return isinstance(value, {"STRING": str, "BOOLEAN": bool}[kind])


NAMES = st.one_of(
    st.sampled_from(
        ["a", "A", "b", "", "a b", "`", "``", "a,b", "it's", "<", "${HOME}", "select", "stream", "\n", '"']
    ),
    st.text(max_size=5),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**38 - 1, 10**38, 1 - 10**38, -(10**38)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=15,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5)


@example(objects=[{"a": {"A": 1}}, {"a": {"a": "x"}}])
@example(objects=[{"a": [{"b": 1}, {"b": 1.5}, None]}, {"a": []}])
@example(objects=[{"`": 1, "``": 1, "`a": 1, "a": 1}])
@example(objects=[{"a": 2**63}, {"a": 10**38}])
@given(objects=st.lists(OBJECTS, min_size=1, max_size=6))
def test_the_schema_takes_each_object_that_it_was_inferred_from(objects: list[dict[str, Any]]) -> None:
    schema = inferred(*objects)
    text = schema.ddl
    assert ddl_faults(text) == [] if text else not schema.fields
    fields = Parsed(text).fields("") if text else {}
    assert list(fields) == [field.name for field in schema.fields]
    assert len({same_column(name) for name in fields}) == len(fields)
    for value in objects:
        assert takes(fields, value)
    for field in schema.fields:
        assert field.is_in_all == all(one.get(field.name) is not None for one in objects)


@given(text=st.text(max_size=30))
def test_any_name_is_quoted_so_that_it_is_read_back(text: str) -> None:
    if text:
        assert Parsed(f"{quoted(text)} STRING").fields("") == {text: "STRING"}
    assert shown(text).isprintable()


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["x"], "STRING"),
        ([1, -5], "BIGINT"),
        ([2**63], "DECIMAL(38,0)"),
        ([-(2**63)], "BIGINT"),
        ([10**38], "DOUBLE"),
        ([1, 1.5], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        ([None], "STRING"),
        ([1, "1"], "VARIANT"),
        ([1, True], "VARIANT"),
        ([{}, {}], "VARIANT"),
        ([[]], "ARRAY<STRING>"),
        ([[1, None], [2.5]], "ARRAY<DOUBLE>"),
        ([[1], ["x"]], "ARRAY<VARIANT>"),
        ([{"a": 1}, {"b c": {"d": "x"}}], "STRUCT<a: BIGINT, `b c`: STRUCT<d: STRING>>"),
        ([{"a": 1}, [1]], "VARIANT"),
    ],
)
def test_a_type_follows_from_the_values(values: list[Any], type_: str) -> None:
    assert ddl(*({"f": value} for value in values)) == f"f {type_}"


def test_notes_tell_what_a_schema_does_not() -> None:
    schema = inferred(
        {"id": "a", "at": "2026-01-02T03:04:05Z", "price": "12.90", "big": 10**20, "mixed": 1, "in": {"x": 1}},
        {"id": "b", "at": "2026-01-02T03:04:06+01:00", "price": "7", "big": 1, "mixed": "secret", "in": {}},
        {"id": "c", "at": None, "Price": 5, "": 1, "\ud83d": 1, "n" * 101: 1},
    )
    notes = schema.notes
    assert "at: null in 1; 2 of 2 texts look like ISO 8601: TIMESTAMP takes such texts" in notes
    assert "price: 2 of 2 texts are numbers: DECIMAL(38,2) takes such texts" in notes
    assert "price: missing in 1 of 3" in notes
    assert "big: numbers beyond BIGINT" in notes
    assert "mixed: mixed, texts, whole numbers: VARIANT takes any value" in notes
    assert "in.x: missing in 1 of 2" in notes
    assert len([one for one in notes if "left out" in one]) == 4
    assert "secret" not in "".join(notes)
    assert [field.name for field in schema.fields if field.is_in_all] == ["id"]


def test_a_few_faults_do_not_hide_what_most_texts_are() -> None:
    assert inferred(*({"a": "1.50"} for _ in range(9)), {"a": "a lot"}).notes == [
        "a: 9 of 10 texts are numbers: DECIMAL(38,2) takes such texts"
    ]
    assert inferred(*({"a": "1.50"} for _ in range(8)), {"a": "x"}).notes == []


def test_a_name_that_stands_twice_counts_once_and_both_values_count() -> None:
    schema = inferred('{"a": 1, "a": "x"}', '{"a": 1}')
    assert schema.ddl == "a VARIANT"
    assert schema.fields[0].is_in_all
    (note,) = [one for one in schema.notes if "twice" in one]
    assert note.startswith("1 of 2 objects have a name twice")


def test_what_lies_deep_and_what_is_wide_is_bounded() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"d": deep}
    text = ddl(deep)
    assert text.count("STRUCT<") == DEPTH_MAX - 1
    assert "VARIANT" in text
    wide = inferred({f"f{number}": number for number in range(PLACES_MAX + 50)})
    assert len(wide.fields) == PLACES_MAX
    assert f"the objects have more than {PLACES_MAX} fields: those seen last are left out" in wide.notes


def test_names_that_are_data_stay_out_of_the_schema() -> None:
    schema = inferred(*({"by_user": {f"user-{number}": 1}} for number in range(40)))
    assert schema.ddl == "by_user VARIANT"
    assert "user-" not in schema.ddl + "".join(schema.notes)


@pytest.mark.parametrize(
    "text", ["[]", "1", "{", '{"a": NaN}', '{"a": 1' + "0" * 1001 + "}", "[" * 100_000, '{"a":1}x']
)
def test_what_is_not_one_object_for_spark_is_none_here(text: str) -> None:
    assert members_of(text) is None
