"""The driver looks ahead into the unread part of one shard's log: where a batch may end in it, and what was lost.

Any record that was seen is a good bound, whatever its arrival time says: all that lies before it in the log belongs
to the range. So nothing here assumes that arrival times grow along the log.

The driver looks at the next records, at the first one after a time, and at the last one before silence. It shares the
shard's five GetShardIterator and five GetRecords calls per second with the tasks and with other readers: it keeps a
budget of its own and asks for few records. It keeps the payloads of some small ones, which a task then need not ask
for (`shardway.spark.carried`).
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from shardway.aws.calls import RetryPolicy
from shardway.aws.kinesis import GetRecordsPage, IteratorAt, KinesisClient, WireRecord
from shardway.core.aggregation.reader import is_aggregate, open_aggregate
from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import Sign
from shardway.core.pacing import TokenBucket
from shardway.core.service_clock import ServiceClock
from shardway.errors import DataLossError, ExpiredIteratorError
from shardway.model import StreamName
from shardway.spark.offsets import SILENCE_MARGIN_MS, Kind, ShardPosition
from shardway.spark.ranges import EndKind
from shardway.tasks import awaited, give_up


class KnownRecord(NamedTuple):
    """A Kinesis record that the driver saw."""

    sequence_number: int
    arrival_ms: int
    rows: int
    """The number of user records in it: 1 for a plain record."""
    size: int
    """Bytes of the record's data."""
    entry: WireRecord | None = None
    """The record as it came, where a task may be given it; None where it would take too much memory."""


class Tail(enum.Enum):
    """Says what lies behind the records that were seen."""

    UNKNOWN = 0
    TIP = 1
    """Nothing lay there when the service was last asked: this is the open shard's tip."""
    END = 2
    """Nothing comes there any more: the shard is closed."""


class Bound(NamedTuple):
    """The end of a range, with a time of which is known that nothing before it stays unread."""

    kind: EndKind
    sequence_number: int | None
    witness_ms: int


@dataclass(slots=True)
class Lookahead:
    """The next records of a shard behind the query's position, as far as they were looked at."""

    records: list[KnownRecord] = field(default_factory=list)
    beyond: Tail = Tail.UNKNOWN
    iterator: str | None = None
    """The iterator behind the last record seen; None at the shard's end, or when one must be asked for."""
    asked_s: float = 0.0
    """The time at which the service was last asked, by the driver's monotonic clock."""
    asked_ms: int = 0
    """The service's time (at least) when it was last asked; 0 where that is not known."""
    tip_seen_ms: int = 0
    """The service's time (at least) when the tip was last seen."""
    quiet: bool = False
    """True where the last answer was an empty page at the tip: nothing comes for now."""
    reached_ms: int = 0
    """The time (of the service) up to which nothing arrived behind the last record seen, or behind the position: the
    iterator has crossed this silence. 0 where it has crossed none."""
    stands: bool = False
    """True where the last pages were empty and came no nearer to the tip."""

    @property
    def first(self) -> KnownRecord | None:
        """The next record to read, if it was seen."""
        return self.records[0] if self.records else None

    @property
    def crossing(self) -> bool:
        """True when the iterator is somewhere in a silence: no record, no tip and no end was found yet."""
        return self.beyond is Tail.UNKNOWN and not self.records

    @property
    def exhausted(self) -> bool:
        """True when the shard is closed and nothing in it is unread."""
        return self.beyond is Tail.END and not self.records

    def bound(self, cut_ms: int) -> Bound | None:
        """Return where a batch that is cut at this time ends; None when what was seen does not tell.

        The first record of the lookahead has to have arrived before the cut.
        """
        for seen in self.records[1:]:
            if seen.arrival_ms >= cut_ms:
                return Bound(EndKind.EXCLUSIVE, seen.sequence_number, seen.arrival_ms)
        if self.beyond is Tail.TIP or (self.beyond is Tail.UNKNOWN and self.reached_ms >= cut_ms):
            last = self.records[-1]
            return Bound(EndKind.INCLUSIVE, last.sequence_number, last.arrival_ms)
        if self.beyond is Tail.END:
            return Bound(EndKind.SHARD_END, None, max(self.tip_seen_ms, self.records[-1].arrival_ms))
        return None

    def last_resort(self) -> Bound | None:
        """Return the last record seen as an exclusive bound: it is progress where the service does not tell more for
        now. None where fewer than two records were seen.
        """
        if len(self.records) < 2:
            return None
        last = self.records[-1]
        return Bound(EndKind.EXCLUSIVE, last.sequence_number, last.arrival_ms)

    def behind(self, bound: Bound) -> Lookahead:
        """Return what is left after a batch that ended at the bound."""
        if bound.kind is EndKind.SHARD_END:
            return Lookahead([], Tail.END, None, self.asked_s, tip_seen_ms=self.tip_seen_ms)
        assert bound.sequence_number is not None
        first_left = bound.sequence_number + (bound.kind is EndKind.INCLUSIVE)
        left = [seen for seen in self.records if seen.sequence_number >= first_left]
        seen_ms, reached_ms = self.tip_seen_ms, self.reached_ms
        return Lookahead(left, self.beyond, self.iterator, self.asked_s, tip_seen_ms=seen_ms, reached_ms=reached_ms)

    def entries(self, bound: Bound) -> tuple[WireRecord, ...] | None:
        """Return the records up to the bound as they came; None where the bound is none of the records that were seen,
        or where a record before it was not kept.
        """
        entries: list[WireRecord] = []
        for seen in self.records:
            is_end = seen.sequence_number == bound.sequence_number
            if is_end and bound.kind is EndKind.EXCLUSIVE:
                return tuple(entries)
            if seen.entry is None:
                return None
            entries.append(seen.entry)
            if is_end:
                return tuple(entries)
        return None

    def rate(self) -> tuple[float, float] | None:
        """Return the (rows, bytes) per millisecond as sampled; None when fewer than two records were seen."""
        if len(self.records) < 2:
            return None
        times = [seen.arrival_ms for seen in self.records]
        span_ms = max(max(times) - min(times), 1)
        return sum(s.rows for s in self.records) / span_ms, sum(s.size for s in self.records) / span_ms


