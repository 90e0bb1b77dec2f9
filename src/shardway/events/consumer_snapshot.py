"""Snapshots of a consumer's numbers, and how the numbers of several add up."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shardway.core.histogram import Histogram
from shardway.events.snapshots import Snapshot, sum_of_fields

SHARDS_MAX = 10_000
"""The shards that ``per_shard`` tells apart. Shards that were left stay in it."""
CODES_MAX = 64
"""The classes and codes of errors that are told apart: a program may make them up."""
CHECKPOINTS_MAX = 64
"""The checkpoints of a shard that are remembered while they are not stored, with the time since which they wait."""
OTHERS = "others"
"""The name under which all further shards, or codes, are counted."""


class Spread(msgspec.Struct):
    """The count, the sum, and the ends of some values: what a CloudWatch statistic set holds."""

    count: int = 0
    sum: float = 0.0
    min: float | None = None
    """The lowest value; None when there is no value."""
    max: float | None = None
    """The highest value; None when there is no value."""

    def add(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.sum += value
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)

    def __add__(self, other: Spread) -> Spread:
        if not isinstance(other, Spread):
            return NotImplemented
        lows = [one.min for one in (self, other) if one.min is not None]
        highs = [one.max for one in (self, other) if one.max is not None]
        return Spread(self.count + other.count, self.sum + other.sum, min(lows, default=None), max(highs, default=None))


class ConsumerShardSnapshot(msgspec.Struct, kw_only=True):
    """What was read from one shard."""

    records_delivered: int = 0
    """Records delivered; a record that came again is counted again."""
    bytes_delivered: int = 0
    """Data of the records delivered, without keys."""
    fetches_failed: int = 0
    """Reads that failed, and reads that the shard's limits refused."""
    fetch_s: Spread = msgspec.field(default_factory=Spread)
    """Seconds of each read that was answered with a page."""
    handler_s: Spread = msgspec.field(default_factory=Spread)
    """How many seconds the program had each batch."""
    batches_failed: int = 0
    """How often a handler raised."""

    def __add__(self, other: ConsumerShardSnapshot) -> ConsumerShardSnapshot:
        if not isinstance(other, ConsumerShardSnapshot):
            return NotImplemented
        return sum_of_fields(self, other)


class ShardLevels(msgspec.Struct, kw_only=True, frozen=True):
    """How far a shard is, at one moment."""

    stream: str
    """The stream's name or ARN, as it was given."""
    shard_id: str
    """The shard's id."""
    millis_behind_latest: int | None
    """How far the last successful read was behind the shard's tip; None: nothing was read yet. The number stays as it
    is while reads fail and while a handler hangs.
    """
    since_read_s: float
    """Seconds since the last successful read, or, before the first one, since the consumer began to read the shard; 0.0
    once the shard was read to its end.
    """
    oldest_unsettled_s: float | None
    """Seconds since the oldest record that is fetched and not settled arrived; None: all that was fetched is settled.
    """
    lag_s: float
    """How old the oldest record may be that is not settled, fetched or not: the larger of `oldest_unsettled_s`, if
    there is such a record, and what the last read was behind together with the time since. So the lag grows while reads
    fail, and while a handler fails or hangs.
    """
    retention_used: float | None
    """The part of the stream's retention that the age `lag_s` has used: at 1.0 the record is lost. None: the retention
    is not known.
    """
    records_held: int
    """Records that are fetched and not settled."""
    bytes_held: int
    """Bytes of memory that the records take which are fetched and not settled."""
    records_in_flight: int
    """Records that are in flight: delivered and not settled."""
    oldest_in_flight_s: float | None = None
    """Seconds since the oldest record in flight was first delivered; None: none is in flight."""
    is_full: bool = False
    """True while the consumer fetches nothing more, as there is no room for it before more is settled."""


class WorkerLevels(msgspec.Struct, kw_only=True, frozen=True):
    """What one worker holds and sees, at one moment."""

    at_s: float
    """The time of these levels; of two levels of one worker the later ones count."""
    shards: tuple[ShardLevels, ...] = ()
    """The levels of the shards that the worker holds."""
    leases: int = 0
    """Leases of the streams' shards that are not read to their end, with and without an owner, as the worker last read
    them.
    """
    leases_free: int = 0
    """The number of these leases that no live worker has, though their shards could be read."""
    workers: int = 0
    """The number of workers that have leases."""
    renewed_ago_s: float | None = None
    """Seconds since a write of the worker's leases was confirmed last; None: no write was confirmed."""
    left: bool = False
    """True once the worker has ended: it holds nothing, and what it saw counts no more."""
    failed: bool = False
    """True where an error has ended the worker, and not its program."""


