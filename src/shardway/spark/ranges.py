"""A Spark partition carries shard ranges whose both ends are fixed, and what a task needs to read them.

The driver decides a range before anything is read; a task does nothing but read it. So a replayed batch, a
second action, a retried or a speculative task all return the same rows in the same order.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.core.lineage import Lineage
from shardway.model import ListedShard, OutsidePolicy
from shardway.spark.offsets import Kind, StreamOffset

if TYPE_CHECKING:
    from shardway.aws.kinesis import WireRecord
    from shardway.aws.options import ConnectionOptions
    from shardway.model import StreamName

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

SPARK_TYPES = {
    "partition_key": "string",
    "data": "binary",
    "stream": "string",
    "shard_id": "string",
    "sequence_number": "string",
    "sub_sequence_number": "bigint",
    "approximate_arrival_timestamp": "timestamp",
    "explicit_hash_key": "string",
}
"""The Spark type of each column, as DDL writes it."""

SCHEMA = ", ".join(f"{name} {SPARK_TYPES[name].upper()}" for name in COLUMNS)
"""The schema of the source as a DDL string; every column may be null."""

OUTSIDE = "aggregate_outside_range"
"""The name of a column that is there only for a schema that asks for it: true for the rows of a KPL aggregate some of
whose user records lie outside their shard's hash range."""

ALL_COLUMNS = f"{SCHEMA}, {OUTSIDE} BOOLEAN"
"""The schema of the source with the column ``OUTSIDE``."""


class EndKind(enum.IntEnum):
    """The ways in which the end of a range is known."""

    EXCLUSIVE = 0
    """The range ends before ``end_sequence_number``, a record that was seen."""
    INCLUSIVE = 1
    """The range ends after ``end_sequence_number``, a record that was seen."""
    SHARD_END = 2
    """The range ends with the shard, which is closed: it is read until its iterator ends (a null NextShardIterator)."""


class ShardRange(NamedTuple):
    """One stretch of one shard's log: all records from the first to the end, whatever their arrival times."""

    shard_id: str
    first_sequence_number: int
    """The range's first record. The driver saw it; when it does not come, records were trimmed."""
    first_arrival_s: int
    """The arrival time of the first record, in epoch seconds, rounded down."""
    end_kind: EndKind
    end_sequence_number: int | None = None
    """The record at the end for EXCLUSIVE and INCLUSIVE; None for SHARD_END."""
    hash_range: tuple[int, int] | None = None
    """The shard's first and last hash key, both inclusive, by which user records outside are found; None where this is
    not checked.
    """
    at_risk: bool = False
    """True where the first record is near or past the stream's retention: the range is begun by its time, and what lies
    before it is skipped. AWS answers an iterator at a trimmed sequence number with empty pages for ever; at a trimmed
    time it starts at the oldest record."""

    def __str__(self) -> str:
        end = {
            EndKind.EXCLUSIVE: f"{self.end_sequence_number})",
            EndKind.INCLUSIVE: f"{self.end_sequence_number}]",
            EndKind.SHARD_END: "end of the shard]",
        }[self.end_kind]
        return f"{self.shard_id} [{self.first_sequence_number}, {end}"


Chain = tuple[ShardRange, ...]
"""A chain of ranges that are read one after the other: parents before their children."""


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every task of a query needs to know."""

    connection: ConnectionOptions
    columns: tuple[str, ...] = COLUMNS
    """The columns that the query asks for, in its order (`shardway.spark.rows.asked_columns`)."""
    columns_not_null: tuple[str, ...] = ()
    """The columns that the query's schema declares NOT NULL."""
    aggregates_outside_range: OutsidePolicy = OutsidePolicy.DELIVER
    fail_on_data_loss: bool = True
    batch_bytes_max: int = 2**20
    """The most bytes of data and keys in a record batch (a single record may exceed it). Larger batches cost Spark as
    much CPU per row, and JVM and Python worker wait for each other longer."""
    batch_rows_max: int = 100_000
    prefetch_bytes_max: int = 32 * 2**20
    """The most bytes of answers whose pages were fetched and are not converted yet, per task."""
    chains_max: int = 32
    """The most chains of one task that are read at the same time."""
    no_progress_s: float = 120.0
    """Seconds after which a range that has come no nearer to its end fails its task."""


NOTHING_CARRIED: Mapping[str, tuple[WireRecord, ...]] = MappingProxyType({})


class ShardPartition(InputPartition):
    """One Spark task: chains that are independent of each other and are read concurrently.

    ``carried`` has all records of some of the ranges, by shard, which the task need not read then. They say nothing of
    what the partition is: without them the task has the same rows.
    """

    def __init__(
        self,
        chains: tuple[Chain, ...],
        stream: StreamName,
        options: TaskOptions,
        carried: Mapping[str, tuple[WireRecord, ...]] = NOTHING_CARRIED,
    ) -> None:
        self.chains = chains
        self.stream = stream
        self.options = options
        self.carried = dict(carried)

    def __reduce__(self) -> tuple[type[ShardPartition], tuple[Any, ...]]:
        return ShardPartition, (self.chains, self.stream, self.options, self.carried)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardPartition) and self._what() == other._what()

    def __hash__(self) -> int:
        return hash((self.chains, self.stream))

    def _what(self) -> tuple[tuple[Chain, ...], StreamName, TaskOptions]:
        return self.chains, self.stream, self.options

    def __repr__(self) -> str:
        ranges = sum(len(chain) for chain in self.chains)
        return f"ShardPartition({self.stream}, {ranges} ranges in {len(self.chains)} chains)"


# --- grouping -------------------------------------------------------------------------------------
# This part makes Spark partitions of the ranges of a batch: parents before children, and few tasks that are equally
# large.
#
# A Python task costs 50–130 ms of core time, so ranges are gathered by size. Ranges of parents and children that are
# in the same batch form a *chain* and stay in one task, in order.

TASK_BYTES = 16 * 2**20
"""Bytes that one task reads, about."""
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
    """Return independent chains: ranges of which one shard descends from the other are in one, ancestors first.

    This holds also where no shard between them has rows in this batch: a parent that was split, and a child of it that
    was split while it was empty.
    """
    by_id = {one.shard_id: one for one in ranges}
    groups = lineage.groups([shard_id for shard_id in by_id if shard_id in lineage])
    unknown = [[shard_id] for shard_id in by_id if shard_id not in lineage]
    return [tuple(by_id[shard_id] for shard_id in group) for group in groups + unknown]


def assumed_bytes(offset: StreamOffset, shard_id: str) -> float:
    """Return the most bytes that a range may have, by the time that it spans: a replay knows that as well."""
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
