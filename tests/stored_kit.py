"""What Shardway stores, of each kind: the values, and the code's own way to write them.

::

    scripts/run python -m tests.stored_kit FOLDER    # the forms of this code, as files
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import json
import random
import sqlite3
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.aws.dynamodb.values import typed_item
from shardway.core.leases import Checkpoint, Done, LeaseRow, Write, writes
from shardway.core.leases.mirror import Create, MirroredRows
from shardway.core.leases.worker_row import WorkerRow
from shardway.core.ledger.letter import Letter
from shardway.core.lineage import Lineage
from shardway.local.journal import Journal
from shardway.local.model import KinesisModel, Limits
from shardway.model import HASH_KEY_MAX, ListedShard, Position, StartingPosition
from shardway.pipeline.job.file.model import Window
from shardway.spark.leases.lease_position import marks_of
from shardway.spark.offsets import RangeStart, StreamOffset
from shardway.spark.positions import Kind, ShardPosition
from shardway.spark.stamps import Stamp, key_labels, position_labels, seal
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.sql import POSTGRES, Statements
from shardway.stores.sqlite import SqliteLeaseTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = Path(__file__).resolve().parent / "fixtures" / "stored"
NAME = "leases"
APPLICATION = "billing"
SEQUENCE = 49680422878816985956712234883511993830675535596124897330
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CREATED_S = 1_763_722_800
NOW_S = 1_763_726_400.0
PROCESS = "00aa11bb22cc33dd/w1"


def shard(number: int) -> str:
    return f"shardId-{number:012d}"


def at(offset: int, sub: int = 0) -> Checkpoint:
    return Checkpoint.at(Position(SEQUENCE + offset, sub))


# --- leases and workers ---------------------------------------------------------------------------

FULL = LeaseRow(
    key=f"123456789012:orders:1700000000:{shard(3)}",
    counter=7,
    checkpoint=at(0, 4),
    owner="w2",
    checkpoint_owner="w1",
    pending=at(5, 1),
    pending_state=b"\x00state\xff",
    switches=2,
    parents=frozenset({shard(1), shard(2)}),
    children=frozenset({shard(5)}),
    first_hash_key=0,
    last_hash_key=HASH_KEY_MAX,
    stream="123456789012:orders:1700000000",
    shard_id=shard(3),
    throughput_kib_s=6.750849,
    entity="LEASE",
    read_until_ms=1_763_722_800_123,
)
LEASES = [
    LeaseRow(key=shard(0)),
    LeaseRow(key=shard(1), owner="ü\n'\"x", counter=12, checkpoint=Checkpoint.LATEST),
    LeaseRow(key=shard(2), checkpoint=Checkpoint.AT_TIMESTAMP, parents=frozenset({shard(0)})),
    FULL,
    LeaseRow(key=shard(4), counter=90, checkpoint=Checkpoint.SHARD_END, children=frozenset({shard(6), shard(7)})),
    LeaseRow(key=shard(5), counter=2**40, owner="w1", checkpoint=Checkpoint.parse("000049680422878816", 3)),
    LeaseRow(key=shard(6), pending=Checkpoint.SHARD_END, checkpoint=at(9), owner="w1", throughput_kib_s=0.0),
]
"""Each word and kind of checkpoint, each attribute of a lease."""
BEFORE = LeaseRow(key=shard(20), checkpoint=Checkpoint.TRIM_HORIZON)
AFTER = LeaseRow(
    key=shard(20),
    counter=7,
    checkpoint=at(3, 2),
    owner="w2",
    pending=at(4),
    pending_state=b"half",
    children=frozenset({shard(21)}),
    first_hash_key=5,
    last_hash_key=2**127,
    throughput_kib_s=1.5,
    read_until_ms=1_763_722_900_000,
)
"""What `lived` makes of the row before."""
WORKERS = [
    WorkerRow(
        worker_id="w1",
        counter=17,
        failover_s=12.345,
        version="3.1",
        held=frozenset({"a", "b"}),
        wanted=frozenset({"c"}),
        given={"b": "w2", "a": "ü"},
        warm=frozenset({"d"}),
        leaving=True,
        leases_max=3,
        avoids=frozenset({"e"}),
        stream=ARN,
    ),
    WorkerRow(worker_id="w2", failover_s=10.0),
]
LEASES.append(replace(FULL, key=shard(30), owner="w1", process=PROCESS, of_stream=f"{ARN} {CREATED_S}"))
WORKERS.append(replace(WORKERS[0], worker_id="w3", process=PROCESS))


def lived() -> list[Callable[[LeaseRow], Write]]:
    """What a lease goes through: each a function from the row to the next write."""
    return [
        lambda row: writes.take(row, "w1"),
        lambda row: writes.renew(row, 2.25),
        lambda row: writes.checkpoint(row, at(1, 7), 1.5, read_until_ms=1_763_722_900_000),
        lambda row: writes.prepare(row, at(2), b"state"),
        lambda row: writes.metadata(shard(20), children=frozenset({shard(21)}), hash_range=(5, 2**127)),
        lambda row: writes.ask_handoff(row, "w2"),
        lambda row: writes.give(row, "w2", at(3)),
        lambda row: writes.checkpoint(row, at(3, 2)),
        lambda row: writes.prepare(row, at(4), b"half"),
    ]


async def _fill(table: Any) -> None:
    await table.ensure()
    for row in [*LEASES, BEFORE]:
        assert isinstance(await table.create(row), Done)
    for make in lived():
        assert isinstance(await table.write(make(await table.get(BEFORE.key))), Done)
    for worker in WORKERS:
        assert isinstance(await table.put_worker(worker), Done)


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in values).encode()


async def _dynamodb_leases() -> bytes:
    """Items as DynamoDB has them, in its JSON."""
    table = MemoryLeaseTable()
    await _fill(table)
    rows = sorted((await table.scan()).rows, key=lambda row: row.key)
    return _lines(typed_item(row.attributes()) for row in rows)


async def _dynamodb_workers() -> bytes:
    return _lines(typed_item(row.attributes()) for row in WORKERS)


async def _sqlite() -> bytes:
    """A file's content, as SQL."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "leases.sqlite"
        table: Any = SqliteLeaseTable(path, NAME)
        opened = table.of(APPLICATION)
        await _fill(opened)
        await opened.close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return "\n".join([*connection.iterdump(), ""]).encode()


