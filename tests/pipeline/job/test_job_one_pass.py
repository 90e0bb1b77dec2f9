"""A job of one folder: its batches are read and written in one pass, and nothing else about them changes."""

from __future__ import annotations

import errno
import json
import os
import resource
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from shardway.pipeline.job.batch.observations import LETTER_BYTES_MAX, WatchedBatch
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, no_file_longer_than, order

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'


def slow(value: str) -> Any:
    """The same once more with another setting: not in each run."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def told(ended: Any) -> tuple[Any, ...]:
    return tuple(ended.summary[name] for name in ("exit_code", "rows", "dead_letters", "duplicates", "bytes"))


def ids(*numbers: int) -> list[tuple[str]]:
    return sorted((f"order-{number}",) for number in numbers)


@pytest.mark.parametrize("unique", [UNIQUE, UNIQUE + "exact = true\n", ""])
def test_good_rows_and_dead_letters_come_from_one_reading(world: World, unique: str) -> None:
    data = [*(order(number) for number in range(20)), order(3), b"no json", order(50, "x")]
    world.put(*data)
    text = HEAD + JSON + unique + PARQUET + ONCE
    ended = world.run(text)
    duplicates = 1 if unique else 0
    assert ended.errors == ""
    assert told(ended) == (0, len(data), 2, duplicates, sum(map(len, data)))  # rows that were read twice count twice
    assert world.rows("orders", "order_id") == sorted([*ids(*range(20)), *([] if unique else ids(3))])
    dead = world.rows("dead", "data", "reason", "partition_key", "approximate_arrival_timestamp")
    assert [row[:2] for row in dead] == [
        (b"no json", "not exactly one JSON object"),
        (order(50, "x"), "amount is not int"),
    ]
    assert all(row[2].startswith("key-") and row[3] is not None for row in dead)
    assert all(pq.read_metadata(file).num_rows for file in (world.folder / "orders").iterdir())
    assert not list(world.folder.glob("*.staging/*"))

    world.forget_last_commit()
    again = world.run(text)
    assert again.code is ExitCode.DONE
    assert len(world.rows("orders", "order_id")) == 20 + (not unique)
    assert len(world.rows("dead", "reason")) == 2


@pytest.mark.parametrize("unique", [UNIQUE, slow(UNIQUE + "exact = true\n"), slow("")])
def test_dead_letters_that_are_too_long_for_the_driver_are_read_once_more(world: World, unique: str) -> None:
    long = b"x" * (LETTER_BYTES_MAX + 1)
    data = [*(order(number) for number in range(10)), *([order(3)] if unique else []), long, b"short"]
    world.put(*data)
    ended = world.run(HEAD + JSON + unique + PARQUET + ONCE)
    assert ended.errors == ""
    assert told(ended) == (0, len(data), 2, 1 if unique else 0, sum(map(len, data)))
    assert world.rows("orders", "order_id") == ids(*range(10))
    assert sorted(len(row[0]) for row in world.rows("dead", "data")) == [5, len(long)]


def test_a_batch_of_dead_letters_alone_makes_no_file_of_orders(world: World) -> None:
    world.put(b"no json", b"neither")
    text = HEAD + JSON + PARQUET + ONCE
    assert told(world.run(text))[:3] == (0, 2, 2)
    assert len(world.rows("dead", "data")) == 2
    assert not (world.folder / "orders").exists()
    assert not list(world.folder.glob("*.staging/*"))
    world.put(order(1))  # into one shard: the other partition of the batch is empty
    assert world.run(text).code is ExitCode.DONE
    assert [pq.read_metadata(file).num_rows for file in (world.folder / "orders").iterdir()] == [1]


def test_an_action_that_ends_without_metrics_tells_nothing() -> None:
    """Spark gives an empty row then, which has no schema; the batch is read once more."""

    class Empty:
        def __getattr__(self, _: str) -> Any:
            return lambda: self

        def isCompleted(self) -> bool:
            return True

        def length(self) -> int:
            return 0

    watched = object.__new__(WatchedBatch)
    watched._observation, watched._is_row = Empty(), True
    assert watched.told(once=True) is None


@pytest.mark.parametrize("partitions", ["2", slow("8")])
def test_a_batch_of_duplicates_alone_writes_nothing(world: World, spark: SparkSession, partitions: str) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        world.put(order(1))
        text = HEAD + JSON + UNIQUE + PARQUET + ONCE
        assert world.run(text).code is ExitCode.DONE
        world.put(order(1))
        ended = world.run(text)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
    assert (ended.code, ended.errors) == (ExitCode.DONE, "")
    assert world.rows("orders", "order_id") == ids(1)


def test_dead_letters_that_cannot_be_written_leave_the_good_rows_where_they_were_staged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two outputs of a batch: neither is in place, and the next start writes both, once."""
    world.put(order(1), b"no json", order(2))
    text = HEAD + JSON + UNIQUE + PARQUET + ONCE
    (world.folder / "dead.staging").write_bytes(b"a file where a folder should be")
    ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith("dead_letters failed in batch 0: ")
    assert not (world.folder / "orders").exists()
    assert list((world.folder / "orders.staging").rglob("*.parquet"))
    (world.folder / "dead.staging").unlink()
    assert world.run(text).code is ExitCode.DONE
    assert world.rows("orders", "order_id") == ids(1, 2)
    assert world.rows("dead", "data") == [(b"no json",)]


