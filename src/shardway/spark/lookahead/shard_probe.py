"""A probe looks at one shard for the driver: at the next records, at the first one after a time, and at the last one
before silence.

It shares the shard's five GetShardIterator and five GetRecords calls per second with the tasks and with other readers:
it keeps a budget of its own and asks for few records. It keeps the payloads of some small ones, which a task then need
not ask for (`shardway.spark.driver.carried_records`).
"""

from __future__ import annotations

import asyncio
import math

from shardway.aws.kinesis.shapes import GetRecordsPage
from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import Sign
from shardway.core.pacing import TokenBucket
from shardway.errors import ExpiredIteratorError
from shardway.model import IteratorAt
from shardway.runtime.feeds.opening import user_record_counts
from shardway.spark.lookahead.lookahead import ENTRY_COST_BYTES, Bound, KnownRecord, Lookahead, Tail, entry_bytes
from shardway.spark.lookahead.stream_calls import StreamCalls
from shardway.spark.positions import SILENCE_MARGIN_MS, Kind, ShardPosition
from shardway.spark.ranges import EndKind

ENTRIES_MAX = 500
"""The most records of a shard that one look asks for where it shall see all of them."""
CALLS_PER_S = 5.0
"""The number of GetShardIterator and of GetRecords calls that AWS takes per shard and second, each (Kinesis quotas)."""
PROBE_PAGES_MAX = 10
"""The most empty pages that a look follows which only searches for a place."""
LOOK = Policy(expects=True, doubts_end=False)
"""The policy of a look: it follows an iterator until that brings something, or leads nowhere. The planner decides where
to look instead.
"""
TAIL_WINDOW_MS = 1000
"""Milliseconds of the window down to which the tail of a silent shard is searched by time; the rest is read."""
TAIL_BYTES_MAX = 2 * 2**20
"""The most bytes of a tail that are read in one look (a shard takes 1 MiB/s; one page may exceed it)."""
TAIL_PAGE_BYTES = 512 * 1024
TAIL_PAGE_RECORDS = 1000
"""The most bytes, about, and records that one call asks for where the tail of a silent shard is read."""
OPENINGS_MAX = 8
"""How many times an iterator is asked for that expires before it is used: the clock jumped (a laptop that slept), or
the service is short of capacity (AWS API reference, GetShardIterator)."""


