"""What only DynamoDB has: tables on demand, the KCL's own rows beside ours, errors that tell nothing."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.aws.dynamodb.lease_table import OWNER_INDEX, DynamoLeaseTable
from shardway.aws.dynamodb.values import plain, plain_item, typed, typed_item
from shardway.aws.options import ConnectionOptions
from shardway.core.assignment.kcl.fleet import Coordination, Place
from shardway.core.assignment.kcl.rows import metrics_row
from shardway.core.leases import Done, LeaseRow, NotALeaseError, Refused, Unknown, conditional_write, writes
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.machine import claim, step
from shardway.core.leases.tenure.state import State
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.leases.worker_row import WorkerRow
from shardway.errors import AccessDeniedError, NotFoundError, OptionError
from shardway.local.faults import Fault
from shardway.options import LeaseOptions
from tests.momentary import now
from tests.stores.lease_kit import CREDENTIALS, at, done

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from shardway.core.leases import Outcome
    from shardway.core.leases.tenure.state import Tenure
    from shardway.local.embedded import LocalKinesis

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "kcl"
pytestmark = pytest.mark.xdist_group("stores")


@pytest.fixture
def name() -> str:
    return f"leases-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def opened(dynamodb: LocalKinesis, name: str) -> AsyncIterator[Callable[..., DynamoLeaseTable]]:
    """Opens the table ``name`` with options; closed at the end."""
    tables = []

    def make(**options: Any) -> DynamoLeaseTable:
        settings = ConnectionOptions(endpoint_url=dynamodb.endpoint_url, region="us-east-1", credentials=CREDENTIALS)
        tables.append(DynamoLeaseTable(name, settings, LeaseOptions(**{"request_timeout_s": 20.0, **options})))
        return tables[-1]

    yield make
    for one in tables:
        await one.close()


@pytest.fixture
async def table(opened: Callable[..., DynamoLeaseTable]) -> DynamoLeaseTable:
    made = opened()
    await made.ensure()
    return made


@pytest.fixture
def client(dynamodb: LocalKinesis) -> Iterator[Any]:
    """boto3's, to look at the table as others do."""
    made = boto3.client("dynamodb", endpoint_url=dynamodb.endpoint_url, region_name="us-east-1")
    yield made
    made.close()


# --- tables ---------------------------------------------------------------------------------------


async def test_tables_are_made_as_the_options_say(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str
) -> None:
    await opened(tags={"team": "billing"}, owner_index=True, deletion_protection=True).ensure()
    made = client.describe_table(TableName=name)["Table"]
    assert made["KeySchema"] == [{"AttributeName": "leaseKey", "KeyType": "HASH"}]
    assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert made["DeletionProtectionEnabled"] is True
    assert client.list_tags_of_resource(ResourceArn=made["TableArn"])["Tags"] == [{"Key": "team", "Value": "billing"}]
    (index,) = made["GlobalSecondaryIndexes"]
    real = json.loads((FIXTURES / "kcl35-during-handoff.json").read_text())["tables"]["e-35"]["describe"]
    (kcls,) = real["GlobalSecondaryIndexes"]
    for part in ("IndexName", "KeySchema", "Projection"):
        assert index[part] == kcls[part]
    workers = client.describe_table(TableName=f"{name}-Workers")["Table"]
    assert workers["KeySchema"] == [{"AttributeName": "workerId", "KeyType": "HASH"}]
    assert not workers.get("GlobalSecondaryIndexes")


async def test_provisioned_capacity_and_a_name_for_the_workers(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str
) -> None:
    options = {"read_capacity_units": 7, "write_capacity_units": 9, "workers_table": f"crew-of-{name}"}
    await opened(**options).ensure()
    for one in (name, f"crew-of-{name}"):
        capacity = client.describe_table(TableName=one)["Table"]["ProvisionedThroughput"]
        assert (capacity["ReadCapacityUnits"], capacity["WriteCapacityUnits"]) == (7, 9)


def as_the_kcl_27_makes_it(client: Any, name: str) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


async def test_a_new_table_has_the_index(opened: Callable[..., DynamoLeaseTable]) -> None:
    table = opened()
    await table.ensure()
    await table.create(LeaseRow(key="a", owner="w1"))
    assert await table.owned_keys("w1") == ["a"]
    assert await table.owned_keys("w2") == []


