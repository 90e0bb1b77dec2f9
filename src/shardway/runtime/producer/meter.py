"""The meter of a producer: it counts what the batcher notes, and makes a `ProducerSnapshot` for a caller that asks.

Everything in a snapshot is a sum over its period, so snapshots add: those of consecutive intervals give exactly the one
since the start, those of several producers the whole.

These are the counterparts of the Kinesis Producer Library's metrics (its docs/metrics.md). Values of the stream are
the fields, and values of a shard are in ``per_shard``:

=====================================  =======================================================================
KPL                                    here
=====================================  =======================================================================
UserRecordsReceived                    ``user_records_accepted``
UserRecordsPending                     ``user_records_pending``
UserRecordsPut                         ``user_records_put``; its mean (failures are zeros) is ``success_rate``
UserRecordsDataPut                     ``user_bytes_put``
UserRecordExpired                      ``user_records_expired``
KinesisRecordsPut                      ``records_put``; its mean: against ``records_failed_attempts``
KinesisRecordsDataPut                  ``record_bytes_put``; each record's size in ``record_bytes``
ErrorsByCode                           ``records_failed_attempts`` and ``requests_failed``
AllErrors                              ``errors``
RetriesPerRecord                       ``attempts`` (one more: the first attempt counts)
BufferingTime                          ``buffering_s``
RequestTime                            ``request_s``
UserRecordsPerKinesisRecord            ``user_records_per_record``
KinesisRecordsPerPutRecordsRequest     ``request_records``
UserRecordsPerPutRecordsRequest        ``request_user_records``
UnhealthyDaemon                        none: there is no second process
=====================================  =======================================================================
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from shardway.core.producer import facts
from shardway.core.producer.outcome import THROTTLED
from shardway.events import AggregatesRepeated, RecordsExpired, RecordsFailed, RecordsRefused, UnknownOutcome
from shardway.events.producer_snapshot import ProducerSnapshot, ShardSnapshot

if TYPE_CHECKING:
    from shardway.core.producer.facts import Fact
    from shardway.events import Event


SHARDS_MAX = 10_000
"""The most shards with figures of their own in ``per_shard`` (shards that closed stay in it)."""
OTHER_SHARDS = "others"
"""The name under which further shards are counted."""


class ProducerMeter:
    """Counts for a producer: each method counts a batch in a microsecond or two. Any thread may ask for the figures;
    the methods that the producer calls have a lock for that.

    The clock is the caller's: ``now_s`` is of any clock that does not go back.
    """

    __slots__ = ("_interval", "_lock", "_past_intervals", "_shards", "buffer_bytes", "per_shard")

    def __init__(self, now_s: float, *, per_shard: bool = False) -> None:
        self.buffer_bytes = 0
        """The level now, in bytes: the producer keeps it up to date."""
        self.per_shard = per_shard
        """True: the figures are counted by shard, too."""
        self._lock = threading.RLock()  # A signal handler may ask for the numbers in the middle of a call.
        self._past_intervals = ProducerSnapshot(period_start_s=now_s, period_end_s=now_s)  # It sums all that ended.
        self._interval = ProducerSnapshot(period_start_s=now_s, period_end_s=now_s)
        self._shards: set[str] = set()

    def start_over(self) -> None:
        """Make a new lock in a process that was forked off: a thread that is not here may hold the old one."""
        self._lock = threading.RLock()

    # --- user records -----------------------------------------------------------------------------

    def count_accepted(self, count: int = 1) -> None:
        """Count user records that were taken into the buffer."""
        with self._lock:
            self._interval.user_records_accepted += count

    def count_buffering(self, buffering_s: float, count: int = 1) -> None:
        """Count user records that are sent for the first time; they waited ``buffering_s`` seconds."""
        with self._lock:
            self._interval.buffering_s.add(buffering_s, count)

    def count_put(
        self,
        count: int,
        payload_bytes: int,
        latency_s: float,
        attempts: int,
        *,
        shard_id: str | None = None,
        duplicates_possible: bool = False,
    ) -> None:
        """Count user records that were put: ``count`` with these data in total, this latency and this many attempts
        each.
        """
        now = self._interval
        now.user_records_put += count
        now.user_bytes_put += payload_bytes
        now.latency_s.add(latency_s, count)
        now.attempts.add(attempts, count)
        if duplicates_possible:
            now.duplicates_possible += count
        if self.per_shard and shard_id:
            shard = self._shard(shard_id)
            shard.user_records_put += count
            shard.user_bytes_put += payload_bytes
            shard.attempts += attempts * count

    def count_data(self, data_bytes: int, *, shard_id: str | None = None) -> None:
        """Count data of user records that was put, for callers that know it by record and not by ``count_put``."""
        self._interval.user_bytes_put += data_bytes
        if self.per_shard and shard_id:
            self._shard(shard_id).user_bytes_put += data_bytes

    def count_failed(self, count: int, latency_s: float | None = None, attempts: int | None = None) -> None:
        """Count user records that were given up, after this time and this many attempts each, where they are known."""
        self._interval.user_records_failed += count
        self._count_end(count, latency_s, attempts)

    def count_expired(self, count: int, latency_s: float | None = None, attempts: int | None = None) -> None:
        """Count user records that ran out of time, after this many attempts each (0: never sent), where that is
        known.
        """
        self._interval.user_records_expired += count
        self._count_end(count, latency_s, attempts)

    def count_withdrawn(self, count: int = 1) -> None:
        """Count user records that the caller took back, unsent."""
        self._interval.user_records_withdrawn += count

    # --- records of Kinesis, and requests -----------------------------------------------------------

    def count_records(
        self,
        record_bytes: int,
        user_records: int = 1,
        *,
        aggregate: bool = False,
        shard_id: str | None = None,
        records: int = 1,
    ) -> None:
        """Count a record that the service took: its data and key, and how many user records are in it.

        ``records`` is the number of records that it took; bytes and user records are those of all of them, and the
        histograms count their means.
        """
        now = self._interval
        now.records_put += records
        now.record_bytes_put += record_bytes
        now.record_bytes.add(record_bytes / records, records)
        now.user_records_per_record.add(user_records / records, records)
        if aggregate:
            now.aggregates += records
        if self.per_shard and shard_id:
            shard = self._shard(shard_id)
            shard.records_put += records
            shard.record_bytes_put += record_bytes

    def count_errors(self, count: int, error_code: str, *, refused: bool = False, shard_id: str | None = None) -> None:
        """Count records that came back with an error of their own; ``refused``: for the limits of their shard."""
        now = self._interval
        codes = now.records_failed_attempts
        codes[error_code] = codes.get(error_code, 0) + count
        if refused:
            now.records_refused += count
        if self.per_shard and shard_id:
            shard = self._shard(shard_id)
            shard.records_failed_attempts += count
            shard.records_refused += count if refused else 0

    def count_repeated(self, count: int = 1) -> None:
        """Count aggregates that landed on a shard that does not hold all of them, and are put again by shard."""
        self._interval.aggregates_repeated += count

    def count_request(
        self, records: int, user_records: int, request_bytes: int, duration_s: float, error_code: str | None = None
    ) -> None:
        """Count a PutRecords request that ended; ``error_code`` when it failed as a whole."""
        with self._lock:
            now = self._interval
            now.requests += 1
            now.request_s.add(duration_s)
            now.request_records.add(records)
            now.request_user_records.add(user_records)
            now.request_bytes.add(request_bytes)
            if error_code is not None:
                now.requests_failed[error_code] = now.requests_failed.get(error_code, 0) + 1

    def count_fact(self, fact: Fact) -> None:
        """Count a fact that the batcher has noted."""
        with self._lock:
            match fact:
                case facts.Written():
                    self.count_put(
                        fact.user_records,
                        0,
                        fact.latency_s,
                        fact.attempts,
                        shard_id=fact.shard_id,
                        duplicates_possible=fact.doubtful,
                    )
                case facts.Landed():
                    self.count_data(fact.data_bytes, shard_id=fact.shard_id)
                    self.count_records(
                        fact.record_bytes,
                        fact.user_records,
                        records=fact.records,
                        aggregate=fact.user_records > fact.records,
                        shard_id=fact.shard_id,
                    )
                case facts.Refused():
                    is_refused = fact.error_code == THROTTLED
                    self.count_errors(fact.records, fact.error_code, refused=is_refused, shard_id=fact.shard_id)
                case facts.Expired():
                    self.count_expired(fact.user_records, fact.latency_s, fact.attempts)
                case facts.Failed():
                    self.count_failed(fact.user_records, fact.latency_s, fact.attempts)
                case facts.Withdrawn():
                    self.count_withdrawn(fact.user_records)
                case facts.Repeated():
                    self.count_repeated(fact.aggregates)

    # --- the figures --------------------------------------------------------------------------------

    @property
    def user_records_pending(self) -> int:
        """The number of user records in the buffer or under way: accepted, without an outcome."""
        return sum(
            one.user_records_accepted
            - one.user_records_put
            - one.user_records_failed
            - one.user_records_expired
            - one.user_records_withdrawn
            for one in (self._past_intervals, self._interval)
        )

    def snapshot(self, now_s: float) -> ProducerSnapshot:
        """Return the figures since the start."""
        with self._lock:
            self._close(now_s)
            whole = self._past_intervals + self._interval
            whole.period_end_s = max(now_s, self._past_intervals.period_end_s)
            return whole

    def interval(self, now_s: float) -> ProducerSnapshot:
        """Return the figures since the last interval, or since the start. All intervals add up to the snapshot."""
        with self._lock:
            self._close(now_s)
            done = self._interval
            self._past_intervals += done
            end_s = done.period_end_s
            self._interval = ProducerSnapshot(period_start_s=end_s, period_end_s=end_s)
            return done

    def _close(self, now_s: float) -> None:
        # The end is never the same twice: of two snapshots of one producer, one has to be the later.
        self._interval.period_end_s = max(now_s, math.nextafter(self._interval.period_start_s, math.inf))
        self._interval.user_records_pending = self.user_records_pending
        self._interval.buffer_bytes = self.buffer_bytes

    def _count_end(self, count: int, latency_s: float | None, attempts: int | None) -> None:
        if latency_s is not None:
            self._interval.latency_s.add(latency_s, count)
        if attempts is not None:
            self._interval.attempts.add(attempts, count)

    def _shard(self, shard_id: str) -> ShardSnapshot:
        if shard_id not in self._shards:
            if len(self._shards) >= SHARDS_MAX:
                shard_id = OTHER_SHARDS
            else:
                self._shards.add(shard_id)
        shards = self._interval.per_shard
        found = shards.get(shard_id)
        if found is None:
            found = shards[shard_id] = ShardSnapshot()
        return found


def event_of(stream: str, fact: Fact) -> Event | None:
    """Return the event for a fact; None for a fact that is only counted."""
    match fact:
        case facts.Refused(shard_id, records, error_code):
            return RecordsRefused(stream, shard_id, records, error_code)
        case facts.Expired():
            return RecordsExpired(stream, fact.shard_id, fact.user_records, fact.doubtful)
        case facts.Failed():
            return RecordsFailed(stream, fact.shard_id, fact.user_records, fact.error_code)
        case facts.Repeated(shard_id, aggregates, user_records):
            return AggregatesRepeated(stream, shard_id, aggregates, user_records)
        case facts.Unknown(records, reason):
            return UnknownOutcome(stream, records, reason)
    return None
