"""Append batches to an Iceberg table.

The snapshot of a batch carries, in its summary, its writer's name and the batch's number. A batch is there when a
snapshot that the table's current one descends from says so: a rollback takes a batch out of the table and out of this
history.

MERGE is not used, as it would need columns for it in the table, and read the table in each batch. The newest snapshot
alone is not enough, as another writer, or a compaction, may have come after. That no snapshot is found is not enough
either, as maintenance expires old ones: where the history begins later than the batch, the sink raises an error, and
writes no second copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

from shardway.pipeline.file_layout import ARRIVAL, few_files
from shardway.pipeline.tables.commit_keys import (
    ICEBERG_BATCH,
    ICEBERG_BOUNDS,
    ICEBERG_OURS,
    ICEBERG_PROPERTY,
    ICEBERG_QUERY,
    ICEBERG_WRITER,
    RESERVED_OPTIONS,
)
from shardway.pipeline.tables.table_sink import Commit, History, TableSink, newest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


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

    RESERVED = RESERVED_OPTIONS["iceberg"]

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
        about = {ICEBERG_WRITER: commit.writer, ICEBERG_BATCH: str(commit.batch_id)}
        about |= {
            name: text
            for name, text in ((ICEBERG_BOUNDS, commit.bounds), (ICEBERG_QUERY, commit.query))
            if text is not None
        }
        with few_files(spark):
            # A table with partitions distributes rows by them itself.
            writing = (rows if self._partition_by else rows.hint("rebalance")).writeTo(self._place)
            writing = writing.options(**self._options)
            for name, value in about.items():
                writing = writing.option(ICEBERG_PROPERTY + name, value)
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
            f"startswith(name, '{ICEBERG_OURS}')) AS ours FROM {self._place}.snapshots"
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
        if said.get(ICEBERG_WRITER) == writer:
            commits.append(Commit(writer, int(said[ICEBERG_BATCH]), said.get(ICEBERG_BOUNDS), said.get(ICEBERG_QUERY)))
        at, since_s = snapshot["parent_id"], snapshot["at_ms"] / 1000
    return History(newest_of(commits))
