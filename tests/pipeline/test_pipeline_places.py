"""Spellings of one place are one place: for the check of a job file, and when a batch is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from shardway.pipeline import BatchFolder
from shardway.pipeline.locations import collide, identity
from shardway.pipeline.spark_paths import identity_in
from tests.pipeline.failing import failure

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    return tmp_path


def test_spellings_of_a_folder_of_this_machine(here: Path) -> None:
    spelled = ["real/out", "./real/out/", "real//out", "link/out", "link/../real/out", str(here / "real" / "out")]
    spelled += [f"file:{here}/real/out", f"FILE://{here}/link/out/.", f"file://localhost{here}/real/out"]
    assert {identity(one) for one in spelled} == {f"file:{os.path.realpath(here)}/real/out"}
    assert identity("a/b:c/d").endswith("/a/b:c/d"), "a colon behind a slash ends no scheme"


@pytest.mark.parametrize(
    "spelled",
    [
        ["s3://lake/orders", "s3a://lake/orders/", "S3N://lake//orders", "s3://LAKE/x/../orders"],
        ["hdfs://nn:8020/orders", "HDFS://NN:8020/orders/."],
        ["abfs://lake@shop.dfs.core.windows.net/o", "abfss://lake@Shop.dfs.core.windows.net/o/"],
        ["hdfs:///orders", "hdfs:/orders"],
    ],
)
def test_spellings_of_a_folder_elsewhere(spelled: list[str]) -> None:
    assert len({identity(one) for one in spelled}) == 1


def test_places_that_differ(here: Path) -> None:
    differ = [
        "out",
        "Out",
        "real/out",
        "s3://lake/out",
        "s3://lake/Out",
        "s3://sea/out",
        "hdfs://nn/out",
        "gs://lake/out",
    ]
    assert len({identity(one) for one in differ}) == len(differ)


def test_what_collides() -> None:
    assert collide("file:/a/out", "file:/a/out")
    assert collide("file:/a/out", "file:/a/out/kind=b")
    assert collide("s3://lake/out/day=1/kind=b", "s3://lake/out")
    for other in ("file:/a/out/dead", "file:/a/out/kind=b/dead", "file:/a/out2", "file:/a", "file:/a/out.staging"):
        assert not collide("file:/a/out", other)


def test_spark_says_which_file_system_it_is(spark: SparkSession, here: Path) -> None:
    assert identity_in(spark, f"{here}/link/./out") == identity("real/out")
    assert identity_in(spark, "nosuch://x/../y") == "nosuch://x/y"


@pytest.mark.parametrize("second", ["out", "./out", "linked", "FILE"])
def test_a_second_write_of_a_batch_to_one_folder_is_refused(stream: Any, written: Any, here: Path, second: str) -> None:
    (here / "out").mkdir()
    (here / "linked").symlink_to("out", target_is_directory=True)
    stream.add([written.record("a"), written.record("b")])
    one, other = BatchFolder(f"{here}/out"), BatchFolder(f"FILE:{here}/out" if second == "FILE" else f"{here}/{second}")

    def both(batch: DataFrame, number: int) -> None:
        one.write(batch.where("data = 'a'"), number)
        other.write(batch.where("data = 'b'"), number)

    failed = failure(stream.load(), both, here / "checkpoint")
    assert "batch 0 was written to this folder before in the same run" in failed
    rows = ds.dataset(here / "out", format="parquet").to_table(columns=["data"])["data"].to_pylist()
    assert rows == [b"a"], "what was written first is still there"


def test_a_write_that_failed_is_tried_again_and_other_folders_and_writers_are_free(
    stream: Any, written: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.add([written.record("a")])
    stream.add([written.record("b")])
    folder, broken = BatchFolder(f"{here}/out"), [True]
    stage = folder._stage

    def breaks_once(*args: Any, **named: Any) -> None:
        if broken:
            broken.clear()
            raise OSError("a disk is full")
        stage(*args, **named)

    monkeypatch.setattr(folder, "_stage", breaks_once)

    def write(batch: DataFrame, number: int) -> None:
        if broken:
            with pytest.raises(OSError, match="a disk is full"):
                folder.write(batch, number)
        folder.write(batch, number)
        BatchFolder(f"{here}/./out", writer="other").write(batch, number)
        BatchFolder(f"{here}/out2").write(batch, number)

    assert failure(stream.load(), write, here / "checkpoint") == ""
    for name, times in (("out", 2), ("out2", 1)):
        rows = ds.dataset(here / name, format="parquet").to_table(columns=["data"])["data"].to_pylist()
        assert sorted(rows) == sorted([b"a", b"b"] * times)
