"""The planner chooses the time at which the next batch is cut, and finds the record at which the batch ends in each
shard.

In one plan it looks at the shards that may be read now (a child only after its parents), chooses the time, finds where
each shard ends at that time, and writes both ends of every range into an offset. It reads a
few records per shard, or all of them where they are few and small: then tasks need not read them again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import StreamSummary
from shardway.core.leases.row import LeaseRow
from shardway.core.lineage import Lineage
from shardway.errors import InvalidArgumentError, NotFoundError
from shardway.model import StartingPosition, StreamName
from shardway.spark.driver.carried_records import CarriedRecords
from shardway.spark.driver.cut_choice import CutChoice
from shardway.spark.driver.cut_lag import CutLag
from shardway.spark.driver.cut_step import CutStep
from shardway.spark.driver.cut_wait import CutWait, WaitedShards
from shardway.spark.driver.grouping import ranges_of
from shardway.spark.driver.loss_check import LossCheck, silence_error
from shardway.spark.driver.offset_draft import OffsetDraft
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_ends import EndSearch, ShardEnd
from shardway.spark.driver.shard_looks import LOOK_RECORDS, ShardLooks
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.lookahead.losses import LossPolicy
from shardway.spark.lookahead.stream_calls import CROSSING_PAGES_MAX, StreamCalls, patience
from shardway.spark.offsets import StreamOffset
from shardway.spark.options.caps import UNCAPPED, Caps
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.positions import Kind
from shardway.spark.ranges import EndKind, ShardRange

log = logging.getLogger("shardway.spark")

STANDING_PLANS_MAX = 3
"""The number of plans up to a fixed end that find unread records and no end for them, before that is an error."""
CROSSING_KEPT_S = 10.0
"""Seconds, about, between two times that the offset log learns how far shards have come over a silence; where there are
no rows, a batch without rows says it.
"""

_NO_LEASES: Mapping[str, LeaseRow] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of the planning of batches: those that a query's options say, and bounds that no query changes."""

    caps: Caps
    tasks_max: int
    fail_on_data_loss: bool
    poll_interval_s: float
    cut_lag_ms: int
    """The most milliseconds by which a live batch is cut behind the service's clock; they are fewer where shards are
    busy.
    """
    outage_s: float
    """How many seconds a call is repeated before the plan fails."""
    listing_interval_s: float = 60.0
    calls_max: int = 64
    """The most calls that are under way at the same time."""
    crossing_pages_max: int = CROSSING_PAGES_MAX
    """The most empty pages that one look follows over a silence."""

    @classmethod
    def of(cls, options: ReadOptions) -> PlanOptions:
        """Return what the options of a query say."""
        return cls(
            caps=options.caps,
            tasks_max=options.max_partitions,
            fail_on_data_loss=options.fail_on_data_loss,
            poll_interval_s=options.poll_interval_s,
            cut_lag_ms=options.cut_lag_ms,
            outage_s=options.outage_s,
        )


