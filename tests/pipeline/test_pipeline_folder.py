"""The folder as any Parquet reader sees it, however often and wherever the writing of a batch was cut off."""

from __future__ import annotations

import base64
import datetime as dt
import fnmatch
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import OptionError
from shardway.pipeline import BatchFolder, ParquetFolder, deduplicate, file_layout, hadoop_files, parquet_folder
from shardway.pipeline.hadoop_files import HadoopFiles, LocalFiles, files_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    Frame = Callable[[list[dict[str, Any]]], DataFrame]


def seen(folder: Path) -> list[str]:
    """What a reader finds, sorted; a row that is there twice is in here twice."""
    if not folder.exists():
        return []
    rows = ds.dataset(folder, partitioning="hive").to_table(columns=["data"])["data"].to_pylist()
    return sorted(row.decode() for row in rows)


def parquet_files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def batch_of(written: Any, name: str, hours: int = 3, rows: int = 6) -> list[dict[str, Any]]:
    return [written.record(f"{name}-{n}", key=f"key-{n}", at_s=3600 * (n % hours)) for n in range(rows)]


def data_of(*batches: list[dict[str, Any]]) -> list[str]:
    return sorted(record["data"].decode() for batch in batches for record in batch)


def test_a_batch_lies_in_folders_of_hours(frame: Frame, written: Any, tmp_path: Path) -> None:
    ParquetFolder(str(tmp_path / "orders"), writer="q").write(frame(batch_of(written, "a")), 12)
    files = parquet_files(tmp_path / "orders")
    assert {file.partition("/")[0] for file in files} == {f"hour=2026-11-21-{hour}" for hour in (10, 11, 12)}
    assert all(re.fullmatch(r"hour=[\d-]+/batch-000000012-q-\d{5}\.parquet", file) for file in files)
    assert seen(tmp_path / "orders") == [f"a-{n}" for n in range(6)]
    assert not (tmp_path / "orders.staging" / "q").exists()


