"""Jobs over compressed records, and over what services of AWS put into a stream."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from tests.pipeline.job.job_running import HEAD, ONCE, World, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.spark

DEAD = '[dead_letters]\npath = "{folder}/dead"\n\n'
PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/rows"\n'
ROWS = "schema = 'order_id STRING NOT NULL, amount INT NOT NULL'\n"
UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
SQL = '[transform]\nsql = "SELECT value.*, data FROM records"\n'
BOMB = gzip.compress(bytes(2_000_000))


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def decode(format: str, *lines: str) -> str:
    return "\n".join(['[decode]\nformat = "' + format + '"', *lines]) + "\n"


JSON_AUTO = decode("json", 'compression = "auto"', "opened_bytes_max = 1_000_000", ROWS)


@pytest.mark.parametrize("more", ["", UNIQUE, SQL])
def test_compressed_json_becomes_rows_and_what_cannot_be_opened_a_dead_letter(world: World, more: str) -> None:
    """In one pass, behind a shuffle, and where the batch is kept for a transform."""
    good = [
        gzip.compress(order(1)),
        zstd.compress(order(2)),
        order(3),
        gzip.compress(order(4)[:5]) + gzip.compress(order(4)[5:]),
    ]
    bad = {
        gzip.compress(order(5))[:-3]: "it is gzip that is cut off",
        BOMB: "it is gzip, and it opens to more than 1000000 bytes",
        gzip.compress(b"") * 1_001: "it is gzip, and it has more than 1000 members",
        gzip.compress(b""): "not exactly one JSON object",
        b"": "not exactly one JSON object",
        zstd.compress(order(6, "x")): "amount is not int",
        gzip.compress(b'{"order_id": null, "amount": 1}'): "order_id is missing",
        gzip.compress(b"\xff"): "not valid UTF-8",
        zstd.compress(order(7)) + b"more": "it is no zstd, or broken",
    }
    world.put(*good, *(data for data in bad if data))
    del bad[b""]
    text = HEAD + JSON_AUTO + DEAD + more + PARQUET + ONCE
    ended = world.run(text)
    assert ended.errors == ""
    assert ended.summary["dead_letters"] == len(bad)
    columns = ["order_id", "amount", *(["data"] if more == SQL else [])]
    rows = world.rows("rows", *columns)
    assert [row[:2] for row in rows] == [(f"order-{number}", 1) for number in range(1, 5)]
    if more == SQL:
        assert [row[2] for row in rows] == good, "the data is as it came"
    assert dict(world.rows("dead", "data", "reason")) == bad

    world.forget_last_commit()
    assert world.run(text).code is ExitCode.DONE
    assert (len(world.rows("rows", "order_id")), len(world.rows("dead", "reason"))) == (len(good), len(bad))


def test_opened_bytes_are_a_value_of_their_own(world: World) -> None:
    world.put(gzip.compress(b"\xff\0"), b"plain")
    ended = world.run(HEAD + decode("bytes", 'compression = "gzip"') + DEAD + PARQUET + ONCE)
    assert ended.errors == ""
    assert world.rows("rows", "value") == [(b"\xff\0",)]
    assert world.rows("dead", "data", "reason") == [(b"plain", "it is no gzip, or broken")]


def test_records_that_open_to_much_come_in_pieces(world: World) -> None:
    """A hundred records of a few kilobytes open to more than a batch of Arrow should hold."""
    world.put(*[gzip.compress(bytes(3_000_000) + str(number).encode()) for number in range(30)])
    sql = '[transform]\nsql = "SELECT octet_length(value) AS size FROM records"\n'
    ended = world.run(HEAD + decode("bytes", 'compression = "gzip"') + DEAD + sql + PARQUET + ONCE)
    assert ended.errors == ""
    assert sum(size for (size,) in world.rows("rows", "size")) == 30 * 3_000_000 + 50


def logs(*messages: str, **more: Any) -> bytes:
    found = {
        "messageType": "DATA_MESSAGE",
        "owner": "1",
        "logGroup": "g",
        "logStream": "s",
        "subscriptionFilters": ["f"],
        "logEvents": [{"id": str(at), "timestamp": 1_000 * at, "message": one} for at, one in enumerate(messages)],
        **more,
    }
    return gzip.compress(json.dumps(found).encode().replace(b"HALF", rb"\ud83d"))


def test_log_events_of_cloudwatch(world: World) -> None:
    control = logs("test", messageType="CONTROL_MESSAGE")
    fields = [{"id": "9", "timestamp": 0, "message": "", "extractedFields": {"level": "E", "code": None}}]
    wrong = logs("x", logEvents=[{"id": "1", "timestamp": -1, "message": "secret"}])
    world.put(logs("first", "so HALF"), control, logs(), logs(logEvents=fields), wrong, b"{}")
    sql = (
        "[transform]\nsql = '''SELECT log_group, event.id, unix_millis(event.timestamp) AS at, event.message, "
        "event.extracted_fields['level'] AS level FROM (SELECT value.*, explode(value.log_events) AS event "
        "FROM records) WHERE message_type = 'DATA_MESSAGE' '''\n"
    )
    ended = world.run(HEAD + decode("cloudwatch-logs") + DEAD + sql + PARQUET + ONCE)
    assert ended.errors == ""
    rows = world.rows("rows", "log_group", "id", "at", "message", "level")
    assert rows == [("g", "0", 0, "first", None), ("g", "1", 1_000, "so \ufffd", None), ("g", "9", 0, "", "E")]
    dead = dict(world.rows("dead", "data", "reason"))
    assert set(dead) == {wrong, b"{}"}
    assert all(reason.startswith("it is no record of CloudWatch Logs: ") for reason in dead.values())
    assert "$.logEvents[0].timestamp" in dead[wrong]


def test_rows_of_dms(world: World) -> None:
    record = {
        "data": {"id": 7, "price": 1.10},
        "metadata": {"record-type": "data", "operation": "update", "schema-name": "shop", "table-name": "orders"},
    }
    data = json.dumps(record).encode()
    with_time = data.replace(b'"operation"', b'"timestamp": "2026-11-28T15:00:01.123456Z", "operation"')
    early = data.replace(b'"operation"', b'"timestamp": "0001-01-01T00:00:00+14:00", "operation"')
    control = json.dumps({"metadata": {"record-type": "control", "operation": "create-table"}}).encode()
    world.put(data, with_time, control, early, b'{"data": {}}')
    ended = world.run(HEAD + decode("dms") + DEAD + PARQUET + ONCE)
    assert ended.errors == ""
    at = dt.datetime(2026, 11, 28, 15, 0, 1, 123456)  # Parquet has UTC without saying so
    rows = world.rows("rows", "operation", "table_name", "timestamp", "data", "before_image")
    image = '{"id": 7, "price": 1.1}'
    assert sorted(rows, key=str) == sorted(
        [
            ("create-table", None, None, None, None),
            ("update", "orders", None, image, None),
            ("update", "orders", at, image, None),
        ],
        key=str,
    )
    dead = dict(world.rows("dead", "data", "reason"))
    assert dead[early] == "it is no record of DMS: its time is not of the years 1 to 9999"
    assert "`metadata`" in dead[b'{"data": {}}']


def test_changes_of_dynamodb(world: World) -> None:
    change = {
        "eventID": "1",
        "eventName": "REMOVE",
        "tableName": "orders",
        "userIdentity": {"principalId": "dynamodb.amazonaws.com", "type": "Service"},
        "dynamodb": {
            "Keys": {"id": {"S": "o"}},
            "OldImage": {"n": {"N": "1.10"}},
            "ApproximateCreationDateTime": 1_500,
        },
    }
    data = json.dumps(change).encode()
    wrong = [data.replace(b'"1.10"', b'"one"'), data.replace(b"1500", b'1500, "SizeBytes": 9223372036854775808')]
    world.put(data, gzip.compress(data), *wrong)
    text = HEAD + decode("dynamodb-change", 'compression = "auto"') + DEAD + PARQUET + ONCE
    ended = world.run(text)
    assert ended.errors == ""
    at = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)
    found = world.rows("rows", "event_name", "created", "keys", "new_image", "old_image", "is_expiry", "size_bytes")
    assert found == [("REMOVE", at, '{"id":"o"}', None, '{"n":1.10}', True, None)] * 2
    assert sorted(world.rows("dead", "data")) == sorted((one,) for one in wrong)


def test_no_library_for_zstd_ends_the_job_before_it_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardway.payloads import opening

    def none() -> Any:
        raise ImportError

    monkeypatch.setattr(opening, "zstd_library", none)
    ended = world.run(HEAD + JSON_AUTO + DEAD + PARQUET + ONCE)
    assert ended.code is ExitCode.NOT_READY
    assert "pip install" in ended.message
    assert 'compression = "auto"' in ended.message


def test_windows_of_compressed_records(world: World) -> None:
    """The job looks for the dead letters in a second run of the plan below the windows, which opens the records."""
    window = (
        '[window]\nlength = "1 minute"\nlate_by = "10 seconds"\ntime = "value.at"\nkeys = ["value.customer"]\n'
        'aggregates = {orders = "count(*)"}\n'
    )
    events = [json.dumps({"at": f"2026-01-01T12:0{minute}:00Z", "customer": "ada"}).encode() for minute in (0, 0, 2)]
    text = HEAD + decode("json", 'compression = "auto"', "schema = 'at TIMESTAMP, customer STRING'") + DEAD
    cut_off, no_time = gzip.compress(events[0])[:-1], zstd.compress(b'{"at": null}')
    world.put(gzip.compress(events[0]), zstd.compress(events[1]), cut_off, no_time, events[2])
    assert world.run(text + window + PARQUET + ONCE).errors == ""
    world.put(events[2])
    assert world.run(text + window + PARQUET + ONCE).errors == ""
    assert world.rows("rows", "customer", "orders") == [("ada", 2)]
    dead = {cut_off: "it is gzip that is cut off", no_time: "value.at is null"}
    assert dict(world.rows("dead", "data", "reason")) == dead
