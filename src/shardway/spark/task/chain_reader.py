"""A chain's reader fetches the pages of its ranges, one range after the other, and gives their rows piece by piece."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.kinesis.shapes import decode_get_records
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.spark.task.fetcher import Answer, Fetcher
from shardway.spark.task.range_cursor import RangeCursor
from shardway.spark.task.rows import OutsideTally, RowMaker, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.runtime.threads.loop_thread import ThreadCall
    from shardway.spark.ranges import Chain, ShardPartition

Piece = tuple[Rows, int, int]
"""A piece of rows: the rows, the index of the first one that is meant, and how many are meant."""


class _Page(NamedTuple):
    """Records of a range that are still to be turned into rows."""

    maker: RowMaker
    records: list[WireRecord]
    answer_bytes: int


class ChainReader:
    """Reads one chain: its ranges one after the other, with at most one call at a time."""

    def __init__(self, chain: Chain, partition: ShardPartition, client: KinesisClient, tally: OutsideTally) -> None:
        self.cursor: RangeCursor | None = None
        """The cursor of the range that is being fetched; None when all ranges are fetched."""
        self.call: ThreadCall[Answer] | None = None
        """The call that is under way; None when there is none."""
        self.held_bytes = 0
        """Bytes of the answers whose records are not yet given as rows."""
        self.finished = False
        self._partition = partition
        self._tally = tally
        self._fetcher = Fetcher(client, partition.stream)
        self._ranges = iter(chain)
        self._maker: RowMaker
        self._pages: deque[_Page] = deque()
        self._page: _Page | None = None
        self._parts: Iterator[Rows] = iter(())
        self._rows: Rows | None = None
        self._start = 0
        self._next_range()

    @property
    def may_fetch(self) -> bool:
        """True when there is a call to make and none is under way."""
        return self.cursor is not None and self.call is None

    def fetch(self, thread: LoopThread, limit: int, answered: Callable[[ChainReader], object]) -> None:
        """Make the next call."""
        assert self.cursor is not None
        self.call = thread.ask(self._fetcher.fetch(self.cursor, limit), partial(answered, self))

    def accept(self) -> tuple[int, int]:
        """Take in the answer that came, and return (its bytes, its number of records). Raises what the call raised."""
        cursor, call = self.cursor, self.call
        assert cursor is not None
        assert call is not None
        self.call = None
        try:
            answer = call.reply.result()
        except asyncio.CancelledError:
            raise RuntimeError("the connection was closed while a task read from it") from None
        if answer.body is None:
            cursor.end_without_shard()
            self._next_range()
            return 0, 0
        size = len(answer.body)
        page = decode_get_records(answer.body)
        records = cursor.take(page, answer.spent_s)
        if records:
            self._pages.append(_Page(self._maker, records, size))
            self.held_bytes += size
        if cursor.done:
            self._next_range()
        return size, len(page.records)

    def give(self, bytes_wanted: int, rows_max: int) -> Piece | None:
        """Return the next rows, up to ``bytes_wanted`` or ``rows_max``, if they are there; None when another page is
        needed, or all were given.
        """
        while self._rows is None:
            self._rows, self._start = next(self._parts, None), 0
            if self._rows is None and not self._next_page():
                self.finished = self.cursor is None
                return None
        rows, start = self._rows, self._start
        count = min(rows.reaching(start, bytes_wanted), rows_max)
        self._start += count
        if self._start == rows.count:
            self._rows = None
        return rows, start, count

    def _next_page(self) -> bool:
        if self._page is not None:
            self.held_bytes -= self._page.answer_bytes
            self._page = None
        if not self._pages:
            return False
        self._page = self._pages.popleft()
        self._parts = self._page.maker.rows(self._page.records)
        return True

    def _next_range(self) -> None:
        """Begin with the next range that must be fetched; the rows of those before it came with the partition."""
        self.cursor = None
        options = self._partition.options
        for range_ in self._ranges:
            self._maker = RowMaker(range_, options, self._tally)
            carried = self._partition.carried.get(range_.shard_id)
            if carried is None:
                self.cursor = RangeCursor(range_, str(self._partition.stream), options)
                return
            self._pages.append(_Page(self._maker, list(carried), 0))
