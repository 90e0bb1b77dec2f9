"""Choose the cut of a batch: how much it takes, for which shards it waits, and how often the driver looks for one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from shardway.spark.lookahead import Lookahead, Tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.spark.options import Caps

# --- how much a batch takes -----------------------------------------------------------------------
# How much a batch takes is decided by the time at which it is cut, which is the same for all shards.
#
# Cutting every shard at one time keeps a replayed backlog in step, so that Spark's event-time watermark does not run
# ahead of a shard that is read more slowly. No count of rows comes back from the tasks, so the number of rows before a
# time is estimated from samples: exact for the records that were seen, at the sampled rate beyond them.
#
# What was not seen may be anything that the service lets be written: a burst behind a quiet stretch is in no sample of
# that stretch. So a batch reaches beyond the samples only as far as it keeps within ``WORST`` times its caps at the
# fastest that shards can be written.

SHARD_ROWS_PER_MS = 1.0
SHARD_BYTES_PER_MS = 1024 * 1024 / 1000
"""The fastest that a shard can be written (1,000 records and 1 MiB a second): assumed where nothing better is known."""

BURST_MS = 1000
"""Milliseconds whose writes may come in one moment: those that a shard takes in a second."""
WORST = 3.0
"""The multiple of its cap that a batch never exceeds, however unevenly the shards were written."""

OVERSHOOT = 1.25
"""The part of its cap above which an estimated batch is cut again, earlier."""
UNDERSHOOT = 0.5
"""The part of its cap below which an estimated batch is cut again, later."""


class Profile:
    """Estimates a shard by what was seen of it: how much lies before a cut, and what may lie beyond the samples."""

    __slots__ = ("_last_ms", "_open", "_rate", "_rows", "_rows_per_ms_max", "_sizes", "_times")

    def __init__(self, lookahead: Lookahead) -> None:
        seen = sorted(lookahead.records, key=lambda one: one.arrival_ms)
        self._times = [one.arrival_ms for one in seen]
        self._rows = list(accumulate((one.rows for one in seen), initial=0))
        self._sizes = list(accumulate((one.size for one in seen), initial=0))
        # Nothing came in a silence that is crossed.
        self._last_ms = max(self._times[-1], lookahead.reached_ms) if seen else 0
        self._open = bool(seen) and lookahead.beyond is Tail.UNKNOWN
        self._rate = lookahead.rate()
        rows, size = self._rows[-1], self._sizes[-1]
        aggregated = rows > len(seen)
        self._rows_per_ms_max = max(SHARD_ROWS_PER_MS, SHARD_BYTES_PER_MS * rows / max(size, 1) if aggregated else 0.0)

    def expected(self, cut_ms: int, after: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return (rows, bytes) before the cut: at the sampled rate beyond what was seen, or at the mean of it and
        ``after``.
        """
        rows, size = self._before(cut_ms)
        if self._open and cut_ms > self._last_ms:
            rates = [rate for rate in (self._rate, after) if rate] or [(SHARD_ROWS_PER_MS, SHARD_BYTES_PER_MS)]
            span_ms = cut_ms - self._last_ms
            rows += span_ms * sum(rate[0] for rate in rates) / len(rates)
            size += span_ms * sum(rate[1] for rate in rates) / len(rates)
        return rows, size

    def worst(self, cut_ms: int) -> tuple[float, float]:
        """Return the most (rows, bytes) before the cut: beyond what was seen, all that a shard can be written in that
        time.

        Where aggregates were seen, all of it is taken for aggregates with as many rows a byte.
        """
        rows, size = self._before(cut_ms)
        if self._open and cut_ms > self._last_ms:
            span_ms = cut_ms - self._last_ms + BURST_MS
            rows, size = rows + span_ms * self._rows_per_ms_max, size + span_ms * SHARD_BYTES_PER_MS
        return rows, size

    def _before(self, cut_ms: int) -> tuple[float, float]:
        count = bisect_left(self._times, cut_ms)
        return float(self._rows[count]), float(self._sizes[count])


def expected(lookahead: Lookahead, cut_ms: int, after: Lookahead | None = None) -> tuple[float, float]:
    """Return the (rows, bytes) that one shard is expected to hold before the cut.

    ``after`` is what was sampled at the cut, if anything was: then the stretch between has the mean of both rates.
    """
    return Profile(lookahead).expected(cut_ms, after.rate() if after else None)


def total_share(caps: Caps, estimates: Sequence[tuple[float, float]]) -> float:
    """Return how much of the caps all shards together are expected to take."""
    return caps.share(sum(rows for rows, _ in estimates), sum(size for _, size in estimates))


