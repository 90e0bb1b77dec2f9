"""A Spark task reads the chains of its partition at the same time, and yields their rows in an order that depends on
the records alone.

::

    chains  ──►  window of at most chains_max chains, each with one call under way     (event loop, own thread)
                     │ answers, as they come; or records that the partition brought
                     ▼
                 decoded, judged by the range's cursor, kept as records                 (this thread)
                     │ turns: a fixed amount of one chain, then of the next
                     ▼
                 Arrow rows  ──►  record batches

The turns make the order: each chain of the window gives a fixed amount, round and round, however the answers came
in. So every attempt of a task yields the same batches. (Spark recomputes a lost partition and counts on the same
order, for example where it deals rows out round-robin.) While one chain is waited for, the answers of the others are
taken in and their next calls made, as far as ``prefetch_bytes_max`` allows.
"""

from __future__ import annotations

import asyncio
import atexit
import datetime as dt
import logging
import os
import random
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from shardway.aws.calls import NEVER
from shardway.aws.kinesis import KinesisClient, decode_get_records
from shardway.aws.wire import Wire
from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import NextStep, Sign
from shardway.core.pacing import Backoff
from shardway.errors import (
    DataLossError,
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    ShardwayError,
    StalledError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.spark.ranges import EndKind
from shardway.spark.rows import Batcher, OutsideTally, RowMaker, Rows
from shardway.tasks import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from shardway.aws.kinesis import GetRecordsPage, IteratorAt, WireRecord
    from shardway.aws.options import ConnectionOptions
    from shardway.core.log.cursor import Step
    from shardway.model import StreamName
    from shardway.runtime.threads.loop_thread import ThreadCall
    from shardway.spark.ranges import Chain, ShardPartition, ShardRange, TaskOptions


# --- connections of a worker process --------------------------------------------------------------
# Spark reuses its Python workers, so a worker process keeps a client from task to task.
#
# A worker is a fork of Spark's daemon. Threads and sockets do not survive a fork, so a process that finds the
# connections of its parent forgets them and makes its own.

CONNECTIONS_MAX = 8
"""The most clients of different options that a worker keeps; the one that was unused for the longest time is closed."""
STREAMS_MAX = 1_000
"""The most streams of which a connection remembers how large their records are."""


class Connection:
    """A Kinesis client on an event loop in a thread of its own."""

    def __init__(self, options: ConnectionOptions) -> None:
        self.thread = LoopThread("shardway-spark")
        self.client = KinesisClient(Wire(options))
        self._record_bytes: dict[str, float] = {}

    def record_bytes(self, stream: str) -> float | None:
        """Return the bytes that a record of the stream takes in an answer of GetRecords; None while not known."""
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
"""The connections of the parent process: they are kept from destructors, which would act on sockets that the parent
still uses.
"""
_lock = threading.Lock()
_owner = os.getpid()


def connection_for(options: ConnectionOptions) -> Connection:
    """Return the connection of this process with these options; it stays open."""
    global _owner
    with _lock:
        if _owner != os.getpid():  # the process was forked: the threads are not here, and the sockets are the parent's
            _inherited.update(_connections)
            _connections.clear()
            _owner = os.getpid()
        connection = _connections.get(options)
        if connection is None:
            connection = _connections[options] = Connection(options)
        _connections.move_to_end(options)
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
    """Make a new lock in a child process: one that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_connections)


# --- the task -------------------------------------------------------------------------------------

Piece = tuple[Rows, int, int]
"""A piece of rows: the rows, the index of the first one that is meant, and how many are meant."""

LIMIT_MAX = 10_000
"""The most records that GetRecords returns."""
ANSWER_BYTES_MAX = 14 * 2**20
"""The most bytes that an answer can have: 10 MiB of data in base64."""
PAGE_BYTES_MIN = 512 * 1024
"""Bytes below which pages are not made smaller: at 5 calls a second a shard still gives its 2 MiB a second."""
TURN_BYTES_MIN = 256 * 1024
TURN_ROWS = 10_000
"""Rows of one turn: no more than a page has, so that a chain's turn does not wait for pages one by one while others
stand still.
"""


def read_partition(partition: ShardPartition) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a partition as Arrow record batches: the same ones in the same order, whatever the attempt.

    Every range is read to its end, or this raises: DataLossError, StalledError (worth another attempt), AggregateError
    (user records outside their shard's range, if that is to fail), or what the service says (ServiceError,
    CredentialsError, TransportError).
    """
    reading = _Reading(partition, connection_for(partition.options.connection))
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

    def fetch(self, thread: LoopThread, limit: int, answered: Callable[[_ChainReader], object]) -> None:
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
        """Go on to the next range that must be fetched; what came with the partition lies before it."""
        self.cursor = None
        options = self._partition.options
        for range_ in self._ranges:
            self._maker = RowMaker(range_, options, self._tally)
            carried = self._partition.carried.get(range_.shard_id)
            if carried is None:
                self.cursor = RangeCursor(range_, str(self._partition.stream), options)
                return
            self._pages.append(_Page(self._maker, list(carried), 0))


class _Reading:
    """Reads all chains of a partition: decides whose turn it is, and which calls to make."""

    def __init__(self, partition: ShardPartition, connection: Connection) -> None:
        options = partition.options
        self._partition = partition
        self._connection = connection
        self._stream = str(partition.stream)
        self._tally = OutsideTally()
        chains_at_once = max(1, min(options.chains_max, len(partition.chains)))
        # The turns follow from the partition alone. All else here may differ from attempt to attempt.
        self._turn_bytes = max(TURN_BYTES_MIN, options.prefetch_bytes_max // (2 * chains_at_once))
        self._waiting = deque(partition.chains)
        self._window = [self._next_chain() for _ in range(min(chains_at_once, len(partition.chains)))]
        self._held_bytes_max = options.prefetch_bytes_max
        share = options.prefetch_bytes_max // (chains_at_once + 1)
        self._page_bytes = min(max(share, PAGE_BYTES_MIN), ANSWER_BYTES_MAX)
        # This is no queue: Python's queues stay locked where a signal handler raises in them, as Ctrl-C does in Spark's
        # Python processes, and the loop, which serves the next task too, would wait for ever.
        self._answered: deque[_ChainReader] = deque(maxlen=chains_at_once)  # a call per chain
        self._came = Reply[None]()

    def batches(self) -> Iterator[pa.RecordBatch]:
        batcher = Batcher(self._partition.stream.short, self._partition.options)
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
        self._tally.tell(self._stream, self._partition.options)

    def close(self) -> None:
        """Drop the calls that are under way (the task was ended early, or failed)."""
        for chain in self._window:
            if chain.call is not None:
                chain.call.cancel()

    def _next_chain(self) -> _ChainReader:
        return _ChainReader(self._waiting.popleft(), self._partition, self._connection.client, self._tally)

    def _turn(self, chain: _ChainReader, slot: int) -> Iterator[Piece]:
        """Yield what the chain gives this time: a fixed amount, unless it comes to its end."""
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
            if not self._answered:  # an answer that came just now may have set the former reply
                came.result()
        answer_bytes, records = self._answered.popleft().accept()
        if records:
            self._connection.note_record_bytes(self._stream, answer_bytes, records)

    def _make_calls(self, slot: int) -> None:
        """Make the calls that memory allows, first those of the chain whose turn comes first; the chain whose turn it
        is calls even where memory does not allow it, if it holds nothing.
        """
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
        """Take note, on the loop, that the call of a chain was answered."""
        self._answered.append(chain)
        self._came.set_result(None)


# --- one range of a shard -------------------------------------------------------------------------
# A task gets one range of a shard page by page, and decides which records belong to it, when it is done, and what is a
# loss.
#
# Where the log is read is the matter of the cursor (`shardway.core.log.cursor`), by the policy `RANGE`. A range
# is bounded by records that the driver saw, so each answer of the service can be judged:
#
# - the first record must come. If a later one comes in its place, records were trimmed before they were read.
#   Wherever a range is started again, the last record that was read must come again;
# - an end that was seen must come too. If the log goes on without it, it was trimmed meanwhile, and what lay
#   before it may be gone as well;
# - a shard that ends, or a tip that is reached, before the range's end: an error, never the end of the range.
#
# The calls to the service run on the event loop. A call that fails is repeated until nothing came for too long.

# --- which records of a page are of the range -----------------------------------------------------

logger = logging.getLogger("shardway.spark")

EMPTY_PAUSE_S = 0.25
"""Seconds before the next call after an empty page: within the 5 calls a second that all readers of a shard share."""
TRIMMED_WAIT_SHARE = 0.1
"""The part of ``no_progress_s`` for which the tip must be seen before a range at risk counts as trimmed as a whole."""
RANGE = Policy(by_time=True, returns=True, expects=True, doubts_end=False)
"""The policy of a range. Its end was seen, so more has to come until then; so has the last record that was read,
wherever the range is started again. A number that is trimmed is looked for by its time: from a trimmed time on, the log
begins at its oldest record.
"""


class RangeCursor:
    """Keeps how far a range is read. ``take`` judges a page and returns the records of it that are in the range."""

    def __init__(self, range_: ShardRange, stream: str, options: TaskOptions) -> None:
        self.range = range_
        self.done = False
        """True when the range is read to its end (or what is left of it)."""
        self.lost = False
        """True when records of the range are, or may be, gone, and the query goes on without them."""
        self.iterator: str | None = None
        """The iterator for the next GetRecords; None where one is to be asked for at `start`."""
        self.pause_s = 0.0
        """Seconds to wait before the next call."""
        self.waited_s = 0.0
        """Seconds that calls and pauses took since the last progress."""
        self._stream = stream
        self._options = options
        self._is_read = False  # the anchor of the log's cursor was read: it is left out when it comes again
        self._log = LogCursor(
            RANGE, anchor=range_.first_sequence_number, anchor_s=range_.first_arrival_s, is_doubted=range_.at_risk
        )

    def start(self) -> IteratorAt:
        """Return where to ask for an iterator when there is none: at the first record, or at the last one read.

        The last one read must come again, and is skipped: a reader that starts *after* a record does not see what was
        trimmed behind it.
        """
        return self._log.ask()

    def take(self, page: GetRecordsPage, spent_s: float) -> list[WireRecord]:
        """Return the records of the page that are in the range. ``spent_s`` is what getting the page took.

        Raises DataLossError if records are gone (and losses fail the query), StalledError if the range's end
        cannot be reached, or not in ``no_progress_s``.
        """
        self.iterator = page.next_shard_iterator
        log, records, was_met = self._log, page.records, self._log.is_met
        step = log.page(
            records,
            behind_ms=page.millis_behind_latest,
            is_last=self.iterator is None,
            tip_counts=self._tip_counts(spent_s),
        )
        taken: list[WireRecord] = []
        if records:
            self.pause_s = 0.0
            if step.sign is not Sign.OLDER:
                taken = self._within(records, step.start, step.sign)
        if taken:
            self._is_read, self.waited_s = True, 0.0
        else:
            self.waited_s += spent_s
        if self.done:
            return taken
        if self.iterator is None:
            self._shard_ended(was_met=was_met or step.sign in (Sign.MET, Sign.BEYOND))
        elif not records:
            self._nothing_came(page, step)
        elif taken and self.range.at_risk:
            self.iterator = None  # an iterator moves on in silence when retention overtakes it
        return taken

    def refuse_sequence_number(self) -> bool:
        """Ask by time from here on, as the service takes no iterator at the sequence number (it is another stream's).

        Return False if it was asked by time already.
        """
        if not self._log.by_number:
            return False
        self._log.refused()
        self.iterator = None
        return True

    def shard_is_gone(self) -> None:
        """End the range, as the service does not know the shard any more: what is left of the range is lost."""
        self._lose("the shard does not exist any more: it was closed, and its last record is past the retention")
        self.done = True

    def check_time(self, spent_s: float, cause: Exception | str) -> None:
        """Raises StalledError when nothing came for ``no_progress_s``; ``cause`` tells what came in its place."""
        if self.waited_s + spent_s >= self._options.no_progress_s:
            raise StalledError(
                f"{self}: nothing nearer to its end came in {self.waited_s + spent_s:.0f} s; last: {cause}. "
                "The range's end is a record (or an end of a shard) that was seen when the batch was planned, so "
                "the task does not stop before it; it can be run again"
            ) from (cause if isinstance(cause, Exception) else None)

    def __str__(self) -> str:
        at = f"after {self._log.known}" if self._is_read else "at its start"
        return f"stream {self._stream}, range {self.range}, {at}"

    def _tip_counts(self, spent_s: float) -> bool:
        """True when the tip has been seen for so long that a range at risk of which nothing came is gone."""
        return self.range.at_risk and self.waited_s + spent_s >= self._options.no_progress_s * TRIMMED_WAIT_SHARE

    def _within(self, records: list[WireRecord], start: int, sign: Sign) -> list[WireRecord]:
        """Return the records of a page that are in the range, from the anchor on, or from what came in its place."""
        if sign is Sign.MET:
            start += self._is_read and _number(records[start]) == self._log.anchor
        elif sign is Sign.BEYOND:
            self._anchor_is_trimmed(records[start])
        stop = self._stop(records)
        return records[start:stop] if start or stop < len(records) else records

    def _anchor_is_trimmed(self, record: WireRecord) -> None:
        number = _number(record)
        whole = not self._is_read and self._beyond_end(number)
        self._lose(
            f"record {self._log.anchor} (arrived {_utc(self._log.anchor_s)}) is trimmed; the oldest record left is "
            f"{number} (arrived {_utc(record.approximate_arrival_timestamp)}), "
            + ("after the whole range" if whole else "and what lay between them is gone")
        )

    def _beyond_end(self, number: int) -> bool:
        end = self.range.end_sequence_number
        if end is None:
            return False
        return number >= end if self.range.end_kind is EndKind.EXCLUSIVE else number > end

    def _stop(self, records: Sequence[WireRecord]) -> int:
        """Return where the range ends in these records, and note when it does."""
        end = self.range.end_sequence_number
        if end is None or _number(records[-1]) < end:
            return len(records)
        self.done = True
        if self.range.end_kind is EndKind.EXCLUSIVE:
            stop = bisect_left(records, end, key=_number)
            met = _number(records[stop]) == end
        else:
            stop = bisect_right(records, end, key=_number)
            met = stop > 0 and _number(records[stop - 1]) == end
        if not met and not self.lost:
            self._lose(
                f"the log goes on after {end}, but that record itself, the range's end, is not there any more: it was "
                "trimmed while the range was read, and records before it may be gone too"
            )
        return stop

    def _shard_ended(self, *, was_met: bool) -> None:
        if not was_met:
            self._lose(f"the shard is closed, and from record {self._log.anchor} on all of it is trimmed")
        elif self.range.end_kind is not EndKind.SHARD_END:
            raise StalledError(
                f"{self}: the shard ended before the range's end, which was seen when the batch was planned"
            )
        self.done = True

    def _nothing_came(self, page: GetRecordsPage, step: Step) -> None:
        """Judge an empty page: over a silence it is progress; at the tip the service may lag; at a trimmed record there
        is no end of such pages.
        """
        self.pause_s = EMPTY_PAUSE_S
        if step.sign is Sign.CROSSING:
            self.waited_s = 0.0
        elif step.does is NextStep.ASK:
            self.iterator = None
        elif step.is_loss:
            self._lose(f"from record {self._log.anchor} on all of it is trimmed, and nothing came after it")
            self.done = True
        else:
            behind_ms = page.millis_behind_latest
            self.check_time(0.0, f"an empty page {'at' if behind_ms == 0 else f'{behind_ms} ms behind'} the tip")

    def _lose(self, what: str) -> None:
        """Report a loss, which is loud: it is an error, or a warning if the query is to go on."""
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{self}: {what}. To go on with what is left, set failOnDataLoss to false; to have more time, "
                "raise the stream's retention"
            )
        self.lost = True
        logger.warning("%s: %s. Going on with what is left, because failOnDataLoss is false", self, what)


def _number(record: WireRecord) -> int:
    return int(record.sequence_number)


def _utc(epoch_s: float) -> str:
    return dt.datetime.fromtimestamp(epoch_s, dt.UTC).isoformat(timespec="milliseconds")


# --- pages from the service -----------------------------------------------------------------------

T = TypeVar("T")

BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 5.0
"""The longest pause in seconds: after an answer of 10 MiB the service refuses a shard's calls for up to 5 s (AWS API
reference, GetRecords).
"""
CALL_S = 0.2
"""Seconds for one call: a shard takes 5 GetRecords calls a second, from all its readers together."""
READ_BYTES_PER_S = 2 * 2**20
"""The bytes per second at which a shard is read, by all its readers together."""
ITERATOR_AGE_S = 60.0
"""Seconds after which an iterator is replaced by one at the last record read, to notice if the retention has overtaken
it.
"""


class Answer(NamedTuple):
    """The body of a GetRecords answer, not decoded; None where the shard does not exist any more."""

    body: bytes | None
    spent_s: float
    """Seconds that the answer took, with all pauses and repetitions."""


class ShardPace:
    """Keeps the calls on one shard within its limits, from the first refusal on.

    Before that there is no reason to wait: most often no other program reads, and calls are further apart anyway.
    """

    def __init__(self) -> None:
        self._refused = False
        self._free_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the shard's limits have room for the next call."""
        return max(0.0, self._free_at_s - now_s) if self._refused else 0.0

    def note_refusal(self) -> None:
        """Take note that the service refused a call because of the shard's limits."""
        self._refused = True

    def note_answer(self, now_s: float, answer_bytes: int) -> None:
        """Take note of an answer; its bytes are base64 in JSON, a third more than what the service counts."""
        cost_s = max(CALL_S, answer_bytes * 0.75 / READ_BYTES_PER_S)
        self._free_at_s = max(self._free_at_s, now_s) + cost_s


class Fetcher:
    """Gets pages for the ranges of one chain, one at a time."""

    def __init__(self, client: KinesisClient, stream: StreamName, rng: random.Random | None = None) -> None:
        self._client = client
        self._stream = stream
        self._pace = ShardPace()
        self._answered_at_s = 0.0
        self._backoff = Backoff(base_s=BACKOFF_BASE_S, cap_s=BACKOFF_CAP_S, rng=rng or random.Random())

    async def fetch(self, cursor: RangeCursor, limit: int) -> Answer:
        """Get the page that the cursor stands before, of at most ``limit`` records.

        An iterator that has expired is replaced; refusals, failures of the service and broken connections are repeated
        with jitter. Raises StalledError when that takes too long, and at once what repeating cannot help.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if cursor.pause_s:
            await asyncio.sleep(cursor.pause_s)
        if began_s - self._answered_at_s > ITERATOR_AGE_S:
            cursor.iterator = None

        async def page() -> bytes | None:
            if cursor.iterator is None and not await self._find_iterator(cursor):
                return None
            if wait_s := self._pace.wait_s(loop.time()):
                await asyncio.sleep(wait_s)
            iterator = cursor.iterator
            assert iterator is not None
            body = await self._client.get_records_raw(iterator, limit=limit, stream=self._stream, retry=NEVER)
            self._answered_at_s = loop.time()
            self._pace.note_answer(self._answered_at_s, len(body))
            return body

        body = await self._repeat(page, cursor, began_s)
        self._backoff.reset()
        return Answer(body, loop.time() - began_s)

    async def _find_iterator(self, cursor: RangeCursor) -> bool:
        """Ask for an iterator where the cursor starts. Return False if the shard does not exist any more."""
        try:
            cursor.iterator = await self._iterator(cursor)
        except InvalidArgumentError:
            if not cursor.refuse_sequence_number():
                raise
            cursor.iterator = await self._iterator(cursor)
        except NotFoundError:
            # It is the stream that is not there, or only the shard. If it is the stream, this raises the same error.
            await self._client.describe_stream_summary(self._stream, retry=NEVER)
            return False
        return True

    async def _iterator(self, cursor: RangeCursor) -> str:
        return await self._client.get_shard_iterator(self._stream, cursor.range.shard_id, cursor.start(), retry=NEVER)

    async def _repeat(self, call: Callable[[], Awaitable[T]], cursor: RangeCursor, began_s: float) -> T:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call()
            except (ThrottledError, UnavailableError, TransportError, ExpiredIteratorError) as error:
                if isinstance(error, ExpiredIteratorError):
                    cursor.iterator = None
                elif isinstance(error, ThrottledError):
                    self._pace.note_refusal()
                cursor.check_time(loop.time() - began_s, error)
                await asyncio.sleep(self._backoff.next_s())
            except ShardwayError as error:
                error.add_note(f"while reading {cursor}")
                raise
