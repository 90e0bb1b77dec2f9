"""Look at Spark jobs from the outside: at the numbers that they report, and at the files that they leave
behind. Nothing is asked of Spark.

A *place* is where a job can be looked at: the ``/metrics`` of a job that serves its numbers, the checkpoint directory
of a query, or a file of lines of JSON (what ``shardway run -o jsonl`` prints, or the progress of any query). Queries
that keep rows in a lease table are seen there without a place: `LeaseView.query` has their positions.
"""

from __future__ import annotations

import time
from pathlib import Path

from shardway.errors import OptionError
from shardway.inspect.jobs.checkpoint_directory import job_of_checkpoint
from shardway.inspect.jobs.lines_file import TEXT_MAX, job_of_lines
from shardway.inspect.jobs.metrics_page import fetch_page, jobs_of_metrics
from shardway.inspect.jobs.views import JobsReport
from shardway.inspect.moments import utc
from shardway.shown import one_line, url_without_password


def place_of(text: str) -> str:
    """Return the place as a URL or a path of this machine. Raises OptionError for what cannot be read from here."""
    scheme, sign, _ = text.partition("://")
    if not text.strip() or not text.isprintable():
        raise OptionError("a place of Spark jobs is a URL, a directory or a file")
    if not sign or scheme in ("http", "https"):
        return text
    if scheme == "file":
        return text.removeprefix("file://")
    raise OptionError(
        f"{url_without_password(text)}: a checkpoint directory is read from a folder of this machine: mount it, or "
        "give the address of the job's numbers (shardway run --metrics-port)"
    )


def jobs_at(place: str, now_s: float | None = None) -> JobsReport:
    """Return the jobs of one place. The call blocks while it reads files or one HTTP answer. Raises OptionError."""
    found, now_s = place_of(place), time.time() if now_s is None else now_s
    shown = url_without_password(place)
    try:
        if found.startswith(("http://", "https://")):
            jobs = list(jobs_of_metrics(fetch_page(found), shown, now_s))
        elif (path := Path(found)).is_dir():
            jobs = [job_of_checkpoint(path)]
        else:
            jobs = [job_of_lines(path)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise OptionError(f"{shown} cannot be read as a job's: {one_line(str(fault))[:TEXT_MAX]}") from fault
    return JobsReport(place=shown, taken_at=utc(now_s), jobs=jobs)
