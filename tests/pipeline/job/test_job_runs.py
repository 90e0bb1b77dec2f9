"""Jobs over a local Kinesis in a real Spark: what they write, what they show, and how they fail."""

from __future__ import annotations

import functools
import json
import operator
import sys
from typing import TYPE_CHECKING, Any

import pytest

from shardway.events import ProducerMetrics
from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from shardway.pipeline.job.run.stopping import Stopping
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
MODULE = '''\
"""Functions of a job, beside its file."""
import json, pathlib
HERE = pathlib.Path(__file__).parent

def doubled(rows):
    return rows.selectExpr("value.order_id AS order_id", "value.amount * 2 AS amount")

def raising(rows):
    raise ZeroDivisionError("on purpose")

def no_frame(rows):
    return 5

def write(batch, batch_id):
    with (HERE / "seen.jsonl").open("a") as file:
        file.write(json.dumps({"batch": batch_id, "rows": batch.count()}) + "\\n")

def fail_once(batch, batch_id):
    mark = HERE / "failed"
    if batch.count() and not mark.exists():
        mark.touch()
        raise OSError("the disk is on fire")

def ask(batch, batch_id):
    (HERE / "asked").touch()
'''


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2, "copies": 1}) as local:
        (tmp_path / "job_functions.py").write_text(MODULE)
        yield World(spark, local, tmp_path)
    sys.modules.pop("job_functions", None)
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


def seen(world: World) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (world.folder / "seen.jsonl").read_text().splitlines()]


def test_several_sinks_dead_letters_and_duplicates_from_one_read(world: World) -> None:
    world.put(*(order(number) for number in range(40)), order(3), b"no json", order(50, "x"), b'{"amount": 1}')
    text = (
        HEAD + JSON + '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
        '[transform]\nsql = "SELECT value.*, rand() AS lot, approximate_arrival_timestamp FROM records"\n'
        + PARQUET + 'partition_by = ["hour"]\n'
        '[[sinks]]\nformat = "parquet"\npath = "{folder}/lots"\nsql = "SELECT order_id, lot FROM rows"\n'
        '[[sinks]]\nfunction = "job_functions:write"\n' + ONCE
    )  # fmt: skip
    ended = world.run(text)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    orders = [(f"order-{number}",) for number in range(40)]
    assert world.rows("orders", "order_id") == sorted(orders)
    assert world.rows("lots", "order_id", "lot") == world.rows("orders", "order_id", "lot")  # one transform for all
    assert [reason for _, reason in sorted(world.rows("dead", "data", "reason"))] == [
        "not exactly one JSON object" if data == b"no json" else "order_id is missing" if b"order" not in data[:9]
        else "amount is not int"
        for data, _ in sorted(world.rows("dead", "data", "reason"))
    ]  # fmt: skip
    assert sum(one["rows"] for one in seen(world)) == 40

    summary = ended.summary
    told = {name: summary[name] for name in ("outcome", "exit_code", "rows", "dead_letters", "duplicates", "late")}
    assert told == {"outcome": "done", "exit_code": 0, "rows": 44, "dead_letters": 3, "duplicates": 1, "late": 0}
    batches = ended.of("batch")
    assert sum(batch["rows"] for batch in batches) == 44
    assert set(batches[0]["lag_s"]) == {"orders"}
    assert summary["batches"] == len(batches)

    world.forget_last_commit()
    world.put(order(41), b"neither")
    again = world.run(text)
    assert again.summary["exit_code"] == 0
    assert world.rows("orders", "order_id") == sorted([*orders, ("order-41",)])
    assert len(world.rows("dead", "reason")) == 4


def test_exact_duplicates_and_a_state_of_the_other_kind(world: World) -> None:
    """Rows further apart than ``window`` stay with ``exact``, in one batch too; neither knows the other's state."""
    for _ in range(3):
        world.put(order(1), order(1))  # then three seconds pass
    parts = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "2 seconds"\n'
    default, exact = HEAD + JSON + parts + PARQUET + ONCE, HEAD + JSON + parts + "exact = true\n" + PARQUET + ONCE
    ended = world.run(exact)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert world.rows("orders", "order_id") == [("order-1",)] * 3
    assert ended.summary["duplicates"] == 3
    world.put(order(1), order(2))
    again = world.run(default)
    assert again.code is ExitCode.WRONG_JOB
    assert "the checkpoint directory has the state of another de-duplication" in again.message
    assert world.run(exact).code is ExitCode.DONE
    assert len(world.rows("orders", "order_id")) == 5


