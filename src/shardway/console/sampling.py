"""The topics that open pages look at, what is remembered of them between looks, and the one sampler for all pages.

The sampler looks at what open pages show, at nothing else, and once for all of them. A page that is open holds its
topics by its stream of events. A page that was only just loaded counts as open for some seconds, until its stream has
begun. A topic that no page holds is not refreshed; its last sample stays for a while, with its age.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from shardway.console.lag_history import AGAIN_S as HISTORY_AGAIN_S
from shardway.console.lag_history import FIGURES, lag_history
from shardway.console.rates import AGAIN_S, RateKeeper
from shardway.errors import AccessDeniedError, ShardwayError
from shardway.inspect.jobs.jobs import jobs_at
from shardway.inspect.jobs.metrics_page import QUERIES_MAX
from shardway.inspect.jobs.views import JobLook
from shardway.tasks import give_up, logged, side_by_side, spawn, wait_set
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from shardway.console.rates import Rates
    from shardway.inspect import (
        ApplicationReport,
        ApplicationsReport,
        HeatReport,
        Inspector,
        JobsReport,
        LagReport,
        Look,
        Snapshot,
        Store,
        StreamReport,
        StreamsReport,
        StreamView,
    )

T = TypeVar("T")

GRACE_S = 15.0
"""Seconds for which a page counts as open after it was loaded."""
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
        kept = self._kept.get(topic.key)
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
        return tuple(self._kept[topic.key].version if topic.key in self._kept else 0 for topic in topics)

    @property
    def change(self) -> asyncio.Event:
        """The event that is set at the end of the next look. Take it before the versions that the browser gets: an
        event that is taken afterwards misses a look, or the end, that came while the answer was written.
        """
        return self._changed

    def wake(self) -> None:
        """End all waiting for a change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def close(self) -> None:
        """Stop looking at topics."""
        await give_up(*[kept.task for kept in self._kept.values() if kept.task is not None])

    def _begin(self, topic: Topic[Any], for_s: float = 0.0) -> _Kept | None:
        """Begin to look at a topic. None: open pages hold as many topics as there may be."""
        kept = self._kept.get(topic.key)
        if kept is None:
            if not self._has_room():
                return None
            kept = self._kept[topic.key] = _Kept(topic)
        kept.wanted_until_s = max(kept.wanted_until_s, self._clock() + for_s)
        if kept.task is None:
            kept.task = spawn(self._keep(kept), logged("a look of the console failed", lambda: _over(kept)))
        return kept

    def _has_room(self) -> bool:
        """Make room for one more topic, and return whether there is some. The topics that no page looks at go first,
        then those whose page was only just loaded, the oldest first; those that open pages hold stay.
        """
        if len(self._kept) < TOPICS_MAX:
            return True
        loose = [
            (one.task is not None, one.wanted_until_s, key) for key, one in self._kept.items() if not self._holds[key]
        ]
        if not loose:
            return False
        gone = self._kept.pop(min(loose)[2])
        if gone.task is not None:
            gone.task.cancel()
        gone.fault = gone.fault or FULL
        gone.looked.set()
        return True

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
        except ShardwayError as fault:
            kept.fault = fault_text(fault)
        kept.version += 1
        kept.looked.set()
        self.wake()


def _over(kept: _Kept) -> None:
    kept.task, kept.fault = None, "the look failed by a mistake in the console: its log has more"
    kept.looked.set()


def fault_text(fault: ShardwayError) -> str:
    """Return what a page says of a fault: the permission that lacks, where one does."""
    if isinstance(fault, AccessDeniedError):
        return f"The credentials lack the permission for {fault.operation}: {fault.service_message}"
    return str(fault)


# --- topics ---------------------------------------------------------------------------------------
# These are the topics that there are, and what is remembered of an application between looks.

STREAMS_MAX = 200
"""The streams that are described for the overview: an account has few DescribeStreamSummary calls a second."""
LOOKS_MAX = 60
"""The looks at each lease that are kept: the trend follows from them."""
POINTS_MAX = 720
MOVES_MAX = 500
SHARDS_OF_POINTS_MAX = 64
"""An application with more shards is drawn as its worst shard alone."""
TRAILS_MAX = 200
ALL = "all shards"


class StreamsSeen(NamedTuple):
    """The streams of the account, and what is known of each."""

    report: StreamsReport
    views: dict[str, StreamView]
    faults: dict[str, str]


class Move(NamedTuple):
    """A lease that changed its owner between two looks."""

    at_s: float
    lease: str
    before: str | None
    after: str | None


class Trail:
    """What was seen of an application so far: for its trend, its chart, and its moves."""

    def __init__(self) -> None:
        self.looks: dict[str, list[Look]] = {}
        self.points: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=POINTS_MAX)
        self.moves: deque[Move] = deque(maxlen=MOVES_MAX)
        self.report: LagReport | None = None
        """What the newest look has found."""
        self.told: Sequence[tuple[float, float]] = ()
        """How far the reading was behind before the first look, as the workers told CloudWatch: by epoch seconds."""
        self.told_at_s = float("-inf")
        """When CloudWatch was asked for it last."""

    def took(self, report: LagReport, looks: Mapping[str, Sequence[Look]]) -> None:
        """Remember one more look."""
        for lease, found in looks.items():
            if len(found) > 1 and found[-1].owner != found[-2].owner:
                self.moves.append(Move(found[-1].at_s, lease, found[-2].owner, found[-1].owner))
        self.looks = {lease: list(found[-LOOKS_MAX:]) for lease, found in looks.items()}
        behind = {one.shard_id: one.behind_s for one in report.shards if one.behind_s is not None}
        if len(behind) > SHARDS_OF_POINTS_MAX:
            behind = {ALL: max(behind.values())}
        self.report = report
        self.points.append((report.taken_at.timestamp(), behind))


