"""How far the shards of a tested consumer's stream are settled, and what a test reads of failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.shard.checkpoints.cadence import Prompt
from shardway.model import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.events import BatchFailed
    from shardway.model import Record
    from shardway.options.consumer import CheckpointOptions
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.stores.memory import MemoryLeaseTable
    from shardway.testing.consumer.readers import Readers
    from shardway.testing.streams.memory_stream import MemoryStream


class UnsettledError(AssertionError):
    """The records that were fed were not all settled, and nothing happens any more."""


@dataclass(frozen=True)
class Retried:
    """Records that a handler has failed for."""

    shard_id: str
    position: Position
    """The position of the first of these records."""
    records: int
    attempt: int
    """How many times the records were delivered by then."""
    error_type: str
    next_step: str
    """The next step: ``Redelivery``, ``Halve``, or the policy's end: one of ``DeadLetters``, ``Skip``, ``Stop``,
    ``GiveUp``.
    """


class Progress:
    """What is settled of a stream, by the lease table and by the readers of its shards. ``held`` returns the readers of
    the shards that the consumer holds now.
    """

    def __init__(
        self,
        stream: MemoryStream,
        table: MemoryLeaseTable,
        readers: Readers,
        held: Callable[[], Iterable[ShardReader]],
        checkpoints: CheckpointOptions,
    ) -> None:
        self._stream = stream
        self._table = table
        self._readers = readers
        self._held_readers = held
        self._is_prompt = isinstance(checkpoints.cadence, Prompt)
        self._seen_positions: tuple[int, dict[str, Position]] = (-1, {})

    def owner(self, shard: str) -> str | None:
        """Return the owner of a shard's lease."""
        return next((row.owner for row in self._table.rows() if row.key == shard), None)

    def unsettled(self) -> list[Record]:
        """Return the records that were delivered and are not settled."""
        out = {
            (shard, position)
            for shard, reader in self._readers.newest.items()
            for position in reader.ledger.progress.unsettled()
        }
        return [one for one in self._stream.records() if (one.shard_id, _position(one)) in out]

    def not_checkpointed(self) -> list[Record]:
        """Return the records that lie behind no stored checkpoint."""
        return self._records_beyond({row.key: row.checkpoint for row in self._table.rows()})

    def left(self, elsewhere: set[str]) -> dict[str, Checkpoint | None]:
        """Return the shards that have records which are not settled, and how far they are; but for those elsewhere."""
        if self._seen_positions[0] != self._stream.changes:
            self._seen_positions = (self._stream.changes, self._stream.ends())
        safe = self._safe()
        return {
            shard: safe.get(shard)
            for shard, end in self._seen_positions[1].items()
            if shard not in elsewhere and not _covers(safe.get(shard), end)
        }

    def complaint(self, patience_s: float, failures: Sequence[BatchFailed]) -> str:
        """Return what is not settled, why that may be, and what the test can do."""
        unsettled = self._records_beyond(self._safe())
        shown = ", ".join(
            f"{one.shard_id} {one.sequence_number}/{one.sub_sequence_number}" for one in unsettled[:5]
        ) + (", ..." if len(unsettled) > 5 else "")
        failed = ""
        if failures:
            last = failures[-1]
            failed = (
                f" The handler failed {len(failures)} times, last with {last.error_type} ({last.error_at}), which is "
                "the cause of this. What fails is tried again until it succeeds, unless the options say otherwise."
            )
        return (
            f"{len(unsettled)} records are not settled, and nothing was settled for {patience_s:g} s: {shown}.{failed} "
            f"{len(self.unsettled())} of them were delivered: leave their batch's `async with` block, or call `ack` or "
            "`settle_through`. What waits for another try needs time: pass_time(), or skip_waits=True."
        )

    def _records_beyond(self, checkpoints: dict[str, Checkpoint]) -> list[Record]:
        return [one for one in self._stream.records() if not _covers(checkpoints.get(one.shard_id), _position(one))]

    def _safe(self) -> dict[str, Checkpoint]:
        """Return how far each shard is settled, and stored too if that happens at once."""
        found = {row.key: row.checkpoint for row in self._table.rows()}
        for reader in self._held_readers():
            stored, settled = found.get(reader.shard_id), reader.ledger.progress.safe
            is_stored_at_once = self._is_prompt and reader.checkpointing.pending is None
            found[reader.shard_id] = min(settled, stored) if is_stored_at_once and stored is not None else settled
        return found


def _position(record: Record) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


def _covers(checkpoint: Checkpoint | None, position: Position) -> bool:
    """True where a checkpoint says that this record is done."""
    return checkpoint is not None and (checkpoint.is_end or checkpoint >= Checkpoint.at(position))
