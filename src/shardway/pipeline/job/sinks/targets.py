"""Write a batch to the sink that a job file names: a folder, a table, a function, the console or another format."""

from __future__ import annotations

import io
import time
from contextlib import AbstractContextManager, redirect_stdout
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pyspark.sql import Observation
from pyspark.sql import functions as fn

from shardway import shown
from shardway.errors import OptionError
from shardway.pipeline.file_layout import HOUR
from shardway.pipeline.job.batch.steps import ROWS, MissingPackageError, queried, scala_of
from shardway.pipeline.job.file.faults import nearest
from shardway.pipeline.job.file.model import as_options, check_stream_columns
from shardway.pipeline.job.functions import load_function
from shardway.pipeline.job.session import packages
from shardway.pipeline.job.sinks.formats import (
    FOLDER_FORMATS,
    KNOWN_FORMATS,
    is_folder,
    is_table,
    stream_of,
)
from shardway.pipeline.job.sinks.table_sinks import table_sink_of
from shardway.pipeline.parquet_folder import BatchFolder, StagedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from shardway.pipeline.job.file.model import DeadLetters, Sink
    from shardway.pipeline.tables.table_sink import TableSink


CONSOLE_ROWS = 20


class Target(Protocol):
    """A place that batches are written to."""

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError where a batch of these columns cannot be written."""

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch."""

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Take a batch without rows; ``batch`` has none."""


def target_of(sink: Sink, folder: Path, out: TextIO) -> Target:
    """Return a sink's target, ready to write. ``out`` is where ``console`` shows rows."""
    if sink.function is not None:
        return FunctionTarget(load_function(sink.function, folder), sink.sql)
    options = as_options(sink.options)
    if is_folder(sink):
        assert sink.path is not None
        assert sink.format is not None
        made = BatchFolder(
            sink.path,
            format=sink.format,
            partition_by=sink.partition_by,
            time=sink.time,
            key=sink.key,
            options=options,
        )
        return FolderTarget(made, sink.sql)
    if is_table(sink):
        return TableTarget(table_sink_of(sink), sink.sql)
    if sink.format == "console":
        return ConsoleTarget(options, sink.sql, out)
    return FormatTarget(sink, options)


def dead_letter_target(dead: DeadLetters) -> Target | None:
    """Return the target that dead letters go to; None where nothing is kept."""
    if dead.path is not None:
        return FolderTarget(BatchFolder(dead.path, format=dead.format, partition_by=[HOUR]), None)
    if dead.stream is not None:
        return DeadLetterStream(as_options(dead.stream))
    return None


def require_format(spark: SparkSession, name: str) -> None:
    """Raises MissingPackageError when Spark does not find a format."""
    if name in (*FOLDER_FORMATS, "console", "shardway"):
        return
    jvm: Any = spark.sparkContext._jvm
    conf = spark._jsparkSession.sessionState().conf()
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, conf)
    except Exception as error:
        package = packages.hint(name.lower(), packages.Spark(spark.version, scala_of(jvm)))
        near = nearest(name, KNOWN_FORMATS)
        hint = f": {package}" if package else near if "did you mean" in near else ": is its package on the class path?"
        raise MissingPackageError(f"Spark finds no format {name}{hint}") from error


class _QueryTarget:
    """The base class of the targets, which runs the sink's own query."""

    def __init__(self, sql: str | None) -> None:
        self._sql = sql

    def _rows(self, batch: DataFrame) -> DataFrame:
        return batch if self._sql is None else queried(batch, ROWS, self._sql)

    def check(self, batch: DataFrame) -> None:
        """Raises what Spark raises where the query does not fit the columns."""
        self._rows(batch)

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Write nothing."""


class FolderTarget(_QueryTarget):
    """Writes each batch exactly once, into a folder of files."""

    def __init__(self, folder: BatchFolder, sql: str | None) -> None:
        super().__init__(sql)
        self._folder = folder

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError where a column that is needed is missing."""
        self._folder.check(self._rows(batch))

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write the batch in place of what an earlier run of it wrote."""
        self._folder.write(self._rows(batch), batch_id)

    def write_few(self, batch: DataFrame, batch_id: int, columns: Collection[str]) -> None:
        """Do what ``write`` does, for a batch of one partition and these columns."""
        with self.staged(batch, batch_id, as_divided=True, columns=columns) as staged:
            staged.put()

    def staged(
        self, batch: DataFrame, batch_id: int, *, as_divided: bool, columns: Collection[str] | None = None
    ) -> AbstractContextManager[StagedBatch]:
        """Write a batch beside the folder; `StagedBatch.put` moves it in. ``columns``: the batch's, if known."""
        return self._folder.staged(self._rows(batch), batch_id, as_divided=as_divided, columns=columns)

    @property
    def has_query(self) -> bool:
        """True where rows go through a query of the sink's own."""
        return self._sql is not None

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Take away what an earlier run of the batch wrote."""
        self._folder.write_nothing(batch, batch_id)


class TableTarget(_QueryTarget):
    """Writes each batch exactly once, into a table of Delta or Iceberg."""

    def __init__(self, table: TableSink, sql: str | None) -> None:
        super().__init__(sql)
        self._table = table

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError where a column that is needed is missing."""
        self._table.check(self._rows(batch))

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write the batch, unless an earlier run of it did."""
        self._table.write(self._rows(batch), batch_id)

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Write nothing, and note that the next batch follows this one."""
        self._table.write_nothing(batch, batch_id)


