"""Write a folder of files in which any reader sees each row once, whenever the query that writes it was killed.

Spark runs a batch again when it cannot know whether the batch was finished. So what a batch wrote has to be found and
replaced: its files carry the batch's number, and the query's id. Where the caller names the writer, they carry both
names, ``batch-000000012-WRITER-3f2a9c41-00000.parquet``: a query with another checkpoint directory counts from batch 0
under the same writer's name, and must not take these files for its own.

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
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline.batch_runs import BatchRun, one_write, query_run
from shardway.pipeline.batches import sort_by_key
from shardway.pipeline.dataframes import check_classic
from shardway.pipeline.file_layout import ARRIVAL, HOUR, few_files, hour_of, with_what_is_observed
from shardway.pipeline.hadoop_files import HadoopFiles, files_for
from shardway.pipeline.jvm import java_column, java_seq
from shardway.pipeline.spark_paths import identity_in
from shardway.spark.columns import POSITION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession


_CONTAINERS = ("parquet", "orc")
"""Formats whose compression is inside of the file: its name does not have to tell it."""
_WRITER = re.compile(r"[A-Za-z0-9_]{1,64}")
_OURS = re.compile(r"batch-(\d{9})-[A-Za-z0-9_]+(?:-([0-9a-f]{8}))?-\d{5}\.")
"""The pattern of the beginning of a file's name in the folder; its groups are the batch, and the query that stands
behind a given writer's name.
"""
_SUFFIX = re.compile(r"[^.]*(?:\.c\d+)?\.(.*)", re.DOTALL)
"""The pattern of the name of a file that Spark wrote, whose group is the suffix: part-00000-UUID-c000.json, or
part-00000-UUID.c000.json.gz in a partition.
"""
_SECOND = "folder before in the same run: the second write would take the first one's files away"
FILES_MAX = 4
"""The number of files up to which a batch is said to have few, however small they are."""
_FIRST_FILE = "part-00000-"
"""The beginning of Spark's name of the first partition's file."""


class _Author(NamedTuple):
    """The names that mark the files of one query."""

    writer: str
    query: str | None
    """The beginning of the query's id, where the writer's name was given; None where the name is that beginning, and
    outside of a query.
    """

    @property
    def name(self) -> str:
        """The name in files and below the staging folder."""
        return self.writer if self.query is None else f"{self.writer}-{self.query}"


class _Place(NamedTuple):
    """A folder, as one Spark's JVM knows it. This is asked once, and not for each batch."""

    context: Any
    """The context of the Spark that was asked."""
    files: HadoopFiles
    folder: str
    staging: str
    """The folder for files that are being written, without a writer's name behind it."""
    identity: str
    options: Any
    """The options of Spark's writer, as a Java map."""
    folders: Any
    """The columns that folders are made of."""
    hour: Any
    """The column of the hour, which is made where files lie in folders of hours; None where they do not."""


