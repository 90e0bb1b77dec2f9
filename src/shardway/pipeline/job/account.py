"""Say what a job did and how its run ended: numbers of each batch, their sums, exit codes, and whose an error is."""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

from shardway import shown
from shardway.errors import ShardwayError
from shardway.pipeline.deduplication import EXACT_DUPLICATES, late_rows
from shardway.pipeline.job.error_text import OURS, PYTHON_WORKER, is_of_data, whole_text
from shardway.pipeline.metrics import OBSERVATION, stream_metrics
from shardway.spark.source import ADMISSION, READING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.aws.kinesis import StreamSummary
    from shardway.pipeline.job.files import JobFile
    from shardway.pipeline.job.writing import Delivery


# --- how a run ended ------------------------------------------------------------------------------


class ExitCode(IntEnum):
    """The exit codes of a job's process."""

    DONE = 0
    """All that was to be read is read, or the job was stopped and the batch was finished."""
    FAILED = 1
    """The job failed by something else than what the other codes name."""
    WRONG_JOB = 2
    """The job file is wrong, or does not fit the data's columns. Nothing was read."""
    NOT_READY = 3
    """Spark cannot start, or lacks a package. Nothing was read."""
    SOURCE = 4
    """The stream cannot be read: it is not there, may not be read, or has lost records."""
    TRANSFORM = 5
    """The transform failed."""
    SINK = 6
    """A sink, or the dead letters, cannot be written."""
    CUT_SHORT = 7
    """The job was stopped a second time, in the middle of a batch, which the next start does again."""


class StepError(ShardwayError):
    """A step of the job failed. ``step`` is its name, ``code`` the exit code that the process ends with."""

    def __init__(self, message: str, *, step: str, code: ExitCode, batch_id: int | None = None) -> None:
        self.step = step
        self.code = code
        self.batch_id = batch_id
        super().__init__(message)


