"""The driver looks at each of Spark's calls while there is data, within a limit, and seldom while there is none.

Spark asks at its trigger's times, and an idle query without one some 70 times a second. Its times are a little early
or late, so an interval is kept on average: a look may come a little early, and the one after it does not come
earlier for that.
"""

from __future__ import annotations

from dataclasses import dataclass

BUSY_INTERVAL_S = 0.5
"""Seconds between two batches while there is data. A batch costs a shard up to two of the five GetRecords calls that
all its readers have together each second: one of the driver, one of a task."""
CARRIED_INTERVAL_S = 0.3
"""Seconds between two batches whose records came with the driver's looks: such a batch costs a shard one call."""
EARLY_SHARE = 0.2
"""How much too early a look may come, as a part of the interval: a trigger does not fire to the millisecond."""


@dataclass(slots=True)
class Pace:
    """Says when something is to be looked at again. ``now_s`` is any clock that does not go back."""

    next_s: float = 0.0
    early_s: float = 0.0

    def due(self, now_s: float) -> bool:
        """True when it is time."""
        return now_s >= self.next_s - self.early_s

    def note_look(self, now_s: float, interval_s: float) -> None:
        """Take note of a look; the next one comes an interval later."""
        self.next_s = max(self.next_s, now_s) + interval_s
        self.early_s = EARLY_SHARE * interval_s
