"""A job is declared in a file: one read of one stream, steps, and sinks. ``shardway run`` runs it.

Read ``file`` first, which makes a checked job of a file's text; then ``run``, which runs the job, ``batch``, which
writes one batch of it, and ``sinks``. ``session`` starts Spark, ``functions`` finds the user's code, ``errors`` says
how a run ended, and ``draft`` makes a job file of a stream's records. ``submit`` is for ``spark-submit``.
"""

from __future__ import annotations

from shardway.public import loaded_from

_HOMES = {
    "Delivery": "shardway.pipeline.job.sinks.delivery",
    "ExitCode": "shardway.pipeline.job.errors.exit_codes",
    "Job": "shardway.pipeline.job.file.model",
    "JobFile": "shardway.pipeline.job.file.job_file",
    "JobFileError": "shardway.pipeline.job.file.faults",
    "deliveries": "shardway.pipeline.job.sinks.delivery",
    "job_schema": "shardway.pipeline.job.file.schema",
    "load_job": "shardway.pipeline.job.file.job_file",
    "run_file": "shardway.pipeline.job.run.program",
}
"""The module of each name. Those of a job's file and of its check need no PySpark."""

__all__ = [*_HOMES]

__getattr__ = loaded_from(__name__, _HOMES, extra="spark")


def __dir__() -> list[str]:
    return __all__
