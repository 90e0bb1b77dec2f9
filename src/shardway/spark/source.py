"""The classes of ``format("shardway")`` are those that Spark 4.0 to 4.3 ask for.

Spark makes these objects more than once and sends copies of them to other processes: they hold options, and reach
AWS only when a method is called. Nothing that the driver learns gets to ``read`` but through a partition.

What plans and reads is imported when it is used: Spark loads this module also to look for formats that are not ours,
and where pyarrow is missing it must load, to say so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from shardway.errors import OptionError, ShardwayError
from shardway.spark.columns import SCHEMA
from shardway.spark.offsets import INITIAL
from shardway.spark.options.parsing import check_options, parse_read_options, parse_sink_options
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.options.sink_columns import sink_columns
from shardway.spark.plain_errors import plain_errors
from shardway.spark.ranges import ShardPartition, TaskOptions
from shardway.spark.termination import TERMINATION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shardway.spark.driver.driver import Driver
    from shardway.spark.sink.task import SinkTask

try:  # PySpark 4.1 and newer
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    STREAM_WRITER: Any = DataSourceStreamArrowWriter
    ARROW_STREAM_WRITER = True
except ImportError:
    STREAM_WRITER = DataSourceStreamWriter
    ARROW_STREAM_WRITER = False

try:  # PySpark 4.2 and newer
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION = True
except ImportError:
    ADMISSION = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for Spark's class where Spark has no such trigger for Python sources."""


READING = "while reading stream"
"""The beginning of the note on each error of a task that reads."""


