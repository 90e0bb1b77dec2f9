"""Producers of a worker process: Spark reuses its Python workers, so a producer is kept from task to task.

What it has learnt (shards, rates) and its connections serve the next task, and the stream's shards are not listed for
each. A worker runs one task at a time. As in ``connections``, a process that was forked makes its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import PenstockError
from penstock.options import ProducerOptions
from penstock.runtime.sync_producer import SyncProducer

if TYPE_CHECKING:
    from penstock.aws.settings import WireSettings

PRODUCERS_MAX = 4
"""Producers of different settings that a worker keeps; the one that was not used for the longest time is closed."""
SHARD_MAP_REFRESH_S = 300.0
"""Answers show a reshard at once; many idle workers must not list the shards often."""


class ProducerSettings(NamedTuple):
    """What tells the producers of a worker apart."""

    stream: str
    wire: WireSettings
    aggregation: bool
    ordered_by_key: bool
    buffer_bytes: int


_producers: OrderedDict[ProducerSettings, SyncProducer[Any]] = OrderedDict()
_inherited: list[SyncProducer[Any]] = []
"""Of the parent process: kept from destructors, which would act on sockets that the parent still uses."""
_lock = threading.Lock()
_owner = os.getpid()


def take_producer(settings: ProducerSettings) -> SyncProducer[Any]:
    """A producer for one task, started; hand it back, or close it. Raises as `SyncProducer.start`."""
    global _owner
    with _lock:
        if _owner != os.getpid():
            _inherited.extend(_producers.values())
            _producers.clear()
            _owner = os.getpid()
        producer = _producers.pop(settings, None)
    if producer is None:
        producer = SyncProducer(settings.stream, wire=settings.wire, options=_options(settings))
    try:
        producer.start()
    except BaseException:
        abandon(producer)
        raise
    return producer


def hand_back(settings: ProducerSettings, producer: SyncProducer[Any]) -> None:
    """Keep a producer, all of whose records are written, for the next task."""
    with _lock:
        replaced = _producers.pop(settings, None)
        _producers[settings] = producer
        closing = [replaced] if replaced is not None else []
        if len(_producers) > PRODUCERS_MAX:
            closing.append(_producers.popitem(last=False)[1])
    for one in closing:
        abandon(one)


def abandon(producer: SyncProducer[Any]) -> None:
    """Close a producer; what is not on its way yet is never sent."""
    with contextlib.suppress(PenstockError, RuntimeError):
        producer.close(0)


def close_producers() -> None:
    """Close all producers of this process; the next task makes new ones."""
    with _lock:
        kept = list(_producers.values()) if _owner == os.getpid() else []
        _producers.clear()
    for one in kept:
        abandon(one)


def _options(settings: ProducerSettings) -> ProducerOptions:
    return ProducerOptions(
        aggregation=settings.aggregation,
        ordered_by_key=settings.ordered_by_key,
        buffer_bytes_max=settings.buffer_bytes,
        # No record is given up alone, so that none of a key is written after one before it that was not: the task
        # gives up as a whole when nothing gets on.
        record_time_to_live_s=float("inf"),
        shard_map_refresh_s=SHARD_MAP_REFRESH_S,
    )


def _forked() -> None:
    """In a child: a lock that another thread of the parent held would stay locked for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
atexit.register(close_producers)