async def _postgres() -> bytes:
    """The statements that make the tables, and fill them."""
    statements = Statements(NAME, POSTGRES, APPLICATION)
    made: list[Any] = [(text, []) for text in statements.make()]
    made += [statements.create(row) for row in [*LEASES, AFTER]]
    made += [statements.put_worker(row) for row in WORKERS]
    return _lines([text, [_plain(value) for value in values]] for text, values in made)


def _plain(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


# --- Spark ----------------------------------------------------------------------------------------

POSITIONS = {
    shard(0): ShardPosition(Kind.ENDED, 1_763_722_801_000),
    shard(1): ShardPosition(Kind.NEXT, 1_763_722_802_123, SEQUENCE),
    shard(2): ShardPosition(Kind.AFTER, 1_763_722_803_000, SEQUENCE + 1),
    shard(3): ShardPosition(Kind.SINCE, 1_763_722_804_000),
    shard(4): ShardPosition(Kind.SINCE, 1_763_722_805_000, SEQUENCE + 2),
    "shardId-odd": ShardPosition(Kind.BEGINNING, 0),
}
"""Each kind of position."""
OFFSETS = [
    StreamOffset(stream_arn=ARN, created_s=CREATED_S, cut_ms=0),
    StreamOffset(
        stream_arn=ARN,
        created_s=CREATED_S,
        cut_ms=1_763_722_899_999,
        shards=POSITIONS,
        starts={shard(0): RangeStart(SEQUENCE - 10, 1_763_722_700_001), shard(2): RangeStart(SEQUENCE, 0)},
        tasks=12,
        losses=3,
    ),
]
_QUARTER = (HASH_KEY_MAX + 1) // 4
LINEAGE = Lineage(
    [
        ListedShard(
            shard_id=one,
            parents=(shard(0),) if one in (shard(3), shard(4)) else (),
            first_hash_key=_QUARTER * (number % 4),
            last_hash_key=_QUARTER * (number % 4 + 1) - 1,
            first_sequence_number=number,
            last_sequence_number=number + 1 if number == 0 else None,
        )
        for number, one in enumerate(POSITIONS)
    ]
)


async def _spark_offsets() -> bytes:
    return _lines(one.to_dict() for one in OFFSETS)


async def _spark_leases() -> bytes:
    """The rows of a query with an ``applicationName``, once it has written them."""
    table, rows = MemoryLeaseTable(), MirroredRows([])
    rows.want(marks_of(OFFSETS[1], LINEAGE, StartingPosition.TRIM_HORIZON))
    while steps := rows.steps():
        for step in steps:
            if isinstance(step, Create):
                rows.learn(step.row.key, await table.create(step.row))
            else:
                assert isinstance(step, Write)
                rows.learn(step.key, await table.write(step))
    return _lines(typed_item(rows.rows[key].attributes()) for key in sorted(rows.rows))


STAMPS = [
    (Stamp("orders", shard(3), str(SEQUENCE), 5), b'{"id": 17}'),
    (Stamp("orders", "shardId-odd", "49680427684293065062083562537002582286095000649863266306", 0, 2**40), b""),
    (Stamp(key="ü-17"), bytes(range(256))),
]


def envelope(stamp: Stamp, data: bytes) -> bytes:
    if stamp.key is not None:
        return seal(key_labels([stamp.key]), [data])[0]
    indexes = None if stamp.row_index is None else [stamp.row_index]
    assert stamp.stream is not None
    assert stamp.shard_id is not None
    assert stamp.sequence_number is not None
    assert stamp.sub_sequence_number is not None
    place = ([stamp.stream], [stamp.shard_id], [stamp.sequence_number], [stamp.sub_sequence_number])
    return seal(position_labels(*place, indexes), [data])[0]


async def _stamps() -> bytes:
    return "".join(envelope(*one).hex() + "\n" for one in STAMPS).encode()


# --- dead letters ---------------------------------------------------------------------------------

_AT = dt.datetime(2026, 11, 22, 18, 21, 13, 123456, tzinfo=dt.UTC)
LETTERS = [
    Letter(
        stream=ARN,
        shard_id=shard(3),
        position=Position(SEQUENCE, 2),
        part=4,
        attempts=9,
        error_type="ValueError",
        error_message="no order: 'ü'\n",
        written_at=_AT,
        worker="w1",
        token=17,
        arrived_at=_AT - dt.timedelta(hours=1),
        partition_key="customer-17",
        explicit_hash_key=HASH_KEY_MAX,
        data=b"\x00data\xff",
    ),
    Letter(stream="orders", shard_id=shard(0), position=Position(1), attempts=1, error_type="Stall", written_at=_AT),
    Letter(
        stream="orders",
        shard_id=shard(0),
        position=Position(2),
        attempts=1,
        error_type="KeyError",
        written_at=_AT.astimezone(dt.timezone(dt.timedelta(hours=-5))),
        left_out_bytes=1_048_577,
    ),
]


async def _letters() -> bytes:
    return b"".join(one.to_json() + b"\n" for one in LETTERS)


# --- the local Kinesis ----------------------------------------------------------------------------


def model() -> KinesisModel:
    return KinesisModel(clock=lambda: NOW_S, rng=random.Random(1), limits=Limits(per_shard=False))


def use(service: KinesisModel) -> None:
    """One of each change that a journal keeps."""

    def call(operation: str, **request: Any) -> Any:
        answer = service.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None

    def put(*keys: str) -> None:
        records = [{"Data": base64.b64encode(key.encode() * 3).decode(), "PartitionKey": key} for key in keys]
        call("PutRecords", StreamName="orders", Records=records)

    call("CreateStream", StreamName="orders", ShardCount=2)
    call("CreateStream", StreamName="gone", ShardCount=1)
    put("a", "b", "c", "d")
    call("SplitShard", StreamName="orders", ShardToSplit=shard(0), NewStartingHashKey=str(2**126))
    put("e", "f", "g")
    call("MergeShards", StreamName="orders", ShardToMerge=shard(2), AdjacentShardToMerge=shard(3))
    put("h")
    call("AddTagsToStream", StreamName="orders", Tags={"team": "billing"})
    call("IncreaseStreamRetentionPeriod", StreamName="orders", RetentionPeriodHours=48)
    arn = call("DescribeStreamSummary", StreamName="orders")["StreamDescriptionSummary"]["StreamARN"]
    call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="reports")
    call("DeleteStream", StreamName="gone")


