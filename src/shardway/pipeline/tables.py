"""Append each batch of a query once to a table of a format with transactions, Delta or Iceberg.

Such a table takes all rows of a write in one commit, or none. The commit carries its writer's name and the batch's
number; so a batch that runs again finds its own commit and writes nothing. What a kill can leave behind is either all
or nothing: files of a write that was never committed belong to no version of the table, and its upkeep removes them.

The table is asked only where the answer can be yes: for the first batch of a process, and after a batch that failed or
was there.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline.batches import batch_run, one_write
from shardway.pipeline.hadoop_files import qualified
from shardway.pipeline.parquet_folder import ARRIVAL, HOUR, few_files, hour_of
from shardway.pipeline.spark_calls import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from shardway.pipeline.batches import BatchRun


_WRITER = re.compile(r"[A-Za-z0-9_./:-]{1,128}")
_SECOND = "table before in the same run: one commit takes a batch"


class Commit(NamedTuple):
    """The writer, the batch and its bounds, as a commit in a table's history names them."""

    writer: str
    batch_id: int
    bounds: str | None = None
    query: str | None = None
    """The id of the streaming query, which stays with its checkpoint directory; None outside of a query."""


class NewestCommit(NamedTuple):
    """The newest commit of a writer as the table's own state has it, which outlives the history."""

    batch_id: int
    at_s: float | None = None
    """The time of the commit, in seconds since 1970; None where the state does not say."""


class History(NamedTuple):
    """The facts that a table still knows of one writer."""

    commits: dict[int, Commit]
    """The writer's commits that the history has, by batch."""
    since_s: float | None = None
    """The time before which the history may lack commits, in seconds since 1970; None where it lacks none that
    matter.
    """
    newest: NewestCommit | None = None
    """The newest commit as the table's state has it; None where the table has never had a commit of this writer, or
    keeps no such state.
    """
    may_skip: bool = False
    """True where the table has such a state, which could not be asked: the table leaves a write out in silence where
    the state says so.
    """


