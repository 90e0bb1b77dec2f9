"""Why Spark did not start: no Java, an old one, a package, or a setting."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.job.packages import packages_named
from penstock.pipeline.job.session import _why_java_ended, java_version, least_work

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def java(folder: Path, says: str, status: int = 0) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.".replace("'", ""), None),
    ],
)
def test_the_version_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, version: int | None) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path / "home", says))
    assert java_version() == version


def test_a_java_that_is_not_there_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert java_version() is None
    monkeypatch.setenv("JAVA_HOME", java(tmp_path / "home", 'version "17"', status=1))
    assert java_version() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", os.path.join(java(tmp_path / "other", 'version "21.0.1"'), "bin") + ":/bin:/usr/bin")
    assert java_version() == 21


def test_what_is_said_of_a_java_that_ended() -> None:
    assert "needs Java 17 or newer, on PATH or where JAVA_HOME says; none runs here" in _why_java_ended(None, ["a:b:1"])
    assert _why_java_ended(11, []).endswith("; here it is Java 11")
    assert "look at the packages first: a:b:1, c:d:2." in _why_java_ended(17, ["a:b:1", "c:d:2"])
    assert "does not take one of the settings under [spark]" in _why_java_ended(21, [])


def test_packages_are_found_wherever_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.jars.packages   e:f:3\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages c:d:2,a:b:1 --conf spark.x=y pyspark-shell")
    assert packages_named({"spark.jars.packages": "a:b:1"}) == ["a:b:1", "c:d:2", "e:f:3"]
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "spark-defaults.conf").unlink()
    assert packages_named({}) == []


@pytest.mark.spark
def test_a_checkpoint_on_a_disk_of_this_machine_is_written_without_programs(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    request.addfinalizer(lambda: spark.conf.unset(name))
    for elsewhere in ("nosuch://bucket/checkpoint", "hdfs://127.0.0.1:1/checkpoint"):
        least_work(spark, elsewhere)
        assert spark.conf.get(name, None) is None
    least_work(spark, str(tmp_path / "checkpoint"))
    assert str(spark.conf.get(name)).endswith("FileSystemBasedCheckpointFileManager")
