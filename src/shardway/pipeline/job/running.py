"""Run a job from its start to its end: start one query, watch it, and stop it between two batches."""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.logger import PySparkLogger
from pyspark.sql.streaming.listener import StreamingQueryProgress

from shardway.errors import OptionError
from shardway.pipeline.decode import split
from shardway.pipeline.hadoop_files import HadoopFiles, identity_in
from shardway.pipeline.job import steps
from shardway.pipeline.job.account import (
    ExitCode,
    RunOutput,
    StepError,
    Totals,
    batch_report,
    cut_ms,
    source_failed,
    state_cannot_be_read,
    state_is_of_another_kind,
    was_a_batch,
)
from shardway.pipeline.job.batches import Batches
from shardway.pipeline.job.error_text import message_of
from shardway.pipeline.job.faults import Fault, JobFileError
from shardway.pipeline.job.files import load_job, place_faults
from shardway.pipeline.job.model import job_schema
from shardway.pipeline.job.packages import unpublished
from shardway.pipeline.job.places import run_lock, unwritable
from shardway.pipeline.job.session import session_of, submitted, told_unread
from shardway.pipeline.job.steps import MissingPackageError
from shardway.pipeline.job.stream_check import OFFSETS, StreamCheck, ask
from shardway.pipeline.job.writing import deliveries, is_table, require_format, stream_of
from shardway.pipeline.metrics import BatchNumbers, MetricsListener, QueryNumbers, stream_metrics
from shardway.spark.ranges import SCHEMA
from shardway.spark.source import ADMISSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from shardway.events import QueryMetrics
    from shardway.pipeline.job.account import BatchReport
    from shardway.pipeline.job.faults import KeyPath
    from shardway.pipeline.job.files import JobFile
    from shardway.pipeline.job.model import Metrics
    from shardway.telemetry.exporting import Exporter


# --- a rehearsal ----------------------------------------------------------------------------------
# The steps of a job run over a batch without rows before the stream is read: what Spark finds wrong shows here.


def rehearse(spark: SparkSession, job_file: JobFile, batches: Batches) -> None:
    """Run the steps of a job over no rows, and read nothing. Raises JobFileError with all that Spark finds wrong in the
    file, or StepError.
    """
    _Rehearsal(spark, job_file, batches).all_steps()


class _Rehearsal:
    def __init__(self, spark: SparkSession, job_file: JobFile, batches: Batches) -> None:
        self._spark = spark
        self._file = job_file
        self._job = job_file.job
        self._batches = batches
        self._faults: list[Fault] = []

    def all_steps(self) -> None:
        for number, sink in enumerate(self._job.sinks):
            if sink.format is not None:
                self._try(partial(require_format, self._spark, sink.format), ("sinks", number, "format"))
        self._faults += place_faults(self._job, partial(identity_in, self._spark))
        self._faults += unwritable(self._spark, self._job)
        try:
            self._rows()
        finally:
            for view in (steps.RECORDS, steps.ROWS):
                self._spark.catalog.dropTempView(view)
        if self._faults:
            raise JobFileError([self._file.told(fault) for fault in self._faults])

    def _rows(self) -> None:
        job, folder = self._job, self._file.folder
        records = steps.opened(self._spark.createDataFrame([], SCHEMA), job)
        schema = "schema" if job.decode.schema is not None else "schema_file"
        decoded = self._try(lambda: steps.decoded(records, job, folder), ("decode", schema))
        if decoded is None:
            return
        unique = self._try(lambda: steps.without_duplicates(decoded, job), ("deduplicate", "keys"))
        good, dead = split(decoded if unique is None else unique)
        target = self._batches.dead_letters
        if target is not None:
            self._try(lambda: target.check(steps.explained(dead, job, folder)), ("dead_letters",))
        rows = self._transformed(good)
        if rows is None:
            return
        for number, sink in enumerate(self._batches.targets):
            part = "sql" if job.sinks[number].sql is not None else ""
            path: KeyPath = ("sinks", number, part) if part else ("sinks", number)
            self._try(partial(sink.check, rows), path)

    def _transformed(self, good: DataFrame) -> DataFrame | None:
        transform = self._job.transform
        if transform is None or transform.function is None:
            part = "sql" if transform is None or transform.sql is not None else "sql_file"
            path: KeyPath = ("transform", part) if transform is not None else ("decode",)
            made: DataFrame | None = self._try(lambda: steps.transformed(good, self._job, self._file.folder), path)
            return made
        try:
            return steps.transformed(good, self._job, self._file.folder)
        except Exception as error:
            fault = Fault(("transform", "function"), f"{transform.function} raised: {message_of(error, payloads=True)}")
            raise StepError(self._file.told(fault), step="transform", code=ExitCode.TRANSFORM) from error

    def _try(self, step: Callable[[], Any], path: KeyPath) -> Any:
        """Return what a step gives; None when Spark, or we, find it wrong, which is kept as a fault at ``path``."""
        try:
            return step()
        except MissingPackageError as error:
            told = self._file.told(Fault(path, str(error)))
            raise StepError(told, step=Fault(path, "").place, code=ExitCode.NOT_READY) from error
        except OptionError as error:
            self._faults += [Fault(path, what) for what in error.faults]
        except PySparkException as error:
            self._faults.append(Fault(path, message_of(error, payloads=True)))
        return None


