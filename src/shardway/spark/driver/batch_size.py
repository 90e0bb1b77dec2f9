"""How much a batch takes is decided by the time at which it is cut, which is the same for all shards.

Cutting every shard at one time keeps a replayed backlog in step, so that Spark's event-time watermark does not run
ahead of a shard that is read more slowly. No count of rows comes back from the tasks, so the number of rows before a
time is estimated from samples: exact for the records that were seen, at the sampled rate beyond them.

What was not seen may be anything that the service lets be written: a burst behind a quiet stretch is in no sample of
that stretch. So a batch reaches beyond the samples only as far as it keeps within ``WORST`` times its caps at the
fastest that shards can be written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from shardway.spark.lookahead.lookahead import Lookahead, Tail

if TYPE_CHECKING:
    from shardway.spark.options.caps import Caps

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

    def expected_size(self, cut_ms: int, after: tuple[float, float] | None = None) -> tuple[float, float]:
        """Return (rows, bytes) before the cut: at the sampled rate beyond what was seen, or at the mean of it and
        ``after``.
        """
        rows, size = self._sums_before(cut_ms)
        if self._open and cut_ms > self._last_ms:
            rates = [rate for rate in (self._rate, after) if rate] or [(SHARD_ROWS_PER_MS, SHARD_BYTES_PER_MS)]
            span_ms = cut_ms - self._last_ms
            rows += span_ms * sum(rate[0] for rate in rates) / len(rates)
            size += span_ms * sum(rate[1] for rate in rates) / len(rates)
        return rows, size

    def worst_size(self, cut_ms: int) -> tuple[float, float]:
        """Return the most (rows, bytes) before the cut: beyond what was seen, all that a shard can be written in that
        time.

        Where aggregates were seen, all of it is taken for aggregates with as many rows a byte.
        """
        rows, size = self._sums_before(cut_ms)
        if self._open and cut_ms > self._last_ms:
            span_ms = cut_ms - self._last_ms + BURST_MS
            rows, size = rows + span_ms * self._rows_per_ms_max, size + span_ms * SHARD_BYTES_PER_MS
        return rows, size

    def _sums_before(self, cut_ms: int) -> tuple[float, float]:
        count = bisect_left(self._times, cut_ms)
        return float(self._rows[count]), float(self._sizes[count])


def expected_size(lookahead: Lookahead, cut_ms: int, after: Lookahead | None = None) -> tuple[float, float]:
    """Return the (rows, bytes) that one shard is expected to hold before the cut.

    ``after`` is what was sampled at the cut, if anything was: then the stretch between has the mean of both rates.
    """
    return Profile(lookahead).expected_size(cut_ms, after.rate() if after else None)


def total_share(caps: Caps, estimates: Sequence[tuple[float, float]]) -> float:
    """Return how much of the caps all shards together are expected to take."""
    return caps.share(sum(rows for rows, _ in estimates), sum(size for _, size in estimates))


def latest_cut_within(caps: Caps, lookaheads: Sequence[Lookahead], earliest_ms: int, latest_ms: int) -> int:
    """Return the latest cut at which the shards are expected to keep within the caps; at least ``earliest_ms``."""
    profiles = [Profile(one) for one in lookaheads]
    return _latest(
        lambda cut_ms: total_share(caps, [one.expected_size(cut_ms) for one in profiles]) <= 1.0, earliest_ms, latest_ms
    )


def latest_sure_cut(caps: Caps, lookaheads: Sequence[Lookahead], earliest_ms: int, latest_ms: int) -> int:
    """Return the latest cut at which the shards surely keep within ``WORST`` times the caps, or ``earliest_ms``."""
    profiles = [Profile(one) for one in lookaheads]
    return _latest(
        lambda cut_ms: total_share(caps, [one.worst_size(cut_ms) for one in profiles]) <= WORST, earliest_ms, latest_ms
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