def latest_cut_within(caps: Caps, lookaheads: Sequence[Lookahead], earliest_ms: int, latest_ms: int) -> int:
    """Return the latest cut at which the shards are expected to keep within the caps; at least ``earliest_ms``."""
    profiles = [Profile(one) for one in lookaheads]
    return _latest(
        lambda cut_ms: total_share(caps, [one.expected(cut_ms) for one in profiles]) <= 1.0, earliest_ms, latest_ms
    )


def latest_sure_cut(caps: Caps, lookaheads: Sequence[Lookahead], earliest_ms: int, latest_ms: int) -> int:
    """Return the latest cut at which the shards surely keep within ``WORST`` times the caps, or ``earliest_ms``."""
    profiles = [Profile(one) for one in lookaheads]
    return _latest(
        lambda cut_ms: total_share(caps, [one.worst(cut_ms) for one in profiles]) <= WORST, earliest_ms, latest_ms
    )


def _latest(fits: Callable[[int], bool], low_ms: int, high_ms: int) -> int:
    if high_ms <= low_ms or fits(high_ms):
        return max(low_ms, high_ms)
    while high_ms - low_ms > 1:
        middle = (low_ms + high_ms) // 2
        if fits(middle):
            low_ms = middle
        else:
            high_ms = middle
    return low_ms


class CutSearch:
    """Corrects a cut by what was sampled at it: later when the batch would be small, earlier when it would be large.

    Feed it each cut that was probed with its estimated share of the caps; it answers with the next cut to try, or None
    when the cut is good enough or the tries are used up.
    """

    TRIES_MAX = 4

    def __init__(self, earliest_ms: int, latest_ms: int) -> None:
        self._low_ms = earliest_ms
        self._high_ms = latest_ms
        self._start_ms = earliest_ms
        self._tries = 0

    def keep_below(self, sure_ms: int) -> None:
        """Try no later cut than ``sure_ms``."""
        self._high_ms = min(self._high_ms, sure_ms)

    def next_cut(self, cut_ms: int, share: float, next_ms: int) -> int | None:
        """Return the cut to probe instead, or None to take this one.

        ``next_ms``: the earliest record that was found behind the cut; until there, no later cut takes more.
        """
        self._tries += 1
        if self._tries >= self.TRIES_MAX or UNDERSHOOT <= share <= OVERSHOOT:
            return None
        if share > OVERSHOOT:
            self._high_ms = min(self._high_ms, cut_ms)
        else:
            self._low_ms = max(self._low_ms, cut_ms)
        span_ms = max(cut_ms - self._start_ms, 1)
        wanted = self._start_ms + int(span_ms * min(4.0, 0.9 / max(share, 0.05)))
        if share < UNDERSHOOT:
            wanted = max(wanted, next_ms + 1)
        wanted = max(self._low_ms, min(wanted, self._high_ms))
        return wanted if wanted != cut_ms and wanted > self._start_ms else None


# --- shards that the cut waits for ----------------------------------------------------------------
# The cut of all shards waits for those whose next record is still searched for over a silence.
#
# A shard that is silent for a night answers with empty pages, one after the other. As long as it comes nearer to the
# tip, no batch is cut behind the place it has reached: its rows would come hours after those of the others, and a
# watermark would take them for late. The wait is bounded: a shard that stands still, or takes very long, is left out
# of the cut until its next record is found.

STANDING_S = 60.0
"""Seconds after which a shard that has come no further, in several looks, is not waited for."""
STANDING_LOOKS_MIN = 3
"""The least number of looks without any progress: a batch may lie between two, however long it takes."""
WAIT_MAX_S = 900.0
"""Seconds after which the others do not wait for a shard any more, even where it comes further."""


class WaitedShards(NamedTuple):
    """The shards for which the cut waits now."""

    until_ms: int | None
    """How far the slowest of these shards has come, in epoch milliseconds of the service; None where the cut waits for
    none.
    """
    shards: tuple[str, ...]
    left_out: tuple[str, ...]
    """Shards that cross a silence too, but for which the cut does not wait any more."""


class _Wait(NamedTuple):
    reached_ms: int
    since_s: float
    moved_s: float
    standing_looks: int