# --- the run and its start ------------------------------------------------------------------------

# --- signals --------------------------------------------------------------------------------------
# The first SIGTERM or Ctrl-C asks for a stop after the batch, the second for one at once.

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """Says whether a run is to end. Any thread may ask it."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked for the end, if one did."""
        self._times_asked = 0

    @property
    def asked(self) -> bool:
        """True where the batch is to be finished, and no other one started."""
        return self._times_asked > 0

    @property
    def at_once(self) -> bool:
        """True where the batch is to be left: the next start does it again."""
        return self._times_asked > 1

    def ask(self) -> None:
        """Ask for the end of the run; asked for twice, it comes at once."""
        # One statement that calls nothing: a signal may come while another one's handler runs. Python's own events have
        # a lock, for which the second handler would wait for ever, as the first one goes on only after it.
        self._times_asked += 1

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals while the block runs. Outside of the main thread Python allows no handlers: nothing is done
        there.

        Begin it after Spark's context is there, which takes Ctrl-C for itself.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: Any) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.ask()


# --- an unfinished start --------------------------------------------------------------------------
# This part mends a checkpoint directory whose first start was killed before Spark had written an offset.
#
# Spark writes each entry of its logs into a file of another name, and renames it. A kill in between leaves that file.
# Before the first offset nothing else is there, and PySpark 4.1 and newer take the file for data of another query:
# they refuse the directory, for ever. So the file is removed here, where the directory says that no offset was ever
# written, and nothing else is.

COMMITS, STATE = "commits", "state"
_FIRST_UNFINISHED = re.compile(r"\.{1,2}0\.[0-9a-f-]+\.tmp(\.crc)?")
"""The name of the entry of batch 0 until it is whole, and of the checksum that Hadoop keeps of it on a local disk."""


def clear_unfinished_start(spark: SparkSession, checkpoint: str) -> list[str]:
    """Remove what a killed first start has left in the log of offsets. Return the names of what was removed.

    Nothing is removed where an offset is there, or where anything tells of one that was: another batch's file, a
    commit, a state. Raises StepError where offsets are missing that must have been there.
    """
    files = HadoopFiles(spark)
    try:
        offsets = files.names(f"{checkpoint}/{OFFSETS}")
        if any(name.isdigit() for name in offsets):
            return []
        later = [name for name in (COMMITS, STATE) if files.names(f"{checkpoint}/{name}")]
        if later:
            raise _incomplete(checkpoint, later)
        if not all(_FIRST_UNFINISHED.fullmatch(name) for name in offsets):
            return []  # a kill leaves no such file: Spark says what it thinks of it
        for name in offsets:
            files.remove(f"{checkpoint}/{OFFSETS}/{name}")
    except Py4JJavaError as error:
        what = f"the Spark checkpoint directory {checkpoint} cannot be read: {message_of(error)}"
        raise StepError(what, step="checkpoint", code=ExitCode.FAILED) from error
    return offsets


