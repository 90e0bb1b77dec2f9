"""Why Spark did not start (no Java, an old one, a package, a setting), and by which Python it works."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.session import java as session_java
from shardway.pipeline.job.session import session
from shardway.pipeline.job.session.java import java_version, why_java_ended
from shardway.pipeline.job.session.packages import OPTIONS, packages_named
from shardway.pipeline.job.session.session import _keep_to_loopback, least_work, with_quiet_start

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
HERE = {"spark.master": "local[2]"}


def program(place: Path, content: str) -> str:
    place.parent.mkdir(parents=True)
    place.write_text(content)
    place.chmod(0o755)
    return str(place)


def java(folder: Path, says: str, status: int = 0) -> str:
    program(folder / "bin" / "java", f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
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
    assert "needs Java 17 or newer, on PATH or where JAVA_HOME says; none runs here" in why_java_ended(None, ["a:b:1"])
    assert why_java_ended(11, []).endswith("; here it is Java 11")
    assert "look at the packages first: a:b:1, c:d:2." in why_java_ended(17, ["a:b:1", "c:d:2"])
    assert "does not take one of the settings under [spark]" in why_java_ended(21, [])


@pytest.mark.parametrize(
    ("settings", "doing"),
    [({}, "it has nothing to fetch"), ({"spark.jars.packages": "a:b:1"}, r"it may be fetching packages \(a:b:1\)")],
)
def test_a_java_that_never_answers_is_told_and_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: dict[str, str], doing: str
) -> None:
    hangs, ended = threading.Event(), list[bool]()
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda conf: hangs.wait())
    monkeypatch.setattr(session_java._JavaProcesses, "end", lambda processes: ended.append(True))
    monkeypatch.setattr(session_java, "TOLD_EVERY_S", 0.05)
    for name in ("START_MAX_S", "PACKAGES_START_MAX_S"):
        monkeypatch.setattr(session_java, name, 0.2)
    check: Any = SimpleNamespace(mistake=Future(), raise_mistake=lambda: None)
    check.mistake.set_result(None)
    with pytest.raises(StepError, match=f"has not answered for 0 s; {doing}.* It was ended") as told:
        session_java.start_java(settings, check)
    hangs.set()
    assert told.value.code is ExitCode.NOT_READY
    assert ended == [True]
    assert "has not answered for 0 s" in caplog.text


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


@pytest.fixture
def before_java(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The state of a process that has not started Java yet, and in which nothing names a Python."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    for name in (*PYTHONS, "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_java_says_nothing_of_its_start_beside_other_options(before_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before_java.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "log4j2.properties.template").write_text("")
    option = f"-Dlog4j2.configurationFile={session._LOG4J}"
    assert with_quiet_start({}) == {OPTIONS: option}
    assert with_quiet_start({OPTIONS: "-Xss4m"}) == {OPTIONS: f"-Xss4m {option}"}


def test_a_log_that_the_user_has_configured_stays_as_it_is(before_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before_java.setenv("SPARK_CONF_DIR", str(tmp_path))
    own = "-Dlog4j2.configurationFile=own.xml"
    assert with_quiet_start({OPTIONS: own}) == {OPTIONS: own}
    for name, value in (
        ("JAVA_TOOL_OPTIONS", own),
        ("PYSPARK_SUBMIT_ARGS", "--driver-java-options -Xss4m pyspark-shell"),
        ("PYSPARK_SUBMIT_ARGS", f"--conf {OPTIONS}=-Xss4m pyspark-shell"),
        ("LOG4J_CONFIGURATION_FILE", "own.xml"),
    ):
        before_java.setenv(name, value)
        assert with_quiet_start(HERE) == HERE, (name, value)
        before_java.delenv(name)
    for file, content in (("log4j2.xml", ""), ("log4j2.properties", ""), ("spark-defaults.conf", f"{OPTIONS} -Xss4m")):
        (tmp_path / file).write_text(content)
        assert with_quiet_start(HERE) == HERE, file
        (tmp_path / file).unlink()
    before_java.setattr(session, "_LOG4J", "/a folder/log4j2.properties")
    assert with_quiet_start(HERE) == HERE


@pytest.mark.parametrize(
    ("settings", "given", "address", "ui"),
    [
        ({"spark.master": "local[*]"}, None, "127.0.0.1", None),
        ({"spark.master": "local"}, "0.0.0.0", "0.0.0.0", None),
        ({"spark.master": "local[2]", "spark.driver.host": "10.0.0.1"}, None, None, None),
        ({"spark.master": "spark://a:7077"}, None, None, "false"),
        ({"spark.master": "spark://a:7077", "spark.ui.enabled": "true"}, None, None, "true"),
    ],
)
def test_sparks_pages_are_on_loopback_unless_they_are_asked_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], given: str | None, address: str | None, ui: str | None
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("SPARK_LOCAL_IP", given or "")
    if given is None:
        monkeypatch.delenv("SPARK_LOCAL_IP")
    made = dict(settings)
    _keep_to_loopback(made)
    assert os.environ.get("SPARK_LOCAL_IP") == address
    assert made.get("spark.ui.enabled") == ui
