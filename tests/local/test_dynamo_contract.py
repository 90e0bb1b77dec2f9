"""One contract for the local DynamoDB and for Amazon's own one for tests: expressions, writes, reads, their errors.

Amazon's runs with the slow tests. Where its texts are not those of the service, the case names a part that both have.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.local.dynamo_kit import Ours, OverHttp, RefusedError, lease_table, ranged_table
from tests.stores import dynamodb_local_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def amazons() -> Iterator[str]:
    try:
        with dynamodb_local_server.running(tables_take_time=False) as url:
            yield url
    except dynamodb_local_server.UnavailableError as reason:
        pytest.skip(str(reason))


SLOW = [pytest.mark.slow, pytest.mark.xdist_group("stores")]


@pytest.fixture(scope="module", params=["ours", pytest.param("dynamodb-local", marks=SLOW)])
def dynamodb(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "ours":
        yield Ours()
        return
    wire = OverHttp(request.getfixturevalue("amazons"))
    yield wire
    wire.close()


@pytest.fixture(scope="module")
def leases(dynamodb: Any) -> str:
    name = f"leases-{uuid.uuid4().hex[:8]}"
    lease_table(dynamodb, name)
    return name


KEY = {"leaseKey": {"S": "a"}}
ITEM: dict[str, Any] = {
    **KEY,
    "n": {"N": "1"},
    "s": {"S": "xyz"},
    "ss": {"SS": ["b", "a"]},
    "ns": {"NS": ["3", "1"]},
    "b": {"B": "AAEC"},
    "l": {"L": [{"N": "1"}, {"N": "2"}, {"N": "3"}]},
    "m": {"M": {"a": {"N": "1"}, "b": {"M": {"c": {"S": "deep"}}}}},
    "t": {"BOOL": True},
    "z": {"NULL": True},
}


def number(text: object) -> dict[str, str]:
    return {"N": str(text)}


def names_and_values(names: dict[str, str] | None, values: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if names is not None:
        found["ExpressionAttributeNames"] = names
    if values is not None:
        found["ExpressionAttributeValues"] = values
    return found


def reset(dynamodb: Any, table: str) -> None:
    dynamodb("PutItem", TableName=table, Item=ITEM)


# --- conditions -----------------------------------------------------------------------------------

TEXT = {":v": {"S": "xyz"}}
ONE = {":v": number(1)}

HOLD = [
    ("n = :v", ONE),
    ("n = :v", {":v": number("1.0")}),
    ("n = :v", {":v": number("10e-1")}),
    ("n <> :v", {":v": number(2)}),
    ("nope <> :v", ONE),
    ("NOT nope = :v", ONE),
    ("n < :v", {":v": number(2)}),
    ("n < :v", {":v": number(10)}),
    ("s > :v", {":v": {"S": "xy"}}),
    ("b >= :v", {":v": {"B": "AAEC"}}),
    ("(n) = :v", ONE),
    ("n BETWEEN :a AND :b", {":a": number(0), ":b": number(1)}),
    ("n IN (:v, :w)", {**ONE, ":w": number(3)}),
    ("n = :v AND s = :s OR nope = :v", {**ONE, ":s": {"S": "xyz"}}),
    ("nope = :v AND s = :s OR n = :v", {**ONE, ":s": {"S": "xyz"}}),
    ("NOT (n = :v AND nope = :v)", ONE),
    ("not n = :v or n = :v", ONE),
    ("attribute_exists(n)", None),
    ("attribute_not_exists(nope)", None),
    ("attribute_exists(m.b.c) and attribute_not_exists(m.b.d)", None),
    ("attribute_exists(l[2]) AND attribute_not_exists(l[3])", None),
    ("attribute_type(n, :v)", {":v": {"S": "N"}}),
    ("begins_with(s, :v)", {":v": {"S": "xy"}}),
    ("contains(s, :v)", {":v": {"S": "yz"}}),
    ("contains(ss, :v)", {":v": {"S": "a"}}),
    ("contains(l, :v)", {":v": number(2)}),
    ("size(s) = :v", {":v": number(3)}),
    ("size(l) >= :v", {":v": number(3)}),
    ("size(b) = :v", {":v": number(3)}),
    ("size(m) = :v", {":v": number(2)}),
    ("ss = :v", {":v": {"SS": ["a", "b"]}}),
    ("ns = :v", {":v": {"NS": ["1.0", "3"]}}),
    ("t = :v", {":v": {"BOOL": True}}),
    ("m.b.c = :v", {":v": {"S": "deep"}}),
    ("l[1] = :v", {":v": number(2)}),
    (":v = n", ONE),
]
FAIL = [
    ("n = :v", TEXT),
    ("nope = :v", ONE),
    ("nope < :v", ONE),
    ("n > :v", ONE),
    ("n < :v", {":v": {"S": "z"}}),
    ("begins_with(n, :v)", TEXT),
    ("contains(ns, :v)", {":v": {"S": "1"}}),
    ("size(n) = :v", ONE),
    ("size(nope) = :v", ONE),
    ("attribute_type(nope, :v)", {":v": {"S": "N"}}),
    ("n.x = :v", ONE),
    ("l[7] = :v", ONE),
    ("NOT n = :v", ONE),
]


def condition(dynamodb: Any, table: str, text: str, values: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    more = {"ConditionExpression": text, **more, **names_and_values(None, values)}
    return dict(dynamodb("PutItem", TableName=table, Item=ITEM, **more))


@pytest.mark.parametrize(("text", "values"), HOLD)
def test_a_condition_that_holds(dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None) -> None:
    reset(dynamodb, leases)
    assert condition(dynamodb, leases, text, values) == {}


@pytest.mark.parametrize(("text", "values"), FAIL)
def test_a_condition_that_does_not_hold(dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None) -> None:
    reset(dynamodb, leases)
    with pytest.raises(RefusedError) as caught:
        condition(dynamodb, leases, text, values)
    assert (caught.value.code, caught.value.text) == (
        "ConditionalCheckFailedException",
        "The conditional request failed",
    )
    assert "Item" not in caught.value.body
    with pytest.raises(RefusedError) as caught:
        condition(dynamodb, leases, text, values, ReturnValuesOnConditionCheckFailure="ALL_OLD")
    assert caught.value.body["Item"] == {**ITEM, "ss": {"SS": ["a", "b"]}, "ns": caught.value.body["Item"]["ns"]}


WRONG: list[tuple[str, dict[str, Any] | None, str]] = [
    ("", ONE, "Invalid ConditionExpression: The expression can not be empty;"),
    ("   ", ONE, 'Syntax error; token: "<EOF>", near: "   "'),
    ("n = :v AND", ONE, 'Syntax error; token: "<EOF>", near: "AND"'),
    ("n == :v", ONE, 'Syntax error; token: "=", near: "== :v"'),
    ("a$ = :v", ONE, 'Syntax error; token: "$", near: "a$ ="'),
    ("n IN ()", None, 'Syntax error; token: ")", near: "()"'),
    ("((n = :v))", ONE, "The expression has redundant parentheses;"),
    ("n = :w", ONE, "used in expression is not defined; attribute value: :w"),
    ("n = :v", {**ONE, ":w": number(1)}, "ExpressionAttributeValues unused in expressions: keys: {:w}"),
    ("#a = :v", ONE, "used in the document path is not defined; attribute name: #a"),
    ("name = :v", ONE, "Attribute name is a reserved keyword; reserved keyword: name"),
    ("foo(n)", None, "Invalid function name; function: foo"),
    ("attribute_exists(n, s)", None, "operator or function: attribute_exists, number of operands: 2"),
    ("attribute_exists(:v)", ONE, "requires a document path; operator or function: attribute_exists"),
    ("begins_with(s, :v)", ONE, "operator or function: begins_with, operand type: N"),
    ("attribute_type(n, :v)", TEXT, "Invalid attribute type name found; type: xyz"),
    ("n < :v", {":v": {"BOOL": True}}, "operator or function: <, operand type: BOOL"),
    ("n BETWEEN :a AND :b", {":a": number(5), ":b": number(0)}, "upper bound to be greater than or equal to lower"),
    ("n BETWEEN :a AND :b", {":a": {"S": "5"}, ":b": number(0)}, "same data type for lower and upper bounds"),
    ("n = n", None, "operator: =, first operand: [n]"),
    ("l[9999999999999] = :v", ONE, "List index is not within the allowable range; index: [9999999999999]"),
    (" AND ".join(["n = :v"] * 302), ONE, "The expression contains too many operators; operator count: 301"),
    (" AND ".join(["n = :v"] * 401), ONE, "maximum allowed size; expression size: 4406"),
    (f"n IN ({','.join([':v'] * 101)})", ONE, "too many operands; number of operands: 101"),
    ("n = :v", {":v": {}}, "Supplied AttributeValue is empty"),
    ("n = :v", {"v": number(1)}, 'ExpressionAttributeValues contains invalid key: Syntax error; key: "v"'),
    ("n = n", {}, "ExpressionAttributeValues must not be empty"),
]


@pytest.mark.parametrize(("text", "values", "says"), WRONG)
def test_a_condition_that_is_wrong(
    dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None, says: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(says)) as caught:
        condition(dynamodb, leases, text, values)
    assert caught.value.code == "ValidationException"


def test_names_and_values_need_an_expression(dynamodb: Any, leases: str) -> None:
    for more, says in (
        ({"ExpressionAttributeNames": {"#a": "n"}}, "Names can only be specified when using expressions"),
        ({"ExpressionAttributeValues": ONE}, "Values can only be specified when using expressions"),
        (
            {"ConditionExpression": "n = :v", "ExpressionAttributeValues": ONE, "Expected": {"n": {"Exists": False}}},
            "Non-expression parameters: {Expected} Expression parameters: {ConditionExpression}",
        ),
        (
            {"ConditionExpression": "#a = :v", "ExpressionAttributeValues": ONE}
            | {"ExpressionAttributeNames": {"#a": "n", "#b": "n"}},
            "Value provided in ExpressionAttributeNames unused in expressions: keys: {#b}",
        ),
    ):
        with pytest.raises(RefusedError, match=re.escape(says)):
            dynamodb("PutItem", TableName=leases, Item=ITEM, **more)


# --- updates --------------------------------------------------------------------------------------

NINE = {":v": number(9)}
UPDATES: list[tuple[str, dict[str, Any] | None, dict[str, Any]]] = [
    ("SET n = n + :v", NINE, {"n": number(10)}),
    ("set n = :v - n", NINE, {"n": number(8)}),
    ("SET n = (n + :v)", NINE, {"n": number(10)}),
    ("SET nope = if_not_exists(nope, :v)", NINE, {"nope": number(9)}),
    ("SET n = if_not_exists(n, :v) + :v", NINE, {"n": number(10)}),
    ("SET l = list_append(l, :v)", {":v": {"L": [number(9)]}}, {"l": {"L": [*ITEM["l"]["L"], number(9)]}}),
    ("SET l[0] = :v, l[7] = :w, l[6] = :v", {**NINE, ":w": number(7)},
     {"l": {"L": [number(9), number(2), number(3), number(9), number(7)]}}),
    ("SET m.d = :v", NINE, {"m": {"M": {**ITEM["m"]["M"], "d": number(9)}}}),
    ("SET m.b.c = :v", NINE, {"m": {"M": {"a": number(1), "b": {"M": {"c": number(9)}}}}}),
    ("SET l[0] = :v REMOVE l[1]", NINE, {"l": {"L": [number(9), number(3)]}}),
    ("REMOVE l[0], l[1]", None, {"l": {"L": [number(3)]}}),
    ("SET n = :v, s = n", NINE, {"n": number(9), "s": number(1)}),
    ("ADD n :v", NINE, {"n": number(10)}),
    ("ADD nope :v", NINE, {"nope": number(9)}),
    ("ADD ss :v", {":v": {"SS": ["c", "a"]}}, {"ss": {"SS": ["a", "b", "c"]}}),
    ("DELETE ss :v", {":v": {"SS": ["a", "q"]}}, {"ss": {"SS": ["b"]}}),
]  # fmt: skip


def update(dynamodb: Any, table: str, text: str, values: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    more = {"UpdateExpression": text, "ReturnValues": "UPDATED_NEW", **more, **names_and_values(None, values)}
    return dict(dynamodb("UpdateItem", TableName=table, Key=KEY, **more))


@pytest.mark.parametrize(("text", "values", "after"), UPDATES)
def test_an_update(dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None, after: dict[str, Any]) -> None:
    reset(dynamodb, leases)
    assert update(dynamodb, leases, text, values)["Attributes"] == after
    found = dynamodb("GetItem", TableName=leases, Key=KEY, ConsistentRead=True)["Item"]
    assert {name: found[name] for name in after} == after
    assert found["b"] == ITEM["b"], "what an update does not name stays"


@pytest.mark.parametrize(
    ("text", "values", "gone"),
    [
        ("REMOVE l", None, "l"),
        ("REMOVE n", None, "n"),
        ("DELETE ss :v", {":v": {"SS": ["a", "b"]}}, "ss"),
        ("REMOVE nope, n", None, "n"),
    ],
)
def test_an_update_that_takes_away(
    dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None, gone: str
) -> None:
    reset(dynamodb, leases)
    assert update(dynamodb, leases, text, values) == {}
    assert gone not in dynamodb("GetItem", TableName=leases, Key=KEY)["Item"]


WRONG_UPDATES: list[tuple[str, dict[str, Any] | None, str]] = [
    ("SET n = s + :v", ONE, "An operand in the update expression has an incorrect data type"),
    ("SET n = n + :v", TEXT, "operator or function: +, operand type: S"),
    ("SET n = nope + :v", ONE, "refers to an attribute that does not exist in the item"),
    ("SET x = nope", None, "refers to an attribute that does not exist in the item"),
    ("SET m.d.e = :v", ONE, "The document path provided in the update expression is invalid for update"),
    ("SET s.d = :v", ONE, "The document path provided in the update expression is invalid for update"),
    ("REMOVE nope.d", None, "The document path provided in the update expression is invalid for update"),
    ("SET leaseKey = :v", ONE, "Cannot update attribute leaseKey. This attribute is part of the key"),
    ("REMOVE leaseKey", None, "Cannot update attribute leaseKey. This attribute is part of the key"),
    ("SET n = :v, n = :v", ONE, "overlap with each other; must remove or rewrite one of these paths; path one: [n]"),
    ("SET m.a = :v, m = :v", ONE, "path one: [m, a], path two: [m]"),
    ("SET m = :v, m.a = :v", ONE, "path one: [m], path two: [m, a]"),
    ("SET m.a = :v, m[0] = :v", ONE, "conflict with each other; must remove or rewrite one of these paths"),
    ("SET n = :v SET s = :v", ONE, 'The "SET" section can only be used once in an update expression;'),
    ("ADD s :v", ONE, "An operand in the update expression has an incorrect data type"),
    ("ADD n :v", TEXT, "operator: ADD, operand type: STRING, typeSet: ALLOWED_FOR_ADD_OPERAND"),
    ("DELETE ss :v", TEXT, "operator: DELETE, operand type: STRING, typeSet: ALLOWED_FOR_DELETE_OPERAND"),
    ("DELETE ss :v", {":v": {"NS": ["1"]}}, "An operand in the update expression has an incorrect data type"),
    ("SET l = list_append(l, :v)", ONE, "operator or function: list_append, operand type: N"),
    ("SET n = n + :v + :v", ONE, 'Syntax error; token: "+", near: ":v + :v"'),
    ("SET n = (n + :v) + :v", ONE, 'Syntax error; token: "+", near: ") + :v"'),
    ("SET n = size(l)", None, "The function is not allowed in an update expression; function: size"),
    ("SET n = ", None, 'Syntax error; token: "<EOF>", near: "= "'),
    ("BOO n", None, 'Syntax error; token: "BOO", near: "BOO n"'),
    ("", None, "The expression can not be empty;"),
    ("SET n = :v", {":v": {"S": "x" * 410_000}}, "Item size to update has exceeded the maximum allowed size"),
    ("SET n = n + :v", {":v": number("1e-40")}, "38"),
    ("SET leaseOwner = :v", {":v": {"S": ""}}, "attempted to update a secondary index key to a value that is not"),
]


@pytest.mark.parametrize(("text", "values", "says"), WRONG_UPDATES)
def test_an_update_that_is_wrong(
    dynamodb: Any, leases: str, text: str, values: dict[str, Any] | None, says: str
) -> None:
    reset(dynamodb, leases)
    before = dynamodb("GetItem", TableName=leases, Key=KEY)
    with pytest.raises(RefusedError, match=re.escape(says)) as caught:
        update(dynamodb, leases, text, values)
    assert caught.value.code == "ValidationException"
    assert dynamodb("GetItem", TableName=leases, Key=KEY) == before


@pytest.mark.parametrize("text", ["REMOVE l[9]", "REMOVE m.b", "DELETE nope :v"])
def test_an_update_shows_no_place_that_is_not_there(dynamodb: Any, leases: str, text: str) -> None:
    reset(dynamodb, leases)
    assert update(dynamodb, leases, text, {":v": {"SS": ["a"]}} if ":v" in text else None) == {}


def test_an_update_makes_the_item(dynamodb: Any, leases: str) -> None:
    for key, more, after in (
        ("new1", {}, {}),
        ("new2", {"UpdateExpression": "REMOVE nope"}, {}),
        ("new3", {"UpdateExpression": "SET n = :v", "ExpressionAttributeValues": ONE}, {"n": number(1)}),
    ):
        item = {"leaseKey": {"S": key}}
        found = dynamodb("UpdateItem", TableName=leases, Key=item, ReturnValues="ALL_NEW", **more)
        assert found["Attributes"] == item | after


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ("ALL_NEW", {**ITEM, "n": number(9), "ss": {"SS": ["a", "b"]}}),
        ("ALL_OLD", {**ITEM, "ss": {"SS": ["a", "b"]}}),
        ("UPDATED_NEW", {"n": number(9)}),
        ("UPDATED_OLD", {"n": number(1)}),
        ("NONE", None),
    ],
)
def test_what_an_update_shows(dynamodb: Any, leases: str, wanted: str, shown: dict[str, Any] | None) -> None:
    reset(dynamodb, leases)
    found = update(dynamodb, leases, "SET n = :v", NINE, ReturnValues=wanted).get("Attributes")
    if found is not None and "ns" in found:
        found["ns"] = {"NS": sorted(found["ns"]["NS"], reverse=True)}
    assert found == shown


# --- what was there before expressions ------------------------------------------------------------


def test_a_lease_as_the_kcl_writes_it(dynamodb: Any, leases: str) -> None:
    """The KCL 1.x to 3.x use the parameters that are older than expressions."""
    key = {"leaseKey": {"S": "shardId-000000000000"}}
    lease = {**key, "leaseCounter": number(0), "checkpoint": {"S": "TRIM_HORIZON"}}
    absent = {"leaseKey": {"Exists": False}}
    dynamodb("PutItem", TableName=leases, Item=lease, Expected=absent)
    with pytest.raises(RefusedError, match="The conditional request failed"):
        dynamodb("PutItem", TableName=leases, Item=lease, Expected=absent)

    def change(updates: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
        members = {"AttributeUpdates": updates, "Expected": expected, "ReturnValues": "ALL_NEW"}
        return dict(dynamodb("UpdateItem", TableName=leases, Key=key, **members)["Attributes"])

    counted = {"leaseCounter": {"Value": number(0)}}
    taken = change(
        {"leaseOwner": {"Action": "PUT", "Value": {"S": "w1"}}, "leaseCounter": {"Value": number(1)}}, counted
    )
    assert taken == {**lease, "leaseOwner": {"S": "w1"}, "leaseCounter": number(1)}
    with pytest.raises(RefusedError, match="The conditional request failed"):
        change({"leaseCounter": {"Value": number(1)}}, counted)
    evicted = change(
        {"leaseOwner": {"Action": "DELETE"}, "leaseCounter": {"Action": "ADD", "Value": number(1)}},
        {"leaseOwner": {"Value": {"S": "w1"}}, "checkpointOwner": {"Exists": False}},
    )
    assert evicted == {**lease, "leaseCounter": number(2)}
    asked = {"leaseCounter": {"ComparisonOperator": "EQ", "AttributeValueList": [number(9)]}}
    with pytest.raises(RefusedError) as caught:
        dynamodb(
            "UpdateItem",
            TableName=leases,
            Key=key,
            AttributeUpdates={},
            Expected=asked,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.body["Item"] == evicted
    filters = {"checkpoint": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "TRIM_HORIZON"}]}}
    assert dynamodb("Scan", TableName=leases, ScanFilter=filters)["Items"] == [evicted]
    dynamodb("DeleteItem", TableName=leases, Key=key)


@pytest.mark.parametrize(
    ("expected", "holds"),
    [
        ({"nope": {"ComparisonOperator": "NE", "AttributeValueList": [number(1)]}}, True),
        ({"nope": {"ComparisonOperator": "NOT_CONTAINS", "AttributeValueList": [number(1)]}}, False),
        ({"nope": {"ComparisonOperator": "NULL"}, "n": {"ComparisonOperator": "NOT_NULL"}}, True),
        ({"s": {"ComparisonOperator": "BEGINS_WITH", "AttributeValueList": [{"S": "xy"}]}}, True),
        ({"s": {"ComparisonOperator": "IN", "AttributeValueList": [{"S": "a"}, {"S": "xyz"}]}}, True),
        ({"n": {"ComparisonOperator": "BETWEEN", "AttributeValueList": [number(0), number(2)]}}, True),
        ({"n": {"ComparisonOperator": "GT", "AttributeValueList": [number(1)]}}, False),
        ({"ss": {"ComparisonOperator": "CONTAINS", "AttributeValueList": [{"S": "a"}]}}, True),
    ],
)
def test_an_older_condition(dynamodb: Any, leases: str, expected: dict[str, Any], holds: bool) -> None:
    reset(dynamodb, leases)
    if holds:
        assert dynamodb("PutItem", TableName=leases, Item=ITEM, Expected=expected) == {}
        return
    with pytest.raises(RefusedError, match="The conditional request failed"):
        dynamodb("PutItem", TableName=leases, Item=ITEM, Expected=expected)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"Expected": {"n": {"Exists": False, "Value": number(1)}}}, "Value cannot be used when Exists is false"),
        ({"Expected": {"n": {"Exists": True}}}, "Value must be provided when Exists is true"),
        (
            {"Expected": {"n": {"ComparisonOperator": "EQ", "AttributeValueList": []}}},
            "Invalid number of argument(s) for the EQ ComparisonOperator",
        ),
        ({"AttributeUpdates": {"n": {"Action": "PUT"}}}, "Only DELETE action is allowed when no attribute value"),
        ({"AttributeUpdates": {"leaseKey": {"Value": {"S": "b"}}}}, "Cannot update attribute leaseKey"),
    ],
)
def test_an_older_parameter_that_is_wrong(dynamodb: Any, leases: str, members: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(says)):
        dynamodb("UpdateItem", TableName=leases, Key=KEY, **{"AttributeUpdates": {}, **members})


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("1.50", "1.5"),
        ("-0", "0"),
        ("007", "7"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("9.9999999999999999999999999999999999999E+125", "99999999999999999999999999999999999999" + "0" * 88),
        ("-1e-130", "-0." + "0" * 129 + "1"),
    ],
)
def test_a_number_is_kept_exactly(dynamodb: Any, leases: str, value: str, stored: str) -> None:
    dynamodb("PutItem", TableName=leases, Item={**KEY, "x": number(value)})
    assert dynamodb("GetItem", TableName=leases, Key=KEY)["Item"]["x"] == number(stored)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"),
        ({"S": "a", "N": "1"}, "Supplied AttributeValue has more than one datatypes set"),
        ({"SS": []}, "An string set  may not be empty"),
        ({"SS": ["a", "a"]}, "Input collection [a, a] contains duplicates"),
        ({"NS": ["1", "1.0"]}, "contains duplicates"),
        ({"NULL": False}, "Null attribute value types must have the value of true"),
        (number("1e126"), "Number overflow. Attempting to store a number with magnitude larger than supported range"),
        (number("1e-131"), "Number underflow. Attempting to store a number with magnitude smaller than supported"),
        (number("1" * 39), "38"),
        (number("abc"), "cannot be converted"),
        (number(""), "cannot be converted"),
        ({"S": "x" * 410_000}, "Item size has exceeded the maximum allowed size"),
    ],
)
def test_a_value_that_is_refused(dynamodb: Any, leases: str, value: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(says)) as caught:
        dynamodb("PutItem", TableName=leases, Item={**KEY, "x": value})
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize("item", [{"n": number(1)}, {"leaseKey": number(1)}, {"leaseKey": {"S": ""}}])
def test_a_key_that_is_refused(dynamodb: Any, leases: str, item: dict[str, Any]) -> None:
    for operation, members in (("PutItem", {"Item": item}), ("DeleteItem", {"Key": item}), ("GetItem", {"Key": item})):
        with pytest.raises(RefusedError) as caught:
            dynamodb(operation, TableName=leases, **members)
        assert caught.value.code == "ValidationException"


def test_a_table_that_is_not_there(dynamodb: Any) -> None:
    for operation, members in (
        ("PutItem", {"Item": KEY}),
        ("GetItem", {"Key": KEY}),
        ("Scan", {}),
        ("DescribeTable", {}),
        ("DeleteTable", {}),
    ):
        with pytest.raises(RefusedError) as caught:
            dynamodb(operation, TableName="nowhere", **members)
        assert caught.value.code == "ResourceNotFoundException"


# --- reads ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranged(dynamodb: Any) -> str:
    name = f"ranged-{uuid.uuid4().hex[:8]}"
    ranged_table(dynamodb, name)
    for at in range(10):
        dynamodb("PutItem", TableName=name, Item={"h": {"S": "a"}, "r": number(at), "v": number(at % 3)})
    dynamodb("PutItem", TableName=name, Item={"h": {"S": "b"}, "r": number(-5)})
    return name


def query(dynamodb: Any, table: str, text: str, values: dict[str, Any], **more: Any) -> list[int]:
    values = {":h": {"S": "a"}, **values}
    found: list[int] = []
    members = {"KeyConditionExpression": f"h = :h{text}", "ExpressionAttributeValues": values, **more}
    while True:
        answer = dynamodb("Query", TableName=table, **members)
        found += [int(item["r"]["N"]) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return found
        members["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("", {}, list(range(10))),
        (" AND r = :r", {":r": number("3.0")}, [3]),
        (" AND r < :r", {":r": number(3)}, [0, 1, 2]),
        (" AND r <= :r", {":r": number(3)}, [0, 1, 2, 3]),
        (" AND r > :r", {":r": number(7)}, [8, 9]),
        (" AND r >= :r", {":r": number(7)}, [7, 8, 9]),
        (" AND (r BETWEEN :r AND :q)", {":r": number("2.5"), ":q": number(5)}, [3, 4, 5]),
        (" AND r > :r", {":r": number(100)}, []),
    ],
)
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_a_query(
    dynamodb: Any, ranged: str, text: str, values: dict[str, Any], found: list[int], limit: int | None
) -> None:
    more = {} if limit is None else {"Limit": limit}
    assert query(dynamodb, ranged, text, values, **more) == found
    assert query(dynamodb, ranged, text, values, ScanIndexForward=False, **more) == found[::-1]


def test_a_query_filters_and_projects(dynamodb: Any, ranged: str) -> None:
    members = {
        "KeyConditionExpression": "#h = :h",
        "FilterExpression": "v = :v",
        "ProjectionExpression": "#r",
        "ExpressionAttributeNames": {"#h": "h", "#r": "r"},
        "ExpressionAttributeValues": {":h": {"S": "a"}, ":v": number(2)},
    }
    found = dynamodb("Query", TableName=ranged, **members)
    assert found["Items"] == [{"r": number(2)}, {"r": number(5)}, {"r": number(8)}]
    assert (found["Count"], found["ScannedCount"]) == (3, 10)
    found = dynamodb("Query", TableName=ranged, **{**members, "Limit": 2})
    assert (found["Items"], found["LastEvaluatedKey"]) == ([], {"h": {"S": "a"}, "r": number(1)})
    members.pop("ProjectionExpression")
    members["ExpressionAttributeNames"] = {"#h": "h"}
    found = dynamodb("Query", TableName=ranged, Select="COUNT", **members)
    assert (found["Count"], "Items" in found) == (3, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("v = :h", "Query condition missed key schema element"),
        ("h > :h", "Query key condition not supported"),
        ("h = :h OR h = :h", "Invalid operator used in KeyConditionExpression: OR"),
        ("h = :h AND h = :h", "KeyConditionExpressions must only contain one condition per key"),
        ("NOT h = :h", "Invalid operator used in KeyConditionExpression: NOT"),
        ("h = :h AND r = :h", "Condition parameter type does not match schema type"),
    ],
)
def test_a_key_condition_that_is_wrong(dynamodb: Any, ranged: str, text: str, says: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(says)):
        dynamodb("Query", TableName=ranged, KeyConditionExpression=text, ExpressionAttributeValues={":h": {"S": "a"}})


def test_the_index_of_owners(dynamodb: Any) -> None:
    table = f"owners-{uuid.uuid4().hex[:8]}"
    lease_table(dynamodb, table)
    for at in range(7):
        owner = {} if at == 6 else {"leaseOwner": {"S": f"w{at % 2}"}}
        dynamodb("PutItem", TableName=table, Item={"leaseKey": {"S": f"k{at}"}, "n": number(at), **owner})

    def owned(worker: str) -> list[Any]:
        members = {
            "IndexName": "LeaseOwnerToLeaseKeyIndex",
            "KeyConditionExpression": "leaseOwner = :o",
            "ExpressionAttributeValues": {":o": {"S": worker}},
            "Limit": 2,
        }
        found = []
        while True:
            answer = dynamodb("Query", TableName=table, **members)
            found += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return found
            assert answer["LastEvaluatedKey"].keys() == {"leaseKey", "leaseOwner"}
            members["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    assert owned("w0") == [{"leaseKey": {"S": f"k{at}"}, "leaseOwner": {"S": "w0"}} for at in (0, 2, 4)]
    dynamodb(
        "UpdateItem",
        TableName=table,
        Key={"leaseKey": {"S": "k0"}},
        UpdateExpression="SET leaseOwner = :o",
        ExpressionAttributeValues={":o": {"S": "w1"}},
    )
    dynamodb("UpdateItem", TableName=table, Key={"leaseKey": {"S": "k2"}}, UpdateExpression="REMOVE leaseOwner")
    dynamodb("DeleteItem", TableName=table, Key={"leaseKey": {"S": "k1"}})
    assert [one["leaseKey"]["S"] for one in owned("w0")] == ["k4"]
    assert [one["leaseKey"]["S"] for one in owned("w1")] == ["k0", "k3", "k5"]
    assert len(dynamodb("Scan", TableName=table, IndexName="LeaseOwnerToLeaseKeyIndex")["Items"]) == 4
    for more, says in (
        ({"ConsistentRead": True}, "Consistent read"),
        ({"IndexName": "nope"}, "The table does not have the specified index: nope"),
    ):
        with pytest.raises(RefusedError, match=re.escape(says)):
            dynamodb("Scan", TableName=table, **{"IndexName": "LeaseOwnerToLeaseKeyIndex", **more})


def test_the_segments_of_a_scan_are_the_table(dynamodb: Any) -> None:
    table = f"segments-{uuid.uuid4().hex[:8]}"
    lease_table(dynamodb, table)
    keys = {f"key-{at}" for at in range(50)}
    for key in keys:
        dynamodb("PutItem", TableName=table, Item={"leaseKey": {"S": key}})
    found: list[str] = []
    for segment in range(7):
        members: dict[str, Any] = {"Segment": segment, "TotalSegments": 7, "Limit": 3}
        while True:
            answer = dynamodb("Scan", TableName=table, **members)
            found += [item["leaseKey"]["S"] for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            members["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    assert sorted(found) == sorted(keys)


def test_pages_of_a_mebibyte(dynamodb: Any) -> None:
    table = f"pages-{uuid.uuid4().hex[:8]}"
    lease_table(dynamodb, table)
    for at in range(12):
        dynamodb("PutItem", TableName=table, Item={"leaseKey": {"S": f"k{at}"}, "x": {"S": "x" * 300_000}})
    counts: list[int] = []
    members: dict[str, Any] = {}
    while True:
        answer = dynamodb("Scan", TableName=table, ConsistentRead=True, **members)
        counts.append(answer["Count"])
        if "LastEvaluatedKey" not in answer:
            break
        members = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    assert sum(counts) == 12
    assert max(counts) <= 4
    assert len(counts) in (3, 4)


def test_a_projection(dynamodb: Any, leases: str) -> None:
    reset(dynamodb, leases)

    def projected(text: str) -> dict[str, Any]:
        return dict(dynamodb("GetItem", TableName=leases, Key=KEY, ProjectionExpression=text)["Item"])

    assert projected("m.b.c, l[2], l[0], nope, s.x") == {
        "m": {"M": {"b": {"M": {"c": {"S": "deep"}}}}},
        "l": {"L": [number(1), number(3)]},
    }
    assert projected("nope") == {}
    assert dynamodb("GetItem", TableName=leases, Key=KEY, AttributesToGet=["n"])["Item"] == {"n": number(1)}
    with pytest.raises(RefusedError, match="overlap with each other"):
        projected("m.a, m")


# --- several items --------------------------------------------------------------------------------


def put(table: str, key: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": table, "Item": {"leaseKey": {"S": key}}, **more}}


def test_a_transaction_is_done_as_a_whole_or_not_at_all(dynamodb: Any, leases: str) -> None:
    reset(dynamodb, leases)
    fresh = {"ConditionExpression": "attribute_not_exists(leaseKey)"}
    with pytest.raises(RefusedError, match=re.escape("specific reasons [None, ConditionalCheckFailed]")) as caught:
        dynamodb("TransactWriteItems", TransactItems=[put(leases, "t1"), put(leases, "a", **fresh)])
    assert caught.value.code == "TransactionCanceledException"
    assert caught.value.body["CancellationReasons"] == [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"},
    ]
    assert "Item" not in dynamodb("GetItem", TableName=leases, Key={"leaseKey": {"S": "t1"}})
    check = {"TableName": leases, "Key": KEY, "ConditionExpression": "n = :v", "ExpressionAttributeValues": ONE}
    second = {"TableName": leases, "Key": {"leaseKey": {"S": "t2"}}}
    change = second | {"UpdateExpression": "SET n = :v", "ExpressionAttributeValues": ONE}
    dynamodb("TransactWriteItems", TransactItems=[put(leases, "t1"), {"ConditionCheck": check}, {"Update": change}])
    gets = [{"Get": {"TableName": leases, "Key": {"leaseKey": {"S": key}}}} for key in ("t1", "t2", "t3")]
    assert dynamodb("TransactGetItems", TransactItems=gets)["Responses"] == [
        {"Item": {"leaseKey": {"S": "t1"}}},
        {"Item": {"leaseKey": {"S": "t2"}, "n": number(1)}},
        {},
    ]
    dynamodb("TransactWriteItems", TransactItems=[{"Delete": second}])
    assert "Item" not in dynamodb("GetItem", **second)


def test_a_transaction_with_a_token_is_done_once(dynamodb: Any, leases: str) -> None:
    token, key = uuid.uuid4().hex[:20], {"leaseKey": {"S": "once"}}
    change = {"TableName": leases, "Key": key, "UpdateExpression": "ADD n :v", "ExpressionAttributeValues": ONE}
    for _ in range(3):
        dynamodb("TransactWriteItems", TransactItems=[{"Update": change}], ClientRequestToken=token)
    assert dynamodb("GetItem", TableName=leases, Key=key)["Item"]["n"] == number(1)
    with pytest.raises(RefusedError) as caught:
        dynamodb("TransactWriteItems", TransactItems=[put(leases, "once")], ClientRequestToken=token)
    assert caught.value.code == "IdempotentParameterMismatchException"


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([put("leases", "t1"), put("leases", "t1")], "cannot include multiple operations on one item"),
        ([{}], "TransactWriteRequest should contain Delete or Put or Update request"),
        ([put("leases", "a") | {"Delete": {"TableName": "leases", "Key": KEY}}], "can only contain one of Check, Put"),
        ([], "Member must have length greater than or equal to 1"),
        ([put("leases", str(at)) for at in range(101)], "Member must have length less than or equal to 100"),
    ],
)
def test_a_transaction_that_is_wrong(dynamodb: Any, leases: str, items: list[Any], says: str) -> None:
    named = [{kind: {**one, "TableName": leases} for kind, one in item.items()} for item in items]
    with pytest.raises(RefusedError, match=re.escape(says)):
        dynamodb("TransactWriteItems", TransactItems=named)


def test_batches(dynamodb: Any, leases: str) -> None:
    writes = [{"PutRequest": {"Item": {"leaseKey": {"S": f"b{at}"}}}} for at in range(25)]
    assert dynamodb("BatchWriteItem", RequestItems={leases: writes})["UnprocessedItems"] == {}
    keys = [{"leaseKey": {"S": f"b{at}"}} for at in (0, 24, 99)]
    found = dynamodb("BatchGetItem", RequestItems={leases: {"Keys": keys}})
    assert sorted(item["leaseKey"]["S"] for item in found["Responses"][leases]) == ["b0", "b24"]
    assert found["UnprocessedKeys"] == {}
    deletes = [{"DeleteRequest": {"Key": one["PutRequest"]["Item"]}} for one in writes]
    dynamodb("BatchWriteItem", RequestItems={leases: deletes})
    assert dynamodb("BatchGetItem", RequestItems={leases: {"Keys": keys}})["Responses"] == {leases: []}
    for requests, says in (
        ({leases: [writes[0], deletes[0]]}, "Provided list of item keys contains duplicates"),
        ({leases: [*writes, writes[0]]}, "Too many items requested for the BatchWriteItem call"),
    ):
        with pytest.raises(RefusedError, match=says):
            dynamodb("BatchWriteItem", RequestItems=requests)
    with pytest.raises(RefusedError, match="Provided list of item keys contains duplicates"):
        dynamodb("BatchGetItem", RequestItems={leases: {"Keys": [keys[0], keys[0]]}})


# --- costs ----------------------------------------------------------------------------------------


def test_what_calls_cost(dynamodb: Any) -> None:
    table = f"costs-{uuid.uuid4().hex[:8]}"
    lease_table(dynamodb, table)

    def cost(operation: str, **members: Any) -> float:
        answer = dynamodb(operation, TableName=table, ReturnConsumedCapacity="TOTAL", **members)
        return float(answer["ConsumedCapacity"]["CapacityUnits"])

    assert cost("PutItem", Item=KEY) == 1.0
    assert cost("PutItem", Item={**KEY, "x": {"S": "x" * 2000}}) == 2.0
    assert cost("GetItem", Key=KEY) == 0.5
    assert cost("GetItem", Key=KEY, ConsistentRead=True) == 1.0
    assert cost("PutItem", Item={**KEY, "x": {"S": "x" * 9000}}) == 9.0
    assert cost("GetItem", Key=KEY) == 1.5
    assert cost("GetItem", Key=KEY, ConsistentRead=True) == 3.0
    assert cost("Scan") == 1.5
    assert cost("DeleteItem", Key=KEY) == 9.0
    assert cost("DeleteItem", Key=KEY) == 1.0
