"""Which batch of which query this is, as Spark's own logs have it. For sinks that have to know a batch again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException

from penstock.pipeline.jvm_errors import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUERY_ID, _RUN_ID = "sql.streaming.queryId", "spark.jobGroup.id"


class BatchRun(NamedTuple):
    """One run of one batch of a streaming query."""

    query_id: str
    """Stays with the checkpoint directory."""
    run_id: str
    """Of this start of the query."""
    bounds: str | None = None
    """A digest of the batch's offsets in the checkpoint: the same in each run of it. None where they are not told."""
    planned_at_s: float | None = None
    """When the batch's offsets were written down, before it ran for the first time; seconds since 1970."""


def batch_run(batch: DataFrame, batch_id: int) -> BatchRun | None:
    """Of the query whose ``foreachBatch`` this is called in; None outside of one, and in a Spark Connect session."""
    try:
        context = batch.sparkSession.sparkContext
        query_id, run_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
    except PySparkException:  # a Connect session has no context
        return None
    if not query_id:
        return None
    try:
        bounds, planned_at_s = _planned(batch.sparkSession, query_id, batch_id)
    except (Py4JError, AttributeError, TypeError):  # these are Spark's own classes: another version may lack one
        bounds, planned_at_s = None, None
    return BatchRun(query_id, run_id or "", bounds, planned_at_s)


def _planned(spark: Any, query_id: str, batch_id: int) -> tuple[str | None, float | None]:
    """What the query's offset log has of the batch."""
    key = spark._jvm.java.util.UUID.fromString(query_id)
    query = spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
    found = None if query is None else query.offsetLog().get(batch_id)
    if found is None or found.isEmpty():
        return None, None
    offsets = found.get()
    bounds = None
    if offsets.getClass().getSimpleName() == "OffsetSeq":  # its text is what stands in the log
        bounds = hashlib.sha256(str(offsets.toString()).encode()).hexdigest()[:32]
    named = {method.getName() for method in offsets.getClass().getMethods()}
    about = offsets.metadataOpt() if "metadataOpt" in named else offsets.metadata()  # before 4.2
    return bounds, None if about.isEmpty() else about.get().batchTimestampMs() / 1000