class ShardwayDataSource(DataSource):
    """Reads and writes an Amazon Kinesis stream. The options are on the reference pages, and in
    ``shardway.spark.options``.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given_options = dict(options)
        with plain_errors():
            _require_packages()
            check_options(self._given_options)

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "shardway"

    def schema(self) -> str:
        """Return the columns as DDL."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch read, from a start to an ending time."""
        with plain_errors():
            options = parse_read_options(self._given_options, streaming=False)
            return ShardwayReader(options, _task_options(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read."""
        try:
            options = parse_read_options(self._given_options, streaming=True)
            return ShardwayStreamReader(options, _task_options(options, schema))
        except OptionError as error:
            # Raised here, it would be lost: Spark's runner then fails on the reader that it has not got (4.0 to 4.3).
            return FaultyStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write, which appends."""
        with plain_errors():
            return ShardwayWriter(_sink_task(self._given_options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a streaming write, which appends."""
        with plain_errors():
            return ShardwayStreamWriter(_sink_task(self._given_options, schema, overwrite))


class ShardwayReader(DataSourceReader):
    """Reads a stretch of time of a stream, as one batch."""

    def __init__(self, options: ReadOptions, task_options: TaskOptions) -> None:
        self._options = options
        self._task_options = task_options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, which are planned afresh each time Spark asks."""
        from shardway.spark.driver.driver import Driver

        with plain_errors():
            driver = Driver(self._options, self._task_options)
            try:
                return driver.plan_whole()
            finally:
                driver.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition. Where there is nothing to read, Spark makes up an empty partition."""
        if isinstance(partition, ShardPartition):
            yield from _rows(partition)


class ShardwayStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches whose ends are fixed before anything is read."""

    def __init__(self, options: ReadOptions, task_options: TaskOptions) -> None:
        self._options = options
        self._task_options = task_options
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that tasks get: nothing of the driver's is in it."""
        # Spark pickles the reader for its executors, and a driver has a thread, a loop and connections.
        return {**self.__dict__, "_driver": None}

    def _start_driver(self) -> Driver:
        if self._driver is None:
            from shardway.spark.driver.driver import Driver

            # Spark 4.0 and 4.1 make one batch of AvailableNow and do not say so: it must hold all that is there.
            self._driver = Driver(self._options, self._task_options, all_at_first=not ADMISSION)
            if self._options.leases is not None:
                TERMINATION.expect(self.stop)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        """Return an offset that says nothing: Spark does not log the start of batch 0, whose end carries where its
        ranges begin.
        """
        return dict(INITIAL)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Return the end of the next batch. Spark 4.0 and 4.1 give no arguments; then the caps hold in every call."""
        with plain_errors():
            capped = limit is None or not (ADMISSION and isinstance(limit, ReadAllAvailable))
            return self._start_driver().latest(start, capped=capped)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that says whether batches are capped: ``Trigger.Once`` asks for all regardless."""
        caps = self._options.caps
        if caps.rows is not None:
            return ReadMaxRows(caps.rows)
        return ReadAllAvailable() if caps.bytes is None else ReadMaxBytes(caps.bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end: what is in the stream now is read, then the query ends."""
        with plain_errors():
            self._start_driver().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return what the query's progress shows as the latest offset (Spark 4.2 and newer)."""
        return None if self._driver is None else self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch: ``end`` alone says what they read. Equal offsets only say where the query
        stands.
        """
        with plain_errors():
            if start == end:
                self._start_driver().stand_at(end)
                return []
            return self._start_driver().partitions(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        assert isinstance(partition, ShardPartition)
        yield from _rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Write the end of a committed batch to the leases of the query's application, if it has one; nothing else is
        kept outside of Spark's own checkpoint. Spark calls this when it has the next batch: the driver knows earlier
        that the batch before is committed.
        """
        if self._driver is not None:
            self._driver.note_commit(end)

    def stop(self) -> None:
        """Close the driver's connections."""
        with TERMINATION.hold():
            driver, self._driver = self._driver, None
            if driver is not None:
                driver.close()


class FaultyStreamReader(DataSourceStreamReader):
    """Stands in for a reader whose options are wrong, until Spark asks it something."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raises what is wrong."""
        with plain_errors():
            raise self._error

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Raises what is wrong."""
        with plain_errors():
            raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raises what is wrong."""
        with plain_errors():
            raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises what is wrong. Spark never calls this: there are no partitions."""
        raise self._error


class ShardwayWriter(DataSourceArrowWriter):
    """Writes a DataFrame to a stream."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task: all are written when this returns."""
        from shardway.spark.sink.writer import write_batches

        with plain_errors():
            return write_batches(self._task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what was written: all rows are written by now."""
        from shardway.spark.sink.task import log_commit

        log_commit(self._task, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log what stays in the stream, which takes nothing back."""
        from shardway.spark.sink.task import log_abort

        log_abort(self._task, messages, None)


class ShardwayStreamWriter(STREAM_WRITER):  # type: ignore[misc]
    """Writes the batches of a query to a stream. Spark makes a new one for each call but ``write``."""

    def __init__(self, task: SinkTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task: all are written when this returns. Spark 4.0 gives rows, later versions give Arrow
        batches.
        """
        from shardway.spark.sink.writer import write_batches, write_rows

        with plain_errors():
            return (write_batches if ARROW_STREAM_WRITER else write_rows)(self._task, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what was written: all rows are written by now."""
        from shardway.spark.sink.task import log_commit

        log_commit(self._task, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log what stays in the stream, which takes nothing back."""
        from shardway.spark.sink.task import log_abort

        log_abort(self._task, messages, batchId)


def _require_packages() -> None:
    """Raise ShardwayError that says which package is missing: Spark itself leaves a query hanging when its worker
    cannot import pyarrow.
    """
    missing = [name for name in ("pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise ShardwayError(
            f"{' and '.join(missing)} cannot be imported by {sys.executable}, the Python that Spark runs sources with: "
            'install "shardway[spark]" there, or set PYSPARK_PYTHON to the Python of an environment that has it, on '
            "the driver and on all executors"
        )


def _rows(partition: ShardPartition) -> Iterator[pa.RecordBatch]:
    from shardway.spark.task.partition_reader import read_partition

    with plain_errors():
        try:
            yield from read_partition(partition)
        except Exception as error:
            # By this note the program that runs the query tells a stream that cannot be read from a sink that fails:
            # without the stack, Spark says only that a task failed.
            if not any(note.startswith(READING) for note in getattr(error, "__notes__", ())):
                error.add_note(f"{READING} {partition.stream}")
            raise


def _sink_task(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkTask:
    from shardway.spark.driver.connection import locate
    from shardway.spark.sink.task import SinkTask

    options = parse_sink_options(given)
    columns = sink_columns(schema, options)
    if overwrite:
        raise OptionError("the sink can only append to a stream: write with mode append, or output mode append")
    return SinkTask(options, columns, locate(options.connection("sink")))


def _task_options(options: ReadOptions, schema: StructType) -> TaskOptions:
    from shardway.spark.driver.connection import locate
    from shardway.spark.task.arrow_columns import asked_columns

    columns, not_null = asked_columns(schema)
    return TaskOptions.of(options, locate(options.connection("task")), columns, not_null)
