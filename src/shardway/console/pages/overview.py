"""The first page shows applications with their verdicts and the time until they lose data, and the streams."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.console import charts
from shardway.console.looks.rates import STREAMS_MAX as RATED_MAX
from shardway.console.looks.sampler import Sample, fault_text
from shardway.console.looks.standing import Standing, standing_of, totals_of
from shardway.console.looks.worker_rates import Reading, reading_of
from shardway.console.page import console_of, rendered
from shardway.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.console.looks.rates import Rates
    from shardway.console.looks.sampler import Topic
    from shardway.inspect import ApplicationFound, ApplicationReport, LagReport


FIRST_LOOK_S = 2.0
SPARK_POINTS_MAX = 120
"""The newest looks that a picture as small as a word shows."""
APPLICATIONS_MAX = 100
"""The applications that are judged. Further ones are only listed."""


class Line(NamedTuple):
    """An application on one of its streams."""

    found: ApplicationFound
    stream: str | None
    view: Sample[ApplicationReport]
    lag: Sample[LagReport] | None

    @property
    def standing(self) -> Standing:
        """How the application stands on this stream, by the newest look."""
        return standing_of(self.report)

    @property
    def report(self) -> LagReport | None:
        """What the newest look has found; None: there was none."""
        return None if self.lag is None else self.lag.value


async def overview(request: Request) -> Response:
    """Show the applications and the streams."""
    console = console_of(request)
    streams = await console.sampler.sample(console.topics.streams(), wait_s=FIRST_LOOK_S)
    applications = await console.sampler.sample(console.topics.applications(), wait_s=FIRST_LOOK_S)
    text = request.query_params.get("q", "").strip()
    lines = [line for line in await lines_of(console) if text in line.found.name or text in (line.stream or "")]
    lines.sort(key=urgency)
    names = _rated_streams(console)
    rates = (await console.sampler.sample(console.topics.rates(names))).value if names else None
    shown = [one for one in (streams.value.report.streams if streams.value else []) if text in one.name]
    readers: dict[str, list[str]] = {}
    for line in lines:
        if line.stream is not None:
            readers.setdefault(line.stream, []).append(line.found.name)
    context: dict[str, Any] = {
        "title": "Overview",
        "streams": streams,
        "shown": shown,
        "applications": applications,
        "lines": lines,
        "totals": totals_of((line.standing, line.report) for line in lines),
        "rates": rates,
        "readings": (readings := _readings_without_figures(readings_of(console, lines), rates)),
        "read_bytes": sum(one.bytes_per_s for one in readings.values()),
        "rate_fault": None if rates is None or rates.fault is None else fault_text(rates.fault),
        "lags": {(line.found.name, line.stream): _lags(console, line) for line in lines},
        "readers": readers,
        "q": text,
        "live": "page=overview",
    }
    return rendered(request, "overview.html", context)


def readings_of(console: Console, lines: Iterable[Line]) -> dict[str, Reading]:
    """Return what is read of each stream, as the workers' lease rows say it."""
    reports: dict[str, list[ApplicationReport]] = {}
    for line in lines:
        if line.stream is not None and line.view.value is not None:
            reports.setdefault(line.stream, []).append(line.view.value)
    now = dt.datetime.fromtimestamp(console.sampler.service_s, dt.UTC)
    found = {stream: reading_of(views, stream, now) for stream, views in reports.items()}
    return {stream: one for stream, one in found.items() if one is not None}


def _readings_without_figures(readings: dict[str, Reading], rates: Rates | None) -> dict[str, Reading]:
    """Return the readings of streams that CloudWatch has no figure of."""
    known = {} if rates is None else rates.hours
    return {name: one for name, one in readings.items() if name not in known or not known[name].is_known}


def topics(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the page looks at, by what is known so far."""
    found: list[Topic[Any]] = [console.topics.streams(), console.topics.applications()]
    if names := _rated_streams(console):
        found.append(console.topics.rates(names))
    for application, stream in pairs(console):
        found.append(console.topics.application(application.name))
        if stream is not None:
            found.append(console.topics.lag(application.name, stream))
    return found


def _rated_streams(console: Console) -> list[str]:
    """Return the streams whose rates the overview shows, by what is known so far."""
    seen = console.sampler.newest(console.topics.streams())
    return [one.name for one in seen.report.streams[:RATED_MAX]] if seen is not None else []


async def lines_of(console: Console, shows: Callable[[ApplicationReport | None], bool] = lambda _: True) -> list[Line]:
    """Return the applications that are known so far, with what was seen of them. ``shows`` says of which applications
    the page shows the lag; the shards of the others are not asked for it.
    """
    lines = []
    for application, stream in pairs(console):
        view = await console.sampler.sample(console.topics.application(application.name))
        lag = None
        if stream is not None and shows(view.value):
            lag = await console.sampler.sample(console.topics.lag(application.name, stream))
        lines.append(Line(application, stream, view, lag))
    return lines


def pairs(console: Console) -> list[tuple[ApplicationFound, str | None]]:
    """Return the applications that are known so far, each with its streams. No look is made for it."""
    known = console.sampler.newest(console.topics.applications())
    found: list[tuple[ApplicationFound, str | None]] = []
    for one in (known.applications if known else [])[:APPLICATIONS_MAX]:
        found += [(one, stream) for stream in streams_of(console, one.name) or [None]]  # type: ignore[list-item]
    return found


def streams_of(console: Console, application: str) -> list[str]:
    """Return the streams of an application: those that its rows name; else the chosen one; else the only one there
    is.
    """
    report = console.sampler.newest(console.topics.application(application))
    if report is not None and report.application.streams:
        return report.application.streams
    if (chosen := console.streams.get(application)) is not None:
        return [chosen]
    streams = console.sampler.newest(console.topics.streams())
    if report is not None and streams is not None and len(streams.report.streams) == 1:
        return [streams.report.streams[0].name]
    return []


def urgency(line: Line) -> tuple[int, int, float, str]:
    """Return the key that sorts lines by their need."""
    standing, report = line.standing, line.report
    loses_s = float("inf") if report is None or report.loses_in_s is None else report.loses_in_s
    return -standing.need, -standing.rank, loses_s, line.found.name


def _lags(console: Console, line: Line) -> Markup | None:
    """Return the picture of how the application's lag went while pages showed it; None: no stream is known."""
    if line.stream is None:
        return None
    points = console.topics.trail(line.found.name, line.stream).points
    worst = [max(values.values(), default=None) for _, values in points]
    if len(points) < 2:
        return charts.spark([], "")
    told = f"lag over the last {span_text(points[-1][0] - points[0][0])}, now {span_text(worst[-1] or 0.0)}"
    return charts.spark(worst[-SPARK_POINTS_MAX:], told, line.standing.colour)


ROUTES = [("/", ["GET"], overview)]
