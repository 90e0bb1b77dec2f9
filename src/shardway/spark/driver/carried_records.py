"""The driver carries a batch's records to the tasks, where few small ones came: it has seen them all when it planned.

A shard takes five GetRecords calls a second from all its readers together. Driver and task share them: a look for the
end of the batch, and a read of the same records. For a slow shard the look may as well bring all of them. They go to
the task inside of its partition, so a batch costs such a shard one call in place of two, and batches may follow each
other sooner.

What a batch holds is said by its offset alone, as ever: nothing carried is stored. A batch that runs again after a
restart is read from the service, and has the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardway.spark.lookahead.lookahead import entry_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.spark.lookahead.lookahead import Bound
    from shardway.spark.ranges import EndKind, ShardRange

SHARD_BYTES_MAX = 256 * 1024
"""The most bytes, about, that are carried for one shard."""
BATCH_BYTES_MAX = 768 * 1024
"""The most bytes, about, that are carried in one batch. Spark warns of a task that is larger than 1,000 KiB."""
SPAN_MS_MAX = 5_000
"""Milliseconds behind the service's clock from which on a shard counts as behind: one look would not bring all."""
PAUSE_S = 10.0
PAUSE_S_MAX = 300.0
"""A shard gets small looks for so many seconds after a look that did not bring all of it: twice as many each time."""


def shard_bytes_max(shards: int) -> int:
    """Return how many bytes may be kept for each of so many shards."""
    return min(SHARD_BYTES_MAX, BATCH_BYTES_MAX // max(shards, 1))


@dataclass(slots=True)
class Attempts:
    """Decides whether a look is to bring all that is new in one shard. ``now_s`` is monotonic."""

    asked_all: bool = False
    """True where the newest look asked for all."""
    next_s: float = 0.0
    pause_s: float = 0.0

    def may(self, now_s: float) -> bool:
        """True when it is time to ask for all."""
        return now_s >= self.next_s

    def note_failure(self, now_s: float) -> None:
        """Take note that the shard had more than one look brought."""
        self.pause_s = min(max(PAUSE_S, 2 * self.pause_s), PAUSE_S_MAX)
        self.next_s = now_s + self.pause_s

    def note_success(self) -> None:
        """Take note that a batch was carried."""
        self.pause_s = 0.0


@dataclass(frozen=True, slots=True)
class _Load:
    first_sequence_number: int
    end_kind: EndKind
    end_sequence_number: int | None
    entries: tuple[WireRecord, ...]


class CarriedRecords:
    """Keeps the records of one batch that its tasks need not read, by range: at most ``BATCH_BYTES_MAX``."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._loads: dict[str, _Load] = {}

    def add(self, shard_id: str, first: int, bound: Bound, entries: tuple[WireRecord, ...]) -> bool:
        """Keep the records of a shard's range, from the sequence number ``first`` to the bound. Return False where they
        are too many.
        """
        size = sum(map(entry_bytes, entries))
        if self.held_bytes + size > BATCH_BYTES_MAX:
            return False
        self.held_bytes += size
        self._loads[shard_id] = _Load(first, bound.kind, bound.sequence_number, entries)
        return True

    def for_ranges(self, ranges: tuple[ShardRange, ...]) -> Mapping[str, tuple[WireRecord, ...]]:
        """Return the records of those of these ranges that are kept, by shard: only of the very same ranges."""
        return {one.shard_id: self._loads[one.shard_id].entries for one in ranges if self._has(one)}

    def _has(self, one: ShardRange) -> bool:
        load = self._loads.get(one.shard_id)
        return (
            load is not None
            and not one.at_risk  # what may be trimmed is judged by what the service still has
            and one.first_sequence_number == load.first_sequence_number
            and one.end_kind is load.end_kind
            and one.end_sequence_number == load.end_sequence_number
        )