# --- what was lost --------------------------------------------------------------------------------
# This part decides, before anything is read, whether records between a stored position and the next record were lost.
#
# AWS does not say so: an iterator at a trimmed sequence number answers with empty pages for ever, one at a trimmed
# time starts at the oldest record. So a position near or past the retention is opened by its time, and the first
# record that comes is compared with the one that should.

log = logging.getLogger("shardway.spark")

RISK_MARGIN_MS = 10 * 60 * 1000
"""Milliseconds by which a position has to be younger than the retention so that it is not opened by time: trimming is
not exact.
"""


class Loss(NamedTuple):
    """A loss of records, which is certain or possible."""

    shard_id: str | None
    certain: bool
    what: str


class LossPolicy:
    """Decides what becomes of losses: an error (``failOnDataLoss=true``), or a warning for each, and their number."""

    def __init__(self, stream: StreamName, *, fail: bool) -> None:
        self._stream = stream
        self._fail = fail
        self.count = 0
        """The number of losses that were passed over, with those in the offset that the query began with."""

    def report(self, loss: Loss) -> None:
        """Raise DataLossError for a loss, or warn of it and count it."""
        where = f"stream {self._stream}" + (f", shard {loss.shard_id}" if loss.shard_id else "")
        surely = "records were lost" if loss.certain else "records may have been lost"
        message = f"{where}: {surely}: {loss.what}"
        if self._fail:
            raise DataLossError(
                f"{message}. To go on with what is left, set failOnDataLoss to false for one start; to begin anew, use "
                "a new checkpoint directory; a longer retention of the stream gives the query more time"
            )
        self.count += 1
        log.warning("%s; going on with what is left (failOnDataLoss is false)", message)


def at_risk(position: ShardPosition, horizon_ms: int) -> bool:
    """True when the position's record may be trimmed: the position is to be opened by its time."""
    return position.kind in (Kind.NEXT, Kind.AFTER) and position.witness_ms < horizon_ms + RISK_MARGIN_MS


def loss_at(shard_id: str, position: ShardPosition, look: Lookahead, horizon_ms: int, *, by_time: bool) -> Loss | None:
    """Return what was lost between a stored position and the records that were found behind it.

    With ``by_time``, ``look`` begins at the position's time, and for ``AFTER`` with its very record if that is there.
    A witness of 0 says that the query wants whatever is left. ``horizon_ms`` is the oldest arrival time that the
    stream's retention still covers.
    """
    first = look.first.sequence_number if look.first else None
    if position.kind is Kind.NEXT:
        if first == position.sequence_number:
            return None
        found = f"the next record there is {first}" if first is not None else "nothing is left behind it"
        if look.crossing:
            found = "a long silence follows it"
        return Loss(shard_id, True, f"{position.sequence_number} is the next to read, but it is trimmed; {found}")
    if position.kind is Kind.AFTER:
        if not by_time or first == position.sequence_number:
            return None
        what = f"all up to {position.sequence_number} is read, which is trimmed, and what followed it may be too"
        return Loss(shard_id, False, what)
    if position.kind in (Kind.SINCE, Kind.BEGINNING) and 0 < position.witness_ms < horizon_ms:
        hours = (horizon_ms - position.witness_ms) / 3_600_000
        what = f"the shard was last looked at {hours:.1f} h before the oldest time that the retention covers"
        return Loss(shard_id, False, what)
    return None


