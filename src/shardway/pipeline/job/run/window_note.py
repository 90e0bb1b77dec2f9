"""Note in the checkpoint directory which windows it has: Spark compares the types of a state, and not what it means.

A window of another length, or a maximum in place of a minimum, has a state of the same types. Spark would go on with
it, and mix the two in one row. So the job's windows are noted when its first batch begins, and compared at each start.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from shardway.pipeline.hadoop_files import HadoopFiles
from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.model import span_ms
from shardway.pipeline.job.run.unfinished_start import COMMITS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardway.pipeline.job.file.model import Job, Window


NOTE = "windows.json"
"""The note's name in the checkpoint directory. Spark wants a new one empty, so it comes with the first batch."""
_BYTES_MAX = 1_048_576
_VERSION = 1
_NO_NOTE = "it began without [window]"
_NO_WINDOW = "it began with [window], and the job has none"
_FIELDS = ("length_ms", "time", "keys", "aggregates")


def check_windows(spark: SparkSession, job: Job) -> None:
    """Raises StepError (WRONG_JOB) where the checkpoint directory has other windows than the job, or one of the two has
    none. Before the first batch is committed, nothing could be mixed.
    """
    checkpoint, files = job.checkpoint.rstrip("/"), HadoopFiles(spark)
    try:
        if not any(one.isdigit() for one in files.names(f"{checkpoint}/{COMMITS}")):
            return
        noted = files.read(f"{checkpoint}/{NOTE}", _BYTES_MAX)
    except Py4JJavaError as error:
        what = f"the Spark checkpoint directory {checkpoint} cannot be read: {message_of(error)}"
        raise StepError(what, step="checkpoint", code=ExitCode.FAILED) from error
    faults = differences(noted, job.window)
    if faults:
        raise another_window(job, faults)


def note_windows(spark: SparkSession, job: Job) -> None:
    """Note the windows of a job in its checkpoint directory. Raises what Hadoop raises."""
    assert job.window is not None
    HadoopFiles(spark).write(f"{job.checkpoint.rstrip('/')}/{NOTE}", note_of(job.window))


def another_window(job: Job, faults: list[str]) -> StepError:
    """Return the error of a checkpoint directory with other windows than the job's."""
    what = (
        f"the Spark checkpoint directory {job.checkpoint} has the state of other windows: {'; '.join(faults)}. Nothing "
        "was read. Put the job file back as it was; or give the job a new checkpoint directory, and a "
        "startingTimestamp at which a window began that is not in the sinks yet"
    )
    return StepError(what, step="window", code=ExitCode.WRONG_JOB)


def note_of(window: Window) -> bytes:
    """Return what is noted of windows."""
    return json.dumps(_window_fields(window)).encode()


def differences(written: bytes | None, window: Window | None) -> list[str]:
    """Return what differs between the windows that a checkpoint directory has a note of and those of a job; None has no
    windows.
    """
    if written is None or window is None:
        return [] if written is None and window is None else [_NO_NOTE if written is None else _NO_WINDOW]
    now = _window_fields(window)
    try:
        noted = json.loads(written)
    except (ValueError, RecursionError):  # what is cut off says nothing
        noted = {}
    before = noted if isinstance(noted, dict) else {}
    return [
        f"{name.removesuffix('_ms')} was {json.dumps(before.get(name))}, and is {json.dumps(now[name])}"
        for name in _FIELDS
        if before.get(name) != now[name]
    ]


def _window_fields(window: Window) -> dict[str, Any]:
    return {
        "v": _VERSION,
        "length_ms": span_ms(window.length),
        "time": window.time,
        "keys": list(window.keys),
        "aggregates": [[name, " ".join(sql.split())] for name, sql in window.aggregates.items()],
    }
