"""The counts and levels of a consumer. Its parts add to a `ConsumerMeter`; a caller that asks gets a
`ConsumerSnapshot`.

A snapshot's counts are sums over its period, and its levels are kept for each worker, so snapshots can be added: those
of consecutive intervals give exactly the snapshot since the start, those of several workers the whole application.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any, ClassVar

import msgspec

from shardway import events
from shardway.core.histogram import Histogram
from shardway.telemetry.snapshots import Snapshot, sum_of_fields

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
    """Seconds for which the program had each batch."""
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
    """Seconds for which the program had a batch: from the beginning to the end of its block, or of the handler's call.
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


class ConsumerMeter:
    """Counts what the parts of a consumer do: they call it for each page, batch or write. A call takes a microsecond or
    two, and any thread may make it. Times are seconds of any clock that does not go back.
    """

    __slots__ = ("_before", "_codes", "_lock", "_now", "_shards", "per_shard")

    def __init__(self, now_s: float, *, per_shard: bool = False) -> None:
        self.per_shard = per_shard
        """True: the meter counts by shard, too."""
        self._lock = threading.RLock()  # a signal handler may ask for the numbers in the middle of a call
        self._before = ConsumerSnapshot(period_start_s=now_s, period_end_s=now_s)  # the sum of all intervals that ended
        self._now = ConsumerSnapshot(period_start_s=now_s, period_end_s=now_s)
        self._shards: set[str] = set()
        self._codes: dict[str, set[str]] = {}

    def begins(self, now_s: float) -> None:
        """Begin the period now. What was counted before belongs to the period, too."""
        with self._lock:
            for one in (self._before, self._now):
                one.period_start_s = one.period_end_s = now_s

    # --- records ----------------------------------------------------------------------------------

    def fetched(self, records: int, data_bytes: int) -> None:
        """Count a page that came."""
        with self._lock:
            now = self._now
            now.fetches += 1
            now.records_fetched += records
            now.bytes_fetched += data_bytes

    def delivered(self, stream: str, shard_id: str, records: int, data_bytes: int) -> None:
        """Count a batch that is delivered."""
        with self._lock:
            now = self._now
            now.batches_delivered += 1
            now.records_delivered += records
            now.bytes_delivered += data_bytes
            now.batch_bytes.add(data_bytes)
            if self.per_shard:
                shard = self._shard(stream, shard_id)
                shard.records_delivered += records
                shard.bytes_delivered += data_bytes

    def settled(self, records: int, data_bytes: int) -> None:
        """Count records that were settled."""
        with self._lock:
            self._now.records_settled += records
            self._now.bytes_settled += data_bytes

    def handled(self, stream: str, shard_id: str, duration_s: float) -> None:
        """Count a batch that the program is done with, well or not."""
        with self._lock:
            duration_s = max(0.0, duration_s)
            self._now.handler_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).handler_s.add(duration_s)

    # --- calls ------------------------------------------------------------------------------------

    def read(self, stream: str, shard_id: str, duration_s: float) -> None:
        """Count a call of GetRecords that was answered."""
        with self._lock:
            self._now.fetch_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).fetch_s.add(duration_s)

    def iterator_expired(self) -> None:
        """Count a read that failed by an expired iterator."""
        with self._lock:
            self._now.iterators_expired += 1

    def wrote(self, duration_s: float, *, stores: bool, confirmed: bool) -> None:
        """Count a write of a lease by its owner. ``stores``: the write stores a checkpoint. ``confirmed``: it is known
        to be done.
        """
        with self._lock:
            now = self._now
            if not confirmed:
                if stores:
                    now.checkpoints_failed += 1
                else:
                    now.renewals_failed += 1
            else:
                (now.checkpoint_ms if stores else now.renewal_ms).add(duration_s * 1000)

    def stored(self, after_s: float) -> None:
        """Count a stored checkpoint, ``after_s`` seconds after the first record that it covers was settled."""
        with self._lock:
            self._now.store_s.add(max(0.0, after_s))

    def lost(self) -> None:
        """Count a lease that was lost."""
        with self._lock:
            self._now.leases_lost += 1

    # --- what is told -----------------------------------------------------------------------------

    def count(self, event: events.Event) -> None:
        """Count what an event says, if its kind is one that counts."""
        with self._lock:
            kind = type(event)
            if (adds := _ADDS.get(kind)) is not None:
                for field, amount in adds:
                    more = 1 if amount is None else getattr(event, amount)
                    setattr(self._now, field, getattr(self._now, field) + more)
            elif (adds_by := _ADDS_BY.get(kind)) is not None:
                self._count(adds_by[0], getattr(event, adds_by[1]))
            elif isinstance(event, events.BatchFailed):
                self._failed(event)
            elif isinstance(event, events.ReadRefused | events.ReadFailed):
                self._not_read(event)
            elif isinstance(event, events.CheckpointTrimmed) and not event.surely_nothing_lost:
                self._now.gaps += 1

    def _failed(self, event: events.BatchFailed) -> None:
        self._now.records_failed += event.records
        self._now.bytes_failed += event.payload_bytes
        self._count("batches_failed", event.error_type)
        if self.per_shard:
            self._shard(event.stream, event.shard_id).batches_failed += 1

    def _not_read(self, event: events.ReadRefused | events.ReadFailed) -> None:
        if isinstance(event, events.ReadRefused):
            self._now.fetches_refused += 1
        else:
            self._count("fetches_failed", event.error_code)
        if self.per_shard:
            self._shard(event.stream, event.shard_id).fetches_failed += 1

    def _count(self, field: str, code: str) -> None:
        known = self._codes.setdefault(field, set())
        if code not in known:
            if len(known) >= CODES_MAX:
                code = OTHERS
            else:
                known.add(code)
        counts = getattr(self._now, field)
        counts[code] = counts.get(code, 0) + 1

    # --- what came of it --------------------------------------------------------------------------

    def snapshot(self, now_s: float, worker_id: str, levels: WorkerLevels) -> ConsumerSnapshot:
        """Return all that was counted since the start, with the worker's levels."""
        with self._lock:
            whole = self._before + self._now
            whole.period_end_s = max(whole.period_end_s, now_s)
            whole.workers = {worker_id: levels}
            return whole

    def interval(self, now_s: float, worker_id: str, levels: WorkerLevels) -> ConsumerSnapshot:
        """Return what was counted since the last interval, or since the start. All intervals add up to the snapshot."""
        with self._lock:
            done = self._now
            end_s = done.period_end_s = max(now_s, math.nextafter(done.period_start_s, math.inf))
            self._now = ConsumerSnapshot(period_start_s=end_s, period_end_s=end_s)
            self._before += done
            done.workers = {worker_id: levels}
            return done

    def _shard(self, stream: str, shard_id: str) -> ConsumerShardSnapshot:
        name = f"{stream}/{shard_id}"
        if name not in self._shards:
            if len(self._shards) >= SHARDS_MAX:
                name = f"{stream}/{OTHERS}"
            else:
                self._shards.add(name)
        shards = self._now.per_shard
        found = shards.get(name)
        if found is None:
            found = shards[name] = ConsumerShardSnapshot()
        return found


