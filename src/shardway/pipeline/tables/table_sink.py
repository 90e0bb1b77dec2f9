"""Append each batch of a query once to a table of a format with transactions.

Such a table takes all rows of a write in one commit, or none. The commit carries its writer's name and the batch's
number; so a batch that runs again finds its own commit and writes nothing. What a kill can leave behind is either all
or nothing: files of a write that was never committed belong to no version of the table, and its upkeep removes them.

The table is asked only where the answer can be yes: for the first batch of a process, and after a batch that failed or
was there.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline.batch_runs import batch_run, one_write
from shardway.pipeline.file_layout import ARRIVAL, HOUR, hour_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from shardway.pipeline.batch_runs import BatchRun


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
        self._finished_batch: tuple[str, int] | None = None
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

        Raises OptionError when a column is missing, and when the table's history shows one of these: other rows under
        this number, batches of this writer from another checkpoint directory, or too few commits to tell whether the
        table has the batch. The table is then as before.
        """
        self.check(batch)
        run = batch_run(batch, batch_id)
        writer = self._writer_of(run)
        commit = Commit(writer, batch_id, *((None, None) if run is None else (run.bounds, run.query_id)))
        with one_write(self._place, writer, run, batch_id, why=_SECOND):
            follows, self._finished_batch = self._finished_batch == (writer, batch_id - 1), None
            history = None if follows else self._history(batch.sparkSession, writer)
            there = history is not None and self._has(history, commit, run)
            if not there:
                self._append(self._with_hour(batch), commit)
                if history is not None and history.may_skip:
                    self._see(batch.sparkSession, commit)
            # The batch after one that the table had already may be in the table too: it has to be looked up.
            self._finished_batch = None if there else (writer, batch_id)
        return not there

    def write_nothing(self, batch: DataFrame, batch_id: int) -> None:
        """Pass over a batch that is known to have no rows: nothing is written or looked up."""
        writer = self._writer_of(batch_run(batch, batch_id))
        if self._finished_batch == (writer, batch_id - 1):
            self._finished_batch = (writer, batch_id)

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
                f"(query {', '.join(sorted(str(query) for query in others))}). That query counts its batches itself, "
                f"so batch {commit.batch_id} of this one could be taken for one of its batches and be left out. "
                "Nothing was written. Give this query a name of its own, writer=..., or no name: then its rows are "
                "added"
            )
        if commit.batch_id in history.commits:
            _require_same(self._place, history.commits[commit.batch_id], commit, self._fresh_text)
            return True
        newest = max(history.commits, default=-1)
        if newest > commit.batch_id:
            raise OptionError(
                f"{self._place}: the table has batch {newest} of this query and lacks the earlier batch "
                f"{commit.batch_id}: another run of the query is writing, or the checkpoint directory was set back. "
                f"Nothing was written. Start the query with {self._fresh_text}, at the position where the table ends"
            )
        planned_at_s = None if run is None else run.planned_at_s
        if history.newest is not None and history.newest.batch_id >= commit.batch_id:
            if _is_newest(history.newest, commit, planned_at_s):
                return True
            raise OptionError(self._forgotten_text(commit, history.newest.batch_id))
        if history.newest is not None:
            return False
        if history.since_s is not None and planned_at_s is not None and planned_at_s < history.since_s:
            raise OptionError(
                f"{self._place}: the table does not show whether it has batch {commit.batch_id}, because the batch was "
                "begun before the oldest commit that the table keeps. Nothing was written. Look for its rows in the "
                f"table. Then start the query with {self._fresh_text}: behind these rows, or at them if the table "
                "lacks them"
            )
        return False

    def _see(self, spark: SparkSession, commit: Commit) -> None:
        """Raises OptionError where the table has left the commit out."""
        if commit.batch_id not in self._history(spark, commit.writer).commits:
            raise OptionError(self._forgotten_text(commit, None))

    def _forgotten_text(self, commit: Commit, newest: int | None) -> str:
        until = "this one or a later one" if newest is None else str(newest)
        return (
            f"{self._place}: nothing can tell whether batch {commit.batch_id} is in the table. It has taken the "
            f"batches of this query up to {until}, and its history no longer says of which records this one was: the "
            "checkpoint directory was set back, or the batch is one of long ago. Nothing was written. Look for its "
            f"rows; then start the query with {self._fresh_text}, behind them or at them"
        )

    @property
    def _fresh_text(self) -> str:
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


def _require_same(place: str, there: Commit, now: Commit, fresh: str) -> None:
    """Raises OptionError where a batch has other bounds than the one that was written under its number."""
    if there.bounds is not None and now.bounds is not None and there.bounds != now.bounds:
        raise OptionError(
            f"{place}: the table has a batch {now.batch_id} of this writer with other records: the checkpoint "
            "directory has lost its newest entries, or the table was written with another one. Nothing was written. "
            f"Start the query with {fresh}, at the position where the table ends"
        )
