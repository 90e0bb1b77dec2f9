"""How often the driver looks: at each of Spark's calls while there is data, within a limit, and seldom while there is
none.

Spark asks at its trigger's times, and an idle query without one some 70 times a second. Its times are a little early or
late, so an interval is kept on average: one look may come a little sooner, and moves the next one back by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

BUSY_INTERVAL_S = 0.5
"""Between two batches while there is data. A batch costs a shard up to two of the five GetRecords calls that all its
readers have together each second: one of the driver, one of a task."""
EARLY_SHARE = 0.2
"""By so much of the interval a look may come too early: a trigger of one second does not fire to the millisecond."""


@dataclass(slots=True)
class Pace:
    """When something is to be looked at again. ``now_s`` is any clock that does not go back."""

    next_s: float = 0.0
    early_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """True when it is time."""
        return now_s >= self.next_s - self.early_s

    def looked(self, now_s: float, interval_s: float) -> None:
        """It was looked at; the next time comes an interval later."""
        self.next_s = max(self.next_s, now_s) + interval_s
        self.early_s = EARLY_SHARE * interval_s


CUT_LAG_LEAST_MS = 50
"""A live batch is cut at least so far behind the service's clock: less saves nothing that a reader would notice."""
SILENT_SHARE = 0.1
"""Of a batch's shards at most this part may be found silent at a cut that comes nearer."""


class CutLag:
    """How far behind the service's clock a live batch is cut: near where shards are busy, else up to ``most_ms``.

    A shard that has a record behind the cut is cheap: that record is the end. For one that has none the driver looks
    for its last record. So the cut comes nearer, by half each time, while nearly all shards have one, and goes back
    at once when they do not.
    """

    def __init__(self, most_ms: int) -> None:
        self.ms = most_ms
        self._most_ms = most_ms

    def found(self, shards: int, silent: int) -> None:
        """Of the shards of a batch, so many had no record behind its cut."""
        if silent > shards * SILENT_SHARE:
            self.ms = self._most_ms
        elif shards:
            self.ms = max(self.ms // 2, min(CUT_LAG_LEAST_MS, self._most_ms))