def test_a_move_that_fails_half_way_is_begun_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the dead letters, and behind the first of two files of good rows."""
    world.put(*(order(number) for number in range(20)), b"no json")
    text = HEAD + JSON + PARQUET + 'partition_by = ["amount"]\n' + ONCE
    world.put(*(order(number, number) for number in range(20, 24)))
    moved: list[str] = []
    rename = os.rename

    def failing(source: str, target: str) -> None:
        if "/orders/" in target:
            moved.append(target)
            if len(moved) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(source, target)

    with monkeypatch.context() as full:
        full.setattr("shardway.pipeline.hadoop_files.os.rename", failing)
        ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert "No space left on device" in ended.message
    assert len(world.rows("dead", "data")) == 1
    assert world.run(text).code is ExitCode.DONE
    assert world.rows("orders", "order_id") == ids(*range(24))
    assert world.rows("dead", "data") == [(b"no json",)]


def test_a_disk_that_is_full_while_the_good_rows_are_written_is_the_sinks_failure(world: World) -> None:
    world.put(order(1), b"no json")
    text = HEAD + JSON + UNIQUE + PARQUET + ONCE
    (world.folder / "orders.staging").write_bytes(b"a file where a folder should be")
    ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith("sinks[0] parquet")
    assert not (world.folder / "dead").exists()  # dead letters come first, and are told by the write
    (world.folder / "orders.staging").unlink()
    assert world.run(text).code is ExitCode.DONE
    assert json.dumps(world.rows("orders", "order_id")) == json.dumps(ids(1))
    assert len(world.rows("dead", "data")) == 1


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process's files")
@pytest.mark.parametrize("unique", [UNIQUE, slow("")])
def test_a_disk_that_fills_up_while_rows_are_written(world: World, unique: str) -> None:
    """The write stops in the middle: behind a state, and in the stage that reads."""
    plain = '[sinks.options]\ncompression = "none"\n'
    text = HEAD + JSON + unique + PARQUET + plain + ONCE
    world.put(order(1), b"no json")
    assert world.run(text).code is ExitCode.DONE  # Java unpacks its libraries at their first use: not in the limit
    long = [f"order-{number:05d}" + "a" * 4000 for number in range(100)]  # small in a shuffle, which is compressed
    world.put(b"neither", *(json.dumps({"order_id": one, "amount": 1}).encode() for one in long))
    with no_file_longer_than(world.spark, 64 * 1024):
        ended = world.run(text)
    assert ended.code is ExitCode.SINK
    assert ended.message.startswith("sinks[0] parquet ")
    assert ended.message.endswith(": IOException: File too large")
    assert world.rows("orders", "order_id") == ids(1)
    assert world.rows("dead", "data") == [(b"no json",)]
    assert world.run(text).code is ExitCode.DONE
    assert len(world.rows("orders", "order_id")) == 101
    assert world.rows("dead", "data") == [(b"neither",), (b"no json",)]
