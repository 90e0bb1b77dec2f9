"""A job is declared in a file: one read of one stream, steps, and sinks. ``shardway run`` runs it."""

from shardway.pipeline.job.account import ExitCode
from shardway.pipeline.job.faults import JobFileError
from shardway.pipeline.job.files import JobFile, load_job
from shardway.pipeline.job.model import Job, job_schema
from shardway.pipeline.job.running import run_file
from shardway.pipeline.job.writing import Delivery, deliveries

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
