"""The batcher: it says what to send now, and what an answer means."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from shardway.core.aggregation.writer import Aggregator
from shardway.core.pacing import full_jitter_s
from shardway.core.producer import facts
from shardway.core.producer.lanes import Lanes
from shardway.core.producer.request import Failure, Load, Request
from shardway.core.producer.settling import Settling

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from random import Random

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.lane import Lane
    from shardway.core.producer.limits import BatchLimits
    from shardway.core.producer.outcome import EntryResult
    from shardway.core.producer.request import MakeEntry
    from shardway.core.producer.run import Run
    from shardway.model import ListedShard

REQUEST_BYTES_FORMER = 5 * 1024 * 1024
"""The limit of a request's bytes before large records came (2025), which some endpoints still have."""
REQUEST_BYTES_ENOUGH = 2 * 1024 * 1024
"""The bytes at which a request gets no further load: the next request goes beside it."""
FRAMING_BYTES = 128
"""The most bytes that a single record takes beside its data and key if it has to be framed, with an aggregate's own
key.
"""
LOOKED_AT_RECORDS_MAX = 2_000
"""The number of records that are looked at in one step with order by key, as their keys may all be on their way. It
takes some milliseconds, and others may run before the next step.
"""
STRAYS_MAX = 3
"""The number of times after which aggregation ends because a record was in an aggregate which landed where the record
does not belong: that record goes on its own then, and so do all others.
"""


