"""A job is declared in a file: one read of one stream, steps, and sinks. ``penstock run`` runs it."""

from penstock.pipeline.job.account import ExitCode
from penstock.pipeline.job.faults import JobFileError
from penstock.pipeline.job.files import JobFile, load_job
from penstock.pipeline.job.model import Job, job_schema
from penstock.pipeline.job.running import run_file
from penstock.pipeline.job.writing import Delivery, deliveries

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
