"""Applications whose leases are in SQLite and in PostgreSQL are moved as those in DynamoDB are."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import boto3
import msgspec
import pytest

from shardway import CheckpointOptions, ConnectionOptions, Consumer, LeaseOptions, PollingOptions
from shardway.checkpoints import Prompt
from shardway.core.leases import Checkpoint, LeaseRow
from shardway.inspect import (
    ChangedError,
    Goal,
    Inspector,
    Life,
    PositionsReport,
    Store,
    apply_plan,
    lease_table,
    plan_import,
    plan_seek,
    positions_from,
    positions_of,
)
from shardway.model import Position
from shardway.stores.postgres import PostgresLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.stores.lease_kit import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardway.local import LocalKinesis
    from shardway.ports import LeaseTable

SHARDS = ["shardId-000000000000", "shardId-000000000001"]
TABLE = "moved"
DEADLINE_S = 60.0
NOW = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
pytestmark = pytest.mark.xdist_group("stores")


class Place:
    """Where an application's leases are, as the commands name it and as a consumer is given it."""

    def __init__(self, store: Store, of_consumer: Callable[[], Any], connection: ConnectionOptions) -> None:
        self.store = store
        self.of_consumer = of_consumer
        self.connection = connection
        self.name = f"app-{uuid.uuid4().hex[:8]}"

    def table(self, name: str | None = None) -> LeaseTable:
        return lease_table(self.store, name or self.name, self.connection)

    async def make(self, *rows: LeaseRow) -> None:
        table = self.table()
        await table.ensure()
        for row in rows:
            await table.create(row)
        await table.close()

    async def rows(self, name: str | None = None) -> dict[str, LeaseRow]:
        table = self.table(name)
        found = {one.key: one for one in (await table.scan()).rows}
        await table.close()
        return found


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, local: LocalKinesis, tmp_path: Path) -> Place:
    connection = ConnectionOptions(endpoint_url=local.endpoint_url, region="us-east-1", credentials=CREDENTIALS)
    if request.param == "sqlite":
        path = tmp_path / "leases.sqlite"
        return Place(Store.parse(f"sqlite:{path}", TABLE), lambda: SqliteLeaseTable(path, TABLE), connection)
    postgres = request.getfixturevalue("postgres")
    dsn = f"postgresql://{postgres['user']}@/{postgres['database']}?host={quote(postgres['host'])}"
    return Place(Store.parse(dsn, TABLE), lambda: PostgresLeaseTable(dsn, TABLE), connection)


class Stream:
    """A stream of two shards with some records in each."""

    def __init__(self, local: LocalKinesis) -> None:
        self.name = f"stream-{uuid.uuid4().hex[:8]}"
        client = boto3.client(
            "kinesis", endpoint_url=local.endpoint_url, region_name="us-east-1", aws_access_key_id="a",
            aws_secret_access_key="b",
        )  # fmt: skip
        client.create_stream(StreamName=self.name, ShardCount=2)
        self.numbers: dict[str, list[int]] = {}
        for shard, key in zip(SHARDS, ("0", str(2**128 - 1)), strict=True):
            puts = [
                client.put_record(StreamName=self.name, PartitionKey="k", ExplicitHashKey=key, Data=b"%d" % number)
                for number in range(3)
            ]
            self.numbers[shard] = [int(one["SequenceNumber"]) for one in puts]
        client.close()

    def at(self, shard: str, number: int) -> Checkpoint:
        return Checkpoint.at(Position(self.numbers[shard][number], 0))


@pytest.fixture
def stream(local: LocalKinesis) -> Stream:
    return Stream(local)


