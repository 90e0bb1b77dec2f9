"""A checkpoint directory that is not on this machine's disks, as far as the runner can tell: one run has it at a time.

The directory is on Hadoop's `viewfs`, which shows a local folder under another name: the same calls as for HDFS or a
bucket.
"""

from __future__ import annotations

import io
import json
import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode, load_job
from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.run import claim
from shardway.pipeline.job.run.claim import Claim, hold, owner_of
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.places import LOCK_SUFFIX, run_lock
from shardway.pipeline.job.run.stopping import Stopping
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SINK = '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n'
RENEW_S, GONE_S = 0.2, 2.0
WAIT_S = 120.0


class Elsewhere:
    """A folder under a name of its own, and the claim beside the checkpoint directory in it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        # Hadoop keeps the file system of a name for the life of the JVM.
        name = f"c{uuid.uuid4().hex[:8]}"
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()
        self._setting = f"fs.viewfs.mounttable.{name}.link./lake"
        self._conf.set(self._setting, f"file:{folder}")
        self.checkpoint = f"viewfs://{name}/lake/checkpoint"
        self.file = folder / f"checkpoint{LOCK_SUFFIX}"
        self.job = HEAD.replace("{folder}/checkpoint", self.checkpoint) + SINK
        self._spark = spark

    def close(self) -> None:
        self._conf.unset(self._setting)

    def claim(self) -> Claim:
        """Another run's."""
        return Claim(self._spark, self.checkpoint + LOCK_SUFFIX)

    def write(self, renewals: int = 1) -> bytes:
        """As another run writes it."""
        # Hadoop keeps a checksum of a local file beside it, and does not read what another program has written there.
        self.file.with_name(f".{self.file.name}.crc").unlink(missing_ok=True)
        about = {"host": "another", "pid": 17, "run": "b", "renewals": renewals}
        self.file.write_text(json.dumps(about))
        return self.file.read_bytes()


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    for name, value in {"RENEW_S": RENEW_S, "GONE_S": GONE_S, "LOOK_S": 0.1}.items():
        monkeypatch.setattr(claim, name, value)
    made = Elsewhere(spark, tmp_path)
    yield made
    made.close()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with LocalKinesis(streams={"orders": 1}) as local:
        world = World(spark, local, tmp_path)
        world.put(b"one")
        yield world


class Run:
    """A run of the job as far as its lock goes, and the events that it shows."""

    def __init__(self, spark: SparkSession, elsewhere: Elsewhere, folder: Path) -> None:
        path = folder / "job.toml"
        text = elsewhere.job.replace("{folder}", str(folder)).replace("{region}", "us-east-1")
        path.write_text(text.replace("{endpoint}", "http://127.0.0.1:1"), encoding="utf-8")
        self._spark = spark
        self._job_file = load_job(path, {})
        self._out = io.StringIO()
        self.stopping = Stopping()
        self.lock = self._lock()

    @contextmanager
    def _lock(self) -> Iterator[Callable[[], None]]:
        show = RunOutput(as_json=True, out=self._out, errors=io.StringIO())
        with run_lock(self._spark, self._job_file, self.stopping, show) as check:
            yield check

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.getvalue().splitlines()]


@pytest.fixture
def run(spark: SparkSession, elsewhere: Elsewhere, tmp_path: Path) -> Run:
    return Run(spark, elsewhere, tmp_path)


@contextmanager
def held(one: Claim) -> Iterator[None]:
    with hold(one, lambda owner, wait_s: None, lambda: False):
        yield


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_second_run_is_refused_while_the_first_one_renews_its_claim(elsewhere: Elsewhere, world: World) -> None:
    with held(elsewhere.claim()):
        ended = world.run(elsewhere.job + ONCE)
        assert ended.code is ExitCode.NOT_READY
        assert f"process {os.getpid()} on {socket.gethostname()} has the Spark checkpoint directory" in ended.message
        assert [one["owner"] for one in ended.of("waits")] == [f"process {os.getpid()} on {socket.gethostname()}"]
        assert not (world.folder / "checkpoint").exists(), "nothing was begun"
    assert not elsewhere.file.exists()


