"""Read a job in the Spark checkpoint directory of its query."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.inspect.jobs.offsets import lag_of, offsets_of, stream_of
from shardway.inspect.jobs.views import BATCHES_MAX, JobBatch, JobView, longest
from shardway.inspect.moments import utc
from shardway.spark.offsets import StreamOffset

if TYPE_CHECKING:
    from shardway.inspect.jobs.views import JobStream


OFFSETS_BYTES_MAX = 8 * 1024 * 1024
"""The bytes of the offsets in a checkpoint directory that one look reads."""


class _BatchPlan(NamedTuple):
    at_s: float
    offsets: list[StreamOffset]


def job_of_checkpoint(folder: Path) -> JobView:
    """Return what Spark's checkpoint directory says of its query. Raises OSError, and ValueError for a directory that
    is no checkpoint directory.
    """
    offsets, commits = _batch_files(folder / "offsets"), _batch_files(folder / "commits")
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
        planned, at_s = _read_plan(offsets[number]), commits[number].stat().st_mtime
        if not recent:
            streams = [stream_of(one, at_s) for one in planned.offsets]
        recent.appendleft(
            JobBatch(
                batch=number,
                at=utc(at_s),
                seconds=max(0.0, at_s - planned.at_s),
                lag_s=longest(lag_of(one, at_s) for one in planned.offsets),
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


def _batch_files(folder: Path) -> dict[int, Path]:
    """Return the files of batches by the batches' numbers, without compacted and hidden files."""
    if not folder.is_dir():
        return {}
    return {int(one.name): one for one in folder.iterdir() if one.name.isdecimal() and one.name.isascii()}


def _read_plan(path: Path) -> _BatchPlan:
    """Read a file of the offset log: a line with its version, one with the batch, and one for each source."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) < 2 or lines[0] != "v1":
        raise ValueError(f"offsets/{path.name} is no offset log of version 1")
    told_ms = msgspec.json.decode(lines[1]).get("batchTimestampMs")
    began_s = told_ms / 1000 if isinstance(told_ms, int) and told_ms > 0 else path.stat().st_mtime
    return _BatchPlan(began_s, list(offsets_of(lines[2:])))
