"""Mend a checkpoint directory whose first start was killed before Spark had written an offset.

Spark writes each entry of its logs into a file of another name, and renames it. A kill in between leaves that file.
Before the first offset nothing else is there, and PySpark 4.1 and newer take the file for data of another query:
they refuse the directory, for ever. So the file is removed here, where the directory says that no offset was ever
written, and nothing else is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from shardway.pipeline.hadoop_files import HadoopFiles
from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.run.stream_check import OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COMMITS, STATE = "commits", "state"
_FIRST_UNFINISHED = re.compile(r"\.{1,2}0\.[0-9a-f-]+\.tmp(\.crc)?")
"""The name of the entry of batch 0 until it is whole, and of the checksum that Hadoop keeps of it on a local disk."""


def clear_unfinished_start(spark: SparkSession, checkpoint: str) -> list[str]:
    """Remove what a killed first start has left in the log of offsets. Return the names of what was removed.

    Nothing is removed where an offset is there, or where anything tells of one that was: another batch's file, a
    commit, a state. Raises StepError where offsets are missing that must have been there.
    """
    files = HadoopFiles(spark)
    try:
        offsets = files.names(f"{checkpoint}/{OFFSETS}")
        if any(name.isdigit() for name in offsets):
            return []
        later = [name for name in (COMMITS, STATE) if files.names(f"{checkpoint}/{name}")]
        if later:
            raise _incomplete(checkpoint, later)
        if not all(_FIRST_UNFINISHED.fullmatch(name) for name in offsets):
            return []  # a kill leaves no such file: Spark says what it thinks of it
        for name in offsets:
            files.remove(f"{checkpoint}/{OFFSETS}/{name}")
    except Py4JJavaError as error:
        what = f"the Spark checkpoint directory {checkpoint} cannot be read: {message_of(error)}"
        raise StepError(what, step="checkpoint", code=ExitCode.FAILED) from error
    return offsets


def _incomplete(checkpoint: str, later: list[str]) -> StepError:
    return StepError(
        f"the Spark checkpoint directory {checkpoint} has {' and '.join(later)}, but no offset, though there was one: "
        "files were removed from it, or it was copied in parts. Put back a copy of the whole directory, or take a new "
        "one, which knows neither the position nor the duplicates",
        step="checkpoint",
        code=ExitCode.FAILED,
    )
