"""Look at the places of a job before anything is read: whether each on this machine's disks can be written, and whether
another run has the checkpoint directory.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from shardway.pipeline.hadoop_files import LocalFiles
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.faults import Fault
from shardway.pipeline.job.run.claim import GONE_S, Claim, ClaimTakenError, hold, owner_of, process_fields
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job
    from shardway.pipeline.job.run.output import RunOutput
    from shardway.pipeline.job.run.stopping import Stopping


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
def run_lock(
    spark: SparkSession, job_file: JobFile, stopping: Stopping, show: RunOutput
) -> Iterator[Callable[[], None]]:
    """Hold the checkpoint directory of a job for this run while the block runs. The block gets a function that raises
    StepError once another run has taken the directory.

    Of a directory on this machine's disks the kernel holds the lock, on a file beside it (Spark wants a new directory
    empty): it ends with the process, also by SIGKILL, so no file of a dead run stands in the way. Beside a directory
    elsewhere there is a claim, which this run renews. Raises StepError where another run holds it.
    """
    checkpoint = job_file.job.checkpoint
    folder = LocalFiles(spark).local(checkpoint)
    if folder is not None:
        with kernel_lock(checkpoint, folder):
            yield _do_nothing
        return
    claim = Claim(spark, checkpoint.rstrip("/") + LOCK_SUFFIX)
    with ExitStack() as stack:
        try:
            stack.enter_context(
                hold(claim, lambda owner, wait_s: show.waits(checkpoint, owner, wait_s), lambda: stopping.asked)
            )
        except ClaimTakenError as error:
            raise StepError(_refused_text(str(error), checkpoint), step="checkpoint", code=ExitCode.NOT_READY) from None
        except (Py4JError, PySparkException) as error:
            show.unlocked(checkpoint, claim.name, job_file.error_text(error))

        def check() -> None:
            if claim.taken_by is not None:
                raise StepError(_lost_text(claim.taken_by, checkpoint), step="checkpoint", code=ExitCode.FAILED)

        yield check


def _do_nothing() -> None:
    """Do nothing: what the kernel has locked no other run takes."""


@contextmanager
def kernel_lock(checkpoint: str, folder: str) -> Iterator[None]:
    """Hold a checkpoint directory on this machine's disks while the block runs. Raises StepError where another run
    holds it.
    """
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
            raise StepError(_lock_fault(checkpoint, lock), step="checkpoint", code=ExitCode.NOT_READY) from None
        except OSError:  # a file system without locks
            yield
            return
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(process_fields()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _lock_fault(checkpoint: str, lock: int) -> str:
    owner = "another run"
    with suppress(OSError):
        owner = owner_of(os.pread(lock, _OWNER_BYTES_MAX, 0))
    return _refused_text(owner, checkpoint)


def _lost_text(owner: str, checkpoint: str) -> str:
    return (
        f"{owner} has taken the Spark checkpoint directory {checkpoint}: it began at the same moment, or this run did "
        f"not renew its claim for {GONE_S:g} s. This run ends, and the other one goes on with its last batch"
    )


def _refused_text(owner: str, checkpoint: str) -> str:
    return (
        f"{owner} has the Spark checkpoint directory {checkpoint}: two runs of one job would stand in each other's "
        "way. Nothing was read. Stop that one first, or give this job a checkpoint directory of its own"
    )
