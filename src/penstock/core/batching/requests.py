"""What is sent: a request is made of loads, each for one shard and with a fate of its own."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.core.batching.lane import Lane
    from penstock.core.batching.runs import Run


class Failure(enum.Enum):
    """Why a whole request failed, as far as it matters for what is done about it."""

    THROTTLED = "throttled"
    """Refused for now; nothing was written."""
    NOT_SENT = "not sent"
    """It never reached the service; nothing was written."""
    UNKNOWN = "unknown"
    """It may have been written, or some of it: no whole answer came, or a 5xx."""
    INVALID = "invalid"
    """Something in it is wrong, and it will be wrong again."""
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
        """Data and partition keys of the entries, as the service counts them."""
        self.data_bytes = data_bytes
        """Of an aggregate: the data of its user records."""
        self.is_aggregate = is_aggregate
        """True if the one entry stands for all user records."""
        self.user_records = sum(map(len, runs))
        self.attempts = 0
        self.doubtful = False
        self.not_before_s = 0.0
        """When it may be sent again."""
        self.alone = False
        """True if it has to be a request of its own, because it may be what spoilt one."""
        self.reason = ""
        """What the last attempt met."""

    def history_of(self, run: Run) -> tuple[int, bool]:
        """Of one of its runs: the requests that carried it in all, and whether one of them may have written it."""
        return run.attempts + self.attempts, run.doubtful or self.doubtful

    def as_runs(self) -> Iterator[Run]:
        """Its records as runs that remember what they went through."""
        for run in self.runs:
            attempts, doubtful = self.history_of(run)
            again = run.next(len(run))
            again.attempts, again.doubtful, again.reason = attempts, doubtful, self.reason
            yield again

    def chosen(self, places: Sequence[int]) -> list[Run]:
        """The user records at these places (rising), as runs again."""
        return chosen_runs(self.runs, places)


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


def chosen_runs(runs: Iterable[Run], places: Sequence[int]) -> list[Run]:
    """The user records at these places (rising) of runs that nothing was taken off, as runs again."""
    chosen, start, position = [], 0, 0
    for run in runs:
        stop = start + len(run.keys)
        ours = []
        while position < len(places) and places[position] < stop:
            ours.append(places[position] - start)
            position += 1
        if ours:
            chosen.append(run.only(ours))
        start = stop
    return chosen