async def test_what_a_kcl_30_keeps_in_tables_of_its_own(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str
) -> None:
    """Its worker makes one table after the other."""
    table = opened()
    await table.ensure()
    assert await table.coordination() is None
    for suffix, key in (("CoordinatorState", "key"), ("WorkerMetricStats", "wid")):
        client.create_table(
            TableName=f"{name}-{suffix}",
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        if key == "key":
            migration = {"key": {"S": "Migration3.0"}, "cv": {"S": "CLIENT_VERSION_3X"}, "mts": {"N": "1"}}
            client.put_item(TableName=f"{name}-{suffix}", Item=migration)
            assert await table.coordination() == Coordination(client_version="CLIENT_VERSION_3X")
    assert await table.show_metrics(Place.OWN_TABLES, metrics_row(Place.OWN_TABLES, "w1", 7.0, (50.0,))) == Done(None)
    (row,) = client.scan(TableName=f"{name}-WorkerMetricStats")["Items"]
    assert (row["wid"], row["lut"], row["sts"]) == (
        {"S": "w1"},
        {"N": "7"},
        {"M": {"C": {"L": [{"N": "50"}]}}},  # sent as 50.000000: DynamoDB keeps the number, not its text
    )
    assert await table.coordination() == Coordination(
        client_version="CLIENT_VERSION_3X", updated_epoch_s={"w1": 7}, show_cpu=frozenset({"w1"})
    )
    assert await table.withdraw_metrics(Place.OWN_TABLES, "w1") == Done(None)
    assert client.scan(TableName=f"{name}-WorkerMetricStats")["Items"] == []
    assert (await table.scan()).foreign == {}, "nothing beside the leases, where older workers would break"


async def test_an_index_is_added_to_a_table_that_is_there(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str
) -> None:
    as_the_kcl_27_makes_it(client, name)
    without = opened()
    await without.ensure()
    assert not client.describe_table(TableName=name)["Table"].get("GlobalSecondaryIndexes")
    assert await without.owned_keys("w1") is None
    with_index = opened(owner_index=True)
    await with_index.ensure()
    await with_index.ensure()
    (index,) = client.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
    assert index["IndexName"] == OWNER_INDEX
    await with_index.create(LeaseRow(key="a", owner="w1"))
    await with_index.create(LeaseRow(key="b", owner="w2"))
    await with_index.create(LeaseRow(key="c"))
    assert await with_index.owned_keys("w1") == ["a"]


@pytest.mark.parametrize("there", [False, True])
async def test_workers_that_start_together_make_one_table(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str, there: bool
) -> None:
    """The KCL 3.5 can stay without work for ever when it loses this race."""
    if there:
        as_the_kcl_27_makes_it(client, name)
    await asyncio.gather(*(opened(owner_index=True).ensure() for _ in range(8)))
    assert len(client.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
async def test_workers_that_start_together_make_one_table_of_amazons_own(
    dynamodb_local: str, name: str, there: bool
) -> None:
    """There an index takes its time, and a worker that asks for a second one meanwhile is refused."""
    settings = ConnectionOptions(endpoint_url=dynamodb_local, region="us-east-1", credentials=CREDENTIALS)
    plain_table = DynamoLeaseTable(name, settings)
    client = boto3.client("dynamodb", endpoint_url=dynamodb_local, region_name="us-east-1")
    if there:
        as_the_kcl_27_makes_it(client, name)
        await plain_table.ensure()
        await plain_table.create(LeaseRow(key="a", owner="w1"))
    tables = [DynamoLeaseTable(name, settings, LeaseOptions(owner_index=True)) for _ in range(8)]
    await asyncio.gather(*(one.ensure() for one in tables))
    try:
        indexes: list[Any] = []
        while not indexes or indexes[0]["IndexStatus"] != "ACTIVE":
            indexes = client.describe_table(TableName=name)["Table"]["GlobalSecondaryIndexes"]
            assert [one["IndexName"] for one in indexes] == [OWNER_INDEX]
            await asyncio.sleep(0.05)
    finally:
        client.close()
    if there:
        assert await tables[0].owned_keys("w1") == ["a"]
    for one in (plain_table, *tables):
        await one.close()


async def test_a_table_with_another_key_is_refused(
    opened: Callable[..., DynamoLeaseTable], client: Any, name: str
) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(OptionError, match=rf"{name} has the key \['id'\]"):
        await opened().ensure()


@pytest.mark.parametrize("options", [{"read_capacity_units": 1}, {"request_timeout_s": 0.0}, {"failover_s": -1.0}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        LeaseOptions(**options)


async def test_without_a_table_nothing_is_hidden(opened: Callable[..., DynamoLeaseTable]) -> None:
    table = opened()
    row = LeaseRow(key="a")
    with pytest.raises(NotFoundError):
        await table.write(writes.renew(row))
    with pytest.raises(NotFoundError):
        await table.create(row)
    with pytest.raises(NotFoundError):
        await table.scan()
    with pytest.raises(NotFoundError):
        await table.put_worker(WorkerRow(worker_id="w1", failover_s=10))


# --- rows of others -------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ["kcl35-during-handoff", "kcl35-reshard", "kcl27-reshard"])
async def test_a_real_table_of_the_kcl_is_read_and_its_other_rows_are_left_alone(
    table: DynamoLeaseTable, client: Any, name: str, fixture: str
) -> None:
    (real,) = json.loads((FIXTURES / f"{fixture}.json").read_text())["tables"].values()
    for item in real["items"]:
        client.put_item(TableName=name, Item=item)
    listing = await table.scan(consistent=True)
    assert listing.unreadable == {}
    leases = [item for item in real["items"] if "leaseCounter" in item]
    assert len(listing.rows) == len(leases)
    assert len(listing.foreign) == len(real["items"]) - len(leases)
    for row in listing.rows:
        done(await table.write(writes.take(row, "ours")))
    after = {item["leaseKey"]["S"]: item for item in client.scan(TableName=name)["Items"]}
    for item in real["items"]:
        key = item["leaseKey"]["S"]
        if "leaseCounter" not in item:
            assert after[key] == item
            continue
        counter = {"N": str(int(item["leaseCounter"]["N"]) + 1)}
        expected = {**item, "leaseOwner": {"S": "ours"}, "leaseCounter": counter}
        expected["ownerSwitchesSinceCheckpoint"] = {"N": str(int(item["ownerSwitchesSinceCheckpoint"]["N"]) + 1)}
        expected.pop("checkpointOwner", None)
        assert after[key] == expected


async def test_attributes_that_are_not_known_survive_every_write(
    table: DynamoLeaseTable, client: Any, name: str
) -> None:
    more = {"costCentre": {"S": "x"}, "history": {"L": [{"M": {"at": {"N": "1.5"}}}]}, "live": {"BOOL": True}}
    row = LeaseRow(key="a", counter=1, owner="w1", checkpoint=at(0))
    client.put_item(TableName=name, Item=typed_item(row.attributes()) | more)
    row = done(await table.write(writes.checkpoint(row, at(1))))
    assert row.others == {"costCentre": "x", "history": [{"at": 1.5}], "live": True}
    row = done(await table.write(writes.give(row, "w2", at(2))))
    done(await table.write(writes.free(row)))
    item = client.get_item(TableName=name, Key={"leaseKey": {"S": "a"}})["Item"]
    assert {name: item[name] for name in more} == more


async def test_a_row_that_is_no_lease_is_not_got_as_one(table: DynamoLeaseTable, client: Any, name: str) -> None:
    client.put_item(TableName=name, Item={"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}})
    with pytest.raises(NotALeaseError, match="Leader"):
        await table.get("Leader")
    assert list((await table.scan()).foreign) == ["Leader"]


async def test_a_workers_row_of_a_later_version_hides_no_other(table: DynamoLeaseTable, client: Any, name: str) -> None:
    mine = WorkerRow(worker_id="w1", failover_s=10.0)
    await table.put_worker(mine)
    client.put_item(TableName=f"{name}-Workers", Item={"workerId": {"S": "w2"}, "shape": {"S": "new"}})
    assert await table.workers() == [mine]


# --- outcomes -------------------------------------------------------------------------------------

ROW = LeaseRow(key="a", counter=3, owner="w1")
TELL_NOTHING = [
    (Fault(how="throttle", count=1), "ProvisionedThroughputExceededException", False),
    (Fault(how="throttle", count=1, code="ThrottlingException"), "ThrottlingException", False),  # billed by request
    (Fault(how="throttle", count=1, code="RequestLimitExceeded"), "RequestLimitExceeded", False),  # of the account
    (Fault(how="server_error", count=1), "InternalServerError", False),
    (Fault(how="server_error", count=1, applied=True), "InternalServerError", True),
    (Fault(how="reset", count=1), "TransportError", False),
    (Fault(how="reset", count=1, applied=True), "TransportError", True),
    (Fault(how="lost_reply", count=1), "TransportError", True),
    (Fault(how="truncate", count=1), "TransportError", True),
]


def _id(value: object) -> str | None:
    if not isinstance(value, Fault):
        return None
    return f"{value.code or value.how}{'-applied' * value.applied}"


@pytest.mark.parametrize(("fault", "reason", "is_applied"), TELL_NOTHING, ids=_id)
async def test_an_error_that_tells_nothing_is_an_unknown_outcome(
    opened: Callable[..., DynamoLeaseTable], dynamodb: LocalKinesis, fault: Fault, reason: str, is_applied: bool
) -> None:
    maker, table = opened(), opened()
    await maker.ensure()
    await maker.create(ROW)
    dynamodb.faults.add(fault)
    outcome = await table.write(writes.renew(ROW))
    found = await maker.get("a")
    assert found is not None
    assert found.counter == 3 + is_applied
    assert outcome == Unknown(reason)
    assert conditional_write.resolve(writes.renew(ROW), found) == (
        Done(found) if is_applied else Unknown("the row is as it was")
    )


@pytest.mark.parametrize("what", ["create", "put_worker", "delete_worker", "delete"])
async def test_every_write_has_three_outcomes(table: DynamoLeaseTable, dynamodb: LocalKinesis, what: str) -> None:
    await table.create(ROW)
    dynamodb.faults.add(Fault(how="server_error", count=1))
    outcomes: dict[str, Callable[[], Any]] = {
        "create": lambda: table.create(LeaseRow(key="b")),
        "put_worker": lambda: table.put_worker(WorkerRow(worker_id="w1", failover_s=10)),
        "delete_worker": lambda: table.delete_worker("w1"),
        "delete": lambda: table.write(writes.delete(ROW)),
    }
    assert await outcomes[what]() == Unknown("InternalServerError")
    assert isinstance(await outcomes[what](), Done)


async def test_an_answer_that_does_not_come_is_not_waited_for(
    table: DynamoLeaseTable, opened: Callable[..., DynamoLeaseTable], dynamodb: LocalKinesis
) -> None:
    await table.create(ROW)
    hasty = opened(request_timeout_s=0.2)
    dynamodb.faults.add(Fault(how="delay", operation="UpdateItem", delay_s=1.5, count=1))
    bystander = replace(ROW, key="b")
    await table.create(bystander)
    assert await hasty.write(writes.renew(ROW)) == Unknown("no answer within 0.2 s")
    assert await hasty.get("b") == bystander, "the answer that came late is no other call's"


async def test_a_refusal_whose_row_cannot_be_read_tells_nothing(
    opened: Callable[..., DynamoLeaseTable], dynamodb: LocalKinesis
) -> None:
    table = opened(request_timeout_s=1.0)
    await table.ensure()
    await table.create(replace(ROW, counter=4))
    dynamodb.faults.add(Fault(how="server_error", operation="GetItem"))
    assert isinstance(await table.write(writes.renew(ROW)), Unknown)
    dynamodb.faults.clear()
    assert await table.write(writes.renew(ROW)) == Refused(replace(ROW, counter=4))


async def test_what_repeating_does_not_mend_is_raised(table: DynamoLeaseTable, dynamodb: LocalKinesis) -> None:
    await table.create(ROW)
    dynamodb.faults.add(Fault(how="access_denied", operation="UpdateItem", count=1))
    with pytest.raises(AccessDeniedError):
        await table.write(writes.renew(ROW))


async def test_reads_are_repeated(table: DynamoLeaseTable, dynamodb: LocalKinesis) -> None:
    await table.create(ROW)
    dynamodb.faults.add(Fault(how="throttle", operation="Scan", count=2))
    dynamodb.faults.add(Fault(how="server_error", operation="GetItem", count=2))
    assert (await table.scan()).rows == [ROW]
    assert await table.get("a") == ROW


# --- the owner that stays the owner ---------------------------------------------------------------


class Owner:
    """A tenure over a real table, in virtual time."""

    def __init__(self, table: DynamoLeaseTable) -> None:
        self.table = table
        self.now_s = 0.0
        self.said: list[tenure_commands.Command] = []
        self.outcomes: list[Outcome] = []
        self.tenure: Tenure

    async def start(self, row: LeaseRow) -> None:
        await self._take(claim(row, "w1", LeaseTimes(), self.now_s))

    async def handle(self, given: tenure_events.Event, after_s: float = 0.0) -> None:
        self.now_s += after_s
        await self._take(step(self.tenure, given, self.now_s))

    async def _take(self, result: tuple[Tenure, tuple[tenure_commands.Command, ...]]) -> None:
        self.tenure, commands = result
        for command in commands:
            if isinstance(command, tenure_commands.SendWrite):
                self.outcomes.append(await self.table.write(command.write))
                await self.handle(tenure_events.WriteAnswered(self.outcomes[-1]), after_s=0.01)
            else:
                self.said.append(command)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(how="server_error", operation="UpdateItem", applied=True, probability=0.5, seed=3),
        Fault(how="lost_reply", operation="UpdateItem", probability=0.5, seed=4),
        Fault(how="reset", operation="UpdateItem", applied=True, probability=0.5, seed=5),
        Fault(how="throttle", operation="UpdateItem", probability=0.5, seed=6),
    ],
    ids=_id,
)
async def test_updates_that_were_applied_and_answered_with_an_error_cost_no_lease(
    table: DynamoLeaseTable, dynamodb: LocalKinesis, fault: Fault
) -> None:
    """KCL #2 and #325: half of all answers are errors, and the owner stays the owner, and loses no progress."""
    await table.create(LeaseRow(key="a"))
    dynamodb.faults.add(fault)
    owner = Owner(table)
    await owner.start(LeaseRow(key="a"))
    while owner.tenure.state is State.CLAIMING:
        await owner.handle(tenure_events.TimerFired(), after_s=0.25)
    token = owner.tenure.token
    assert token in (1, 2), "a take whose answer was an error is followed by a renewal"
    for number in range(1, 9):
        while owner.tenure.sent is not None:
            await owner.handle(tenure_events.TimerFired(), after_s=0.25)
        await owner.handle(tenure_events.StoreCheckpoint(at(number), at_once=True), after_s=1.0)
    while owner.tenure.sent is not None:
        await owner.handle(tenure_events.TimerFired(), after_s=0.25)
    assert now(owner.tenure.state) is State.HELD
    assert owner.tenure.token == token
    assert owner.tenure.may_deliver(owner.now_s)
    assert not all(isinstance(outcome, Done) for outcome in owner.outcomes), "no fault struck"
    assert await table.get("a") == owner.tenure.row
    assert (owner.tenure.row.counter, owner.tenure.row.checkpoint) == (token + 8, at(8)), "each write counted once"
    await owner.handle(tenure_events.EndTenure("w2"))
    while owner.tenure.state is not State.OVER:
        await owner.handle(tenure_events.TimerFired(), after_s=0.25)
    assert isinstance(owner.said[0], tenure_commands.TenureBegan)
    assert owner.said[1:-1] == [tenure_commands.CheckpointStored(at(number)) for number in range(1, 9)]
    assert owner.said[-1] == tenure_commands.TenureEnded(await table.get("a"))


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "text", 0, 2**63, -5, b"", b"\x00\xff", frozenset({"a", "b"}), True, 6.750849])
def test_values_come_back(value: object) -> None:
    again = plain(typed(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({"N": "1E+2"}, 100.0),
        ({"N": "5.0"}, 5),
        ({"NS": ["1", "2.5"]}, frozenset({1, 2.5})),
        ({"BS": ["AA=="]}, frozenset({b"\x00"})),
        ({"NULL": True}, None),
        ({"M": {"a": {"L": [{"S": "x"}]}}}, {"a": ["x"]}),
    ],
)
def test_values_that_others_write(item: dict[str, Any], value: object) -> None:
    assert plain(item) == value


def test_values_that_do_not_belong_into_a_lease_table() -> None:
    odd: list[Any] = [frozenset(), [None], {"a": None}, None]
    for value in odd:
        with pytest.raises(TypeError, match="is not stored"):
            typed(value)
    with pytest.raises(ValueError, match="not known"):
        plain_item({"a": {"XX": "1"}})
