"""The driver's planner finds the exact ends of the next batch from the shards' tips.

In one plan it looks at the shards that may be read now (a child only after its parents), chooses the time at which the
batch is cut, finds where each shard ends at that time, and writes both ends of every range into an offset. It reads a
few records per shard, or all of them where they are few and small: then tasks need not read them again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shardway.aws.kinesis import KinesisClient, StreamSummary
from shardway.core.leases.row import LeaseRow
from shardway.core.lineage import Lineage
from shardway.errors import InvalidArgumentError, NotFoundError
from shardway.model import StartingPosition, StreamName
from shardway.spark.carried import SPAN_MS_MAX, Carried, shard_bytes_max
from shardway.spark.cut import (
    SHARD_ROWS_PER_MS,
    CutLag,
    CutSearch,
    CutWait,
    WaitedShards,
    expected,
    latest_cut_within,
    latest_sure_cut,
    total_share,
)
from shardway.spark.lookahead import (
    CROSSING_PAGES_MAX,
    OUTAGE_S,
    PROBE_PAGES_MAX,
    Bound,
    KnownRecord,
    Lookahead,
    LossPolicy,
    Probes,
    Tail,
    patience,
    together,
)
from shardway.spark.offsets import Kind, RangeStart, ShardPosition, StreamOffset
from shardway.spark.options import UNCAPPED, Caps
from shardway.spark.ranges import (
    FULL_RATE_BYTES_PER_MS,
    ROW_COST_BYTES,
    EndKind,
    ShardRange,
    chains_of,
    ranges_of,
    tasks_for,
)
from shardway.spark.shards import ShardBook, ShardState, nothing_came

log = logging.getLogger("shardway.spark")

CUT_LAG_MS = 500
"""The most milliseconds by which a live batch is cut behind the service's clock: most shards then have a record after
the cut.
"""
LOOK_RECORDS = 10
"""The number of records that one look at a shard asks for where nothing is capped."""
SAMPLE_RECORDS_MAX = 1000
"""The most records that one look asks for where the batch is capped: they give the shard's rate."""
SAMPLE_BYTES_MAX = 8 * 2**20
"""Bytes, about, that the samples of all shards may bring together."""
SAMPLE_SHARDS = 512
"""The number of shards above which the samples get no smaller."""
SAMPLE_ROUNDS_MAX = 4
"""How many times more is looked at than the first samples, each time twice as much."""
LOOK_RECORDS_MAX = 10_000
"""The most records that one call gives (AWS API reference, GetRecords)."""
READ_ON_PAGES_MAX = 4
"""The most pages with records that are read on behind the first look where nothing is found at the cut."""
ENOUGH = 0.75
"""The part of its cap from which on an expected batch is not worth more samples."""
STANDING_PLANS_MAX = 3
"""The number of plans up to a fixed end that find unread records and no end for them, before that is an error."""
CROSSING_KEPT_S = 10.0
"""Seconds, about, after which it is stored how far shards have come over a silence, if need be in a batch without rows.
"""
SAMPLE_SHARE = 0.5
"""The part of a capped batch that the samples of all shards may have at most, where that is fewer records."""


