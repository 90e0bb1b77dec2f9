"""Spark reuses its Python workers, so a worker process keeps a producer from task to task.

What the producer has learnt (shards, rates) and its connections serve the next task, and the stream's shards are not
listed for each. A worker runs one task at a time. As in `shardway.spark.task.connections`, a process that was forked
makes its own producers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.errors import ShardwayError
from shardway.options.producer import ProducerOptions
from shardway.runtime.producer.sync_producer import SyncProducer

if TYPE_CHECKING:
    from shardway.aws.options import ConnectionOptions

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
_inherited_producers: list[SyncProducer[Any]] = []
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
            _inherited_producers.extend(_producers.values())
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


def _renew_lock() -> None:
    """Make a new lock in a child process: one that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
atexit.register(close_producers)