class Batcher:
    """Collects user records by predicted shard, makes requests of them, and settles them by what is answered.

    ``make_entry(data, partition_key, explicit_hash_key)`` makes an entry as the sink takes it. What a step means for
    others stands in ``settling`` until the caller takes it: the facts, the bytes that are free again, the chunks
    without an outcome.
    """

    def __init__(self, limits: BatchLimits, *, make_entry: MakeEntry, rng: Random) -> None:
        self.limits = limits
        self.request_bytes_max = limits.request_bytes_max
        self.urgent = False
        """True while a flush waits: nothing lingers."""
        self.wake_at_s = inf
        """The time at which to call ``next_request`` again if nothing happens before, after it returned None."""
        self.stale = False
        """True when an answer showed that the shards have changed: ``set_shards`` is due."""
        self._rng = rng
        self._aggregator = self._new_aggregator()
        self.lanes = Lanes(make_entry, limits.pace, rng, ordered=limits.ordered_by_key)
        self.in_flight: dict[Request, None] = {}
        self.making: Request | None = None
        """The request that is put together just now."""
        self.broken = False
        """True when a step was broken off in the middle: `mend` is due."""
        self.salvage: dict[Chunk, dict[int, Any]] | None = None
        """The records that `mend` has found, until all of them are queued again."""
        self.settling = Settling(self.lanes, ordered=limits.ordered_by_key)
        self._underfull_at_s = -inf  # The time at which a request last went that others could have joined.
        self._looks_left = LOOKED_AT_RECORDS_MAX  # The number of records that this step may still look at.
        self._left_over = False  # True: the request that is made leaves records for which it has no room.
        self._pause_until_s = -inf  # Nothing is sent before this time: requests failed as a whole.
        self._failures = 0  # The failures in a row.
        self._strays = 0  # The strays that Settling has noted until now.
        self.aggregating = limits.aggregate
        """False once a record was in STRAYS_MAX aggregates that landed where it does not belong, by fresh maps."""
        self._succeeded = False

    def _new_aggregator(self) -> Aggregator:
        limits = self.limits
        return Aggregator(bytes_max=max(1, min(limits.aggregate_bytes_max, limits.request_bytes_max - 1)))

    def start_over(self, on_their_way: Container[Request]) -> None:
        """Forget all records but those of the requests on their way. The shards may be others: they are to be
        listed.
        """
        self._aggregator = self._new_aggregator()
        self.making = None
        for request in [request for request in self.in_flight if request not in on_their_way]:
            del self.in_flight[request]
        self.settling.start_over()
        self.lanes.start_over(list(self.sent()))
        self.stale = True

    def recount(self) -> None:
        """Count again what has its outcome, and call back: either may have been broken off in the middle."""
        live = self.settling.live
        for chunk in list(live.values()):
            chunk.recount()
            if not chunk.unsettled:
                del live[chunk.number]

    # --- what comes in --------------------------------------------------------------------------

    def add(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes]) -> None:
        """Take the records of a chunk, whose partition keys were checked."""
        self.settling.live[chunk.number] = chunk
        self.lanes.add(chunk, keys, datas)

    def set_shards(self, shards: Sequence[ListedShard] | None, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Follow a new listing (see `Lanes.set_shards`); then decide about what waited for a fresh map."""
        try:
            return self._set_shards(shards, now_s)
        except BaseException:
            self.broken = True
            raise

    def _set_shards(
        self, shards: Sequence[ListedShard] | None, now_s: float
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        change = self.lanes.set_shards(shards, now_s)
        self.stale = False
        if any(change):  # What strayed by the former shards says nothing of these.
            self.aggregating = self.limits.aggregate
            self.settling.strays = self._strays = 0
        if self.settling.decide(now_s):
            self.stale = True
        self._mind_strays(now_s)
        return change

    def sent(self) -> Iterator[Load]:
        """The loads that are on their way."""
        return (load for request in self.in_flight for load in request.loads)

    def expire(self, now_s: float) -> None:
        """Give the records whose time to live has passed their outcome."""
        self.settling.expire(now_s)

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take a record back that was never sent. False if the record was sent, or has its outcome."""
        return self.settling.withdraw(chunk, index)

    def withdrawing(self, chunks: Iterable[Chunk]) -> Iterator[int]:
        """Take back what was never sent of these chunks, in steps, between which nothing may be sent; each step yields
        how many records it took back.
        """
        return self.settling.withdrawing(chunks)

    def give_up_waiting(self, reason: str, now_s: float) -> None:
        """Give up the records that wait: nothing can be put before a person has mended the cause."""
        self.settling.give_up_waiting(reason, now_s)

    def unsettled(self) -> Iterator[tuple[Run, bool]]:
        """Iterate over all records without an outcome, and whether they were sent."""
        return self.settling.unsettled(self.sent())

    def close(self, now_s: float) -> None:
        """Give every record that has no outcome the last one: it is not known to be written."""
        for _ in self.closing(now_s):
            pass

    def closing(self, now_s: float) -> Iterator[None]:
        """See `close`: this does the same, in steps between which others may run."""
        return self.settling.closing(self.in_flight, now_s)

    # --- what goes out --------------------------------------------------------------------------

    def next_request(self, now_s: float) -> Request | None:
        """Return what to send now, or None: then ``wake_at_s`` says when to ask again."""
        self.wake_at_s = inf
        self._looks_left = LOOKED_AT_RECORDS_MAX
        lanes = self.lanes
        if not lanes.active or not lanes.known or self._is_enough_on_its_way():
            return None
        if now_s < self._pause_until_s:
            self.wake_at_s = self._pause_until_s
            return None
        self.making = request = Request(now_s)
        first = next(iter(lanes.active))
        for lane in list(lanes.active):
            self._add_retries(request, lane, now_s)
            if request.loads and request.loads[-1].alone:
                break
        else:
            self._add_waiting(request, now_s)
        for lane in [lane for lane in lanes.active if lane.idle]:
            del lanes.active[lane]
        if (request.loads or self._looks_left <= 0) and first in lanes.active:
            # The next request begins with another lane, so that all get their turn.
            del lanes.active[first]
            lanes.active[first] = None
        if not request.loads:
            self.making = None
            return None
        for load in request.loads:
            load.lane.in_flight += 1
            load.lane.taken = []
        self.in_flight[request] = None
        self.making = None
        return request

    def _is_enough_on_its_way(self) -> bool:
        """True if nothing may be sent before an answer, or a failure, has come."""
        in_flight, limits = self.in_flight, self.limits
        return bool(in_flight) and (
            len(in_flight) >= limits.requests_in_flight_max
            or sum([request.payload_bytes for request in in_flight]) >= limits.in_flight_bytes_max
        )

    def _add_retries(self, request: Request, lane: Lane, now_s: float) -> None:
        if lane.behind:
            return
        while lane.retry:
            load = lane.retry[0]
            if load.not_before_s > now_s:
                self.wake_at_s = min(self.wake_at_s, load.not_before_s)
                return
            if request.loads and (load.alone or not self._has_room(request, load)):
                self.wake_at_s = now_s
                return
            if not self._paced(lane, now_s, len(load.entries), load.payload_bytes):
                return
            self._send(request, load, now_s)
            lane.retry.popleft()
            if load.alone:
                return

    def _add_waiting(self, request: Request, now_s: float) -> None:
        """Add records that were not sent before, lane by lane."""
        limits, active = self.limits, self.lanes.active
        due_at_s = self._underfull_at_s + limits.linger_s
        due = self.urgent or now_s >= due_at_s
        lanes = [lane for lane in active if lane.waiting]
        if not lanes:
            return
        enough = due or self._is_enough(lanes, now_s)
        self._left_over = False
        before = len(request.loads)
        for lane in lanes:
            if self._is_full(request):
                break
            if lane.retry and lane.retry[0].not_before_s <= now_s:
                continue  # It waits for its pace: what is new would take that, and it would wait for ever.
            if self.aggregating and lane.shard is not None:
                self._add_aggregates(request, lane, now_s, due=due)
            elif enough:
                self._add_plain(request, lane, now_s)
        if not due:
            self.wake_at_s = min(self.wake_at_s, due_at_s)
        elif len(request.loads) > before and not self._is_full(request) and not self._left_over:
            self._underfull_at_s = now_s

    def _is_enough(self, lanes: Sequence[Lane], now_s: float) -> bool:
        """True if records that each are an entry fill a request, so that they need not wait for others."""
        limits = self.limits
        records_max, bytes_max = limits.request_records_max, min(REQUEST_BYTES_ENOUGH, self.request_bytes_max)
        plain = [lane for lane in lanes if lane.shard is None] if self.aggregating else lanes

        def fill(lanes: Sequence[Lane]) -> bool:
            return (
                sum([lane.waiting for lane in lanes]) >= records_max
                or sum([lane.waiting_bytes for lane in lanes]) >= bytes_max
            )

        # There are many lanes, and their paces are asked only if it matters.
        return fill(plain) and fill([lane for lane in plain if self._may_go(lane, now_s)])

    def _add_aggregates(self, request: Request, lane: Lane, now_s: float, *, due: bool) -> None:
        ordered = self.limits.ordered_by_key
        largest = self._aggregator.bytes_max
        while lane.waiting and not self._is_full(request):
            # In order, a shard has one load on its way: the next may not overtake it.
            if ordered and (lane.behind or lane.in_flight or lane.retry or _holds(request, lane)):
                return
            if not due and lane.waiting_bytes < largest:
                return
            most = max(lane.next_bytes(), largest) + FRAMING_BYTES
            if request.loads and request.payload_bytes + most > self.request_bytes_max:
                self.wake_at_s, self._left_over = now_s, True
                return
            about = max(lane.next_bytes(), int(min(largest, lane.waiting_bytes)))
            if not self._paced(lane, now_s, 1, about):
                return
            load = lane.take_aggregate(self._aggregator)
            if lane.unmade:
                self.settling.refuse_unmade(lane, now_s)
                continue
            if load is None:
                return
            self._send(request, load, now_s)

    def _add_plain(self, request: Request, lane: Lane, now_s: float) -> None:
        ordered = self.limits.ordered_by_key
        if ordered and (lane.behind or _has_aggregates(lane)):
            return
        records_max = self.limits.request_records_max - len(request.entries)
        bytes_max = self.request_bytes_max - request.payload_bytes
        if lane.pace is not None and lane.waiting:
            if not self._paced(lane, now_s, 1, lane.next_bytes()):
                return
            paced_records, paced_bytes = lane.pace.allowance(now_s)
            records_max = min(records_max, max(1, paced_records))
            bytes_max = min(bytes_max, max(paced_bytes, lane.next_bytes()))
        first_any = not request.loads
        if ordered:
            load = lane.take_by_key(records_max, bytes_max, first_any=first_any, looks_max=self._looks_left)
            self._looks_left -= lane.looked_at
        else:
            load = lane.take_plain(records_max, bytes_max, first_any=first_any)
        if lane.unmade:
            self.settling.refuse_unmade(lane, now_s)
        if load is not None:
            self._send(request, load, now_s)
        if lane.waiting:
            # Either the request is full, or enough was looked at, and the next step follows at once; or the pace says
            # when.
            wait_s = 0.0 if lane.pace is None else lane.pace.wait_s(now_s, 1, lane.next_bytes())
            self.wake_at_s = min(self.wake_at_s, now_s + wait_s)
            self._left_over = self._left_over or wait_s <= 0

    def _send(self, request: Request, load: Load, now_s: float) -> None:
        request.add(load)
        if load.lane.pace is not None:
            load.lane.pace.take(now_s, len(load.entries), load.payload_bytes)

    def _may_go(self, lane: Lane, now_s: float) -> bool:
        return not lane.behind and (lane.pace is None or lane.pace.wait_s(now_s, 1, lane.next_bytes()) <= 0)

    def _paced(self, lane: Lane, now_s: float, records: int, payload_bytes: int) -> bool:
        """True if the lane may send this many records and bytes now; otherwise note when it may."""
        if lane.pace is None:
            return True
        wait_s = lane.pace.wait_s(now_s, records, payload_bytes)
        if wait_s > 0:
            self.wake_at_s = min(self.wake_at_s, now_s + wait_s)
        return wait_s <= 0

    def _has_room(self, request: Request, load: Load) -> bool:
        return (
            len(request.entries) + len(load.entries) <= self.limits.request_records_max
            and request.payload_bytes + load.payload_bytes <= self.request_bytes_max
        )

    def _is_full(self, request: Request) -> bool:
        return len(request.entries) >= self.limits.request_records_max or request.payload_bytes >= min(
            REQUEST_BYTES_ENOUGH, self.request_bytes_max
        )

    # --- what comes back ------------------------------------------------------------------------

    def answered(self, request: Request, results: Sequence[EntryResult], now_s: float) -> None:
        """Take the service's answer: one result for each entry."""
        if request not in self.in_flight:
            return  # The batcher was closed meanwhile: its records have their outcome.
        self._failures, self._succeeded, self._pause_until_s = 0, True, -inf
        self.settling.trouble = ""
        start = 0
        for load in request.loads:
            stop = start + len(load.entries)
            again = self.settling.answered(load, results[start:stop], now_s)
            if again is not None:
                self._again(again, now_s)
            self.stale = self.stale or self.settling.saw_another_shard
            start = stop
        self.settling.saw_another_shard = False
        self._mind_strays(now_s)
        del self.in_flight[request]

    def _mind_strays(self, now_s: float) -> None:
        """Pause, and at last stop aggregating, where records stray. A record strays once or twice where a stream is
        split. More often it would be written again for ever.
        """
        strays, before, self._strays = self.settling.strays, self._strays, self.settling.strays
        if strays > max(1, before):
            wait_s = full_jitter_s(
                strays, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
            )
            self._pause_until_s = now_s + wait_s
            # If the stream answers wrong shard ids, no map helps, and each aggregate would be put again for ever.
            self.aggregating = self.aggregating and strays < STRAYS_MAX

    def failed(self, request: Request, failure: Failure, reason: str, now_s: float) -> None:
        """Take the failure of a request as a whole. ``reason`` is an error code, or the class of the error."""
        if request not in self.in_flight:
            return
        if failure is Failure.INVALID:
            self._isolate(request, reason, now_s)
        else:
            self._failed(request, failure, reason, now_s)
        del self.in_flight[request]

    def _failed(self, request: Request, failure: Failure, reason: str, now_s: float) -> None:
        self.settling.trouble = reason
        self._failures += 1
        self._pause_until_s = now_s + full_jitter_s(
            self._failures, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
        )
        if failure is Failure.UNKNOWN:
            self.settling.facts_made.append(facts.Unknown(len(request.entries), reason))
        for load in request.loads:
            load.reason = reason
            load.doubtful = load.doubtful or failure is Failure.UNKNOWN
            if failure is Failure.THROTTLED and load.lane.pace is not None:
                load.lane.pace.refused(now_s, len(load.entries), load.payload_bytes)
            if failure is Failure.DENIED and not self._succeeded:
                # Nothing ever went through: it is set up wrong, and its user should hear of it now.
                self.settling.give_up(load, reason, now_s)
            else:
                self._again(load, now_s)

    def _isolate(self, request: Request, reason: str, now_s: float) -> None:
        """Find out which entry spoils a request, by sending its halves."""
        if len(request.entries) == 1:
            self.settling.give_up(request.loads[0], reason, now_s, invalid=True)
            return
        if request.payload_bytes > REQUEST_BYTES_FORMER:
            self.request_bytes_max = min(self.request_bytes_max, REQUEST_BYTES_FORMER)
        for load in request.loads:
            load.reason = reason
            halves = [load] if len(request.loads) > 1 or load.is_aggregate else self.settling.halves(load)
            for half in halves:
                half.alone = True
            self.settling.queue_again(halves, now_s)
            self.lanes.came_back(load.lane)

    def _again(self, load: Load, now_s: float) -> None:
        load.not_before_s = now_s + full_jitter_s(
            load.attempts, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
        )
        self.settling.queue_again([load], now_s)
        self.lanes.came_back(load.lane)


def _has_aggregates(lane: Lane) -> bool:
    """True if aggregates that were made before aggregation was switched off have no outcome yet."""
    return bool(lane.in_flight and not lane.busy) or any(load.is_aggregate for load in lane.retry)


def _holds(request: Request, lane: Lane) -> bool:
    return any(load.lane is lane for load in request.loads)
