"""What the sinks of tables share: which batch is known again, and which is refused. Delta and Iceberg: tables/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardway.errors import OptionError
from shardway.pipeline import DeltaSink, IcebergSink
from shardway.pipeline.batch_runs import batch_run
from shardway.pipeline.tables.delta import _commit_info
from shardway.pipeline.tables.iceberg import _descent
from shardway.pipeline.tables.table_sink import Commit, History, TableSink
from tests.pipeline.failing import failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


class Listed(TableSink):
    """A table whose history is a list: what a format's log is to the rules."""

    def __init__(self, log: list[Commit], *, since_s: float | None = None, **given: Any) -> None:
        super().__init__("orders", **given)
        self.log = log
        self.since_s = since_s
        self.looked = 0

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        self.log.append(commit)

    def _make(self, rows: DataFrame) -> None:
        raise AssertionError("a list is always there")

    def _history(self, spark: SparkSession, writer: str) -> History:
        self.looked += 1
        return History({one.batch_id: one for one in self.log if one.writer == writer}, self.since_s)


@pytest.fixture
def run(spark: SparkSession, stream: Any, tmp_path: Path) -> Callable[..., str]:
    """Runs the stream into a function; what it failed of."""

    def runs(write: Callable[[DataFrame, int], object], checkpoint: str = "checkpoint") -> str:
        return failure(stream.load(), write, tmp_path / checkpoint)

    return runs


def forget(folder: Path, *names: str) -> None:
    for name in names:
        entry = folder / "checkpoint" / name
        entry.unlink()
        entry.with_name(f".{entry.name}.crc").unlink()


def test_a_batch_that_runs_again_is_known(stream: Any, written: Any, run: Callable[..., str], tmp_path: Path) -> None:
    for _ in range(3):
        stream.add([written.record("x")])
    log: list[Commit] = []
    first = Listed(log)
    assert run(first.write) == ""
    assert [one.batch_id for one in log] == [0, 1, 2]
    assert len({one.bounds for one in log}) == 3
    assert None not in {one.bounds for one in log}
    assert first.looked == 1, "the table is asked only where it can have the batch"

    forget(tmp_path, "commits/2")
    stream.add([written.record("x")])
    again = Listed(log)
    results: list[bool] = []
    assert run(lambda batch, number: results.append(again.write(batch, number))) == ""
    assert results == [False, True]
    assert [one.batch_id for one in log] == [0, 1, 2, 3]


