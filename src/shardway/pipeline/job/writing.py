"""Write batches to the sinks of a job, and say what each sink promises when a batch runs again."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from pyspark.sql import Observation
from pyspark.sql import functions as fn

from shardway import shown
from shardway.errors import OptionError
from shardway.pipeline.job import packages
from shardway.pipeline.job.faults import nearest
from shardway.pipeline.job.model import as_options, check_stream_columns
from shardway.pipeline.job.packages import load_function
from shardway.pipeline.job.steps import ROWS, MissingPackageError, queried, scala_of
from shardway.pipeline.parquet_folder import HOUR, BatchFolder, StagedBatch
from shardway.pipeline.tables import DeltaSink, IcebergSink, delta_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from shardway.pipeline.job.model import DeadLetters, Job, Sink
    from shardway.pipeline.tables import TableSink

# --- what each sink promises ----------------------------------------------------------------------
# The check and the reference page say what each sink promises when a batch runs again.

FOLDER_FORMATS = ("parquet", "json", "orc", "csv")
"""The formats that are written as a folder of files, which carry the batch's number."""

TABLE_FORMATS = {
    "delta": "its commit carries the batch's number (txnVersion): a batch that runs again writes nothing",
    "iceberg": "its snapshot carries the batch's number: a batch that runs again writes nothing",
}
"""The formats that are written as a table whose commits carry the batch's number, and what that means for a batch that
runs again.
"""

EXACTLY_ONCE, AT_LEAST_ONCE, NOT_KEPT = "exactly once", "at least once", "not kept"

KNOWN_FORMATS = (
    *FOLDER_FORMATS, "console", "shardway", "noop", "text", "xml", "jdbc", "avro", "kafka", "delta", "iceberg",
    "binaryFile",
)  # fmt: skip
"""Formats of Spark and of well-known packages; another one may be there all the same."""


class Delivery(NamedTuple):
    """Says how often a row is in a sink after a kill at any moment."""

    sink: str
    how: str
    why: str
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not empty, for JSON."""
        return {name: value for name, value in self._asdict().items() if value}


def deliveries(job: Job) -> list[Delivery]:
    """Return what each sink promises, in order, and what the place of the dead letters does."""
    found = [_of_sink(number, sink, job) for number, sink in enumerate(job.sinks)]
    if job.dead_letters is not None:
        found.append(_of_dead_letters(job.dead_letters))
    return found


def _of_sink(number: int, sink: Sink, job: Job) -> Delivery:
    name = f"sinks[{number}] {sink.label}"
    if sink.function is not None:
        return Delivery(
            name, AT_LEAST_ONCE, "it is called again for a batch that runs again, with the same rows and batch id: "
            "exactly once if it goes by the id"
        )  # fmt: skip
    assert sink.format is not None
    if is_folder(sink):
        return Delivery(name, EXACTLY_ONCE, "its files carry the batch's number: a batch that runs again replaces them")
    if is_table(sink):
        return Delivery(name, EXACTLY_ONCE, TABLE_FORMATS[sink.format], packages.missing(sink.format, job.spark))
    if sink.format == "shardway":
        return _of_stream(name, sink.options)
    if sink.format == "console":
        return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is shown again")
    if sink.mode == "overwrite":
        return Delivery(name, AT_LEAST_ONCE, "each batch takes the place of all before it")
    return Delivery(name, AT_LEAST_ONCE, "a batch that runs again is written again")


def _of_dead_letters(dead: DeadLetters) -> Delivery:
    if dead.discard:
        return Delivery("dead letters", NOT_KEPT, "they are counted only")
    if dead.stream is not None:
        target = str(dead.stream.get("streamName") or dead.stream.get("streamARN"))
        return _of_stream(f"dead letters shardway {target}", dead.stream)
    return Delivery(
        f"dead letters {dead.format} {dead.path}",
        EXACTLY_ONCE,
        "its files carry the batch's number: a batch that runs again replaces them",
    )


def _of_stream(name: str, options: dict[str, Any]) -> Delivery:
    given = {key.lower(): value for key, value in options.items()}
    if str(given.get("stamps", "none")).lower() == "none":
        return Delivery(
            name,
            AT_LEAST_ONCE,
            "a stream takes nothing back; with the option stamps a reader can remove the duplicates",
        )
    return Delivery(name, AT_LEAST_ONCE, "a stream takes nothing back; its stamps let a reader remove the duplicates")


def stream_of(options: Mapping[str, Any]) -> str:
    """Return the name of the stream that options of ``format("shardway")`` mean."""
    given = {key.lower(): str(value) for key, value in options.items()}
    return given.get("streamname") or given.get("streamarn", "").rpartition("/")[2]


def is_folder(sink: Sink) -> bool:
    """True for a sink that is a folder of files, which has each batch once."""
    return sink.format in FOLDER_FORMATS and sink.table is None and sink.path is not None


def is_table(sink: Sink) -> bool:
    """True for a sink that is a table of a format with transactions, which has each batch once."""
    return sink.format in TABLE_FORMATS and sink.mode == "append"


# --- tables ---------------------------------------------------------------------------------------
# Tables of Delta and Iceberg are sinks of a job that have each batch once.

_EXTENSIONS = "spark.sql.extensions"


def table_sink_of(sink: Sink) -> TableSink:
    """Return the sink that writes each batch once. Raises OptionError for an option that it sets itself."""
    options = as_options(sink.options)
    if sink.format == "delta":
        return DeltaSink(sink.path, table=sink.table, partition_by=sink.partition_by, time=sink.time, options=options)
    assert sink.table is not None
    return IcebergSink(sink.table, partition_by=sink.partition_by, time=sink.time, options=options)


def reserved_options(sink: Sink) -> list[str]:
    """Return the given options of a table's sink that it sets itself."""
    reserved = {"delta": DeltaSink.RESERVED, "iceberg": IcebergSink.RESERVED}.get(sink.format or "", ())
    return [name for name in sink.options if name.lower() in reserved]