_SOURCE_SAYS = re.compile(
    rf"PYTHON_DATA_SOURCE_ERROR|PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR|shardway\.spark\.reading|{READING} "
)
_OTHER_STATE = re.compile(r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE")
_NO_STATE = re.compile(r"CANNOT_LOAD_STATE_STORE|STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY")
_STATE_NOT_STORED = re.compile(r"CANNOT_WRITE_STATE_STORE")
_STACK = re.compile(r"\n\s+at [^\n]*")
_STATE = re.compile(r"STATE_STORE|StateStore|RocksDB")
_JOB_FAILED = re.compile(r"Job aborted due to stage failure|_LEGACY_ERROR_TEMP_\d+\] Job \d+ cancelled")
_WRITE_FAILED = re.compile(r"TASK_WRITE_FAILED|Task failed while writing")
_PYTHON_WRITER = re.compile(r"write_into_data_source")


def source_failed(error: BaseException) -> bool:
    """True when it was reading the stream that failed, wherever Spark noticed it."""
    return _SOURCE_SAYS.search(whole_text(error)) is not None


def state_is_of_another_kind(error: BaseException) -> bool:
    """True when the checkpoint directory has the state of another way to de-duplicate than the query's."""
    return _OTHER_STATE.search(whole_text(error)) is not None


def state_cannot_be_read(error: BaseException) -> bool:
    """True when the checkpoint directory's state is not there or cannot be read, wherever Spark noticed it."""
    return _NO_STATE.search(whole_text(error)) is not None


def state_cannot_be_stored(error: BaseException) -> bool:
    """True when what a batch changed of the state could not be written to the checkpoint directory."""
    return _STATE_NOT_STORED.search(whole_text(error)) is not None


def by_the_data(error: BaseException) -> bool:
    """True when rows could not be computed: a value that an expression does not take, or a Python function's error.

    False for what a writer in Python raises in a task, ours or that of another Python data source.
    """
    if is_of_data(error):
        return True
    whole = whole_text(error)
    of_a_writer = OURS.search(whole) is not None or _PYTHON_WRITER.search(whole) is not None
    return PYTHON_WORKER.search(whole) is not None and not of_a_writer


def failed_before_writing(error: BaseException) -> bool:
    """True when tasks failed by what comes before a write of files, in the same action: steps, shuffles, the state."""
    whole = _STACK.sub("", whole_text(error))  # whatever fails behind a state has that in its stack
    if _STATE.search(whole) is not None or by_the_data(error):
        return True
    return _JOB_FAILED.search(whole) is not None and _WRITE_FAILED.search(whole) is None


# --- numbers --------------------------------------------------------------------------------------


class SecondPass(NamedTuple):
    """What corrects Spark's numbers of a batch that was run twice: some of them count both times."""

    rows: int
    """The rows that came out of the query's steps in one run."""
    is_shuffled: bool
    """True where the rows came through a shuffle: what lies before it was run once."""


class StateReport(msgspec.Struct, frozen=True):
    """Says what a batch did to the state of its de-duplication, and how large that is. Seconds are sums over tasks."""

    store: str
    """The kind of store: ``rocksdb``, or ``hdfs``, which holds the state in the heap of Spark's Java."""
    rows: int
    """Rows in the state: one for each key; with ``exact`` at most 128, each of many keys."""
    bytes: int
    """Bytes of memory that the state takes, as the store reports."""
    added: int
    """Rows that the batch wrote to the state."""
    removed: int
    """Rows that the batch removed from the state, as their time was over."""
    rows_per_s: float
    """Rows added and removed, for each second of the batch."""
    remove_s: float
    """Seconds of the search for rows whose time is over: Spark looks at each row of the state, in each batch."""
    commit_s: float
    """Seconds of storing what has changed."""


class BatchReport(msgspec.Struct, frozen=True):
    """One batch that was written and committed."""

    batch: int
    rows: int
    """Records that were read."""
    rows_per_s: float
    seconds: float
    """Seconds from the trigger to the commit."""
    lag_s: dict[str, float]
    """How old the oldest record is that is not read yet, in seconds, by stream; 0 when none is known. On Spark 4.0 and
    4.1 the time since the batch's cut.
    """
    dead_letters: int
    duplicates: int
    """Rows that the deduplication removed."""
    late: int
    """Rows that came later than the watermark allows, and were dropped."""
    bytes: int
    """Bytes of the records' data."""
    shards: int
    """The number of shards that the source keeps a position of."""
    aggregates_outside_range: int
    """KPL aggregates with user records outside of their shard's hash range."""
    possible_losses: int
    """Losses that were passed over since the checkpoint directory was made."""
    state: StateReport | None = None
    """What the batch did to the state; None for a job without a state."""


class Totals(msgspec.Struct):
    """The sums over the batches of one run."""

    batches: int = 0
    rows: int = 0
    seconds_busy: float = 0.0
    dead_letters: int = 0
    duplicates: int = 0
    late: int = 0
    bytes: int = 0
    aggregates_outside_range: int = 0
    possible_losses: int = 0
    """Losses that were passed over since the checkpoint directory was made."""
    lag_s: dict[str, float] = {}
    state: StateReport | None = None
    """The report of the last batch on the state."""

    def add(self, batch: BatchReport) -> None:
        """Add the numbers of a batch."""
        self.batches += 1
        self.rows += batch.rows
        self.seconds_busy = round(self.seconds_busy + batch.seconds, 3)
        self.dead_letters += batch.dead_letters
        self.duplicates += batch.duplicates
        self.late += batch.late
        self.bytes += batch.bytes
        self.aggregates_outside_range += batch.aggregates_outside_range
        self.possible_losses = batch.possible_losses
        self.lag_s = batch.lag_s
        self.state = batch.state


def was_a_batch(progress: Mapping[str, Any]) -> bool:
    """False for the progress that Spark reports now and then while nothing happens."""
    return "addBatch" in progress["durationMs"]


def batch_report(
    progress: Mapping[str, Any], *, stream: str, dead_letters: int, second: SecondPass | None = None
) -> BatchReport:
    """Return the report of a batch by Spark's progress. ``second``: the batch was run twice, and counts once."""
    rows = int(progress["numInputRows"])
    seconds = int(progress["durationMs"].get("triggerExecution", 0)) / 1000
    metrics = next(iter(stream_metrics(progress)), None)
    seen, state = 1, 1  # how often each was counted
    if second is not None:
        state = 2
        if not second.is_shuffled:
            # Whether what is observed counts both times depends on Spark's version.
            observed = (progress["observedMetrics"] or {}).get(OBSERVATION)
            seen = max(1, (0 if observed is None else int(observed["rows"] or 0)) // max(1, second.rows))
            rows = second.rows
    late = late_rows(progress) // state
    duplicates = _by_spark(progress) // state
    exact = _exact(progress)
    if exact and second is not None:
        exact = rows - second.rows - duplicates - late
    return BatchReport(
        batch=int(progress["batchId"]),
        rows=rows,
        rows_per_s=round(rows / seconds, 1) if seconds else 0.0,
        seconds=seconds,
        lag_s={stream: 0.0 if metrics is None else metrics.lag_s},
        dead_letters=dead_letters,
        duplicates=duplicates + exact,
        late=late,
        bytes=0 if metrics is None else (metrics.bytes or 0) // seen,
        shards=0 if metrics is None else metrics.shards,
        aggregates_outside_range=0 if metrics is None else (metrics.aggregates_outside_range or 0) // seen,
        possible_losses=0 if metrics is None else metrics.possible_losses,
        state=state_report(progress, seconds, state),
    )


def state_report(progress: Mapping[str, Any], seconds: float, counted: int = 1) -> StateReport | None:
    """Return Spark's numbers of the state. ``counted``: how often each is counted; ``seconds``: the batch's time."""
    operators = progress["stateOperators"]
    if not operators:
        return None

    def total(name: str) -> int:
        return sum(int(operator.get(name) or 0) for operator in operators) // counted

    added, removed = total("numRowsUpdated"), total("numRowsRemoved")
    in_rocks = any(name.startswith("rocksdb") for operator in operators for name in operator.get("customMetrics", {}))
    return StateReport(
        store="rocksdb" if in_rocks else "hdfs",
        rows=total("numRowsTotal"),
        bytes=total("memoryUsedBytes"),
        added=added,
        removed=removed,
        rows_per_s=round((added + removed) / seconds, 1) if seconds else 0.0,
        remove_s=total("allRemovalsTimeMs") / 1000,
        commit_s=total("commitTimeMs") / 1000,
    )


def cut_ms(progress: Mapping[str, Any]) -> int | None:
    """Return the time up to which the batch read, in epoch milliseconds by the service's clock; None before the first
    batch.
    """
    return next((metrics.cut_ms for metrics in stream_metrics(progress)), None)


def _by_spark(progress: Mapping[str, Any]) -> int:
    """Return the number of duplicates that Spark's own de-duplication removed."""
    found = (operator.get("customMetrics", {}) for operator in progress["stateOperators"])
    return sum(int(one.get("numDroppedDuplicateRows", 0)) for one in found)


def _exact(progress: Mapping[str, Any]) -> int:
    """Return the number of duplicates that our exact de-duplication removed."""
    found = (row.asDict() for row in (progress["observedMetrics"] or {}).values())
    return sum(int(one.get(EXACT_DUPLICATES) or 0) for one in found)


LAG = "lag" if ADMISSION else "since the cut"
"""The words for the seconds of ``lag_s`` in lines for people: Spark 4.0 and 4.1 do not tell what is unread, so they are
the time since the batch's cut, which also grows where nothing is left to read.
"""

# --- showing them ---------------------------------------------------------------------------------
# A run shows lines for people, or one line of JSON for each event.


class RunOutput:
    """Writes what happens to ``out``, and what is wrong to ``errors``."""

    def __init__(self, *, as_json: bool, out: TextIO | None = None, errors: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = sys.stdout if out is None else out
        self._errors = sys.stderr if errors is None else errors

    @property
    def rows_out(self) -> TextIO:
        """The stream on which a console sink shows rows, which are not to stand between lines of JSON."""
        return self._errors if self.as_json else self._out

    def checked(self, job_file: JobFile, deliveries: list[Delivery]) -> None:
        """Show that the job file is right, and what its sinks promise."""
        source = job_file.job.source
        stream = str(source.get("streamName") or source.get("streamARN"))
        self._event("checked", job=job_file.job.name, stream=stream, sinks=[one.as_dict() for one in deliveries])
        width = max(len(one.sink) for one in deliveries)
        lines = [f"{job_file.path}: job {job_file.job.name}, from stream {stream}"]
        for one in deliveries:
            lines.append(f"  {one.sink:{width}}  {one.how}: {one.why}")
            lines += [f"  {'':{width}}  note: {one.note}"] if one.note else []
        self._text("\n".join(lines))

    def found(self, summary: StreamSummary) -> None:
        """Show what the service says of the stream that the job reads."""
        shards, hours = summary.open_shard_count, summary.retention_hours
        self._event("stream", arn=summary.stream_arn, status=summary.stream_status, shards=shards, hours=hours)
        self._text(f"{summary.stream_arn} is {summary.stream_status}: {shards:,} open shards, {hours:,} hours are kept")

    def began_anew(self, checkpoint: str, removed: list[str]) -> None:
        """Show that a former start was killed before it had written an offset, and that what it left is removed."""
        self._event("began_anew", checkpoint=checkpoint, removed=removed)
        self._text(f"a former start was killed before its first batch; removed from {checkpoint}: {', '.join(removed)}")

    def started(self, name: str, query_id: str) -> None:
        """Show that the query runs."""
        self._event("started", job=name, query_id=query_id)
        self._text(f"job {name} runs (query {query_id})")

    def serves(self, host: str, port: int) -> None:
        """Show where Prometheus may ask for the numbers."""
        self._event("serves", host=host, port=port)
        self._text(f"serving /metrics on {host}, port {port}")

    def batch(self, report: BatchReport) -> None:
        """Show the report of a batch that is committed."""
        self._event("batch", **msgspec.to_builtins(report))
        lag = ", ".join(f"{LAG} {seconds:,.1f} s" for seconds in report.lag_s.values())
        self._text(
            f"batch {report.batch}: {report.rows:,} records in {report.seconds:,.1f} s ({report.rows_per_s:,.0f}/s), "
            f"{lag}, {report.dead_letters:,} dead letters, {report.duplicates:,} duplicates, {report.late:,} late"
            + (f", {report.aggregates_outside_range:,} aggregates outside" if report.aggregates_outside_range else "")
            + (f", {report.possible_losses:,} possible losses" if report.possible_losses else "")
            + (f", state {_state(report.state)}" if report.state is not None else "")
        )

    def stopping(self, why: str) -> None:
        """Show that a stop was asked for."""
        self._event("stopping", why=why)
        self._text(f"{why}: the batch is finished first; once more to leave it")

    def ended(self, name: str, how: str, code: ExitCode, totals: Totals, seconds: float) -> None:
        """Show the summary of the run."""
        speed = totals.rows / totals.seconds_busy if totals.seconds_busy else 0.0
        numbers: dict[str, Any] = msgspec.to_builtins(totals)
        self._event(
            "summary", job=name, outcome=how, exit_code=int(code), seconds=round(seconds, 1),
            rows_per_s=round(speed, 1), **numbers,
        )  # fmt: skip
        lines = [f"job {name}: {how} after {seconds:,.1f} s"]
        for label, value in (
            ("batches", f"{totals.batches:,}"),
            ("records", f"{totals.rows:,} ({speed:,.0f}/s while a batch ran)"),
            ("dead letters", f"{totals.dead_letters:,}"),
            ("duplicates", f"{totals.duplicates:,}"),
            ("late", f"{totals.late:,}"),
            *(
                [("outside", f"{totals.aggregates_outside_range:,} aggregates")]
                if totals.aggregates_outside_range
                else []
            ),
            *([("losses", f"{totals.possible_losses:,} possible")] if totals.possible_losses else []),
            *([("state", _state(totals.state))] if totals.state is not None else []),
            *((f"{LAG} of {stream}", f"{lag:,.1f} s") for stream, lag in totals.lag_s.items()),
        ):
            lines.append(f"  {label:<14} {value}")
        self._text("\n".join(lines))

    def wrong(self, faults: list[str], code: ExitCode, step: str = "job file") -> None:
        """Show what is wrong, a line for each fault."""
        for fault in faults:
            self._event("error", step=step, exit_code=int(code), message=fault)
            print(f"shardway: {shown.lines(fault)}", file=self._errors, flush=True)

    def _event(self, event: str, **values: Any) -> None:
        if self.as_json:
            print(shown.json_line({"event": event, **values}), file=self._out, flush=True)

    def _text(self, text: str) -> None:
        if not self.as_json:
            print(shown.lines(text), file=self._out, flush=True)


def _state(state: StateReport) -> str:
    rows, mib = f"{state.rows:,} rows", f"{state.bytes / 2**20:,.0f} MiB"
    return f"{rows} in {mib} of memory ({state.rows_per_s:,.0f}/s, commit {state.commit_s:,.1f} s)"
