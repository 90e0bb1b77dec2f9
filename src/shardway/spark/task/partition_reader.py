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

from collections import deque
from typing import TYPE_CHECKING

from shardway.reply import Reply
from shardway.spark.task.batcher import Batcher
from shardway.spark.task.chain_reader import ChainReader, Piece
from shardway.spark.task.connections import Connection, connection_for
from shardway.spark.task.rows import OutsideTally

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pyarrow as pa

    from shardway.spark.ranges import ShardPartition

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
    reader = PartitionReader(partition, connection_for(partition.options.connection))
    try:
        yield from reader.batches()
    finally:
        reader.close()


class PartitionReader:
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
        self._waiting_chains = deque(partition.chains)
        self._window = [self._next_chain() for _ in range(min(chains_at_once, len(partition.chains)))]
        self._held_bytes_max = options.prefetch_bytes_max
        share = options.prefetch_bytes_max // (chains_at_once + 1)
        self._page_bytes = min(max(share, PAGE_BYTES_MIN), ANSWER_BYTES_MAX)
        # This is no queue: Python's queues stay locked where a signal handler raises in them, as Ctrl-C does in Spark's
        # Python processes, and the loop, which serves the next task too, would wait for ever.
        self._answered_readers: deque[ChainReader] = deque(maxlen=chains_at_once)  # a call per chain
        self._arrival = Reply[None]()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all chains, turn by turn."""
        batcher = Batcher(self._partition.stream.short, self._partition.options)
        slot = 0
        while self._window:
            chain = self._window[slot]
            for rows, start, count in self._turn(chain, slot):
                yield from batcher.add(rows, start, count)
            if chain.finished:
                if self._waiting_chains:
                    self._window[slot] = self._next_chain()
                else:
                    self._window.pop(slot)
                    slot -= 1
            slot = (slot + 1) % max(1, len(self._window))
        yield from batcher.rest()
        self._tally.warn(self._stream, self._partition.options)

    def close(self) -> None:
        """Drop the calls that are under way (the task was ended early, or failed)."""
        for chain in self._window:
            if chain.call is not None:
                chain.call.cancel()

    def _next_chain(self) -> ChainReader:
        return ChainReader(self._waiting_chains.popleft(), self._partition, self._connection.client, self._tally)

    def _turn(self, chain: ChainReader, slot: int) -> Iterator[Piece]:
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
        """Wait for an answer to any chain, and take it in."""
        while not self._answered_readers:
            self._arrival = came = Reply[None]()
            if not self._answered_readers:  # an answer that came just now may have set the former reply
                came.result()
        answer_bytes, records = self._answered_readers.popleft().accept()
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

    def _answer_came(self, chain: ChainReader) -> None:
        """Take note, on the loop, that the call of a chain was answered."""
        self._answered_readers.append(chain)
        self._arrival.set_result(None)
