"""A folder of files that any reader sees each row once in, whenever the query that writes it was killed.

Spark runs a batch again when it cannot know whether the batch was finished. So what a batch wrote has to be found and
replaced: its files carry the batch's number, and the query's.

::

    orders/hour=2026-11-21-10/batch-000000012-3f2a9c41-00000.parquet
    orders.staging/3f2a9c41/                    only while a batch is written, or after a kill

A batch is written in four steps; what a kill in each leaves behind, the next run of the batch takes away:

1. sweep    remove what an earlier run left: its staging folder, and every file of this or a later batch
2. stage    Spark writes the batch's files beside the folder
3. move     each file is renamed into the folder: it is there whole, or not at all
4. done     the staging folder is removed

A reader may see a batch without some of its files while it is moved, and never a row twice. The sweep looks through all
folders of hours; it is made when a batch is the first of this process, or follows none that was finished here.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from penstock.errors import OptionError
from penstock.pipeline.batch_run import batch_run, one_write
from penstock.pipeline.hadoop_files import HadoopFiles
from penstock.pipeline.known import check_classic
from penstock.pipeline.places import identity_in
from penstock.pipeline.positions import POSITION, sort_by_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import Column, DataFrame, SparkSession

HOUR = "hour"
"""The column that the folder is partitioned by, ``yyyy-MM-dd-HH`` in UTC: text, as any reader finds it in the path."""

ARRIVAL = "approximate_arrival_timestamp"
_CONTAINERS = ("parquet", "orc")
"""Formats whose compression is inside of the file: its name does not have to tell it."""

_QUERY_ID = "sql.streaming.queryId"
_WRITER = re.compile(r"[A-Za-z0-9_]{1,64}")
_SUFFIX = re.compile(r"[^.]*(?:\.c\d+)?\.(.*)", re.DOTALL)
"""Of a file that Spark wrote: part-00000-UUID-c000.json, or part-00000-UUID.c000.json.gz in a partition."""
_SECOND = "folder before in the same run: the second write would take the first one's files away"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_SECONDS_PER_HOUR = 3600
FILES_MAX = 4
"""So many files of a batch are few, however small they are."""
_FIRST_FILE = "part-00000-"
"""How Spark's name of the first partition's file begins."""


class BatchFolder:
    """Writes batches of a streaming query into a folder of files, each batch exactly once. For ``foreachBatch``.

    ``path``: the folder, on any file system that Spark knows and that renames files (local, HDFS; on S3 a rename is
    a copy). ``format``: one of Spark's file formats, ``options`` are its options. ``partition_by``: columns that the
    files lie in folders of; ``hour``, if the batch has no such column, is made of the TIMESTAMP column ``time``, in
    UTC. ``key``: with it, the rows of a batch lie in its files sorted by this column and by position, which has to be
    among the columns; all rows of one key and one folder in one file. ``writer``: names the query in file names,
    letters, digits and ``_``; by default the beginning of Spark's own query id, which stays with the checkpoint
    directory. A query with a new checkpoint directory therefore adds to what is there and replaces nothing.
    ``staging``: the folder for files that are being written, on the same file system; by default the folder's name
    with ``.staging`` behind it.

    One object serves one query. Two queries may write into the same folder, each with its own writer's name. Raises
    OptionError in a Spark Connect session, which reaches no file system.
    """

    def __init__(
        self,
        path: str,
        *,
        format: str = "parquet",
        partition_by: Sequence[str] = (),
        time: str = ARRIVAL,
        key: str | None = None,
        options: Mapping[str, str] | None = None,
        writer: str | None = None,
        staging: str | None = None,
    ) -> None:
        check_classic(type(self).__name__)
        if writer is not None and not _WRITER.fullmatch(writer):
            raise OptionError("writer: 1 to 64 letters, digits and _ are wanted")
        self._path = path.rstrip("/")
        self._format = format
        self._partition_by = list(partition_by)
        self._time = time
        self._key = key
        self._options = dict(options or {})
        self._writer = writer
        self._staging = (staging or f"{self._path}.staging").rstrip("/")
        self._finished: int | None = None
        """The batch that was finished last, by this object; None before the first and while one is under way."""

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, in place of what an earlier run of it wrote. Its columns become the file's.

        Raises OptionError when a column that is needed is missing, and for a second write of a batch in one run of
        a query, which would take the first one's files away: by this object, or by another one for the same folder,
        however its path is spelled.
        """
        with self.staged(batch, batch_id) as staged:
            staged.put()

    @contextmanager
    def staged(self, batch: DataFrame, batch_id: int, *, as_divided: bool = False) -> Iterator[StagedBatch]:
        """The same in two steps: the batch's files are there, beside the folder, and come into it by ``put``.

        What is not put is written again by the next try. ``as_divided``: each partition of the batch becomes a file of
        each hour, and no row is sent to another task for it. That is left where ``key`` or other columns than the hour
        say which rows lie together.
        """
        self.check(batch)
        files = HadoopFiles(batch.sparkSession)
        writer = self._writer or _query_of(batch)
        staging = f"{self._staging}/{writer}"
        direct = as_divided and self._takes_any_order
        with self._once(batch, writer, batch_id):
            self._begin(files, writer, batch_id)
            self._stage(batch, staging, direct=direct)
            yield StagedBatch(self, files, writer, batch_id, direct=direct)

    @property
    def _takes_any_order(self) -> bool:
        """True where rows may lie in whichever file of their hour."""
        return self._key is None and set(self._partition_by) <= {HOUR}

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """As ``write``, for a batch known to have no rows: without running it. Takes away what it had written."""
        writer = self._writer or _query_of(batch)
        with self._once(batch, writer, batch_id):
            self._begin(HadoopFiles(batch.sparkSession), writer, batch_id)
            self._finished = batch_id

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError when a column that is needed is missing."""
        if not self._key and not self._partition_by:
            return  # a column's name is a question to the JVM
        columns = set(batch.columns)
        needed = {self._key, *POSITION[2:]} if self._key else set()
        needed |= {name for name in self._partition_by if name != HOUR or HOUR in columns}
        needed |= {self._time} if HOUR in self._partition_by and HOUR not in columns else set()
        faults = [f"the batch has no column {name}" for name in sorted(needed - columns)]
        if faults:
            raise OptionError(faults)

    def _once(self, batch: DataFrame, writer: str, batch_id: int) -> AbstractContextManager[None]:
        place = identity_in(batch.sparkSession, self._path)
        return one_write(place, writer, batch_run(batch, batch_id), batch_id, why=_SECOND)

    def _makes_hour(self, batch: DataFrame) -> bool:
        return HOUR in self._partition_by and HOUR not in batch.columns

    def _begin(self, files: HadoopFiles, writer: str, batch_id: int) -> None:
        follows, self._finished = self._finished, None
        files.remove(f"{self._staging}/{writer}")
        if follows is None or batch_id != follows + 1:
            self._sweep(files, writer, batch_id)

    def _sweep(self, files: HadoopFiles, writer: str, batch_id: int) -> None:
        """Remove what this or a later batch of this writer left: it is written again now, or will be."""
        for file in files.glob(self._path, f"{self._folders}batch-{_at_least(batch_id)}-{writer}-*.*"):
            files.remove(file)

    @property
    def _folders(self) -> str:
        return "*=*/" * len(self._partition_by)

    def _stage(self, batch: DataFrame, staging: str, *, direct: bool) -> None:
        rows = batch.withColumn(HOUR, hour_of(fn.col(self._time))) if self._makes_hour(batch) else batch
        if direct:
            self._save(rows, staging)
            return
        with few_files(batch.sparkSession):
            if self._key:
                rows = sort_by_key(rows, self._key, first=self._partition_by)
            else:
                rows = rows.hint("rebalance", *self._partition_by)
            self._save(rows, staging)

    def _save(self, rows: DataFrame, staging: str) -> None:
        writing = rows.write.mode("overwrite").partitionBy(*self._partition_by)
        writing.format(self._format).options(**self._options).save(staging)

    def _put(
        self, files: HadoopFiles, writer: str, batch_id: int, *, without_first: bool = False, none: bool = False
    ) -> None:
        staging = f"{self._staging}/{writer}"
        if not none:
            self._move(files, staging, f"batch-{batch_id:09d}-{writer}", without_first=without_first)
        files.remove(staging)
        self._finished = batch_id

    def _move(self, files: HadoopFiles, staging: str, name: str, *, without_first: bool) -> None:
        depth = len(self._partition_by)
        staged = files.glob(staging, f"{self._folders}part-*")
        if without_first:  # Spark makes a file of the first partition also where that has no row
            staged = [file for file in staged if not file.split("/")[-1].startswith(_FIRST_FILE)]
        staged.sort(key=lambda file: file.split("/")[-depth - 1 :])
        for number, file in enumerate(staged):
            parts = file.split("/")
            folder = "/".join([self._path, *parts[len(parts) - depth - 1 : -1]])
            files.move(file, folder, f"{name}-{number:05d}{self._suffix(parts[-1])}")

    def _suffix(self, file: str) -> str:
        return f".{self._format}" if self._format in _CONTAINERS else _SUFFIX.sub(r".\1", file)


class StagedBatch:
    """A batch of a folder whose files are written beside it, and not in it yet."""

    def __init__(self, folder: BatchFolder, files: HadoopFiles, writer: str, batch_id: int, *, direct: bool) -> None:
        self._folder = folder
        self._files = files
        self._writer = writer
        self._batch_id = batch_id
        self.is_direct = direct
        """True where the batch was written as it is divided."""

    def put(self, *, first_is_empty: bool = False) -> None:
        """Move the files into the folder. ``first_is_empty``: the batch's first partition has no row for it."""
        self._folder._put(self._files, self._writer, self._batch_id, without_first=self.is_direct and first_is_empty)

    def put_nothing(self) -> None:
        """Of a batch that turned out to have no row for the folder."""
        self._folder._put(self._files, self._writer, self._batch_id, none=True)