class BatchFolder:
    """Writes batches of a streaming query into a folder of files, each batch exactly once. Call it in
    ``foreachBatch``.

    ``path``: the folder, on any file system that Spark knows and that renames files (local, HDFS; on S3 a rename is
    a copy). ``format``: one of Spark's file formats, ``options`` are its options. ``partition_by``: columns that the
    files lie in folders of; ``hour``, if the batch has no such column, is made of the TIMESTAMP column ``time``, in
    UTC. ``key``: with it, the rows of a batch lie in its files sorted by this column and by position, which has to be
    among the columns; all rows of one key and one folder lie in one file. ``writer``: the query's name in file names,
    of letters, digits and ``_``; by default the beginning of Spark's own query id, which stays with the checkpoint
    directory. A query with a new checkpoint directory therefore adds to what is there and replaces nothing. A given
    name belongs to one checkpoint directory: a query with another one needs another name, and is refused under this.
    ``staging``: the folder for files that are being written, on the same file system; by default the folder's name
    with ``.staging`` behind it.

    One object serves one query. Two queries may write into the same folder, each with its own writer's name. Raises
    OptionError in a Spark Connect session, which reaches no file system.
    """

    def __init__(  # noqa: PLR0913 - options of a public class, by name
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
        self._place: _Place | None = None
        self._finished_batch: int | None = None
        """The batch that this object finished last; None before the first and while one is under way."""

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, in place of what an earlier run of it wrote. Its columns become the file's.

        Raises OptionError when a column that is needed is missing, and for a second write of a batch in one run of
        a query, which would take the first one's files away: by this object, or by another one for the same folder,
        however its path is spelled.
        """
        with self.staged(batch, batch_id) as staged:
            staged.put()

    @contextmanager
    def staged(
        self, batch: DataFrame, batch_id: int, *, as_divided: bool = False, columns: Collection[str] | None = None
    ) -> Iterator[StagedBatch]:
        """Write a batch in two steps: its files are written beside the folder, and `StagedBatch.put` moves them into
        it.

        What is not put is written again by the next try. ``as_divided``: each partition of the batch becomes a file of
        each hour, and no row is sent to another task for it. This is not done where ``key`` or other columns than the
        hour say which rows lie together. ``columns``: the batch's columns, if they are known.
        """
        names = self._needed_names(batch) if columns is None else set(columns)
        self._check_names(names)
        direct = as_divided and self._takes_any_order
        run = query_run(batch)
        place, author = self._place_at(batch.sparkSession), self._author(run)
        with one_write(place.identity, author.writer, run, batch_id, why=_SECOND):
            self._begin(place, author, batch_id)
            self._stage(batch, place, author, makes_hour=self._makes_hour(names), direct=direct)
            yield StagedBatch(self, author, batch_id, direct=direct)

    def _author(self, run: BatchRun | None) -> _Author:
        if self._writer is None:
            return _Author(_writer_of(run), None)
        return _Author(self._writer, None if run is None else _query_of(run))

    def _place_at(self, spark: SparkSession) -> _Place:
        """Return the folder's place. What Spark makes of the path is kept as long as it is the same Spark."""
        if self._place is None or self._place.context is not spark.sparkContext:
            identity = identity_in(spark, self._path)
            files, (folder, staging) = files_for(spark, self._path, self._staging)
            jvm: Any = spark._jvm
            options = jvm.java.util.HashMap()
            for name, value in {**files.options, **self._options}.items():
                options.put(name, value)
            folders = java_seq(spark, self._partition_by)
            hour = java_column(hour_of(fn.col(self._time))) if HOUR in self._partition_by else None
            self._place = _Place(spark.sparkContext, files, folder, staging, identity, options, folders, hour)
        return self._place

    @property
    def _begun_at(self) -> _Place:
        """The place at which the batch was staged that is put now."""
        assert self._place is not None
        return self._place

    @property
    def _takes_any_order(self) -> bool:
        """True where rows may lie in whichever file of their hour."""
        return self._key is None and set(self._partition_by) <= {HOUR}

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Take away what an earlier run of a batch wrote. The batch is known to have no rows, and is not run."""
        run = query_run(batch)
        place, author = self._place_at(batch.sparkSession), self._author(run)
        with one_write(place.identity, author.writer, run, batch_id, why=_SECOND):
            self._begin(place, author, batch_id)
            self._finished_batch = batch_id

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError when a column that is needed is missing."""
        self._check_names(self._needed_names(batch))

    def _needed_names(self, batch: DataFrame) -> set[str]:
        """Return the columns of a batch; none where nothing depends on them, since they are a question to the JVM."""
        return set(batch.columns) if self._key or self._partition_by else set()

    def _check_names(self, columns: set[str]) -> None:
        needed = {self._key, *POSITION[2:]} if self._key else set()
        needed |= {name for name in self._partition_by if name != HOUR or HOUR in columns}
        needed |= {self._time} if self._makes_hour(columns) else set()
        faults = [f"the batch has no column {name}" for name in sorted(needed - columns)]
        if faults:
            raise OptionError(faults)

    def _makes_hour(self, columns: Collection[str]) -> bool:
        return HOUR in self._partition_by and HOUR not in columns

    def _begin(self, place: _Place, author: _Author, batch_id: int) -> None:
        follows, self._finished_batch = self._finished_batch, None
        left = [] if follows is not None and batch_id == follows + 1 else self._batches_left(place, author, batch_id)
        place.files.remove(f"{place.staging}/{author.name}")
        for file in left:
            place.files.remove(file)

    def _batches_left(self, place: _Place, author: _Author, batch_id: int) -> list[str]:
        """Return what this or a later batch of this query left: the batch is written again now, or will be.

        Raises OptionError where the files are those of a query with another checkpoint directory.
        """
        folders = "*=*/" * len(self._partition_by)
        found = place.files.glob(place.folder, f"{folders}batch-{_at_least(batch_id)}-{author.writer}-*.*")
        others: dict[str | None, list[int]] = {}
        for file in found:
            named = _OURS.match(file.rsplit("/", 1)[-1])
            # A call outside of a query writes files without a query's id.
            if named is not None and named[2] != author.query:
                others.setdefault(named[2], []).append(int(named[1]))
        if others:
            raise OptionError(self._told_of_others(author, batch_id, others))
        return found

    def _told_of_others(self, author: _Author, batch_id: int, others: Mapping[str | None, Sequence[int]]) -> str:
        queries = ", ".join(sorted(f"query {query}" if query else "a query without an id" for query in others))
        numbers = [number for of_one in others.values() for number in of_one]
        return (
            f"{self._path}: the folder has files of writer {author.writer} from another checkpoint directory "
            f"({queries}; batches {min(numbers)} to {max(numbers)}), and batch {batch_id} of this one would take their "
            "place. Nothing was removed or written. Give this query a name of its own, writer=..., or none: then it "
            "adds to what is there. Where it is to write all of that again, remove those files before"
        )

    def _stage(self, batch: DataFrame, place: _Place, author: _Author, *, makes_hour: bool, direct: bool) -> None:
        rows: Any = batch._jdf
        if makes_hour:
            rows = rows.withColumn(HOUR, place.hour)
        staging = f"{place.staging}/{author.name}"
        if direct:
            self._save(rows, place, staging)
            return
        with few_files(batch.sparkSession), with_what_is_observed(batch.sparkSession):
            spread: Any = DataFrame(rows, batch.sparkSession)
            if self._key:
                spread = sort_by_key(spread, self._key, first=self._partition_by)
            else:
                spread = spread.hint("rebalance", *self._partition_by)
            self._save(spread._jdf, place, staging)

    def _save(self, rows: Any, place: _Place, staging: str) -> None:
        place.files.make_ready(staging)
        writing = rows.write().mode(place.files.mode).format(self._format).options(place.options)
        if self._partition_by:
            writing = writing.partitionBy(place.folders)
        writing.save(staging)

    def _finish(self, author: _Author, batch_id: int) -> None:
        place = self._begun_at
        place.files.remove(f"{place.staging}/{author.name}")
        self._finished_batch = batch_id

    def _move(self, author: _Author, batch_id: int, *, without_first: bool) -> None:
        place = self._begun_at
        staging, name = f"{place.staging}/{author.name}", f"batch-{batch_id:09d}-{author.name}"
        depth = len(self._partition_by)
        staged = place.files.parts(staging, depth)
        if without_first:  # Spark makes a file of the first partition also where that has no row
            staged = [file for file in staged if not file.split("/")[-1].startswith(_FIRST_FILE)]
        staged.sort(key=lambda file: file.split("/")[-depth - 1 :])
        for number, file in enumerate(staged):
            parts = file.split("/")
            folder = "/".join([place.folder, *parts[len(parts) - depth - 1 : -1]])
            place.files.move(file, folder, f"{name}-{number:05d}{self._suffix(parts[-1])}")

    def _suffix(self, file: str) -> str:
        return f".{self._format}" if self._format in _CONTAINERS else _SUFFIX.sub(r".\1", file)


class StagedBatch:
    """A batch of a folder whose files are written beside it, and not in it yet."""

    def __init__(self, folder: BatchFolder, author: _Author, batch_id: int, *, direct: bool) -> None:
        self._folder = folder
        self._author = author
        self._batch_id = batch_id
        self.is_direct = direct
        """True where each partition of the batch was written as it is."""

    def put(self, *, first_is_empty: bool = False) -> None:
        """Move the files into the folder. ``first_is_empty``: the batch's first partition has no row for it."""
        without_first = self.is_direct and first_is_empty
        self._folder._move(self._author, self._batch_id, without_first=without_first)
        self._folder._finish(self._author, self._batch_id)

    def put_nothing(self) -> None:
        """End a batch that turned out to have no row for the folder: what is staged is removed."""
        self._folder._finish(self._author, self._batch_id)


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

    def _check_names(self, columns: set[str]) -> None:
        if HOUR in columns:
            raise OptionError(f"the batch has a column {HOUR}, which is what the folder is partitioned by: rename it")
        super()._check_names(columns)


def _at_least(batch_id: int) -> str:
    """Return the pattern of all numbers of nine digits that are not smaller: the file system sorts out the others."""
    digits = f"{batch_id:09d}"
    larger = [
        f"{digits[:place]}[{int(digit) + 1}-9]{'?' * (8 - place)}" for place, digit in enumerate(digits) if digit != "9"
    ]
    return "{" + ",".join([digits, *larger]) + "}"


def _writer_of(run: BatchRun | None) -> str:
    """Return the name of a query whose writer is not named."""
    if run is None:
        raise OptionError("write() was called outside of foreachBatch: name the writer, ParquetFolder(..., writer=...)")
    return _query_of(run)


def _query_of(run: BatchRun) -> str:
    """Return the first part of the id of a streaming query; the id stays with the checkpoint directory."""
    return run.query_id.partition("-")[0]
