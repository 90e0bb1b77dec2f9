"""Ask the service for the job's stream from the command's own process, while Spark's Java starts: a mistake about the
stream is told in the time of one call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from shardway.aws.calls.retry import NEVER, RetryPolicy
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.wire import Wire
from shardway.errors import ShardwayError
from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.model import as_options
from shardway.spark.driver.stream_summary import check_owner, describe
from shardway.spark.options.parsing import parse_read_options
from shardway.tasks import thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.aws.kinesis.shapes import StreamSummary
    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.file.model import Job


log = logging.getLogger("shardway.pipeline")
Result = TypeVar("Result")
OFFSETS = "offsets"
"""The folder of a checkpoint directory with an entry for each batch that was planned."""
_DEFAULT_SYSTEM = ("spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name")
_HADOOP_FOLDER = "HADOOP_CONF_DIR"


def in_thread(work: Callable[[], Result], name: str) -> Future[Result]:
    """Run ``work`` in a thread that does not keep the process from its end, and return what will come of it."""
    future: Future[Result] = Future()

    # The thread that waits for the future raises what ended this one.
    thread(lambda: future.set_result(work()), name, future.set_exception)
    return future


class StreamCheck:
    """One call about the job's stream, which runs in a thread from the moment at which this object is made.

    Only a mistake counts: a service that is slow, throttles or cannot be reached says nothing about the job, and the
    query has a patience of its own for it.
    """

    def __init__(self, job_file: JobFile) -> None:
        self.mistake: Future[StepError | None] = in_thread(lambda: _mistake(job_file), "shardway-stream-check")
        """The mistake; None where the call found none."""

    def raise_mistake(self) -> None:
        """Raise StepError (SOURCE) where the call has found a mistake by now. Waits for nothing."""
        if not self.mistake.done():
            return
        if (error := self.mistake.exception()) is not None:
            log.warning("the stream was not checked before the start: %s", message_of(error))
        elif (mistake := self.mistake.result()) is not None:
            raise mistake


def ask(job_file: JobFile) -> StreamSummary:
    """Return what the service says of the job's stream. Raises StepError (SOURCE) for a mistake, for a service that
    cannot be reached, and for a checkpoint directory of another stream.
    """
    try:
        return _ask(job_file.job, RetryPolicy())
    except ShardwayError as error:
        raise _step_error(job_file, error) from error


def _mistake(job_file: JobFile) -> StepError | None:
    try:
        _ask(job_file.job, NEVER)
    except ShardwayError as error:
        # Credentials that have never worked are not asked for again, even where only their service was away.
        away = error.retryable or getattr(error.__cause__, "retryable", False)
        return None if away else _step_error(job_file, error)
    return None


def _step_error(job_file: JobFile, error: ShardwayError) -> StepError:
    return StepError(f"source failed: {job_file.error_text(error)}", step="source", code=ExitCode.SOURCE)


def _ask(job: Job, retry: RetryPolicy) -> StreamSummary:
    options = parse_read_options(as_options(job.source), streaming=True)

    async def call() -> StreamSummary:
        async with Wire(options.connection("driver")) as wire:
            return await describe(KinesisClient(wire), options.stream, retry)

    summary = asyncio.run(call())
    owner = stored_arn(job)
    if owner is not None:
        check_owner(owner, summary.stream_arn)
    return summary


def stored_arn(job: Job) -> str | None:
    """Return the ARN of the stream that the job's checkpoint directory was made for; None where the directory is new,
    is not on this machine's disks, or has something in it that only Spark can judge.
    """
    folder = _local_folder(job)
    if folder is None:
        return None
    # The layout is that of Spark's OffsetSeqLog: a version, a line of metadata, and a line for each source.
    with suppress(OSError, ValueError, TypeError, LookupError):
        offsets = os.path.join(folder, OFFSETS)
        newest = max((name for name in os.listdir(offsets) if name.isdigit()), key=int)
        with open(os.path.join(offsets, newest), encoding="utf-8") as file:
            return str(json.loads(file.read().splitlines()[-1])["arn"])
    return None


def _local_folder(job: Job) -> str | None:
    """Return the checkpoint directory as a path of this machine's; None where it may lie on another file system."""
    place = job.checkpoint
    if place.startswith("file:"):
        return unquote(urlsplit(place).path)
    elsewhere = _HADOOP_FOLDER in os.environ or any(name in job.spark for name in _DEFAULT_SYSTEM)
    return None if elsewhere or ":" in place.partition("/")[0] else place