class ShardCounts:
    """Counts for the reader of one shard. ``checkpoint`` is anything that compares as checkpoints do."""

    __slots__ = ("_meter", "_shard_id", "_stream", "_unstored")

    def __init__(self, meter: ConsumerMeter, stream: str, shard_id: str) -> None:
        self._meter = meter
        self._stream = stream
        self._shard_id = shard_id
        self._unstored: deque[tuple[Any, float]] = deque()

    def fetched(self, records: int, data_bytes: int) -> None:
        """Count a page that came."""
        self._meter.fetched(records, data_bytes)

    def delivered(self, records: int, data_bytes: int) -> None:
        """Count a batch that is delivered."""
        self._meter.delivered(self._stream, self._shard_id, records, data_bytes)

    def handled(self, duration_s: float) -> None:
        """Count a batch that the program is done with."""
        self._meter.handled(self._stream, self._shard_id, duration_s)

    def settled_to(self, checkpoint: Any, now_s: float) -> None:
        """Note that all records up to this checkpoint are settled, and that it is to be stored."""
        waiting = self._unstored
        if len(waiting) < CHECKPOINTS_MAX and (not waiting or waiting[-1][0] < checkpoint):
            waiting.append((checkpoint, now_s))

    def stored(self, checkpoint: Any, now_s: float) -> None:
        """Note that a checkpoint up to here is known to be stored, and count the time for which it waited."""
        waiting = self._unstored
        if waiting and waiting[0][0] <= checkpoint:
            self._meter.stored(now_s - waiting[0][1])
            while waiting and waiting[0][0] <= checkpoint:
                waiting.popleft()


_ADDS: dict[type, tuple[tuple[str, str | None], ...]] = {
    events.RecordsSkipped: (("records_skipped", "records"), ("bytes_skipped", "payload_bytes")),
    events.RecordDeadLettered: (("records_dead_lettered", None), ("bytes_dead_lettered", "payload_bytes")),
    events.DeadLetterFailed: (("dead_letters_failed", None),),
    events.DuplicatesLeftOut: (("records_duplicate", "records"), ("bytes_duplicate", "payload_bytes")),
    events.RecordsStalled: (("records_stalled", "records"),),
    events.ShardLeft: (("shards_left", None),),
    events.ShardGivenUp: (("shards_given_up", None),),
    events.TaskFailed: (("tasks_failed", None),),
}
"""The counts that an event of each type adds to, each with the event's field that says how much; None: 1."""
_ADDS_BY: dict[type, tuple[str, str]] = {
    events.LeaseTableFailed: ("tables_failed", "error_code"),
    events.ShardBegun: ("shards_begun", "origin"),
}
"""The counts by a key that an event of each type adds 1 to, with the event's field that has the key."""


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
