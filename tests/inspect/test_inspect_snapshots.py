"""Snapshots: nothing secret is in them; a permission that lacks leaves the rest; calls are those of the policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardway.aws.options import Credentials
from shardway.errors import OptionError, ShardwayError
from shardway.inspect import Goal, Inspector, Reading, Snapshot, check_leases, examine, plan_seek
from shardway.inspect.reads.wire import ASKED_STATEMENTS, INSPECT_POLICY, STATEMENTS
from shardway.inspect.records.reader import read_pages
from shardway.model import IteratorAt, StreamName
from shardway.testing import Fault
from tests.docs.doc_pages import ROOT
from tests.inspect.scenes import Scene, shard_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Make = Callable[..., Scene]

pytestmark = pytest.mark.xdist_group("inspected-tables")
SUFFIXES = {"-Workers": "workerId", "-CoordinatorState": "key", "-WorkerMetricStats": "wid"}


# --- secrets --------------------------------------------------------------------------------------

CANARY = "canary"


def test_no_payload_no_key_and_no_secret_is_in_a_snapshot(make: Make) -> None:
    scene = make(shards=3)
    number = scene.put(0, b"canary-payload", "canary-partition-key")
    for _ in range(12):
        scene.put(0, b"canary" * 100_000, "canary-hot-key")
    scene.leases(number)
    odd = {"leaseCounter": 1, "checkpoint": "LATEST"}
    scene.row({**odd, "leaseKey": "a", "leaseCounter": "canary-counter"})
    scene.row({**odd, "leaseKey": "b", "checkpoint": "canary-'check\"point"})
    scene.row({**odd, "leaseKey": "c", "startingHashKey": "canary-(hash)-key"})
    scene.row({**odd, "leaseKey": "d", "ownerSwitchesSinceCheckpoint": "can\nary"})
    scene.row({"leaseKey": "e", "card": "canary-of-another-row"})
    scene.lease(1, number, others={"note": "canary-unknown-attribute"}, pending_state=b"canary-state")
    scene.table("-Workers", key="workerId")
    scene.row({"workerId": "w1", "counter": 1, "secret": "canary-worker"}, "-Workers")
    scene.credentials = Credentials("CANARYID", "canary-secret-key", "canary-token")
    taken = scene.snapshot()
    assert taken.application is not None
    assert taken.application.unreadable.keys() == {"a", "b", "c", "d"}
    assert taken.heat is not None
    assert taken.heat.shards[0].hot
    assert taken.heat.shards[0].hot_keys[0].share > 0.9
    text = msgspec.json.encode(taken).decode()
    assert CANARY not in text.lower()
    assert "can\\nary" not in text
    assert text == msgspec.json.encode(msgspec.json.decode(text, type=Snapshot)).decode()


def test_a_database_password_is_not_in_what_is_said_of_it(make: Make) -> None:
    from shardway.inspect import Store

    scene = make()

    async def look() -> None:
        async with scene.inspector() as inspector:
            store = Store.parse("postgresql://user:canary@127.0.0.1:1/db")
            await inspector.snapshot(scene.name, scene.name, store)

    with pytest.raises(OptionError) as told:
        asyncio.run(look())
    assert CANARY not in str(told.value)


# --- permissions ----------------------------------------------------------------------------------


def whole(make: Make) -> Scene:
    """With all that there may be to look at."""
    scene = make()
    scene.at_tip()
    for suffix, key in SUFFIXES.items():
        scene.table(suffix, key=key)
    scene.ask("RegisterStreamConsumer", StreamARN=scene.arn, ConsumerName="fan")
    return scene


OF_THE_DOCTOR = sorted(set(STATEMENTS) - {"dynamodb:ListTables", "kinesis:ListStreams"})


@pytest.mark.parametrize("action", OF_THE_DOCTOR)
def test_a_permission_that_lacks_is_named_and_the_rest_is_there(action: str, make: Make) -> None:
    scene = whole(make)
    scene.local.faults.add(Fault(how="access_denied", operation=action.partition(":")[2]))
    taken = scene.snapshot()
    assert {one.action for one in taken.missing} == {action}
    assert all(one.lacks_permission and one.message for one in taken.missing)
    (found,) = [one for one in examine(taken).findings if one.id == "SHW-D030"]
    assert found.evidence == [f"{action} is missing, which {INSPECT_POLICY} has under {STATEMENTS[action]}"]
    parts = {
        "stream": taken.stream is not None and taken.stream.stream is not None,
        "shards": taken.stream is not None and taken.stream.shards is not None,
        "consumers": taken.stream is not None and taken.stream.consumers is not None,
        "tables": taken.application is not None and bool(taken.application.tables),
        "leases": taken.application is not None and bool(taken.application.leases),
        "lag": taken.lag is not None and taken.lag.behind_s == 0.0,
        "heat": taken.heat is not None and len(taken.heat.shards) == 2,
        "metrics": taken.metrics is not None,
        "limits": taken.limits is not None,
    }
    assert {name for name, shown in parts.items() if not shown} == {
        "cloudwatch:GetMetricData": {"metrics"},
        "cloudwatch:ListMetrics": set(),
        "dynamodb:DescribeTable": {"tables"},
        "dynamodb:Scan": {"leases", "lag"},
        "kinesis:DescribeLimits": {"limits"},
        "kinesis:DescribeStreamSummary": {"stream", "consumers"},
        "kinesis:GetRecords": {"lag", "heat"},
        "kinesis:GetShardIterator": {"lag", "heat"},
        "kinesis:ListShards": {"shards", "heat"},
        "kinesis:ListStreamConsumers": {"consumers"},
    }[action]


VIEWS: dict[str, tuple[Callable[[Inspector, str], Awaitable[Any]], set[str]]] = {
    "streams": (lambda inspector, _: inspector.streams(), {"ListStreams"}),
    "stream": (
        lambda inspector, name: inspector.stream(name),
        {"DescribeStreamSummary", "ListShards", "ListStreamConsumers"},
    ),
    "applications": (lambda inspector, _: inspector.applications(), {"ListTables", "DescribeTable"}),
    "application": (lambda inspector, name: inspector.application(name), {"DescribeTable", "Scan"}),
    "lag": (
        lambda inspector, name: inspector.lag(name, name),
        {"DescribeTable", "Scan", "DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"},
    ),
    "heat": (lambda inspector, name: inspector.heat(name), {"ListShards", "GetShardIterator", "GetRecords"}),
}


@pytest.mark.parametrize("how", ["access_denied", "throttle"])
@pytest.mark.parametrize("view", [*VIEWS])
def test_each_view_does_without_any_one_of_its_calls(view: str, how: Any, make: Make) -> None:
    scene = whole(make)
    look, operations = VIEWS[view]

    async def seen() -> tuple[set[str], set[str]]:
        async with scene.inspector() as inspector:
            await look(inspector, scene.name)
            assert all(one.lacks_permission == (how == "access_denied") for one in inspector.missing)
            return set(inspector.calls), {one.action.partition(":")[2] for one in inspector.missing}

    assert asyncio.run(seen()) == (operations, set())
    for operation in sorted(operations):
        scene.local.faults.add(Fault(how=how, operation=operation))
        if (view, operation) == ("lag", "Scan"):
            with pytest.raises(OptionError, match=r"shows no leases: .*dynamodb:Scan"):
                asyncio.run(seen())
        else:
            assert asyncio.run(seen())[1] == {operation}
        scene.local.faults.clear()


async def sought(inspector: Inspector, name: str) -> None:
    await plan_seek(inspector, name, Goal("trim-horizon"), stream=name, failover_s=0.01)


async def counted(inspector: Inspector, name: str) -> None:
    reading = Reading(starting_position=IteratorAt.trim_horizon())
    async with contextlib.aclosing(read_pages(inspector, StreamName(name), reading)) as pages:
        assert sum([len(page) async for page in pages]) == 2


WHOLE: dict[str, tuple[Callable[[Inspector, str], Awaitable[Any]], set[str]]] = {
    "seek": (sought, VIEWS["lag"][1]),
    "records": (counted, {"ListShards", "GetShardIterator", "GetRecords"}),
}
"""What needs all of its permissions, but for the settings of a table."""


@pytest.mark.parametrize("view", [*WHOLE])
def test_what_cannot_do_without_a_permission_names_it(view: str, make: Make) -> None:
    scene = whole(make)
    look, operations = WHOLE[view]

    async def seen() -> set[str]:
        async with scene.inspector() as inspector:
            try:
                await look(inspector, scene.name)
            except ShardwayError as fault:
                return {one for one in operations if one in str(fault)}
            assert set(inspector.calls) == operations
            return {one.action.partition(":")[2] for one in inspector.missing}

    assert asyncio.run(seen()) == set()
    for operation in sorted(operations):
        scene.local.faults.add(Fault(how="access_denied", operation=operation))
        assert asyncio.run(seen()) == {operation}
        scene.local.faults.clear()


def test_the_calls_that_are_seen_are_those_of_the_policy_statement_by_statement(make: Make) -> None:
    scene = whole(make)
    scene.local.reset_stats()

    async def look() -> set[tuple[str, str]]:
        async with scene.inspector() as inspector:
            seen: set[tuple[str, str]] = set()
            plain = inspector.wire.call

            async def call(service: str, operation: str, body: bytes, **more: Any) -> bytes:
                seen.add((service, operation))
                return await plain(service, operation, body, **more)

            inspector.wire.call = call  # type: ignore[method-assign]
            for view, _ in [*VIEWS.values(), *WHOLE.values()]:
                await view(inspector, scene.name)
            await inspector.snapshot(scene.name, scene.name)
            return seen

    by_statement: dict[str, set[str]] = {}
    for service, operation in asyncio.run(look()):
        action = f"{service}:{operation}"
        by_statement.setdefault(STATEMENTS[action], set()).add(action)
    policy = json.loads((ROOT / INSPECT_POLICY).read_text(encoding="utf-8"))
    allowed = {one["Sid"]: one["Action"] for one in policy["Statement"]}
    assert allowed.pop("OnlyForEncryptedStreams") == "kms:Decrypt"
    for action, name in ASKED_STATEMENTS.items():
        assert allowed.pop(name) == action
    assert by_statement == {name: set(actions) for name, actions in allowed.items()}
    assert {action.partition(":")[2] for action in STATEMENTS} == set(scene.local.stats().operations)


# --- bad input ------------------------------------------------------------------------------------


def test_refusals_for_a_rate_leave_the_rest_and_are_told(make: Make) -> None:
    scene = whole(make)
    scene.local.faults.add(Fault(how="throttle", operation="Scan"))
    taken = scene.snapshot()
    assert taken.application is not None
    assert (taken.application.listed, taken.application.leases) == (False, [])
    assert taken.stream is not None
    assert taken.stream.shards is not None
    assert taken.refused["Scan"] >= 3
    assert not any(one.lacks_permission for one in taken.missing)
    found = {one.id: one for one in examine(taken).findings}
    assert "Scan was refused" in found["SHW-D044"].evidence[0]
    assert found.keys() & {"SHW-D003", "SHW-D030", "SHW-D038"} == set()
    checked = check_leases(taken.application)
    assert (checked.status.name, checked.remarks) == ("UNKNOWN", [])


def test_a_table_that_is_no_lease_table(make: Make) -> None:
    scene = make()
    scene.table(key="customer")
    scene.row({"customer": "one"})
    with pytest.raises(OptionError, match=r"has the key \['customer'\].*it is no lease table"):
        scene.snapshot()


def test_a_table_with_the_key_of_leases_and_other_rows(make: Make) -> None:
    scene = make()
    scene.table()
    for number in range(20):
        scene.row({"leaseKey": f"order-{number}", "price": number, "checkpoint": number})
    found = {one.id for one in examine(scene.snapshot()).findings}
    assert "SHW-D038" in found


@pytest.mark.parametrize(
    "row",
    [
        {"leaseCounter": "1", "checkpoint": "LATEST"},
        {"leaseCounter": 1, "checkpoint": 7},
        {"leaseCounter": 1, "checkpoint": "soon"},
        {"leaseCounter": 1},
        {"leaseCounter": 1, "checkpoint": "LATEST", "startingHashKey": "many"},
        {"leaseCounter": 1, "checkpoint": "LATEST", "ownerSwitchesSinceCheckpoint": "x"},
        {"leaseCounter": 1, "checkpoint": "LATEST", "parentShardId": 5},
        {"leaseCounter": 1, "checkpoint": "LATEST", "throughputKBps": "fast"},
        {"leaseCounter": 1, "checkpoint": "LATEST", "leaseOwner": 9},
        {"leaseCounter": 1, "checkpoint": "LATEST", "checkpointOwner": frozenset({"a"})},
        {"leaseCounter": 1, "checkpoint": "LATEST", "childShardIds": "abc"},
        {"leaseCounter": 1, "checkpoint": "LATEST", "shardwayStream": 4},
        {"leaseCounter": 1, "checkpoint": "LATEST", "shardwayProcess": 4},
        {"leaseCounter": 1, "checkpoint": "LATEST", "readUntilMillis": 10**30},
    ],
    ids=repr,
)
def test_a_row_with_wrong_types_hides_no_other_and_breaks_nothing(row: dict[str, Any], make: Make) -> None:
    scene = make(shards=1)
    scene.at_tip()
    scene.row({**row, "leaseKey": "odd"})
    taken = scene.snapshot()
    assert taken.application is not None
    assert shard_id(0) in {one.key for one in taken.application.leases}
    examine(taken)


# --- every kind of table --------------------------------------------------------------------------

KINDS = ("kcl 1.x", "kcl 2.x", "kcl 3.x", "shardway")


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_of_each_consumer_show_what_is_wrong_and_nothing_else(kind: str, make: Make) -> None:
    scene = make(kind=kind)
    numbers = scene.at_tip()
    clock = {"SHW-D021"}  # other tests have set it forward

    def ids() -> set[str]:
        return {one.id for one in examine(scene.snapshot()).findings} - clock

    assert ids() == set()
    scene.advance(25)
    assert ids() == {"SHW-D018"}  # no counter has moved
    scene.lease(0, numbers[0], counter=9, owner=None)
    scene.lease(1, numbers[1], counter=9, switches=2)
    assert ids() == {"SHW-D003", "SHW-D017"} | ({"SHW-D033"} if kind == "kcl 3.x" else set())
