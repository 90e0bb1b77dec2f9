"""Read a job in the file of lines that it wrote."""

from __future__ import annotations

import datetime as dt
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from shardway.inspect.jobs.offsets import offsets_of, stream_of
from shardway.inspect.jobs.views import BATCHES_MAX, JobBatch, JobExpectation, JobStream, JobView, longest
from shardway.inspect.moments import span_text, utc
from shardway.shown import one_line
from shardway.spark.offsets import StreamOffset

LOG_BYTES_MAX = 1024 * 1024
"""The bytes at the end of a file of lines that are read."""
TEXT_MAX = 500
_SUMMED = {
    "rows": "records", "dead_letters": "dead_letters", "duplicates": "duplicates", "late": "late", "dropped": "dropped"
}  # fmt: skip
"""The numbers of a batch that are summed up, and their names in a job."""


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
        self._written_at = utc(path.stat().st_mtime)
        self._path = path
        self._begin()

    def _begin(self, name: str | None = None) -> None:
        self._name = name
        self._values: dict[str, Any] = {}
        self._streams: list[JobStream] = []
        self._recent: deque[JobBatch] = deque(maxlen=BATCHES_MAX)
        self._sums: dict[str, Any] = dict.fromkeys((*_SUMMED.values(), "batches"), 0)
        self._expectations: dict[str, JobExpectation] = {}

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
        for field, name in _SUMMED.items():
            self._sums[name] += int(value[field])
        for name, counts in value["expectations"].items():
            more = JobExpectation(int(counts["met"]), int(counts["not_met"]))
            self._expectations[name] = self._expectations.get(name, JobExpectation()) + more
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
                lag_s=longest(one.lag_s for one in self._streams),
            )
        )

    def _progress(self, value: dict[str, Any]) -> None:
        read: list[tuple[dict[str, Any], StreamOffset]] = []
        for source in value["sources"]:
            found = list(offsets_of([source.get("endOffset")])) if isinstance(source, dict) else []
            read += [(source, found[0])] if found else []
        if not read or "addBatch" not in value["durationMs"]:
            return
        self.any = True
        self._name = str(value["name"]) if value.get("name") else self._name
        self._values |= {"query_id": str(value["id"])}
        seconds = int(value["durationMs"].get("triggerExecution", 0)) / 1000
        at_s = dt.datetime.fromisoformat(value["timestamp"]).timestamp() + seconds
        self._streams = [stream_of(offset, at_s) for _, offset in read]
        records = sum(int(source["numInputRows"]) for source, _ in read)
        self._sums["batches"] += 1
        self._sums["records"] += records
        self._recent.append(
            JobBatch(
                batch=int(value["batchId"]),
                at=utc(at_s),
                seconds=seconds,
                records=records,
                lag_s=longest(one.lag_s for one in self._streams),
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
            told_at=self._written_at if last is None or last.at is None else last.at,
            recent=list(self._recent),
            expectations=dict(self._expectations),
            **self._values,
            **self._sums,
        )