class CutWait:
    """Decides for which shards the cut waits. It is told after each round of looks where those are that cross a
    silence.
    """

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}
        self.now = WaitedShards(None, (), ())

    def looked(self, crossing: Mapping[str, int], now_s: float) -> WaitedShards:
        """Take in a round of looks. ``crossing``: the time (milliseconds) that each shard has reached; ``now_s`` is
        monotonic.
        """
        self._waits = {one: self._wait(one, reached_ms, now_s) for one, reached_ms in sorted(crossing.items())}
        out = tuple(one for one, wait in self._waits.items() if _is_left_out(wait, now_s))
        waited = tuple(one for one in self._waits if one not in out)
        until_ms = min((self._waits[one].reached_ms for one in waited), default=None)
        self.now = WaitedShards(until_ms, waited, out)
        return self.now

    def stands(self, shard_id: str, now_s: float) -> bool:
        """True when the shard has come no further for so long that it is not waited for."""
        wait = self._waits.get(shard_id)
        return wait is not None and _stands(wait, now_s)

    def _wait(self, shard_id: str, reached_ms: int, now_s: float) -> _Wait:
        before = self._waits.get(shard_id)
        if before is None:
            return _Wait(reached_ms, now_s, now_s, 0)
        if reached_ms > before.reached_ms:
            return _Wait(reached_ms, before.since_s, now_s, 0)
        return before._replace(standing_looks=before.standing_looks + 1)


def _stands(wait: _Wait, now_s: float) -> bool:
    return wait.standing_looks >= STANDING_LOOKS_MIN and now_s - wait.moved_s >= STANDING_S


def _is_left_out(wait: _Wait, now_s: float) -> bool:
    return _stands(wait, now_s) or now_s - wait.since_s >= WAIT_MAX_S


# --- how often the driver looks -------------------------------------------------------------------
# The driver looks at each of Spark's calls while there is data, within a limit, and seldom while there is none.
#
# Spark asks at its trigger's times, and an idle query without one some 70 times a second. Its times are a little early
# or late, so an interval is kept on average: one look may come a little sooner, and moves the next one back by
# nothing.

BUSY_INTERVAL_S = 0.5
"""Seconds between two batches while there is data. A batch costs a shard up to two of the five GetRecords calls that
all its readers have together each second: one of the driver, one of a task."""
CARRIED_INTERVAL_S = 0.3
"""Seconds between two batches whose records came with the driver's looks: such a batch costs a shard one call."""
EARLY_SHARE = 0.2
"""The part of the interval by which a look may come too early: a trigger does not fire to the millisecond."""


@dataclass(slots=True)
class Pace:
    """Says when something is to be looked at again. ``now_s`` is any clock that does not go back."""

    next_s: float = 0.0
    early_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """True when it is time."""
        return now_s >= self.next_s - self.early_s

    def looked(self, now_s: float, interval_s: float) -> None:
        """Take note of a look; the next one comes an interval later."""
        self.next_s = max(self.next_s, now_s) + interval_s
        self.early_s = EARLY_SHARE * interval_s


CUT_LAG_LEAST_MS = 15
"""Milliseconds by which a live batch is cut behind the service's clock at least: less saves nothing that a reader would
notice.
"""
SILENT_SHARE = 0.1
"""The largest part of a batch's shards that may be found silent at a cut that comes nearer."""
TOO_NEAR_BATCHES = 600
"""Batches for which the cut stays away from where shards were found silent: five minutes without a trigger. A cut that
came as near again at once would find them silent again, for as long as their writers make the same pauses.
"""


class CutLag:
    """Decides how far behind the service's clock a live batch is cut: near it where shards are busy, else up to
    ``most_ms``.

    A shard that has a record behind the cut is cheap: that record is the end. For one that has none the driver looks
    for its last record. So the cut comes nearer, by half each time, while nearly all shards have one. When they do
    not, it goes four times as far back, and for a while comes no nearer than twice the lag that was too little.
    """

    def __init__(self, most_ms: int) -> None:
        self.ms = most_ms
        self._most_ms = most_ms
        self._least_ms = min(CUT_LAG_LEAST_MS, most_ms)
        self._kept_batches = 0

    def found(self, shards: int, silent: int) -> None:
        """Take note of a batch: of its ``shards``, ``silent`` had no record behind its cut."""
        if silent > shards * SILENT_SHARE:
            self._least_ms = min(2 * self.ms, self._most_ms)
            self._kept_batches = TOO_NEAR_BATCHES
            self.ms = min(4 * self.ms, self._most_ms)
        elif shards:
            if self._kept_batches:
                self._kept_batches -= 1
            elif self.ms == self._least_ms:
                self._least_ms = max(self._least_ms // 2, min(CUT_LAG_LEAST_MS, self._most_ms))
            self.ms = max(self.ms // 2, self._least_ms)
