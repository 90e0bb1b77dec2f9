"""How a run ended: exit codes, and an error as one message."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

from penstock.errors import PenstockError
from penstock.spark.source import READING


class ExitCode(IntEnum):
    """What the process's exit status says."""

    DONE = 0
    """All that was to be read is read, or it was stopped and the batch was finished."""
    FAILED = 1
    """Something else than what follows."""
    WRONG_JOB = 2
    """The job file is wrong, or does not fit the data's columns. Nothing was read."""
    NOT_READY = 3
    """Spark cannot start, or lacks a package. Nothing was read."""
    SOURCE = 4
    """The stream cannot be read: it is not there, may not be read, or has lost records."""
    TRANSFORM = 5
    """The transform failed."""
    SINK = 6
    """A sink, or the dead letters, cannot be written."""
    CUT_SHORT = 7
    """It was stopped a second time, in the middle of a batch, which the next start does again."""


class StepError(PenstockError):
    """A step of the job failed. ``step`` is its name, ``code`` what the process ends with."""

    def __init__(self, message: str, *, step: str, code: ExitCode, batch_id: int | None = None) -> None:
        self.step = step
        self.code = code
        self.batch_id = batch_id
        super().__init__(message)


_OURS = re.compile(r"penstock\.(?:[\w.]+\.)?(\w+Error): ([^\n]*)")
_SOURCE_SAYS = re.compile(
    rf"PYTHON_DATA_SOURCE_ERROR|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR|penstock\.spark\.reading|{READING} "
)
_OTHER_STATE = re.compile(r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE")
_NO_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
_STATE_NOT_STORED = re.compile(r"CANNOT_WRITE_STATE_STORE")
_STACK = re.compile(r"\n\s+at [^\n]*")
_STATE = re.compile(r"STATE_STORE|StateStore|RocksDB")
_JOB_FAILED = re.compile(r"Job aborted due to stage failure|_LEGACY_ERROR_TEMP_\d+\] Job \d+ cancelled")
_WRITE_FAILED = re.compile(r"TASK_WRITE_FAILED|Task failed while writing")
_JAVA_CLASS = re.compile(r"^(?:(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error|Throwable)?: ?)+")
_TASK_FAILED = re.compile(r"most recent failure: Lost task [^:]*: (.*)", re.DOTALL)
_PYTHON_TRACE = re.compile(r"Traceback \(most recent call last\):.*?\n(?=\S)([^\n]*)", re.DOTALL)
_FRAME = re.compile(r'File "(?:[^"\n]*/)?([^"/\n]+)", line (\d+), in (\S+)')
_DATA_EXCEPTION = re.compile(r"SQLSTATE: 22")
_PYTHON_WORKER = re.compile(r"PythonException|thrown from the Python worker")
_PYTHON_WRITER = re.compile(r"write_into_data_source")
_IMPORTS = ("ModuleNotFoundError:", "ImportError:")
"""What cannot be imported is named by the code and not by the data, and is all that helps: an executor lacks it."""
_QUOTED = re.compile(r"'[^'\n]*'")
_QUOTED_IN_PYTHON = re.compile(r"""'[^'\n]*'|"[^"\n]*\"""")
_CAUSES_MAX = 20
MESSAGE_CHARS_MAX = 2_000


def source_failed(error: BaseException) -> bool:
    """True when it was reading the stream that failed, wherever Spark noticed it."""
    return _SOURCE_SAYS.search(_whole(error)) is not None


def state_is_of_another_kind(error: BaseException) -> bool:
    """True when the checkpoint directory has the state of another way to de-duplicate than the query's."""
    return _OTHER_STATE.search(_whole(error)) is not None


def state_cannot_be_read(error: BaseException) -> bool:
    """True when the checkpoint directory's state is not there or cannot be read, wherever Spark noticed it."""
    return _NO_STATE.search(_whole(error)) is not None


def state_cannot_be_stored(error: BaseException) -> bool:
    """True when what a batch changed of the state could not be written to the checkpoint directory."""
    return _STATE_NOT_STORED.search(_whole(error)) is not None


def by_the_data(error: BaseException) -> bool:
    """True when rows could not be computed: a value that an expression does not take, or a Python function's error.

    What a writer in Python raises in a task is not: ours, or that of another Python data source.
    """
    whole = _whole(error)
    if _DATA_EXCEPTION.search(whole) is not None:
        return True
    of_a_writer = _OURS.search(whole) is not None or _PYTHON_WRITER.search(whole) is not None
    return _PYTHON_WORKER.search(whole) is not None and not of_a_writer


def failed_before_writing(error: BaseException) -> bool:
    """True when tasks failed by what comes before a write of files, in the same action: steps, shuffles, the state."""
    whole = _STACK.sub("", _whole(error))  # whatever fails behind a state has that in its stack
    if _STATE.search(whole) is not None or by_the_data(error):
        return True
    return _JOB_FAILED.search(whole) is not None and _WRITE_FAILED.search(whole) is None


def message_of(error: BaseException) -> str:
    """The one message that says what happened: the deepest cause that says anything, without stacks.

    A value that Spark quotes from the data (its error classes of SQLSTATE 22) is left out, and what an error of a
    Python function on the executors quotes; in its place it is told where that was.
    """
    if isinstance(error, PenstockError):
        return str(error)
    whole = _whole(error)
    ours = _OURS.search(whole)
    if ours is not None:
        return ours[2].strip()[:MESSAGE_CHARS_MAX]
    causes = _causes(error)
    text = _first_line(causes[-1]) if causes else _first_line(str(error))
    if not causes and not hasattr(error, "_desc"):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if _DATA_EXCEPTION.search(text):
        text = _QUOTED.sub("'…'", text)
    return text[:MESSAGE_CHARS_MAX]


def _whole(error: BaseException) -> str:
    return "\n".join([str(error), *_causes(error)])


def _causes(error: BaseException) -> list[str]:
    """What the Java exceptions behind a PySpark error say, from the outermost to the deepest one."""
    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    found: list[str] = []
    while origin is not None and len(found) < _CAUSES_MAX:
        said = origin.getMessage()
        name = origin.getClass().getSimpleName()
        if said:
            told = str(said).lstrip().startswith("[") or name.startswith(("Spark", "Analysis", "Parse", "Python"))
            found.append(str(said) if told else f"{name}: {said}")
        else:
            found.append(name)
        origin = origin.getCause()
    return found


def _first_line(text: str) -> str:
    """The line that says what happened."""
    task = _TASK_FAILED.search(text)
    if task is not None:
        text = task[1]
    python = _PYTHON_TRACE.search(text)
    if python is not None:
        said = python[1].strip()
        if _PYTHON_WORKER.search(text) is None or said.startswith(_IMPORTS):
            return said
        frames = _FRAME.findall(python[0])
        where = " ({}, line {}, in {})".format(*frames[-1]) if frames else ""
        return _QUOTED_IN_PYTHON.sub("'…'", said) + where
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    stripped = _JAVA_CLASS.sub("", line)
    return (stripped or line).rstrip(";")