class TableSink(ABC):
    """The base class of the sinks for Delta and Iceberg. One object serves one query."""

    RESERVED: tuple[str, ...] = ()
    """Options that the sink sets itself, in lower case."""

    def __init__(
        self,
        place: str,
        *,
        partition_by: Sequence[str] = (),
        time: str = ARRIVAL,
        options: Mapping[str, str] | None = None,
        writer: str | None = None,
    ) -> None:
        if writer is not None and not _WRITER.fullmatch(writer):
            raise OptionError("writer: 1 to 128 letters, digits and _ . / : - are wanted")
        self._place = place
        self._partition_by = list(partition_by)
        self._time = time
        self._options = dict(options or {})
        self._writer = writer
        self._finished: tuple[str, int] | None = None
        """The writer and the batch that this object wrote last; None before the first, while a batch is under way, and
        after a batch that the table had already.
        """
        faults = [
            f"option {name} is set by the sink itself: it is what makes a batch known again"
            for name in self._options
            if name.lower() in self.RESERVED
        ]
        if faults:
            raise OptionError(faults)

    def write(self, batch: DataFrame, batch_id: int) -> bool:
        """Append a batch, unless the table has it: then nothing is written. Return True when it was written.

        Raises OptionError when a column is missing, when the table's history says that it has other rows under this
        number, or batches of this writer from another checkpoint directory, or cannot say whether it has the batch.
        The table is then as before.
        """
        self.check(batch)
        run = batch_run(batch, batch_id)
        writer = self._writer_of(run)
        commit = Commit(writer, batch_id, *((None, None) if run is None else (run.bounds, run.query_id)))
        with one_write(self._place, writer, run, batch_id, why=_SECOND):
            follows, self._finished = self._finished == (writer, batch_id - 1), None
            history = None if follows else self._history(batch.sparkSession, writer)
            there = history is not None and self._has(history, commit, run)
            if not there:
                self._append(self._with_hour(batch), commit)
                if history is not None and history.may_skip:
                    self._see(batch.sparkSession, commit)
            # The batch after one that the table had already may be in the table too: it has to be looked up.
            self._finished = None if there else (writer, batch_id)
        return not there

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Pass over a batch that is known to have no rows: nothing is written or looked up."""
        writer = self._writer_of(batch_run(batch, batch_id))
        if self._finished == (writer, batch_id - 1):
            self._finished = (writer, batch_id)

    def check(self, batch: DataFrame) -> None:
        """Raises OptionError when a column that is needed is missing."""
        makes_hour = HOUR in self._partition_by and HOUR not in batch.columns
        needed = set(self._partition_by) - ({HOUR} if makes_hour else set())
        needed |= {self._time} if makes_hour else set()
        faults = [f"the batch has no column {name}" for name in sorted(needed - set(batch.columns))]
        if faults:
            raise OptionError(faults)

    @abstractmethod
    def _append(self, rows: DataFrame, commit: Commit) -> None:
        """Append rows in one commit that carries its writer and the batch's number."""

    def _make_if_missing(self, spark: SparkSession, rows: DataFrame) -> None:
        """Make a table of the catalog, without rows; another writer may do so at the same moment."""
        if spark.catalog.tableExists(self._place):
            return
        try:
            self._make(rows)
        except Exception:  # each catalog tells this in its own way
            if not spark.catalog.tableExists(self._place):
                raise

    @abstractmethod
    def _make(self, rows: DataFrame) -> None:
        """Make a table of the catalog with the columns of these rows, but without the rows."""

    @abstractmethod
    def _history(self, spark: SparkSession, writer: str) -> History:
        """Return what the table knows of a writer's commits; there are none where there is no table yet."""

    def _has(self, history: History, commit: Commit, run: BatchRun | None) -> bool:
        others = {one.query for one in history.commits.values()} - {None, commit.query}
        if others and commit.query is not None:
            raise OptionError(
                f"{self._place}: the table has batches of writer {commit.writer} from another checkpoint directory "
                f"(query {', '.join(sorted(str(query) for query in others))}), which counts its batches itself: batch "
                f"{commit.batch_id} of this one could be taken for one of them, and be left out. Nothing was written. "
                "Give this query a name of its own, writer=..., or none: then it adds to what is there"
            )
        if commit.batch_id in history.commits:
            _same(self._place, history.commits[commit.batch_id], commit, self._fresh)
            return True
        newest = max(history.commits, default=-1)
        if newest > commit.batch_id:
            raise OptionError(
                f"{self._place}: batch {commit.batch_id} comes after batch {newest} of the same query, and the table "
                "does not know it: another run of the query is writing, or the checkpoint directory was set back. "
                f"Nothing was written. Start the query with {self._fresh}, at the position to go on from"
            )
        planned_at_s = None if run is None else run.planned_at_s
        if history.newest is not None and history.newest.batch_id >= commit.batch_id:
            if _is_newest(history.newest, commit, planned_at_s):
                return True
            raise OptionError(self._forgotten(commit, history.newest.batch_id))
        if history.newest is not None:
            return False
        if history.since_s is not None and planned_at_s is not None and planned_at_s < history.since_s:
            raise OptionError(
                f"{self._place}: nothing can tell whether batch {commit.batch_id} is in the table: it was begun before "
                "the oldest commit that the table keeps. Nothing was written. Look for its rows; then start the "
                f"query with {self._fresh}, behind them or at them"
            )
        return False

    def _see(self, spark: SparkSession, commit: Commit) -> None:
        """Raises OptionError where the table has left the commit out."""
        if commit.batch_id not in self._history(spark, commit.writer).commits:
            raise OptionError(self._forgotten(commit, None))

    def _forgotten(self, commit: Commit, newest: int | None) -> str:
        until = "this one or a later one" if newest is None else str(newest)
        return (
            f"{self._place}: nothing can tell whether batch {commit.batch_id} is in the table. It has taken the "
            f"batches of this query up to {until}, and its history no longer says of which records this one was: the "
            "checkpoint directory was set back, or the batch is one of long ago. Nothing was written. Look for its "
            f"rows; then start the query with {self._fresh}, behind them or at them"
        )

    @property
    def _fresh(self) -> str:
        """The words for what makes a query a new one to the table: a given name outlives the checkpoint directory."""
        named = "" if self._writer is None else " and another writer=..."
        return f"a new checkpoint directory{named}"

    def _writer_of(self, run: BatchRun | None) -> str:
        if self._writer is not None:
            return self._writer
        if run is None:
            raise OptionError(
                f"write() was called outside of foreachBatch: name the writer, {type(self).__name__}(..., writer=...)"
            )
        # Two sinks of a query may name one table in two ways. Taken for one writer, the second would write nothing.
        return f"{run.query_id}/{hashlib.sha256(self._place.encode()).hexdigest()[:8]}"

    def _with_hour(self, batch: DataFrame) -> DataFrame:
        if HOUR not in self._partition_by or HOUR in batch.columns:
            return batch
        return batch.withColumn(HOUR, hour_of(fn.col(self._time)))


