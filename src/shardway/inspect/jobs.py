"""Look at Spark jobs from the outside: at the numbers that they report, and at the files that they leave
behind. Nothing is asked of Spark.

A *place* is where a job can be looked at: the ``/metrics`` of a job that serves its numbers, the checkpoint directory
of a query, or a file of lines of JSON (what ``shardway run -o jsonl`` prints, or the progress of any query). Queries
that keep rows in a lease table are seen there without a place: `LeaseView.query` has their positions.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import time
import urllib.error
import urllib.request
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.errors import OptionError
from shardway.inspect.lag import OK_S, STALLED_S, STEADY, WINDOW_MIN_S
from shardway.inspect.moments import span_text, utc
from shardway.inspect.registries import NoRedirect
from shardway.shown import one_line, url_without_password
from shardway.spark.offsets import OffsetFormatError, StreamOffset, is_initial
from shardway.telemetry.names import AGE, APPLICATION, STREAM, TABLE, Kind, Reporter, prometheus_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

BATCHES_MAX = 100
"""The batches of a job that are shown: Spark keeps as many in a checkpoint directory."""
OFFSETS_BYTES_MAX = 8 * 1024 * 1024
"""The bytes of the offsets in a checkpoint directory that one look reads."""
LOG_BYTES_MAX = 1024 * 1024
"""The bytes at the end of a file of lines that are read."""
METRICS_BYTES_MAX = 8 * 1024 * 1024
ANSWER_S = 10.0
"""Seconds that a look waits for the answer of an endpoint."""
QUERIES_MAX = 100
"""The queries of one endpoint that are looked at."""
SILENT_S = 60.0
"""A job reports its numbers every ten seconds, also while it is idle: older numbers belong to a job that is gone."""
TEXT_MAX = 500


class JobState(StrEnum):
    """How a job does, the worst last."""

    ENDED = "ended"
    OK = "ok"
    UNKNOWN = "not known yet"
    CATCHING_UP = "catching up"
    STEADY = "steady"
    FALLING_BEHIND = "falling behind"
    STALLED = "stalled"
    STOPPED = "stopped"
    FAILED = "failed"


class JobBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One committed batch of a job."""

    batch: int
    at: dt.datetime | None = None
    """When the batch was committed. Lines of ``shardway run -o jsonl`` do not say it."""
    seconds: float | None = None
    records: int | None = None
    lag_s: float | None = None
    """How old the oldest record was at that time that was in no batch yet."""


class JobStream(msgspec.Struct, frozen=True, kw_only=True):
    """What a job reports of a stream that it reads."""

    stream: str
    lag_s: float | None = None
    shards: int | None = None
    """Shards of which the query keeps a position."""
    shards_unread: int | None = None
    shards_silent: int | None = None
    """Shards that cross a silence, for which the cut of all shards waits."""
    shards_left_out: int | None = None
    possible_losses: int | None = None
    """Possible losses that were passed over since the checkpoint directory was made."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or a query, as one place shows it."""

    name: str
    place: str
    source: str
    """``metrics``, ``checkpoint`` or ``lines``."""
    streams: list[JobStream] = []
    batch: int | None = None
    """The newest batch that was committed."""
    planned: int | None = None
    """The batch that was begun and is not committed."""
    planned_at: dt.datetime | None = None
    batches: int | None = None
    """Batches that this run has committed."""
    records: int | None = None
    dead_letters: int | None = None
    duplicates: int | None = None
    late: int | None = None
    batch_s: float | None = None
    """Seconds of the newest batch, or of this run's batches on average (``metrics``)."""
    told_at: dt.datetime | None = None
    """When these numbers were reported."""
    query_id: str | None = None
    outcome: str | None = None
    """How the run ended, where a line says it."""
    failed: bool = False
    recent: list[JobBatch] = []
    """The newest batches, the oldest first."""

    @property
    def lag_s(self) -> float | None:
        """The longest lag of the job's streams, in seconds; None: none is known."""
        return _longest(one.lag_s for one in self.streams)


def _longest(lags_s: Iterable[float | None]) -> float | None:
    return max((one for one in lags_s if one is not None), default=None)


class JobsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a place."""

    place: str
    taken_at: dt.datetime
    jobs: list[JobView]


class JobLook(NamedTuple):
    """A job at one time."""

    at_s: float
    batch: int | None
    lag_s: float | None


class JobVerdict(NamedTuple):
    """How a job does, and why the verdict is this one."""

    state: JobState
    why: str


def place_of(text: str) -> str:
    """Return the place as a URL or a path of this machine. Raises OptionError for what cannot be read from here."""
    scheme, sign, _ = text.partition("://")
    if not text.strip() or not text.isprintable():
        raise OptionError("a place of Spark jobs is a URL, a directory or a file")
    if not sign or scheme in ("http", "https"):
        return text
    if scheme == "file":
        return text.removeprefix("file://")
    raise OptionError(
        f"{url_without_password(text)}: a checkpoint directory is read from a folder of this machine: mount it, or "
        "give the address of the job's numbers (shardway run --metrics-port)"
    )


def jobs_at(place: str, now_s: float | None = None) -> JobsReport:
    """Return the jobs of one place. The call blocks while it reads files or one HTTP answer. Raises OptionError."""
    found, now_s = place_of(place), time.time() if now_s is None else now_s
    shown = url_without_password(place)
    try:
        if found.startswith(("http://", "https://")):
            jobs = list(jobs_of_metrics(_fetched(found), shown, now_s))
        elif (path := Path(found)).is_dir():
            jobs = [job_of_checkpoint(path)]
        else:
            jobs = [job_of_lines(path)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        raise OptionError(f"{shown} cannot be read as a job's: {one_line(str(fault))[:TEXT_MAX]}") from fault
    return JobsReport(place=shown, taken_at=utc(now_s), jobs=jobs)


# --- verdicts -------------------------------------------------------------------------------------


def judge_job(
    job: JobView, looks: Sequence[JobLook], now_s: float, *, ok_s: float = OK_S, stalled_s: float = STALLED_S
) -> JobVerdict:
    """Return the verdict on a job by its numbers now, and by earlier looks at the job, the oldest first."""
    if job.outcome is not None:
        return JobVerdict(JobState.FAILED if job.failed else JobState.ENDED, job.outcome)
    if job.source == "metrics" and job.told_at is not None and (age_s := now_s - job.told_at.timestamp()) > SILENT_S:
        return JobVerdict(JobState.STOPPED, f"it told its numbers {span_text(age_s)} ago")
    if job.planned_at is not None and (runs_s := now_s - job.planned_at.timestamp()) > stalled_s:
        return JobVerdict(
            JobState.STALLED, f"batch {job.planned} was begun {span_text(runs_s)} ago and is not committed"
        )
    if job.source != "metrics":  # files do not say whether the query runs
        return _by_batches(job, now_s, ok_s=ok_s, stalled_s=stalled_s)
    if job.lag_s is None:
        return JobVerdict(JobState.UNKNOWN, "it has read nothing yet")
    if job.lag_s <= ok_s:
        return JobVerdict(JobState.OK, f"{span_text(job.lag_s)} behind")
    window_s = looks[-1].at_s - looks[0].at_s if looks else 0.0
    if window_s < WINDOW_MIN_S:
        return JobVerdict(JobState.UNKNOWN, "one look does not tell whether it moves")
    if looks[0].batch == looks[-1].batch and window_s >= stalled_s:
        return JobVerdict(JobState.STALLED, f"no batch was committed for {span_text(window_s)} while records wait")
    return _trend([(one.at_s, one.lag_s) for one in looks if one.lag_s is not None], job.lag_s)


def _by_batches(job: JobView, now_s: float, *, ok_s: float, stalled_s: float) -> JobVerdict:
    last = job.recent[-1] if job.recent else None
    if last is None or last.lag_s is None:
        return JobVerdict(JobState.UNKNOWN, "no batch tells how far it is behind")
    if job.told_at is not None and (age_s := now_s - job.told_at.timestamp()) > stalled_s:
        why = f"batch {last.batch} was committed {span_text(age_s)} ago; nothing tells whether records wait since"
        return JobVerdict(JobState.UNKNOWN, why)
    if last.lag_s <= ok_s:
        return JobVerdict(JobState.OK, f"{span_text(last.lag_s)} behind when batch {last.batch} was committed")
    points = [(one.at.timestamp(), one.lag_s) for one in job.recent if one.at is not None and one.lag_s is not None]
    if len(points) < 2:
        return JobVerdict(JobState.UNKNOWN, f"{span_text(last.lag_s)} behind; one batch does not tell whether it moves")
    return _trend(points, last.lag_s)


def _trend(points: Sequence[tuple[float, float]], lag_s: float) -> JobVerdict:
    (begin_s, first), (end_s, last) = points[0], points[-1]
    slope = (last - first) / max(end_s - begin_s, 1.0)
    if abs(slope) < STEADY:
        return JobVerdict(JobState.STEADY, f"it stays {span_text(lag_s)} behind")
    if slope > 0:
        return JobVerdict(JobState.FALLING_BEHIND, f"the lag grows by {slope:.2f} s each second")
    return JobVerdict(JobState.CATCHING_UP, f"at this pace it is at the tip in {span_text(lag_s / -slope)}")


# --- a job's numbers ------------------------------------------------------------------------------

_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)\{(.*)\} (\S+)(?: \d+)?", re.ASCII)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_FIELDS = {
    one.prometheus_name: one.field for one in TABLE if one.of is Reporter.QUERY and one.kind is not Kind.HISTOGRAM
}
_BATCH_S = next(one.prometheus_name for one in TABLE if one.of is Reporter.QUERY and one.kind is Kind.HISTOGRAM)
_MARK = next(one.prometheus_name for one in TABLE if one.of is Reporter.QUERY and one.field == "batches")
"""The number that only queries have: an application without it is a consumer in the same process."""
_NAMES = {**_FIELDS, f"{_BATCH_S}_sum": "sum", f"{_BATCH_S}_count": "count", AGE.prometheus_name: "age"}
_OF_QUERY, _OF_STREAM = prometheus_label(APPLICATION), prometheus_label(STREAM)


def jobs_of_metrics(text: str, place: str, now_s: float) -> Iterator[JobView]:
    """Yield the queries that a page for Prometheus has numbers of."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    queries: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#") or line.partition("{")[0] not in _NAMES:
            continue
        if (match := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = {name: _unescaped(value) for name, value in _LABEL.findall(match[2])}
        query, stream = labels.get(_OF_QUERY), labels.get(_OF_STREAM, "")
        if query is None or (query not in found and len(found) >= QUERIES_MAX):
            continue
        if match[1] == _MARK:
            queries.add(query)
        numbers = found.setdefault(query, {}).setdefault(stream, {})
        numbers[_NAMES[match[1]]] = float(match[3])
    for query in sorted(queries):
        yield _job_of_numbers(query, place, found[query], now_s)


def _job_of_numbers(query: str, place: str, by_stream: Mapping[str, Mapping[str, float]], now_s: float) -> JobView:
    of_query = [numbers for numbers in by_stream.values() if "batches" in numbers]

    def total(name: str) -> int | None:
        known = [number for one in of_query if name in one and (number := _whole(one[name])) is not None]
        return sum(known) if known else None

    age_s = max((one["age"] for one in by_stream.values() if "age" in one), default=None)
    count, spent_s = sum(one.get("count", 0) for one in of_query), sum(one.get("sum", 0) for one in of_query)
    streams = [
        JobStream(
            stream=stream,
            lag_s=numbers.get("lag_s"),
            **{
                name: _whole(numbers[name])
                for name in ("shards", "shards_unread", "shards_silent", "shards_left_out", "possible_losses")
                if name in numbers
            },
        )
        for stream, numbers in sorted(by_stream.items())
        if "batches" in numbers
    ]
    return JobView(
        name=query,
        place=place,
        source="metrics",
        streams=streams,
        batches=total("batches"),
        records=total("records_read"),
        dead_letters=total("records_dead_lettered"),
        duplicates=total("records_duplicate"),
        late=total("records_late"),
        batch_s=spent_s / count if count else None,
        told_at=None if age_s is None or not math.isfinite(age_s) else utc(now_s - age_s),
    )


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def _fetched(url: str) -> str:
    parts, size, end_s = list[bytes](), 0, time.monotonic() + ANSWER_S
    path = url.partition("://")[2].partition("/")[2]
    address = url if path else f"{url.rstrip('/')}/metrics"
    opener = urllib.request.build_opener(NoRedirect, urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=ANSWER_S) as answer:
            while part := answer.read1(65_536):
                parts.append(part)
                size += len(part)
                if size > METRICS_BYTES_MAX or time.monotonic() > end_s:
                    raise ValueError(f"the answer has more than {METRICS_BYTES_MAX} bytes, or takes too long")
    except urllib.error.HTTPError as fault:
        raise ValueError(f"it answers with status {fault.code}") from None
    except urllib.error.URLError as fault:
        raise ValueError(f"it does not answer: {fault.reason}") from None
    return b"".join(parts).decode("utf-8", "replace")


# --- a checkpoint directory -----------------------------------------------------------------------


class _Planned(NamedTuple):
    at_s: float
    offsets: list[StreamOffset]


def job_of_checkpoint(folder: Path) -> JobView:
    """Return what Spark's checkpoint directory says of its query. Raises OSError, and ValueError for a directory that
    is no checkpoint directory.
    """
    offsets, commits = _numbered(folder / "offsets"), _numbered(folder / "commits")
    metadata = folder / "metadata"
    if not metadata.is_file() and not offsets:
        raise ValueError("a directory that is no checkpoint directory of Spark")
    told = msgspec.json.decode(metadata.read_bytes()) if metadata.is_file() else {}
    committed = max((one for one in commits if one in offsets), default=None)
    newest = max(offsets, default=None)
    under_way = newest if newest is not None and (committed is None or newest > committed) else None
    recent: deque[JobBatch] = deque()
    streams: list[JobStream] = []
    read = 0
    for number in sorted(set(offsets) & set(commits), reverse=True)[:BATCHES_MAX]:
        read += offsets[number].stat().st_size
        if read > OFFSETS_BYTES_MAX and recent:
            break
        planned, at_s = _planned(offsets[number]), commits[number].stat().st_mtime
        if not recent:
            streams = [_stream_of(one, at_s) for one in planned.offsets]
        recent.appendleft(
            JobBatch(
                batch=number,
                at=utc(at_s),
                seconds=max(0.0, at_s - planned.at_s),
                lag_s=_longest(_lag_s(one, at_s) for one in planned.offsets),
            )
        )
    return JobView(
        name=folder.resolve().name,
        place=str(folder),
        source="checkpoint",
        streams=streams,
        batch=committed,
        planned=under_way,
        planned_at=None if under_way is None else utc(offsets[under_way].stat().st_mtime),
        batch_s=recent[-1].seconds if recent else None,
        told_at=recent[-1].at if recent else None,
        query_id=str(told["id"]) if isinstance(told, dict) and "id" in told else None,
        recent=list(recent),
    )


def _stream_of(offset: StreamOffset, at_s: float) -> JobStream:
    return JobStream(
        stream=offset.stream_arn.rpartition("/")[2],
        lag_s=_lag_s(offset, at_s),
        shards=len(offset.shards),
        shards_unread=len(offset.unread()),
        possible_losses=offset.losses,
    )


def _lag_s(offset: StreamOffset, at_s: float) -> float | None:
    return max(0.0, at_s - offset.cut_ms / 1000) if offset.cut_ms else None


def _numbered(folder: Path) -> dict[int, Path]:
    """Return the files of batches by the batches' numbers, without compacted and hidden files."""
    if not folder.is_dir():
        return {}
    return {int(one.name): one for one in folder.iterdir() if one.name.isdecimal() and one.name.isascii()}


def _planned(path: Path) -> _Planned:
    """Read a file of the offset log: a line with its version, one with the batch, and one for each source."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) < 2 or lines[0] != "v1":
        raise ValueError(f"offsets/{path.name} is no offset log of version 1")
    told_ms = msgspec.json.decode(lines[1]).get("batchTimestampMs")
    began_s = told_ms / 1000 if isinstance(told_ms, int) and told_ms > 0 else path.stat().st_mtime
    return _Planned(began_s, list(_offsets(lines[2:])))


def _offsets(texts: Iterable[Any]) -> Iterator[StreamOffset]:
    """Yield the offsets of Shardway's source; what another source has written is passed over."""
    for text in texts:
        try:
            value = msgspec.json.decode(text) if isinstance(text, str) else text
            if isinstance(value, dict) and "arn" in value and not is_initial(value):
                yield StreamOffset.from_dict(value)
        except (msgspec.DecodeError, OffsetFormatError):
            continue


# --- a file of lines ------------------------------------------------------------------------------


def job_of_lines(path: Path) -> JobView:
    """Return the job that a file of lines of JSON shows: what a run has printed (``shardway run -o jsonl``), or the
    progress of a query. Raises OSError, and ValueError where no line is either.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        file.seek(max(0, size - LOG_BYTES_MAX))
        lines = file.read(LOG_BYTES_MAX).splitlines()
    if size > LOG_BYTES_MAX:
        lines = lines[1:]  # the first one is only a part of a line
    told = _Lines(path)
    for line in lines:
        try:
            value = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(value, dict):
            told.take(value)
    if not told.any:
        raise ValueError("no line of it is an event of shardway run -o jsonl, or a progress of Spark")
    return told.view()


class _Lines:
    """Puts a job together from its lines. The first line of a new run forgets the run before."""

    def __init__(self, path: Path) -> None:
        self.any = False
        self._at = utc(path.stat().st_mtime)
        self._path = path
        self._begin()

    def _begin(self, name: str | None = None) -> None:
        self._name = name
        self._values: dict[str, Any] = {}
        self._streams: list[JobStream] = []
        self._recent: deque[JobBatch] = deque(maxlen=BATCHES_MAX)
        self._sums: dict[str, Any] = dict.fromkeys(("records", "dead_letters", "duplicates", "late", "batches"), 0)

    def take(self, value: dict[str, Any]) -> None:
        """Take one line."""
        event = value.get("event")
        if event == "checked":
            self._begin(str(value["job"]))
            self.any = True
        elif event == "started":
            self._values |= {"query_id": str(value["query_id"])}
        elif event == "batch":
            self._batch(value)
        elif event == "summary":
            self._end(f"{value['outcome']} after {span_text(float(value['seconds']))}", int(value["exit_code"]))
        elif event == "error":
            self._end(one_line(str(value["message"]))[:TEXT_MAX], int(value["exit_code"]))
        elif "batchId" in value and "sources" in value:
            self._progress(value)

    def _end(self, outcome: str, status: int) -> None:
        self.any = True
        if not self._values.get("failed"):  # the summary of a failed run comes behind its error, which says more
            self._values |= {"outcome": outcome, "failed": status != 0}

    def _batch(self, value: dict[str, Any]) -> None:
        self.any = True
        self._sums["batches"] += 1
        for name, field in (("records", "rows"), ("dead_letters",) * 2, ("duplicates",) * 2, ("late",) * 2):
            self._sums[name] += int(value[field])
        self._streams = [
            JobStream(
                stream=str(stream), lag_s=float(lag_s), shards=int(value["shards"]),
                possible_losses=int(value["possible_losses"]),
            )
            for stream, lag_s in value["lag_s"].items()
        ]  # fmt: skip
        self._recent.append(
            JobBatch(
                batch=int(value["batch"]),
                seconds=float(value["seconds"]),
                records=int(value["rows"]),
                lag_s=_longest(one.lag_s for one in self._streams),
            )
        )

    def _progress(self, value: dict[str, Any]) -> None:
        read: list[tuple[dict[str, Any], StreamOffset]] = []
        for source in value["sources"]:
            found = list(_offsets([source.get("endOffset")])) if isinstance(source, dict) else []
            read += [(source, found[0])] if found else []
        if not read or "addBatch" not in value["durationMs"]:
            return
        self.any = True
        self._name = str(value["name"]) if value.get("name") else self._name
        self._values |= {"query_id": str(value["id"])}
        seconds = int(value["durationMs"].get("triggerExecution", 0)) / 1000
        at_s = dt.datetime.fromisoformat(value["timestamp"]).timestamp() + seconds
        self._streams = [_stream_of(offset, at_s) for _, offset in read]
        records = sum(int(source["numInputRows"]) for source, _ in read)
        self._sums["batches"] += 1
        self._sums["records"] += records
        self._recent.append(
            JobBatch(
                batch=int(value["batchId"]),
                at=utc(at_s),
                seconds=seconds,
                records=records,
                lag_s=_longest(one.lag_s for one in self._streams),
            )
        )

    def view(self) -> JobView:
        """Return the job as all of its lines show it."""
        last = self._recent[-1] if self._recent else None
        return JobView(
            name=self._name or self._path.name,
            place=str(self._path),
            source="lines",
            streams=self._streams,
            batch=None if last is None else last.batch,
            batch_s=None if last is None else last.seconds,
            told_at=self._at if last is None or last.at is None else last.at,
            recent=list(self._recent),
            **self._values,
            **self._sums,
        )