def test_a_run_writes_its_claim_anew_and_takes_it_away_at_its_end(elsewhere: Elsewhere, run: Run) -> None:
    with run.lock as check:
        first = elsewhere.file.read_bytes()
        until(lambda: elsewhere.file.read_bytes() not in (first, b""))
        check()
    assert not elsewhere.file.exists()
    assert run.events() == []


@pytest.mark.parametrize("left", [b"", b"no JSON", b'["list"]', None])
def test_the_claim_of_a_run_that_is_gone_is_taken(elsewhere: Elsewhere, run: Run, left: bytes | None) -> None:
    elsewhere.file.write_bytes(elsewhere.write() if left is None else left)
    with run.lock as check:
        until(lambda: str(os.getpid()).encode() in elsewhere.file.read_bytes())
        check()
    owner = "process 17 on another" if left is None else "another run"
    assert [(one["event"], one["owner"], one["seconds_max"]) for one in run.events()] == [("waits", owner, GONE_S)]
    assert not elsewhere.file.exists()


def test_a_run_whose_claim_was_taken_ends_and_leaves_it(elsewhere: Elsewhere, world: World) -> None:
    """As it is with a driver that stood still for longer than a run that waits."""
    ended = threading.Event()

    def take() -> None:
        until((world.folder / "checkpoint" / "offsets" / "0").exists)
        while not ended.wait(RENEW_S / 4):  # the run's own write may come in between
            elsewhere.write()

    taking = threading.Thread(target=take)
    taking.start()
    try:
        found = world.run(elsewhere.job)
    finally:
        ended.set()
        taking.join()
    assert found.code is ExitCode.FAILED
    assert "process 17 on another has taken the Spark checkpoint directory" in found.message
    assert json.loads(elsewhere.file.read_bytes())["pid"] == 17


def test_of_two_runs_that_begin_together_one_goes_on(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.claim(), elsewhere.claim()
    with held(first):
        elsewhere.file.unlink()  # the second one looked before the first one wrote
        with held(second):
            until(lambda: first.taken_by is not None or second.taken_by is not None)
            time.sleep(3 * RENEW_S)
            assert {first.taken_by is None, second.taken_by is None} == {True, False}
            assert elsewhere.file.exists()


def test_a_stop_that_is_asked_for_ends_the_wait(
    elsewhere: Elsewhere, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "GONE_S", 10 * WAIT_S)
    elsewhere.write()
    run.stopping.ask()
    with pytest.raises(StepError, match="process 17 on another") as refused, run.lock:
        pass
    assert refused.value.code is ExitCode.NOT_READY


def test_a_place_that_takes_no_claim_is_told_and_is_no_obstacle(elsewhere: Elsewhere, run: Run) -> None:
    elsewhere.file.mkdir()
    with run.lock as check:
        check()
    (told,) = run.events()
    assert (told["event"], told["claim"]) == ("unlocked", elsewhere.checkpoint + LOCK_SUFFIX)
    assert told["why"]


@pytest.mark.parametrize(
    ("written", "owner"),
    [
        (b'{"host": "h", "pid": 17}', "process 17 on h"),
        (b"[" * 1_000, "another run"),
        (b"\xff", "another run"),
        (b'{"host": "h", "pid": {}}', "another run"),
        (b'{"pid": 17}', "another run"),
    ],
)
def test_any_bytes_name_an_owner(written: bytes, owner: str) -> None:
    assert owner_of(written) == owner


def test_the_name_of_a_host_reaches_a_terminal_without_escapes() -> None:
    assert "\x1b" not in owner_of(b'{"host": "\\u001b[31m", "pid": 17}')
