"""The pages of Spark jobs: of the lease rows that queries keep up to date, and of the places that the console was
started with.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.console import charts
from shardway.console.page import PageError, console_of, link, rendered
from shardway.console.pages import overview
from shardway.inspect.jobs.verdicts import judge_job
from shardway.shown import url_without_password

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.console.looks.sampler import Sample, Topic
    from shardway.console.pages.overview import Line
    from shardway.inspect import ApplicationReport, JobsReport, JobVerdict, JobView


FIRST_LOOK_S = 5.0


class Query(NamedTuple):
    """An application whose lease rows a Spark query keeps up."""

    line: Line
    shards: int
    read_until: dt.datetime | None
    """The time up to which the shard that is furthest behind is read."""


class Place(NamedTuple):
    """One of the places that the console was started with."""

    number: int
    shown: str
    sample: Sample[JobsReport]
    jobs: list[tuple[JobView, JobVerdict]]


async def jobs(request: Request) -> Response:
    """Show all jobs."""
    console = console_of(request)
    applications = await console.sampler.sample(console.topics.applications(), wait_s=FIRST_LOOK_S)
    places = [await _place(console, number) for number in range(len(console.settings.jobs))]
    lines = await overview.lines_of(console, _by_query)
    context: dict[str, Any] = {
        "title": "Spark jobs",
        "applications": applications,
        "queries": [found for line in lines if (found := _query(line)) is not None],
        "places": places,
        "live": "page=jobs",
    }
    return rendered(request, "jobs.html", context)


async def job(request: Request) -> Response:
    """Show one job of a place, with its newest batches."""
    console, name = console_of(request), request.query_params.get("name", "")
    place = await _place(console, _number(console, request))
    found = next(((one, verdict) for one, verdict in place.jobs if one.name == name), None)
    if found is None and place.sample.value is not None:
        raise PageError(404, f"{place.shown} tells of no job of this name.")
    context: dict[str, Any] = {
        "title": name,
        "name": name,
        "place": place,
        "job": None if found is None else found[0],
        "verdict": None if found is None else found[1],
        "chart": None if found is None else _chart(console, place, found[0]),
        "live": link("", page="job", place=str(place.number), name=name).partition("?")[2],
    }
    return rendered(request, "job.html", context)


def topics(console: Console, _: Request) -> list[Topic[Any]]:
    """Return the topics that the list of jobs looks at."""
    found: list[Topic[Any]] = [console.topics.applications()]
    for application, stream in overview.pairs(console):
        topic = console.topics.application(application.name)
        found.append(topic)
        if stream is not None and _by_query(console.sampler.newest(topic)):
            found.append(console.topics.lag(application.name, stream))
    return [*found, *(console.topics.jobs(one) for one in console.settings.jobs)]


def topics_of_job(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the page of one job looks at."""
    return [console.topics.jobs(console.settings.jobs[_number(console, request)])]


def _number(console: Console, request: Request) -> int:
    """Return the number of the place that the request names. Only places that the console was started with have one: a
    browser must name no files and no addresses.
    """
    text = request.query_params.get("place", "")
    if not text.isdecimal() or not text.isascii() or len(text) > 4 or int(text) >= len(console.settings.jobs):
        raise PageError(404, "The console was not started with this place of Spark jobs (--job).")
    return int(text)


async def _place(console: Console, number: int) -> Place:
    where = console.settings.jobs[number]
    sample = await console.sampler.sample(console.topics.jobs(where), wait_s=FIRST_LOOK_S)
    looks, now_s = console.topics.job_trail(where).looks, time.time()
    found = [] if sample.value is None else sample.value.jobs
    judged = [(one, judge_job(one, list(looks.get(one.name, ())), now_s)) for one in found]
    return Place(number, url_without_password(where), sample, judged)


def _by_query(report: ApplicationReport | None) -> bool:
    return report is not None and any(one.query is not None for one in report.application.leases)


def _query(line: Line) -> Query | None:
    view = None if line.view.value is None else line.view.value.application
    known = [one for one in view.leases if one.query is not None] if view is not None else []
    if not known:
        return None
    until = [one.query.read_until for one in known if one.query is not None and not one.ended and one.query.read_until]
    return Query(line, len(known), min(until, default=None))


def _chart(console: Console, place: Place, job: JobView) -> Any:
    points: list[tuple[float, Mapping[str, float]]] = [
        (one.at.timestamp(), {job.name: one.lag_s})
        for one in job.recent
        if one.at is not None and one.lag_s is not None
    ]
    if not points:
        looks = console.topics.job_trail(console.settings.jobs[place.number]).looks.get(job.name, ())
        points = [(one.at_s, {job.name: one.lag_s}) for one in looks if one.lag_s is not None]
    return charts.lag_chart(points, max(points[-1][0], time.time())) if points else None


ROUTES = [("/jobs", ["GET"], jobs), ("/job", ["GET"], job)]