_NO_LEASES: Mapping[str, LeaseRow] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of the planning of batches."""

    caps: Caps = UNCAPPED
    tasks_max: int = 100
    fail_on_data_loss: bool = True
    poll_interval_s: float = 1.0
    cut_lag_ms: int = CUT_LAG_MS
    """The most milliseconds by which a live batch is cut behind the service's clock; they are fewer where shards are
    busy.
    """
    listing_interval_s: float = 60.0
    outage_s: float = OUTAGE_S
    """Seconds for which a call is repeated before the plan fails."""
    calls_max: int = 64
    """The most calls that are under way at the same time."""
    crossing_pages_max: int = CROSSING_PAGES_MAX
    """The most empty pages that one look follows over a silence."""


@dataclass(slots=True)
class _End:
    """The end of a shard's range in the batch that is being planned, and what is known behind it."""

    bound: Bound
    behind: Lookahead

    def short_ms(self, cut_ms: int) -> int | None:
        """Return where the shard is in a silence that is not crossed up to the cut; None where it is in none."""
        behind = self.behind
        if self.bound.kind is not EndKind.INCLUSIVE or not behind.crossing or behind.reached_ms >= cut_ms:
            return None
        return max(behind.reached_ms, self.bound.witness_ms)


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
        probes = Probes(
            client,
            stream,
            asyncio.Semaphore(options.calls_max),
            crossing_pages_max=options.crossing_pages_max,
            monotonic=monotonic,
            retry=patience(options.outage_s),
        )
        self._probes = probes
        self._book = ShardBook(probes, start, self.losses, options.listing_interval_s)
        self._offset: StreamOffset | None = None
        self._until_ms: int | None = None
        self._began_s = 0.0
        """The time at which the newest plan began: all shards that it looks at are due together."""
        self._wait = CutWait()
        self._cut_lag = CutLag(options.cut_lag_ms)
        self._newest_ends: dict[str, _End] = {}
        self._written_s = monotonic()
        self.more = False
        """True where the newest batch was cut before all that could be read: the next one need not wait."""
        self.carried = Carried()
        """The records of the newest batch that its tasks need not read."""
        self.is_carried = False
        """True where a look at each shard brought the whole of the newest batch: tasks need no calls, and the driver
        made no more of them. So the next batch may follow sooner.
        """
        self._has_searched = False
        """True where this plan asked for more than one look at each shard brings."""

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

    def service_ms(self) -> int:
        """Return the service's time, at least, in epoch milliseconds."""
        return self._probes.service_ms()

    def service_ms_upper(self) -> int:
        """Return the service's time, at most, in epoch milliseconds."""
        return self._probes.service_ms_upper()

    @property
    def is_waiting(self) -> bool:
        """True when a record was seen that no batch has taken yet."""
        return any(state.look is not None and state.look.first is not None for state in self._book.states.values())

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

    async def _plan(self, until_ms: int | None, caps: Caps, at_once: bool) -> StreamOffset:
        standing = 0
        while True:
            self.more, self._has_searched, self._began_s = False, False, self._monotonic()
            self._book.doubt_old()
            await self._look_around()
            latest_ms = until_ms if until_ms is not None else self._seen_until_ms() - self._cut_lag.ms
            waits = self._waits(latest_ms)
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
            unread = [state for state in self._book.startable() if _unread_before(state, latest_ms)]
            if not searched and not unread:
                return offset
            standing += not searched
            if standing >= STANDING_PLANS_MAX:
                raise nothing_came(unread[0].shard_id)

    def _seen_until_ms(self) -> int:
        """Return the service's time, at least, up to which no look of this plan can have missed a record."""
        looks = (state.look for state in self._book.startable())
        asked = (
            look.asked_ms
            for look in looks
            if look is not None and look.records and look.beyond is Tail.TIP and look.asked_s >= self._began_s
        )
        return min(asked, default=self.service_ms())

    async def _plan_live(self, latest_ms: int, waits: WaitedShards, caps: Caps) -> StreamOffset:
        """Plan a batch that is cut a little before now, and decide by how much the next one is."""
        self._newest_ends = {}
        offset = await self._plan_before(latest_ms, waits, caps)
        ends = self._newest_ends.values()
        if offset.cut_ms >= latest_ms:  # else it was cut in a backlog
            self._cut_lag.found(len(ends), sum(end.bound.kind is EndKind.INCLUSIVE for end in ends))
        return offset

    async def _plan_before(self, latest_ms: int, waits: WaitedShards, caps: Caps) -> StreamOffset:
        """Plan a batch that is cut at a time, or where the slowest shard is."""
        until_ms = latest_ms if waits.until_ms is None else min(latest_ms, waits.until_ms)
        unread = [state for state in self._book.startable() if _unread_before(state, until_ms)]
        self.more = bool(waits.shards)
        if not unread:
            return self._without_rows(until_ms)
        cut_ms, ends = await self._choose(unread, until_ms, caps)
        cut_ms, ends = await self._cut_in_step(unread, cut_ms, ends)
        self.more = self.more or cut_ms < latest_ms
        return self._take(cut_ms, ends)

    async def plan_whole(self, until_ms: int) -> StreamOffset:
        """Plan one batch from where the query stands to a time, for a batch read."""
        while True:  # shards that were followed to their ends make room for their children
            await self._look_around()
            startable = self._book.startable()
            if not any(_crosses(state, until_ms) for state in startable):
                break
            await self._cross(startable, until_ms)
        unread = [state for state in self._book.startable() if _unread_before(state, until_ms)]
        return self._draft(until_ms, await self._ends(unread, until_ms, LOOK_RECORDS, whole=True))

    def ranges(self, offset: StreamOffset) -> list[ShardRange]:
        """Return the ranges of the batch that ends at this offset."""
        return ranges_of(offset, self.lineage.shards, at_risk_before_ms=self._book.risk_before_ms())

    async def check(self, ranges: Iterable[ShardRange]) -> list[ShardRange]:
        """Return the ranges that can still be read, wholly or in part; the policy reports losses."""
        return await self._book.check(list(ranges))

    # --- silence ---------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> WaitedShards:
        """The shards for which the cut of the newest plan waited."""
        return self._wait.now

    def _waits(self, latest_ms: int) -> WaitedShards:
        """Find which shards cross a silence, after they were looked at, and decide for which of them the cut waits."""
        crossing = [state for state in self._book.startable() if _crosses(state, latest_ms)]
        before = self._wait.now
        waits = self._wait.looked({state.shard_id: state.reached_ms() for state in crossing}, self._monotonic())
        for shard_id in set(waits.left_out) - set(before.left_out):
            log.warning(
                "stream %s, shard %s: its next record was searched for long, over a silence; other shards wait for it "
                "no more, so its rows may come later than theirs, and a watermark may take them for late",
                self._probes.stream,
                shard_id,
            )
        return waits

    def _check_waits(self, waits: WaitedShards) -> None:
        """Raise StalledError for a shard that stands still: what must be read up to an end cannot leave a shard out. A
        shard that moves is waited for, however long.
        """
        for shard_id in waits.left_out:
            if self._wait.stands(shard_id, self._monotonic()):
                raise nothing_came(shard_id)

    async def _cross(self, states: Iterable[ShardState], until_ms: int) -> None:
        """Look on until each of these shards has its next record seen, or nothing before that time. Raises StalledError
        for a shard that stands still.
        """
        wait = CutWait()
        looked = list(states)
        while crossing := [state for state in looked if _crosses(state, until_ms)]:
            now_s = self._monotonic()
            wait.looked({state.shard_id: state.reached_ms() for state in crossing}, now_s)
            for state in crossing:
                if wait.stands(state.shard_id, now_s):
                    raise nothing_came(state.shard_id)
            await together(self._look(state) for state in crossing)

    async def _cut_in_step(
        self, unread: list[ShardState], cut_ms: int, ends: dict[str, _End]
    ) -> tuple[int, dict[str, _End]]:
        """Cut earlier where a shard is in a silence that is not crossed yet, and at a reshard where that is due."""
        while True:
            cut_ms, ends = await self._cut_at_generation(unread, cut_ms, ends)
            slowest_ms = self._slowest_ms(cut_ms, ends)
            if slowest_ms is None:
                return cut_ms, ends
            cut_ms = slowest_ms
            ends = await self._ends(unread, cut_ms, LOOK_RECORDS)

    def _slowest_ms(self, cut_ms: int, ends: dict[str, _End]) -> int | None:
        """Return how far the slowest shard has come that ends in a silence before the cut or whose parents end here."""
        finished = {shard_id for shard_id, end in ends.items() if end.bound.kind is EndKind.SHARD_END}
        reached = [short_ms for end in ends.values() if (short_ms := end.short_ms(cut_ms)) is not None]
        reached += [
            state.reached_ms()
            for state in self._book.states.values()
            if not finished.isdisjoint(state.shard.parents)
            and self._book.may_start(state, finished)
            and _crosses(state, cut_ms)
            and 0 < _look(state).reached_ms < cut_ms
        ]
        return min(reached, default=None)

    # --- looking -------------------------------------------------------------------------------------------------

    async def _look_around(self) -> None:
        """Open what was never looked at, and poll the tips that are due; shards found empty and closed end here."""
        while True:
            startable = self._book.startable()
            self._probes.entry_bytes_max = shard_bytes_max(len(startable))
            await together(self._look(state) for state in startable if self._look_due(state))
            # Some were found empty earlier, when their parents were not read to their ends yet.
            ended = [state for state in startable if state.look is not None and state.look.exhausted]
            for state in ended:
                assert state.look is not None
                state.position = state.position.finished(state.look.tip_seen_ms)
            if not ended:
                return
            await self._book.children_of(ended)

    def _look_due(self, state: ShardState) -> bool:
        look = state.look
        if look is None:
            return True
        if look.beyond is not Tail.TIP:
            return look.beyond is Tail.UNKNOWN and (not look.records or self._may_see_all(state))
        if state.probe.closed:  # it was open when its tip was seen
            return True
        return not look.quiet or state.pace.due(self._began_s)

    async def _look(self, state: ShardState) -> None:
        if state.look is None or not state.look.crossing:  # a shard that crosses a silence is followed, and not polled
            state.pace.looked(self._began_s, self._options.poll_interval_s)
        records_max = self._look_records(state)
        if state.look is None or state.stored:
            state.look = await self._book.open(state, records_max)
            return
        more = await state.probe.extend(state.look, state.stored_form(), records_max)
        if self._book.overtaken(state):
            # The answer says how late it is: this machine stood still, and what was trimmed meanwhile is not in it.
            self._book.doubt(state)
            more = await self._book.open(state, LOOK_RECORDS)
        state.look = more

    def _may_see_all(self, state: ShardState) -> bool:
        """True when one look may bring all that is new in the shard: it is about caught up, and its records are small
        and were few.
        """
        if not state.attempts.may(self._began_s) or state.probe.records_to_keep() <= LOOK_RECORDS:
            return False
        first = None if state.look is None else state.look.first
        return first is None or first.arrival_ms >= self.service_ms() - SPAN_MS_MAX

    def _look_records(self, state: ShardState) -> int:
        state.attempts.asked_all = self._may_see_all(state)
        return state.probe.records_to_keep() if state.attempts.asked_all else LOOK_RECORDS

    def _sample_records(self, caps: Caps, shards: int) -> int:
        if caps.none:
            return LOOK_RECORDS
        if caps.rows is None:
            return SAMPLE_RECORDS_MAX
        return max(LOOK_RECORDS, min(SAMPLE_RECORDS_MAX, int(caps.rows * SAMPLE_SHARE / max(shards, 1))))

    # --- choosing the cut ----------------------------------------------------------------------------------------

    async def _choose(self, unread: list[ShardState], latest_ms: int, caps: Caps) -> tuple[int, dict[str, _End]]:
        """Return the time at which the batch is cut, and where each shard ends at it."""
        records_max = self._sample_records(caps, len(unread))
        self._probes.sample_bytes_max = max(SAMPLE_BYTES_MAX // SAMPLE_SHARDS, SAMPLE_BYTES_MAX // len(unread))
        if caps.none:
            return latest_ms, await self._ends(unread, latest_ms, records_max)
        await together(self._sample(state, records_max) for state in unread)
        first_ms = min(_first(state).arrival_ms for state in unread)
        cut_ms, sure_ms = await self._sure_cut(unread, first_ms + 1, latest_ms, caps, records_max)
        search = CutSearch(first_ms, sure_ms)
        while True:
            ends = await self._ends(unread, cut_ms, records_max)
            looks = {shard_id: _look(self._book.states[shard_id]) for shard_id in ends}
            sure_ms = latest_sure_cut(caps, list(looks.values()), first_ms + 1, cut_ms)
            if sure_ms < cut_ms:  # children begin in the batch that were not known before
                search.keep_below(sure_ms)
                cut_ms = sure_ms
                continue
            share = total_share(caps, [expected(looks[one], cut_ms, end.behind) for one, end in ends.items()])
            next_ms = min((end.behind.first.arrival_ms for end in ends.values() if end.behind.first), default=latest_ms)
            better_ms = search.next_cut(cut_ms, share, next_ms) if cut_ms < latest_ms or share > 1 else None
            if better_ms is None:
                return cut_ms, ends
            cut_ms = better_ms

    async def _sure_cut(
        self, unread: list[ShardState], earliest_ms: int, latest_ms: int, caps: Caps, records_max: int
    ) -> tuple[int, int]:
        """Return (a cut at which the batch is expected to be full, the latest one at which it surely keeps within its
        bound).

        Where the bound alone would leave the batch small, more is looked at, since what was seen needs no bound.
        """
        for more in range(SAMPLE_ROUNDS_MAX + 1):
            looks = [_look(state) for state in unread]
            wanted_ms = latest_cut_within(caps, looks, earliest_ms, latest_ms)
            sure_ms = latest_sure_cut(caps, looks, earliest_ms, latest_ms)
            if wanted_ms <= sure_ms or more == SAMPLE_ROUNDS_MAX:
                break
            share = total_share(caps, [expected(look, sure_ms) for look in looks])
            seen = [seen for look in looks for seen in look.records]
            known = sum(one.size + ROW_COST_BYTES for one in seen)
            if share >= ENOUGH or known >= SAMPLE_BYTES_MAX:
                break
            short = [state for state in unread if _unseen_before(state, wanted_ms)]
            await together(self._look_further(state, records_max << more) for state in short)
        return min(wanted_ms, sure_ms), sure_ms

    async def _look_further(self, state: ShardState, records_max: int) -> None:
        self._has_searched = True
        state.look = await state.probe.extend(_look(state), state.position, min(records_max, LOOK_RECORDS_MAX))

    async def _sample(self, state: ShardState, records_max: int) -> None:
        look = _look(state)
        if look.beyond is Tail.UNKNOWN and len(look.records) < records_max // 2 and not look.reached_ms:
            self._has_searched = True
            state.look = await state.probe.extend(look, state.position, records_max, pages_max=PROBE_PAGES_MAX)

    async def _ends(
        self, unread: list[ShardState], cut_ms: int, records_max: int, *, whole: bool = False
    ) -> dict[str, _End]:
        """Return where each shard ends that has rows before the cut, children of shards that end before it included."""
        ends: dict[str, _End] = {}
        generation = [state for state in unread if _unread_before(state, cut_ms)]
        while generation:
            end_of = self._whole_end if whole else self._end
            found = await together(end_of(state, cut_ms, records_max) for state in generation)
            ended = []
            for state, end in zip(generation, found, strict=True):
                if end is not None:
                    ends[state.shard_id] = end
                    if end.bound.kind is EndKind.SHARD_END:
                        ended.append(state)
            generation = await self._next_generation(ended, ends, cut_ms, whole=whole)
        return ends

    async def _next_generation(
        self, ended: list[ShardState], ends: dict[str, _End], cut_ms: int, *, whole: bool
    ) -> list[ShardState]:
        """Return the children that may start when these shards have ended, and that have rows before the cut."""
        finished = {shard_id for shard_id, end in ends.items() if end.bound.kind is EndKind.SHARD_END}
        ready: list[ShardState] = []
        fresh = ended
        while fresh:
            children = [state for state in await self._book.children_of(fresh) if self._book.may_start(state, finished)]
            await together(self._look(state) for state in children if state.look is None)
            if whole:
                await self._cross(children, cut_ms)
            fresh = [state for state in children if _look(state).exhausted]
            # These are finished for this cut only, which may be given up: a shard is stored as ended when its parents
            # are. If it were stored earlier, its children would never start, and a query that stops when it is caught
            # up would leave them unread.
            finished.update(state.shard_id for state in fresh)
            ready += [state for state in children if _unread_before(state, cut_ms)]
        return ready

    async def _end(self, state: ShardState, cut_ms: int, records_max: int, *, whole: bool = False) -> _End | None:
        """Return where one shard ends at the cut; None when it makes no progress."""
        look = _look(state)
        bound = look.bound(cut_ms)
        if bound is not None:
            return _End(bound, look.behind(bound))
        self._has_searched = True
        if state.attempts.asked_all:
            state.attempts.failed(self._began_s)
            state.attempts.asked_all = False
        first = _first(state).sequence_number
        after = await state.probe.at_time(cut_ms, records_max, floor=first)
        if after.records:
            seen = after.records[0]
            return _End(Bound(EndKind.EXCLUSIVE, seen.sequence_number, seen.arrival_ms), after)
        if after.beyond is Tail.END:
            bound = Bound(EndKind.SHARD_END, None, look.records[-1].arrival_ms)
            return _End(bound, look.behind(bound))
        if look.beyond is Tail.UNKNOWN:  # a sparse shard is known as a whole by reading on, up to the cut or so
            more = state.probe.tail_page() if after.beyond is Tail.TIP or after.reached_ms else records_max
            state.look = look = await self._read_on(state, more, cut_ms)
        bound = look.bound(cut_ms)
        if bound is None and look.reached_ms:
            bound = Bound(EndKind.INCLUSIVE, look.records[-1].sequence_number, look.records[-1].arrival_ms)
        if bound is None and (after.beyond is Tail.TIP or after.reached_ms):
            bound, behind = await state.probe.tail(look, cut_ms, whole=whole)
            return None if bound.sequence_number == first and bound.kind is EndKind.EXCLUSIVE else _End(bound, behind)
        bound = bound or look.last_resort()
        return None if bound is None else _End(bound, look.behind(bound))

    async def _read_on(self, state: ShardState, records_max: int, cut_ms: int) -> Lookahead:
        """Return the lookahead with a page more, and with what follows that page where it was not full: a silence
        follows, most often. To cross it up to the cut takes a call for each page of it. To search for its beginning by
        time takes a probe for each halving, and each probe crosses what is left of the silence.
        """
        look = _look(state)
        for _ in range(READ_ON_PAGES_MAX):
            known = len(look.records)
            look = await state.probe.extend(look, state.position, records_max, until_ms=cut_ms)
            if look.beyond is not Tail.UNKNOWN or not known < len(look.records) < known + records_max:
                break
        return look

    async def _whole_end(self, state: ShardState, cut_ms: int, records_max: int) -> _End:
        """Return where one shard ends at the cut where no next batch brings the rest: the search goes on from each end
        that was only a step.
        """
        look = _look(state)
        while True:
            end = await self._end(state, cut_ms, records_max, whole=True)
            if end is None:
                raise nothing_came(state.shard_id)
            if end.short_ms(cut_ms) is not None:
                state.look = end.behind
                await self._cross([state], cut_ms)
                if _unread_before(state, cut_ms):
                    continue
                end = _ended(end, _look(state))
            if end.bound.kind is not EndKind.EXCLUSIVE or end.bound.witness_ms >= cut_ms:
                state.look = look
                return end
            state.look = end.behind

    async def _cut_at_generation(
        self, unread: list[ShardState], cut_ms: int, ends: dict[str, _End]
    ) -> tuple[int, dict[str, _End]]:
        """Cut at a reshard where keeping parents and children in one task would leave the cluster idle.

        All shards are cut at that time: else the event-time watermark would pass the children's records.
        """
        while True:
            earlier_ms = self._generation_ms(ends, cut_ms)
            if earlier_ms is None or earlier_ms >= cut_ms:
                return cut_ms, ends
            cut_ms = earlier_ms
            ends = await self._ends(unread, cut_ms, LOOK_RECORDS)

    def _generation_ms(self, ends: dict[str, _End], cut_ms: int) -> int | None:
        """Return the first arrival in a child whose parent is in the batch, when its chain is too long for one task."""
        ranges = ranges_of(self._draft(cut_ms, ends), self.lineage.shards)
        chains = chains_of(ranges, self.lineage)
        longer = [one.shard_id for chain in chains if len(chain) > 1 for one in chain]
        children = [shard_id for shard_id in longer if not self.lineage.ancestors([shard_id]).isdisjoint(longer)]
        if not children:
            return None
        wanted = tasks_for(self._size(ends, cut_ms), len(ends), self._options.tasks_max)
        widest = max(len(ends) - len(children), len(children))
        if len(chains) >= min(wanted, widest):
            return None
        earliest_ms = min(_first(self._book.states[s]).arrival_ms for s in ends)
        child_ms = min(_first(self._book.states[s]).arrival_ms for s in children)
        return child_ms if child_ms > earliest_ms else None

    def _size(self, ends: dict[str, _End], cut_ms: int) -> float:
        """Return about how large the batch is, by what was sampled: its bytes, and ``ROW_COST_BYTES`` for each row."""
        total = 0.0
        for shard_id, end in ends.items():
            look = _look(self._book.states[shard_id])
            end_ms = cut_ms if end.bound.kind is EndKind.SHARD_END else end.bound.witness_ms
            span_ms = max(end_ms - look.records[0].arrival_ms, 1)
            full = FULL_RATE_BYTES_PER_MS
            rows, size = look.rate() or (0.0, full)
            total += span_ms * (min(size, full) + min(rows, SHARD_ROWS_PER_MS) * ROW_COST_BYTES)
        return total

    # --- taking it -----------------------------------------------------------------------------------------------

    def _draft(self, cut_ms: int, ends: dict[str, _End]) -> StreamOffset:
        """Return the offset that the batch would end at; nothing is changed yet."""
        positions = self._book.positions()
        starts = {}
        for shard_id, end in ends.items():
            first = _first(self._book.states[shard_id])
            starts[shard_id] = RangeStart(first.sequence_number, first.arrival_ms)
            positions[shard_id] = _position_at(end.bound)
        return StreamOffset(
            stream_arn=self.summary.stream_arn,
            created_s=int(self.summary.creation_timestamp_s),
            cut_ms=cut_ms,
            shards=positions,
            starts=starts,
            tasks=tasks_for(self._size(ends, cut_ms), max(len(ends), 1), self._options.tasks_max),
            losses=self.losses.count,
        )

    def _take(self, cut_ms: int, ends: dict[str, _End]) -> StreamOffset:
        if not ends:
            return self._without_rows(cut_ms)
        self._offset = self._draft(cut_ms, ends)
        self._carry(ends)
        self._newest_ends = ends
        self._written_s = self._monotonic()
        for shard_id, end in ends.items():
            state = self._book.states[shard_id]
            state.position = self._offset.shards[shard_id]
            state.look = end.behind
        return self._offset

    def _carry(self, ends: dict[str, _End]) -> None:
        """Keep the records of the batch for its tasks, where all of a range was seen."""
        self.carried, self.is_carried = Carried(), not self._has_searched
        for shard_id, end in ends.items():
            state = self._book.states[shard_id]
            look = _look(state)
            entries = look.entries(end.bound)
            if entries and self.carried.add(shard_id, look.records[0].sequence_number, end.bound, entries):
                state.attempts.succeeded()
            else:
                self.is_carried = False

    def _without_rows(self, cut_ms: int) -> StreamOffset:
        """Return the offset as it was; or, before the first batch and when old positions must be refreshed, the end of
        an empty batch.

        Silence must not look like loss after a restart: the times of idle shards are stored again well before the
        retention passes them.
        """
        fresh = self._draft(cut_ms, {})
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

    def lag_ms(self) -> int:
        """Return how long the oldest unread record that is known has been waiting, or how far behind a shard is that
        crosses a silence, in milliseconds; 0 when there is neither.
        """
        states = self._book.states
        waiting = [s.look.first.arrival_ms for s in states.values() if s.look is not None and s.look.first]
        crossing = (states[one] for one in (*self.waits.shards, *self.waits.left_out) if one in states)
        waiting += [max(one.reached_ms(), self._book.horizon_ms()) for one in crossing]
        return max(0, self.service_ms() - min(waiting)) if waiting else 0


def _look(state: ShardState) -> Lookahead:
    assert state.look is not None, state.shard_id
    return state.look


def _first(state: ShardState) -> KnownRecord:
    first = _look(state).first
    assert first is not None, state.shard_id
    return first


def _crosses(state: ShardState, until_ms: int) -> bool:
    """True when it is not known yet whether the shard has a record before that time. A closed shard is followed to its
    end: its children wait for it.
    """
    look = state.look
    return look is not None and look.crossing and (state.probe.closed or look.reached_ms < until_ms)


def _ended(end: _End, look: Lookahead) -> _End:
    """Return the end that takes the place of one in a silence, when the silence is crossed: the shard's end, or a
    record behind the cut.
    """
    if look.beyond is Tail.END and not look.records:
        return _End(Bound(EndKind.SHARD_END, None, max(look.tip_seen_ms, end.bound.witness_ms)), look)
    if look.first is not None:
        first = look.first
        return _End(Bound(EndKind.EXCLUSIVE, first.sequence_number, first.arrival_ms), look)
    return _End(end.bound, look)


def _unread_before(state: ShardState, cut_ms: int) -> bool:
    return state.look is not None and state.look.first is not None and state.look.first.arrival_ms < cut_ms


def _unseen_before(state: ShardState, cut_ms: int) -> bool:
    """True when there may be records before the cut that were not seen."""
    look = _look(state)
    return look.beyond is Tail.UNKNOWN and max(seen.arrival_ms for seen in look.records) < cut_ms


def _position_at(bound: Bound) -> ShardPosition:
    kind = {
        EndKind.EXCLUSIVE: Kind.NEXT,
        EndKind.INCLUSIVE: Kind.AFTER,
        EndKind.SHARD_END: Kind.ENDED,
    }[bound.kind]
    return ShardPosition(kind, bound.witness_ms, bound.sequence_number)
