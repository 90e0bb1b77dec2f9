"""The offset that a batch would end at, and about how large the batch is."""

from __future__ import annotations

from collections.abc import Mapping

from shardway.spark.driver.batch_size import SHARD_ROWS_PER_MS
from shardway.spark.driver.grouping import FULL_RATE_BYTES_PER_MS, ROW_COST_BYTES, tasks_for
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_ends import ShardEnd
from shardway.spark.lookahead.lookahead import Bound
from shardway.spark.lookahead.losses import LossPolicy
from shardway.spark.offsets import RangeStart, StreamOffset
from shardway.spark.positions import Kind, ShardPosition
from shardway.spark.ranges import EndKind

_KINDS = {EndKind.EXCLUSIVE: Kind.NEXT, EndKind.INCLUSIVE: Kind.AFTER, EndKind.SHARD_END: Kind.ENDED}


class OffsetDraft:
    """Writes both ends of every range into an offset. It changes nothing: a plan may draft several before it takes
    one.
    """

    def __init__(self, book: ShardBook, losses: LossPolicy, tasks_max: int) -> None:
        self._book = book
        self._losses = losses
        self._tasks_max = tasks_max

    def offset(self, cut_ms: int, ends: Mapping[str, ShardEnd]) -> StreamOffset:
        """Return the offset that the batch would end at."""
        positions = self._book.positions()
        starts = {}
        for shard_id, end in ends.items():
            first = self._book.states[shard_id].first
            starts[shard_id] = RangeStart(first.sequence_number, first.arrival_ms)
            positions[shard_id] = _position_at(end.bound)
        summary = self._book.summary
        return StreamOffset(
            stream_arn=summary.stream_arn,
            created_s=int(summary.creation_timestamp_s),
            cut_ms=cut_ms,
            shards=positions,
            starts=starts,
            tasks=self.tasks(cut_ms, ends),
            losses=self._losses.count,
        )

    def tasks(self, cut_ms: int, ends: Mapping[str, ShardEnd]) -> int:
        """Return how many tasks the batch is for, by its size; a batch without rows counts as one task."""
        return tasks_for(self._size(cut_ms, ends), max(len(ends), 1), self._tasks_max)

    def _size(self, cut_ms: int, ends: Mapping[str, ShardEnd]) -> float:
        """Return about how large the batch is, by what was sampled: its bytes, and ``ROW_COST_BYTES`` for each row."""
        total = 0.0
        for shard_id, end in ends.items():
            look = self._book.states[shard_id].lookahead
            end_ms = cut_ms if end.bound.kind is EndKind.SHARD_END else end.bound.witness_ms
            span_ms = max(end_ms - look.records[0].arrival_ms, 1)
            full = FULL_RATE_BYTES_PER_MS
            rows, size = look.rate() or (0.0, full)
            total += span_ms * (min(size, full) + min(rows, SHARD_ROWS_PER_MS) * ROW_COST_BYTES)
        return total


def _position_at(bound: Bound) -> ShardPosition:
    return ShardPosition(_KINDS[bound.kind], bound.witness_ms, bound.sequence_number)
