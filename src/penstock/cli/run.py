"""``penstock run``: a job file from a stream through Spark to its sinks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.spark_needed import needing_spark


class SparkLog(StrEnum):
    """What Spark itself logs."""

    off = "OFF"
    fatal = "FATAL"
    error = "ERROR"
    warn = "WARN"
    info = "INFO"


def command(
    job: Annotated[Path | None, typer.Argument(help="The job file.", metavar="JOB.toml", show_default=False)] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the file, say what each sink promises, and end without starting Spark."),
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files, for editors.")] = False,
    spark_log: Annotated[SparkLog, typer.Option(help="What Spark itself logs.")] = SparkLog.fatal,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each batch, error and summary.")] = False,
) -> None:
    """Run a job file until its stream's end, or SIGTERM or Ctrl-C, which finish the batch.

    Exit status: 0 done or stopped, 1 another failure, 2 the job file is wrong, 3 Spark cannot start or lacks a package,
    4 the stream, 5 the transform, 6 a sink, 7 stopped twice, in the middle of a batch.
    """
    with needing_spark("running a job"):
        from penstock.pipeline.job.main import run_file, schema_json
    if schema:
        typer.echo(schema_json(), nl=False)
        return
    if job is None:
        raise typer.BadParameter("which one is to be run?", param_hint="JOB.toml")
    raise typer.Exit(int(run_file(job, check=check, as_json=as_json, log_level=spark_log.value)))
