"""A task of the sink puts its rows, in their order, through a producer into the stream.

A task ends when all its rows are written, or raises. After the first row that is not written, nothing more is sent:
Spark runs the task again, and the rows that came behind that row are then written behind it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import Counter, OrderedDict, deque
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from shardway.errors import InvalidRecordError, NotFoundError, ProducerClosedError, ShardwayError, StalledError
from shardway.model import OutRecord
from shardway.options import ProducerOptions
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.spark.options import BY_POSITION, NO_STAMPS
from shardway.spark.stamps import key_labels, position_labels, sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.aws.options import ConnectionOptions
    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.runtime.producer.handles import SyncPuts
    from shardway.spark.options import SinkColumns, SinkOptions

# --- labels that a task has had -------------------------------------------------------------------
# This part finds out whether a task has had a label before, for any number of rows in bounded memory.
#
# The labels are the keys of a private SQLite table, which lies in memory as long as it is small, and else in a file of
# the system's folder for temporary files that is gone with the process. In the order of the source, which is that of
# the labels, a row costs 1.7 microseconds, in any order up to some 6.

MEMORY_BYTES = 16 * 1024 * 1024
"""Bytes of the table that are kept in memory; a label takes some 70 bytes."""


class Distinct:
    """The labels of the rows of one task, which are forgotten when it is closed."""

    def __init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None)
        pragmas = (f"cache_size = -{MEMORY_BYTES // 1024}", "journal_mode = OFF", "synchronous = OFF")
        for pragma in pragmas:
            self._table.execute(f"PRAGMA {pragma}")
        self._table.execute("CREATE TABLE labels (label BLOB PRIMARY KEY) WITHOUT ROWID")
        self._table.execute("BEGIN")

    def add(self, labels: Iterable[bytes]) -> bool:
        """Add labels. Return True when each is new. Raises ShardwayError where the disk has no room for them."""
        try:
            self._table.executemany("INSERT INTO labels VALUES (?)", ((label,) for label in labels))
        except sqlite3.IntegrityError:
            return False
        except sqlite3.OperationalError as error:
            raise ShardwayError(
                f"stamps position: a task compares its rows in a temporary file, which takes no more ({error})"
                ": give the executors a larger folder for temporary files (TMPDIR), or make smaller partitions"
            ) from error
        return True

    def close(self) -> None:
        """Free what the table took."""
        self._table.close()


# --- producers of a worker process ----------------------------------------------------------------
# Spark reuses its Python workers, so a worker process keeps a producer from task to task.
#
# What the producer has learnt (shards, rates) and its connections serve the next task, and the stream's shards are not
# listed for each. A worker runs one task at a time. As in `shardway.spark.task.connections`, a process that was forked
# makes its own producers.

PRODUCERS_MAX = 4
"""The most producers of different options that a worker keeps; the one that was unused for the longest time is closed.
"""
SHARD_MAP_REFRESH_S = 300.0
"""Seconds between two listings of a stream's shards: answers show a reshard at once, and many idle workers must not
list the shards often.
"""


class ProducerKey(NamedTuple):
    """The key that tells the producers of a worker apart."""

    stream: str
    connection: ConnectionOptions
    aggregation: bool
    ordered_by_key: bool
    buffer_bytes_max: int


_producers: OrderedDict[ProducerKey, SyncProducer[Any]] = OrderedDict()
_inherited: list[SyncProducer[Any]] = []
"""The producers of the parent process: they are kept from destructors, which would act on sockets that the parent still
uses.
"""
_lock = threading.Lock()
_owner = os.getpid()


def take_producer(key: ProducerKey) -> SyncProducer[Any]:
    """Return a started producer for one task, which has to be handed back or abandoned. Raises what
    `SyncProducer.start` raises.
    """
    global _owner
    with _lock:
        if _owner != os.getpid():
            _inherited.extend(_producers.values())
            _producers.clear()
            _owner = os.getpid()
        producer = _producers.pop(key, None)
    if producer is None:
        producer = SyncProducer(key.stream, connection=key.connection, options=_options(key))
    try:
        producer.start()
    except BaseException:
        abandon(producer)
        raise
    return producer


def hand_back(key: ProducerKey, producer: SyncProducer[Any]) -> None:
    """Keep a producer, all of whose records are written, for the next task."""
    with _lock:
        replaced = _producers.pop(key, None)
        _producers[key] = producer
        closing = [replaced] if replaced is not None else []
        if len(_producers) > PRODUCERS_MAX:
            closing.append(_producers.popitem(last=False)[1])
    for one in closing:
        abandon(one)


def abandon(producer: SyncProducer[Any]) -> None:
    """Close a producer; what is not on its way yet is never sent."""
    with contextlib.suppress(ShardwayError, RuntimeError):
        producer.close(0)


def close_producers() -> None:
    """Close all producers of this process; the next task makes new ones."""
    with _lock:
        kept = list(_producers.values()) if _owner == os.getpid() else []
        _producers.clear()
    for one in kept:
        abandon(one)


def _options(key: ProducerKey) -> ProducerOptions:
    return ProducerOptions(
        aggregation=key.aggregation,
        ordered_by_key=key.ordered_by_key,
        buffer_bytes_max=key.buffer_bytes_max,
        # No record is given up alone, so that none of a key is written after one before it that was not: the task
        # gives up as a whole when nothing gets on.
        record_ttl_s=float("inf"),
        shard_map_refresh_s=SHARD_MAP_REFRESH_S,
    )


def _forked() -> None:
    """Make a new lock in a child process: one that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_producers)


