"""Read a job file: make a checked job of its TOML, or find every fault with its line."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.file.conversion import Conversion
from shardway.pipeline.job.file.environment import References, Secrets
from shardway.pipeline.job.file.faults import Fault, JobFileError
from shardway.pipeline.job.file.lines import line_of, lines_of
from shardway.pipeline.job.file.model import Job
from shardway.pipeline.job.file.rules import faults_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.pipeline.job.file.lines import KeyPath


FILE_BYTES_MAX = 1024 * 1024
_STAND_INS: dict[str, Any] = {"name": "job", "checkpoint": "", "source": {}, "sinks": ()}
_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")


@dataclass(frozen=True)
class JobFile:
    """A job, and the file that it came from."""

    job: Job
    path: Path
    secrets: Secrets
    lines: Mapping[KeyPath, int]
    payloads: bool = False
    """True where errors are to be shown with the values of rows that they have."""

    @property
    def folder(self) -> Path:
        """The folder in which schemas, queries and modules are looked for."""
        return self.path.resolve().parent

    def error_text(self, error: BaseException) -> str:
        """Return what an error says, in one line without secrets, and without values of rows unless they are wanted."""
        return self.secrets.hide(message_of(error, payloads=self.payloads))

    def fault_text(self, fault: Fault) -> str:
        """Return a fault as ``job.toml:12: sinks[0].path: what``, without secrets."""
        return self.secrets.hide(_fault_line(self.path, self.lines, fault))


def load_job(path: str | Path, environment: Mapping[str, str] | None = None) -> JobFile:
    """Read and check a job file. ``environment``: where ``${NAME}`` is looked up, by default this process's.

    Nothing is started and no service asked; modules that the job names are imported.
    Raises JobFileError with all faults, each with its line.
    """
    path = Path(path)
    text = _text_of(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        what = _AT_LINE.sub("", str(error))
        raise JobFileError([f"{path}:{line}: this is not TOML: {what[:1].lower()}{what[1:]}"]) from None
    where = lines_of(text)
    secrets = Secrets()
    references = References(os.environ if environment is None else environment, secrets)
    tree = references.filled_in(tree)
    conversion = Conversion()
    values = conversion.good_values(tree, Job, ())
    # What a missing variable leaves behind is no second fault, nor is what follows from a wrong type.
    missing = {fault.path for fault in references.faults}
    faults = references.faults + [fault for fault in conversion.faults if fault.path not in missing]
    job = Job(**{**_STAND_INS, **values})
    unknown = {field for field in Job.__struct_fields__ if field not in values and (field in tree or field == "source")}
    faults += [fault for fault in faults_of(job, path.resolve().parent, unknown) if not _follows(fault, faults)]
    if faults:
        ordered = sorted(dict.fromkeys(faults), key=lambda fault: line_of(where, fault.path))
        raise JobFileError([secrets.hide(_fault_line(path, where, fault)) for fault in ordered])
    return JobFile(job, path, secrets, where)


def _follows(fault: Fault, others: Sequence[Fault]) -> bool:
    """True when a fault is about something that has another wrong part already."""
    return any(
        fault.path and other.path and fault.path[: len(other.path)] == other.path[: len(fault.path)] for other in others
    )


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise JobFileError([f"{path}: cannot be read: {error.strerror}"]) from None
    if len(data) > FILE_BYTES_MAX:
        raise JobFileError([f"{path}: a job file has at most {FILE_BYTES_MAX:,} bytes"])
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JobFileError([f"{path}:{line}: this is not UTF-8"]) from None


def _fault_line(path: Path, where: Mapping[KeyPath, int], fault: Fault) -> str:
    place = f"{fault.place}: " if fault.path else ""
    return f"{path}:{line_of(dict(where), fault.path)}: {place}{fault.what}"