def _incomplete(checkpoint: str, later: list[str]) -> StepError:
    return StepError(
        f"the Spark checkpoint directory {checkpoint} has {' and '.join(later)}, but no offset, though there was one: "
        "files were removed from it, or it was copied in parts. Put back a copy of the whole directory, or take a new "
        "one, which knows neither the position nor the duplicates",
        step="checkpoint",
        code=ExitCode.FAILED,
    )


# --- the run --------------------------------------------------------------------------------------

POLL_S = 0.25
NUMBERS_S = 2.0
"""Seconds after which the numbers of a job are emitted again, also while no batch ends."""
_PLANNING = "Getting offsets from"
"""The beginning of what Spark says while the source looks for the end of the next batch, which may take as long as an
outage of the service lasts.
"""
_CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CONNECTION_LOGGER = "py4j.clientserver"


def run_job(
    spark: SparkSession,
    job_file: JobFile,
    stopping: Stopping,
    show: RunOutput,
    on_event: Callable[[QueryMetrics], object] | None = None,
    began_s: float | None = None,
) -> ExitCode:
    """Run until the stream's end, a stop or an error, and return the exit code. Progress, errors and a summary are
    shown, and the job's numbers are emitted to ``on_event``. ``began_s``: the job's start in epoch seconds, if that was
    before this call.

    Raises JobFileError or StepError for what is wrong before anything is read.
    """
    with _told_once():
        batches = Batches(job_file, stopping, show.rows_out, counts=on_event is not None)
        run = _Run(spark, batches, stopping, show, on_event, time.time() if began_s is None else began_s)
        rehearse(spark, job_file, batches)
        with run_lock(spark, job_file.job.checkpoint):
            left = clear_unfinished_start(spark, job_file.job.checkpoint)
            if left:
                show.began_anew(job_file.job.checkpoint, left)
            return run.whole()


@contextmanager
def _told_once() -> Iterator[None]:
    """Keep PySpark from logging an error, with its stacks and plans, before it raises it: the run shows it, in one
    line.
    """
    # PySpark's loggers take arguments of its own. A plain logger that is made here under such a name would stay for the
    # life of the process, and turn each later error of PySpark into a TypeError.
    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _CONTEXT_LOGGERS]
    loggers.append(logging.getLogger(_CONNECTION_LOGGER))
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