def test_a_batch_that_runs_again_replaces_what_it_wrote(frame: Frame, written: Any, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    first, second = batch_of(written, "a"), batch_of(written, "b")
    writing = ParquetFolder(str(folder), writer="q")
    writing.write(frame(first), 0)
    writing.write(frame(second), 1)
    writing.write(frame(second), 1)
    assert seen(folder) == data_of(first, second)
    ParquetFolder(str(folder), writer="q").write(frame(second[:2]), 1)  # other rows, in fewer hours
    assert seen(folder) == data_of(first, second[:2])


def test_going_back_to_an_older_checkpoint_replaces_the_later_batches(
    frame: Frame, written: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "orders"
    batches = [batch_of(written, name) for name in "abc"]
    writing = ParquetFolder(str(folder), writer="q")
    for number, batch in enumerate(batches, start=9):
        writing.write(frame(batch), number)
    ParquetFolder(str(folder), writer="q").write(frame(batches[1]), 10)
    assert seen(folder) == data_of(*batches[:2])


def test_writers_do_not_touch_each_other(frame: Frame, written: Any, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    mine, other = batch_of(written, "mine"), batch_of(written, "other")
    ParquetFolder(str(folder), writer="q").write(frame(mine), 0)
    ParquetFolder(str(folder), writer="q_2").write(frame(other), 0)
    ParquetFolder(str(folder), writer="q").write(frame(mine), 0)
    assert seen(folder) == data_of(mine, other)


def test_an_empty_batch_writes_nothing(frame: Frame, written: Any, tmp_path: Path) -> None:
    ParquetFolder(str(tmp_path / "orders"), writer="q").write(frame([]), 0)
    assert parquet_files(tmp_path) == []


def test_a_folder_may_have_any_name(frame: Frame, written: Any, tmp_path: Path) -> None:
    folder = tmp_path / "o[r]d{e}rs* ?"
    batch = batch_of(written, "a")
    for _ in range(2):
        ParquetFolder(str(folder), writer="q").write(frame(batch), 0)
    assert seen(folder) == data_of(batch)


class CutOff(BaseException):
    """Stands for SIGKILL: nothing of the sink runs after it."""


def cut_off_at(monkeypatch: pytest.MonkeyPatch, step: int | None) -> list[str]:
    """Make the n-th change of a file the last one; returns the list that the changes are noted in."""
    steps: list[str] = []

    class Fragile(LocalFiles):
        def _next(self, what: str) -> None:
            if len(steps) == step:
                raise CutOff
            steps.append(what)

        def remove(self, name: str) -> None:
            self._next("remove")
            super().remove(name)

        def move(self, file: str, folder: str, name: str) -> None:
            self._next("move")
            super().move(file, folder, name)

    monkeypatch.setattr(hadoop_files, "LocalFiles", Fragile)
    return steps


def test_cut_off_before_every_change_of_a_file(
    frame: Frame, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was written and not committed runs again, is cut off somewhere in that, and runs a third time."""
    first, second = batch_of(written, "a", 2, 2), batch_of(written, "b", 3, 6)
    one, two = frame(first).coalesce(1), frame(second).coalesce(1)

    def written_up_to(folder: Path, step: int | None) -> list[str]:
        cut_off_at(monkeypatch, None)
        writing = ParquetFolder(str(folder), writer="q")
        writing.write(one, 0)
        writing.write(two, 1)
        steps = cut_off_at(monkeypatch, step)
        ParquetFolder(str(folder), writer="q").write(two, 1)
        return steps

    all_steps = written_up_to(tmp_path / "whole", None)
    assert all_steps == ["remove"] * 4 + ["move"] * 3 + ["remove"]
    for step in range(len(all_steps)):
        folder = tmp_path / f"cut-{step}"
        with pytest.raises(CutOff):
            written_up_to(folder, step)
        at_the_cut = seen(folder)
        assert len(at_the_cut) == len(set(at_the_cut)), f"a row is there twice after {all_steps[:step]}"
        assert set(data_of(first)) <= set(at_the_cut) <= set(data_of(first, second))
        cut_off_at(monkeypatch, None)
        ParquetFolder(str(folder), writer="q").write(two, 1)
        assert seen(folder) == data_of(first, second), f"after {all_steps[:step]}"
        assert parquet_files(tmp_path / f"cut-{step}.staging") == []


def test_a_half_written_staging_folder_is_no_harm(frame: Frame, written: Any, tmp_path: Path) -> None:
    folder, batch = tmp_path / "orders", batch_of(written, "a")
    left = tmp_path / "orders.staging" / "q" / "hour=2026-11-21-10"
    left.mkdir(parents=True)
    (left / "part-00000-left.parquet").write_bytes(b"PAR1 cut off")
    ParquetFolder(str(folder), writer="q").write(frame(batch), 0)
    assert seen(folder) == data_of(batch)
    assert parquet_files(tmp_path / "orders.staging") == []


def test_a_write_that_failed_is_swept_by_the_next(
    frame: Frame, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same object goes on after an error in the middle of a batch."""
    folder, first, second = tmp_path / "orders", batch_of(written, "a"), batch_of(written, "b")
    writing = ParquetFolder(str(folder), writer="q")
    writing.write(frame(first), 0)
    monkeypatch.setattr(writing, "_place", None)  # what handles its files is made anew
    cut_off_at(monkeypatch, 2)
    with pytest.raises(CutOff):
        writing.write(frame(second), 1)
    monkeypatch.setattr(writing, "_place", None)
    cut_off_at(monkeypatch, None)
    writing.write(frame(second), 1)
    assert seen(folder) == data_of(first, second)


def test_rows_of_a_key_lie_in_order_in_one_file_per_hour(frame: Frame, written: Any, tmp_path: Path) -> None:
    records = [
        written.record(str(n), key=f"key-{n % 5}", at_s=3600 * (n // 100), shard_id=f"shard-{n % 2}")
        for n in range(200)
    ]
    ParquetFolder(str(tmp_path / "orders"), key="partition_key", writer="q").write(
        frame(records[::-1]).repartition(4), 0
    )
    homes: dict[tuple[str, str], set[str]] = {}
    for file in (tmp_path / "orders").rglob("*.parquet"):
        rows = pq.read_table(file, columns=["partition_key", "data"], partitioning=None).to_pylist()
        listed = [(row["partition_key"], int(row["data"])) for row in rows]
        assert listed == sorted(listed)
        for key in {key for key, _ in listed}:
            homes.setdefault((file.parent.name, key), set()).add(file.name)
    assert {home: len(files) for home, files in homes.items()} == {
        (f"hour=2026-11-21-{hour}", f"key-{n}"): 1 for hour in (10, 11) for n in range(5)
    }


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_hours_are_utc_in_every_session(
    spark: Any, frame: Frame, written: Any, tmp_path: Path, zone: str, request: pytest.FixtureRequest
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", before))
    times = {
        "spring": dt.datetime(2026, 3, 8, 7, 30, tzinfo=dt.UTC),
        "autumn": dt.datetime(2026, 11, 1, 5, 59, 59, 999_999, tzinfo=dt.UTC),
        "midnight": dt.datetime(2026, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
        "old": dt.datetime(1969, 12, 31, 22, 0, tzinfo=dt.UTC),
    }
    records = [written.record(name, approximate_arrival_timestamp=time) for name, time in times.items()]
    rows = frame(records)
    spark.conf.set("spark.sql.session.timeZone", zone)
    ParquetFolder(str(tmp_path / "orders"), writer="q").write(rows, 0)
    found = {pq.read_table(file, partitioning=None)["data"][0].as_py().decode(): file.parent.name
             for file in (tmp_path / "orders").rglob("*.parquet")}  # fmt: skip
    assert found == {name: f"hour={time:%Y-%m-%d-%H}" for name, time in times.items()}


@given(wanted=st.integers(0, 999_999_999), other=st.integers(0, 999_999_999))
def test_the_pattern_of_later_batches(wanted: int, other: int) -> None:
    patterns = parquet_folder._at_least(wanted).strip("{}").split(",")
    matches = any(fnmatch.fnmatchcase(f"{other:09d}", pattern) for pattern in patterns)
    assert matches == (other >= wanted)


@pytest.mark.parametrize(
    ("options", "columns", "fault"),
    [
        ({}, ["data"], "no column approximate_arrival_timestamp"),
        ({"time": "placed_at"}, ["data"], "no column placed_at"),
        ({"key": "customer"}, None, "no column customer"),
        (
            {"key": "partition_key"},
            ["partition_key", "approximate_arrival_timestamp"],
            "no column sequence_number; the batch has no column sub_sequence_number",
        ),
    ],
)
def test_missing_columns_are_named(
    frame: Frame, written: Any, tmp_path: Path, options: dict[str, str], columns: list[str] | None, fault: str
) -> None:
    batch = frame(batch_of(written, "a"))
    with pytest.raises(OptionError, match=fault):
        ParquetFolder(str(tmp_path / "orders"), writer="q", **options).write(batch.select(columns or "*"), 0)
    assert not (tmp_path / "orders").exists()


def test_a_column_called_hour_is_refused(frame: Frame, written: Any, tmp_path: Path) -> None:
    batch = frame(batch_of(written, "a")).withColumnRenamed("stream", "hour")
    with pytest.raises(OptionError, match="rename it"):
        ParquetFolder(str(tmp_path / "orders"), writer="q").write(batch, 0)


@pytest.mark.parametrize("writer", ["", "a-b", "a/b", "*", "x" * 65])
def test_writers_have_plain_names(writer: str) -> None:
    with pytest.raises(OptionError, match="writer"):
        ParquetFolder("orders", writer=writer)


def test_outside_of_a_query_the_writer_is_named(frame: Frame, written: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="writer="):
        ParquetFolder(str(tmp_path / "orders")).write(frame(batch_of(written, "a")), 0)


def test_staging_on_another_file_system_is_refused(frame: Frame, written: Any, tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    staging = elsewhere / f"shardway-{tmp_path.parent.name}-{tmp_path.name}"
    try:
        with pytest.raises(OptionError, match="staging: "):
            ParquetFolder(str(tmp_path / "orders"), writer="q", staging=str(staging)).write(
                frame(batch_of(written, "a")), 0
            )
    finally:
        HadoopFiles(frame([]).sparkSession).remove(str(staging))
    assert parquet_files(tmp_path) == []


@pytest.mark.parametrize("key", ["partition_key", None])
def test_a_query_with_state_writes_few_files(
    spark: Any, stream: Any, written: Any, tmp_path: Path, key: str | None, request: pytest.FixtureRequest
) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.shuffle.partitions", before))
    spark.conf.set("spark.sql.shuffle.partitions", "20")
    batches = [batch_of(written, name, hours=1, rows=100) for name in "ab"]
    for batch in batches:
        stream.add(batch)
    folder = ParquetFolder(str(tmp_path / "orders"), key=key)
    unique = deduplicate(stream.load(), "data", window="1 hour")
    checkpoint = str(tmp_path / "checkpoint")
    query = unique.writeStream.foreachBatch(folder.write).option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert seen(tmp_path / "orders") == data_of(*batches)
    assert len(parquet_files(tmp_path / "orders")) <= 4


def test_outputs_written_at_the_same_time_leave_the_querys_settings(spark: Any, request: pytest.FixtureRequest) -> None:
    """The query's state is planned with adaptive execution off, in each batch."""
    request.addfinalizer(lambda: spark.conf.unset("spark.sql.adaptive.enabled"))
    for before in ("false", "true"):
        spark.conf.set("spark.sql.adaptive.enabled", before)
        one, other = file_layout.few_files(spark), file_layout.few_files(spark)
        one.__enter__()
        other.__enter__()
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
        one.__exit__(None, None, None)
        other.__exit__(None, None, None)
        assert spark.conf.get("spark.sql.adaptive.enabled") == before


def test_a_query_names_its_files_and_replaces_them_when_a_commit_is_lost(
    stream: Any, written: Any, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    batches = [batch_of(written, name) for name in "ab"]
    for batch in batches:
        stream.add(batch)

    def run() -> str:
        writing = ParquetFolder(str(folder), key="partition_key")
        writer = stream.load().writeStream.foreachBatch(writing.write)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return str(query.id)

    query_id = run()
    files = parquet_files(folder)
    assert {re.sub(r".*/batch-\d+-(\w+)-.*", r"\1", file) for file in files} == {query_id.partition("-")[0]}
    assert seen(folder) == data_of(*batches)
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    assert run() == query_id
    assert seen(folder) == data_of(*batches)


def run_into(target: BatchFolder, stream: Any, checkpoint: Path) -> tuple[str, str]:
    """Run the stream into a folder. Return the id of the query, and what it failed of."""
    writing = stream.load().writeStream.foreachBatch(target.write).trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    except Exception as error:
        return str(query.id), str(error)
    finally:
        query.stop()
    return str(query.id), ""


def test_a_writers_name_belongs_to_one_checkpoint_directory(stream: Any, written: Any, tmp_path: Path) -> None:
    """A new checkpoint directory counts from batch 0: the files of the old one are not this query's to replace."""
    folder, batches = tmp_path / "orders", [batch_of(written, name) for name in "ab"]
    for batch in batches:
        stream.add(batch)
    query_id, failed = run_into(ParquetFolder(str(folder), writer="q"), stream, tmp_path / "one")
    assert failed == ""
    files, query = parquet_files(folder), query_id.partition("-")[0]
    assert {re.sub(r".*/batch-\d{9}-(.*)-\d{5}\.parquet", r"\1", file) for file in files} == {f"q-{query}"}

    _, failed = run_into(ParquetFolder(str(folder), writer="q"), stream, tmp_path / "other")
    assert f"files of writer q from another checkpoint directory (query {query}; batches 0 to 1)" in failed
    assert "Give this query a name of its own, writer=..." in failed
    assert (parquet_files(folder), seen(folder)) == (files, data_of(*batches))

    for name in ("1", ".1.crc"):
        (tmp_path / "one" / "commits" / name).unlink()
    assert run_into(ParquetFolder(str(folder), writer="q"), stream, tmp_path / "one") == (query_id, "")
    assert seen(folder) == data_of(*batches), "its own last batch is replaced"

    _, failed = run_into(ParquetFolder(str(folder), writer="q_2"), stream, tmp_path / "third")
    assert (failed, seen(folder)) == ("", data_of(*batches, *batches))


def test_files_without_a_querys_id_are_not_taken_for_those_of_a_new_query(
    frame: Frame, stream: Any, written: Any, tmp_path: Path
) -> None:
    """A call outside of a query writes such files."""
    folder, batch = tmp_path / "orders", batch_of(written, "a")
    for number in range(3):
        ParquetFolder(str(folder), writer="q").write(frame(batch), number)
    stream.add(batch)
    _, failed = run_into(ParquetFolder(str(folder), writer="q"), stream, tmp_path / "checkpoint")
    assert "another checkpoint directory (a query without an id; batches 0 to 2)" in failed
    assert seen(folder) == data_of(batch, batch, batch)


def test_a_call_outside_of_a_query_takes_no_querys_files_away(
    frame: Frame, stream: Any, written: Any, tmp_path: Path
) -> None:
    folder, batch = tmp_path / "orders", batch_of(written, "a")
    stream.add(batch)
    assert run_into(ParquetFolder(str(folder), writer="q"), stream, tmp_path / "checkpoint")[1] == ""
    with pytest.raises(OptionError, match="another checkpoint directory"):
        ParquetFolder(str(folder), writer="q").write(frame(batch), 0)
    assert seen(folder) == data_of(batch)


def test_a_second_try_in_the_process_sweeps_what_the_first_moved(
    frame: Frame, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tries may divide the rows into files in two ways: no file of the first is left beside those of the second."""
    folder, first, second = tmp_path / "orders", batch_of(written, "a"), batch_of(written, "b", hours=1)
    writing = ParquetFolder(str(folder), writer="q")
    writing.write(frame(first), 0)
    place = writing._place
    assert place is not None
    moved: list[str] = []

    class FullDisk(LocalFiles):
        def move(self, file: str, folder: str, name: str) -> None:
            if len(moved) == 2:
                raise OptionError("staging: the disk is full")
            super().move(file, folder, name)
            moved.append(name)

    monkeypatch.setattr(writing, "_place", place._replace(files=FullDisk(frame([]).sparkSession)))
    with (
        pytest.raises(OptionError, match="the disk is full"),
        writing.staged(frame(second).repartition(3, "data"), 1, as_divided=True) as staged,
    ):
        staged.put()
    assert len(moved) == 2, "two files of more are in place"
    monkeypatch.setattr(writing, "_place", place)
    with writing.staged(frame(second).coalesce(1), 1, as_divided=True) as staged:
        staged.put()
    assert seen(folder) == data_of(first, second)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_json_lines_by_any_columns_are_written_once_too(
    frame: Frame, written: Any, tmp_path: Path, compression: str
) -> None:
    folder = tmp_path / "orders"
    batches = [batch_of(written, name) for name in "ab"]
    for run in range(2):
        writing = BatchFolder(
            str(folder),
            format="json",
            partition_by=["shard_id", "hour"],
            options={"compression": compression},
            writer="q",
        )
        for number, batch in enumerate(batches[run:], start=run):
            writing.write(frame(batch), number)
    rows = frame([]).sparkSession.read.json(str(folder)).collect()
    assert sorted(base64.b64decode(row["data"]).decode() for row in rows) == data_of(*batches)
    assert {row["hour"] for row in rows} == {f"2026-11-21-{hour}" for hour in (10, 11, 12)}
    ending = {"none": r"\.json", "gzip": r"\.json\.gz"}[compression]
    place = r"shard_id=shardId-0+/hour=[\d-]+/batch-00000000[01]-q-\d{5}"
    assert all(re.fullmatch(place + ending, file) for file in parquet_files(folder))


def test_a_flat_folder_and_a_batch_without_rows(frame: Frame, written: Any, tmp_path: Path) -> None:
    folder, batch = tmp_path / "orders", batch_of(written, "a")
    writing = BatchFolder(str(folder), writer="q")
    writing.write(frame(batch).coalesce(1), 0)
    writing.write(frame(batch).coalesce(1), 1)
    assert parquet_files(folder) == [f"batch-00000000{number}-q-00000.parquet" for number in (0, 1)]
    again = BatchFolder(str(folder), writer="q")
    again.write_nothing(frame([]), 1)  # it had rows before
    again.write(frame(batch).coalesce(1), 2)
    assert parquet_files(folder) == [f"batch-00000000{number}-q-00000.parquet" for number in (0, 2)]


def test_columns_to_partition_by_have_to_be_there(frame: Frame, written: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no column customer"):
        BatchFolder(str(tmp_path / "orders"), partition_by=["customer"], writer="q").check(frame([]))


@pytest.mark.parametrize("kind", [HadoopFiles, LocalFiles])
def test_files_of_this_machine_with_hadoop_and_without(spark: Any, tmp_path: Path, kind: type[HadoopFiles]) -> None:
    """Both do the same, and give folders the same mode whatever this process's mask is."""
    files = kind(spark)
    staged = tmp_path / "a b%20{c}.staging" / "kind=x y" / "part-00000-u.json"
    staged.parent.mkdir(parents=True)
    staged.write_text("1")
    (staged.parent / ".part-00000-u.json.crc").write_text("2")
    staging, folder = str(staged.parents[1]), tmp_path / "a b%20{c}" / "kind=x y"
    found = files.parts(staging, 1)
    assert [name.removeprefix("file:") for name in found] == [str(staged)]
    before = os.umask(0o077)
    try:
        files.move(found[0], str(folder), "batch-1.json")
    finally:
        os.umask(before)
    assert (folder / "batch-1.json").read_text() == "1"
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)} == {0o755}
    with pytest.raises(OptionError, match="staging: "):
        files.move(found[0], str(folder), "batch-2.json")
    for _ in range(2):
        files.remove(staging)
        files.remove(str(folder / "batch-1.json"))
    assert [path.name for path in tmp_path.rglob("*")] == ["a b%20{c}", "kind=x y"]


def test_where_files_are_this_machines(spark: Any, tmp_path: Path) -> None:
    for spelled in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}/"):
        files, (folder,) = files_for(spark, spelled)
        assert (type(files), folder) == (LocalFiles, str(tmp_path))
    files, folders = files_for(spark, str(tmp_path), "nosuch://bucket/a")
    assert (type(files), folders) == (HadoopFiles, [str(tmp_path), "nosuch://bucket/a"])
