"""A job is declared in a file: one read of one stream, steps, and sinks. ``shardway run`` runs it.

Read ``file`` first, which makes a checked job of a file's text; then ``run``, which runs the job, ``batch``, which
writes one batch of it, and ``sinks``. ``session`` starts Spark, ``functions`` finds the user's code, ``errors`` says
how a run ended, and ``draft`` makes a job file of a stream's records.
"""

from shardway.pipeline.job.errors.exit_codes import ExitCode
from shardway.pipeline.job.file.faults import JobFileError
from shardway.pipeline.job.file.job_file import JobFile, load_job
from shardway.pipeline.job.file.model import Job
from shardway.pipeline.job.file.schema import job_schema
from shardway.pipeline.job.run.program import run_file
from shardway.pipeline.job.sinks.delivery import Delivery, deliveries

__all__ = [
    "Delivery",
    "ExitCode",
    "Job",
    "JobFile",
    "JobFileError",
    "deliveries",
    "job_schema",
    "load_job",
    "run_file",
]
