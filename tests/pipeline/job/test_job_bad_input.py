"""What goes wrong in the middle of a job: one clear message, an exit code, and nothing lost on the next start.

What is wrong before anything is read is in ``test_job_file`` and ``test_job_runs``, a file system without room also in
``test_job_processes``.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from typing import TYPE_CHECKING

import boto3
import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, no_file_longer_than, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
COPY = """\
[[sinks]]
format = "shardway"
sql = "SELECT partition_key, stream, shard_id, sequence_number, sub_sequence_number, {data} AS data FROM rows"
[sinks.options]
streamName = "copies"
stamps = "position"
region = "{region}"
endpointUrl = "{endpoint}"
"""
MODULE = '''\
"""Functions of a job that go wrong."""
import os, boto3
from pyspark.sql.functions import udf

@udf("int")
def parsed(text):
    return int(text)

def by_a_udf(rows):
    return rows.select(parsed("value").alias("n"))

def when_there_are_rows(rows):
    if rows.count():
        raise LookupError("no table of prices for today")
    return rows.select("value.order_id")

def forget(batch, batch_id):
    """Deletes the stream while the job runs."""
    client = boto3.client("kinesis", endpoint_url=os.environ["BAD_ENDPOINT"], region_name=os.environ["BAD_REGION"])
    client.delete_stream(StreamName="orders")
    client.close()
    batch.count()
'''
NUMBERS = [f"order-{number}" for number in range(20)]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2, "copies": 1}) as local:
        (tmp_path / "bad_functions.py").write_text(MODULE)
        monkeypatch.setenv("BAD_ENDPOINT", local.endpoint_url)
        monkeypatch.setenv("BAD_REGION", local.region)
        made = World(spark, local, tmp_path)
        made.put(*(order(number) for number in range(20)))
        yield made
    sys.modules.pop("bad_functions", None)
    sys.path[:] = [place for place in sys.path if place != str(tmp_path)]


def orders(world: World) -> list[str]:
    return sorted((name for (name,) in world.rows("orders", "order_id")), key=lambda name: int(name[6:]))


def test_a_schema_that_does_not_fit_fills_the_dead_letters(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    text = HEAD + JSON.replace("amount INT", "price INT") + PARQUET + ONCE
    capfd.readouterr()
    ended = world.run(text)
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert (ended.summary["rows"], ended.summary["dead_letters"]) == (20, 20)
    assert world.rows("dead", "reason") == [("price is missing",)] * 20
    assert capfd.readouterr() == ("", "")  # not the log: no line for any of them
    assert len(ended.events) == 3  # started, one batch, the summary
    assert world.rows("orders", "order_id") == []


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process's files")
def test_a_folder_whose_files_find_no_room(world: World) -> None:
    plain = '[sinks.options]\ncompression = "none"\n'
    first = PARQUET.replace("/orders", "/first") + 'sql = "SELECT amount FROM rows"\n'
    text = HEAD + JSON + first + plain + PARQUET + plain + ONCE
    assert world.run(text).code is ExitCode.DONE  # Java unpacks its libraries at their first use: not in the limit
    long = [hashlib.sha256(b"%d" % number).hexdigest() * 20 for number in range(200)]
    world.put(*(json.dumps({"order_id": one, "amount": 1}).encode() for one in long))
    with no_file_longer_than(world.spark, 64 * 1024):
        ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith("sinks[1] parquet ")
    assert ended.message.endswith("failed in batch 1: IOException: File too large")
    assert orders(world) == NUMBERS  # what was half written is not in the folder
    assert world.run(text).code is ExitCode.DONE
    assert len(world.rows("first", "amount")) == 220
    assert sorted(name for (name,) in world.rows("orders", "order_id")) == sorted([*NUMBERS, *long])


@pytest.mark.slow
def test_a_folder_that_cannot_be_made(world: World) -> None:
    (world.folder / "full").write_text("a file, where a folder is to be")
    for place, step in (("/orders", "sinks[0].path"), ("/dead", "dead_letters.path")):
        text = (HEAD + JSON + PARQUET + ONCE).replace("{folder}" + place, "{folder}/full" + place)
        world.put(b"no json")
        ended = world.run(text)
        assert ended.code is ExitCode.WRONG_JOB
        assert f"{step}: cannot be written: " in ended.message
        assert "full" in ended.message
    assert world.run(HEAD + JSON + PARQUET + ONCE).code is ExitCode.DONE
    assert orders(world) == NUMBERS
    assert len(world.rows("dead", "reason")) == 2


def test_a_checkpoint_that_cannot_be_made(world: World) -> None:
    (world.folder / "full").write_text("a file, where a folder is to be")
    ended = world.run((HEAD + JSON + PARQUET + ONCE).replace("{folder}/checkpoint", "{folder}/full/checkpoint"))
    assert ended.code is ExitCode.WRONG_JOB
    assert "checkpoint: cannot be written: " in ended.message
    assert "full" in ended.message
    assert world.rows("orders", "order_id") == []


def test_a_stream_that_takes_half_of_a_batch(world: World) -> None:
    """One row cannot be put, others were: with stamps a reader finds each row once when it is mended."""
    data = "CASE WHEN order_id <> 'order-7' THEN to_json(struct(order_id, amount)) END"
    text = HEAD + JSON + PARQUET + COPY + ONCE
    ended = world.run(text.replace("{data}", data))
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith("sinks[1] shardway copies failed in batch 0: ")
    assert "data is null in a row" in ended.message
    world.put(order(20))
    assert world.run(text.replace("{data}", "to_json(struct(order_id, amount))")).code is ExitCode.DONE
    assert orders(world) == [*NUMBERS, "order-20"]

    back = HEAD.replace("orders", "copies").replace("/checkpoint", "/checkpoint-back")
    back += '[stamps]\nwindow = "1 hour"\n' + JSON.replace("/dead", "/dead-back") + PARQUET.replace("/orders", "/back")
    assert world.run(back + ONCE).code is ExitCode.DONE
    assert sorted(world.rows("back", "order_id")) == sorted((one,) for one in [*NUMBERS, "order-20"])


@pytest.mark.slow
def test_a_sink_whose_service_refuses_it(world: World) -> None:
    client = boto3.client("kinesis", endpoint_url=world.local.endpoint_url, region_name=world.local.region)
    client.delete_stream(StreamName="copies")
    client.close()
    text = HEAD + JSON + PARQUET + COPY.replace("{data}", "order_id") + ONCE
    ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith(
        f"sinks[1] shardway copies failed in batch 0: there is no stream copies in region {world.local.region}"
    )
    assert world.run(HEAD + JSON + PARQUET + ONCE).code is ExitCode.DONE
    assert orders(world) == NUMBERS


def test_a_transform_that_raises_when_there_are_rows(world: World) -> None:
    text = HEAD + JSON + '[transform]\nfunction = "bad_functions:when_there_are_rows"\n' + PARQUET + ONCE
    ended = world.run(text)
    assert ended.code is ExitCode.TRANSFORM
    place = "bad_functions.py, line 14, in when_there_are_rows"
    assert ended.message == f"transform failed in batch 0: LookupError ({place})"
    assert world.rows("orders", "order_id") == []
    assert world.run(HEAD + JSON + PARQUET + ONCE).code is ExitCode.DONE
    assert orders(world) == NUMBERS


def test_a_function_of_the_transform_that_raises_on_a_row(world: World) -> None:
    world.put(b"top-secret-13")
    text = HEAD + '[decode]\nformat = "text"\n[dead_letters]\ndiscard = true\n'
    text += '[transform]\nfunction = "bad_functions:by_a_udf"\n' + PARQUET + ONCE
    ended = world.run(text)
    assert ended.code is ExitCode.TRANSFORM
    assert ended.message.startswith("transform failed in batch 0: ValueError (bad_functions.py, line 7, in parsed)")
    assert "top-secret" not in json.dumps(ended.events)
    assert "order-" not in json.dumps(ended.events)


def test_a_stream_that_vanishes_while_the_job_runs(world: World) -> None:
    """Between two batches, and while one is read."""
    text = HEAD + JSON + PARQUET + '[[sinks]]\nfunction = "bad_functions:forget"\n'
    gone = world.run(text)  # without an end of its own
    assert gone.code is ExitCode.SOURCE
    assert gone.message.startswith("source failed: ")
    assert "orders" in gone.message
    assert orders(world) == NUMBERS

    client = boto3.client("kinesis", endpoint_url=world.local.endpoint_url, region_name=world.local.region)
    world.local.clock.advance(60)
    client.create_stream(StreamName="orders", ShardCount=1)
    client.close()
    world.local.clock.advance(60)
    world.put(order(20))
    another = world.run(text + ONCE)
    assert another.code is ExitCode.SOURCE
    assert "records were lost" in another.message
    assert "failOnDataLoss" in another.message
    mended = (HEAD + JSON + PARQUET + ONCE).replace("[source]\n", "[source]\nfailOnDataLoss = false\n")
    ended = world.run(mended)
    assert ended.code is ExitCode.DONE
    assert (ended.summary["possible_losses"], ended.of("batch")[-1]["possible_losses"]) == (1, 1)
    assert orders(world) == [*NUMBERS, "order-20"]


def test_a_stream_that_vanishes_while_a_batch_is_read(world: World) -> None:
    text = HEAD + '[[sinks]]\nfunction = "bad_functions:forget"\n' + ONCE
    world.put(order(20) + b" " * 300_000)  # more than the driver carries to the task
    gone = world.run(text)
    assert gone.code is ExitCode.SOURCE
    assert gone.message.startswith("source failed in batch 0: ")
    assert "orders" in gone.message
