"""Live tails: one reading of a stream serves all browsers that follow it, and each browser has a small basket.

Browsers that begin at the newest record share a reading. A browser that begins elsewhere has its own: in a shared
reading it would miss what was read before it came.

A basket is bounded by records and by bytes. A browser that is slow, or asleep, loses the oldest records of its basket,
and its page says how many; the server's memory does not grow by it. So a basket holds rows, or records that were not
decoded: what is inside of a record of 16 KB may take 100 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from shardway.console.looks.sampler import fault_text
from shardway.console.payloads import Payloads, Row
from shardway.errors import OptionError, ShardwayError
from shardway.inspect import Goal
from shardway.inspect.records.reader import Reading, read_pages
from shardway.inspect.records.seen_records import SeenRecord
from shardway.tasks import awaited, give_up, logged, spawn
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from shardway.console.decoding_threads import DecodingThreads
    from shardway.inspect import Inspector
    from shardway.inspect.records.seen_records import SeenPage


Held: TypeAlias = SeenRecord | Row
"""A record that is not decoded yet, or the row of a record that a filter has chosen."""
Key: TypeAlias = tuple[str, str, tuple[str, ...], str]
"""The key of a reading: its stream, where it begins, its shards, and the browser that has the reading alone."""
BASKET_RECORDS_MAX = 200
BASKET_BYTES_MAX = 4 * 1024 * 1024
ROW_BYTES = 2_000
"""The bytes that a row or a record takes beside its texts and its data."""
CHARACTER_BYTES = 4
"""The most bytes that a character takes in memory."""
READINGS_MAX = 16
BASKETS_MAX = 64
LEFT_S = 20.0
"""How many seconds a basket waits for a browser that lost its connection."""


class Basket:
    """The rows that one browser has not got yet."""

    def __init__(self, test: Callable[[SeenRecord], bool] | None, payloads: Payloads) -> None:
        self.seen = self.matched = self.lost = 0
        self.fault: str | None = None
        self.note: str | None = None
        """What the service has refused meanwhile; the reading goes on."""
        self.left_at_s: float | None = None
        self.in_steps = False
        """True where the browser comes for a few seconds at a time, since a proxy holds back an answer without end."""
        self.turn = 0
        """The number of the connection that takes from the basket. A proxy may keep an older connection open, which
        would take rows, too, and these would never be shown.
        """
        self.filled = asyncio.Event()
        self.test = test
        """What chooses among the records; None: all are wanted."""
        self._payloads = payloads
        self._held_records: deque[Held] = deque()
        self.held_bytes = 0
        """The bytes of what the basket holds, about."""

    def offer(self, record: SeenRecord) -> None:
        """Put a record into the basket, if the filter wants it. The record must have no value that it keeps."""
        self.put(record if self.test is None else _row_of(self._payloads.masked(record), self.test, self._payloads))

    def put(self, held: Held | None) -> None:
        """Count a record, and keep what is held of it; None: the filter does not want it. The oldest ones make room."""
        self.seen += 1
        if held is None:
            return
        self.matched += 1
        self._held_records.append(held)
        self.held_bytes += _bytes_of(held)
        while len(self._held_records) > BASKET_RECORDS_MAX or (
            self.held_bytes > BASKET_BYTES_MAX and len(self._held_records) > 1
        ):
            self.held_bytes -= _bytes_of(self._held_records.popleft())
            self.lost += 1
        self.filled.set()

    def taken_over(self) -> int:
        """Return the turn of a new connection: from now on it takes from the basket, and the one before does not."""
        self.turn += 1
        self.filled.set()
        return self.turn

    def take(self) -> list[Held]:
        """Take all out of the basket. `rows` makes rows of it."""
        held, self._held_records, self.held_bytes = list(self._held_records), deque(), 0
        self.filled.clear()
        return held

    def put_back(self, held: list[Held]) -> None:
        """Put back what `take` has taken, before what came since: the connection that took it has been replaced."""
        self._held_records.extendleft(reversed(held))
        self.held_bytes += sum(map(_bytes_of, held))
        self.filled.set()


def rows(held: list[Held], payloads: Payloads) -> list[Row]:
    """Return the rows of what a basket held. It decodes records: call it in a thread."""
    return [one if isinstance(one, Row) else payloads.row(payloads.masked(_without_value(one))) for one in held]


def _row_of(masked: SeenRecord, test: Callable[[SeenRecord], bool], payloads: Payloads) -> Row | None:
    return payloads.row(masked) if test(masked) else None


def _without_value(record: SeenRecord) -> SeenRecord:
    """Return the record without the value that it keeps once it was decoded."""
    return SeenRecord(record.record)


def _bytes_of(held: Held) -> int:
    if isinstance(held, Row):
        return ROW_BYTES + CHARACTER_BYTES * (len(held.text) + len(held.key))
    return ROW_BYTES + len(held.data) + CHARACTER_BYTES * len(held.partition_key)


class _SharedTail:
    def __init__(self) -> None:
        self.baskets: set[Basket] = set()
        self.task: asyncio.Task[None] | None = None


class Tails:
    """All live tails of a console."""

    def __init__(
        self,
        inspector: Inspector,
        payloads: Payloads,
        decoding: DecodingThreads,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inspector = inspector
        self._decoding = decoding
        self._payloads = payloads
        self._clock = clock
        self._shared_tails: dict[Key, _SharedTail] = {}
        self._by_browser: dict[str, tuple[Basket, Key]] = {}

    @property
    def readings(self) -> int:
        """The number of readings that go on."""
        return len(self._shared_tails)

    def basket_of(self, browser: str) -> Basket | None:
        """Return the basket of a browser that was here a moment ago."""
        self._sweep()
        found = self._by_browser.get(browser)
        if found is None:
            return None
        found[0].left_at_s = None
        return found[0]

    def follow(
        self, browser: str, stream: str, at: str, shards: tuple[str, ...], test: Callable[[SeenRecord], bool] | None
    ) -> Basket:
        """Begin to follow. Raises OptionError for too many at a time, and for a place that is none."""
        self._sweep()
        shared_by = "" if Goal(at).begin(0.0)[0].type == "LATEST" else browser
        key = (stream, at, shards, shared_by)
        if len(self._by_browser) >= BASKETS_MAX or (
            key not in self._shared_tails and len(self._shared_tails) >= READINGS_MAX
        ):
            raise OptionError("too many live tails are open: close one")
        self.drop(browser)
        basket = Basket(test, self._payloads)
        self._by_browser[browser] = basket, key
        shared = self._shared_tails.get(key)
        if shared is None:
            shared = self._shared_tails[key] = _SharedTail()
            shared.task = spawn(self._read(key, shared), logged("a live tail failed", lambda: self._end(key, shared)))
        shared.baskets.add(basket)
        return basket

    def left(self, basket: Basket) -> None:
        """Note that the browser of a basket has closed its connection. The browser may come again."""
        basket.left_at_s = self._clock()

    def drop(self, browser: str) -> None:
        """Drop the basket of a browser that does not come again."""
        found = self._by_browser.pop(browser, None)
        if found is None:
            return
        found[0].taken_over()
        if (shared := self._shared_tails.get(found[1])) is not None:
            shared.baskets.discard(found[0])
            if found[1][-1]:  # a reading of its own: it ends, and one that begins anew is not to go on where it stood
                del self._shared_tails[found[1]]

    def wake(self) -> None:
        """End all waiting for records."""
        for basket, _ in self._by_browser.values():
            basket.filled.set()

    async def close(self) -> None:
        """End all live tails."""
        await give_up(*[one.task for one in self._shared_tails.values() if one.task is not None])

    def _sweep(self) -> None:
        now_s = self._clock()
        for browser, (basket, _) in list(self._by_browser.items()):
            if basket.left_at_s is not None and basket.left_at_s + LEFT_S < now_s:
                self.drop(browser)

    async def _read(self, key: Key, shared: _SharedTail) -> None:
        stream, at, shards, _ = key
        inspector, why = self._inspector.make_sibling(), "the stream was read to its end"
        begin, behind = Goal(at).begin(inspector.now_s)
        reading = Reading(starting_position=begin, behind=behind, shards=shards, follow=True, is_patient=True)
        following = awaited(self._deliver(read_pages(inspector, stream_name(stream), reading), shared))
        watching = awaited(self._until_left(shared, inspector))
        try:
            await asyncio.wait((following, watching), return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        except ShardwayError as fault:
            why = fault_text(fault)
        finally:
            self._end(key, shared, why)
            await give_up(following, watching)

    async def _deliver(self, pages: AsyncGenerator[SeenPage, None], shared: _SharedTail) -> None:
        async with contextlib.aclosing(pages):
            async for page in pages:
                baskets = tuple(shared.baskets)
                choosing = [one for one in baskets if one.test is not None]
                if not choosing:
                    for record in page:
                        for basket in baskets:
                            basket.put(record)
                    continue
                async with contextlib.aclosing(self._choose(page, choosing)) as found:
                    async for record, row_of in found:
                        for basket in baskets:
                            basket.put(record if basket.test is None else row_of[basket])

    async def _choose(
        self, page: SeenPage, choosing: list[Basket]
    ) -> AsyncGenerator[tuple[SeenRecord, dict[Basket, Row | None]], None]:
        looks = self._decoding.each(page, lambda record: self._look(record, choosing))
        async with contextlib.aclosing(looks) as parts:
            async for part in parts:
                for one in part:
                    yield one

    def _look(self, record: SeenRecord, choosing: list[Basket]) -> tuple[SeenRecord, dict[Basket, Row | None]]:
        """Return a record that is not decoded, and what each basket keeps of it. It runs in a thread."""
        masked = self._payloads.masked(record)
        found: dict[Basket, Row | None] = {}
        row: Row | None = None
        for basket in choosing:
            assert basket.test is not None
            wanted = basket.test(masked)
            row = self._payloads.row(masked) if wanted and row is None else row
            found[basket] = row if wanted else None
        return _without_value(record), found

    async def _until_left(self, shared: _SharedTail, inspector: Inspector) -> None:
        while shared.baskets:
            await asyncio.sleep(1.0)
            for basket in shared.baskets:
                basket.note = "; ".join(one.told for one in inspector.missing) or None
            self._sweep()

    def _end(self, key: Key, shared: _SharedTail, fault: str = "the reading failed") -> None:
        if self._shared_tails.get(key) is shared:
            del self._shared_tails[key]
        for basket in shared.baskets:
            basket.fault = fault
            basket.filled.set()
