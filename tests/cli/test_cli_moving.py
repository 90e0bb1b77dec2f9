"""``shardway app seek``, ``import`` and ``apply``: what is written, what is refused, and what is kept before."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway import CheckpointOptions, ConnectionOptions, Consumer, LeaseOptions, PollingOptions
from shardway.aws.dynamodb.client import DynamoClient
from shardway.checkpoints import Prompt
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.inspect import ChangedError, Goal, Inspector, Life, PositionsReport, apply_plan, lease_table, plan_seek
from shardway.inspect.applications.stores import Store
from shardway.local import LocalKinesis
from shardway.model import Position
from shardway.stores.sqlite import SqliteLeaseTable
from shardway.testing import Fault
from tests.cli import tables_kit
from tests.cli.tables_kit import SHARDS, make_table, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., Any]

DEADLINE_S = 60.0
pytestmark = pytest.mark.xdist_group("moved-tables")


@pytest.fixture
def local(service: LocalKinesis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalKinesis]:
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield service
    service.faults.clear()


def lease(shard_id: str, checkpoint: str, counter: int = 1, *, owner: str | None = None, **more: Any) -> dict[str, Any]:
    """A row with what another writer has added, which a move keeps."""
    added = {"ownerSwitchesSinceCheckpoint": {"N": "3"}, "somethingElse": {"S": "kept"}}
    return {**tables_kit.lease(shard_id, checkpoint, counter, owner), **added, **more}


def rows(dynamodb: Any, table: str) -> dict[str, dict[str, Any]]:
    items = dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    return {one["leaseKey"]["S"]: {name: next(iter(value.values())) for name, value in one.items()} for one in items}


def test_a_preview_writes_nothing_and_a_time_becomes_the_record_before_it(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    kinesis.create_stream(StreamName="times", ShardCount=2)
    old = put(kinesis, "times", 0)
    local.clock.advance(3600)
    aggregate = encode_aggregate([("k", b"a", None), ("k", b"b", None)])
    inner = put(kinesis, "times", 0, aggregate)
    local.clock.advance(600)
    tip = put(kinesis, "times", 0)
    local.clock.advance(60)
    make_table(dynamodb, "times-app", lease(SHARDS[0], tip), lease(SHARDS[1], "TRIM_HORIZON"))
    before = rows(dynamodb, "times-app")
    done = run("app", "seek", "times-app", "--stream", "times", "--to", "5m ago", "-o", "json")
    assert done.status == 0, done.stderr
    plan = json.loads(done.stdout)
    (move,) = plan["moves"]
    assert (move["checkpoint"], move["sub_sequence_number"]) == (inner, 1)
    assert -80 < move["distance_s"] < -50
    assert list(plan["stays"]) == [SHARDS[1]]  # it has no record at all
    words = ("app", "seek", "times-app", "--stream", "times", "-o", "json", "--rate", "5", "--to")
    assert json.loads(run(*words, "30m ago").stdout)["moves"][0]["checkpoint"] == old
    assert json.loads(run(*words, "3h ago").stdout)["moves"][0]["checkpoint"] == "TRIM_HORIZON"
    assert json.loads(run(*words, f"seq:{inner}").stdout)["moves"][0]["checkpoint"] == old
    assert json.loads(run(*words, f"seq:{inner}/1").stdout)["moves"][0]["sub_sequence_number"] == 0
    assert json.loads(run(*words, "latest").stdout)["moves"] == []  # it is there already
    assert "20 m" not in run(*words, "nowhere").stdout
    text = run("app", "seek", "times-app", "--stream", "times", "--to", "30m ago").stdout
    assert "back" in text
    assert rows(dynamodb, "times-app") == before


def test_what_is_applied_is_confirmed_conditional_and_kept_before(
    run: Run, kinesis: Any, dynamodb: Any, tmp_path: Path
) -> None:
    kinesis.create_stream(StreamName="kept", ShardCount=2)
    first, second = put(kinesis, "kept", 0), put(kinesis, "kept", 0)
    pending: dict[str, Any] = {"pendingCheckpoint": {"S": second}, "pendingCheckpointSubSequenceNumber": {"N": "0"}}
    make_table(dynamodb, "kept-app", lease(SHARDS[0], second, counter=7, **pending), lease(SHARDS[1], "LATEST"))
    before = rows(dynamodb, "kept-app")
    words = ("app", "seek", "kept-app", "--stream", "kept", "--to", f"after:{first}", "--apply")
    refused = run(*words)
    assert (refused.status, "there is no terminal to confirm it" in refused.stderr) == (1, True)
    assert rows(dynamodb, "kept-app") == before
    done = run(*words, "--yes", "--save", "before.json")
    assert done.status == 0, done.stderr
    after = rows(dynamodb, "kept-app")
    assert after[SHARDS[1]] == before[SHARDS[1]]
    assert after[SHARDS[0]] == {
        "leaseKey": SHARDS[0], "leaseCounter": "8", "checkpoint": first, "checkpointSubSequenceNumber": "0",
        "ownerSwitchesSinceCheckpoint": "0", "somethingElse": "kept",
    }  # fmt: skip
    kept = json.loads((tmp_path / "before.json").read_text())
    assert kept["shards"][SHARDS[0]]["sequence_number"] == second
    again = run(*words, "--yes", "--save", "before.json")
    assert again.status == 0
    stays = "kept-app: 0 leases of 1 move, of the stream kept in us-east-1, account 123456789012"
    assert again.stdout.splitlines()[0] == stays
    back = run("app", "import", "kept-app", "before.json", "--stream", "kept", "--apply", "--yes", "-o", "json")
    assert back.status == 0, back.stderr
    assert json.loads(back.stdout)["written"] == [SHARDS[0]]
    assert rows(dynamodb, "kept-app")[SHARDS[0]]["checkpoint"] == second


def test_a_plan_is_for_the_rows_that_it_saw(run: Run, kinesis: Any, dynamodb: Any) -> None:
    kinesis.create_stream(StreamName="changed", ShardCount=2)
    numbers = [put(kinesis, "changed", 0) for _ in range(3)]
    make_table(dynamodb, "changed-app", lease(SHARDS[0], numbers[2]), lease(SHARDS[1], put(kinesis, "changed", 1)))
    plan = ("app", "seek", "changed-app", "--stream", "changed", "--to", "trim-horizon", "--plan", "plan.json")
    assert run(*plan).status == 0
    dynamodb.put_item(TableName="changed-app", Item=lease(SHARDS[0], numbers[1], counter=2))
    before = rows(dynamodb, "changed-app")
    done = run("app", "apply", "plan.json", "--yes")
    assert done.status == 1
    assert f"{SHARDS[0]}: the row has changed: it is at {numbers[1]}" in done.stderr
    assert rows(dynamodb, "changed-app") == before
    assert "File exists" in run(*plan).stderr  # a plan is not written over


@pytest.mark.parametrize("dies", [False, True])
def test_a_live_owner_of_the_kcl_keeps_its_leases(run: Run, kinesis: Any, dynamodb: Any, dies: bool) -> None:
    stream = f"owned-{dies}".lower()
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    number = put(kinesis, stream, 0)
    make_table(dynamodb, stream, lease(SHARDS[0], number, owner="kcl-worker"))
    stopped = threading.Event()

    def renew() -> None:
        counter = 1
        while not stopped.wait(0.2):
            counter += 1
            dynamodb.put_item(TableName=stream, Item=lease(SHARDS[0], number, counter, owner="kcl-worker"))

    owner = threading.Thread(target=renew)
    owner.start()
    try:
        words = ("app", "seek", stream, "--stream", stream, "--to", "trim-horizon", "--failover", "1s")
        shown = run(*words, "--plan", "plan.json")
        assert (shown.status, "1 of them have live owners" in shown.stdout) == (0, True), shown
        if dies:
            stopped.set()
            owner.join()
        before = rows(dynamodb, stream)
        done = run("app", "apply", "plan.json", "--yes", "--handoff")
        assert done.status == 1
        assert "the row has changed" in done.stderr
        if dies:
            assert rows(dynamodb, stream) == before
            assert run(*words, "--apply", "--yes").status == 0  # planned anew, it is silent
            assert rows(dynamodb, stream)[SHARDS[0]]["checkpoint"] == "TRIM_HORIZON"
            assert "leaseOwner" not in rows(dynamodb, stream)[SHARDS[0]]
        else:
            live = run(*words, "--apply", "--yes", "--handoff")
            assert live.status == 1
            assert rows(dynamodb, stream)[SHARDS[0]]["checkpoint"] == number
    finally:
        stopped.set()
        owner.join()


def allowed() -> set[str]:
    """What the policy allows beside what looking takes, where no table is made."""
    policy = json.loads((Path(__file__).parents[2] / "docs" / "iam" / "move.json").read_text())
    return {one for statement in policy["Statement"][:2] for one in statement["Action"]}


def recorded(call: Callable[..., Any], sent: set[str], table: Any) -> Callable[..., Any]:
    """Notes the operations of one table's client."""

    async def noting(self: DynamoClient, operation: str, *given: Any, **named: Any) -> Any:
        if self is table._client:
            sent.add(operation)
        return await call(self, operation, *given, **named)

    return noting