def newest_of(commits: Iterable[Commit]) -> dict[int, Commit]:
    """Return the commits by batch; of two commits of a batch the one that comes first."""
    found: dict[int, Commit] = {}
    for commit in commits:
        found.setdefault(commit.batch_id, commit)
    return found


def _is_newest(newest: NewestCommit, commit: Commit, planned_at_s: float | None) -> bool:
    """True where the newest commit is this batch: it has the batch's number, and is not older than its offsets."""
    if newest.batch_id != commit.batch_id:
        return False
    return newest.at_s is None or planned_at_s is None or planned_at_s <= newest.at_s


def _same(place: str, there: Commit, now: Commit, fresh: str) -> None:
    """Raises OptionError where a batch has other bounds than the one that was written under its number."""
    if there.bounds is not None and now.bounds is not None and there.bounds != now.bounds:
        raise OptionError(
            f"{place}: the table has a batch {now.batch_id} of this writer, of other records: the checkpoint directory "
            "has lost its newest entries, or is not the one that the table was written with. Nothing was written. "
            f"Start the query with {fresh}, at the position it is to go on from"
        )


# --- Delta ----------------------------------------------------------------------------------------
# The commit of a batch is a Delta transaction of the application ``QUERY/PLACE`` with the version ``BATCH``: the table
# keeps the newest version of each application, and takes no commit of one that is not newer. It decides that in the
# commit itself. So of two drivers that write one batch at the same time one commits, and the other fails.

HISTORY_MAX = 1_000
"""The number of newest commits that are searched for those of a writer."""
TRIES_MAX = 5

_NO_TABLE = (
    "DELTA_TABLE_ONLY_OPERATION", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND",
)  # fmt: skip
_OTHERS_COMMIT = (
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_CONCURRENT_APPEND",
    "DELTA_CONCURRENT_WRITE",
)
"""Delta's errors where another writer made the table, or changed its columns, meanwhile. A second try is safe: a batch
commits once.
"""
_KEY = "shardway"
_FORGETS = "delta.setTransactionRetentionDuration"


