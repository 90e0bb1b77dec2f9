"""Rehearse a job: run its steps over a batch without rows, so that faults show before the stream is read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from shardway.errors import OptionError
from shardway.pipeline.decode import split
from shardway.pipeline.job.batch import steps
from shardway.pipeline.job.batch.conditions import condition_fault
from shardway.pipeline.job.batch.steps import MissingPackageError
from shardway.pipeline.job.batch.windows import with_times
from shardway.pipeline.job.errors.error_text import message_of
from shardway.pipeline.job.errors.exit_codes import ExitCode, StepError
from shardway.pipeline.job.file.faults import Fault, JobFileError
from shardway.pipeline.job.file.rules import place_faults
from shardway.pipeline.job.run.places import unwritable
from shardway.pipeline.job.run.window_rehearsal import rehearse_windows
from shardway.pipeline.job.sinks.targets import require_format
from shardway.pipeline.spark_paths import identity_in
from shardway.spark.columns import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from shardway.pipeline.job.batch.batches import Batches
    from shardway.pipeline.job.file.job_file import JobFile
    from shardway.pipeline.job.file.lines import KeyPath


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
            raise JobFileError([self._file.fault_text(fault) for fault in self._faults])

    def _rows(self) -> None:
        job, folder = self._job, self._file.folder
        records = steps.opened(self._spark.createDataFrame([], SCHEMA), job)
        schema = "schema" if job.decode.schema is not None else "schema_file"
        decoded = self._try(lambda: steps.decoded(records, job, folder), ("decode", schema))
        if decoded is None:
            return
        if job.window is not None:
            decoded = self._try(partial(with_times, decoded, job.window), ("window", "time"))
            if decoded is None:
                return
        wrong = self._wrong_conditions(split(decoded)[0])
        judged = decoded if wrong else self._batches.expectations.applied(decoded)
        unique = self._try(lambda: steps.without_duplicates(judged, job), ("deduplicate", "keys"))
        rows_left = judged if unique is None else unique
        good, dead = split(rows_left) if wrong else self._batches.expectations.parted(rows_left)
        target = self._batches.dead_letters
        if target is not None:
            self._try(lambda: target.check(steps.explained(dead, job, folder)), ("dead_letters",))
        made = good if job.window is None else rehearse_windows(good, job, self._try)
        rows = None if made is None else self._transform(made)
        if rows is None:
            return
        for number, sink in enumerate(self._batches.targets):
            part = "sql" if job.sinks[number].sql is not None else ""
            path: KeyPath = ("sinks", number, part) if part else ("sinks", number)
            self._try(partial(sink.check, rows), path)

    def _wrong_conditions(self, good: DataFrame) -> bool:
        """Keep what is wrong with the conditions of expectations; True where anything is."""
        found = [
            Fault(("expect", number, "sql"), what)
            for number, one in enumerate(self._job.expect)
            if (what := condition_fault(good, one.sql)) is not None
        ]
        self._faults += found
        return bool(found)

    def _transform(self, good: DataFrame) -> DataFrame | None:
        transform = self._job.transform
        if transform is None and self._job.window is not None:
            return good
        if transform is None or transform.function is None:
            part = "sql" if transform is None or transform.sql is not None else "sql_file"
            path: KeyPath = ("transform", part) if transform is not None else ("decode",)
            made: DataFrame | None = self._try(lambda: steps.transformed(good, self._job, self._file.folder), path)
            return made
        try:
            return steps.transformed(good, self._job, self._file.folder)
        except Exception as error:
            fault = Fault(("transform", "function"), f"{transform.function} raised: {message_of(error, payloads=True)}")
            raise StepError(self._file.fault_text(fault), step="transform", code=ExitCode.TRANSFORM) from error

    def _try(self, step: Callable[[], Any], path: KeyPath) -> Any:
        """Return what a step returns. A fault that Spark or this package finds is kept for ``path``, and the result is
        None.
        """
        try:
            return step()
        except MissingPackageError as error:
            told = self._file.fault_text(Fault(path, str(error)))
            raise StepError(told, step=Fault(path, "").place, code=ExitCode.NOT_READY) from error
        except OptionError as error:
            self._faults += [Fault(path, what) for what in error.faults]
        except PySparkException as error:
            self._faults.append(Fault(path, message_of(error, payloads=True)))
        return None