def told(service: KinesisModel) -> dict[str, Any]:
    """All that a client can see of a service: streams, shards, consumers, tags and records."""

    def call(operation: str, **request: Any) -> Any:
        return json.loads(service.handle(operation, json.dumps(request).encode()))

    found: dict[str, Any] = {"names": call("ListStreams")["StreamNames"]}
    for name in found["names"]:
        summary = call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]
        shards = call("ListShards", StreamName=name)["Shards"]
        records = {}
        for one in shards:
            where = {"StreamName": name, "ShardId": one["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
            iterator = call("GetShardIterator", **where)["ShardIterator"]
            records[one["ShardId"]] = call("GetRecords", ShardIterator=iterator)["Records"]
        found[name] = {
            "summary": summary,
            "shards": shards,
            "consumers": call("ListStreamConsumers", StreamARN=summary["StreamARN"])["Consumers"],
            "tags": call("ListTagsForStream", StreamName=name)["Tags"],
            "records": records,
        }
    return found


async def _journal() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder))
        service = model()
        journal.load(service, lambda _: None)
        service.keep_in(journal.record)
        use(service)
        journal.record_clock(3_600.0)
        elsewhere = model()
        elsewhere.keep_in(journal.recording("eu-west-1"))
        use(elsewhere)
        journal.close()
        return (Path(folder) / "journal").read_bytes()