class DeltaSink(TableSink):
    """Appends batches of a streaming query to a Delta table, each batch exactly once. Call it in ``foreachBatch``.

    Give either ``path`` or ``table``. The table is made if it is not there. ``partition_by``: columns that a new table
    is partitioned by, and an existing one must be; ``hour``, if the batch has no such column, is made of the TIMESTAMP
    column ``time``, in UTC. ``options``: those of Delta's writer; columns that the table does not have are an error
    unless ``mergeSchema`` is true. ``writer``: the writer's name in the table's log; by default the id of the
    streaming query, which stays with its checkpoint directory, and the table. Two sinks that write one batch into one
    table need two names, and so do two checkpoint directories.

    Spark needs Delta's package and settings (``delta_settings``). A table that has a
    ``delta.setTransactionRetentionDuration`` forgets a writer after that time.
    """

    RESERVED = ("txnappid", "txnversion", "usermetadata", "path")

    def __init__(
        self,
        path: str | None = None,
        *,
        table: str | None = None,
        partition_by: Sequence[str] = (),
        time: str = ARRIVAL,
        options: Mapping[str, str] | None = None,
        writer: str | None = None,
    ) -> None:
        place = path if table is None else table
        if place is None or (path is not None and table is not None):
            raise OptionError("give either a path or a table")
        super().__init__(place.rstrip("/"), partition_by=partition_by, time=time, options=options, writer=writer)
        self._table = table

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        if self._table is not None:
            # The commit that makes a table of the catalog does not carry the writer and the batch: so the table is
            # made before.
            self._make_if_missing(rows.sparkSession, rows)
        for left in reversed(range(TRIES_MAX)):
            try:
                self._commit(rows, commit)
                return
            except (PySparkException, Py4JError) as error:  # Py4JError comes without Delta's own Python package
                if not left or not any(f"[{name}" in str(error) for name in _OTHERS_COMMIT):
                    raise

    def _make(self, rows: DataFrame) -> None:
        making = rows.limit(0).write.format("delta").mode("ignore").partitionBy(*self._partition_by)
        making.saveAsTable(self._place)

    def _commit(self, rows: DataFrame, commit: Commit) -> None:
        about = {"writer": commit.writer, "batch": commit.batch_id, "bounds": commit.bounds, "query": commit.query}
        with few_files(rows.sparkSession):
            writing = rows.hint("rebalance", *self._partition_by).write.format("delta").mode("append")
            writing = writing.partitionBy(*self._partition_by).options(**self._options)
            writing = writing.option("txnAppId", commit.writer).option("txnVersion", str(commit.batch_id))
            writing = writing.option("userMetadata", json.dumps({_KEY: about}))
            if self._table is None:
                writing.save(self._place)
            else:
                writing.saveAsTable(self._table)

    def _history(self, spark: SparkSession, writer: str) -> History:
        name = self._table or f"delta.`{qualified(spark, self._place).replace('`', '``')}`"
        asked = f"DESCRIBE HISTORY {name} LIMIT {HISTORY_MAX}"
        try:
            rows = spark.sql(asked).selectExpr("version", "unix_millis(timestamp) at_ms", "userMetadata").collect()
        except AnalysisException as error:
            if (error.getCondition() or "").startswith(_NO_TABLE):
                return History({})
            raise
        told = [one for one in (_told(row["userMetadata"]) for row in rows) if one is not None]
        commits = newest_of(one for one in told if one.writer == writer)
        try:
            state = _state_of(spark, name, writer)
        except (Py4JError, AttributeError, TypeError):  # it is a Connect session, or Delta has other classes
            return History(commits, may_skip=True)
        # By default the state never forgets a writer: one that it does not know is new, however short the history is.
        first = rows[-1] if state.forgets and rows and rows[-1]["version"] > 0 else None
        return History(commits, None if first is None else first["at_ms"] / 1000, state.newest)


class _State(NamedTuple):
    """The facts of one writer in the state of a Delta table, which is its log as a whole."""

    newest: NewestCommit | None
    forgets: bool
    """True where the state keeps writers for a while only."""


def _state_of(spark: Any, name: str, writer: str) -> _State:
    """Return what the state of a table says of a writer. No statement of SQL answers this, so Delta's own classes are
    asked: those by which it decides in a commit.
    """
    place = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    snapshot = log.forTableWithSnapshot(spark._jsparkSession, place)._2()
    forgets = snapshot.metadata().configuration().contains(_FORGETS)
    if not snapshot.transactions().contains(writer):
        return _State(None, forgets)
    found = next(one for one in _each(snapshot.setTransactions()) if one.appId() == writer)
    at_ms = found.lastUpdated()
    return _State(NewestCommit(found.version(), at_ms.get() / 1000 if at_ms.isDefined() else None), forgets)


def _each(of_scala: Any) -> Iterator[Any]:
    iterator = of_scala.iterator()
    while iterator.hasNext():
        yield iterator.next()