class _Run:
    def __init__(
        self,
        spark: SparkSession,
        batches: Batches,
        stopping: Stopping,
        show: RunOutput,
        on_event: Callable[[QueryMetrics], object] | None,
        began_s: float,
    ) -> None:
        self._spark = spark
        self._began_s = began_s
        self._batches = batches
        self._file = batches.file
        self._job = batches.file.job
        self._numbers = None if on_event is None else QueryNumbers(on_event)
        self._told_s = 0.0
        self._stopping = stopping
        self._show = show
        self._metrics = MetricsListener(spark)
        """The gauges of the query. This object gets the progresses that are read here anyway, and listens to nothing.
        """
        self._totals = Totals()
        self._stream = str(self._job.source.get("streamName") or self._job.source.get("streamARN"))
        self._last_batch: int | None = None
        self._seen: tuple[Any, Any] | None = None
        self._cut_ms = 0
        self._told_to_stop = False

    def whole(self) -> ExitCode:
        """Run from the first query to the summary, and return the exit code."""
        started_s = time.monotonic()
        how, code = "done", ExitCode.DONE
        try:
            while True:
                rows_before = self._totals.rows
                self._one_query()
                if self._stopping.asked or not self._more(self._totals.rows - rows_before):
                    break
            if self._stopping.asked:
                named = "a signal" if self._stopping.signal is None else self._stopping.signal.name
                how, code = f"stopped by {named}", ExitCode.DONE
                if self._stopping.at_once:
                    how, code = f"stopped by {named}, in the middle of a batch", ExitCode.CUT_SHORT
        except StepError as error:
            how, code = "failed", error.code
            self._show.wrong([str(error)], code, error.step)
        if self._numbers is not None:
            self._numbers.ended(self._job.name, failed=code is not ExitCode.DONE)
        self._show.ended(self._job.name, how, code, self._totals, time.monotonic() - started_s)
        return code

    def _more(self, rows: int) -> bool:
        """True where Spark made one batch of AvailableNow, and the stream's end at the job's start is not reached."""
        if ADMISSION or not self._job.trigger.available_now:
            return False
        return rows > 0 and self._cut_ms < self._began_s * 1000

    def _one_query(self) -> None:
        query = self._start()
        self._show.started(self._job.name, str(query.id))
        if self._numbers is not None and self._last_batch is None:
            self._numbers.begin(self._job.name, self._stream.rpartition("/")[2])
            for stream in {*self._batches.streams, *self._letters_to}:
                self._numbers.wrote(self._job.name, stream, 0)
        try:
            self._watch(query)
            self._look(query)
        except StreamingQueryException as error:
            self._look(query)
            if not (self._batches.refused and self._batches.failure is None):
                raise self._failure(error) from error
        except (Py4JError, OSError) as error:
            what = "Spark's Java has ended, or cannot be reached; the next start goes on after the last batch"
            raise StepError(what, step="spark", code=ExitCode.FAILED) from error
        finally:
            with suppress(Py4JError, OSError):
                query.stop()

    def _start(self) -> StreamingQuery:
        """Start the one query: the stream's rows, decoded and without duplicates, go batch by batch to all sinks."""
        job = self._job
        try:
            records = steps.opened(steps.records_of(self._spark, job, self._began_s), job)
            decoded = steps.slimmed(steps.decoded(records, job, self._file.folder), job)
            rows = steps.without_duplicates(decoded, job)
            writer = rows.writeStream.queryName(job.name).foreachBatch(self._batches.write)
            writer = writer.option("checkpointLocation", job.checkpoint)
            if job.trigger.available_now:
                writer = writer.trigger(availableNow=True)
            elif job.trigger.every is not None:
                writer = writer.trigger(processingTime=job.trigger.every)
            return writer.start()
        except Exception as error:
            raise self._failure(error) from error

    def _watch(self, query: StreamingQuery) -> None:
        """Wait until the query has ended. Raises what the query failed of, unless the end was asked for."""
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            self._look(query)
            self._tell_that_it_lives(query)
            if not self._stopping.asked:
                continue
            if not self._told_to_stop:
                self._told_to_stop = True
                self._show.stopping("stop" if self._stopping.signal is None else self._stopping.signal.name)
            # Spark's own stop would break the batch off. A batch that begins after this refuses itself.
            if self._stopping.at_once or not (self._batches.busy or _in_a_batch(query.status)):
                return

    def _tell_that_it_lives(self, query: StreamingQuery) -> None:
        """Emit the numbers again between batches: numbers that nothing renews would look like those of a job that is
        gone.
        """
        if self._numbers is None or time.monotonic() - self._told_s < NUMBERS_S:
            return
        self._told_s = time.monotonic()
        status = query.status
        if status["isTriggerActive"]:  # a batch runs, or the stream is looked at, which lasts as long as an outage
            self._numbers.busy(self._job.name)
        else:
            self._numbers.idle(self._job.name)

    def _look(self, query: StreamingQuery) -> None:
        """Report the batches that were committed since the last look."""
        newest = query.lastProgress
        if newest is None or (newest["batchId"], newest["timestamp"]) == self._seen:
            return
        self._seen = (newest["batchId"], newest["timestamp"])
        is_next = was_a_batch(newest) and newest["batchId"] - 1 == self._last_batch
        for progress in [newest] if is_next else _since(query, self._last_batch):
            number = int(progress["batchId"])
            if was_a_batch(progress) and (self._last_batch is None or number > self._last_batch):
                self._last_batch = number
                self._cut_ms = cut_ms(progress) or self._cut_ms
                dead_letters = self._batches.dead_letters_of(number)
                second = self._batches.second_pass_of(number)
                report = batch_report(progress, stream=self._stream, dead_letters=dead_letters, second=second)
                self._metrics.show(progress)
                self._tell_numbers(progress, report, self._batches.written_of(number))
                self._totals.add(report)
                self._show.batch(report)

    def _tell_numbers(self, progress: Any, report: BatchReport, written: Mapping[str, int]) -> None:
        metrics = next(iter(stream_metrics(progress)), None)
        if self._numbers is None or metrics is None:
            return
        self._told_s = time.monotonic()
        outside = metrics._replace(
            aggregates_outside_range=report.aggregates_outside_range
        )  # it counts once where the batch ran twice
        counted = BatchNumbers(
            report.rows, report.bytes, report.seconds, report.dead_letters, report.duplicates, report.late
        )
        self._numbers.batch(self._job.name, outside, counted)
        for stream, rows in written.items():
            self._numbers.wrote(self._job.name, stream, rows)
        for stream in self._letters_to:
            self._numbers.wrote(self._job.name, stream, report.dead_letters)

    @property
    def _letters_to(self) -> list[str]:
        """The name of the stream that dead letters go to, in a list; the list is empty where they go to none."""
        dead = self._job.dead_letters
        return [] if dead is None or dead.stream is None else [stream_of(dead.stream)]

    def _failure(self, error: Exception) -> StepError:
        """Return the one thing that went wrong: in a batch's step, or else where Spark plans it."""
        if self._batches.failure is not None:
            return self._batches.failure
        if isinstance(error, StepError):
            return error
        what = self._file.told_of(error)
        if source_failed(error):
            return StepError(f"source failed: {what}", step="source", code=ExitCode.SOURCE)
        if state_cannot_be_read(error):
            told = told_unread(self._job.checkpoint, what)
            return StepError(f"state failed: {told}", step="state", code=ExitCode.FAILED)
        if state_is_of_another_kind(error):
            what = (
                "the checkpoint directory has the state of another de-duplication: one with or without exact, by other "
                "keys, or none. Nothing was read. Put the job file back as it was; or give the job a new checkpoint "
                "directory, and a startingPosition where it ended: keys that came before that are not known then. "
                f"Spark says: {what}"
            )
            return StepError(what, step="deduplicate", code=ExitCode.WRONG_JOB)
        return StepError(f"the query failed: {what}", step="query", code=ExitCode.FAILED)