class JobTrail:
    """What was seen of the jobs of a place so far, by the jobs' names."""

    def __init__(self) -> None:
        self.looks: dict[str, deque[JobLook]] = {}

    def took(self, report: JobsReport) -> None:
        """Remember one more look."""
        at_s = report.taken_at.timestamp()
        for one in report.jobs:
            if one.name in self.looks or len(self.looks) < 2 * QUERIES_MAX:
                looks = self.looks.setdefault(one.name, deque(maxlen=POINTS_MAX))
                looks.append(JobLook(at_s, one.batches if one.batch is None else one.batch, one.lag_s))


class Topics:
    """Makes topics. The same key is the same topic, whichever page asks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.rate_keeper = RateKeeper()
        self.figures_of_lag = 0
        """The figures of lags that CloudWatch was asked for so far."""
        self._trails: dict[tuple[str, str], Trail] = {}
        self._jobs: dict[str, JobTrail] = {}

    def streams(self) -> Topic[StreamsSeen]:
        """Return the topic of all streams, each described."""
        return Topic(("streams",), _streams, 20.0)

    def stream(self, name: str) -> Topic[StreamReport]:
        """Return the topic of one stream with its shards and consumers."""
        return Topic(("stream", name), lambda inspector: inspector.stream(name), 10.0)

    def heat(self, name: str, since_s: float, *, show_keys: bool) -> Topic[HeatReport]:
        """Return the topic of where a stream's load lies. A look reads records, so it is made seldom, and only when a
        page asks for it.
        """
        return Topic(
            ("heat", name, f"{since_s:g}"),
            lambda inspector: inspector.heat(name, since_s=since_s, records_max=10_000, show_keys=show_keys),
            30.0,
        )

    def rates(self, names: Sequence[str]) -> Topic[Rates]:
        """Return the topic of what streams took in the last hour. `RateKeeper` bounds how often CloudWatch is asked."""
        return Topic(("rates", *names), lambda inspector: self.rate_keeper.rates(inspector, names), AGAIN_S + 5)

    def lag_history(self, application: str, stream: str) -> Topic[Sequence[tuple[float, float]]]:
        """Return the topic of how far an application was behind before any page showed it. CloudWatch is asked once,
        when the first look has told which shards are behind.
        """
        trail = self.trail(application, stream)

        async def look(inspector: Inspector) -> Sequence[tuple[float, float]]:
            now_s = inspector.now_s
            if trail.report is not None and trail.told_at_s + HISTORY_AGAIN_S < now_s:
                trail.told_at_s = now_s  # also where it fails: a refusal is not tried again by each page
                self.figures_of_lag += FIGURES
                trail.told = await lag_history(inspector, application, trail.report)
            return trail.told

        return Topic(("lag history", application, stream), look, 10.0)

    def applications(self) -> Topic[ApplicationsReport]:
        """Return the topic of the applications that have leases."""
        return Topic(("applications",), lambda inspector: inspector.applications(self._store), 20.0)

    def application(self, name: str) -> Topic[ApplicationReport]:
        """Return the topic of one application's leases and workers."""
        return Topic(("application", name), lambda inspector: inspector.application(name, self._store), 10.0)

    def lag(self, application: str, stream: str) -> Topic[LagReport]:
        """Return the topic of how far an application is behind on a stream."""
        trail = self.trail(application, stream)

        async def look(inspector: Inspector) -> LagReport:
            report, looks = await inspector.lag(application, stream, self._store, history=trail.looks)
            trail.took(report, looks)
            return report

        return Topic(("lag", application, stream), look, 10.0)

    def snapshot(self, application: str | None, stream: str | None) -> Topic[Snapshot]:
        """Return the topic of the snapshot in which symptoms and costs are found. It is taken seldom: it reads records
        and metrics, too.
        """
        trail = self.trail(application, stream) if application and stream else Trail()

        async def look(inspector: Inspector) -> Snapshot:
            snapshot = await inspector.snapshot(application, stream, self._store, history=trail.looks)
            if snapshot.lag is not None:
                trail.took(snapshot.lag, snapshot.looks)
            return snapshot

        return Topic(("snapshot", application or "", stream or ""), look, 60.0)

    def jobs(self, place: str) -> Topic[JobsReport]:
        """Return the topic of the Spark jobs of a place, one of those that the console was started with."""
        trail = self.job_trail(place)

        async def look(_: Inspector) -> JobsReport:
            report = await asyncio.to_thread(jobs_at, place)
            trail.took(report)
            return report

        return Topic(("jobs", place), look, 10.0)

    def job_trail(self, place: str) -> JobTrail:
        """Return what is remembered of a place."""
        return self._jobs.setdefault(place, JobTrail())

    def trail(self, application: str, stream: str) -> Trail:
        """Return what is remembered of an application on a stream."""
        key = (application, stream)
        found = self._trails.pop(key, None) or Trail()
        self._trails[key] = found  # the newest stands last
        while len(self._trails) > TRAILS_MAX:
            del self._trails[next(iter(self._trails))]
        return found


async def _streams(inspector: Inspector) -> StreamsSeen:
    report = await inspector.streams()
    views: dict[str, StreamView] = {}
    faults: dict[str, str] = {}

    async def describe(name: str) -> None:
        try:
            found = await inspector.shown(f"the stream {name}", "kinesis", inspector.describe(stream_name(name)))
        except ShardwayError as fault:
            faults[name] = fault_text(fault)
        else:
            if found is not None:
                views[name] = found

    await side_by_side(describe, [one.name for one in report.streams[:STREAMS_MAX]], 8)
    return StreamsSeen(report, views, faults)
