"""Places of a job: those that cannot be written, and a checkpoint directory that another run has."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shardway.local import LocalKinesis
from shardway.pipeline.job import ExitCode
from shardway.pipeline.job.errors.exit_codes import StepError
from shardway.pipeline.job.run.places import LOCK_SUFFIX, kernel_lock
from tests.pipeline.job.job_running import HEAD, ONCE, World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOLDER = """
import fcntl, json, os, socket, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.pwrite(lock, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_run_of_a_checkpoint_is_refused_until_the_first_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    text = HEAD + '[[sinks]]\nformat = "parquet"\npath = "{folder}/orders"\n' + ONCE
    lock = str(tmp_path / "checkpoint") + LOCK_SUFFIX
    with LocalKinesis(streams={"orders": 1}) as local:
        world = World(spark, local, tmp_path)
        world.put(b"one")
        first = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE)
        try:
            assert first.stdout is not None
            first.stdout.readline()
            ended = world.run(text)
            assert ended.code is ExitCode.NOT_READY
            assert f"process {first.pid} on {socket.gethostname()} has the Spark checkpoint directory" in ended.message
            assert not (tmp_path / "checkpoint").exists(), "nothing was begun"
        finally:
            first.send_signal(signal.SIGKILL)
            first.communicate()
        assert world.run(text).code is ExitCode.DONE, "the lock of a run that was killed is gone"
        assert world.run(text).code is ExitCode.DONE
    place = str(tmp_path / "checkpoint")
    refused = pytest.raises(StepError, match=f"process {os.getpid()} on ")
    with kernel_lock(place, place), refused, kernel_lock(place, place):
        pass


def test_a_place_that_cannot_be_written_is_a_fault_with_its_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = (
        HEAD.replace("{folder}/checkpoint", "{folder}/file/checkpoint")
        + '[[sinks]]\nformat = "parquet"\npath = "{folder}/file/orders"\n' + ONCE
    )  # fmt: skip
    with LocalKinesis(streams={"orders": 1}) as local:
        ended = World(spark, local, tmp_path).run(text)
    assert ended.code is ExitCode.WRONG_JOB
    told = [str(error["message"]) for error in ended.of("error")]
    assert [one.partition("job.toml:")[2] for one in told] == [
        f"2: checkpoint: cannot be written: {tmp_path}/file is no folder",
        f"12: sinks[0].path: cannot be written: {tmp_path}/file is no folder",
    ]
