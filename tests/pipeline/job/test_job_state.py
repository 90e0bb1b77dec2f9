"""The state of a job's de-duplication: which store it is in, what is told of it, and what becomes of a damaged one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode, load_job
from shardway.pipeline.job.session.state_store import STATE_SETTINGS, set_state_store
from tests.pipeline.job.job_running import HEAD, JSON, ONCE, World, order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARQUET = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
UNIQUE = '[deduplicate]\nkeys = ["value.order_id"]\nwindow = "1 hour"\n'
JOB = HEAD + JSON + UNIQUE + PARQUET + ONCE
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[None]:
    """The session's settings as they were, behind the test."""
    before = dict(spark.conf.getAll)
    yield
    for name in set(spark.conf.getAll) - set(before):
        spark.conf.unset(name)
    for name, value in before.items():
        if spark.conf.get(name) != value:
            spark.conf.set(name, value)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, settings: None) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 2}) as local:
        yield World(spark, local, tmp_path)


def as_the_runner(world: World, text: str) -> None:
    """The session as ``shardway run`` makes it for this job."""
    set_state_store(world.spark, load_job(world.write(text), {}).job)


def ids(*numbers: int) -> list[tuple[str]]:
    return sorted((f"order-{number}",) for number in numbers)


def states(ended: Any) -> list[dict[str, Any]]:
    return [batch["state"] for batch in ended.of("batch") if batch["rows"]]


def test_a_new_checkpoint_gets_rocksdb_with_changelogs(world: World) -> None:
    as_the_runner(world, JOB)
    world.put(order(1), order(2), order(1))
    ended = world.run(JOB)
    assert ended.errors == ""
    (state,) = states(ended)
    assert (state["store"], state["rows"], state["added"], state["removed"]) == ("rocksdb", 2, 2, 0)
    assert state["bytes"] > 0
    assert ended.summary["state"]["store"] == "rocksdb"
    assert list(world.folder.glob("checkpoint/state/0/*/1.changelog"))
    world.put(order(2), order(3))
    assert states(world.run(JOB))[0]["rows"] == 3
    assert world.rows("orders", "order_id") == ids(1, 2, 3)


@pytest.mark.parametrize("exact", ["", "exact = true\n"])
def test_a_checkpoint_that_began_with_sparks_own_store_goes_on_with_it(world: World, exact: str) -> None:
    """As one has that began where nothing was set: Spark took its default."""
    assert world.spark.conf.get(PROVIDER) == HDFS
    text = HEAD + JSON + UNIQUE + exact + PARQUET + ONCE
    world.put(order(1), order(2))
    before = world.run(text)
    assert states(before)[0]["store"] == "hdfs"
    as_the_runner(world, text)
    assert world.spark.conf.get(PROVIDER) != HDFS
    world.put(order(2), order(3))
    after = world.run(text)
    assert after.errors == ""
    assert [state["store"] for state in states(after)] == ["hdfs"]
    assert after.summary["duplicates"] == 1
    assert world.rows("orders", "order_id") == ids(1, 2, 3)
    assert not list(world.folder.rglob("*.changelog"))


def test_what_is_given_goes_before_and_a_job_without_a_state_sets_nothing(world: World) -> None:
    as_the_runner(world, HEAD + JSON + PARQUET + ONCE)
    assert not set(world.spark.conf.getAll) & set(STATE_SETTINGS)
    mine = "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"
    world.spark.conf.set(mine, "64")
    world.spark.conf.set(PROVIDER, HDFS)
    as_the_runner(world, JOB)
    assert {name: world.spark.conf.get(name) for name in STATE_SETTINGS} == STATE_SETTINGS | {
        mine: "64",
        PROVIDER: HDFS,
    }


def test_a_job_without_a_state_tells_of_none(world: World) -> None:
    world.put(order(1))
    ended = world.run(HEAD + JSON + PARQUET + ONCE)
    assert [batch["state"] for batch in ended.of("batch")] == [None]
    assert ended.code is ExitCode.DONE
    assert ended.summary["state"] is None


def removed(file: Path) -> None:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def changes_of(folder: Path) -> list[Path]:
    """The files of the changes of each version of a partition, the newest last; the first has rows."""
    found = [path for path in (folder / "checkpoint/state/0/0").iterdir() if path.suffix in (".changelog", ".delta")]
    return sorted(found, key=lambda path: int(path.stem))


