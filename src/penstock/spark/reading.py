"""A Spark task: reads the chains of its partition at the same time, and yields their rows in an order that depends
on the records alone.

::

    chains  ──►  window of at most chains_max chains, each with one call under way     (event loop, own thread)
                     │ answers, as they come
                     ▼
                 decoded, judged by the range's cursor, kept as records                 (this thread)
                     │ turns: so many bytes or rows of one chain, then of the next
                     ▼
                 Arrow rows  ──►  record batches

The turns make the order: each chain of the window gives a fixed amount, round and round, however the answers came in.
So every attempt of a task yields the same batches. (Spark recomputes a lost partition and counts on the same order,
for example where it deals rows out round-robin.) While one chain is waited for, the answers of the others are taken in
and their next calls made, as far as ``prefetch_bytes_max`` allows.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.aws.kinesis import KinesisClient, decode_get_records
from penstock.aws.wire import Wire
from penstock.runtime.loop_thread import LoopThread
from penstock.runtime.waiting import Reply
from penstock.spark.fetching import Fetcher, RangeCursor
from penstock.spark.rows import Batcher, OutsideTally, RowMaker, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import pyarrow as pa

    from penstock.aws.kinesis import WireRecord
    from penstock.aws.options import ConnectionOptions
    from penstock.runtime.loop_thread import Asked
    from penstock.spark.fetching import Answer
    from penstock.spark.ranges import Chain, ShardPartition

# --- connections of a worker process --------------------------------------------------------------
# Connections of a worker process: Spark reuses its Python workers, so a client is kept from task to task.
#
# A worker is a fork of Spark's daemon. Threads and sockets do not survive a fork, so a process that finds the
# connections of its parent forgets them and makes its own.

CONNECTIONS_MAX = 8
"""Clients of different settings that a worker keeps; the one that was not used for the longest time is closed."""
STREAMS_MAX = 1_000
"""Streams of which a connection remembers how large their records are."""


class Connection:
    """A Kinesis client on an event loop in a thread of its own."""

    def __init__(self, settings: ConnectionOptions) -> None:
        self.thread = LoopThread("penstock-spark")
        self.client = KinesisClient(Wire(settings))
        self._record_bytes: dict[str, float] = {}

    def record_bytes(self, stream: str) -> float | None:
        """What a record of the stream takes in an answer of GetRecords, in bytes; None: not known yet."""
        return self._record_bytes.get(stream)

    def note_record_bytes(self, stream: str, answer_bytes: int, records: int) -> None:
        """Learn from an answer: larger records count at once, smaller ones little by little."""
        seen = answer_bytes / records
        known = self._record_bytes.get(stream, 0.0)
        if len(self._record_bytes) >= STREAMS_MAX and stream not in self._record_bytes:
            self._record_bytes.clear()
        self._record_bytes[stream] = max(seen, (3 * known + seen) / 4)

    def close(self) -> None:
        """Close the client and end the thread."""
        self.thread.run(self.client.wire.close())
        self.thread.close()


_connections: OrderedDict[ConnectionOptions, Connection] = OrderedDict()
_inherited: dict[ConnectionOptions, Connection] = {}
"""Of the parent process: kept from destructors, which would act on sockets that the parent still uses."""
_lock = threading.Lock()
_owner = os.getpid()


def connection_for(settings: ConnectionOptions) -> Connection:
    """The connection of this process with these settings; it stays open."""
    global _owner
    with _lock:
        if _owner != os.getpid():  # forked: the threads are not here, and the sockets are the parent's
            _inherited.update(_connections)
            _connections.clear()
            _owner = os.getpid()
        connection = _connections.get(settings)
        if connection is None:
            connection = _connections[settings] = Connection(settings)
        _connections.move_to_end(settings)
        if len(_connections) > CONNECTIONS_MAX:
            _connections.popitem(last=False)[1].close()
        return connection


def close_connections() -> None:
    """Close all connections of this process; the next task makes new ones."""
    with _lock:
        if _owner == os.getpid():
            while _connections:
                _connections.popitem()[1].close()


def _forked() -> None:
    """In a child: a lock that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_connections)


# --- the task -------------------------------------------------------------------------------------

Piece = tuple[Rows, int, int]
"""Rows, the first of them that is meant, how many."""

LIMIT_MAX = 10_000
"""Records that GetRecords returns at most."""
ANSWER_BYTES_MAX = 14 * 2**20
"""What an answer can have: 10 MiB of data in base64."""
PAGE_BYTES_MIN = 512 * 1024
"""Pages are not made smaller than this: at 5 calls a second a shard still gives its 2 MiB a second."""
TURN_BYTES_MIN = 256 * 1024
TURN_ROWS = 10_000
"""No more than a page, so that a chain's turn does not wait for pages one by one while others stand still."""


