"""Run a job from its first query to its summary: start the query, watch it, and stop it between two batches."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.logger import PySparkLogger
from pyspark.sql.streaming.listener import StreamingQueryProgress

from shardway.pipeline.job.batch import steps
from shardway.pipeline.job.batch.batches import Batches
from shardway.pipeline.job.batch.window_batches import WindowBatches
from shardway.pipeline.job.batch.windows import windows_of, with_times
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.errors.failures import (
    registry_failed,
    source_failed,
    state_cannot_be_read,
    state_is_of_another_kind,
)
from shardway.pipeline.job.run.places import run_lock
from shardway.pipeline.job.run.rehearsal import rehearse
from shardway.pipeline.job.run.reports import Totals, batch_report, cut_ms, was_a_batch
from shardway.pipeline.job.run.unfinished_start import clear_unfinished_start
from shardway.pipeline.job.run.window_note import another_window, check_windows
from shardway.pipeline.job.session.state_store import told_unread
from shardway.pipeline.job.sinks.formats import stream_of
from shardway.pipeline.listener import MetricsListener
from shardway.pipeline.query_numbers import BatchNumbers, QueryNumbers
from shardway.pipeline.stream_progress import stream_metrics
from shardway.spark.source import ADMISSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from shardway.events import QueryMetrics
    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.run.output import RunOutput
    from shardway.pipeline.job.run.reports import BatchReport
    from shardway.pipeline.job.run.stopping import Stopping


POLL_S = 0.25
NUMBERS_S = 2.0
"""Seconds after which the numbers of a job are emitted again, also while no batch ends."""
_PLANNING_TEXT = "Getting offsets from"
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
        kind = Batches if job_file.job.window is None else WindowBatches
        batches = kind(job_file, stopping, show.rows_out, counts=on_event is not None)
        run = _QueryRun(spark, batches, stopping, show, on_event, time.time() if began_s is None else began_s)
        rehearse(spark, job_file, batches)
        with run_lock(spark, job_file, stopping, show) as check_lock:
            left = clear_unfinished_start(spark, job_file.job.checkpoint)
            if left:
                show.began_anew(job_file.job.checkpoint, left)
            check_windows(spark, job_file.job)
            return run.whole(check_lock)


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


class _QueryRun:
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
        self._seen_progress: tuple[Any, Any] | None = None
        self._cut_ms = 0
        self._told_to_stop = False
        self._check_lock: Callable[[], None] = lambda: None

    def whole(self, check_lock: Callable[[], None]) -> ExitCode:
        """Run from the first query to the summary, and return the exit code. ``check_lock`` raises StepError once
        another run has the checkpoint directory.
        """
        self._check_lock = check_lock
        started_s = time.monotonic()
        how, code = "done", ExitCode.DONE
        try:
            while True:
                rows_before = self._totals.rows
                self._one_query()
                if self._stopping.asked or not self._has_more(self._totals.rows - rows_before):
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

    def _has_more(self, rows: int) -> bool:
        """True where Spark made one batch of AvailableNow, and the stream's end at the job's start is not reached."""
        if ADMISSION or not self._job.trigger.available_now:
            return False
        return rows > 0 and self._cut_ms < self._began_s * 1000

    def _one_query(self) -> None:
        query = self._start()
        self._show.started(self._job.name, str(query.id))
        if self._numbers is not None and self._last_batch is None:
            names = [one.name for one in self._job.expect]
            self._numbers.begin(self._job.name, self._stream.rpartition("/")[2], names)
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
            decoded = steps.decoded(records, job, self._file.folder)
            rows = self._rows(self._batches.expectations.applied(decoded))
            writer = rows.writeStream.queryName(job.name).foreachBatch(self._batches.write)
            writer = writer.option("checkpointLocation", job.checkpoint)
            if job.trigger.available_now:
                writer = writer.trigger(availableNow=True)
            elif job.trigger.every is not None:
                writer = writer.trigger(processingTime=job.trigger.every)
            return writer.start()
        except Exception as error:
            raise self._failure(error) from error

    def _rows(self, decoded: DataFrame) -> DataFrame:
        job = self._job
        if job.window is not None:
            return windows_of(with_times(decoded, job.window), job, self._batches.expectations)
        return steps.without_duplicates(steps.slimmed(decoded, job), job)

    def _watch(self, query: StreamingQuery) -> None:
        """Wait until the query has ended. Raises what the query failed of, unless the end was asked for."""
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            self._look(query)
            self._check_lock()
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
        if newest is None or (newest["batchId"], newest["timestamp"]) == self._seen_progress:
            return
        self._seen_progress = (newest["batchId"], newest["timestamp"])
        is_next = was_a_batch(newest) and newest["batchId"] - 1 == self._last_batch
        for progress in [newest] if is_next else _progresses_since(query, self._last_batch):
            number = int(progress["batchId"])
            if was_a_batch(progress) and (self._last_batch is None or number > self._last_batch):
                self._last_batch = number
                self._cut_ms = cut_ms(progress) or self._cut_ms
                dead_letters = self._batches.dead_letters_of(number)
                second = self._batches.second_pass_of(number)
                judged = self._batches.expectations.of(number)
                report = batch_report(progress, stream=self._stream, dead_letters=dead_letters, second=second)
                report = report.judged(judged.dropped, judged.reports)
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
            report.rows, report.bytes, report.seconds, report.dead_letters, report.duplicates, report.late,
            report.dropped,
            {name: one.met for name, one in report.expectations.items()},
            {name: one.not_met for name, one in report.expectations.items()},
        )  # fmt: skip
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
        what = self._file.error_text(error)
        if registry_failed(error):
            return StepError(f"decode failed: {what}", step="decode", code=ExitCode.FAILED)
        if source_failed(error):
            return StepError(f"source failed: {what}", step="source", code=ExitCode.SOURCE)
        if state_cannot_be_read(error):
            told = told_unread(self._job, what)
            return StepError(f"state failed: {told}", step="state", code=ExitCode.FAILED)
        if state_is_of_another_kind(error) and self._job.window is not None:
            return another_window(self._job, ["Spark says: " + what])
        if state_is_of_another_kind(error):
            what = (
                "the checkpoint directory has the state of another de-duplication: one with or without exact, by other "
                "keys, or none. Nothing was read. Put the job file back as it was; or give the job a new checkpoint "
                "directory, and a startingPosition where it ended: keys that came before that are not known then. "
                f"Spark says: {what}"
            )
            return StepError(what, step="deduplicate", code=ExitCode.WRONG_JOB)
        return StepError(f"the query failed: {what}", step="query", code=ExitCode.FAILED)


def _progresses_since(query: StreamingQuery, last_batch: int | None) -> list[Any]:
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
    return bool(status["isTriggerActive"]) and not str(status["message"]).startswith(_PLANNING_TEXT)
