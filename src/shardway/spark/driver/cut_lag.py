"""A live batch is cut a little behind the service's clock: most shards then have a record behind the cut."""

from __future__ import annotations

CUT_LAG_LEAST_MS = 15
"""A live batch is cut at least so many milliseconds behind the service's clock: less saves nothing that a reader would
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

    def note_batch(self, shards: int, silent: int) -> None:
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
