"""A Spark partition carries shard ranges whose both ends are fixed, and what a task needs to read them.

The driver decides a range before anything is read; a task does nothing but read it. So a replayed batch, a second
action, a retried or a speculative task all return the same rows in the same order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.model import OutsidePolicy
from shardway.spark.columns import COLUMNS

if TYPE_CHECKING:
    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.aws.options import ConnectionOptions
    from shardway.model import StreamName
    from shardway.spark.options.read_options import ReadOptions

try:
    from pyspark.sql.datasource import InputPartition
except ImportError:  # ranges are plain values: planning and its tests work without PySpark

    class InputPartition:  # type: ignore[no-redef]
        """Stands in for PySpark's class where PySpark is not installed."""

        def __init__(self, value: Any = None) -> None:
            self.value = value


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
    columns: tuple[str, ...]
    """The columns that the query asks for, in its order (`shardway.spark.task.arrow_columns.asked_columns`)."""
    columns_not_null: tuple[str, ...]
    """The columns that the query's schema declares NOT NULL."""
    aggregates_outside_range: OutsidePolicy
    fail_on_data_loss: bool
    no_progress_s: float
    """Seconds after which a range that has come no nearer to its end fails its task."""
    batch_bytes_max: int = 2**20
    """The most bytes of data and keys in a record batch (a single record may exceed it). Larger batches cost Spark as
    much CPU per row, and JVM and Python worker wait for each other longer."""
    batch_rows_max: int = 100_000
    prefetch_bytes_max: int = 32 * 2**20
    """The most bytes of answers whose pages were fetched and are not converted yet, per task."""
    chains_max: int = 32
    """The most chains of one task that are read at the same time."""

    @classmethod
    def of(
        cls,
        options: ReadOptions,
        connection: ConnectionOptions,
        columns: tuple[str, ...] = COLUMNS,
        columns_not_null: tuple[str, ...] = (),
    ) -> TaskOptions:
        """Return what the options of a query say."""
        return cls(
            connection=connection,
            columns=columns,
            columns_not_null=columns_not_null,
            aggregates_outside_range=options.aggregates_outside_range,
            fail_on_data_loss=options.fail_on_data_loss,
            no_progress_s=options.outage_s,
        )


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
        return isinstance(other, ShardPartition) and self._contents() == other._contents()

    def __hash__(self) -> int:
        return hash((self.chains, self.stream))

    def _contents(self) -> tuple[tuple[Chain, ...], StreamName, TaskOptions]:
        return self.chains, self.stream, self.options

    def __repr__(self) -> str:
        ranges = sum(len(chain) for chain in self.chains)
        return f"ShardPartition({self.stream}, {ranges} ranges in {len(self.chains)} chains)"