# --- tables of jobs -------------------------------------------------------------------------------


class Recorded:
    """Stands for a DataFrame and its writer: keeps the options."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def option(self, name: str, value: str) -> Recorded:
        self.told[name] = value
        return self

    def get(self, *_: object) -> str:
        return "true"

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Recorded:
        return self


class Batch(NamedTuple):
    """As a table's commit has it."""

    writer: str = "f3a1c0de-0000-4000-8000-000000000001/0badcafe"
    batch_id: int = 12
    bounds: str | None = "00112233445566778899aabbccddeeff"


BATCHES = [Batch(), Batch("by-hand", 0, None)]


async def _delta() -> bytes:
    from shardway.pipeline.tables.delta import DeltaSink
    from shardway.pipeline.tables.table_sink import Commit

    return _lines(_appended(DeltaSink("/tables/orders"), Commit(*one)) for one in BATCHES)


async def _iceberg() -> bytes:
    from shardway.pipeline.tables.iceberg import IcebergSink
    from shardway.pipeline.tables.table_sink import Commit

    return _lines(_appended(IcebergSink("local.orders"), Commit(*one)) for one in BATCHES)


def _appended(sink: Any, commit: Any) -> dict[str, str]:
    rows = Recorded()
    sink._append(rows, commit)
    return rows.told


# --- a state of Spark's ---------------------------------------------------------------------------

WITHIN = 600 * 10**6
KEYS: list[Any] = [{"id": "a", "n": 1}, {"id": "ü", "n": None}, {"id": "a", "n": 2**40}, 17]
ROWS = [(2**63, 5, 1_000), (7, 9, 2_000), (2**63, 5, 3_000), (7, 8, WITHIN), (1, 1, None)]
"""Halves of a digest, and a time in microseconds."""


WINDOW = Window(
    length="1 minute",
    late_by="10 seconds",
    keys=("value.order_id", "partition_key"),
    aggregates={"orders": "count(*)", "größter Betrag": "max( value.amount )"},
)


async def _exact_repeats() -> bytes:
    from shardway.pipeline import exact_deduplication

    kept = exact_deduplication.BucketKeys()
    kept.choose(ROWS, WITHIN)
    digests = [exact_deduplication._digest(key).hex() for key in KEYS]
    return _lines([{"state": kept.write().hex(), "digests": digests, "buckets": exact_deduplication.BUCKETS}])


async def _windows() -> bytes:
    from shardway.pipeline.job.run.window_note import note_of

    return note_of(WINDOW)


WRITERS = {
    "leases_dynamodb.jsonl": _dynamodb_leases,
    "workers_dynamodb.jsonl": _dynamodb_workers,
    "leases_sqlite.sql": _sqlite,
    "leases_postgres.jsonl": _postgres,
    "spark_offsets.jsonl": _spark_offsets,
    "spark_leases_dynamodb.jsonl": _spark_leases,
    "stamps.txt": _stamps,
    "dead_letters.jsonl": _letters,
    "journal.bin": _journal,
    "delta_commits.jsonl": _delta,
    "iceberg_commits.jsonl": _iceberg,
    "exact_repeats.jsonl": _exact_repeats,
    "windows.json": _windows,
}
VERSIONS = ("0.3",)
"""The folders of fixtures."""


def leases() -> list[LeaseRow]:
    """The leases that the tables have, by key."""
    return sorted([*LEASES, AFTER], key=lambda row: row.key)


def fixture(version: str, name: str) -> bytes:
    """A file as a version wrote it."""
    return (FOLDER / version / name).read_bytes()


def lines_of(version: str, name: str) -> list[Any]:
    """The values of a file with a value a line."""
    return [json.loads(line) for line in fixture(version, name).splitlines()]


def written(name: str) -> bytes:
    """A file as this code writes it."""
    return asyncio.run(WRITERS[name]())


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in WRITERS:
        (folder / name).write_bytes(written(name))


if __name__ == "__main__":
    main()