class ShardProbe:
    """Looks at one shard for the driver."""

    __slots__ = ("_calls", "_iterator_budget", "_page_budget", "_record_size", "closed", "shard_id")

    def __init__(self, calls: StreamCalls, shard_id: str) -> None:
        now_s = calls.monotonic()
        self.shard_id = shard_id
        self.closed = False
        """True where the shard is listed as closed: it has an end, and to be caught up with it is not the same."""
        self._calls = calls
        self._page_budget = TokenBucket(records_per_s=CALLS_PER_S, bytes_per_s=float("inf"), now_s=now_s)
        self._iterator_budget = TokenBucket(records_per_s=CALLS_PER_S, bytes_per_s=float("inf"), now_s=now_s)
        self._record_size = 0.0

    async def open(
        self, position: ShardPosition, *, by_time: bool, records_max: int, pages_max: int | None = None
    ) -> Lookahead:
        """Return the first records behind a position.

        ``by_time``: the position's sequence number may be trimmed; start at its time and skip what is read.
        """
        at, floor = _iterator_at(position, by_time=by_time), position.read_up_to
        return await self._open_at(at, records_max, floor=floor, pages_max=pages_max)

    async def extend(
        self,
        look: Lookahead,
        position: ShardPosition,
        records_max: int,
        *,
        pages_max: int | None = None,
        until_ms: int | None = None,
    ) -> Lookahead:
        """Return the lookahead with more records behind those that were seen; the service is asked at least once. An
        iterator that has expired is asked for again at the place that it had reached. ``until_ms``: silence that is
        crossed up to there is enough to know.
        """
        if look.beyond is Tail.END:
            return look
        floor = look.records[-1].sequence_number if look.records else position.read_up_to
        more = Lookahead(iterator=look.iterator, reached_ms=look.reached_ms)
        try:
            if look.iterator is None:
                raise ExpiredIteratorError("ExpiredIteratorException", "no iterator is kept")
            more = await self._fill(more, records_max, floor=floor, pages_max=pages_max, until_ms=until_ms)
        except ExpiredIteratorError:
            # The clock jumped (a laptop that slept), or the shard was left alone for long. An idle shard is opened by
            # time: a number may be trimmed by now.
            at = _iterator_behind(Lookahead(look.records, reached_ms=more.reached_ms), position)
            # A record between the two iterators may be trimmed by now. A task notices that, so it reads this range.
            look.records = [one._replace(entry=None) for one in look.records]
            more = await self._open_at(at, records_max, floor=floor, pages_max=pages_max, until_ms=until_ms)
        if not more.records:
            more.reached_ms = max(look.reached_ms, more.reached_ms)
        more.records = _limit_entries(look.records + more.records, self._calls.entry_bytes_max)
        more.tip_seen_ms = max(look.tip_seen_ms, more.tip_seen_ms)
        return more

    async def at_time(
        self, time_ms: int, records_max: int, *, floor: int | None, until_ms: int | None = None
    ) -> Lookahead:
        """Return the first records that arrived at or after a time, of those behind ``floor``. ``until_ms``: silence
        that is crossed up to there is enough to know.
        """
        at = IteratorAt.at_timestamp(time_ms / 1000)
        return await self._open_at(at, records_max, floor=floor, pages_max=PROBE_PAGES_MAX, until_ms=until_ms)

    async def tail(self, look: Lookahead, cut_ms: int, *, whole: bool = False) -> tuple[Bound, Lookahead]:
        """Find the end of a shard in which nothing arrived since ``cut_ms``, but something before.

        This bisects the time between the last record seen and the cut, one record a probe, and reads only the last
        second or so. It returns an inclusive bound; or an exclusive one where the shard came to life again or its tail
        is large (not with ``whole``).
        """
        nearest = Lookahead([look.records[-1]], look.beyond, look.iterator, reached_ms=look.reached_ms)
        low_ms, high_ms = look.records[-1].arrival_ms, cut_ms
        while high_ms - low_ms > TAIL_WINDOW_MS:
            middle_ms = (low_ms + high_ms) // 2
            found = await self.at_time(middle_ms, 1, floor=nearest.records[-1].sequence_number, until_ms=high_ms)
            if found.records:
                if found.records[0].arrival_ms >= cut_ms:  # the shard came to life meanwhile
                    first = found.records[0]
                    return Bound(EndKind.EXCLUSIVE, first.sequence_number, first.arrival_ms), found
                nearest = found
                low_ms = max(middle_ms, found.records[-1].arrival_ms)
            elif found.stands:
                break
            else:  # or nothing came for a long stretch: any record before it is a good place to read on from
                high_ms = middle_ms
        return await self._read_tail(nearest, cut_ms, math.inf if whole else TAIL_BYTES_MAX)

    async def _read_tail(self, nearest: Lookahead, cut_ms: int, bytes_max: float) -> tuple[Bound, Lookahead]:
        look = nearest
        size = 0
        while look.beyond is Tail.UNKNOWN and size < bytes_max:
            known = look.records[-1]
            position = ShardPosition(Kind.AFTER, known.arrival_ms, known.sequence_number)
            rest = Lookahead([known], look.beyond, look.iterator, reached_ms=look.reached_ms)
            look = await self.extend(rest, position, self.tail_page())
            if len(look.records) == 1 and look.beyond is Tail.UNKNOWN:
                break  # only empty pages came: it is a long silence, or what was known is trimmed by now
            size += sum(seen.size for seen in look.records[1:])
        return _tail_bound(look, cut_ms)

    def tail_page(self) -> int:
        """Return how many records one call asks for where the tail of a silent shard is read."""
        return self.records_for(TAIL_PAGE_BYTES, TAIL_PAGE_RECORDS)

    def records_for(self, bytes_max: int, records_max: int) -> int:
        """Return how many records to ask for that are to have about ``bytes_max`` bytes together; few while their size
        is not known.
        """
        if not self._record_size:
            return min(records_max, 10)
        return max(1, min(records_max, int(bytes_max / self._record_size)))

    def records_to_keep(self) -> int:
        """Return how many records can be kept as they came; 0 while their size is not known."""
        if not self._record_size:
            return 0
        return min(ENTRIES_MAX, int(self._calls.entry_bytes_max / (self._record_size + ENTRY_COST_BYTES)))

    async def _open_at(
        self,
        at: IteratorAt,
        records_max: int,
        *,
        floor: int | None,
        pages_max: int | None = None,
        until_ms: int | None = None,
    ) -> Lookahead:
        openings, reached_ms = 0, 0
        while True:
            look = Lookahead(iterator=await self._iterator(at), reached_ms=reached_ms)
            try:
                look = await self._fill(look, records_max, floor=floor, pages_max=pages_max, until_ms=until_ms)
                look.records = _limit_entries(look.records, self._calls.entry_bytes_max)
                return look
            except ExpiredIteratorError:
                if look.reached_ms > reached_ms:  # the iterator was good for some pages: go on from there
                    openings, reached_ms = 0, look.reached_ms
                    at = _iterator_in_silence(at, reached_ms)
                openings += 1
                if openings == OPENINGS_MAX:
                    raise

    async def _iterator(self, at: IteratorAt) -> str:
        await self._wait_for(self._iterator_budget)
        return await self._calls.iterator(self.shard_id, at)

    async def _fill(
        self,
        look: Lookahead,
        records_max: int,
        *,
        floor: int | None,
        pages_max: int | None = None,
        until_ms: int | None = None,
    ) -> Lookahead:
        """Follow the iterator until a record is found that lies behind the floor, or the tip, or the shard's end; over
        a silence at most ``pages_max`` pages, or up to ``until_ms``.
        """
        limit = self.records_for(self._calls.sample_bytes_max, records_max)
        log = LogCursor(LOOK)
        for _ in range(self._calls.crossing_pages_max if pages_max is None else pages_max):
            assert look.iterator is not None
            await self._wait_for(self._page_budget)
            page, seen_ms = await self._calls.page(look.iterator, limit)
            look.asked_s = self._calls.monotonic()
            await self._absorb(look, page, floor, seen_ms)
            if look.records or look.beyond is not Tail.UNKNOWN:
                break
            _note_silence(look, log, page, seen_ms)
            if look.stands or (until_ms is not None and look.reached_ms >= until_ms):
                break
        return look

    async def _absorb(self, look: Lookahead, page: GetRecordsPage, floor: int | None, seen_ms: int) -> None:
        keeps = self._calls.entry_bytes_max > 0
        beyond = [one for one in page.records if floor is None or int(one.sequence_number) > floor]
        for record, rows in zip(beyond, await user_record_counts(beyond), strict=True):
            arrival_ms = round(record.approximate_arrival_timestamp * 1000)
            entry = record if keeps else None
            look.records.append(KnownRecord(int(record.sequence_number), arrival_ms, rows, len(record.data), entry))
            look.reached_ms, look.stands = 0, False
        if page.records:
            self._record_size = sum(len(one.data) for one in page.records) / len(page.records) or 1.0
        look.iterator, look.asked_ms = page.next_shard_iterator, seen_ms
        look.quiet = not page.records and page.millis_behind_latest == 0
        if page.next_shard_iterator is None:
            look.beyond = Tail.END
        elif page.millis_behind_latest == 0 and not self.closed:
            look.beyond = Tail.TIP
            if not page.records:  # only an empty page is trusted to say how long the shard has been silent
                look.tip_seen_ms = seen_ms

    async def _wait_for(self, bucket: TokenBucket) -> None:
        while not bucket.take(self._calls.monotonic(), records=1):
            await asyncio.sleep(bucket.wait_s(self._calls.monotonic(), records=1))