class ConsumerSnapshot(Snapshot, kw_only=True):
    """What a consumer did from ``period_start_s`` to ``period_end_s`` (epoch seconds).

    ``a + b`` covers both periods: counts and histograms add up, and the later levels of each worker count. A record is
    what programs get: each user record of an aggregate is one.
    """

    _is_of: ClassVar[str] = "consumer"
    _rates: ClassVar[tuple[str, ...]] = ("lag_s", "retention_used", "records_per_s")

    records_fetched: int = 0
    """Records read from the stream; duplicates and records that were settled before are among them."""
    bytes_fetched: int = 0
    """Data of the records read from the stream, without keys."""
    records_delivered: int = 0
    """Records delivered; a record that came again is counted again."""
    bytes_delivered: int = 0
    """Data of the records delivered, without keys."""
    batches_delivered: int = 0
    """Batches delivered."""
    records_settled: int = 0
    """Records settled in whichever way; those that were skipped, dead-lettered or left out as duplicates are among
    them.
    """
    bytes_settled: int = 0
    """Data of the records settled, without keys."""
    records_failed: int = 0
    """Records of batches for which a handler raised, each time anew."""
    bytes_failed: int = 0
    """Data of the records of batches for which a handler raised, each time anew, without keys."""
    batches_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """The error's class -> how often a handler raised it."""
    records_skipped: int = 0
    """Records settled without having been processed."""
    bytes_skipped: int = 0
    """Data of the records skipped, without keys."""
    records_dead_lettered: int = 0
    """Records given up, and written as dead letters."""
    bytes_dead_lettered: int = 0
    """Data of the records written as dead letters, without keys."""
    dead_letters_failed: int = 0
    """How often a dead letter could not be written."""
    records_duplicate: int = 0
    """Records left out since their key came shortly before."""
    bytes_duplicate: int = 0
    """Data of the records left out as duplicates, without keys."""
    records_stalled: int = 0
    """Records reported as not settled within `SettlingOptions.deadline_s`, each time anew."""
    gaps: int = 0
    """How often a checkpoint was older than the retention: records may be lost, unless it is certain that none is."""

    fetches: int = 0
    """Reads that were answered with a page: calls of GetRecords, and events of a subscription."""
    fetches_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Error code -> reads that failed; the refused ones are not among them."""
    fetches_refused: int = 0
    """Reads that the shard's limits refused."""
    iterators_expired: int = 0
    """Reads that failed since their iterator was older than five minutes."""
    renewals_failed: int = 0
    """Writes of a lease that were refused, or whose outcome is unknown, and that store no checkpoint."""
    checkpoints_failed: int = 0
    """Writes of a lease that were refused, or whose outcome is unknown, and that store a checkpoint."""
    tables_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Error code -> calls to the lease table that failed."""
    shards_begun: dict[str, int] = msgspec.field(default_factory=dict)
    """How shards came (`Origin`) -> shards that this consumer began to read."""
    shards_left: int = 0
    """Shards that this consumer stopped reading, for whatever reason."""
    leases_lost: int = 0
    """Leases that were lost: taken by another worker, deleted, or not confirmed for too long."""
    shards_given_up: int = 0
    """Shards that the policies for failures have stopped or given up."""
    tasks_failed: int = 0
    """Errors of the work that a consumer does beside the reading (`TaskFailed`)."""

    fetch_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds of a call of GetRecords that was answered."""
    handler_s: Histogram = msgspec.field(default_factory=Histogram)
    """How many seconds the program had a batch: from the beginning to the end of its block, or of the handler's call.
    """
    batch_bytes: Histogram = msgspec.field(default_factory=Histogram)
    """Data of the records of a batch that was delivered, without keys."""
    store_s: Histogram = msgspec.field(default_factory=Histogram)
    """Seconds from the settlement of the first record that is not stored to the checkpoint that covers it."""
    renewal_ms: Histogram = msgspec.field(default_factory=Histogram)
    """Milliseconds of a confirmed write of a lease that stores no checkpoint."""
    checkpoint_ms: Histogram = msgspec.field(default_factory=Histogram)
    """Milliseconds of a confirmed write of a lease that stores a checkpoint."""

    workers: dict[str, WorkerLevels] = msgspec.field(default_factory=dict)
    """Worker id -> what the worker holds and sees, at the end of the period."""
    per_shard: dict[str, ConsumerShardSnapshot] = msgspec.field(default_factory=dict)
    """``STREAM/SHARD`` -> what was read from the shard; empty unless asked for."""

    def __add__(self, other: ConsumerSnapshot) -> ConsumerSnapshot:
        if not isinstance(other, ConsumerSnapshot):
            return NotImplemented
        return sum_of_fields(
            self,
            other,
            period_start_s=min(self.period_start_s, other.period_start_s),
            period_end_s=max(self.period_end_s, other.period_end_s),
            workers=_latest(self.workers, other.workers),
        )

    @property
    def shards(self) -> list[ShardLevels]:
        """The levels of all shards that any worker holds."""
        return [shard for worker in self.workers.values() for shard in worker.shards]

    @property
    def lag_s(self) -> float | None:
        """`ShardLevels.lag_s` of the shard that is furthest behind; None: no shard is held."""
        return max((shard.lag_s for shard in self.shards), default=None)

    @property
    def retention_used(self) -> float | None:
        """The highest `ShardLevels.retention_used` of the shards; None: none is known."""
        known = (shard.retention_used for shard in self.shards if shard.retention_used is not None)
        return max(known, default=None)

    @property
    def records_per_s(self) -> float:
        """Records settled in a second of the period; 0.0 for an empty period."""
        return self.records_settled / self.period_s if self.period_s > 0 else 0.0

    @property
    def failures(self) -> int:
        """How often a handler raised."""
        return sum(self.batches_failed.values())


def _latest(one: dict[str, WorkerLevels], other: dict[str, WorkerLevels]) -> dict[str, WorkerLevels]:
    """Return the later levels of each worker; of levels of the same moment, those that sort later."""
    found = dict(one)
    for worker, levels in other.items():
        known = found.get(worker)
        if known is None or _is_later(levels, known):
            found[worker] = levels
    return found


def _is_later(levels: WorkerLevels, known: WorkerLevels) -> bool:
    if levels.at_s != known.at_s:
        return levels.at_s > known.at_s
    # Two levels of one moment differ only where two processes have one worker id. The choice must not depend on the
    # order in which snapshots are added.
    return msgspec.json.encode(levels) > msgspec.json.encode(known)
