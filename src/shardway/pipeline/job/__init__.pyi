# Written by scripts/stubs.py from the list in __init__.py.

from shardway.pipeline.job.errors.exit_codes import ExitCode as ExitCode
from shardway.pipeline.job.file.faults import JobFileError as JobFileError
from shardway.pipeline.job.file.job_file import JobFile as JobFile
from shardway.pipeline.job.file.job_file import load_job as load_job
from shardway.pipeline.job.file.model import Job as Job
from shardway.pipeline.job.file.schema import job_schema as job_schema
from shardway.pipeline.job.run.program import run_file as run_file
from shardway.pipeline.job.sinks.delivery import Delivery as Delivery
from shardway.pipeline.job.sinks.delivery import deliveries as deliveries

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
