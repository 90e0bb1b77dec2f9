"""The request builder: it fills one request from the lanes that are due and within their pace."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from shardway.core.aggregation.writer import Aggregator
from shardway.core.producer.loads import aggregate_load, plain_load, plain_load_by_key
from shardway.core.producer.request import Load, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.producer.lane import Lane
    from shardway.core.producer.lanes import Lanes
    from shardway.core.producer.limits import BatchLimits
    from shardway.core.producer.settling import Settling

REQUEST_BYTES_ENOUGH = 2 * 1024 * 1024
"""The bytes at which a request gets no further load: the next request goes beside it."""
FRAMING_BYTES = 128
"""The most bytes that a single record takes beside its data and key if it has to be framed, with an aggregate's own
key.
"""
EXAMINED_RECORDS_MAX = 2_000
"""The number of records that are examined in one step with order by key, as their keys may all be on their way. It
takes some milliseconds, and others may run before the next step.
"""


class RequestBuilder:
    """Makes requests of what waits: first what goes again, then what was never sent."""

    def __init__(self, limits: BatchLimits, lanes: Lanes, settling: Settling) -> None:
        self.request_bytes_max = limits.request_bytes_max
        """The most bytes of a request. It falls where the endpoint takes less."""
        self.aggregating = limits.aggregate
        """True while records are put into aggregates."""
        self.wake_at_s = inf
        """The time at which to build again if nothing happens before, after there was no request."""
        self.unfinished: Request | None = None
        """The request that is put together just now. The batcher sets it to None when it has it."""
        self._limits = limits
        self._lanes = lanes
        self._settling = settling
        self._aggregator = self._new_aggregator()
        self._underfull_at_s = -inf  # The time at which a request last went that others could have joined.
        self._examinations_left = EXAMINED_RECORDS_MAX  # The number of records that this step may still examine.
        self._leaves_records = False  # True: the request has no room for some of the records.

    def _new_aggregator(self) -> Aggregator:
        limits = self._limits
        return Aggregator(bytes_max=max(1, min(limits.aggregate_bytes_max, limits.request_bytes_max - 1)))

    def start_over(self) -> None:
        """Forget all records."""
        self._aggregator = self._new_aggregator()
        self.unfinished = None

    def build(self, now_s: float, *, urgent: bool) -> Request | None:
        """Return a request of what may go now, or None. With ``urgent`` nothing lingers."""
        self._examinations_left = EXAMINED_RECORDS_MAX
        active = self._lanes.active
        self.unfinished = request = Request(now_s)
        first = next(iter(active))
        for lane in list(active):
            self._add_retries(request, lane, now_s)
            if request.loads and request.loads[-1].alone:
                break
        else:
            self._add_waiting(request, now_s, urgent=urgent)
        for lane in [lane for lane in active if lane.idle]:
            del active[lane]
        if (request.loads or self._examinations_left <= 0) and first in active:
            # The next request begins with another lane, so that all get their turn.
            del active[first]
            active[first] = None
        return request if request.loads else None

    def _add_retries(self, request: Request, lane: Lane, now_s: float) -> None:
        if lane.predecessors:
            return
        while lane.retry:
            load = lane.retry[0]
            if load.not_before_s > now_s:
                self.wake_at_s = min(self.wake_at_s, load.not_before_s)
                return
            if request.loads and (load.alone or not self._has_room(request, load)):
                self.wake_at_s = now_s
                return
            if not self._may_add(lane, now_s, len(load.entries), load.payload_bytes):
                return
            self._add(request, load, now_s)
            lane.retry.popleft()
            if load.alone:
                return

    def _add_waiting(self, request: Request, now_s: float, *, urgent: bool) -> None:
        """Add records that were not sent before, lane by lane."""
        limits, active = self._limits, self._lanes.active
        due_at_s = self._underfull_at_s + limits.linger_s
        due = urgent or now_s >= due_at_s
        lanes = [lane for lane in active if lane.waiting]
        if not lanes:
            return
        enough = due or self._is_enough(lanes, now_s)
        self._leaves_records = False
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
        elif len(request.loads) > before and not self._is_full(request) and not self._leaves_records:
            self._underfull_at_s = now_s

    def _is_enough(self, lanes: Sequence[Lane], now_s: float) -> bool:
        """True if records that each are an entry fill a request, so that they need not wait for others."""
        limits = self._limits
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
        ordered = self._limits.ordered_by_key
        largest = self._aggregator.bytes_max
        while lane.waiting and not self._is_full(request):
            # In order, a shard has one load on its way: the next may not overtake it.
            if ordered and (lane.predecessors or lane.in_flight or lane.retry or _holds(request, lane)):
                return
            if not due and lane.waiting_bytes < largest:
                return
            most = max(lane.next_bytes(), largest) + FRAMING_BYTES
            if request.loads and request.payload_bytes + most > self.request_bytes_max:
                self.wake_at_s, self._leaves_records = now_s, True
                return
            about = max(lane.next_bytes(), int(min(largest, lane.waiting_bytes)))
            if not self._may_add(lane, now_s, 1, about):
                return
            load = aggregate_load(lane, self._aggregator)
            if lane.rejected:
                self._settling.refuse_rejected(lane, now_s)
                continue
            if load is None:
                return
            self._add(request, load, now_s)

    def _add_plain(self, request: Request, lane: Lane, now_s: float) -> None:
        ordered = self._limits.ordered_by_key
        if ordered and (lane.predecessors or _has_aggregates(lane)):
            return
        records_max = self._limits.request_records_max - len(request.entries)
        bytes_max = self.request_bytes_max - request.payload_bytes
        if lane.pace is not None and lane.waiting:
            if not self._may_add(lane, now_s, 1, lane.next_bytes()):
                return
            paced_records, paced_bytes = lane.pace.allowance(now_s)
            records_max = min(records_max, max(1, paced_records))
            bytes_max = min(bytes_max, max(paced_bytes, lane.next_bytes()))
        first_any = not request.loads
        if ordered:
            load = plain_load_by_key(
                lane, records_max, bytes_max, first_any=first_any, records_examined_max=self._examinations_left
            )
            self._examinations_left -= lane.records_examined
        else:
            load = plain_load(lane, records_max, bytes_max, first_any=first_any)
        if lane.rejected:
            self._settling.refuse_rejected(lane, now_s)
        if load is not None:
            self._add(request, load, now_s)
        if lane.waiting:
            # Either the request is full, or enough was looked at, and the next step follows at once; or the pace says
            # when.
            wait_s = 0.0 if lane.pace is None else lane.pace.wait_s(now_s, 1, lane.next_bytes())
            self.wake_at_s = min(self.wake_at_s, now_s + wait_s)
            self._leaves_records = self._leaves_records or wait_s <= 0

    def _add(self, request: Request, load: Load, now_s: float) -> None:
        request.add(load)
        if load.lane.pace is not None:
            load.lane.pace.take(now_s, len(load.entries), load.payload_bytes)

    def _may_go(self, lane: Lane, now_s: float) -> bool:
        return not lane.predecessors and (lane.pace is None or lane.pace.wait_s(now_s, 1, lane.next_bytes()) <= 0)

    def _may_add(self, lane: Lane, now_s: float, records: int, payload_bytes: int) -> bool:
        """True if the lane may send this many records and bytes now; otherwise note when it may."""
        if lane.pace is None:
            return True
        wait_s = lane.pace.wait_s(now_s, records, payload_bytes)
        if wait_s > 0:
            self.wake_at_s = min(self.wake_at_s, now_s + wait_s)
        return wait_s <= 0

    def _has_room(self, request: Request, load: Load) -> bool:
        return (
            len(request.entries) + len(load.entries) <= self._limits.request_records_max
            and request.payload_bytes + load.payload_bytes <= self.request_bytes_max
        )

    def _is_full(self, request: Request) -> bool:
        return len(request.entries) >= self._limits.request_records_max or request.payload_bytes >= min(
            REQUEST_BYTES_ENOUGH, self.request_bytes_max
        )


def _has_aggregates(lane: Lane) -> bool:
    """True if aggregates that were made before aggregation was switched off have no outcome yet."""
    return bool(lane.in_flight and not lane.busy) or any(load.is_aggregate for load in lane.retry)


def _holds(request: Request, lane: Lane) -> bool:
    return any(load.lane is lane for load in request.loads)
