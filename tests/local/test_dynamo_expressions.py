"""Expressions of the local DynamoDB with any text, any values and any size: an error or an answer, in bounded time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardway.local.dynamodb import DynamoError
from shardway.local.dynamodb.expressions.condition_parser import parse_condition
from shardway.local.dynamodb.expressions.projections import parse_projection
from shardway.local.dynamodb.expressions.tokens import ExpressionError
from shardway.local.dynamodb.expressions.update_parser import parse_update
from tests.local.dynamo_kit import Ours, RefusedError, lease_table

KEY = {"leaseKey": {"S": "a"}}
PIECES = """a b.c d[0] #a #b.#c :a :b = <> < <= > >= ( ) , + - . [ ] 7 AND OR NOT BETWEEN IN SET REMOVE ADD DELETE
attribute_exists( attribute_not_exists( attribute_type( begins_with( contains( size( if_not_exists( list_append(
foo( name $ é 99999999999999999999"""
WORDS = st.sampled_from(PIECES.split())
TEXTS = st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60)
NUMBERS = st.integers(-(10**9), 10**9).map(str)
VALUES: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.one_of(
        st.text(max_size=5).map(lambda text: {"S": text}),
        NUMBERS.map(lambda text: {"N": text}),
        st.booleans().map(lambda yes: {"BOOL": yes}),
        st.just({"NULL": True}),
        st.just({"B": "AAEC"}),
        st.sets(st.text(max_size=2), min_size=1, max_size=3).map(lambda found: {"SS": list(found)}),
        st.sets(NUMBERS, min_size=1, max_size=3).map(lambda found: {"NS": list(found)}),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: {"L": found})
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda found: {"M": found})
    ),
    max_leaves=6,
)


@given(TEXTS)
@example("(" * 2000)
@example("NOT " * 300)
@example("size(" * 700)
@example("a" + ".a" * 2000)
@example("SET a = " + "(" * 2000)
@example("SET a = " + "list_append(" * 300)
@example("a[" + "9" * 4000 + "]")
@example("\ud800 = :a")
def test_a_parser_says_what_is_wrong_and_never_fails(text: str) -> None:
    for parse in (parse_condition, parse_update, parse_projection):
        try:
            parse(text)
        except ExpressionError as fault:
            said = str(fault)
        except UnicodeEncodeError:  # no request in JSON brings such a text
            said = "a surrogate" if any("\ud800" <= char <= "\udfff" for char in text) else ""
        else:
            said = "right"
        assert said


@settings(max_examples=300)
@given(TEXTS, TEXTS, st.dictionaries(st.sampled_from("abcd"), VALUES), VALUES, VALUES)
def test_any_expressions_over_any_item(
    condition: str, update: str, item: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    """The item is as it was where an error is answered."""
    dynamodb = Ours()
    lease_table(dynamodb)
    dynamodb("PutItem", TableName="leases", Item={**item, **KEY})
    before = dynamodb("GetItem", TableName="leases", Key=KEY)["Item"]
    names = {place: name for place, name in (("#a", "a"), ("#b", "b"), ("#c", "c")) if place in condition + update}
    values = {place: one for place, one in ((":a", first), (":b", second)) if place in condition + update}
    members = {"ConditionExpression": condition, "UpdateExpression": update}
    if names:
        members["ExpressionAttributeNames"] = names  # type: ignore[assignment] # members are of several types
    if values:
        members["ExpressionAttributeValues"] = values  # type: ignore[assignment] # the same
    try:
        after = dynamodb("UpdateItem", TableName="leases", Key=KEY, ReturnValues="ALL_NEW", **members)["Attributes"]
    except RefusedError as fault:
        code, after = fault.code, before
    else:
        code = "ValidationException"
    assert code in ("ValidationException", "ConditionalCheckFailedException")
    assert dynamodb("GetItem", TableName="leases", Key=KEY)["Item"] == after


@given(st.dictionaries(st.sampled_from("abcd"), VALUES), VALUES)
def test_what_holds_for_a_value(item: dict[str, Any], value: dict[str, Any]) -> None:
    """Laws that hold for all values: a comparison, its opposite, and the absence of an attribute."""
    dynamodb = Ours()
    lease_table(dynamodb)
    dynamodb("PutItem", TableName="leases", Item={**item, **KEY})

    def holds(text: str) -> bool:
        used = {":v": value} if ":v" in text else None
        more = {} if used is None else {"ExpressionAttributeValues": used}
        return bool(dynamodb("Scan", TableName="leases", FilterExpression=text, **more)["Count"])

    assert holds("a = :v") != holds("a <> :v")
    assert holds("attribute_exists(a)") == ("a" in item) != holds("attribute_not_exists(a)")
    assert holds("a IN (:v)") == holds("a = :v")
    if next(iter(value)) in ("S", "N", "B"):
        in_order = [holds(f"a {sign} :v") for sign in ("<", "=", ">")]
        comparable = "a" in item and next(iter(item["a"])) == next(iter(value))
        assert sum(in_order) == comparable
        assert holds("a <= :v") == (in_order[0] or in_order[1])
        assert holds("a BETWEEN :v AND :v") == in_order[1]
    if "a" in item and item["a"] == value:
        assert holds("a = :v")


BODIES: list[tuple[str, bytes]] = [
    ("deep JSON", b'{"TableName": "leases", "Item": ' + b'{"L": [' * 50_000),
    ("a deep value", b'{"TableName": "leases", "Item": {"x": ' + b'{"L": [' * 40 + b"]}" * 40 + b"}}"),
    ("a huge number", b'{"TableName": "leases", "Item": {"leaseKey": {"N": "1e' + b"9" * 100_000 + b'"}}}'),
    ("many digits", b'{"TableName": "leases", "Item": {"leaseKey": {"N": "' + b"9" * 1_000_000 + b'"}}}'),
    ("half a surrogate", b'{"TableName": "leases", "Item": {"leaseKey": {"S": "\\ud800"}}}'),
    ("wrong UTF-8", b'{"TableName": "leases", "Item": {"leaseKey": {"S": "\xff"}}}'),
    ("no object", b"[]"),
    ("nothing", b""),
    ("a wrong type", b'{"TableName": 5}'),
    ("a text as a set", b'{"TableName": "leases", "Item": {"leaseKey": {"SS": "abc"}}}'),
    ("a list as a value", b'{"TableName": "leases", "Item": {"leaseKey": ["a"]}}'),
    ("no base64", b'{"TableName": "leases", "Item": {"leaseKey": {"B": "*"}}}'),
    ("null", b'{"TableName": "leases", "Item": {"leaseKey": null}}'),
    ("null in a value", b'{"TableName": "leases", "Item": {"leaseKey": {"S": null}}}'),
]


@pytest.mark.parametrize(("name", "body"), BODIES, ids=[name for name, _ in BODIES])
def test_a_hostile_body_is_refused_at_once(name: str, body: bytes) -> None:
    dynamodb = Ours()
    lease_table(dynamodb)
    began = time.process_time()
    with pytest.raises(RefusedError) as caught:
        dynamodb.raw("PutItem", body)
    assert caught.value.code in ("SerializationException", "ValidationException")
    assert len(caught.value.text) < 2_000, "the error does not give back what was sent"
    assert time.process_time() - began < 2


def test_ten_thousand_names_take_no_time() -> None:
    dynamodb = Ours()
    lease_table(dynamodb)
    names = {f"#{at}": f"n{at}" for at in range(10_000)}
    began = time.process_time()
    with pytest.raises(RefusedError, match="unused in expressions") as caught:
        dynamodb(
            "UpdateItem",
            TableName="leases",
            Key=KEY,
            UpdateExpression="REMOVE #1",
            ConditionExpression="attribute_exists(#2)",
            ExpressionAttributeNames=names,
        )
    assert len(caught.value.text) < 1_000
    item = {f"n{at}": {"N": str(at)} for at in range(10_000)}
    dynamodb("PutItem", TableName="leases", Item={**item, **KEY})
    paths = ", ".join(f"a.b{at % 7}.c{at}" for at in range(340))
    with pytest.raises(RefusedError, match="The document path provided"):
        dynamodb("UpdateItem", TableName="leases", Key=KEY, UpdateExpression=f"REMOVE {paths}")
    assert time.process_time() - began < 2


def test_an_error_of_the_model_is_an_answer() -> None:
    """What a client may send wrong is one kind of error, and its body is JSON."""
    dynamodb = Ours()
    with pytest.raises(DynamoError) as caught:
        dynamodb.model.handle("ExecuteStatement", b"{}")
    assert caught.value.code == "UnknownOperationException"
    assert "the local DynamoDB has no operation ExecuteStatement" in caught.value.message
