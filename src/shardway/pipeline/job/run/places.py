"""Look at the places of a job on this machine's disks before anything is read: whether each can be written, and whether
another run has the checkpoint directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from shardway.pipeline.hadoop_files import LocalFiles
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job


LOCK_SUFFIX = ".lock"
_OWNER_BYTES_MAX = 1_000


def unwritable(spark: SparkSession, job: Job) -> list[Fault]:
    """Return a fault for each place on this machine's disks that cannot be written."""
    places: list[tuple[KeyPath, str]] = [(("checkpoint",), job.checkpoint)]
    places += [(("sinks", at, "path"), sink.path) for at, sink in enumerate(job.sinks) if sink.path is not None]
    if job.dead_letters is not None and job.dead_letters.path is not None:
        places.append((("dead_letters", "path"), job.dead_letters.path))
    files = LocalFiles(spark)
    found = [(path, files.local(place)) for path, place in places]
    told = [(path, _why_not(place)) for path, place in found if place is not None]
    return [Fault(path, what) for path, what in told if what]


def _why_not(place: str) -> str:
    """Return why a folder cannot be made or written; empty where it can be."""
    there = place
    while not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"cannot be written: {there} is no folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return f"cannot be written: this process may not write into {there}"
    return ""


@contextmanager
def run_lock(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Hold a checkpoint directory on this machine's disks for this run while the block runs.

    The kernel holds the lock, on a file beside the directory (Spark wants a new directory empty): it ends with the
    process, also by SIGKILL, so no file of a dead run stands in the way. Raises StepError where another run holds it.
    Of a directory elsewhere this knows nothing; Spark itself fails one of two runs there when both write one batch.
    """
    folder = LocalFiles(spark).local(checkpoint)
    if folder is None:
        yield
        return
    name = folder.rstrip("/") + LOCK_SUFFIX
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        what = f"the Spark checkpoint directory {checkpoint} cannot be locked: {name}: {error.strerror}"
        raise StepError(what, step="checkpoint", code=ExitCode.FAILED) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StepError(_told(checkpoint, lock), step="checkpoint", code=ExitCode.NOT_READY) from None
        except OSError:  # a file system without locks
            yield
            return
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode(), 0)
        yield
    finally:
        os.close(lock)


def _told(checkpoint: str, lock: int) -> str:
    owner = "another run"
    with suppress(OSError, ValueError, KeyError, TypeError):
        about = json.loads(os.pread(lock, _OWNER_BYTES_MAX, 0))
        owner = f"process {int(about['pid'])} on {about['host']}"
    return (
        f"{owner} has the Spark checkpoint directory {checkpoint}: two runs of one job would stand in each other's "
        "way. Nothing was read. Stop that one first, or give this job a checkpoint directory of its own"
    )
