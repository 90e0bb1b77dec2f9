"""The command ``shardway run``: it runs a job file, from a stream through Spark to its sinks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shardway.cli.completing import complete_streams
from shardway.cli.output import Lines, OutputLines
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.spark_extra import needing_spark
from shardway.errors import OptionError
from shardway.wiring import ConnectionOptions


class SparkLog(StrEnum):
    """What Spark itself logs."""

    off = "OFF"
    fatal = "FATAL"
    error = "ERROR"
    warn = "WARN"
    info = "INFO"


Init = Annotated[
    str | None,
    typer.Option(
        "--init",
        help="Look at a hundred records of this stream and write a first job file, to JOB.toml or standard output.",
        metavar="STREAM",
        autocompletion=complete_streams,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        help="Serve /metrics for Prometheus, and probes, there; 0 takes a free port. The job file's [metrics] has "
        "the other exporters.",
        metavar="PORT",
    ),
]


def refuse_place(context: typer.Context) -> None:
    """Raise OptionError for a place of the stream on the command line, which would say nothing to a job file. A place
    that a context gives is no fault: it is there for all commands.
    """
    for name in ("region", "endpoint_url", "profile"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag} goes with --init: a job file names its stream's place under [source]")


def command(
    context: typer.Context,
    job: Annotated[Path | None, typer.Argument(help="The job file.", metavar="JOB.toml", show_default=False)] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the file, say what each sink promises, and end without starting Spark."),
    ] = False,
    online: Annotated[
        bool,
        typer.Option("--online", help="With --check: ask the service for the stream, too, and whose checkpoint it is."),
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of job files, for editors.")] = False,
    init: Init = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    spark_log: Annotated[SparkLog, typer.Option(help="The level at which Spark itself logs.")] = SparkLog.fatal,
    output: OutputLines = Lines.text,
    metrics_port: MetricsPort = None,
    payloads: Annotated[
        bool,
        typer.Option("--payloads", help="Errors show the values of rows that they have, and not only class and place."),
    ] = False,
) -> None:
    """Run a job file until its stream's end, or SIGTERM or Ctrl-C, which finish the batch.

    --region, --endpoint-url and --profile are for --init: a job file names its stream's place under [source].

    Exit status: 0 done or stopped, 1 another failure, 2 the job file is wrong, 3 Spark cannot start or lacks a package,
    4 the stream, 5 the transform, 6 a sink, 7 stopped twice, in the middle of a batch.
    """
    if init is not None:
        if check or schema:
            raise OptionError("--init writes a job file: give --check and --schema in a call of their own")
        from shardway.cli.job_draft import write_draft

        connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
        raise typer.Exit(int(write_draft(init, connection, job)))
    refuse_place(context)
    if schema:
        from shardway.pipeline.job.file.schema import schema_json

        typer.echo(schema_json(), nl=False)
        return
    if job is None:
        raise typer.BadParameter("which one is to be run?", param_hint="JOB.toml")
    if online and not check:
        raise typer.BadParameter("it is a part of --check: a run asks the service anyway", param_hint="--online")
    as_json = output is Lines.jsonl
    if check:
        raise typer.Exit(_check(job, online=online, as_json=as_json))
    with needing_spark("running a job"):
        from shardway.pipeline.job.run.program import run_file
    level = spark_log.value
    status = run_file(job, as_json=as_json, log_level=level, metrics_port=metrics_port, payloads=payloads)
    raise typer.Exit(int(status))


def _check(job: Path, *, online: bool, as_json: bool) -> int:
    """Check a job file, which needs no PySpark, and return the exit status."""
    from shardway.pipeline.job.run.check import check_file
    from shardway.pipeline.job.run.output import RunOutput

    return int(check_file(job, online=online, show=RunOutput(as_json=as_json)))