@pytest.mark.parametrize(
    ("in_rocks", "damage"),
    [
        pytest.param(True, removed, marks=pytest.mark.slow),
        (True, cut_off),
        pytest.param(True, emptied, marks=pytest.mark.slow),
        pytest.param(False, removed, marks=pytest.mark.slow),
        pytest.param(False, cut_off, marks=pytest.mark.slow),
    ],
)
def test_a_state_that_is_damaged_stops_the_job_and_goes_on_when_it_is_put_back(
    world: World, in_rocks: bool, damage: Callable[[Path], None]
) -> None:
    if in_rocks:
        as_the_runner(world, JOB)
    world.put(*map(order, range(10)))
    assert world.run(JOB).code is ExitCode.DONE
    world.put(*map(order, range(20)), b"no json")
    state, whole = world.folder / "checkpoint/state", world.folder / "whole"
    shutil.copytree(state, whole)
    damage(changes_of(world.folder)[0])
    ended = world.run(JOB)
    assert ended.code is ExitCode.FAILED
    assert ended.of("error")[0]["step"] == "state"
    assert f"the state of the de-duplication, in {world.folder}/checkpoint/state, cannot be read" in ended.message
    assert "a copy of the whole checkpoint directory; or give the job a new checkpoint" in ended.message
    assert world.rows("orders", "order_id") == ids(*range(10))
    assert world.rows("dead", "data") == []
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(whole, state)
    ended = world.run(JOB)
    assert (ended.errors, ended.summary["duplicates"], ended.summary["dead_letters"]) == ("", 10, 1)
    assert world.rows("orders", "order_id") == ids(*range(20))
    assert world.rows("dead", "data") == [(b"no json",)]


@pytest.mark.parametrize("in_rocks", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_state_that_cannot_be_stored_leaves_the_batch_to_the_next_start(world: World, in_rocks: bool) -> None:
    if in_rocks:
        as_the_runner(world, JOB)
    world.put(*map(order, range(10)))
    assert world.run(JOB).code is ExitCode.DONE
    newest = changes_of(world.folder)[-1]
    in_the_way = newest.with_stem(str(int(newest.stem) + 1)) / "a file in a folder where a file should be"
    in_the_way.mkdir(parents=True)
    world.put(*map(order, range(20)), b"no json")
    ended = world.run(JOB)
    assert (ended.code, ended.of("error")[0]["step"]) == (ExitCode.FAILED, "state")
    assert f"the state of the de-duplication, in {world.folder}/checkpoint/state, cannot be stored" in ended.message
    assert world.rows("orders", "order_id") == ids(*range(10))
    assert world.rows("dead", "data") == []
    shutil.rmtree(in_the_way.parent)
    ended = world.run(JOB)
    assert (ended.errors, ended.summary["duplicates"], ended.summary["dead_letters"]) == ("", 10, 1)
    assert world.rows("orders", "order_id") == ids(*range(20))
    assert world.rows("dead", "data") == [(b"no json",)]


def test_a_copy_of_a_state_that_is_damaged_is_passed_over_where_the_changes_are_there(world: World) -> None:
    """Spark does so from 4.1 on; before, the job stops, as where a change is lost."""
    as_the_runner(world, JOB)
    world.spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
    world.spark.conf.set("spark.sql.streaming.stateStore.unloadOnCommit", "true")  # copies are made with each batch
    for number in range(0, 20, 10):
        world.put(*map(order, range(number, number + 10)))
        assert world.run(JOB).code is ExitCode.DONE
    copies = list(world.folder.glob("checkpoint/state/0/*/*.zip"))
    assert copies
    for copy in copies:
        cut_off(copy)
    world.put(*map(order, range(30)))
    ended = world.run(JOB)
    if tuple(map(int, world.spark.version.split(".")[:2])) < (4, 1):
        assert (ended.code, ended.of("error")[0]["step"]) == (ExitCode.FAILED, "state")
        return
    assert (ended.errors, ended.summary["duplicates"]) == ("", 20)
    assert world.rows("orders", "order_id") == ids(*range(30))