# --- looking --------------------------------------------------------------------------------------

T = TypeVar("T")

ENTRY_COST_BYTES = 200
"""The cost of a record that is kept, beside its data and key, in bytes: its number, its time, and what Python adds."""
ENTRIES_MAX = 500
"""The most records of a shard that one look asks for where it shall see all of them."""
CALLS_PER_S = 5.0
"""The number of GetShardIterator and of GetRecords calls that AWS takes per shard and second, each (Kinesis quotas)."""
CROSSING_PAGES_MAX = 100
"""The most empty pages that one look follows over a silence, some 20 s at 5 calls a second; the next look goes on from
there.
"""
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
OUTAGE_S = 120.0
"""Seconds for which a call is repeated while the service cannot be reached, refuses or fails, unless said otherwise."""
ATTEMPTS_MAX = 100_000
"""A number of attempts for which there is no time: the time alone decides how long a call is repeated."""


def patience(outage_s: float = OUTAGE_S) -> RetryPolicy:
    """Return how the driver repeats its calls: for ``outage_s``, with pauses of at most 3 s."""
    return RetryPolicy(attempts_max=ATTEMPTS_MAX, base_s=0.1, cap_s=3.0, deadline_s=outage_s)


def earliest_ms(clock: ServiceClock, now_s: float) -> int:
    """Return the service's time, at least, in epoch milliseconds; this machine's, if no answer ever had a Date."""
    return int((clock.lower(now_s) if clock.known else now_s) * 1000)


def latest_ms(clock: ServiceClock, now_s: float) -> int:
    """Return the service's time, at most, in epoch milliseconds; this machine's, if no answer ever had a Date."""
    return int((clock.upper(now_s) if clock.known else now_s) * 1000) + 1