# --- the task -------------------------------------------------------------------------------------

logger = logging.getLogger("shardway.spark.sink")

PUT_ROWS_MAX = 1_000
PUT_BYTES = 1024 * 1024
"""Bytes of data, about, in one portion of rows for the producer; with a full buffer a task waits for the oldest one."""
LOOK_S = 5.0
"""Seconds between two looks of a waiting task whether anything gets on."""
ROW_OVERHEAD_BYTES = 256
"""Bytes that a producer counts for a record beside its data and key."""


class SinkTask(NamedTuple):
    """The options, columns and connection that a task of the sink gets."""

    options: SinkOptions
    columns: SinkColumns
    connection: ConnectionOptions


@dataclass(frozen=True)
class SinkCommit(WriterCommitMessage):
    """The message of a task about what it wrote."""

    rows: int
    records: int
    """The number of Kinesis records: an aggregate is one."""
    data_bytes: int
    """Bytes of the rows' data, envelopes included."""
    duplicates_possible: int
    """Rows that may be in the stream twice, as the outcome of an attempt was not known."""


class Rows(NamedTuple):
    """A portion of rows, as columns."""

    keys: list[str]
    datas: list[bytes]
    hash_keys: list[str | None] | None
    labels: list[bytes] | None


def write_batches(task: SinkTask, batches: Iterable[pa.RecordBatch]) -> SinkCommit:
    """Write the rows of Arrow batches. Raises PutError, StalledError, and what a producer raises."""
    return _write(task, (rows for batch in batches for rows in rows_of_batch(task, batch)))


def write_rows(task: SinkTask, rows: Iterator[Any]) -> SinkCommit:
    """Write Spark's rows. Raises what ``write_batches`` raises."""
    return _write(task, rows_of_rows(task, rows))


def committed(task: SinkTask, messages: Sequence[Any], batch_id: int | None) -> None:
    """Log what all tasks have written."""
    done = [message for message in messages if isinstance(message, SinkCommit)]
    logger.info(
        "%s: %s%d rows of %d tasks written as %d records; %d of them may be there twice",
        task.options.stream,
        "" if batch_id is None else f"batch {batch_id}: ",
        sum(one.rows for one in done),
        len(done),
        sum(one.records for one in done),
        sum(one.duplicates_possible for one in done),
    )


def aborted(task: SinkTask, messages: Sequence[Any], batch_id: int | None) -> None:
    """Log what stays in the stream of a write that not all tasks have finished."""
    done = [message for message in messages if isinstance(message, SinkCommit)]
    logger.warning(
        "%s: %swas not written whole. %d of its %d tasks had written %d rows, others perhaps some; they stay in the "
        "stream and are written again when it runs again%s",
        task.options.stream,
        "the write " if batch_id is None else f"batch {batch_id} ",
        len(done),
        len(messages),
        sum(one.rows for one in done),
        "" if task.options.stamps != NO_STAMPS else "; without stamps a reader cannot tell them apart",
    )


# --- rows as columns -------------------------------------------------------------------------------------------------