class ParquetFolder(BatchFolder):
    """A ``BatchFolder`` of Parquet files by the hour, which the column ``time`` gives.

    ``path``, ``time``, ``key``, ``writer`` and ``staging`` are those of ``BatchFolder``.
    """

    def __init__(
        self,
        path: str,
        *,
        time: str = ARRIVAL,
        key: str | None = None,
        writer: str | None = None,
        staging: str | None = None,
    ) -> None:
        super().__init__(path, partition_by=[HOUR], time=time, key=key, writer=writer, staging=staging)

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError when a column that is needed is missing, or ``hour`` is among the columns."""
        if HOUR in batch.columns:
            raise OptionError(f"the batch has a column {HOUR}, which is what the folder is partitioned by: rename it")
        super().check(batch)


def hour_of(time: Column) -> Column:
    """``yyyy-MM-dd-HH`` in UTC, whatever the session's time zone is."""
    hours = fn.floor(fn.unix_micros(time) / (_SECONDS_PER_HOUR * 1_000_000))
    day = fn.date_add(fn.lit("1970-01-01").cast("date"), fn.floor(hours / 24).cast("int"))
    return fn.concat_ws("-", day.cast("string"), fn.lpad(fn.pmod(hours, fn.lit(24)).cast("string"), 2, "0"))


@contextmanager
def few_files(spark: SparkSession) -> Iterator[None]:
    """Let Spark choose the number of partitions, and so of files, by their size.

    It does by default, but not in the session of a query with state, where every batch would be written in
    ``spark.sql.shuffle.partitions`` files per hour. What the query itself does is planned before this, and must be
    planned as before in the next batch. So only an output that finds the setting switched off switches it on, and off
    again: of two outputs that are written at the same time, none takes the other's value for the query's.
    """
    before = str(spark.conf.get(_ADAPTIVE))
    if before.lower() == "true":
        yield
        return
    spark.conf.set(_ADAPTIVE, "true")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


def _at_least(batch_id: int) -> str:
    """The pattern of all numbers of nine digits that are not smaller: the file system sorts out the many others."""
    digits = f"{batch_id:09d}"
    larger = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'?' * (8 - place)}" for place, digit in enumerate(digits) if digit != "9"
    ]
    return "{" + ",".join([digits, *larger]) + "}"


def _query_of(batch: DataFrame) -> str:
    """The first part of the id of the streaming query that runs this batch; it stays with the checkpoint directory."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise OptionError("write() was called outside of foreachBatch: name the writer, ParquetFolder(..., writer=...)")
    return query_id.partition("-")[0]
