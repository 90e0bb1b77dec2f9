"""The statistics of a consumer: what it is and did at one moment, as a whole and for each of its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.core.ledger.parts import Part
from shardway.model import Position
from shardway.runtime.shard.listener import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.runtime.shard.shard_reader import ShardReader


class ShardStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A shard that the consumer holds."""

    stream: str
    """The stream's name or ARN, as it was given."""
    shard_id: str
    """The shard's id."""
    token: int
    """The fencing token of its batches."""
    origin: Origin
    """The way in which the shard came to this consumer."""
    paused: bool
    """True between `Consumer.pause` and `resume`."""
    millis_behind_latest: int | None
    """The time by which the last successful read was behind the shard's tip, in milliseconds; None: nothing was read
    yet. The figure stays as it is while reads fail and while a handler hangs, so it is no figure to raise an alarm by.
    """
    since_read_s: float
    """Seconds since the last read that succeeded; before the first one, since the consumer began to read the shard.
    It grows while reads fail, and while the consumer has no room for more records. 0.0 once the shard was read to its
    end.
    """
    oldest_unsettled_s: float | None
    """Seconds since the oldest record that is fetched and not settled arrived in the stream, by the service's time.
    It grows while a handler fails or hangs. None: all that was fetched is settled.
    """
    lag_s: float
    """The age that the oldest record may have that is not settled, fetched or not, in seconds: `oldest_unsettled_s`;
    or, where that is more or there is none, what the last read was behind and the time since. So it grows while reads
    fail, and while a handler fails or hangs.
    """
    retention_used: float | None
    """The part of the stream's retention that ``lag_s`` has used: at 1.0 the record is lost. None: the retention is not
    known.
    """
    is_full: bool
    """True while nothing more is fetched, as there is no room for it before more is settled."""
    settled: Position | None
    """The position up to and with which all records are settled. None: no record is, or all of a shard that has
    ended.
    """
    stored: Position | None
    """The position that is known to be stored as the checkpoint in the lease table."""
    records_delivered: int
    """The number of records that were delivered in this tenure. A record that came again is counted again."""
    batches_delivered: int
    """The number of batches that were delivered in this tenure."""
    records_in_flight: int
    """The number of records that are in flight now."""
    records_held: int
    """The number of records that are fetched and not settled, delivered or not."""
    bytes_held: int
    """The memory that the held records take: their data, and what Python needs for each of them."""
    oldest_in_flight_s: float | None
    """Seconds since the oldest unsettled record was first delivered. None: all that was delivered is settled."""


class ConsumerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a consumer. Counts are since its start."""

    application: str
    """The application's name."""
    worker_id: str
    """The consumer's name among those of the application."""
    shards: tuple[ShardStatistics, ...]
    """The shards that the consumer holds."""
    records_delivered: int
    """The number of records that were delivered. A record that came again is counted again."""
    batches_delivered: int
    """The number of batches that were delivered."""
    leases: int
    """The number of leases of its streams' shards that are not read to their end, with and without an owner, as last
    read.
    """
    leases_by_worker: dict[str, int]
    """The number of those leases that each worker has; one that died has its leases until another worker takes them."""
    leases_free: int
    """The number of those leases that no living worker has, though their shards could be read: those of a dead worker
    count, and the children of a shard that is still read do not.
    """
    source_calls: dict[str, int]
    """The number of calls to the streams, by the names of `shardway.ports.RecordSource`; ``read`` is GetRecords."""
    table_calls: dict[str, int]
    """The number of calls to the lease table, by the names of `shardway.ports.LeaseTable`."""
    events: dict[str, int]
    """The number of events that were emitted, by type."""

    @property
    def millis_behind_latest(self) -> int | None:
        """The highest `ShardStatistics.millis_behind_latest` of all shards. None: no shard was read yet."""
        return max(
            (one.millis_behind_latest for one in self.shards if one.millis_behind_latest is not None), default=None
        )

    @property
    def since_read_s(self) -> float | None:
        """Seconds since the last good read of the shard that has waited longest for one; None: no shard is held."""
        return max((one.since_read_s for one in self.shards), default=None)

    @property
    def oldest_unsettled_s(self) -> float | None:
        """Seconds since the oldest fetched and unsettled record of all shards arrived; None: there is none."""
        ages = (one.oldest_unsettled_s for one in self.shards if one.oldest_unsettled_s is not None)
        return max(ages, default=None)

    @property
    def lag_s(self) -> float | None:
        """The age that the oldest unsettled record of all shards may have, in seconds; None: no shard is held."""
        return max((one.lag_s for one in self.shards), default=None)

    @property
    def retention_used(self) -> float | None:
        """The highest `ShardStatistics.retention_used`; None: none is known."""
        return max((one.retention_used for one in self.shards if one.retention_used is not None), default=None)

    @property
    def records_in_flight(self) -> int:
        """The number of records that are in flight now."""
        return sum(one.records_in_flight for one in self.shards)

    @property
    def bytes_held(self) -> int:
        """The memory of what is fetched and not settled, in bytes; `BufferOptions.buffer_bytes_max` bounds it."""
        return sum(one.bytes_held for one in self.shards)


def shard_statistics(
    reader: ShardReader, now_s: float, service_now_s: float, retention_s: float | None
) -> ShardStatistics:
    """Return the figures of one shard. ``now_s`` is the loop's clock, ``service_now_s`` the service's time (epoch
    seconds).
    """
    ledger = reader.ledger
    progress = ledger.progress
    first: Any = progress.oldest_record
    oldest: Any = first.record if isinstance(first, Part) else first
    out_since_s = progress.out_since_s
    unsettled_s = None if oldest is None else max(0.0, service_now_s - oldest.approximate_arrival_timestamp.timestamp())
    has_all = progress.came_to.is_end
    since_read_s = 0.0 if has_all else now_s - reader.fetcher.read_at_s
    unread_s = 0.0 if has_all else (reader.fetcher.millis_behind_latest or 0) / 1000 + since_read_s
    lag_s = max(unread_s, unsettled_s or 0.0)
    return ShardStatistics(
        stream=reader.stream,
        shard_id=reader.shard_id,
        token=reader.token,
        origin=reader.origin,
        paused=reader.driver.paused,
        millis_behind_latest=reader.fetcher.millis_behind_latest,
        since_read_s=since_read_s,
        oldest_unsettled_s=unsettled_s,
        lag_s=lag_s,
        retention_used=lag_s / retention_s if retention_s else None,
        is_full=ledger.is_full,
        settled=_position(progress.safe),
        stored=_position(reader.stored),
        records_delivered=reader.delivery.records_delivered,
        batches_delivered=reader.delivery.batches_delivered,
        records_in_flight=ledger.out,
        records_held=ledger.held.records,
        bytes_held=ledger.held.held_bytes,
        oldest_in_flight_s=None if out_since_s is None else now_s - out_since_s,
    )


def leases_by_worker(rows: Iterable[LeaseRow]) -> tuple[int, dict[str, int]]:
    """Return how many leases there are, and how many each worker has; leases that have ended do not count."""
    count, held = 0, dict[str, int]()
    for row in rows:
        if not row.ended:
            count += 1
            if row.actual_owner is not None:
                held[row.actual_owner] = held.get(row.actual_owner, 0) + 1
    return count, held


def _position(checkpoint: Checkpoint) -> Position | None:
    return checkpoint.position if checkpoint.is_position else None
