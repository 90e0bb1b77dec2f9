"""Values of a look at jobs of Spark."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


BATCHES_MAX = 100
"""The batches of a job that are shown: Spark keeps as many in a checkpoint directory."""


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
    """Shards whose position the query keeps."""
    shards_unread: int | None = None
    shards_silent: int | None = None
    """Shards that cross a silence, for which the cut of all shards waits."""
    shards_left_out: int | None = None
    possible_losses: int | None = None
    """Possible losses that were passed over since the checkpoint directory was made."""


class JobExpectation(msgspec.Struct, frozen=True):
    """How many rows met an expectation of a job, and how many did not, in this run."""

    met: int = 0
    not_met: int = 0

    def __add__(self, other: JobExpectation) -> JobExpectation:
        return JobExpectation(self.met + other.met, self.not_met + other.not_met)


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
    dropped: int | None = None
    """Rows that did not meet an expectation with the action *drop*."""
    expectations: dict[str, JobExpectation] = {}
    """The counts of each expectation, by its name."""
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
        return longest(one.lag_s for one in self.streams)


def longest(lags_s: Iterable[float | None]) -> float | None:
    """Return the longest of the lags that are known."""
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
