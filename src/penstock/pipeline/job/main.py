"""A job file run as a program: what ``penstock run`` and ``spark-submit`` call."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.pipeline.job.account import Show
from penstock.pipeline.job.faults import JobFileError
from penstock.pipeline.job.files import load_job
from penstock.pipeline.job.model import job_schema
from penstock.pipeline.job.outcome import ExitCode, StepError
from penstock.pipeline.job.running import Stopping, run_job
from penstock.pipeline.job.session import session_of, submitted
from penstock.pipeline.job.writing import deliveries

if TYPE_CHECKING:
    from pathlib import Path

QUIET = "FATAL"
"""What Spark itself logs: a failure would be told a second time, in hundreds of lines."""


def run_file(path: str | Path, *, check: bool = False, as_json: bool = False, log_level: str | None = QUIET) -> int:
    """Check a job file and run it; the process's exit status, one of ``ExitCode``."""
    show = Show(as_json=as_json)
    try:
        job_file = load_job(path)
        show.checked(job_file, deliveries(job_file.job))
        if check:
            return ExitCode.DONE
        spark = session_of(job_file, log_level=log_level)
        try:
            stopping = Stopping()
            with stopping.listening():
                return run_job(spark, job_file, stopping, show)
        finally:
            with suppress(Py4JError, OSError):  # Spark's Java may be gone
                spark.stop()
    except JobFileError as error:
        show.wrong(error.faults, ExitCode.WRONG_JOB)
        return ExitCode.WRONG_JOB
    except StepError as error:
        show.wrong([str(error)], error.code, error.step)
        return error.code


def schema_json() -> str:
    """The JSON schema of a job file, as it is committed."""
    return msgspec.json.format(msgspec.json.encode(job_schema()), indent=2).decode() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """For ``spark-submit`` and ``python -m``: the same as ``penstock run``, without the extra for commands."""
    parser = argparse.ArgumentParser(prog="penstock.pipeline.job", description="Run a job file.")
    parser.add_argument("job", metavar="JOB.toml")
    parser.add_argument("--check", action="store_true", help="check the file, say what its sinks promise, and end")
    parser.add_argument("--json", action="store_true", dest="as_json", help="a line of JSON for each event")
    given = parser.parse_args(arguments)
    return run_file(given.job, check=given.check, as_json=given.as_json, log_level=None if submitted() else QUIET)


if __name__ == "__main__":
    sys.exit(main())
