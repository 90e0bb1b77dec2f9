"""Say in one line what an error of Spark or of a Python function was, without a value of the data.

Spark's errors about data carry the value that failed: as text within a sentence, with or without quotes, and again in
the errors around them. So nothing is cut out of such a text. Spark's own parts are asked for instead: the error class,
the types among its parameters, and the place in the query. Of a Python function's error the line has the type, and
where in the function it was raised.
"""

from __future__ import annotations

import os
import re
import traceback
from typing import TYPE_CHECKING

from shardway.errors import ShardwayError
from shardway.pipeline.causes import (
    CONDITION,
    DATA_STATES,
    Cause,
    causes_of,
    is_sparks,
    parameters_of,
    place_of,
    whole_text,
)
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterable


MESSAGE_CHARS_MAX = 2_000
OURS = re.compile(r"shardway\.(?:[\w.]+\.)?(\w+Error): ([^\n]*)")
PYTHON_WORKER = re.compile(r"PythonException|thrown from the Python worker")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_TYPE = re.compile(
    r'"((?:BOOLEAN|TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL|STRING|CHAR|VARCHAR|BINARY|DATE|TIME|TIMESTAMP'
    r"|TIMESTAMP_NTZ|INTERVAL(?: [A-Z]+)*|VARIANT|ARRAY<[A-Z0-9_<>(), ]*>|MAP<[A-Z0-9_<>(), ]*>|STRUCT|VOID)"
    r'(?:\([0-9, ]*\))?)"'
)
"""The pattern of a type's name as Spark writes it into a message: in double quotes and in capitals."""
_TASK_FAILED = re.compile(r"most recent failure: Lost task [^:]*: (.*)", re.DOTALL)
_STAGE_FAILED = "Job aborted due to stage failure"
_JAVA_CLASS = re.compile(r"^(?:(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error|Throwable)?: ?)+")
_PYTHON_TRACE = re.compile(r"Traceback \(most recent call last\):.*?\n(?=\S)([^\n]*)", re.DOTALL)
_FRAME = re.compile(r'File "(?:[^"\n]*/)?([^"/\n]+)", line (\d+), in (\S+)')
_PYTHON_TYPE = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_IMPORTS = ("ModuleNotFoundError:", "ImportError:")
"""The errors of imports, which are shown whole: the code names what cannot be imported, and not the data, and the name
is all that helps, as an executor lacks the module.
"""
_PARSERS = ("com.fasterxml.", "com.univocity.", "com.google.protobuf.", "org.apache.avro.", "java.nio.charset.")
"""The packages of exceptions that quote what they could not read, though Java counts some of them among those of input
and output.
"""
_LIBRARIES = re.compile(r"/(?:pyspark|py4j|shardway)/|/site-packages/")


def is_of_data(error: BaseException) -> bool:
    """True when Spark says that a value of a row was what failed."""
    causes = causes_of(error)
    return any(cause.is_of_data for cause in causes) or _text_of_data(whole_text(error)) is not None


def message_of(error: BaseException, *, payloads: bool = False) -> str:
    """Return the one line that says what happened: the deepest cause that says anything, without stacks.

    An error about values of rows, and an error of a Python function, is told by its class, its types and its place.
    ``payloads``: it is told in full, with the values that it has.
    """
    if isinstance(error, ShardwayError):
        return str(error)
    whole, causes = whole_text(error), causes_of(error)
    ours = OURS.search(whole)
    if ours is not None:
        return ours[2].strip()[:MESSAGE_CHARS_MAX]
    text = _in_full(error, causes) if payloads else _without_payload(error, causes, whole)
    return text[:MESSAGE_CHARS_MAX]


def _in_full(error: BaseException, causes: list[Cause]) -> str:
    text = _line_of(causes[-1].told) if causes else _line_of(str(error))
    if not causes and not is_sparks(error):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text


def _line_of(text: str) -> str:
    """Return the line that says what happened."""
    task = _TASK_FAILED.search(text)
    if task is not None:
        text = task[1]
    python = _PYTHON_TRACE.search(text)
    if python is not None:
        return python[1].strip() + (_frame_in(python[0]) if PYTHON_WORKER.search(text) else "")
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    stripped = _JAVA_CLASS.sub("", line)
    return (stripped or line).rstrip(";")


