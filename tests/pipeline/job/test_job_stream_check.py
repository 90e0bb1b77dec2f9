"""Mistakes about a job's stream, told before there is a Spark: by a run beside Java's start, and by the check."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode, load_job, run_file
from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.run.stream_check import StreamCheck, stored_arn
from shardway.pipeline.job.session.java import _JavaProcesses, start_java

pyspark = pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = """\
name = "orders"
checkpoint = "{folder}/checkpoint"

[source]
streamName = "orders"
region = "us-east-1"
endpointUrl = "{endpoint}"

[[sinks]]
format = "parquet"
path = "{folder}/orders"
"""
OTHER = "arn:aws:kinesis:us-east-1:123456789012:stream/clicks"
OFFSET = {"arn": OTHER, "created": 1, "cut": 1, "shards": {"0": "n1.1"}, "tasks": 1, "v": 2}


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={"orders": 2}) as running:
        for name, value in running.environment().items():
            if "ENDPOINT" not in name:
                monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Java that never comes up: what waits for it waits for ever. Spark's launcher has the real one."""
    real = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else shutil.which("java")
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\ncase "$*" in *launcher.Main*) exec "{real}" "$@" ;; esac\nexec sleep 600\n')
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    for thread in threading.enumerate():
        if thread.name == "shardway-java":
            thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves the pipe of a Java that ended open
        gc.collect()


def write(folder: Path, endpoint: str, text: str = JOB) -> Path:
    path = folder / "job.toml"
    path.write_text(text.replace("{folder}", str(folder)).replace("{endpoint}", endpoint))
    return path


def without_credentials(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(folder / "none"))


def checkpoint_of_another_stream(folder: Path) -> None:
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch in (9, 10):
        (offsets / str(batch)).write_text("v1\n{}\n" + json.dumps(OFFSET if batch == 10 else {"v": 2}))


MISTAKES = {
    "name": "source failed: there is no stream ordres in region us-east-1 for these credentials",
    "region": "source failed: there is no stream orders in region eu-west-3 for these credentials",
    "credentials": "source failed: no AWS credentials were found. Looked at ",
    "checkpoint": f"source failed: the Spark checkpoint directory belongs to {OTHER}, the options name ",
}


