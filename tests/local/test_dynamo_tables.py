"""Tables of the local DynamoDB: how they are made, changed, shown and deleted, in the service's time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from shardway.local.dynamodb.errors import DynamoError
from shardway.local.dynamodb.keys import KeySchema
from shardway.local.dynamodb.service import OPERATIONS
from shardway.local.dynamodb.table import Index, Table
from tests.local.dynamo_kit import START_S, Ours, RefusedError, lease_table, ranged_table

INDEX = "LeaseOwnerToLeaseKeyIndex"
OWNERS = {
    "IndexName": INDEX,
    "KeySchema": [
        {"AttributeName": "leaseOwner", "KeyType": "HASH"},
        {"AttributeName": "leaseKey", "KeyType": "RANGE"},
    ],
    "Projection": {"ProjectionType": "KEYS_ONLY"},
}
BARE: dict[str, Any] = {
    "GlobalSecondaryIndexes": None,
    "AttributeDefinitions": [{"AttributeName": "leaseKey", "AttributeType": "S"}],
}


@pytest.fixture
def dynamodb() -> Ours:
    return Ours()


def described(dynamodb: Ours, name: str = "leases") -> dict[str, Any]:
    return dict(dynamodb("DescribeTable", TableName=name)["Table"])


def test_a_table_is_shown_as_it_was_made(dynamodb: Ours) -> None:
    lease_table(dynamodb, DeletionProtectionEnabled=True, Tags=[{"Key": "team", "Value": "billing"}])
    dynamodb("PutItem", TableName="leases", Item={"leaseKey": {"S": "a"}, "leaseOwner": {"S": "w1"}})
    found = described(dynamodb)
    assert found["TableStatus"] == "ACTIVE"
    assert found["CreationDateTime"] == START_S
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert (found["ItemCount"], found["TableSizeBytes"]) == (1, 21)
    assert found["DeletionProtectionEnabled"] is True
    assert found["TableArn"] == "arn:aws:dynamodb:us-east-1:000000000000:table/leases"
    (index,) = found["GlobalSecondaryIndexes"]
    assert {part: index[part] for part in OWNERS} == OWNERS
    assert (index["IndexStatus"], index["ItemCount"]) == ("ACTIVE", 1)
    tags = dynamodb("ListTagsOfResource", ResourceArn=found["TableArn"])["Tags"]
    assert tags == [{"Key": "team", "Value": "billing"}]
    assert described(dynamodb, found["TableArn"])["TableName"] == "leases", "its ARN names it, too"


def test_a_table_takes_the_services_time() -> None:
    dynamodb = Ours(settle_s=10.0)
    lease_table(dynamodb, **BARE)
    assert described(dynamodb)["TableStatus"] == "CREATING"
    with pytest.raises(RefusedError) as caught:
        dynamodb("Scan", TableName="leases")
    assert caught.value.code == "ResourceNotFoundException"
    for operation in ("DeleteTable", "UpdateTable"):
        more = {"BillingMode": "PAY_PER_REQUEST"} if operation == "UpdateTable" else {}
        with pytest.raises(RefusedError, match="still in use: Table is being created: leases"):
            dynamodb(operation, TableName="leases", **more)
    dynamodb.now_s += 10
    assert described(dynamodb)["TableStatus"] == "ACTIVE"
    add = {
        "AttributeDefinitions": [
            {"AttributeName": "leaseKey", "AttributeType": "S"},
            {"AttributeName": "leaseOwner", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexUpdates": [{"Create": OWNERS}],
    }
    dynamodb("PutItem", TableName="leases", Item={"leaseKey": {"S": "a"}, "leaseOwner": {"S": "w1"}})
    dynamodb("UpdateTable", TableName="leases", **add)
    found = described(dynamodb)
    assert (found["TableStatus"], found["GlobalSecondaryIndexes"][0]["IndexStatus"]) == ("UPDATING", "CREATING")
    assert dynamodb("Scan", TableName="leases")["Count"] == 1, "the rows are there meanwhile"
    with pytest.raises(RefusedError, match="Cannot read from backfilling global secondary index"):
        dynamodb("Scan", TableName="leases", IndexName=INDEX)
    with pytest.raises(RefusedError, match="Table is being updated"):
        dynamodb("UpdateTable", TableName="leases", **add)
    dynamodb.now_s += 10
    assert dynamodb("Scan", TableName="leases", IndexName=INDEX)["Count"] == 1
    with pytest.raises(RefusedError, match="Attempting to create an index which already exists"):
        dynamodb("UpdateTable", TableName="leases", **add)
    gone = dynamodb("DeleteTable", TableName="leases")
    assert gone["TableDescription"]["TableStatus"] == "DELETING"
    with pytest.raises(RefusedError, match="Table already exists: leases"):
        lease_table(dynamodb)
    dynamodb.now_s += 10
    assert dynamodb("ListTables")["TableNames"] == []
    lease_table(dynamodb)


def test_an_index_is_taken_away(dynamodb: Ours) -> None:
    lease_table(dynamodb)
    dynamodb("UpdateTable", TableName="leases", GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": INDEX}}])
    found = described(dynamodb)
    assert "GlobalSecondaryIndexes" not in found
    assert found["AttributeDefinitions"] == [{"AttributeName": "leaseKey", "AttributeType": "S"}]


def test_what_an_index_projects(dynamodb: Ours) -> None:
    all_of_it = OWNERS | {"IndexName": "whole", "Projection": {"ProjectionType": "ALL"}}
    part = OWNERS | {"IndexName": "part"}
    part["Projection"] = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["n"]}
    lease_table(dynamodb, GlobalSecondaryIndexes=[OWNERS, all_of_it, part])
    keys = {"leaseKey": {"S": "a"}, "leaseOwner": {"S": "w1"}}
    item = {**keys, "n": {"N": "1"}, "m": {"N": "2"}}
    put = dynamodb("PutItem", TableName="leases", Item=item, ReturnConsumedCapacity="INDEXES")["ConsumedCapacity"]
    assert put["CapacityUnits"] == 4.0
    assert put["GlobalSecondaryIndexes"] == {name: {"CapacityUnits": 1.0} for name in (INDEX, "whole", "part")}
    for name, shown in ((INDEX, keys), ("whole", item), ("part", {**keys, "n": {"N": "1"}})):
        assert dynamodb("Scan", TableName="leases", IndexName=name)["Items"] == [shown]
    change = {"UpdateExpression": "SET m = :v", "ExpressionAttributeValues": {":v": {"N": "3"}}}
    key = {"leaseKey": {"S": "a"}}
    cost = dynamodb("UpdateItem", TableName="leases", Key=key, ReturnConsumedCapacity="INDEXES", **change)
    assert cost["ConsumedCapacity"]["GlobalSecondaryIndexes"] == {"whole": {"CapacityUnits": 1.0}}, "the others stay"
    with pytest.raises(RefusedError, match="does not project"):
        dynamodb("Scan", TableName="leases", IndexName=INDEX, ProjectionExpression="m")


def test_billing(dynamodb: Ours) -> None:
    lease_table(
        dynamodb,
        **BARE,
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 7, "WriteCapacityUnits": 9},
    )
    found = described(dynamodb)
    assert found["ProvisionedThroughput"]["ReadCapacityUnits"] == 7
    assert "BillingModeSummary" not in found
    dynamodb("UpdateTable", TableName="leases", BillingMode="PAY_PER_REQUEST")
    assert described(dynamodb)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert described(dynamodb)["ProvisionedThroughput"]["WriteCapacityUnits"] == 0


def test_a_protected_table_stays(dynamodb: Ours) -> None:
    lease_table(dynamodb, DeletionProtectionEnabled=True)
    with pytest.raises(RefusedError, match="currently protected against deletion"):
        dynamodb("DeleteTable", TableName="leases")
    dynamodb("UpdateTable", TableName="leases", DeletionProtectionEnabled=False)
    dynamodb("DeleteTable", TableName="leases")
    with pytest.raises(RefusedError, match="Requested resource not found: Table: leases not found"):
        described(dynamodb)


def test_tables_are_listed_in_pages(dynamodb: Ours) -> None:
    for at in range(5):
        lease_table(dynamodb, f"table-{at}")
    found, members = [], {"Limit": 2}
    while True:
        answer = dynamodb("ListTables", **members)
        found += answer["TableNames"]
        if "LastEvaluatedTableName" not in answer:
            break
        members["ExclusiveStartTableName"] = answer["LastEvaluatedTableName"]
    assert found == [f"table-{at}" for at in range(5)]


def test_settings_beside_a_table(dynamodb: Ours) -> None:
    lease_table(dynamodb)
    arn = described(dynamodb)["TableArn"]
    dynamodb("TagResource", ResourceArn=arn, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    dynamodb("UntagResource", ResourceArn=arn, TagKeys=["a"])
    assert dynamodb("ListTagsOfResource", ResourceArn=arn)["Tags"] == [{"Key": "b", "Value": "2"}]
    spec = {"Enabled": True, "AttributeName": "ttl"}
    dynamodb("UpdateTimeToLive", TableName="leases", TimeToLiveSpecification=spec)
    shown = dynamodb("DescribeTimeToLive", TableName="leases")["TimeToLiveDescription"]
    assert shown == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
    with pytest.raises(RefusedError, match="TimeToLive is already enabled"):
        dynamodb("UpdateTimeToLive", TableName="leases", TimeToLiveSpecification=spec)
    on = {"PointInTimeRecoveryEnabled": True}
    dynamodb("UpdateContinuousBackups", TableName="leases", PointInTimeRecoverySpecification=on)
    shown = dynamodb("DescribeContinuousBackups", TableName="leases")["ContinuousBackupsDescription"]
    assert shown["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"TableName": "ab"}, "Member must have length greater than or equal to 3"),
        ({"TableName": "a b c"}, "Member must satisfy regular expression pattern"),
        ({"BillingMode": "X"}, "Member must satisfy enum value set: \\[PROVISIONED, PAY_PER_REQUEST\\]"),
        ({"BillingMode": None}, "must both be specified when BillingMode is PROVISIONED"),
        ({"KeySchema": []}, "Member must have length greater than or equal to 1"),
        ({"KeySchema": [{"AttributeName": "leaseKey", "KeyType": "RANGE"}]}, "is not a HASH key type"),
        ({"AttributeDefinitions": []}, "not defined in AttributeDefinitions"),
        ({"GlobalSecondaryIndexes": [OWNERS, OWNERS]}, f"Duplicate index name: {INDEX}"),
        ({"GlobalSecondaryIndexes": None}, "does not exactly match number of attributes"),
        ({"StreamSpecification": {"StreamEnabled": True}}, "has no streams of changes"),
    ],
)
def test_a_table_that_cannot_be_made(dynamodb: Ours, members: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        lease_table(dynamodb, **members)
    assert dynamodb("ListTables")["TableNames"] == []


def test_the_operations_are_those_that_answer(dynamodb: Ours) -> None:
    for operation in sorted(OPERATIONS - {"ListTables", "DescribeLimits"}):
        with pytest.raises(RefusedError) as caught:
            dynamodb(operation)
        assert caught.value.code in ("ValidationException", "TableNotFoundException"), operation


def test_a_local_index_reads_the_rest_from_the_table(dynamodb: Ours) -> None:
    keys = [{"AttributeName": "h", "KeyType": "HASH"}, {"AttributeName": "x", "KeyType": "RANGE"}]
    dynamodb(
        "CreateTable",
        TableName="local",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "h", "KeyType": "HASH"}, {"AttributeName": "r", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in "hrx"],
        LocalSecondaryIndexes=[{"IndexName": "by-x", "KeySchema": keys, "Projection": {"ProjectionType": "KEYS_ONLY"}}],
    )
    for at in range(3):
        row = {"h": {"S": "a"}, "r": {"S": str(at)}, "x": {"S": str(9 - at)}, "v": {"N": str(at)}}
        dynamodb("PutItem", TableName="local", Item=row)
    members = {
        "IndexName": "by-x",
        "ConsistentRead": True,
        "KeyConditionExpression": "h = :h AND begins_with(x, :x)",
        "ExpressionAttributeValues": {":h": {"S": "a"}, ":x": {"S": "8"}},
    }
    assert dynamodb("Query", TableName="local", **members)["Items"] == [
        {"h": {"S": "a"}, "r": {"S": "1"}, "x": {"S": "8"}}
    ]
    assert dynamodb("Query", TableName="local", ProjectionExpression="v", **members)["Items"] == [{"v": {"N": "1"}}]


def test_a_starting_key_must_be_one(dynamodb: Ours) -> None:
    ranged_table(dynamodb)
    query = {"KeyConditionExpression": "h = :h", "ExpressionAttributeValues": {":h": {"S": "a"}}}
    for key, says in (
        ({"z": {"S": "b"}}, "The provided starting key is invalid"),
        ({"h": {"S": "a"}, "r": {"S": "1"}}, "The provided starting key is invalid"),
        ({"h": {"S": "b"}, "r": {"N": "1"}}, "outside query boundaries"),
    ):
        with pytest.raises(RefusedError, match=says):
            dynamodb("Query", TableName="ranged", ExclusiveStartKey=key, **query)


ROWS = st.sampled_from("abcde")
OWNER = st.sampled_from(["w1", "w2", None])


class IndexMachine(RuleBasedStateMachine):
    """Whatever is written, the index has the rows with its key, in its order, and the sizes are the rows'."""

    def __init__(self) -> None:
        super().__init__()
        self.dynamodb = Ours()
        lease_table(self.dynamodb)
        self.rows: dict[str, dict[str, Any]] = {}

    @rule(key=ROWS, owner=OWNER, size=st.integers(0, 50))
    def put(self, key: str, owner: str | None, size: int) -> None:
        row: dict[str, Any] = {"leaseKey": {"S": key}, "x": {"S": "x" * size}}
        self.rows[key] = row if owner is None else row | {"leaseOwner": {"S": owner}}
        self.dynamodb("PutItem", TableName="leases", Item=self.rows[key])

    @rule(key=ROWS, owner=OWNER)
    def update(self, key: str, owner: str | None) -> None:
        change: dict[str, Any] = {"UpdateExpression": "REMOVE leaseOwner"}
        if owner is not None:
            change = {"UpdateExpression": "SET leaseOwner = :o", "ExpressionAttributeValues": {":o": {"S": owner}}}
        answer = self.dynamodb(
            "UpdateItem", TableName="leases", Key={"leaseKey": {"S": key}}, ReturnValues="ALL_NEW", **change
        )
        self.rows[key] = answer["Attributes"]
        assert self.rows[key].get("leaseOwner") == (None if owner is None else {"S": owner})

    @rule(key=ROWS)
    def delete(self, key: str) -> None:
        self.dynamodb("DeleteItem", TableName="leases", Key={"leaseKey": {"S": key}})
        self.rows.pop(key, None)

    @invariant()
    def the_index_is_right(self) -> None:
        owned = {key: row for key, row in self.rows.items() if "leaseOwner" in row}
        found = self.dynamodb("Scan", TableName="leases", IndexName=INDEX)["Items"]
        assert {item["leaseKey"]["S"]: item["leaseOwner"] for item in found} == {
            key: row["leaseOwner"] for key, row in owned.items()
        }
        table = self.dynamodb.model.state.tables["leases"]
        for rows in (table.rows, table.indexes[INDEX].rows):
            assert rows.positions == sorted(rows.positions)
            assert rows.size == sum(row.size for row in rows)
        assert len(table.rows) == len(self.rows)


IndexMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestIndexMachine = IndexMachine.TestCase


def test_an_error_says_its_kind() -> None:
    body = json.loads(DynamoError("TransactionCanceledException", "text").body())
    assert body == {"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "Message": "text"}


def test_an_index_without_rows_has_no_size() -> None:
    table = Table("t", "arn", "id", 0.0)
    table.keys = KeySchema("a", None, {"a": "S"})
    index = Index("i", KeySchema("b", None, {"b": "S"}), {"ProjectionType": "ALL"})
    assert index.attributes(table.keys) is None
    assert (len(index.rows), index.rows.size) == (0, 0)
