"""What a Spark partition carries: shard ranges whose both ends are fixed, and what a task needs to read them.

The driver decides a range before anything is read; a task does nothing but read it. So a replayed batch, a
second action, a retried or a speculative task all return the same rows in the same order.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.core.lineage import Lineage
from penstock.model import ListedShard, OutsidePolicy
from penstock.spark.offsets import Kind, StreamOffset

if TYPE_CHECKING:
    from penstock.aws.options import ConnectionOptions
    from penstock.model import StreamName

# --- ranges ---------------------------------------------------------------------------------------

try:
    from pyspark.sql.datasource import InputPartition
except ImportError:  # ranges are plain values: planning and its tests work without PySpark

    class InputPartition:  # type: ignore[no-redef]
        """Stands in for PySpark's class where PySpark is not installed."""

        def __init__(self, value: Any = None) -> None:
            self.value = value


COLUMNS = (
    "partition_key",
    "data",
    "stream",
    "shard_id",
    "sequence_number",
    "sub_sequence_number",
    "approximate_arrival_timestamp",
    "explicit_hash_key",
)
"""The columns of the source, in the order of its schema."""


class EndKind(enum.IntEnum):
    """How the end of a range is known."""

    EXCLUSIVE = 0
    """Stop before ``end_sequence_number``, a record that was seen."""
    INCLUSIVE = 1
    """Stop after ``end_sequence_number``, a record that was seen."""
    SHARD_END = 2
    """The shard is closed: read until its iterator ends (a null NextShardIterator)."""


class ShardRange(NamedTuple):
    """One stretch of one shard's log: all records from the first to the end, whatever their arrival times."""

    shard_id: str
    first_sequence_number: int
    """The range's first record. It was seen by the driver; when it does not come, records were trimmed."""
    first_arrival_s: int
    """Arrival time of the first record, epoch seconds, rounded down."""
    end_kind: EndKind
    end_sequence_number: int | None = None
    """With EXCLUSIVE and INCLUSIVE; None with SHARD_END."""
    hash_range: tuple[int, int] | None = None
    """The shard's hash keys, both inclusive: to tell user records outside of them; None: not checked."""
    at_risk: bool = False
    """The first record is near or past the stream's retention: start by its time, skip what lies before it.
    AWS answers an iterator at a trimmed sequence number with empty pages for ever; at a trimmed time it
    starts at the oldest record."""

    def __str__(self) -> str:
        end = {
            EndKind.EXCLUSIVE: f"{self.end_sequence_number})",
            EndKind.INCLUSIVE: f"{self.end_sequence_number}]",
            EndKind.SHARD_END: "end of the shard]",
        }[self.end_kind]
        return f"{self.shard_id} [{self.first_sequence_number}, {end}"


Chain = tuple[ShardRange, ...]
"""Ranges that are read one after the other: parents before their children."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What every task of a query needs to know."""

    connection: ConnectionOptions
    columns: tuple[str, ...] = COLUMNS
    """The columns asked for, in the order asked for (`penstock.spark.rows.asked_columns`)."""
    columns_not_null: tuple[str, ...] = ()
    """Those of them that the query's schema declares NOT NULL."""
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    fail_on_data_loss: bool = True
    batch_bytes_max: int = 2**20
    """Data and keys of a record batch (a single record may exceed it). Larger batches cost Spark as much CPU per
    row, and JVM and Python worker wait for each other longer."""
    batch_rows_max: int = 100_000
    prefetch_bytes_max: int = 32 * 2**20
    """Pages that were fetched and are not converted yet, per task, in bytes of their answers."""
    chains_max: int = 32
    """Chains of one task that are read at the same time."""
    no_progress_s: float = 120.0
    """A range that has got nothing nearer to its end for so long fails its task."""


class ShardPartition(InputPartition):
    """One Spark task: chains that are independent of each other and are read concurrently."""

    def __init__(self, chains: tuple[Chain, ...], stream: StreamName, options: TaskOptions) -> None:
        self.chains = chains
        self.stream = stream
        self.options = options

    def __reduce__(self) -> tuple[type[ShardPartition], tuple[Any, ...]]:
        return ShardPartition, (self.chains, self.stream, self.options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardPartition) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.chains, self.stream))

    def __repr__(self) -> str:
        ranges = sum(len(chain) for chain in self.chains)
        return f"ShardPartition({self.stream}, {ranges} ranges in {len(self.chains)} chains)"


# --- grouping -------------------------------------------------------------------------------------
# From the ranges of a batch to Spark partitions: parents before children, and few tasks that are equally large.
#
# A Python task costs 50–130 ms of core time, so ranges are gathered by size. Ranges of parents and children that are
# in the same batch form a *chain* and stay in one task, in order.

TASK_BYTES = 16 * 2**20
"""About how much one task reads."""
ROW_COST_BYTES = 200
"""What a row costs a task beside its data, as bytes: small records are many."""
RANGE_BYTES_MAX = 64 * 2**20
"""A range of unknown size counts for at most this: it is assumed to be written at 1 MiB/s."""
FULL_RATE_BYTES_PER_MS = 2**20 / 1000

_END_KIND = {Kind.NEXT: EndKind.EXCLUSIVE, Kind.AFTER: EndKind.INCLUSIVE, Kind.ENDED: EndKind.SHARD_END}


def ranges_of(
    offset: StreamOffset, shards: Mapping[str, ListedShard], *, at_risk_before_ms: int = 0
) -> list[ShardRange]:
    """The ranges of the batch that ends at this offset, in the order of shard ids (parents have lower ones)."""
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
    """Independent chains: ranges of which one shard descends from the other are in one, ancestors first.

    Also where no shard between them has rows in this batch: a parent that was split, its child split while empty.
    """
    by_id = {one.shard_id: one for one in ranges}
    groups = lineage.groups([shard_id for shard_id in by_id if shard_id in lineage])
    unknown = [[shard_id] for shard_id in by_id if shard_id not in lineage]
    return [tuple(by_id[shard_id] for shard_id in group) for group in groups + unknown]


def assumed_bytes(offset: StreamOffset, shard_id: str) -> float:
    """How large a range is at most, from the time it spans: what a replay knows as well."""
    position = offset.shards[shard_id]
    # When a closed shard got its last record is not known: before the cut.
    end_ms = offset.cut_ms if position.kind is Kind.ENDED else position.witness_ms
    span_ms = end_ms - offset.starts[shard_id].arrival_ms
    return min(max(span_ms, 1) * FULL_RATE_BYTES_PER_MS, RANGE_BYTES_MAX)


def tasks_for(size: float, chains: int, tasks_max: int) -> int:
    """How many tasks read so many bytes in so many chains."""
    return max(1, min(-(-int(size) // TASK_BYTES), chains, tasks_max))


def pack_tasks(offset: StreamOffset, chains: Sequence[Chain]) -> list[tuple[Chain, ...]]:
    """The chains divided into at most ``offset.tasks`` tasks of about the same size; the same for each replay."""
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
