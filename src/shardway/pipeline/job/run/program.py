"""Run a job file as a program: check it, start Spark and the exporters, run the job, and return the exit status."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from shardway.errors import OptionError
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.faults import JobFileError
from shardway.pipeline.job.file.job_file import load_job
from shardway.pipeline.job.run.check import check_file, show_checked, show_wrong
from shardway.pipeline.job.run.output import RunOutput
from shardway.pipeline.job.run.query import run_job
from shardway.pipeline.job.run.reports import LAG
from shardway.pipeline.job.run.stopping import Stopping
from shardway.pipeline.job.run.stream_check import StreamCheck
from shardway.pipeline.job.session.session import session_of, submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardway.pipeline.job.file.model import Metrics
    from shardway.telemetry.exporting import Exporter


QUIET = "FATAL"
"""The level of Spark's own log: below it a failure would be logged a second time, in hundreds of lines."""


def run_file(
    path: str | Path,
    *,
    check: bool = False,
    online: bool = False,
    as_json: bool = False,
    log_level: str | None = QUIET,
    metrics_port: int | None = None,
    payloads: bool = False,
) -> int:
    """Check a job file and run it. Return the process's exit status, one of ``ExitCode``. ``online``: the check also
    asks the service for the stream. ``metrics_port`` takes the place of the file's port. ``payloads``: errors are shown
    with the values of rows that they have.
    """
    show, began_s = RunOutput(as_json=as_json, lag=LAG), time.time()
    if check:
        return check_file(path, online=online, show=show)
    try:
        job_file = replace(load_job(path), payloads=payloads)
        show_checked(job_file, show)
        stream_check = StreamCheck(job_file)
        with exporters_of(job_file.job.metrics, metrics_port, show) as on_event:
            spark = session_of(job_file, log_level=log_level, check=stream_check)
            try:
                stopping = Stopping()
                with stopping.listening():
                    return run_job(spark, job_file, stopping, show, on_event, began_s)
            finally:
                with suppress(Py4JError, OSError):  # Spark's Java may be gone
                    spark.stop()
    except (JobFileError, StepError) as error:
        return show_wrong(error, show)


@contextmanager
def exporters_of(given: Metrics, port: int | None, show: RunOutput) -> Iterator[Callable[[Any], object] | None]:
    """Open what the job's numbers are emitted to; None where nothing is asked for. Raises StepError, for example for a
    port in use.
    """
    port = given.port if port is None else port
    if port is None and given.otlp_url is None and given.cloudwatch is None and not given.emf:
        yield None
        return
    from shardway.telemetry import (
        CloudWatchChoice,
        CloudWatchExporter,
        EmfExporter,
        OtlpExporter,
        PrometheusExporter,
        together,
    )

    with ExitStack() as opened:
        found: list[Exporter] = []
        try:
            if port is not None:
                endpoint = PrometheusExporter(port, host=given.host)
                found.append(opened.enter_context(endpoint))
                show.serves(given.host, endpoint.port)
            if given.otlp_url is not None:
                found.append(opened.enter_context(OtlpExporter(given.otlp_url, every_s=given.every_s)))
            if given.cloudwatch is not None:
                choice = CloudWatchChoice(level=given.cloudwatch)
                found.append(opened.enter_context(CloudWatchExporter(choice, every_s=given.every_s)))
            if given.emf:
                found.append(opened.enter_context(EmfExporter(every_s=given.every_s, to=sys.stderr)))
        except OptionError as error:
            raise StepError(f"metrics: {error}", step="metrics", code=ExitCode.NOT_READY) from error
        yield together(*found)


def main(arguments: list[str] | None = None) -> int:
    """Run a job file for ``spark-submit`` and ``python -m``: the same as ``shardway run``, without its extra."""
    parser = argparse.ArgumentParser(prog="shardway.pipeline.job", description="Run a job file.")
    parser.add_argument("job", metavar="JOB.toml")
    parser.add_argument("--check", action="store_true", help="check the file, say what its sinks promise, and end")
    parser.add_argument("--online", action="store_true", help="with --check: ask the service for the stream, too")
    shapes = ("text", "jsonl")
    parser.add_argument("-o", "--output", choices=shapes, default="text", help="jsonl: a line of JSON for each event")
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help="serve /metrics for Prometheus there")
    parser.add_argument("--payloads", action="store_true", help="errors show the values of rows that they have")
    given = parser.parse_args(arguments)
    if given.online and not given.check:
        parser.error("--online is a part of --check: a run asks the service anyway")
    level = None if submitted() else QUIET
    return run_file(
        given.job,
        check=given.check,
        online=given.online,
        as_json=given.output == "jsonl",
        log_level=level,
        metrics_port=given.metrics_port,
        payloads=given.payloads,
    )
