"""Spark reuses its Python workers, so a worker process keeps a Kinesis client from task to task.

A worker is a fork of Spark's daemon. Threads and sockets do not survive a fork, so a process that finds the connections
of its parent forgets them and makes its own.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.wire import Wire
from shardway.runtime.threads.loop_thread import LoopThread

if TYPE_CHECKING:
    from shardway.aws.options import ConnectionOptions

CONNECTIONS_MAX = 8
"""The most clients of different options that a worker keeps; the one that was unused for the longest time is closed."""
STREAMS_MAX = 1_000
"""A connection remembers for at most so many streams how large their records are."""


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
_inherited_connections: dict[ConnectionOptions, Connection] = {}
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
            _inherited_connections.update(_connections)
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


def _renew_lock() -> None:
    """Make a new lock in a child process: one that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
atexit.register(close_connections)