class Probes:
    """Makes the driver's calls on a stream for the probes of all its shards: ``concurrency`` at once, each repeated for
    a while.
    """

    __slots__ = (
        "_concurrency",
        "client",
        "crossing_pages_max",
        "entry_bytes_max",
        "monotonic",
        "retry",
        "sample_bytes_max",
        "stream",
    )

    def __init__(
        self,
        client: KinesisClient,
        stream: StreamName,
        concurrency: asyncio.Semaphore,
        *,
        crossing_pages_max: int = CROSSING_PAGES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.client = client
        self.stream = stream
        self.crossing_pages_max = crossing_pages_max
        self.monotonic = monotonic
        self.retry = patience() if retry is None else retry
        self.sample_bytes_max = 64 * 1024
        """The most bytes that one look should bring, once the size of the shard's records is known."""
        self.entry_bytes_max = 0
        """The most bytes of records that are kept as they came, for each shard."""
        self._concurrency = concurrency

    async def iterator(self, shard_id: str, at: IteratorAt) -> str:
        """Return an iterator of a shard."""
        async with self._concurrency:
            return await self.client.get_shard_iterator(self.stream, shard_id, at, retry=self.retry)

    async def page(self, iterator: str, limit: int) -> tuple[GetRecordsPage, int]:
        """Return a page, and the service's time (at least; epoch milliseconds) when it was asked for."""
        async with self._concurrency:
            asked_s = self.client.wire.now()
            page = await self.client.get_records(iterator, limit=limit, stream=self.stream, retry=self.retry)
        # The clock is the one that the answer has put right: the machine's may have been set forward meanwhile.
        return page, earliest_ms(self.client.clock, asked_s)

    def service_ms(self) -> int:
        """Return the service's time, at least, in epoch milliseconds."""
        return earliest_ms(self.client.clock, self.client.wire.now())

    def service_ms_upper(self) -> int:
        """Return the service's time, at most, in epoch milliseconds."""
        return latest_ms(self.client.clock, self.client.wire.now())


class ShardProbe:
    """Looks at one shard for the driver."""

    __slots__ = ("_calls", "_iterators", "_record_size", "_shared", "closed", "shard_id")

    def __init__(self, shared: Probes, shard_id: str) -> None:
        now_s = shared.monotonic()
        self.shard_id = shard_id
        self.closed = False
        """True where the shard is listed as closed: it has an end, and to be caught up with it is not the same."""
        self._shared = shared
        self._calls = TokenBucket(records_per_s=CALLS_PER_S, bytes_per_s=float("inf"), now_s=now_s)
        self._iterators = TokenBucket(records_per_s=CALLS_PER_S, bytes_per_s=float("inf"), now_s=now_s)
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
            at = _again(Lookahead(look.records, reached_ms=more.reached_ms), position)
            # A record between the two iterators may be trimmed by now. A task notices that, so it reads this range.
            look.records = [one._replace(entry=None) for one in look.records]
            more = await self._open_at(at, records_max, floor=floor, pages_max=pages_max, until_ms=until_ms)
        if not more.records:
            more.reached_ms = max(look.reached_ms, more.reached_ms)
        more.records = _within(look.records + more.records, self._shared.entry_bytes_max)
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
        return min(ENTRIES_MAX, int(self._shared.entry_bytes_max / (self._record_size + ENTRY_COST_BYTES)))

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
                look.records = _within(look.records, self._shared.entry_bytes_max)
                return look
            except ExpiredIteratorError:
                if look.reached_ms > reached_ms:  # the iterator was good for some pages: go on from there
                    openings, reached_ms = 0, look.reached_ms
                    at = _later(at, reached_ms)
                openings += 1
                if openings == OPENINGS_MAX:
                    raise

    async def _iterator(self, at: IteratorAt) -> str:
        await self._paced(self._iterators)
        return await self._shared.iterator(self.shard_id, at)

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
        limit = self.records_for(self._shared.sample_bytes_max, records_max)
        log = LogCursor(LOOK)
        for _ in range(self._shared.crossing_pages_max if pages_max is None else pages_max):
            assert look.iterator is not None
            await self._paced(self._calls)
            page, seen_ms = await self._shared.page(look.iterator, limit)
            look.asked_s = self._shared.monotonic()
            self._absorb(look, page, floor, seen_ms)
            if look.records or look.beyond is not Tail.UNKNOWN:
                break
            _note_silence(look, log, page, seen_ms)
            if look.stands or (until_ms is not None and look.reached_ms >= until_ms):
                break
        return look

    def _absorb(self, look: Lookahead, page: GetRecordsPage, floor: int | None, seen_ms: int) -> None:
        size, keeps = 0, self._shared.entry_bytes_max > 0
        for record in page.records:
            number = int(record.sequence_number)
            size += len(record.data)
            if floor is None or number > floor:
                arrival_ms = round(record.approximate_arrival_timestamp * 1000)
                rows, entry = _user_records(record.data), record if keeps else None
                look.records.append(KnownRecord(number, arrival_ms, rows, len(record.data), entry))
                look.reached_ms, look.stands = 0, False
        if page.records:
            self._record_size = size / len(page.records) or 1.0
        look.iterator, look.asked_ms = page.next_shard_iterator, seen_ms
        look.quiet = not page.records and page.millis_behind_latest == 0
        if page.next_shard_iterator is None:
            look.beyond = Tail.END
        elif page.millis_behind_latest == 0 and not self.closed:
            look.beyond = Tail.TIP
            if not page.records:  # only an empty page is trusted to say how long the shard has been silent
                look.tip_seen_ms = seen_ms

    async def _paced(self, bucket: TokenBucket) -> None:
        while not bucket.take(self._shared.monotonic(), records=1):
            await asyncio.sleep(bucket.wait_s(self._shared.monotonic(), records=1))


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time, and return the results of all, in order. When one fails the others are ended
    first: nothing of a plan that failed may write into the book while the next plan is made.
    """
    tasks = [awaited(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await give_up(*tasks)


def entry_bytes(entry: WireRecord) -> int:
    """Return about how many bytes a record takes that is kept as it came."""
    return len(entry.data) + len(entry.partition_key or "") + ENTRY_COST_BYTES


def _within(records: list[KnownRecord], bytes_max: int) -> list[KnownRecord]:
    """Return the records, of which the first ones keep what came: as many as ``bytes_max`` allows."""
    held = 0
    for index, seen in enumerate(records):
        held += 0 if seen.entry is None else entry_bytes(seen.entry)
        if held > bytes_max:
            return records[:index] + [one._replace(entry=None) for one in records[index:]]
    return records


def _user_records(data: bytes) -> int:
    aggregate = open_aggregate(data) if is_aggregate(data) else None
    return 1 if aggregate is None else len(aggregate)


def _note_silence(look: Lookahead, log: LogCursor, page: GetRecordsPage, seen_ms: int) -> None:
    """Note what a page means that brought nothing behind the floor, and led neither to the tip nor to the end."""
    step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=False, asked_s=seen_ms / 1000)
    if page.records:
        return
    if (reached_s := log.silence.reached_s) is not None:
        look.reached_ms = max(look.reached_ms, int(reached_s * 1000))
    look.stands = step.sign is Sign.NOWHERE


def _later(at: IteratorAt, reached_ms: int) -> IteratorAt:
    """Return where to ask again when an iterator of ``at`` has crossed a silence up to a time: a little before that,
    since arrival times are approximate.
    """
    since_s = (reached_ms - SILENCE_MARGIN_MS) / 1000
    began_s = at.timestamp_s
    return IteratorAt.at_timestamp(since_s) if began_s is None or since_s > began_s else at


def _again(look: Lookahead, position: ShardPosition) -> IteratorAt:
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