async def test_a_seek_is_conditional_and_keeps_what_was_there(place: Place, stream: Stream) -> None:
    await place.make(
        LeaseRow(key=SHARDS[0], checkpoint=stream.at(SHARDS[0], 2), owner="gone", counter=4, read_until_ms=5),
        LeaseRow(key=SHARDS[1], checkpoint=stream.at(SHARDS[1], 1), counter=7),
    )
    before = await place.rows()
    kept: list[PositionsReport] = []
    async with Inspector(place.connection, calls_per_s=5.0) as inspector:
        goal = Goal(f"after:{stream.numbers[SHARDS[0]][0]}")
        plan = await plan_seek(inspector, place.name, goal, stream=stream.name, store=place.store, failover_s=0.2)
        assert [(one.shard_id, one.life) for one in plan.moves] == [(SHARDS[0], Life.SILENT)]
        assert await place.rows() == before  # a plan writes nothing
        table = place.table()
        done = await apply_plan(plan, table, keep=kept.append)
        after = await place.rows()
        assert (done.written, after[SHARDS[1]]) == ([SHARDS[0]], before[SHARDS[1]])
        moved = after[SHARDS[0]]
        assert (moved.checkpoint, moved.owner, moved.counter) == (stream.at(SHARDS[0], 0), None, 5)
        assert kept[0].shards[SHARDS[0]].sequence_number == str(stream.numbers[SHARDS[0]][2])
        with pytest.raises(ChangedError, match="nothing was written"):
            await apply_plan(plan, table, keep=kept.append)
        assert (await place.rows(), len(kept)) == (after, 1)
        await table.close()


async def test_positions_go_from_one_application_to_another(place: Place, stream: Stream, tmp_path: Path) -> None:
    await place.make(
        LeaseRow(key=SHARDS[0], checkpoint=stream.at(SHARDS[0], 1), counter=1),
        LeaseRow(key=SHARDS[1], checkpoint=Checkpoint.TRIM_HORIZON, counter=1),
    )
    other = f"{place.name}-2"
    async with Inspector(place.connection) as inspector:
        report = await inspector.application(place.name, place.store)
        file = tmp_path / "positions.json"
        file.write_bytes(msgspec.json.encode(positions_of(report.application, NOW)))
        document = positions_from(file, "positions", taken_at=NOW)
        plan = await plan_import(inspector, other, document, stream=stream.name, store=place.store)
        table = place.table(other)
        await table.ensure()
        done = await apply_plan(plan, table, keep=lambda found: None)
        await table.close()
    assert sorted(done.written) == SHARDS
    found, before = await place.rows(other), await place.rows()
    assert {key: row.checkpoint for key, row in found.items()} == {key: row.checkpoint for key, row in before.items()}


async def test_a_live_fleet_hands_over_and_goes_on_where_it_is_told(place: Place, stream: Stream) -> None:
    got: list[bytes] = []

    async def handle(batch: Any) -> None:
        got.extend(record.data for record in batch)

    consumer: Consumer[Any] = Consumer(
        stream.name,
        application=place.name,
        starting_position="TRIM_HORIZON",
        polling=PollingOptions(interval_s=0.05, idle_interval_s=0.1),
        checkpoints=CheckpointOptions(cadence=Prompt()),
        leases=LeaseOptions(table=place.of_consumer(), failover_s=2.0),
        connection=place.connection,
    )
    async with asyncio.timeout(DEADLINE_S), consumer, Inspector(place.connection, calls_per_s=5.0) as inspector:
        running = asyncio.create_task(consumer.run_batches(handle))
        while len(got) < 6:
            await asyncio.sleep(0.02)
        plan = await plan_seek(inspector, place.name, Goal("trim-horizon"), store=place.store)
        assert [(one.life, one.by_shardway) for one in plan.moves] == [(Life.LIVE, True)] * 2
        table = place.table()
        with pytest.raises(ChangedError, match="nothing was written"):
            await apply_plan(plan, table, keep=lambda found: None)
        done = await apply_plan(plan, table, keep=lambda found: None, handoff=True)
        assert (done.complete, sorted(done.handed_over)) == (True, SHARDS)
        while len(got) < 12:
            await asyncio.sleep(0.02)
        await table.close()
        await consumer.close()
        await running
    assert sorted(got[6:]) == sorted(got[:6])