def with_tables(job: Job, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the session's settings, and those that Delta needs where a sink is one of its tables and they are not
    given.
    """
    if not any(sink.format == "delta" for sink in job.sinks):
        return dict(settings)
    needed = delta_settings()
    extensions = [name for name in settings.get(_EXTENSIONS, "").split(",") if name]
    if needed[_EXTENSIONS] not in extensions:
        extensions.append(needed[_EXTENSIONS])
    return {**needed, **settings, _EXTENSIONS: ",".join(extensions)}


# --- targets --------------------------------------------------------------------------------------

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


class _Queried:
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


class FolderTarget(_Queried):
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


class TableTarget(_Queried):
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


class FunctionTarget(_Queried):
    """Calls the user's function with every batch, also with one without rows."""

    def __init__(self, function: Callable[[DataFrame, int], object], sql: str | None) -> None:
        super().__init__(sql)
        self._function = function

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Call the function."""
        self._function(self._rows(batch), batch_id)

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Call the function all the same."""
        self._function(self._rows(batch), batch_id)


class ConsoleTarget(_Queried):
    """Shows the first rows of each batch, to try things out."""

    def __init__(self, options: Mapping[str, str], sql: str | None, out: TextIO) -> None:
        super().__init__(sql)
        named = {name.lower(): value for name, value in options.items()}
        try:
            self._rows_max = int(named.get("numrows", CONSOLE_ROWS))
        except ValueError:
            raise OptionError("numRows must be a whole number") from None
        self._truncate = named.get("truncate", "true").lower() != "false"
        self._out = out

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Print the first rows of the batch as a table."""
        rows = io.StringIO()
        with redirect_stdout(rows):
            self._rows(batch).show(self._rows_max, self._truncate)
        # Spark writes most control characters of a value as they are, and a terminal obeys them.
        print(f"batch {batch_id}\n{shown.lines(rows.getvalue())}", file=self._out, flush=True)


TOLD_S = 10.0
"""Seconds to wait for what an action has observed: Spark reports it a moment after the action. What it has not reported
by then it does not report.
"""
_LOOK_S = 0.005
_ROWS_WRITTEN = "rows"


class FormatTarget(_Queried):
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


class DeadLetterStream(_Queried):
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