def rows_of_batch(task: SinkTask, batch: pa.RecordBatch) -> Iterator[Rows]:
    """Yield the rows of an Arrow batch, in portions."""
    step = max(1, min(PUT_ROWS_MAX, PUT_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, step):
        part = batch.slice(start, step)

        def column(place: int, part: pa.RecordBatch = part) -> list[Any]:
            values: list[Any] = part.column(place).to_pylist()
            return values

        yield _as_rows(task, column)


def rows_of_rows(task: SinkTask, rows: Iterator[Any]) -> Iterator[Rows]:
    """Yield Spark's rows as columns, in portions."""
    place = task.columns.data
    while some := list(islice(rows, PUT_ROWS_MAX)):
        size = sum(len(row[place]) for row in some if row[place] is not None)
        step = max(1, PUT_ROWS_MAX * PUT_BYTES // max(size, PUT_BYTES))
        for start in range(0, len(some), step):
            part = some[start : start + step]
            yield _as_rows(task, lambda at, part=part: [row[at] for row in part])


def _as_rows(task: SinkTask, column: Any) -> Rows:
    places, stamps = task.columns, task.options.stamps
    keys, datas = column(places.partition_key), column(places.data)
    _no_nulls(keys, "partition_key", "it chooses the shard: give such rows one (coalesce), or leave them out")
    _no_nulls(datas, "data", "it is what is written: give such rows some (coalesce), or leave them out")
    if set(map(type, datas)) != {bytes}:
        datas = [data.encode() if isinstance(data, str) else bytes(data) for data in datas]
    labels = None
    if stamps != NO_STAMPS:
        labels = _position_labels(places, column) if stamps == BY_POSITION else _key_labels(places, stamps, column)
        datas = sealed(labels, datas)
    hash_keys = None if places.explicit_hash_key is None else column(places.explicit_hash_key)
    if hash_keys is not None and all(hash_key is None for hash_key in hash_keys):
        hash_keys = None
    return Rows(keys, datas, hash_keys, labels if stamps == BY_POSITION else None)


def _position_labels(places: SinkColumns, column: Any) -> list[bytes]:
    assert places.position is not None
    columns = [column(place) for place in places.position]
    if places.row_index is not None:
        columns.append(column(places.row_index))
    for values in columns:
        _no_nulls(values, "a column of the position", "each row must come from a record of the source")
    try:
        return position_labels(*columns)
    except (ValueError, OverflowError) as error:
        raise ShardwayError(f"stamps position: a row's position is not one of the source: {error}") from None


def _key_labels(places: SinkColumns, name: str, column: Any) -> list[bytes]:
    assert places.key is not None
    keys = column(places.key)
    _no_nulls(keys, name, "stamps names it, and a row without a key has no stamp")
    try:
        return key_labels(keys)
    except OverflowError:
        raise ShardwayError(f"column {name}: a key of more than 65,535 bytes is no stamp: take a hash of it") from None


def _no_nulls(values: list[Any], name: str, why: str) -> None:
    if None in values:
        raise InvalidRecordError(f"{name} is null in a row: {why}")


# --- rows into the stream --------------------------------------------------------------------------------------------


class Window:
    """The rows that a task has given to the producer and that are not written yet, in their order, bounded in bytes."""

    def __init__(self, options: SinkOptions, producer: SyncProducer[Any]) -> None:
        self._stream = str(options.stream)
        self._bytes_max = options.buffer_bytes_max
        self._patience_s = options.write_timeout_s
        self._producer = producer
        self._waiting: deque[tuple[SyncPuts, int]] = deque()
        self._bytes = 0

    def make_room(self, size: int) -> None:
        """Wait until ``size`` bytes fit (for more than the bound, until nothing else is there). Raises what ``drain``
        raises.
        """
        while self._waiting and (self._bytes + size > self._bytes_max or self._waiting[0][0].done()):
            self._settle_oldest()

    def add(self, puts: SyncPuts, size: int) -> None:
        """Take note of rows that were given to the producer."""
        self._waiting.append((puts, size))
        self._bytes += size

    def drain(self) -> None:
        """Wait until all rows are written. Raises the PutError of the first one that is not, or StalledError."""
        while self._waiting:
            self._settle_oldest()

    def _settle_oldest(self) -> None:
        puts, size = self._waiting[0]
        if not puts.done():
            self._wait(puts)
        puts.raise_failure()
        self._waiting.popleft()
        self._bytes -= size

    def _wait(self, puts: SyncPuts) -> None:
        """Wait as long as anything gets on: a task among many on one shard is slow, and not stalled."""
        before, stalled_at_s = self._producer.metrics(), time.monotonic()
        while True:
            try:
                puts.wait(min(LOOK_S, self._patience_s))
                return
            except TimeoutError:
                now = self._producer.metrics()
            if now.user_records_put > before.user_records_put:
                before, stalled_at_s = now, time.monotonic()
            elif time.monotonic() - stalled_at_s >= self._patience_s:
                raise StalledError(
                    f"{self._stream}: for {self._patience_s:g} s (writeTimeoutMs) none of the rows that wait was "
                    f"written; {_met(before, now)}"
                )


def _met(before: ProducerSnapshot, after: ProducerSnapshot) -> str:
    """Return what requests and records met between two snapshots."""
    met = Counter(after.requests_failed) - Counter(before.requests_failed)
    met += Counter(after.records_failed_attempts) - Counter(before.records_failed_attempts)
    if not met:
        return "no request was answered: see whether the endpoint can be reached from the executors"
    return "the service said " + ", ".join(f"{code} ({count} times)" for code, count in met.most_common(3))


def _write(task: SinkTask, portions: Iterator[Rows]) -> SinkCommit:
    options = task.options
    wanted = ProducerKey(
        str(options.stream), task.connection, options.aggregation, options.ordered_by_key, options.buffer_bytes_max
    )
    first = next(portions, None)
    if first is None:
        return SinkCommit(0, 0, 0, 0)
    try:
        producer = take_producer(wanted)
    except NotFoundError as error:
        region = options.region or task.connection.region  # the driver's, where no option says it
        where = f" in region {region}" if region else ""
        raise ShardwayError(
            f"there is no stream {options.stream}{where} for these credentials: check streamName, region and "
            f"endpointUrl ({error})"
        ) from error
    try:
        before = producer.metrics()
        rows = _put_all(options, producer, first, portions)
        after = producer.metrics()
    except ProducerClosedError as error:
        abandon(producer)
        raise ShardwayError(f"{options.stream}: the worker process is ending: {error}") from error
    except BaseException:
        abandon(producer)
        raise
    hand_back(wanted, producer)
    return _commit(rows, before, after)


def _put_all(options: SinkOptions, producer: SyncProducer[Any], first: Rows, rest: Iterator[Rows]) -> int:
    with closing(Distinct()) if first.labels is not None else nullcontext() as distinct:
        return _put_each(options, producer, chain([first], rest), distinct)


def _put_each(
    options: SinkOptions, producer: SyncProducer[Any], portions: Iterable[Rows], distinct: Distinct | None
) -> int:
    window = Window(options, producer)
    count = 0
    for portion in portions:
        if distinct is not None and portion.labels is not None and not distinct.add(portion.labels):
            raise _shared_position()
        size = sum(map(len, portion.datas)) + sum(map(len, portion.keys)) + ROW_OVERHEAD_BYTES * len(portion.keys)
        window.make_room(size)
        try:
            puts = producer.put_many(_records(portion))
        except InvalidRecordError as error:
            raise InvalidRecordError(f"{options.stream}: {_place()} has a row that cannot be put: {error}") from None
        window.add(puts, size)
        count += len(portion.keys)
    window.drain()
    return count


def _records(rows: Rows) -> list[Any]:
    if rows.hash_keys is None:
        return list(zip(rows.keys, rows.datas, strict=True))
    return [
        OutRecord(data, key, None if hash_key is None else _hash_key(hash_key))
        for key, data, hash_key in zip(rows.keys, rows.datas, rows.hash_keys, strict=True)
    ]


def _hash_key(text: str) -> int:
    if not text.isdecimal():
        raise InvalidRecordError("explicit_hash_key must be a decimal number (0 to 2^128-1) or null")
    return int(text)


def _shared_position() -> ShardwayError:
    """Return the error for rows that share a stamp: they would be removed as duplicates of one another."""
    return ShardwayError(
        "stamps position: two rows come from the same record of the source, and a reader would take one for a "
        "repeat of the other. Number them: stampIndex names an integer column that counts the rows of a record, "
        "the same in every run (posexplode makes one)"
    )


def _place() -> str:
    context = TaskContext.get()
    return "the write" if context is None else f"partition {context.partitionId()}"


def _commit(rows: int, before: ProducerSnapshot, after: ProducerSnapshot) -> SinkCommit:
    return SinkCommit(
        rows,
        after.records_put - before.records_put,
        after.user_bytes_put - before.user_bytes_put,
        after.duplicates_possible - before.duplicates_possible,
    )
