"""Append batches to a Delta table.

The commit of a batch is a Delta transaction of the application ``QUERY/PLACE`` with the version ``BATCH``: the table
keeps the newest version of each application, and takes no commit of one that is not newer. It decides that in the
commit itself. So of two drivers that write one batch at the same time one commits, and the other fails.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException, PySparkException

from shardway.errors import OptionError
from shardway.pipeline.causes import has_condition
from shardway.pipeline.file_layout import ARRIVAL, few_files
from shardway.pipeline.py4j_error import Py4JError
from shardway.pipeline.spark_paths import qualified
from shardway.pipeline.tables.commit_keys import RESERVED_OPTIONS
from shardway.pipeline.tables.table_sink import Commit, History, NewestCommit, TableSink, newest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


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

    RESERVED = RESERVED_OPTIONS["delta"]

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
                if not left or not has_condition(error, *_OTHERS_COMMIT):
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
        told = [one for one in (_commit_info(row["userMetadata"]) for row in rows) if one is not None]
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
    found = next(one for one in _iterate(snapshot.setTransactions()) if one.appId() == writer)
    at_ms = found.lastUpdated()
    return _State(NewestCommit(found.version(), at_ms.get() / 1000 if at_ms.isDefined() else None), forgets)


def _iterate(of_scala: Any) -> Iterator[Any]:
    iterator = of_scala.iterator()
    while iterator.hasNext():
        yield iterator.next()


def delta_settings() -> dict[str, str]:
    """Return the settings for a session's builder that Delta needs beside its package."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _commit_info(text: str | None) -> Commit | None:
    """Return what a commit says of itself; None for a commit of another program."""
    try:
        about = json.loads(text or "")[_KEY]
        return Commit(str(about["writer"]), int(about["batch"]), about["bounds"], about.get("query"))
    except (ValueError, KeyError, TypeError):
        return None