def test_one_folder_that_only_spark_knows_for_one_is_refused_before_anything_is_read(world: World) -> None:
    """A path without a scheme is of the file system that Spark's settings say."""
    world.put(order(1))
    second = PARQUET.replace("{folder}/orders", "hdfs://127.0.0.1:9/{folder}/orders")
    text = HEAD + JSON + PARQUET + second + ONCE
    world.spark.conf.set("fs.defaultFS", "hdfs://127.0.0.1:9")
    try:
        ended = world.run(text)
    finally:
        world.spark.conf.unset("fs.defaultFS")
    assert ended.code is ExitCode.WRONG_JOB
    assert "sinks[1].path: is the same as sinks[0].path" in ended.errors


def test_a_sink_that_fails_half_way_is_one_message_and_loses_nothing(world: World) -> None:
    world.put(*(order(number) for number in range(10)))
    text = HEAD + JSON + PARQUET + '[[sinks]]\nfunction = "job_functions:fail_once"\n' + ONCE
    ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message == (
        "sinks[1] function job_functions:fail_once failed in batch 0: OSError (job_functions.py, line 22, in fail_once)"
    )
    assert ended.summary["outcome"] == "failed"
    world.put(order(10))
    assert world.run(text).code is ExitCode.DONE
    assert world.rows("orders", "order_id") == sorted((f"order-{number}",) for number in range(11))


def test_the_console_sink_hands_no_escape_sequence_to_the_terminal(world: World) -> None:
    world.put(b"\x1b]0;owned\x07 \x1b[2Jred \xc2\x9b31m")
    ended = world.run(
        HEAD + '[[sinks]]\nformat = "console"\nsql = "SELECT CAST(value AS STRING) AS d FROM rows"\n' + ONCE
    )
    assert ended.code is ExitCode.DONE
    assert "\\x1b]0;owned" in ended.errors, "the rows go to standard error beside lines of JSON"
    assert all(one.isprintable() or one == "\n" for one in ended.errors)


def test_what_spark_finds_wrong_is_told_before_anything_is_read(world: World) -> None:
    world.put(order(1))
    faults = {
        '[transform]\nsql = "SELEC 1"\n' + PARQUET: ["transform.sql: [PARSE_SYNTAX_ERROR]"],
        '[transform]\nsql = "SELECT value.orderid FROM records"\n' + PARQUET: ["transform.sql: [FIELD_NOT_FOUND]"],
        PARQUET + 'partition_by = ["country"]\nkey = "customer"\nsql = "SELECT * FROM rows"\n'
        '[[sinks]]\nformat = "console"\nsql = "SELECT x FROM rows"\n':
            ["sinks[0].sql: the batch has no column country", "sinks[0].sql: the batch has no column customer",
             "sinks[1].sql: [UNRESOLVED_COLUMN"],
        '[transform]\nfunction = "job_functions:no_frame"\n' + PARQUET: [],
        '[transform]\nfunction = "job_functions:raising"\n' + PARQUET: [],
        '[[sinks]]\nformat = "parcels"\npath = "x"\n': [],
        '[[sinks]]\nformat = "delta"\npath = "x"\n': [],
    }  # fmt: skip
    others = [
        (ExitCode.TRANSFORM, "job_functions:no_frame returned int, and no DataFrame"),
        (ExitCode.TRANSFORM, "job_functions:raising raised: ZeroDivisionError: on purpose"),
        (ExitCode.NOT_READY, "Spark finds no format parcels: is its package on the class path?"),
        (ExitCode.NOT_READY, "Spark finds no format delta: "),
    ]
    for text, wanted in faults.items():
        ended = world.run(HEAD + JSON + text + ONCE)
        if not wanted:
            code, message = others.pop(0)
            assert (ended.code, message in ended.message) == (code, True), ended.message
            continue
        assert ended.code is ExitCode.WRONG_JOB
        told = [error["message"] for error in ended.of("error")]
        assert len(told) == len(wanted)
        assert [one for one, fault in zip(wanted, told, strict=True) if one not in fault] == [], "\n".join(told)
        assert all(fault.startswith(f"{world.folder}/job.toml:") and "\n" not in fault for fault in told)
    assert not (world.folder / "checkpoint").exists()


def test_avro_and_protobuf_name_the_package_that_spark_lacks(world: World) -> None:
    version = world.spark.version
    (world.folder / "orders.desc").write_bytes(b"")
    for name, decode in (
        ("avro", 'schema = \'{"type": "record", "name": "o", "fields": []}\''),
        ("protobuf", 'schema_file = "orders.desc"\nmessage = "Order"'),
    ):
        text = HEAD + f'[decode]\nformat = "{name}"\n{decode}\n[dead_letters]\ndiscard = true\n' + PARQUET + ONCE
        ended = world.run(text)
        assert ended.code is ExitCode.NOT_READY
        assert f"org.apache.spark:spark-{name}_2.13:{version}" in ended.message


