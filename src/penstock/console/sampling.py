"""One sampler for all pages: it looks at what open pages show, at nothing else, and once for all of them.

A page that is open holds its topics by its stream of events. A page that was only just loaded counts as open for some
seconds, until that stream has begun. What no page holds is not refreshed; its last sample stays for a while, with its
age.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import AccessDeniedError, PenstockError
from penstock.runtime.waiting import wait_set
from penstock.tasks import give_up, logged, spawn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from penstock.inspect import Inspector

T = TypeVar("T")

GRACE_S = 15.0
"""For which a page counts as open after it was loaded."""
TOPICS_MAX = 400
AT_ONCE_MAX = 8
"""Topics that are refreshed side by side."""
CALLS_PER_S = 1.0
"""Of each shard: all pages together look at it once a second at most."""


@dataclass(frozen=True)
class Topic(Generic[T]):
    """Something to look at again and again."""

    key: tuple[str, ...]
    load: Callable[[Inspector], Awaitable[T]] = field(compare=False)
    interval_s: float = field(default=10.0, compare=False)


@dataclass
class Sample(Generic[T]):
    """What was seen last, and whether it could be refreshed since."""

    value: T | None = None
    at_s: float | None = None
    """When it was taken, on the sampler's clock; None: never yet."""
    fault: str | None = None
    """Why the newest look failed."""
    age_s: float | None = None
    """When this was asked for."""


class _Kept:
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
        self._kept: dict[tuple[str, ...], _Kept] = {}
        self._holds: Counter[tuple[str, ...]] = Counter()
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._changed = asyncio.Event()

    @property
    def refreshing(self) -> list[tuple[str, ...]]:
        """The topics that are being looked at."""
        return [key for key, kept in self._kept.items() if kept.task is not None]

    async def sample(self, topic: Topic[T], *, wait_s: float = 0.0) -> Sample[T]:
        """The newest sample. Where there is none, it waits for the first look, so long at most."""
        kept = self._begin(topic, GRACE_S)
        if kept.at_s is None and kept.fault is None and wait_s > 0:
            await wait_set(kept.looked, wait_s)
        age_s = None if kept.at_s is None else self._clock() - kept.at_s
        return Sample(kept.value, kept.at_s, kept.fault, age_s)

    def newest(self, topic: Topic[T]) -> T | None:
        """What was seen last, without asking for more."""
        kept = self._kept.get(topic.key)
        found: T | None = None if kept is None else kept.value
        return found

    @contextlib.contextmanager
    def held(self, topics: Iterable[Topic[Any]]) -> Iterator[None]:
        """A page shows these topics meanwhile."""
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
        """Changes with each look at any of the topics."""
        return tuple(self._kept[topic.key].version if topic.key in self._kept else 0 for topic in topics)

    @property
    def change(self) -> asyncio.Event:
        """It is set when something is looked at next. Take it before the versions that are told: an event that is
        taken afterwards does not tell of a look, or of the end, that came while the browser was told.
        """
        return self._changed

    def wake(self) -> None:
        """End all waiting for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def close(self) -> None:
        """Look at nothing any more."""
        await give_up(*[kept.task for kept in self._kept.values() if kept.task is not None])

    def _begin(self, topic: Topic[Any], for_s: float = 0.0) -> _Kept:
        kept = self._kept.get(topic.key)
        if kept is None:
            self._make_room()
            kept = self._kept[topic.key] = _Kept(topic)
        kept.wanted_until_s = max(kept.wanted_until_s, self._clock() + for_s)
        if kept.task is None:
            kept.task = spawn(self._keep(kept), logged("a look of the console failed", lambda: _over(kept)))
        return kept

    def _make_room(self) -> None:
        idle = sorted((one.wanted_until_s, key) for key, one in self._kept.items() if one.task is None)
        for _, key in idle[: max(0, len(self._kept) - TOPICS_MAX + 1)]:
            del self._kept[key]

    async def _keep(self, kept: _Kept) -> None:
        while self._holds[kept.topic.key] > 0 or kept.wanted_until_s > self._clock():
            began_s = self._clock()
            async with self._slots:
                await self._look(kept)
            await asyncio.sleep(max(1.0, kept.topic.interval_s - (self._clock() - began_s)))
        kept.task = None

    async def _look(self, kept: _Kept) -> None:
        try:
            kept.value = await kept.topic.load(self._inspector.apart())
            kept.at_s, kept.fault = self._clock(), None
        except PenstockError as fault:
            kept.fault = fault_text(fault)
        kept.version += 1
        kept.looked.set()
        self.wake()


def _over(kept: _Kept) -> None:
    kept.task, kept.fault = None, "the look failed by a mistake in the console: its log has more"
    kept.looked.set()


def fault_text(fault: PenstockError) -> str:
    """What a page says of a fault: the permission that lacks, where it is one."""
    if isinstance(fault, AccessDeniedError):
        return f"The credentials lack the permission for {fault.operation}: {fault.service_message}"
    return str(fault)