def _since(query: StreamingQuery, last_batch: int | None) -> list[Any]:
    """Return the progresses behind a batch, oldest first. Spark keeps a hundred, and each is a long text."""
    kept: Any = query._jsq.recentProgress()
    found: list[Any] = []
    for number in range(len(kept) - 1, -1, -1):
        progress = StreamingQueryProgress.fromJson(json.loads(kept[number].json()))
        if last_batch is not None and progress["batchId"] <= last_batch:
            break
        found.append(progress)
    return found[::-1]


def _in_a_batch(status: dict[str, Any]) -> bool:
    """True from the moment at which a batch is decided."""
    return bool(status["isTriggerActive"]) and not str(status["message"]).startswith(_PLANNING)


# --- a job file as a program ----------------------------------------------------------------------

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
    show, began_s = RunOutput(as_json=as_json), time.time()
    try:
        job_file = replace(load_job(path), payloads=payloads)
        show.checked(job_file, deliveries(job_file.job))
        check_packages(job_file)
        if check:
            if online:
                show.found(ask(job_file))
            return ExitCode.DONE
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
    except JobFileError as error:
        show.wrong(error.faults, ExitCode.WRONG_JOB)
        return ExitCode.WRONG_JOB
    except StepError as error:
        show.wrong([str(error)], error.code, error.step)
        return error.code


def check_packages(job_file: JobFile) -> None:
    """Raise StepError (NOT_READY) where a sink is a table of a format that has no package for this Spark."""
    job = job_file.job
    for number, sink in enumerate(job.sinks):
        what = unpublished(sink.format or "", job.spark) if is_table(sink) else ""
        if what:
            fault = Fault(("sinks", number, "format"), what)
            raise StepError(job_file.told(fault), step=fault.place, code=ExitCode.NOT_READY)


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


def schema_json() -> str:
    """Return the JSON schema of a job file as text, as it stands in the repository."""
    return msgspec.json.format(msgspec.json.encode(job_schema()), indent=2).decode() + "\n"


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
