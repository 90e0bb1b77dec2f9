"""A request: one PutRecords call, made of loads. A load is what one shard gets of it, with a fate of its own."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeAlias

from shardway.core.producer.run import Run, pick_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardway.core.producer.lane import Lane


MakeEntry: TypeAlias = "Callable[[bytes, str, str | None], Any]"
"""A function of data, partition key, and explicit hash key in decimal or None, which returns an entry as the sink takes
it.
"""


class Failure(enum.Enum):
    """The reasons why a whole request failed, as far as they matter for what is done about it."""

    THROTTLED = "throttled"
    """The service refused the request for now; nothing was written."""
    NOT_SENT = "not sent"
    """The request never reached the service; nothing was written."""
    UNKNOWN = "unknown"
    """The request may have been written, or some of it: no whole answer came, or a 5xx."""
    INVALID = "invalid"
    """Something in the request is wrong, and it will be wrong again."""
    DENIED = "denied"
    """There is no such stream, no permission, or no credentials: a person has to mend that."""


class Load:
    """Entries for one shard: one aggregate with many user records, or user records each as an entry of its own."""

    __slots__ = (
        "alone",
        "attempts",
        "data_bytes",
        "doubtful",
        "entries",
        "is_aggregate",
        "lane",
        "not_before_s",
        "payload_bytes",
        "reason",
        "runs",
        "user_records",
    )

    def __init__(
        self,
        lane: Lane,
        runs: list[Run],
        entries: list[Any],
        payload_bytes: int,
        *,
        is_aggregate: bool,
        data_bytes: int = 0,
    ) -> None:
        self.lane = lane
        self.runs = runs
        self.entries = entries
        self.payload_bytes = payload_bytes
        """The bytes of data and partition keys of the entries, as the service counts them."""
        self.data_bytes = data_bytes
        """The data bytes of an aggregate's user records."""
        self.is_aggregate = is_aggregate
        """True if the one entry stands for all user records."""
        self.user_records = sum(map(len, runs))
        self.attempts = 0
        self.doubtful = False
        self.not_before_s = 0.0
        """The time before which the load is not sent again."""
        self.alone = False
        """True if the load has to be a request of its own, because it may be what spoilt one."""
        self.reason = ""
        """The reason why the last attempt failed."""

    def history_of(self, run: Run) -> tuple[int, bool]:
        """Return how many requests carried one of the load's runs in all, and whether one of them may have
        written it.
        """
        return run.attempts + self.attempts, run.doubtful or self.doubtful

    def as_runs(self) -> Iterator[Run]:
        """Iterate over the load's records as runs that remember what they went through."""
        for run in self.runs:
            attempts, doubtful = self.history_of(run)
            again = run.next(len(run))
            again.attempts, again.doubtful, again.reason = attempts, doubtful, self.reason
            yield again

    def pick(self, places: Sequence[int]) -> list[Run]:
        """Return the user records at these places (rising), as runs again."""
        return pick_records(self.runs, places)

    def part(self, runs: list[Run], entries: list[Any]) -> Load:
        """Return some records of the load, each an entry, as a load that went through the same."""
        payload_bytes = sum(run.payload_bytes() for run in runs)
        part = Load(self.lane, runs, entries, payload_bytes, is_aggregate=False)
        part.attempts, part.doubtful = self.attempts, self.doubtful
        part.not_before_s, part.alone, part.reason = self.not_before_s, self.alone, self.reason
        return part

    def halves(self) -> list[Load]:
        """Return the load, which has several entries, as two."""
        middle = self.user_records // 2
        both = (range(middle), range(middle, self.user_records))
        return [self.part(self.pick(places), self.entries[places.start : places.stop]) for places in both]


class Request:
    """One PutRecords call."""

    __slots__ = ("entries", "loads", "payload_bytes", "sent_at_s", "user_records")

    def __init__(self, sent_at_s: float) -> None:
        self.loads: list[Load] = []
        self.entries: list[Any] = []
        self.payload_bytes = 0
        self.user_records = 0
        self.sent_at_s = sent_at_s

    def add(self, load: Load) -> None:
        """Put a load in."""
        self.loads.append(load)
        self.entries += load.entries
        self.payload_bytes += load.payload_bytes
        self.user_records += load.user_records
        load.attempts += 1


def note_history(load: Load, *runs: Run) -> None:
    """Note in runs of a load what it went through, before it is taken apart."""
    for run in runs:
        run.attempts += load.attempts
        run.doubtful = run.doubtful or load.doubtful
        run.reason = load.reason
