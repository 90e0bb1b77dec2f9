"""What a consumer counts. Its parts add to a `ConsumerMeter`; a caller that asks gets a `ConsumerSnapshot`.

What is counted in a snapshot is a sum over its period, and what is a level is kept for each worker, so snapshots add:
those of consecutive intervals give exactly the one since the start, those of several workers the whole application.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Any, ClassVar

import msgspec

from penstock import events
from penstock.core.histogram import Histogram
from penstock.telemetry.snapshots import Snapshot, sum_of_fields

SHARDS_MAX = 10_000
"""More shards than this are not told apart in ``per_shard`` (shards that were left stay in it)."""
CODES_MAX = 64
"""More classes and codes of errors than this are not told apart: a program may make them up."""
CHECKPOINTS_MAX = 64
"""Of a shard: so many checkpoints that are not stored yet are remembered, with the time since which they wait."""
OTHERS = "others"
"""Where the rest is counted."""


class Spread(msgspec.Struct):
    """How often, how much together, and from where to where: what a CloudWatch statistic set holds."""

    count: int = 0
    sum: float = 0.0
    min: float | None = None
    """None when there is no value."""
    max: float | None = None
    """None when there is no value."""

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
    """Delivered; those that came again are counted again."""
    bytes_delivered: int = 0
    """Data of the records delivered, without keys."""
    fetches_failed: int = 0
    """Reads that failed, and reads that the shard's limits refused."""
    fetch_s: Spread = msgspec.field(default_factory=Spread)
    """How long a read took that was answered with a page."""
    handler_s: Spread = msgspec.field(default_factory=Spread)
    """How long the program had a batch."""
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
    """How far the last successful read was behind the shard's tip; None: nothing was read yet. It stays as it is while
    reads fail and while a handler hangs.
    """
    since_read_s: float
    """Seconds since that read; before the first one, since the consumer began to read the shard; 0.0 once the shard was
    read to its end.
    """
    oldest_unsettled_s: float | None
    """Seconds since the oldest record that is fetched and not settled arrived; None: all that was fetched is settled.
    """
    lag_s: float
    """How old the oldest record may be that is not settled, fetched or not: `oldest_unsettled_s`; or, where that is
    more or there is none, what the last read was behind and the time since. So it grows while reads fail, and while a
    handler fails or hangs.
    """
    retention_used: float | None
    """The part of the stream's retention that this age has used: at 1.0 the record is lost. None: the retention is not
    known.
    """
    records_held: int
    """Records that are fetched and not settled."""
    bytes_held: int
    """The memory that they take."""
    records_in_flight: int
    """Those of them that are in flight."""
    oldest_in_flight_s: float | None = None
    """Seconds since the oldest of these was first delivered; None: none is in flight."""
    is_full: bool = False
    """True while nothing more is fetched, as there is no room for it before more is settled."""


class WorkerLevels(msgspec.Struct, kw_only=True, frozen=True):
    """What one worker holds and sees, at one moment."""

    at_s: float
    """When; the later of two is the one that counts."""
    shards: tuple[ShardLevels, ...] = ()
    """Those that it holds."""
    leases: int = 0
    """Leases of its streams' shards that are not read to their end, with and without an owner, as it last read them."""
    leases_free: int = 0
    """How many of them no worker has that lives, though their shards could be read."""
    workers: int = 0
    """How many workers have leases."""
    renewed_ago_s: float | None = None
    """Seconds since a write of its leases was confirmed last; None: it has none."""
    left: bool = False
    """True once it has ended: it holds nothing, and what it saw counts no more."""
    failed: bool = False
    """True where an error has ended it, and not its program."""