class FunctionTarget(_QueryTarget):
    """Calls the user's function with every batch, also with one without rows."""

    def __init__(self, function: Callable[[DataFrame, int], object], sql: str | None) -> None:
        super().__init__(sql)
        self._function = function

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Call the function."""
        self._function(self._rows(batch), batch_id)

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Call the function even so."""
        self._function(self._rows(batch), batch_id)


class ConsoleTarget(_QueryTarget):
    """Shows the first rows of each batch, to try things out."""

    def __init__(self, options: Mapping[str, str], sql: str | None, out: TextIO) -> None:
        super().__init__(sql)
        named = {name.lower(): value for name, value in options.items()}
        try:
            self._rows_max = int(named.get("numrows", CONSOLE_ROWS))
        except ValueError:
            raise OptionError("numRows must be a whole number") from None
        self._truncate = named.get("truncate", "true").lower() != "false"
        self._output = out

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Print the first rows of the batch as a table."""
        rows = io.StringIO()
        with redirect_stdout(rows):
            self._rows(batch).show(self._rows_max, self._truncate)
        # Spark writes most control characters of a value as they are, and a terminal obeys them.
        print(f"batch {batch_id}\n{shown.lines(rows.getvalue())}", file=self._output, flush=True)


TOLD_S = 10.0
"""Seconds to wait for what an action has observed: Spark reports it a moment after the action. What it has not reported
by then it does not report.
"""
_LOOK_S = 0.005
_ROWS_WRITTEN = "rows"


class FormatTarget(_QueryTarget):
    """Writes each batch at least once, by any format of Spark's, a stream of ours among them."""

    def __init__(self, sink: Sink, options: Mapping[str, str]) -> None:
        super().__init__(sink.sql)
        assert sink.format is not None
        self._format = sink.format
        self._sink = sink
        self._options = dict(options)
        self.stream = stream_of(options) if sink.format == "shardway" else None
        """The name of the stream that this target writes to; None where it writes to something else."""

    def write_counted(self, batch: DataFrame) -> int | None:
        """Write one batch. Return how many rows were written, as the write itself counts them; None where Spark does
        not report it.
        """
        observation = Observation()
        self._write(self._rows(batch).observe(observation, fn.count(fn.lit(1)).alias(_ROWS_WRITTEN)))
        java: Any = observation._jo  # noqa: SLF001 - what PySpark has for this waits without an end
        future = java.future()
        deadline_s = time.monotonic() + TOLD_S
        while not future.isCompleted():
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_LOOK_S)
        return int(observation.get.get(_ROWS_WRITTEN) or 0)

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError where a column is missing that folders are made of, or that a stream needs."""
        rows = self._rows(batch)
        missing = sorted(set(self._sink.partition_by) - set(rows.columns))
        if missing:
            raise OptionError([f"the batch has no column {name}" for name in missing])
        if self._format == "shardway":
            check_stream_columns(rows, self._options)

    def write(self, batch: DataFrame, batch_id: int) -> None:  # noqa: ARG002 - a target's form
        """Write the batch by Spark's writer, in the sink's mode."""
        self._write(self._rows(batch))

    def _write(self, rows: DataFrame) -> None:
        writing = rows.write.format(self._format).mode(self._sink.mode).options(**self._options)
        if self._sink.partition_by:
            writing = writing.partitionBy(*self._sink.partition_by)
        if self._sink.table is not None:
            writing.saveAsTable(self._sink.table)
        else:
            writing.save(self._sink.path)


class DeadLetterStream(_QueryTarget):
    """Puts dead letters into another stream: the data as it came, under its partition key."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(None)
        self._options = dict(options)

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError where the options do not fit the columns."""
        check_stream_columns(batch.drop("reason"), self._options)

    def write(self, batch: DataFrame, batch_id: int) -> None:  # noqa: ARG002 - a target's form
        """Put the dead letters."""
        batch.drop("reason").write.format("shardway").mode("append").options(**self._options).save()
