"""The meter of a consumer counts pages, batches and writes, which its parts report by calls, and some events."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from shardway import events
from shardway.events.consumer_snapshot import (
    CHECKPOINTS_MAX,
    CODES_MAX,
    OTHERS,
    SHARDS_MAX,
    ConsumerShardSnapshot,
    ConsumerSnapshot,
)

if TYPE_CHECKING:
    from shardway.events.consumer_snapshot import WorkerLevels


class ConsumerMeter:
    """Counts what the parts of a consumer do: they call it for each page, batch or write. A call takes a microsecond or
    two, and any thread may make it. Times are seconds of any clock that does not go back.
    """

    __slots__ = ("_codes", "_interval", "_lock", "_past_intervals", "_shards", "per_shard")

    def __init__(self, now_s: float, *, per_shard: bool = False) -> None:
        self.per_shard = per_shard
        """True: the meter counts by shard, too."""
        self._lock = threading.RLock()  # a signal handler may ask for the numbers in the middle of a call
        self._past_intervals = ConsumerSnapshot(
            period_start_s=now_s, period_end_s=now_s
        )  # the sum of all intervals that ended
        self._interval = ConsumerSnapshot(period_start_s=now_s, period_end_s=now_s)
        self._shards: set[str] = set()
        self._codes: dict[str, set[str]] = {}

    def begins(self, now_s: float) -> None:
        """Begin the period now. What was counted before belongs to the period, too."""
        with self._lock:
            for one in (self._past_intervals, self._interval):
                one.period_start_s = one.period_end_s = now_s

    # --- records ----------------------------------------------------------------------------------

    def fetched(self, records: int, data_bytes: int) -> None:
        """Count a page that came."""
        with self._lock:
            now = self._interval
            now.fetches += 1
            now.records_fetched += records
            now.bytes_fetched += data_bytes

    def delivered(self, stream: str, shard_id: str, records: int, data_bytes: int) -> None:
        """Count a batch that is delivered."""
        with self._lock:
            now = self._interval
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
            self._interval.records_settled += records
            self._interval.bytes_settled += data_bytes

    def handled(self, stream: str, shard_id: str, duration_s: float) -> None:
        """Count a batch that the program is done with, well or not."""
        with self._lock:
            duration_s = max(0.0, duration_s)
            self._interval.handler_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).handler_s.add(duration_s)

    # --- calls ------------------------------------------------------------------------------------

    def read(self, stream: str, shard_id: str, duration_s: float) -> None:
        """Count a call of GetRecords that was answered."""
        with self._lock:
            self._interval.fetch_s.add(duration_s)
            if self.per_shard:
                self._shard(stream, shard_id).fetch_s.add(duration_s)

    def iterator_expired(self) -> None:
        """Count a read that failed by an expired iterator."""
        with self._lock:
            self._interval.iterators_expired += 1

    def wrote(self, duration_s: float, *, stores: bool, confirmed: bool) -> None:
        """Count a write of a lease by its owner. ``stores``: the write stores a checkpoint. ``confirmed``: it is known
        to be done.
        """
        with self._lock:
            now = self._interval
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
            self._interval.store_s.add(max(0.0, after_s))

    def lost(self) -> None:
        """Count a lease that was lost."""
        with self._lock:
            self._interval.leases_lost += 1

    # --- what is told -----------------------------------------------------------------------------

    def count(self, event: events.Event) -> None:
        """Count what an event says, if its kind is one that counts."""
        with self._lock:
            kind = type(event)
            if (adds := _ADDS.get(kind)) is not None:
                for field, amount in adds:
                    more = 1 if amount is None else getattr(event, amount)
                    setattr(self._interval, field, getattr(self._interval, field) + more)
            elif (adds_by := _ADDS_BY.get(kind)) is not None:
                self._count(adds_by[0], getattr(event, adds_by[1]))
            elif isinstance(event, events.BatchFailed):
                self._count_failure(event)
            elif isinstance(event, events.ReadRefused | events.ReadFailed):
                self._not_read(event)
            elif isinstance(event, events.CheckpointTrimmed) and not event.surely_nothing_lost:
                self._interval.gaps += 1

    def _count_failure(self, event: events.BatchFailed) -> None:
        self._interval.records_failed += event.records
        self._interval.bytes_failed += event.payload_bytes
        self._count("batches_failed", event.error_type)
        if self.per_shard:
            self._shard(event.stream, event.shard_id).batches_failed += 1

    def _not_read(self, event: events.ReadRefused | events.ReadFailed) -> None:
        if isinstance(event, events.ReadRefused):
            self._interval.fetches_refused += 1
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
        counts = getattr(self._interval, field)
        counts[code] = counts.get(code, 0) + 1

    # --- what came of it --------------------------------------------------------------------------

    def snapshot(self, now_s: float, worker_id: str, levels: WorkerLevels) -> ConsumerSnapshot:
        """Return all that was counted since the start, with the worker's levels."""
        with self._lock:
            whole = self._past_intervals + self._interval
            whole.period_end_s = max(whole.period_end_s, now_s)
            whole.workers = {worker_id: levels}
            return whole

    def interval(self, now_s: float, worker_id: str, levels: WorkerLevels) -> ConsumerSnapshot:
        """Return what was counted since the last interval, or since the start. All intervals add up to the snapshot."""
        with self._lock:
            done = self._interval
            end_s = done.period_end_s = max(now_s, math.nextafter(done.period_start_s, math.inf))
            self._interval = ConsumerSnapshot(period_start_s=end_s, period_end_s=end_s)
            self._past_intervals += done
            done.workers = {worker_id: levels}
            return done

    def _shard(self, stream: str, shard_id: str) -> ConsumerShardSnapshot:
        name = f"{stream}/{shard_id}"
        if name not in self._shards:
            if len(self._shards) >= SHARDS_MAX:
                name = f"{stream}/{OTHERS}"
            else:
                self._shards.add(name)
        shards = self._interval.per_shard
        found = shards.get(name)
        if found is None:
            found = shards[name] = ConsumerShardSnapshot()
        return found


class ShardCounts:
    """Counts for the reader of one shard. ``checkpoint`` is anything that compares as checkpoints do."""

    __slots__ = ("_meter", "_shard_id", "_stream", "_unstored_records")

    def __init__(self, meter: ConsumerMeter, stream: str, shard_id: str) -> None:
        self._meter = meter
        self._stream = stream
        self._shard_id = shard_id
        self._unstored_records: deque[tuple[Any, float]] = deque()

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
        waiting = self._unstored_records
        if len(waiting) < CHECKPOINTS_MAX and (not waiting or waiting[-1][0] < checkpoint):
            waiting.append((checkpoint, now_s))

    def stored(self, checkpoint: Any, now_s: float) -> None:
        """Note that a checkpoint up to here is known to be stored, and count how long it waited."""
        waiting = self._unstored_records
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