async def test_a_live_fleet_of_shardway_hands_over_and_goes_on_where_it_is_told(
    kinesis: Any, dynamodb: Any, local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesis.create_stream(StreamName="fleet", ShardCount=2)
    for number in range(3):
        put(kinesis, "fleet", 0, b"a%d" % number)
        put(kinesis, "fleet", 1, b"b%d" % number)
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        got.extend(record.data for record in batch)

    consumer: Consumer[Any] = Consumer(
        "fleet",
        application="fleet-app",
        starting_position="TRIM_HORIZON",
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        checkpoints=CheckpointOptions(cadence=Prompt()),
        leases=LeaseOptions(failover_s=2.0),
    )
    connection = ConnectionOptions()
    kept: list[PositionsReport] = []
    async with asyncio.timeout(DEADLINE_S), consumer, Inspector(calls_per_s=5.0) as inspector:
        running = asyncio.create_task(consumer.run_batches(handle))
        while len(got) < 6:
            await asyncio.sleep(0.02)
        plan = await plan_seek(inspector, "fleet-app", Goal("trim-horizon"))
        assert [(one.life, one.by_shardway) for one in plan.moves] == [(Life.LIVE, True)] * 2
        table = lease_table(Store(), "fleet-app", connection)
        with pytest.raises(ChangedError, match="nothing was written"):
            await apply_plan(plan, table, keep=kept.append)
        assert (kept, len(got)) == ([], 6)
        sent: set[str] = set()
        monkeypatch.setattr(DynamoClient, "call", recorded(DynamoClient.call, sent, table))
        done = await apply_plan(plan, table, keep=kept.append, handoff=True)
        assert {f"dynamodb:{operation}" for operation in sent} <= allowed()
        assert (done.complete, sorted(done.handed_over), sorted(done.written)) == (True, SHARDS, SHARDS)
        assert [one.at for one in kept[0].shards.values()] == ["after", "after"]
        while len(got) < 12:
            await asyncio.sleep(0.02)
        await table.close()
        await consumer.close()
        await running
    assert sorted(got[6:]) == sorted(got[:6])


async def test_a_shardway_worker_that_died_over_the_handoff(kinesis: Any, dynamodb: Any, local: LocalKinesis) -> None:
    """Its row and its lease stand still from the moment on at which it is asked."""
    from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
    from shardway.core.leases.worker_row import WorkerRow

    kinesis.create_stream(StreamName="died", ShardCount=1)
    at = Checkpoint.at(Position(int(put(kinesis, "died", 0)), 0))
    table = DynamoLeaseTable("died-app", ConnectionOptions())
    await table.ensure()
    await table.create(LeaseRow(key=SHARDS[0], owner="w1", counter=1, checkpoint=at))
    worker = WorkerRow(worker_id="w1", failover_s=0.5, counter=1)
    alive = True

    async def live() -> None:
        nonlocal worker
        while alive:
            worker = worker.next()
            await table.put_worker(worker)
            await asyncio.sleep(0.05)

    async with asyncio.timeout(DEADLINE_S), Inspector() as inspector:
        living = asyncio.create_task(live())
        plan = await plan_seek(inspector, "died-app", Goal("trim-horizon"), stream="died")

        async def until_asked() -> None:
            nonlocal alive
            while (row := await table.get(SHARDS[0])) is None or row.handoff_to is None:
                await asyncio.sleep(0.05)
            alive = False

        dying = asyncio.create_task(until_asked())
        done = await apply_plan(plan, table, keep=lambda found: None, handoff=True)
        await dying
        await living
        row = await table.get(SHARDS[0])
        await table.close()
    assert done.complete
    assert row is not None
    assert (row.owner, row.checkpoint) == (None, Checkpoint.TRIM_HORIZON)


def test_half_a_table_and_wrong_types(run: Run, kinesis: Any, dynamodb: Any) -> None:
    kinesis.create_stream(StreamName="half", ShardCount=2)
    number = put(kinesis, "half", 0)
    odd = {**lease(SHARDS[1], "LATEST"), "leaseCounter": {"S": "odd"}}
    make_table(dynamodb, "half-app", lease(SHARDS[0], number), odd, {"leaseKey": {"S": "x"}, "cv": {"S": "CLIENT"}})
    before = rows(dynamodb, "half-app")
    words = ("app", "seek", "half-app", "--stream", "half", "--to", "trim-horizon", "--apply", "--yes")
    done = run(*words)
    assert (done.status, f"this cannot be written: {SHARDS[1]}" in done.stderr) == (1, True)
    assert rows(dynamodb, "half-app") == before
    assert run(*words, "--shard", SHARDS[0]).status == 0
    after = rows(dynamodb, "half-app")
    assert (after[SHARDS[0]]["checkpoint"], after[SHARDS[1]]) == ("TRIM_HORIZON", before[SHARDS[1]])
    dynamodb.delete_item(TableName="half-app", Key={"leaseKey": {"S": SHARDS[1]}})  # the row of a shard is missing
    assert run(*words).status == 0
    made = rows(dynamodb, "half-app")[SHARDS[1]]
    assert (made["checkpoint"], made["endingHashKey"]) == ("TRIM_HORIZON", str(2**128 - 1))


def test_a_lost_answer_and_a_denied_write(run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis) -> None:
    kinesis.create_stream(StreamName="lost", ShardCount=2)
    make_table(
        dynamodb,
        "lost-app",
        lease(SHARDS[0], put(kinesis, "lost", 0)),
        lease(SHARDS[1], put(kinesis, "lost", 1)),
    )
    words = ("app", "seek", "lost-app", "--stream", "lost", "--to", "trim-horizon", "--apply", "--yes", "-o", "json")
    local.faults.add(Fault(how="access_denied", operation="UpdateItem", count=1))
    denied = json.loads(run(*words, "--save", "a.json").stdout)
    assert (list(denied["refused"]), denied["written"]) == ([SHARDS[0]], [SHARDS[1]])
    local.faults.add(Fault(how="lost_reply", operation="UpdateItem", count=1))
    done = run(*words, "--save", "b.json")
    assert (done.status, json.loads(done.stdout)["written"]) == (0, [SHARDS[0]])
    assert rows(dynamodb, "lost-app")[SHARDS[0]]["leaseCounter"] == "2"


def test_an_application_in_a_file_of_sqlite(run: Run, kinesis: Any, tmp_path: Path) -> None:
    kinesis.create_stream(StreamName="filed", ShardCount=1)
    first, second = (int(put(kinesis, "filed", 0)) for _ in range(2))
    path = tmp_path / "leases.sqlite"

    async def row(change: LeaseRow | None) -> LeaseRow | None:
        table = SqliteLeaseTable(path).of("filed-app")
        await table.ensure()
        if change is not None:
            await table.create(change)
        found = await table.get(SHARDS[0])
        await table.close()
        return found

    at = Checkpoint.at(Position(second, 0))
    asyncio.run(row(LeaseRow(key=SHARDS[0], checkpoint=at, owner="gone", counter=4, read_until_ms=5)))
    words = ("app", "seek", "filed-app", "--store", f"sqlite:{path}", "--stream", "filed", "--failover", "200ms")
    done = run(*words, "--to", f"seq:{second}", "--apply", "--yes")
    assert done.status == 0, done.stderr
    found = asyncio.run(row(None))
    assert found is not None
    assert (found.owner, found.counter, found.read_until_ms) == (None, 5, None)
    assert found.checkpoint == Checkpoint.at(Position(first, 0))


def test_after_a_reshard_the_parent_is_read_again_and_its_children_wait(
    run: Run, kinesis: Any, dynamodb: Any, local: LocalKinesis
) -> None:
    kinesis.create_stream(StreamName="split", ShardCount=1)
    put(kinesis, "split", 0)
    local.clock.advance(600)
    last = put(kinesis, "split", 0)
    kinesis.split_shard(StreamName="split", ShardToSplit=SHARDS[0], NewStartingHashKey=str(2**127))
    local.clock.advance(600)
    child = put(kinesis, "split", 0)
    make_table(dynamodb, "split-app", lease(SHARDS[1], child))  # the KCL has removed its parent, and lacks a child
    words = ("app", "seek", "split-app", "--stream", "split", "--apply", "--yes", "--rate", "5")
    done = run(*words, "--to", "15m ago", "-o", "json")
    assert done.status == 0, done.stderr
    found = {key: row["checkpoint"] for key, row in rows(dynamodb, "split-app").items()}
    assert (found[SHARDS[0]] < last, found[SHARDS[1]]) == (True, "TRIM_HORIZON")
    assert found["shardId-000000000002"] == "TRIM_HORIZON"
    assert json.loads(done.stdout)["written"] == [*SHARDS, "shardId-000000000002"]
    assert run(*words, "--to", "latest").status == 0
    found = {key: row["checkpoint"] for key, row in rows(dynamodb, "split-app").items()}
    assert (found[SHARDS[0]], found[SHARDS[1]]) == ("SHARD_END", child)
