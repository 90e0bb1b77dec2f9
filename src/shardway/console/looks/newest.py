"""Find the newest records of a stream over all of its shards.

Kinesis reads forwards only. So each shard is read from a little before now on, and from further back while all shards
together have not brought enough records: the steps are `WINDOWS_S`. When enough came, they are the newest: each shard
has brought all that it has since then, or as many as are wanted. A shard with so many records that a page does not come
near its tip is read again from later on, by the density that the page has shown. What the bounds left out is told.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from shardway.console.decoding_threads import PART_RECORDS_MAX
from shardway.core.hashkeys import hash_key
from shardway.core.log.user_records import ShardView
from shardway.core.sequence import second_of
from shardway.errors import OptionError
from shardway.inspect.records.seen_records import SeenRecord
from shardway.model import IteratorAt
from shardway.runtime.feeds.opening import user_records
from shardway.waiting import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.console.decoding_threads import DecodingThreads
    from shardway.inspect import Inspector
    from shardway.model import ListedShard, Record, StreamName


WINDOWS_S = (10.0, 600.0, 43_200.0, float("inf"))
"""How far back the shards are read, step by step; the last step begins at the oldest record."""
SHARDS_MAX = 200
"""The shards that one page reads. Of a stream with more, a shard has to be chosen."""
DENSER = 2.0
"""A dense shard is read again from a time on that would bring this many times the records that are wanted."""
WIDER = 4.0
"""Where that brought too few, this many times the span is read."""
TRIES_MAX = 6
SEARCHED_MAX = 100_000
"""The records that are looked at for one page."""
AT_ONCE_MAX = 48
_MARK = re.compile(r"(\d{1,15})\.(\d{1,128})\.(\d{1,20})", re.ASCII)


class Mark(NamedTuple):
    """The place of a record in the order of all shards: by its arrival, and then by its position."""

    arrived_ms: int
    sequence_number: int
    sub_sequence_number: int

    @classmethod
    def of(cls, record: SeenRecord) -> Mark:
        """Return the place of a record."""
        raw = record.record
        return cls(round(record.arrived_at.timestamp() * 1000), raw.sequence_number, raw.sub_sequence_number)

    @classmethod
    def parse(cls, text: str) -> Mark:
        """Return the place that an address names. Raises OptionError."""
        if (match := _MARK.fullmatch(text)) is None:
            raise OptionError(
                "before: write ARRIVAL.SEQUENCE.SUB: the arrival in epoch milliseconds, then the position's two numbers"
            )
        return cls(*map(int, match.groups()))

    @property
    def text(self) -> str:
        """The place as an address has it."""
        return f"{self.arrived_ms}.{self.sequence_number}.{self.sub_sequence_number}"


class NewestQuery(NamedTuple):
    """Which records are wanted."""

    limit: int
    shard: str | None = None
    key: str | None = None
    until_s: float | None = None
    """Epoch seconds: only records that had arrived by then."""
    before: Mark | None = None
    """Only records that stand before this one in the order of all shards."""
    matches: Callable[[SeenRecord], bool] | None = None
    """None: all records are wanted."""
    bytes_max: int | None = None
    """The search ends once pages with as many bytes of data were read. None: there is no such bound."""


class NewestRecords:
    """The newest records of a stream, as far as they were found: it holds what is there when its time is over."""

    def __init__(
        self, inspector: Inspector, stream: StreamName, wish: NewestQuery, decoding: DecodingThreads | None = None
    ) -> None:
        """``decoding``: the threads in which `NewestQuery.matches` is asked; None: it is asked on the event loop."""
        self.searched = 0
        self.searched_bytes = 0
        self.shards_left_out = 0
        self.is_done = False
        """True: the newest records are found, or there are no more."""
        self._inspector = inspector
        self._stream = stream
        self._wish = wish
        self._decoding = decoding
        ends = (wish.until_s, None if wish.before is None else wish.before.arrived_ms / 1000 + 0.001)
        self._until_s = min((one for one in ends if one is not None), default=math.inf)
        self._end_s = self._until_s
        self._found_records: dict[str, list[SeenRecord]] = {}
        self._begins_s: dict[str, float] = {}
        """The times, by shard, from which on a shard was read to its end."""

    @property
    def records(self) -> list[SeenRecord]:
        """The records that were found, the newest first."""
        every = (one for found in self._found_records.values() for one in found)
        return heapq.nlargest(self._wish.limit, every, key=Mark.of)

    @property
    def whole_from_s(self) -> float | None:
        """Epoch seconds: where the search was cut off, all that arrived since then was searched. None: there is no such
        time.
        """
        begin_s = max(self._begins_s.values(), default=self._end_s)
        return begin_s if begin_s < self._end_s else None

    async def search(self) -> None:
        """Read until enough is found. Raises ShardwayError."""
        listed = await self._inspector.shards(self._stream)
        now_s, wish = self._inspector.now_s, self._wish  # the first answer has told the service's clock
        # A record may have arrived after what is known of the service's time: that time bounds what is read, and not
        # what is wanted.
        end_s = self._end_s = min(now_s, self._until_s)
        shards = self._choose(listed)
        self.shards_left_out = max(0, len(shards) - SHARDS_MAX)
        shards = shards[:SHARDS_MAX]
        self._begins_s = {one.shard_id: end_s for one in shards}
        for window_s in WINDOWS_S:
            begin_s = end_s - window_s
            reached = [one for one in shards if not _ended_before(one, begin_s)]
            self._begins_s |= {one.shard_id: begin_s for one in shards if one not in reached}

            async def look(shard: ListedShard, window_s: float = window_s) -> None:
                await self._read(shard, window_s, end_s)

            await side_by_side(look, reached, AT_ONCE_MAX)
            if sum(map(len, self._found_records.values())) >= wish.limit or self._is_spent:
                break
        self.is_done = not self._is_spent

    @property
    def _is_spent(self) -> bool:
        """True once as many records, or bytes, were read as one search may read."""
        bytes_max = self._wish.bytes_max
        return self.searched >= SEARCHED_MAX or (bytes_max is not None and self.searched_bytes >= bytes_max)

    def _choose(self, listed: list[ListedShard]) -> list[ListedShard]:
        wish = self._wish
        if wish.shard is not None and all(one.shard_id != wish.shard for one in listed):
            raise OptionError(f"the stream {self._stream} has no shard {wish.shard}")
        hashed = None if wish.key is None else hash_key(wish.key)
        chosen = [
            one
            for one in listed
            if (wish.shard is None or one.shard_id == wish.shard) and (hashed is None or one.holds(hashed))
        ]
        return sorted(chosen, key=lambda one: (one.closed, one.shard_id))  # open shards have the newest records

    async def _read(self, shard: ListedShard, window_s: float, end_s: float) -> None:
        """Find the shard's newest records of a window that ends at ``end_s``: all of them, or as many as are wanted."""
        span_s = window_s
        for _ in range(TRIES_MAX):
            shorter_s = await self._read_once(shard, end_s - span_s, end_s)
            if shorter_s is None and not self._is_spent:
                self._begins_s[shard.shard_id] = min(self._begins_s[shard.shard_id], end_s - span_s)
            enough = len(self._found_records.get(shard.shard_id, ())) >= self._wish.limit
            if self._is_spent or (shorter_s is None and (enough or span_s >= window_s)):
                return
            span_s = shorter_s if shorter_s is not None else min(window_s, span_s * WIDER)

    async def _read_once(self, shard: ListedShard, begin_s: float, end_s: float) -> float | None:
        """Read from the time on. Return None where the shard was read to the end; else, for a dense shard, the shorter
        span before the end in which enough records should be.
        """
        wish, matched, first_s, found = self._wish, 0, None, list[SeenRecord]()
        view = ShardView(self._stream.short, shard.shard_id, shard.first_hash_key, shard.last_hash_key)
        at = IteratorAt.trim_horizon() if begin_s == float("-inf") else IteratorAt.at_timestamp(max(0.0, begin_s))
        async with contextlib.aclosing(self._inspector.pages(self._stream, shard.shard_id, at)) as pages:
            async for page in pages:
                records = await user_records(view, page.records)
                self.searched += len(records)
                self.searched_bytes += sum(len(one.data) for one in page.records)
                wanted = await self._select(records)
                matched += len(wanted)
                found = [*found, *wanted][-wish.limit :]
                is_last = not page.millis_behind_latest or self._is_spent
                if is_last or not self._found_records.get(shard.shard_id):
                    self._found_records[shard.shard_id] = found  # until then a narrower window has the newer records
                if is_last:
                    return None
                if not page.records:
                    continue
                first_s = page.records[0].approximate_arrival_timestamp if first_s is None else first_s
                last_s = page.records[-1].approximate_arrival_timestamp
                if last_s > self._until_s:
                    self._found_records[shard.shard_id] = found
                    return None
                needed_s = wish.limit * DENSER * max(last_s - first_s, 0.001) / max(matched, 1)
                if matched and 1.0 < end_s - last_s > needed_s:
                    return max(1.0, needed_s)
        return None

    async def _select(self, records: Sequence[Record]) -> list[SeenRecord]:
        """Return the records that are wanted, without what was decoded for the filter."""
        if self._decoding is None or (self._wish.matches is None and len(records) <= PART_RECORDS_MAX):
            return [one for one in map(SeenRecord, records) if self._wants(one)]

        def look(record: SeenRecord) -> SeenRecord | None:
            return SeenRecord(record.record) if self._wants(record) else None

        async with contextlib.aclosing(self._decoding.each(map(SeenRecord, records), look)) as parts:
            return [one async for part in parts for one in part if one is not None]

    def _wants(self, record: SeenRecord) -> bool:
        wish = self._wish
        if wish.key is not None and record.partition_key != wish.key:
            return False
        if record.arrived_at.timestamp() > self._until_s:
            return False
        if wish.before is not None and Mark.of(record) >= wish.before:
            return False
        return wish.matches is None or wish.matches(record)


def _ended_before(shard: ListedShard, begin_s: float) -> bool:
    """Return True where a closed shard took its last record before a time, so that it has nothing newer."""
    if not shard.closed or shard.last_sequence_number is None:
        return False
    last_s = second_of(shard.last_sequence_number)
    return last_s is not None and last_s + 1 < begin_s
