"""What a Spark partition carries: shard ranges whose both ends are fixed, and what a task needs to read them.

The driver decides a range before anything is read; a task does nothing but read it. So a replayed batch, a
second action, a retried or a speculative task all return the same rows in the same order.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.model import OutsidePolicy

if TYPE_CHECKING:
    from penstock.aws.settings import WireSettings
    from penstock.model import StreamName

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


class ReadSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every task of a query needs to know."""

    wire: WireSettings
    columns: tuple[str, ...] = COLUMNS
    """The columns asked for, in the order asked for (`penstock.spark.columns.asked_columns`)."""
    columns_not_null: tuple[str, ...] = ()
    """Those of them that the query's schema declares NOT NULL."""
    aggregates_outside: OutsidePolicy = OutsidePolicy.DELIVER
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

    def __init__(self, chains: tuple[Chain, ...], stream: StreamName, settings: ReadSettings) -> None:
        self.chains = chains
        self.stream = stream
        self.settings = settings

    def __reduce__(self) -> tuple[type[ShardPartition], tuple[Any, ...]]:
        return ShardPartition, (self.chains, self.stream, self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardPartition) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.chains, self.stream))

    def __repr__(self) -> str:
        ranges = sum(len(chain) for chain in self.chains)
        return f"ShardPartition({self.stream}, {ranges} ranges in {len(self.chains)} chains)"
