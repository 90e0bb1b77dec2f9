"""Tables of DynamoDB that are not there yet, or no more, or not for every program: waited for, made, or said so."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from shardway.aws.dynamodb import lease_table as tables
from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.options import ConnectionOptions
from shardway.core.leases import Done, LeaseRow, writes
from shardway.core.leases.worker_row import WorkerRow
from shardway.errors import AccessDeniedError, NotFoundError
from shardway.local.faults import Fault
from shardway.options import LeaseOptions
from tests.stores.lease_kit import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from shardway.local.embedded import LocalKinesis

pytestmark = pytest.mark.xdist_group("stores")


@pytest.fixture
def name() -> str:
    return f"leases-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(dynamodb: LocalKinesis) -> Iterator[Any]:
    made = boto3.client("dynamodb", endpoint_url=dynamodb.endpoint_url, region_name="us-east-1")
    yield made
    made.close()


class ChangingTable(DynamoLeaseTable):
    """The service tells these states of the lease table first, one at each look; after that the truth.

    (The emulation makes and deletes tables in no time.)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.states: list[str] = []
        self.looks = 0

    async def _describe(self, table: str) -> dict[str, Any] | None:
        found = await super()._describe(table)
        if table != self.name:
            return found
        self.looks += 1
        return {**(found or {}), "TableStatus": self.states.pop(0)} if self.states else found


@pytest.fixture
async def opened(dynamodb: LocalKinesis, name: str) -> AsyncIterator[Callable[..., ChangingTable]]:
    tables = []

    def make(**options: Any) -> ChangingTable:
        settings = ConnectionOptions(endpoint_url=dynamodb.endpoint_url, region="us-east-1", credentials=CREDENTIALS)
        tables.append(ChangingTable(name, settings, LeaseOptions(**{"request_timeout_s": 20.0, **options})))
        return tables[-1]

    yield make
    for one in tables:
        await one.close()


ROW = LeaseRow(key="a", counter=3, owner="w1")


async def test_a_table_that_another_is_making_is_waited_for(opened: Callable[..., ChangingTable]) -> None:
    await opened().ensure()
    table = opened()
    table.states = ["CREATING", "CREATING"]
    await table.ensure()
    assert table.looks == 3
    assert isinstance(await table.create(ROW), Done)


async def test_a_table_that_is_being_changed_works_meanwhile(opened: Callable[..., ChangingTable]) -> None:
    await opened().ensure()
    table = opened()
    table.states = ["UPDATING"] * 100
    await table.ensure()
    assert table.looks == 1


async def test_a_table_that_is_being_deleted_is_made_again(opened: Callable[..., ChangingTable]) -> None:
    table = opened()
    table.states = ["DELETING", "DELETING"]
    await table.ensure()
    assert isinstance(await table.create(ROW), Done)


async def test_a_table_whose_making_is_not_seen_yet(
    opened: Callable[..., ChangingTable], dynamodb: LocalKinesis
) -> None:
    """A look may be answered from before CreateTable."""
    table = opened()
    unseen = Fault(how="error", operation="DescribeTable", code="ResourceNotFoundException", message="no", count=4)
    dynamodb.faults.add(unseen)
    await table.ensure()
    assert isinstance(await table.create(ROW), Done)


async def test_a_table_that_does_not_become_active(
    opened: Callable[..., ChangingTable], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened().ensure()
    monkeypatch.setattr(tables, "MAKE_TIMEOUT_S", 0.5)
    table = opened()
    table.states = ["INACCESSIBLE_ENCRYPTION_CREDENTIALS"] * 1_000
    with pytest.raises(NotFoundError, match=rf"{name}.* are not active after 0.5 s"):
        await table.ensure()


@pytest.mark.parametrize("operation", ["DescribeTable", "CreateTable"])
async def test_without_the_right_to_look_or_to_make_it_says_which(
    opened: Callable[..., ChangingTable], dynamodb: LocalKinesis, operation: str
) -> None:
    dynamodb.faults.add(Fault(how="access_denied", operation=operation))
    with pytest.raises(AccessDeniedError, match=operation):
        await opened().ensure()


async def test_without_the_right_to_add_the_index_a_table_is_used_as_it_is_unless_the_index_was_asked_for(
    opened: Callable[..., ChangingTable], dynamodb: LocalKinesis, client: Any, name: str
) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.faults.add(Fault(how="access_denied", operation="UpdateTable"))
    await opened().ensure()
    with pytest.raises(AccessDeniedError, match="UpdateTable"):
        await opened(owner_index=True).ensure()


async def test_an_index_that_may_not_be_asked_counts_as_none(
    opened: Callable[..., ChangingTable], dynamodb: LocalKinesis
) -> None:
    table = opened()
    await table.ensure()
    await table.create(ROW)
    assert await table.owned_keys("w1") == ["a"]
    dynamodb.faults.add(Fault(how="access_denied", operation="Query"))
    assert await table.owned_keys("w1") is None


@pytest.mark.parametrize("suffix", ["", "-Workers"])
async def test_a_table_that_is_deleted_while_it_is_used(
    opened: Callable[..., ChangingTable], client: Any, name: str, suffix: str
) -> None:
    table = opened()
    await table.ensure()
    await table.create(ROW)
    client.delete_table(TableName=f"{name}{suffix}")
    does = "start the consumers again: one of them makes it" if suffix else "it has the checkpoints. Restore it"
    says = rf"the table {name}{suffix} is not in [a-z]+-[a-z]+-\d: {does}"
    with pytest.raises(NotFoundError, match=says) as gone:
        await (table.workers() if suffix else table.write(writes.renew(ROW)))
    assert f"the table {name}{suffix} is not in" in repr(gone.value)
    with pytest.raises(NotFoundError, match=says):
        await (table.put_worker(WorkerRow(worker_id="w1", failover_s=5.0)) if suffix else table.scan())
    await table.ensure()
    assert (await table.scan()).rows == ([ROW] if suffix else [])