def _without_payload(error: BaseException, causes: list[Cause], whole: str) -> str:
    if not causes and not is_sparks(error) and PYTHON_WORKER.search(whole) is None and not CONDITION.match(str(error)):
        return _of_python(error)
    if PYTHON_WORKER.search(whole) is not None and (python := _PYTHON_TRACE.search(whole)) is not None:
        return _of_worker(python)
    of_data = next((cause for cause in reversed(causes) if cause.is_of_data), None)
    if of_data is not None:
        return _of_data(of_data)
    told = _text_of_data(whole)
    if told is not None:
        return told
    if not causes:
        return _line_of(str(error))
    last = causes[-1]
    if _STAGE_FAILED in whole and not _may_be_shown(last):
        # A task works on rows, and Java's own errors quote them: For input string: "…".
        return f"{last.condition or last.kind.rpartition('.')[2]} in a task"
    return _line_of(last.told)


def _of_python(error: BaseException) -> str:
    """Tell an error that a function raised on the driver."""
    name = type(error).__name__
    if isinstance(error, ImportError):
        return f"{name}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _LIBRARIES.search(frame.filename)] or list(frames[-1:])
    where = f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno}, in {own[-1].name})" if own else ""
    return _with_number(name, getattr(error, "errno", None)) + where


def _of_worker(python: re.Match[str]) -> str:
    """Tell an error that a function raised in a Python worker. Its type stands behind the first stack: a value with
    line feeds in it comes later.
    """
    said = python[1].strip()
    if said.startswith(_IMPORTS):
        return said
    found, errno = _PYTHON_TYPE.match(said), _ERRNO.search(said)
    name = found[1].rpartition(".")[2] if found is not None else "an error"
    return _with_number(name, int(errno[1]) if errno is not None else None) + _frame_in(python[0])


def _with_number(name: str, errno: int | None) -> str:
    """Return an error's name, with what the operating system says of its number."""
    return name if errno is None else f"{name}: [Errno {errno}] {os.strerror(errno)}"


def _frame_in(stack: str) -> str:
    frames = _FRAME.findall(stack)
    return " ({}, line {}, in {})".format(*frames[-1]) if frames else ""


def _of_data(cause: Cause) -> str:
    types = _types_in(str(one) for one in parameters_of(cause.java))
    return _condition_text(cause.condition, types, cause.state, place_of(cause.java))


def _text_of_data(text: str) -> str | None:
    """Tell what a text says of an error about data, where only the text of it came to the driver; else None."""
    task = _TASK_FAILED.search(text)
    for state in _STATE.finditer(text):
        in_a_task = task is not None and state.start() > task.start() and state[1].startswith("42")
        if in_a_task or state[1].startswith(DATA_STATES):
            before = text[: state.start()]
            task = _TASK_FAILED.search(before)
            start = 0 if task is None else task.start(1)
            found = CONDITION.search(before, start)
            return _condition_text(found[1] if found is not None else "", _types_in([before[start:]]), state[1], "")
    return None


def _condition_text(condition: str, types: list[str], state: str, place: str) -> str:
    of_types = f" of {', '.join(types)}" if types else ""
    return f"[{condition}] a value{of_types} in a row; SQLSTATE: {state}{place}"


def _types_in(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(f'"{name}"' for text in texts for name in _TYPE.findall(text)))


def _may_be_shown(cause: Cause) -> bool:
    """True for an error of files, networks and the like, and for those of Spark's that are not about data."""
    if cause.condition:
        return not cause.condition.startswith("_LEGACY_ERROR") and bool(cause.state)
    if cause.kind.startswith(_PARSERS):
        return False
    try:
        io = cause.java.getClass().forName("java.io.IOException")
        return bool(io.isInstance(cause.java)) or cause.kind.startswith(("org.apache.hadoop.", "software.amazon."))
    except (Py4JError, AttributeError, TypeError):
        return False