def test_an_older_batch_again_is_known_and_so_is_the_one_behind_it(
    stream: Any, written: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    for _ in range(3):
        stream.add([written.record("x")])
    log: list[Commit] = []
    assert run(Listed(log).write) == ""
    forget(tmp_path, "commits/1", "commits/2", "offsets/2")  # a copy from before batch 2
    again, results = Listed(log), []
    assert run(lambda batch, number: results.append(again.write(batch, number))) == ""
    assert results == [False, False]
    assert len(log) == 3


def test_other_records_under_a_number_are_refused(
    stream: Any, written: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []
    assert run(Listed(log).write) == ""
    forget(tmp_path, "commits/0")
    log[0] = log[0]._replace(bounds="of another batch")
    failed = run(Listed(log).write)
    assert "the table has a batch 0 of this writer with other records" in failed
    assert len(log) == 1


@pytest.mark.parametrize("bounds", [True, False])
def test_a_writers_name_belongs_to_one_checkpoint_directory(
    stream: Any, written: Any, run: Callable[..., str], *, bounds: bool
) -> None:
    """Also where the table cannot say of which records a batch was, no row of the second is left out in silence."""
    stream.add([written.record("x")])
    log: list[Commit] = []
    assert run(Listed(log, writer="orders").write, "one") == ""
    log[0] = log[0] if bounds else log[0]._replace(bounds=None)
    failed = run(Listed(log, writer="orders").write, "other")
    assert f"batches of writer orders from another checkpoint directory (query {log[0].query})" in failed
    assert "Give this query a name of its own, writer=..." in failed
    assert len(log) == 1
    assert run(Listed(log, writer="orders_2").write, "third") == ""
    assert run(Listed(log).write, "fourth") == ""
    assert len({one.query for one in log}) == len(log) == 3


def test_a_way_out_of_a_refusal_fits_a_writer_with_a_name(
    stream: Any, written: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []
    assert run(Listed(log, writer="orders").write) == ""
    forget(tmp_path, "commits/0")
    log[0] = log[0]._replace(batch_id=7)
    assert "with a new checkpoint directory and another writer=..." in run(Listed(log, writer="orders").write)


def test_an_older_batch_that_the_table_does_not_know_is_refused(
    stream: Any, written: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []
    assert run(Listed(log).write) == ""
    forget(tmp_path, "commits/0")
    log[0] = log[0]._replace(batch_id=7)
    failed = run(Listed(log).write)
    assert "the table has batch 7 of this query and lacks the earlier batch 0" in failed
    assert len(log) == 1


def test_a_history_that_begins_after_the_batch_was_begun_is_no_answer(
    stream: Any, written: Any, run: Callable[..., str]
) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []
    assert "the table does not show whether it has batch 0" in run(Listed(log, since_s=4e9).write)
    assert log == []
    assert run(Listed(log, since_s=1.0).write) == ""
    assert len(log) == 1


def test_one_commit_takes_a_batch(stream: Any, written: Any, run: Callable[..., str]) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []

    def twice(batch: DataFrame, number: int) -> None:
        Listed(log).write(batch, number)
        Listed(log).write(batch, number)

    assert "was written to this table before in the same run" in run(twice)
    assert len(log) == 1


def test_a_repeat_in_the_same_process_is_no_second_write(
    stream: Any, written: Any, run: Callable[..., str], tmp_path: Path
) -> None:
    """Also where the function names a group of jobs, which Spark itself tells a run by."""
    stream.add([written.record("x")])
    log: list[Commit] = []
    sink, results = Listed(log), []

    def write(batch: DataFrame, number: int) -> None:
        batch.sparkSession.sparkContext.setJobGroup("orders", "orders")
        results.append(sink.write(batch, number))

    assert run(write) == ""
    forget(tmp_path, "commits/0")
    assert run(write) == ""
    assert (results, len(log)) == ([True, False], 1)


def test_a_write_that_failed_may_be_tried_again(stream: Any, written: Any, run: Callable[..., str]) -> None:
    stream.add([written.record("x")])
    log: list[Commit] = []

    class Failing(Listed):
        def _append(self, rows: DataFrame, commit: Commit) -> None:
            super()._append(rows, commit)
            if len(self.log) == 1:
                raise OSError("the answer was lost")

    sink, results = Failing(log), []

    def stubborn(batch: DataFrame, number: int) -> None:
        with pytest.raises(OSError, match="the answer was lost"):
            sink.write(batch, number)
        results.append(sink.write(batch, number))

    assert run(stubborn) == ""
    assert results == [False], "it was there in spite of the error"
    assert len(log) == 1


def test_empty_batches_leave_no_gap(spark: SparkSession) -> None:
    rows = spark.range(1)
    sink = Listed([], writer="me")
    assert sink.write(rows, 0)
    sink.write_nothing(rows, 1)
    assert sink.write(rows, 2)
    assert sink.looked == 1
    assert sink.write(rows, 9)
    assert sink.looked == 2, "it does not follow: it may be another start"


def test_what_is_wrong_with_a_sink(spark: SparkSession) -> None:
    assert batch_run(spark.range(1), 0) is None
    with pytest.raises(OptionError, match="name the writer, Listed"):
        Listed([]).write(spark.range(1), 0)
    with pytest.raises(OptionError, match="the batch has no column kind"):
        Listed([], partition_by=["kind"], writer="me").write(spark.range(1), 0)
    with pytest.raises(OptionError, match="the batch has no column approximate_arrival_timestamp"):
        Listed([], partition_by=["hour"], writer="me").write(spark.range(1), 0)
    with pytest.raises(OptionError, match="writer: 1 to 128"):
        Listed([], writer="a b")
    with pytest.raises(OptionError, match="option TxnVersion is set by the sink itself"):
        DeltaSink("lake", options={"TxnVersion": "1"})
    with pytest.raises(OptionError, match="set by the sink itself"):
        IcebergSink("lake.a.b", options={"snapshot-property.shardway.batch": "1"})
    wrong: list[dict[str, Any]] = [{}, {"path": "lake", "table": "orders"}]
    for given in wrong:
        with pytest.raises(OptionError, match="either a path or a table"):
            DeltaSink(**given)


def test_what_commits_say_of_themselves() -> None:
    told = _commit_info('{"shardway": {"writer": "q/1", "batch": 3, "bounds": null}}')
    assert told == Commit("q/1", 3, None)
    assert _commit_info('{"shardway": {"writer": "q", "batch": 3, "bounds": "b", "query": "1"}}') == Commit(
        "q", 3, "b", "1"
    )
    others = (None, "", "nightly load", "3", "[]", '{"shardway": 1}', '{"shardway": {"writer": "q"}}')
    assert [_commit_info(text) for text in others] == [None] * len(others)


def snapshot(parent: int | None, at_s: int, batch: int | None = None, writer: str = "q") -> dict[str, Any]:
    summary = {} if batch is None else {"shardway.writer": writer, "shardway.batch": str(batch)}
    return {"parent_id": parent, "at_ms": at_s * 1000, "ours": summary}


def test_the_descent_of_a_snapshot() -> None:
    snapshots = {
        1: snapshot(None, 10),
        2: snapshot(1, 20, 0),
        3: snapshot(2, 30, 1),  # rolled back
        4: snapshot(2, 40, 5, writer="other"),
        5: {"parent_id": 4, "at_ms": 50_000, "ours": None},
    }
    whole = _descent(snapshots, 5, "q")
    assert (sorted(whole.commits), whole.since_s) == ([0], None)
    del snapshots[1], snapshots[2]
    assert _descent(snapshots, 5, "q") == History({}, 40.0)
    assert _descent({}, None, "q") == History({})
