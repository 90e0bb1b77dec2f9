"""Find out whose an error of a batch is: the source's, the state's, the data's or the sink's."""

from __future__ import annotations

import re

from shardway.errors import RegistryError
from shardway.pipeline.causes import has_condition, whole_text
from shardway.pipeline.job.errors.error_text import OURS, PYTHON_WORKER, is_of_data
from shardway.spark.source import READING

_OF_THE_SOURCE = ("PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR")
_OF_ANOTHER_STATE = (
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
)
_OF_NO_STATE = ("CANNOT_LOAD_STATE_STORE", "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
_STATE_NOT_STORED = "CANNOT_WRITE_STATE_STORE"
_WRITE_FAILED = "TASK_WRITE_FAILED"
_SOURCE_NOTE = re.compile(rf"{READING} ")
"""The note that the source adds to each error of a task that reads. It comes to the driver as text: Spark keeps no
class of a Python error, and has the same condition for an error of any Python function.
"""
_NO_SCHEMA = re.compile(rf"{RegistryError.__module__}\.{RegistryError.__name__}: ")
"""The error of a task that waited for a schema registry. It comes as text, too."""
_STACK = re.compile(r"\n\s+at [^\n]*")
_STATE = re.compile(r"STATE_STORE|StateStore|RocksDB")
_JOB_FAILED = re.compile(r"Job aborted due to stage failure|_LEGACY_ERROR_TEMP_\d+\] Job \d+ cancelled")
"""What Spark says of a job whose tasks failed, or that was cancelled for another one's: neither has a condition."""
_PYTHON_WRITER = re.compile(r"write_into_data_source")


def source_failed(error: BaseException) -> bool:
    """True when it was reading the stream that failed, wherever Spark noticed it."""
    return has_condition(error, *_OF_THE_SOURCE) or _SOURCE_NOTE.search(whole_text(error)) is not None


def registry_failed(error: BaseException) -> bool:
    """True when a schema registry gave no schema, wherever Spark noticed it."""
    return _NO_SCHEMA.search(whole_text(error)) is not None


def state_is_of_another_kind(error: BaseException) -> bool:
    """True when the checkpoint directory has the state of another way to de-duplicate than the query's."""
    return has_condition(error, *_OF_ANOTHER_STATE)


def state_cannot_be_read(error: BaseException) -> bool:
    """True when the checkpoint directory's state is not there or cannot be read, wherever Spark noticed it."""
    return has_condition(error, *_OF_NO_STATE)


def state_cannot_be_stored(error: BaseException) -> bool:
    """True when what a batch changed of the state could not be written to the checkpoint directory."""
    return has_condition(error, _STATE_NOT_STORED)


def by_the_data(error: BaseException) -> bool:
    """True when rows could not be computed: a value that an expression does not take, or a Python function's error.

    False for what a writer in Python raises in a task, ours or that of another Python data source.
    """
    if is_of_data(error):
        return True
    whole = whole_text(error)
    of_a_writer = OURS.search(whole) is not None or _PYTHON_WRITER.search(whole) is not None
    return PYTHON_WORKER.search(whole) is not None and not of_a_writer


def failed_before_writing(error: BaseException) -> bool:
    """True when tasks failed by what comes before a write of files, in the same action: steps, shuffles, the state."""
    whole = _STACK.sub("", whole_text(error))  # whatever fails behind a state has that in its stack
    if _STATE.search(whole) is not None or by_the_data(error):
        return True
    return _JOB_FAILED.search(whole) is not None and not has_condition(error, _WRITE_FAILED)
