"""Name the topics that there are to look at, and remember of an application what lies between looks."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from shardway.console.looks.lag_history import AGAIN_S as HISTORY_AGAIN_S
from shardway.console.looks.lag_history import FIGURES, lag_history
from shardway.console.looks.rates import AGAIN_S, RateKeeper
from shardway.console.looks.sampler import Topic, fault_text
from shardway.errors import ShardwayError
from shardway.inspect.jobs.jobs import jobs_at
from shardway.inspect.jobs.metrics_page import QUERIES_MAX
from shardway.inspect.jobs.views import JobLook
from shardway.waiting import side_by_side
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.console.looks.rates import Rates
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