class Planner:
    """Plans the batches of one query, on one event loop. It is not for concurrent use."""

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamName,
        start: StartingPosition,
        options: PlanOptions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._monotonic = monotonic
        self.losses = LossPolicy(stream, fail=options.fail_on_data_loss)
        calls = StreamCalls(
            client,
            stream,
            asyncio.Semaphore(options.calls_max),
            crossing_pages_max=options.crossing_pages_max,
            monotonic=monotonic,
            retry=patience(options.outage_s),
        )
        self._calls = calls
        self._book = ShardBook(calls, start, self.losses, options.listing_interval_s)
        self._check = LossCheck(self._book, calls, self.losses)
        self._looks = ShardLooks(self._book, calls, self._check, options.poll_interval_s, monotonic)
        self._search = EndSearch(self._book, self._looks)
        self._draft = OffsetDraft(self._book, self.losses, options.tasks_max)
        self._choice = CutChoice(self._book, calls, self._looks, self._search)
        self._step = CutStep(self._book, self._search, self._draft)
        self._wait = CutWait()
        self._cut_lag = CutLag(options.cut_lag_ms)
        self._offset: StreamOffset | None = None
        self._until_ms: int | None = None
        self._newest_ends: dict[str, ShardEnd] = {}
        self._written_s = monotonic()
        self.more = False
        """True where the newest batch was cut before all that could be read: the next one need not wait."""
        self.carried = CarriedRecords()
        """The records of the newest batch that its tasks need not read."""
        self.is_carried = False
        """True where a look at each shard brought the whole of the newest batch: tasks need no calls, and the driver
        made no more of them. So the next batch may follow sooner.
        """

    @property
    def offset(self) -> StreamOffset | None:
        """The end of the newest batch that was planned or resumed from; None before the first."""
        return self._offset

    @property
    def lineage(self) -> Lineage:
        """The lineage of all shards that are known."""
        return self._book.lineage

    @property
    def summary(self) -> StreamSummary:
        """The service's summary of the stream."""
        return self._book.summary

    @property
    def waits(self) -> WaitedShards:
        """The shards that the cut of the newest plan waited for."""
        return self._wait.now

    @property
    def is_waiting(self) -> bool:
        """True when a record was seen that no batch has taken yet."""
        return any(state.look is not None and state.look.first is not None for state in self._book.states.values())

    def service_ms(self) -> int:
        """Return the service's time, at least, in epoch milliseconds."""
        return self._calls.service_ms()

    def service_ms_upper(self) -> int:
        """Return the service's time, at most, in epoch milliseconds."""
        return self._calls.service_ms_upper()

    def lag_ms(self) -> int:
        """Return how long the oldest unread record that is known has been waiting, or how far behind a shard is that
        crosses a silence, in milliseconds; 0 when there is neither.
        """
        states = self._book.states
        waiting = [s.look.first.arrival_ms for s in states.values() if s.look is not None and s.look.first]
        crossing = (states[one] for one in (*self.waits.shards, *self.waits.left_out) if one in states)
        waiting += [max(one.reached_ms(), self._book.horizon_ms()) for one in crossing]
        return max(0, self.service_ms() - min(waiting)) if waiting else 0

    async def begin(self, stored: StreamOffset | None, leases: Mapping[str, LeaseRow] = _NO_LEASES) -> None:
        """Learn of the stream and take a place in it: where a stored offset says, else leases, else at the start.

        ``leases`` are those of the query's application, by shard.
        """
        if stored is not None:
            self.losses.count += stored.losses
        self._offset = await self._book.begin(stored, leases)

    async def plan(self, *, until_ms: int | None = None, capped: bool = True, at_once: bool = False) -> StreamOffset:
        """Return the end of the next batch; the same offset as before when there is nothing to read.

        ``until_ms``: cut no batch later than this time (AvailableNow); it must not be ahead of the service's clock.
        Without it, a batch is cut a little before now. While shards are searched over a long silence, a batch without
        rows keeps how far they have come; with ``at_once`` there is no such batch, but the plan waits for all of them.
        """
        caps = self._options.caps if capped else UNCAPPED
        # A shard that was closed before a frozen end must be known as closed: else its tip looks like the end of all.
        frozen, self._until_ms = until_ms is not None and until_ms != self._until_ms, until_ms
        await self._book.refresh(now=frozen)
        try:
            return await self._plan(until_ms, caps, at_once)
        except (NotFoundError, InvalidArgumentError):
            # An iterator or a shard is gone: the stream may be another one by now, or what was unread of the shard is
            # past the retention. Or this machine's clock was set forward, which the answers put right.
            await self._book.refresh(now=True)
            return await self._plan(until_ms, caps, at_once)

    async def plan_whole(self, until_ms: int) -> StreamOffset:
        """Plan one batch from where the query stands to a time, for a batch read."""
        while True:  # shards that were followed to their ends make room for their children
            await self._looks.look_around()
            startable = self._book.startable()
            if not any(state.crosses(until_ms) for state in startable):
                break
            await self._looks.cross(startable, until_ms)
        ends = await self._search.find(self._unread_before(until_ms), until_ms, LOOK_RECORDS, whole=True)
        return self._draft.offset(until_ms, ends)

    def ranges(self, offset: StreamOffset) -> list[ShardRange]:
        """Return the ranges of the batch that ends at this offset."""
        return ranges_of(offset, self.lineage.shards, at_risk_before_ms=self._book.risk_before_ms())

    async def readable(self, ranges: Iterable[ShardRange]) -> list[ShardRange]:
        """Return the ranges that can still be read, wholly or in part; the policy reports losses."""
        return await self._check.readable(list(ranges))

    async def _plan(self, until_ms: int | None, caps: Caps, at_once: bool) -> StreamOffset:
        standing = 0
        while True:
            self.more = False
            self._looks.begin()
            await self._looks.look_around()
            latest_ms = until_ms if until_ms is not None else self._looks.seen_until_ms() - self._cut_lag.ms
            waits = self._wait_for(latest_ms)
            if until_ms is None:
                return await self._plan_live(latest_ms, waits, caps)
            # Up to a fixed end no shard may be left out: each is followed for as long as it moves.
            self._check_waits(waits)
            searched = waits.shards or waits.left_out
            if searched and at_once:
                continue
            before = self._offset
            offset = await self._plan_before(latest_ms, waits, caps)
            if offset is not before:
                return offset
            unread = self._unread_before(latest_ms)
            if not searched and not unread:
                return offset
            standing += not searched
            if standing >= STANDING_PLANS_MAX:
                raise silence_error(unread[0].shard_id)

    async def _plan_live(self, latest_ms: int, waits: WaitedShards, caps: Caps) -> StreamOffset:
        """Plan a batch that is cut a little before now, and decide by how much the next one is."""
        self._newest_ends = {}
        offset = await self._plan_before(latest_ms, waits, caps)
        ends = self._newest_ends.values()
        if offset.cut_ms >= latest_ms:  # else it was cut in a backlog
            self._cut_lag.note_batch(len(ends), sum(end.bound.kind is EndKind.INCLUSIVE for end in ends))
        return offset

    async def _plan_before(self, latest_ms: int, waits: WaitedShards, caps: Caps) -> StreamOffset:
        """Plan a batch that is cut at a time, or where the slowest shard is."""
        until_ms = latest_ms if waits.until_ms is None else min(latest_ms, waits.until_ms)
        unread = self._unread_before(until_ms)
        self.more = bool(waits.shards)
        if not unread:
            return self._without_rows(until_ms)
        cut_ms, ends = await self._choice.choose(unread, until_ms, caps)
        cut_ms, ends = await self._step.keep(unread, cut_ms, ends)
        self.more = self.more or cut_ms < latest_ms
        return self._take(cut_ms, ends)

    def _unread_before(self, cut_ms: int) -> list[ShardState]:
        return [state for state in self._book.startable() if state.is_unread_before(cut_ms)]

    def _wait_for(self, latest_ms: int) -> WaitedShards:
        """Find which shards cross a silence, after they were looked at, and decide which of them the cut waits for."""
        crossing = [state for state in self._book.startable() if state.crosses(latest_ms)]
        before = self._wait.now
        waits = self._wait.note_looks({state.shard_id: state.reached_ms() for state in crossing}, self._monotonic())
        for shard_id in set(waits.left_out) - set(before.left_out):
            log.warning(
                "stream %s, shard %s: its next record was searched for long, over a silence; other shards wait for it "
                "no more, so its rows may come later than theirs, and a watermark may take them for late",
                self._calls.stream,
                shard_id,
            )
        return waits

    def _check_waits(self, waits: WaitedShards) -> None:
        """Raise StalledError for a shard that stands still: what must be read up to an end cannot leave a shard out. A
        shard that moves is waited for, however long.
        """
        for shard_id in waits.left_out:
            if self._wait.stands(shard_id, self._monotonic()):
                raise silence_error(shard_id)

    def _take(self, cut_ms: int, ends: dict[str, ShardEnd]) -> StreamOffset:
        if not ends:
            return self._without_rows(cut_ms)
        self._offset = self._draft.offset(cut_ms, ends)
        self._carry(ends)
        self._newest_ends = ends
        self._written_s = self._monotonic()
        for shard_id, end in ends.items():
            state = self._book.states[shard_id]
            state.position = self._offset.shards[shard_id]
            state.look = end.behind
        return self._offset

    def _carry(self, ends: dict[str, ShardEnd]) -> None:
        """Keep the records of the batch for its tasks, where all of a range was seen."""
        self.carried, self.is_carried = CarriedRecords(), not self._looks.has_searched
        for shard_id, end in ends.items():
            state = self._book.states[shard_id]
            look = state.lookahead
            entries = look.entries(end.bound)
            if entries and self.carried.add(shard_id, look.records[0].sequence_number, end.bound, entries):
                state.attempts.note_success()
            else:
                self.is_carried = False

    def _without_rows(self, cut_ms: int) -> StreamOffset:
        """Return the offset as it was; or, before the first batch and when old positions must be refreshed, the end of
        an empty batch.

        Silence must not look like loss after a restart: the times of idle shards are stored again well before the
        retention passes them.
        """
        fresh = self._draft.offset(cut_ms, {})
        if self._offset is not None:
            old_before_ms = self.service_ms() - self._book.retention_ms // 4
            crossing = {*self._wait.now.shards, *self._wait.now.left_out}
            moved = {
                shard_id
                for shard_id, position in self._offset.shards.items()
                if position.kind is not Kind.ENDED and fresh.shards.get(shard_id, position) != position
            }
            stale = any(self._offset.shards[one].witness_ms < old_before_ms for one in moved - crossing)
            kept = moved.isdisjoint(crossing) or self._monotonic() - self._written_s < CROSSING_KEPT_S
            if kept and not stale:
                return self._offset
        self._offset = fresh
        self._written_s = self._monotonic()
        return fresh