class ConsumerSnapshot(Snapshot, kw_only=True):
    """What a consumer did from ``period_start_s`` to ``period_end_s`` (epoch seconds).

    ``a + b`` covers both periods: counts and histograms add up, and of ``workers`` the later one of each counts.
    "Records" are those that programs get: each user record of an aggregate is one.
    """

    _is_of: ClassVar[str] = "consumer"
    _rates: ClassVar[tuple[str, ...]] = ("lag_s", "retention_used", "records_per_s")

    records_fetched: int = 0
    """Read from the stream; duplicates and what was settled before are among them."""
    bytes_fetched: int = 0
    """Their data, without keys."""
    records_delivered: int = 0
    """Delivered. A record that came again is counted again."""
    bytes_delivered: int = 0
    """Their data, without keys."""
    batches_delivered: int = 0
    """Batches delivered."""
    records_settled: int = 0
    """Done, in whichever way: also those that were skipped, dead-lettered or left out as duplicates."""
    bytes_settled: int = 0
    """Their data, without keys."""
    records_failed: int = 0
    """In batches for which a handler raised, each time anew."""
    bytes_failed: int = 0
    """Their data, without keys."""
    batches_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """The error's class -> how often a handler raised it."""
    records_skipped: int = 0
    """Settled without having been processed."""
    bytes_skipped: int = 0
    """Their data, without keys."""
    records_dead_lettered: int = 0
    """Given up, and written where dead letters go."""
    bytes_dead_lettered: int = 0
    """Their data, without keys."""
    dead_letters_failed: int = 0
    """How often a dead letter could not be written."""
    records_duplicate: int = 0
    """Left out since their key came shortly before."""
    bytes_duplicate: int = 0
    """Their data, without keys."""
    records_stalled: int = 0
    """Reported as not settled within `SettlingOptions.deadline_s`, each time anew."""
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
    """The same of those that store one."""
    tables_failed: dict[str, int] = msgspec.field(default_factory=dict)
    """Error code -> calls to the lease table that failed."""
    shards_begun: dict[str, int] = msgspec.field(default_factory=dict)
    """How they came (`Origin`) -> shards that this consumer began to read."""
    shards_left: int = 0
    """Shards that it reads no more, for whatever reason."""
    leases_lost: int = 0
    """Leases that were lost: taken by another worker, deleted, or not confirmed for too long."""
    shards_given_up: int = 0
    """Shards that the policies for failures have stopped or given up."""
    tasks_failed: int = 0
    """Errors of what is done beside the reading (`TaskFailed`)."""

    fetch_s: Histogram = msgspec.field(default_factory=Histogram)
    """How long a call of GetRecords took that was answered."""
    handler_s: Histogram = msgspec.field(default_factory=Histogram)
    """How long the program had a batch: from the beginning of its block, or of the handler's call, to the end of it."""
    batch_bytes: Histogram = msgspec.field(default_factory=Histogram)
    """Data of the records of a batch that was delivered, without keys."""
    store_s: Histogram = msgspec.field(default_factory=Histogram)
    """From the first record that was settled and not stored to the checkpoint that covers it."""
    renewal_ms: Histogram = msgspec.field(default_factory=Histogram)
    """Milliseconds of a confirmed write of a lease that stores no checkpoint."""
    checkpoint_ms: Histogram = msgspec.field(default_factory=Histogram)
    """Milliseconds of one that does."""

    workers: dict[str, WorkerLevels] = msgspec.field(default_factory=dict)
    """Worker id -> what it holds and sees, at the end of its period."""
    per_shard: dict[str, ConsumerShardSnapshot] = msgspec.field(default_factory=dict)
    """``STREAM/SHARD`` -> what was read from it; empty unless asked for."""

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
        """The shards that are held, by all workers."""
        return [shard for worker in self.workers.values() for shard in worker.shards]

    @property
    def lag_s(self) -> float | None:
        """`ShardLevels.lag_s` of the shard that is furthest behind; None: no shard is held."""
        return max((shard.lag_s for shard in self.shards), default=None)

    @property
    def retention_used(self) -> float | None:
        """The highest `ShardLevels.retention_used`; None: none is known."""
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
    """What the parts of a consumer call: a call for each page, batch or write, of a microsecond or two. Any thread may
    call. Times are seconds of any clock that does not go back.
    """

    __slots__ = ("_before", "_codes", "_lock", "_now", "_shards", "per_shard")

    def __init__(self, now_s: float, *, per_shard: bool = False) -> None:
        self.per_shard = per_shard
        """True: count by shard, too."""
        self._lock = threading.RLock()  # a signal handler may ask for the numbers in the middle of a call
        self._before = ConsumerSnapshot(period_start_s=now_s, period_end_s=now_s)  # all intervals that ended
        self._now = ConsumerSnapshot(period_start_s=now_s, period_end_s=now_s)
        self._shards: set[str] = set()
        self._codes: dict[str, set[str]] = {}

    def begins(self, now_s: float) -> None:
        """The period begins now. What was counted before belongs to it."""
        with self._lock:
            for one in (self._before, self._now):
                one.period_start_s = one.period_end_s = now_s

    # --- records ----------------------------------------------------------------------------------

    def fetched(self, records: int, data_bytes: int) -> None:
        """A page came."""
        with self._lock:
            now = self._now
            now.fetches += 1
            now.records_fetched += records
            now.bytes_fetched += data_bytes

    def delivered(self, stream: str, shard_id: str, records: int, data_bytes: int) -> None:
        """A batch is delivered."""
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
        """So many more are settled."""
        with self._lock:
            self._now.records_settled += records
            self._now.bytes_settled += data_bytes

    def handled(self, stream: str, shard_id: str, duration_s: float) -> None:
        """The program is done with a batch, well or not."""
        with self._lock:
            duration_s = max(0.0, duration_s)
            self._now.handler_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).handler_s.add(duration_s)

    # --- calls ------------------------------------------------------------------------------------

    def read(self, stream: str, shard_id: str, duration_s: float) -> None:
        """A call of GetRecords was answered."""
        with self._lock:
            self._now.fetch_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).fetch_s.add(duration_s)

    def iterator_expired(self) -> None:
        """A read has met an expired iterator."""
        with self._lock:
            self._now.iterators_expired += 1

    def wrote(self, duration_s: float, *, stores: bool, confirmed: bool) -> None:
        """A write of a lease by its owner ended; ``stores``: with a checkpoint."""
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
        """A checkpoint is known to be stored, so long after the first record that it covers was settled."""
        with self._lock:
            self._now.store_s.add(max(0.0, after_s))

    def lost(self) -> None:
        """A lease was lost."""
        with self._lock:
            self._now.leases_lost += 1

    # --- what is told -----------------------------------------------------------------------------

    def count(self, event: events.Event) -> None:
        """Count by an event, if it is of a kind that counts."""
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
        """Everything since the start."""
        with self._lock:
            whole = self._before + self._now
            whole.period_end_s = max(whole.period_end_s, now_s)
            whole.workers = {worker_id: levels}
            return whole

    def interval(self, now_s: float, worker_id: str, levels: WorkerLevels) -> ConsumerSnapshot:
        """What is new since the last interval, or since the start. All intervals add up to the snapshot."""
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
    """What the reader of one shard calls. ``checkpoint`` is anything that compares as checkpoints do."""

    __slots__ = ("_meter", "_shard_id", "_stream", "_unstored")

    def __init__(self, meter: ConsumerMeter, stream: str, shard_id: str) -> None:
        self._meter = meter
        self._stream = stream
        self._shard_id = shard_id
        self._unstored: deque[tuple[Any, float]] = deque()

    def fetched(self, records: int, data_bytes: int) -> None:
        """A page came."""
        self._meter.fetched(records, data_bytes)

    def delivered(self, records: int, data_bytes: int) -> None:
        """A batch is delivered."""
        self._meter.delivered(self._stream, self._shard_id, records, data_bytes)

    def handled(self, duration_s: float) -> None:
        """The program is done with a batch."""
        self._meter.handled(self._stream, self._shard_id, duration_s)

    def settled_to(self, checkpoint: Any, now_s: float) -> None:
        """All up to here is settled, and is to be stored."""
        waiting = self._unstored
        if len(waiting) < CHECKPOINTS_MAX and (not waiting or waiting[-1][0] < checkpoint):
            waiting.append((checkpoint, now_s))

    def stored(self, checkpoint: Any, now_s: float) -> None:
        """It is known to be stored up to here."""
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
"""To which counts an event adds, and how much: 1, or what that field of it says."""
_ADDS_BY: dict[type, tuple[str, str]] = {
    events.LeaseTableFailed: ("tables_failed", "error_code"),
    events.ShardBegun: ("shards_begun", "origin"),
}
"""To which counts by a key an event adds, and the field that has the key."""


def _latest(one: dict[str, WorkerLevels], other: dict[str, WorkerLevels]) -> dict[str, WorkerLevels]:
    """Of each worker the levels that were looked at later; of the same moment, those that sort later."""
    found = dict(one)
    for worker, levels in other.items():
        known = found.get(worker)
        if known is None or _is_later(levels, known):
            found[worker] = levels
    return found


def _is_later(levels: WorkerLevels, known: WorkerLevels) -> bool:
    if levels.at_s != known.at_s:
        return levels.at_s > known.at_s
    # Two of one moment differ only where one worker id has two processes: so the choice depends on no order.
    return msgspec.json.encode(levels) > msgspec.json.encode(known)