def test_a_transform_that_fails_on_data_says_so_without_the_data(world: World) -> None:
    world.put(b"12", b"top-secret-13")
    text = HEAD + '[decode]\nformat = "text"\n[dead_letters]\ndiscard = true\n'
    text += '[transform]\nsql = "SELECT CAST(value AS INT) AS n FROM records"\n' + PARQUET + ONCE
    ended = world.run(text)
    assert ended.code is ExitCode.TRANSFORM
    assert ended.message.startswith("transform failed in batch 0: [CAST_INVALID_INPUT]")
    assert "top-secret" not in json.dumps(ended.events)
    fixed = text.replace("CAST(value", "TRY_CAST(value")
    assert world.run(fixed).code is ExitCode.DONE
    assert world.rows("orders", "n") == [(12,), (None,)]


def test_a_stream_that_vanishes(world: World) -> None:
    world.put(*(order(number) for number in range(10)))
    text = HEAD + JSON + PARQUET + '[[sinks]]\nfunction = "job_functions:ask"\n'
    missing = world.run((text + ONCE).replace('streamName = "orders"', 'streamName = "ordres"'))
    assert missing.code is ExitCode.SOURCE
    assert missing.message.startswith("source failed: there is no stream ordres in region")

    assert world.run(text + ONCE).code is ExitCode.DONE
    world.delete_stream()
    gone = world.run(text)  # it would run for ever
    assert gone.code is ExitCode.SOURCE
    assert "orders" in gone.message
    assert len(world.rows("orders", "order_id")) == 10


def test_a_copy_into_another_stream(world: World) -> None:
    world.put(*(order(number) for number in range(10)), b"not json")
    target = 'region = "{region}"\nendpointUrl = "{endpoint}"\n'
    text = (
        HEAD + JSON.replace('path = "{folder}/dead"\n', '[dead_letters.stream]\nstreamName = "copies"\n' + target)
        + '[[sinks]]\nformat = "shardway"\n'
        'sql = "SELECT *, to_json(struct(order_id, amount)) AS data FROM rows"\n'
        '[sinks.options]\nstreamName = "copies"\nstamps = "position"\n' + target
    )  # fmt: skip
    wrong = world.run(text + ONCE)
    assert wrong.code is ExitCode.WRONG_JOB
    assert "amount" in wrong.message
    chosen = "stream, shard_id, sequence_number, sub_sequence_number, partition_key"
    told: list[Any] = []
    ended = world.run(text.replace("SELECT *,", f"SELECT {chosen},") + ONCE, on_event=told.append)
    assert ended.code is ExitCode.DONE, ended.errors
    written = [one for one in told if isinstance(one, ProducerMetrics)]
    assert {one.stream for one in written} == {"copies"}
    whole = functools.reduce(operator.add, [one.snapshot for one in written])
    assert (whole.user_records_put, written[-1].last) == (11, True), "ten rows, and one dead letter"
    reader = world.spark.read.format("shardway").options(
        streamName="copies", region=world.local.region, endpointUrl=world.local.endpoint_url
    )
    back = HEAD.replace("orders", "copies") + "[stamps]\n" + JSON + PARQUET.replace("/orders", "/back") + ONCE
    read = world.run(back.replace("/dead", "/dead-back").replace("/checkpoint", "/checkpoint-back"))
    assert (read.summary["rows"], read.summary["dead_letters"]) == (11, 1)
    assert world.rows("back", "order_id") == sorted((f"order-{number}",) for number in range(10))
    copied = [bytes(row["data"]) for row in reader.load().select("data").collect()]
    assert len(copied) == 11
    assert b"not json" in copied
    assert sum(b'"order_id"' in data for data in copied) == 10


def test_a_stop_comes_between_two_batches(world: World) -> None:
    world.put(*(order(number) for number in range(10)))
    stopping = Stopping()
    text = HEAD.replace("[source]", "[source]\nmaxRecordsPerTrigger = 2") + JSON + PARQUET
    text += '[[sinks]]\nfunction = "job_functions:ask"\n'

    class Asking(Stopping):
        @property
        def asked(self) -> bool:
            if (world.folder / "asked").exists() and not stopping.asked:
                self.ask()
                stopping.ask()
            return super().asked

    ended = world.run(text, stopping=Asking())
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert ended.summary["outcome"] == "stopped by a signal"
    assert ended.of("stopping")
    rows = len(world.rows("orders", "order_id"))
    assert rows == ended.summary["rows"] > 0
    assert world.run(text + ONCE).code is ExitCode.DONE
    assert world.rows("orders", "order_id") == sorted((f"order-{number}",) for number in range(10))