def make(mistake: str, folder: Path, local: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = JOB
    if mistake == "name":
        text = text.replace('streamName = "orders"', 'streamName = "ordres"')
    elif mistake == "region":
        text = text.replace("us-east-1", "eu-west-3")
    elif mistake == "credentials":
        without_credentials(monkeypatch, folder)
    else:
        checkpoint_of_another_stream(folder)
    return write(folder, local.endpoint_url, text)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_run_tells_a_mistake_while_java_still_starts(
    mistake: str, local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert run_file(make(mistake, tmp_path, local, monkeypatch)) == ExitCode.SOURCE
    errors = capfd.readouterr().err
    assert [line for line in errors.splitlines() if MISTAKES[mistake] in line] == errors.splitlines()
    assert pyspark.SparkContext._gateway is None, "no Java came up"


@pytest.mark.usefixtures("java")
def test_a_mistake_that_is_known_before_java_begins_ends_what_begins_then(
    local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = StreamCheck(load_job(make("name", tmp_path, local, monkeypatch)))
    assert check.mistake.result() is not None
    with pytest.raises(StepError, match="there is no stream ordres"):
        start_java({}, check)
    assert pyspark.SparkContext._gateway is None, "no Java came up"


def test_java_gets_the_signals_of_the_program_and_ends_when_it_is_asked_to() -> None:
    """Ctrl-Z, Ctrl-C twice, a terminal that goes and `kill -- -GROUP` mean the process group: Java is in it."""
    processes = _JavaProcesses()
    with processes.recorded():
        process = pyspark.java_gateway.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    try:
        assert os.getpgid(process.pid) == os.getpgrp()
        processes.end()
        assert process.wait() == -signal.SIGTERM
        processes.end()  # of one that is gone
    finally:
        process.kill()
        process.communicate()


def test_what_java_says_is_no_line_of_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    processes = _JavaProcesses()
    with processes.recorded():
        assert pyspark.java_gateway.Popen(["echo", ":: loading settings ::"]).wait() == 0
    assert capfd.readouterr() == ("", ":: loading settings ::\n")


@pytest.mark.usefixtures("java")
def test_the_command_ends_with_one_line_and_leaves_no_java(
    local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("credentials", tmp_path, local, monkeypatch)
    command = [sys.executable, "-c", "import sys; from shardway.cli import main; sys.exit(main())", "run", str(path)]
    # Java has the command's output: the end of that, for which this waits, is also the end of Java.
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == ExitCode.SOURCE
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"shardway: {MISTAKES['credentials']}")
    assert "job orders runs" not in ended.stdout


FORKS = """
import os, sys
from pathlib import Path
from shardway.pipeline.job import load_job
from shardway.pipeline.job.run.stream_check import StreamCheck

late, register = [], os.register_at_fork
def recorded(**hooks):
    late.extend(hook for hook in hooks if hook != "after_in_child")
    register(**hooks)
os.register_at_fork = recorded
check = StreamCheck(load_job(Path(sys.argv[1])))
print(type(check.mistake.result()).__name__, late)
"""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_check_changes_nothing_of_what_a_fork_does(
    mistake: str, local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread forks for Java meanwhile. A lock that came in between would be let go of by the fork alone."""
    path = make(mistake, tmp_path, local, monkeypatch)
    ended = subprocess.run([sys.executable, "-c", FORKS, str(path)], capture_output=True, text=True, check=True)
    assert ended.stdout == "StepError []\n"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_check_asks_the_service_only_if_it_is_told_to(
    mistake: str, local: LocalKinesis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = make(mistake, tmp_path, local, monkeypatch)
    assert run_file(path, check=True) == ExitCode.DONE
    assert run_file(path, check=True, online=True) == ExitCode.SOURCE
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"shardway: {MISTAKES[mistake]}")


def test_the_check_tells_what_the_stream_is(
    local: LocalKinesis, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, local.endpoint_url)
    assert run_file(path, check=True, online=True, as_json=True) == ExitCode.DONE
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["checked", "stream"]
    assert events[1]["shards"] == 2
    assert events[1]["status"] == "ACTIVE"
    assert run_file(path, check=True, online=True) == ExitCode.DONE
    assert "stream/orders is ACTIVE: 2 open shards, 24 hours are kept" in capfd.readouterr().out


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("answers", [False, True])
def test_a_service_that_is_away_or_says_nothing_is_no_mistake(answers: bool, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if answers:
            listener.listen()
        host, port = listener.getsockname()
        check = StreamCheck(load_job(write(tmp_path, f"http://{host}:{port}")))
        if answers:
            listener.accept()[0].close()
        else:
            check.mistake.result()
        check.raise_mistake()
    assert check.mistake.result() is None


@pytest.mark.usefixtures("local")
def test_a_check_that_is_under_way_keeps_no_start_waiting(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        check = StreamCheck(load_job(write(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}")))
        silent = listener.accept()[0]
        check.raise_mistake()
        assert not check.mistake.done()
        silent.close()
    assert check.mistake.result() is None


def test_only_a_checkpoint_on_this_machine_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    checkpoint_of_another_stream(tmp_path)
    job = load_job(write(tmp_path, "http://127.0.0.1:1")).job
    folder = f"{tmp_path}/checkpoint"
    for place in (folder, f"file:{folder}", f"file://{folder}"):
        assert stored_arn(replace(job, checkpoint=place)) == OTHER, place
    for place in (f"s3a:/{folder}", f"hdfs://{folder}", f"{tmp_path}/none"):
        assert stored_arn(replace(job, checkpoint=place)) is None, place
    for damaged in ("", "v1", "v1\n{}\n[]", "v1\n{}\n{", "v1\n{}\n" + json.dumps({"v": 2})):
        (tmp_path / "checkpoint" / "offsets" / "11").write_text(damaged)
        assert stored_arn(job) is None, damaged
    (tmp_path / "checkpoint" / "offsets" / "11").write_bytes(b"v1\n{}\n\xff\xfe")
    assert stored_arn(job) is None
    (tmp_path / "checkpoint" / "offsets" / "11").unlink()
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert stored_arn(job) is None
