"""The first page shows applications with their verdicts and the time until they lose data, and the streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.console.page import console_of, rendered
from penstock.console.sampling import Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.console.asgi import Console
    from penstock.console.sampling import Topic
    from penstock.inspect import ApplicationFound, ApplicationReport, LagReport

FIRST_LOOK_S = 2.0
APPLICATIONS_MAX = 100
"""The applications that are judged. Further ones are only listed."""
ORDER = (
    "gone", "unowned", "stopped", "rewound", "stalled", "falling behind", "steady", "catching up", "not known yet",
    "ok", "ended",
)  # fmt: skip


class Line(NamedTuple):
    """An application on one of its streams."""

    found: ApplicationFound
    stream: str | None
    view: Sample[ApplicationReport]
    lag: Sample[LagReport] | None


async def overview(request: Request) -> Response:
    """Show the applications and the streams."""
    console = console_of(request)
    streams = await console.sampler.sample(console.topics.streams(), wait_s=FIRST_LOOK_S)
    applications = await console.sampler.sample(console.topics.applications(), wait_s=FIRST_LOOK_S)
    text = request.query_params.get("q", "").strip()
    lines = [line for line in await lines_of(console) if text in line.found.name or text in (line.stream or "")]
    lines.sort(key=_urgency)
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
        "readers": readers,
        "q": text,
        "live": "page=overview",
    }
    return rendered(request, "overview.html", context)


def topics(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the page looks at, by what is known so far."""
    found: list[Topic[Any]] = [console.topics.streams(), console.topics.applications()]
    for application, stream in pairs(console):
        found.append(console.topics.application(application.name))
        if stream is not None:
            found.append(console.topics.lag(application.name, stream))
    return found


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


def _urgency(line: Line) -> tuple[int, float, str]:
    report = line.lag.value if line.lag is not None else None
    if report is None:
        return len(ORDER), 0.0, line.found.name
    loses_s = float("inf") if report.loses_in_s is None else report.loses_in_s
    return ORDER.index(report.state.value), loses_s, line.found.name


ROUTES = [("/", ["GET"], overview)]