def _limit_entries(records: list[KnownRecord], bytes_max: int) -> list[KnownRecord]:
    """Return the records; the first ones keep what came, as many as ``bytes_max`` allows."""
    held = 0
    for index, seen in enumerate(records):
        held += 0 if seen.entry is None else entry_bytes(seen.entry)
        if held > bytes_max:
            return records[:index] + [one._replace(entry=None) for one in records[index:]]
    return records


def _note_silence(look: Lookahead, log: LogCursor, page: GetRecordsPage, seen_ms: int) -> None:
    """Note what a page means that brought nothing behind the floor, and led neither to the tip nor to the end."""
    step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=False, asked_s=seen_ms / 1000)
    if page.records:
        return
    if (reached_s := log.silence.reached_s) is not None:
        look.reached_ms = max(look.reached_ms, int(reached_s * 1000))
    look.stands = step.sign is Sign.NOWHERE


def _iterator_in_silence(at: IteratorAt, reached_ms: int) -> IteratorAt:
    """Return where to ask again when an iterator of ``at`` has crossed a silence up to a time: a little before that,
    since arrival times are approximate.
    """
    since_s = (reached_ms - SILENCE_MARGIN_MS) / 1000
    began_s = at.timestamp_s
    return IteratorAt.at_timestamp(since_s) if began_s is None or since_s > began_s else at


def _iterator_behind(look: Lookahead, position: ShardPosition) -> IteratorAt:
    """Return where to ask for another iterator behind what was seen: after the last record, or at the time up to which
    the silence behind it was crossed; a little before that time, as arrival times are approximate.
    """
    since_ms = look.reached_ms - SILENCE_MARGIN_MS
    last = look.records[-1] if look.records else None
    if since_ms > (position.witness_ms if last is None else last.arrival_ms):
        return IteratorAt.at_timestamp(since_ms / 1000)
    return _iterator_at(position, by_time=False) if last is None else IteratorAt.after_sequence(last.sequence_number)


def _iterator_at(position: ShardPosition, *, by_time: bool) -> IteratorAt:
    number = position.sequence_number
    if position.kind is Kind.BEGINNING:
        return IteratorAt.trim_horizon()
    if by_time or position.kind is Kind.SINCE or number is None:
        return IteratorAt.at_timestamp(position.witness_ms / 1000)
    if position.kind is Kind.NEXT:
        return IteratorAt.at_sequence(number)
    return IteratorAt.after_sequence(number)


def _tail_bound(look: Lookahead, cut_ms: int) -> tuple[Bound, Lookahead]:
    """Return where a tail ends that was read as far as ``look`` says (its first record lies before the cut), and what
    lies behind.
    """
    bound = look.bound(cut_ms)
    if bound is None:
        last = look.records[-1]
        kind = EndKind.INCLUSIVE if look.reached_ms else EndKind.EXCLUSIVE  # a silence follows it, or something unknown
        bound = Bound(kind, last.sequence_number, last.arrival_ms)
    return bound, look.behind(bound)