def read_partition(partition: ShardPartition) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a partition as Arrow record batches: the same ones in the same order, whatever the attempt.

    Every range is read to its end, or this raises: DataLossError, StalledError (worth another attempt), AggregateError
    (user records outside their shard's range, if that is to fail), or what the service says (ServiceError,
    CredentialsError, TransportError).
    """
    reading = _Reading(partition, connection_for(partition.settings.connection))
    try:
        yield from reading.batches()
    finally:
        reading.close()


class _Page(NamedTuple):
    """Records of a range that are still to be turned into rows."""

    maker: RowMaker
    records: list[WireRecord]
    answer_bytes: int


class _ChainReader:
    """One chain: its ranges one after the other, at most one call at a time."""

    def __init__(self, chain: Chain, partition: ShardPartition, client: KinesisClient, tally: OutsideTally) -> None:
        self.cursor: RangeCursor | None = None
        """Of the range that is being fetched; None: all ranges are."""
        self.call: Asked[Answer] | None = None
        """The one under way."""
        self.held_bytes = 0
        """Answers whose records are not yet given as rows."""
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

    def fetch(self, thread: LoopThread, limit: int, answered: Callable[[_ChainReader], object]) -> None:
        """Make the next call."""
        assert self.cursor is not None
        self.call = thread.ask(self._fetcher.fetch(self.cursor, limit), partial(answered, self))

    def accept(self) -> tuple[int, int]:
        """Take in the answer that came: (its bytes, its records). Raises what the call raised."""
        cursor, call = self.cursor, self.call
        assert cursor is not None
        assert call is not None
        self.call = None
        try:
            answer = call.reply.result()
        except asyncio.CancelledError:
            raise RuntimeError("the connection was closed while a task read from it") from None
        if answer.body is None:
            cursor.shard_is_gone()
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
        """The next rows, up to so many if they are there. None: another page is needed, or all were given."""
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
        range_ = next(self._ranges, None)
        if range_ is None:
            self.cursor = None
            return
        settings = self._partition.settings
        self.cursor = RangeCursor(range_, str(self._partition.stream), settings)
        self._maker = RowMaker(range_, settings, self._tally)


class _Reading:
    """All chains of a partition: whose turn it is, and which calls to make."""

    def __init__(self, partition: ShardPartition, connection: Connection) -> None:
        settings = partition.settings
        self._partition = partition
        self._connection = connection
        self._stream = str(partition.stream)
        self._tally = OutsideTally()
        chains_at_once = max(1, min(settings.chains_max, len(partition.chains)))
        # The turns follow from the partition alone. All else here may differ from attempt to attempt.
        self._turn_bytes = max(TURN_BYTES_MIN, settings.prefetch_bytes_max // (2 * chains_at_once))
        self._waiting = deque(partition.chains)
        self._window = [self._next_chain() for _ in range(min(chains_at_once, len(partition.chains)))]
        self._held_bytes_max = settings.prefetch_bytes_max
        share = settings.prefetch_bytes_max // (chains_at_once + 1)
        self._page_bytes = min(max(share, PAGE_BYTES_MIN), ANSWER_BYTES_MAX)
        # No queue: Python's stay locked where a signal handler raises in them, as Ctrl-C does in Spark's Python
        # processes, and the loop, which serves the next task too, would wait for ever.
        self._answered: deque[_ChainReader] = deque(maxlen=chains_at_once)  # a call per chain
        self._came = Reply[None]()

    def batches(self) -> Iterator[pa.RecordBatch]:
        batcher = Batcher(self._partition.stream.short, self._partition.settings)
        slot = 0
        while self._window:
            chain = self._window[slot]
            for rows, start, count in self._turn(chain, slot):
                yield from batcher.add(rows, start, count)
            if chain.finished:
                if self._waiting:
                    self._window[slot] = self._next_chain()
                else:
                    self._window.pop(slot)
                    slot -= 1
            slot = (slot + 1) % max(1, len(self._window))
        yield from batcher.rest()
        self._tally.tell(self._stream, self._partition.settings)

    def close(self) -> None:
        """Drop the calls that are under way (the task was ended early, or failed)."""
        for chain in self._window:
            if chain.call is not None:
                chain.call.cancel()

    def _next_chain(self) -> _ChainReader:
        return _ChainReader(self._waiting.popleft(), self._partition, self._connection.client, self._tally)

    def _turn(self, chain: _ChainReader, slot: int) -> Iterator[Piece]:
        """What the chain gives this time: a fixed amount, unless it comes to its end."""
        bytes_left, rows_left = self._turn_bytes, TURN_ROWS
        while bytes_left > 0 and rows_left > 0:
            piece = chain.give(bytes_left, rows_left)
            if piece is None:
                if chain.finished:
                    return
                self._make_calls(slot)
                self._answered_one()
                continue
            rows, start, count = piece
            bytes_left -= rows.bytes_of(start, count)
            rows_left -= count
            yield piece
        self._make_calls(slot)

    def _answered_one(self) -> None:
        """Wait for an answer, of whichever chain, and take it in."""
        while not self._answered:
            self._came = came = Reply[None]()
            if not self._answered:  # what was there before may have told the one before
                came.result()
        answer_bytes, records = self._answered.popleft().accept()
        if records:
            self._connection.note_record_bytes(self._stream, answer_bytes, records)

    def _make_calls(self, slot: int) -> None:
        """Make the calls that memory allows, those first whose turn comes first; for this turn's chain always."""
        record_bytes = self._connection.record_bytes(self._stream)
        limit, expected = LIMIT_MAX, ANSWER_BYTES_MAX
        if record_bytes is not None:
            limit = min(max(int(self._page_bytes / record_bytes), 1), LIMIT_MAX)
            expected = min(int(limit * record_bytes), ANSWER_BYTES_MAX)
        held = sum(chain.held_bytes + expected * (chain.call is not None) for chain in self._window)
        for chain in self._window[slot:] + self._window[:slot]:
            if not chain.may_fetch:
                continue
            fits = held + expected <= self._held_bytes_max and chain.held_bytes < self._page_bytes
            if fits or (chain is self._window[slot] and not chain.held_bytes):
                held += expected
                chain.fetch(self._connection.thread, limit, self._answer_came)

    def _answer_came(self, chain: _ChainReader) -> None:
        """Called on the loop."""
        self._answered.append(chain)
        self._came.set_result(None)
