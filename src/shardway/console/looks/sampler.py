"""The topics that open pages look at, what is remembered of them between looks, and the one sampler for all pages.

The sampler looks at what open pages show, at nothing else, and once for all of them. A page that is open holds its
topics by its stream of events. A page that was only just loaded counts as open for some seconds, until its stream has
begun. A topic that no page holds is not refreshed; its last sample stays for a while, with its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shardway.errors import AccessDeniedError, ShardwayError
from shardway.tasks import give_up, logged, spawn
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from shardway.inspect import (
        Inspector,
    )


T = TypeVar("T")
GRACE_S = 15.0
"""How many seconds a page counts as open after it was loaded."""
TOPICS_MAX = 400
FULL = "open pages look at too many things at once: close some, or try again in some seconds"
AT_ONCE_MAX = 8
"""Topics that are refreshed side by side."""
CALLS_PER_S = 1.0
"""The read calls a second of each shard that all pages make together."""


@dataclass(frozen=True)
class Topic(Generic[T]):
    """Something to look at again and again."""

    key: tuple[str, ...]
    load: Callable[[Inspector], Awaitable[T]] = field(compare=False)
    interval_s: float = field(default=10.0, compare=False)


@dataclass
class Sample(Generic[T]):
    """What was seen last of a topic, and whether it could be refreshed since."""

    value: T | None = None
    at_s: float | None = None
    """When the sample was taken, on the sampler's clock; None: never yet."""
    fault: str | None = None
    """Why the newest look failed; None: it did not."""
    age_s: float | None = None
    """Seconds between the sample and the page's asking for it; None: there is no sample yet."""


class _Entry:
    def __init__(self, topic: Topic[Any]) -> None:
        self.topic = topic
        self.value: Any = None
        self.at_s: float | None = None
        self.fault: str | None = None
        self.version = 0
        self.wanted_until_s = 0.0
        self.task: asyncio.Task[None] | None = None
        self.looked = asyncio.Event()


class Sampler:
    """Refreshes topics on one event loop, for as long as pages show them."""

    def __init__(self, inspector: Inspector, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._inspector = inspector
        self._clock = clock
        self._entries: dict[tuple[str, ...], _Entry] = {}
        self._holds: Counter[tuple[str, ...]] = Counter()
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._change = asyncio.Event()

    @property
    def service_s(self) -> float:
        """The service's time in epoch seconds, as its answers have shown it."""
        return self._inspector.now_s

    async def sample(self, topic: Topic[T], *, wait_s: float = 0.0) -> Sample[T]:
        """Return the newest sample. Where there is none, wait for the first look, for at most ``wait_s`` seconds."""
        kept = self._begin(topic, GRACE_S)
        if kept is None:
            return Sample(fault=FULL)
        if kept.at_s is None and kept.fault is None and wait_s > 0:
            await wait_set(kept.looked, wait_s)
        age_s = None if kept.at_s is None else self._clock() - kept.at_s
        return Sample(kept.value, kept.at_s, kept.fault, age_s)

    def newest(self, topic: Topic[T]) -> T | None:
        """Return what was seen last of a topic, without a new look."""
        kept = self._entries.get(topic.key)
        found: T | None = None if kept is None else kept.value
        return found

    @contextlib.contextmanager
    def held(self, topics: Iterable[Topic[Any]]) -> Iterator[None]:
        """Hold these topics for a page, so that they are refreshed inside of the ``with`` block."""
        chosen = list(topics)
        keys = [topic.key for topic in chosen]
        self._holds.update(keys)
        for topic in chosen:
            self._begin(topic)
        try:
            yield
        finally:
            self._holds.subtract(keys)
            for key in keys:
                if self._holds[key] <= 0:
                    del self._holds[key]

    def versions(self, topics: Iterable[Topic[Any]]) -> tuple[int, ...]:
        """Return numbers that change with each look at any of the topics."""
        return tuple(self._entries[topic.key].version if topic.key in self._entries else 0 for topic in topics)

    @property
    def change(self) -> asyncio.Event:
        """The event that is set at the end of the next look. Take it before the versions that the browser gets: an
        event that is taken afterwards misses a look, or the end, that came while the answer was written.
        """
        return self._change

    def wake(self) -> None:
        """End all waiting for a change."""
        changed, self._change = self._change, asyncio.Event()
        changed.set()

    async def close(self) -> None:
        """Stop looking at topics."""
        await give_up(*[kept.task for kept in self._entries.values() if kept.task is not None])

    def _begin(self, topic: Topic[Any], for_s: float = 0.0) -> _Entry | None:
        """Begin to look at a topic. None: open pages hold as many topics as there may be."""
        kept = self._entries.get(topic.key)
        if kept is None:
            if not self._has_room():
                return None
            kept = self._entries[topic.key] = _Entry(topic)
        kept.wanted_until_s = max(kept.wanted_until_s, self._clock() + for_s)
        if kept.task is None:
            kept.task = spawn(self._keep(kept), logged("a look of the console failed", lambda: _end_look(kept)))
        return kept

    def _has_room(self) -> bool:
        """Make room for one more topic, and return whether there is some. The topics that no page looks at go first,
        then those whose page was only just loaded, the oldest first; those that open pages hold stay.
        """
        if len(self._entries) < TOPICS_MAX:
            return True
        loose = [
            (one.task is not None, one.wanted_until_s, key)
            for key, one in self._entries.items()
            if not self._holds[key]
        ]
        if not loose:
            return False
        gone = self._entries.pop(min(loose)[2])
        if gone.task is not None:
            gone.task.cancel()
        gone.fault = gone.fault or FULL
        gone.looked.set()
        return True

    async def _keep(self, kept: _Entry) -> None:
        while self._holds[kept.topic.key] > 0 or kept.wanted_until_s > self._clock():
            began_s = self._clock()
            async with self._slots:
                await self._look(kept)
            await asyncio.sleep(max(1.0, kept.topic.interval_s - (self._clock() - began_s)))
        kept.task = None

    async def _look(self, kept: _Entry) -> None:
        try:
            kept.value = await kept.topic.load(self._inspector.make_sibling())
            kept.at_s, kept.fault = self._clock(), None
        except ShardwayError as fault:
            kept.fault = fault_text(fault)
        kept.version += 1
        kept.looked.set()
        self.wake()


def _end_look(kept: _Entry) -> None:
    kept.task, kept.fault = None, "the look failed by a mistake in the console: its log has more"
    kept.looked.set()


def fault_text(fault: ShardwayError) -> str:
    """Return what a page says of a fault: the permission that lacks, where one does."""
    if isinstance(fault, AccessDeniedError):
        return f"The credentials lack the permission for {fault.operation}: {fault.service_message}"
    return str(fault)
