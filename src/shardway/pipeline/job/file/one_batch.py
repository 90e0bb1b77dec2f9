"""Find what a query of a job computes over one batch, where its reader may expect it over time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardway.pipeline.job.file.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardway.pipeline.job.file.lines import KeyPath
    from shardway.pipeline.job.file.model import Job

_NO_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`", re.DOTALL)
_PARTS = {
    "GROUP BY": re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE),
    "DISTINCT": re.compile(r"\bDISTINCT\b(?!\s+FROM\b)", re.IGNORECASE),  # IS DISTINCT FROM compares two values
    "a window function": re.compile(r"\)\s*OVER\s*(?:\(|\w)", re.IGNORECASE),
}


def parts_of_one_batch(sql: str) -> list[str]:
    """Return which parts of a query see the rows of one batch alone."""
    code = _NO_CODE.sub(" '' ", sql)
    return [name for name, pattern in _PARTS.items() if pattern.search(code)]


def one_batch_notes(job: Job, folder: Path) -> list[Fault]:
    """Return a note for each query of a job that runs on and has such parts. A job that reads what is there and ends
    has none: its batches are what the reader of the file counts on.
    """
    if job.trigger.available_now:
        return []
    notes = []
    for path, sql in _queries(job, folder):
        found = parts_of_one_batch(sql)
        if found:
            verb = "covers" if len(found) == 1 else "cover"
            what = f"{' and '.join(found)} {verb} the rows of one batch, and this job goes on with the next"
            notes.append(Fault(path, what))
    return notes


def _queries(job: Job, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    if job.transform is not None and job.transform.sql is not None:
        yield ("transform", "sql"), job.transform.sql
    if job.transform is not None and job.transform.sql_file is not None:
        yield ("transform", "sql_file"), (folder / job.transform.sql_file).read_text(encoding="utf-8")
    for number, sink in enumerate(job.sinks):
        if sink.sql is not None:
            yield ("sinks", number, "sql"), sink.sql
