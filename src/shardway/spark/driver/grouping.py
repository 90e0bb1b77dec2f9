"""Group the ranges of a batch into Spark partitions: parents before children, in few tasks of about the same size.

A Python task costs 50–130 ms of core time, so ranges are gathered by size. Ranges of parents and children that are in
the same batch form a *chain* and stay in one task, in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from shardway.core.lineage import Lineage
from shardway.model import ListedShard
from shardway.spark.offsets import StreamOffset
from shardway.spark.positions import Kind
from shardway.spark.ranges import Chain, EndKind, ShardRange

TASK_BYTES = 16 * 2**20
"""About how many bytes one task reads."""
ROW_COST_BYTES = 200
"""The cost of a row for a task beside its data, in bytes: small records are many."""
RANGE_BYTES_MAX = 64 * 2**20
"""The most bytes that a range of unknown size counts for: it is assumed to be written at 1 MiB/s."""
FULL_RATE_BYTES_PER_MS = 2**20 / 1000

_END_KIND = {Kind.NEXT: EndKind.EXCLUSIVE, Kind.AFTER: EndKind.INCLUSIVE, Kind.ENDED: EndKind.SHARD_END}


def ranges_of(
    offset: StreamOffset, shards: Mapping[str, ListedShard], *, at_risk_before_ms: int = 0
) -> list[ShardRange]:
    """Return the ranges of the batch that ends at this offset, in the order of shard ids (parents have lower ones)."""
    ranges = []
    for shard_id in sorted(offset.starts):
        start, position, shard = offset.starts[shard_id], offset.shards[shard_id], shards.get(shard_id)
        ranges.append(
            ShardRange(
                shard_id=shard_id,
                first_sequence_number=start.sequence_number,
                first_arrival_s=start.arrival_ms // 1000,
                end_kind=_END_KIND[position.kind],
                end_sequence_number=None if position.kind is Kind.ENDED else position.sequence_number,
                hash_range=(shard.first_hash_key, shard.last_hash_key) if shard else None,
                at_risk=start.arrival_ms < at_risk_before_ms,
            )
        )
    return ranges


def chains_of(ranges: Sequence[ShardRange], lineage: Lineage) -> list[Chain]:
    """Return independent chains: a shard and its descendants are in one, ancestors first.

    This holds also where no shard between them has rows in this batch: a parent that was split, and a child of it that
    was split while it was empty.
    """
    by_id = {one.shard_id: one for one in ranges}
    groups = lineage.groups([shard_id for shard_id in by_id if shard_id in lineage])
    unknown = [[shard_id] for shard_id in by_id if shard_id not in lineage]
    return [tuple(by_id[shard_id] for shard_id in group) for group in groups + unknown]


def assumed_bytes(offset: StreamOffset, shard_id: str) -> float:
    """Return the most bytes that a range can hold, by the time that it spans. The offset has that time, so a replay
    returns the same.
    """
    position = offset.shards[shard_id]
    # It is not known when a closed shard got its last record, only that this was before the cut.
    end_ms = offset.cut_ms if position.kind is Kind.ENDED else position.witness_ms
    span_ms = end_ms - offset.starts[shard_id].arrival_ms
    return min(max(span_ms, 1) * FULL_RATE_BYTES_PER_MS, RANGE_BYTES_MAX)


def tasks_for(size: float, chains: int, tasks_max: int) -> int:
    """Return how many tasks read ``size`` bytes in ``chains`` chains."""
    return max(1, min(-(-int(size) // TASK_BYTES), chains, tasks_max))


def pack_tasks(offset: StreamOffset, chains: Sequence[Chain]) -> list[tuple[Chain, ...]]:
    """Divide the chains into at most ``offset.tasks`` tasks of about the same size; each replay gets the same ones."""
    weighed = sorted(
        ((sum(assumed_bytes(offset, one.shard_id) for one in chain), chain) for chain in chains),
        key=lambda pair: (-pair[0], pair[1][0].shard_id),
    )
    count = max(1, min(offset.tasks, len(weighed)))
    heap: list[tuple[float, int]] = [(0.0, index) for index in range(count)]
    tasks: list[list[Chain]] = [[] for _ in range(count)]
    for weight, chain in weighed:
        load, index = heapq.heappop(heap)
        tasks[index].append(chain)
        heapq.heappush(heap, (load + weight, index))
    return [tuple(sorted(task, key=lambda chain: chain[0].shard_id)) for task in tasks if task]