def delta_settings() -> dict[str, str]:
    """Return the settings for a session's builder that Delta needs beside its package."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _told(text: str | None) -> Commit | None:
    """Return what a commit says of itself; None for a commit of another program."""
    try:
        about = json.loads(text or "")[_KEY]
        return Commit(str(about["writer"]), int(about["batch"]), about["bounds"], about.get("query"))
    except (ValueError, KeyError, TypeError):
        return None


# --- Iceberg --------------------------------------------------------------------------------------
# The snapshot of a batch carries, in its summary, its writer's name and the batch's number. A batch is there when a
# snapshot that the table's current one descends from says so: a rollback takes a batch out of the table and out of this
# history.
#
# MERGE is not used, as it would need columns for it in the table, and read the table in each batch. The newest snapshot
# alone is not enough, as another writer, or a compaction, may have come after. That no snapshot is found is not enough
# either, as maintenance expires old ones: where the history begins later than the batch, the sink raises an error, and
# writes no second copy.

_PREFIX = "snapshot-property."
_OURS = "shardway."
_SUMMARY_WRITER, _BATCH = _OURS + "writer", _OURS + "batch"
_BOUNDS, _QUERY = _OURS + "bounds", _OURS + "query"
_BRANCH = "branch"


class IcebergSink(TableSink):
    """Appends batches of a streaming query to an Iceberg table, each batch exactly once. Call it in ``foreachBatch``.

    ``table``: the table's name in Spark, with its catalog. The table is made if it is not there. ``partition_by``:
    columns that a new table is partitioned by; one that is there keeps its own partitions. ``hour``, if the batch has
    no such column, is made of the TIMESTAMP column ``time``, in UTC. ``options``: those of Iceberg's writer; a column
    that the table does not have is an error unless the table (``write.spark.accept-any-schema``) and the options
    (``merge-schema``) allow it.
    ``writer``: the writer's name in the snapshots; by default the id of the streaming query, which stays with its
    checkpoint directory, and the table. Two sinks that write one batch into one table need two names, and so do two
    checkpoint directories.

    Only one driver may write at a time: of two that write one batch at the same moment both could commit.
    """

    RESERVED = tuple(_PREFIX + name for name in (_SUMMARY_WRITER, _BATCH, _BOUNDS, _QUERY))

    def __init__(
        self,
        table: str,
        *,
        partition_by: Sequence[str] = (),
        time: str = ARRIVAL,
        options: Mapping[str, str] | None = None,
        writer: str | None = None,
    ) -> None:
        super().__init__(table, partition_by=partition_by, time=time, options=options, writer=writer)
        named = {name.lower(): value for name, value in self._options.items()}
        self._ref = named.get(_BRANCH, "main")

    def _append(self, rows: DataFrame, commit: Commit) -> None:
        spark = rows.sparkSession
        self._make_if_missing(spark, rows)
        about = {_SUMMARY_WRITER: commit.writer, _BATCH: str(commit.batch_id)}
        about |= {name: text for name, text in ((_BOUNDS, commit.bounds), (_QUERY, commit.query)) if text is not None}
        with few_files(spark):
            # A table with partitions distributes rows by them itself.
            writing = (rows if self._partition_by else rows.hint("rebalance")).writeTo(self._place)
            writing = writing.options(**self._options)
            for name, value in about.items():
                writing = writing.option(_PREFIX + name, value)
            writing.append()

    def _make(self, rows: DataFrame) -> None:
        making = rows.limit(0).writeTo(self._place).using("iceberg")
        if self._partition_by:
            making = making.partitionedBy(*[fn.col(name) for name in self._partition_by])
        making.create()

    def _history(self, spark: SparkSession, writer: str) -> History:
        if not spark.catalog.tableExists(self._place):
            return History({})
        spark.sql(f"REFRESH TABLE {self._place}")  # catalogs keep a table for a while
        heads = spark.sql(f"SELECT name, snapshot_id FROM {self._place}.refs").collect()  # noqa: S608
        snapshots = spark.sql(
            "SELECT snapshot_id, parent_id, unix_millis(committed_at) AS at_ms, map_filter(summary, (name, value) -> "  # noqa: S608
            f"startswith(name, '{_OURS}')) AS ours FROM {self._place}.snapshots"
        ).collect()
        head = next((row["snapshot_id"] for row in heads if row["name"] == self._ref), None)
        return _descent({row["snapshot_id"]: row for row in snapshots}, head, writer)


def _descent(snapshots: Mapping[int, Any], head: int | None, writer: str) -> History:
    """Return a writer's commits among the snapshot ``head`` and those that it descends from."""
    commits: list[Commit] = []
    at, since_s = head, None
    while at is not None:
        snapshot = snapshots.get(at)
        if snapshot is None:  # it has expired
            return History(newest_of(commits), since_s)
        said = snapshot["ours"] or {}
        if said.get(_SUMMARY_WRITER) == writer:
            commits.append(Commit(writer, int(said[_BATCH]), said.get(_BOUNDS), said.get(_QUERY)))
        at, since_s = snapshot["parent_id"], snapshot["at_ms"] / 1000
    return History(newest_of(commits))
