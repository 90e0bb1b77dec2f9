"""Check a job file without Spark: its faults, what each sink promises, and, if asked, the stream.

Nothing here imports PySpark, so that an editor's machine and a pipeline of tests check a job with the plain package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.faults import Fault, JobFileError
from shardway.pipeline.job.file.job_file import load_job
from shardway.pipeline.job.file.one_batch import one_batch_notes
from shardway.pipeline.job.functions import unchecked_functions
from shardway.pipeline.job.run.stream_check import ask
from shardway.pipeline.job.session.packages import unpublished
from shardway.pipeline.job.sinks.delivery import deliveries
from shardway.pipeline.job.sinks.formats import is_table

if TYPE_CHECKING:
    from pathlib import Path

    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.output import RunOutput


def check_file(path: str | Path, *, online: bool, show: RunOutput) -> int:
    """Check a job file and return the exit status. ``online``: ask the service for the stream, too."""
    try:
        job_file = load_job(path)
        show_checked(job_file, show)
        if online:
            show.found(ask(job_file))
    except (JobFileError, StepError) as error:
        return show_wrong(error, show)
    return ExitCode.DONE


def show_checked(job_file: JobFile, show: RunOutput) -> None:
    """Show what a job without faults promises, with notes. Raises StepError (NOT_READY) where a sink has no package."""
    job, folder = job_file.job, job_file.folder
    notes = [*one_batch_notes(job, folder), *unchecked_functions(job, folder)]
    show.checked(job_file, deliveries(job), [job_file.fault_text(note) for note in notes])
    check_packages(job_file)


def show_wrong(error: JobFileError | StepError, show: RunOutput) -> int:
    """Show what ended a run or a check, and return its exit status."""
    if isinstance(error, JobFileError):
        show.wrong(error.faults, ExitCode.WRONG_JOB)
        return ExitCode.WRONG_JOB
    show.wrong([str(error)], error.code, error.step)
    return error.code


def check_packages(job_file: JobFile) -> None:
    """Raise StepError (NOT_READY) where a sink is a table of a format that has no package for this Spark."""
    job = job_file.job
    for number, sink in enumerate(job.sinks):
        what = unpublished(sink.format or "", job.spark) if is_table(sink) else ""
        if what:
            fault = Fault(("sinks", number, "format"), what)
            raise StepError(job_file.fault_text(fault), step=fault.place, code=ExitCode.NOT_READY)
