"""Say which batch of which query a sink is given."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException

from shardway.errors import OptionError
from shardway.pipeline.py4j_error import Py4JError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame


_QUERY_ID = "sql.streaming.queryId"
_WRITTEN_MAX = 1_000
_QUERIES_MAX = 100


class BatchRun(NamedTuple):
    """One run of one batch of a streaming query. A field that this version of Spark does not report is None."""

    query_id: str
    """The id of the query, which stays with the checkpoint directory."""
    run_id: str | None = None
    """The id of this start of the query."""
    bounds: str | None = None
    """A digest of the batch's offsets in the checkpoint: the same in each run of it."""
    planned_at_s: float | None = None
    """The time at which the batch's offsets were stored, before it ran for the first time; seconds since 1970."""


_queries: OrderedDict[str, tuple[Any, str]] = OrderedDict()
"""The queries whose batches were looked up, by id: Spark's own object of each, and the id of its run."""


def batch_run(batch: DataFrame, batch_id: int) -> BatchRun | None:
    """Return the run of the batch in whose ``foreachBatch`` this is called; None outside of one, and in Spark
    Connect.
    """
    query_id = _query_of(batch)
    if query_id is None:
        return None
    try:
        return _from_offset_log(batch.sparkSession, query_id, batch_id)
    except (Py4JError, AttributeError, TypeError):  # these are Spark's own classes: another version may lack one
        return BatchRun(query_id)


def query_run(batch: DataFrame) -> BatchRun | None:
    """Return the run as `batch_run` does, without what the offset log says of the batch. That takes the fewest calls to
    the JVM.
    """
    query_id = _query_of(batch)
    if query_id is None:
        return None
    try:
        found = _running_query(batch.sparkSession, query_id)
    except (Py4JError, AttributeError, TypeError):
        return BatchRun(query_id)
    return BatchRun(query_id) if found is None else BatchRun(query_id, found[1])


def execution_of(batch: DataFrame) -> Any:
    """Return Spark's own object of how the batch is executed in whose ``foreachBatch`` this is called; None outside of
    one. Raises Py4JError where this version of Spark has none.
    """
    query_id = _query_of(batch)
    found = None if query_id is None else _running_query(batch.sparkSession, query_id)
    return None if found is None else found[0].lastExecution()


def _query_of(batch: DataFrame) -> str | None:
    try:
        return batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or None
    except PySparkException:  # a Connect session has no context
        return None


def _running_query(spark: Any, query_id: str) -> tuple[Any, str] | None:
    """Return the query and the id of its run; None where Spark has no query of this id."""
    known = _queries.get(query_id)
    if known is not None and _is_active(known[0]):
        return known
    key = spark._jvm.java.util.UUID.fromString(query_id)
    query = spark._jsparkSession.sharedState().activeStreamingQueries().get(key)
    if query is None:
        return None
    _queries[query_id] = query, str(query.runId().toString())
    _queries.move_to_end(query_id)
    while len(_queries) > _QUERIES_MAX:
        _queries.popitem(last=False)
    return _queries[query_id]


def _is_active(query: Any) -> bool:
    try:
        return bool(query.isActive())
    except (Py4JError, OSError):  # the query belongs to another JVM, which is gone
        return False


def _from_offset_log(spark: Any, query_id: str, batch_id: int) -> BatchRun:
    """Return what the query's offset log has of the batch."""
    known = _running_query(spark, query_id)
    if known is None:
        return BatchRun(query_id)
    query, run_id = known
    run = BatchRun(query_id, run_id)
    found = query.offsetLog().get(batch_id)
    if found.isEmpty():
        return run
    offsets = found.get()
    if offsets.getClass().getSimpleName() == "OffsetSeq":  # its text is what stands in the log
        run = run._replace(bounds=hashlib.sha256(str(offsets.toString()).encode()).hexdigest()[:32])
    try:
        about = offsets.metadataOpt()
    except Py4JError:  # before Spark 4.2
        about = offsets.metadata()
    return run if about.isEmpty() else run._replace(planned_at_s=about.get().batchTimestampMs() / 1000)


_written_batches: OrderedDict[tuple[str, str], tuple[str, int]] = OrderedDict()
"""The run and the batch that this process writes or wrote last, by place and writer."""


@contextmanager
def one_write(place: str, writer: str, run: BatchRun | None, batch_id: int, *, why: str) -> Iterator[None]:
    """Guard the write of a batch to a place. A write that fails may be tried again.

    Raises OptionError for a second write of a batch in the same run under the same writer's name. ``why``: the part of
    its text that says what a second write would do.
    """
    if run is None or not run.run_id:
        yield
        return
    this = (run.run_id, batch_id)
    if _written_batches.get((place, writer)) == this:
        raise OptionError(
            f"{place}: batch {batch_id} was written to this {why}. Write all its rows at once, or give each write a "
            "name of its own, writer=..."
        )
    _written_batches[place, writer] = this
    _written_batches.move_to_end((place, writer))
    while len(_written_batches) > _WRITTEN_MAX:
        _written_batches.popitem(last=False)
    try:
        yield
    except BaseException:
        _written_batches.pop((place, writer), None)
        raise
