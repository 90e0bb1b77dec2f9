"""The cut of all shards waits for those whose next record is still searched for over a silence.

A shard that is silent for a night answers with empty pages, one after the other. As long as it comes nearer to the
tip, no batch is cut behind the place it has reached: its rows would come hours after those of the others, and a
watermark would take them for late. The wait is bounded: a shard that stands still, or takes very long, is left out
of the cut until its next record is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


STANDING_S = 60.0
"""Seconds after which a shard that has come no further, in several looks, is not waited for."""
STANDING_LOOKS_MIN = 3
"""The least number of looks without any progress: a batch may lie between two, however long it takes."""
WAIT_MAX_S = 900.0
"""Seconds after which the others do not wait for a shard any more, even where it comes further."""


class WaitedShards(NamedTuple):
    """The shards that the cut waits for now."""

    until_ms: int | None
    """How far the slowest of these shards has come, in epoch milliseconds of the service; None where the cut waits for
    none.
    """
    shards: tuple[str, ...]
    left_out: tuple[str, ...]
    """Shards that cross a silence too, but that the cut does not wait for any more."""


class _Wait(NamedTuple):
    reached_ms: int
    since_s: float
    moved_s: float
    standing_looks: int


class CutWait:
    """Decides which shards the cut waits for. After each round of looks it learns how far the shards have come that
    cross a silence.
    """

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}
        self.now = WaitedShards(None, (), ())

    def note_looks(self, crossing: Mapping[str, int], now_s: float) -> WaitedShards:
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
