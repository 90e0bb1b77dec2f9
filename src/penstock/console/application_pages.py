"""An application: leases, owners, lag over time, the history of moves; the doctor, and what it costs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.console import drawing, overview
from penstock.console.page import console_of, link, rendered
from penstock.errors import NotFoundError
from penstock.inspect import examine
from penstock.inspect.costs import cost_of, prices_from

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.console.asgi import Console
    from penstock.console.sampling import Topic
    from penstock.inspect import Snapshot

FIRST_LOOK_S = 5.0
LEASES_MAX = 1_000
MOVES_MAX = 100
STREAMS_MAX = 1_000
"""Applications whose stream was chosen by hand, that are remembered."""


async def application(request: Request) -> Response:
    """One application, on one of its streams."""
    console, name = console_of(request), request.path_params["name"]
    sampler = console.sampler
    sample = await sampler.sample(console.topics.application(name), wait_s=FIRST_LOOK_S)
    if (
        sample.value is None
        and sample.fault is not None
        and ("NotFound" in sample.fault or "there is no" in sample.fault)
    ):
        raise NotFoundError("ResourceNotFoundException", f"there is no application {name}: {sample.fault}")
    streams = await sampler.sample(console.topics.streams(), wait_s=FIRST_LOOK_S)
    asked = request.query_params.get("stream", "").strip()
    if asked and len(console.streams) < STREAMS_MAX:
        console.streams[name] = asked
    choices = overview.streams_of(console, name)
    stream = asked or (choices[0] if choices else None)
    lag = None if stream is None else await sampler.sample(console.topics.lag(name, stream), wait_s=FIRST_LOOK_S)
    view = sample.value.application if sample.value is not None else None
    by_lease = {one.lease: one for one in lag.value.shards} if lag is not None and lag.value is not None else {}
    trail = None if stream is None else console.topics.trail(name, stream)
    leases = view.leases if view is not None else []
    states = Counter(one.state.value for one in by_lease.values())
    context: dict[str, Any] = {
        "title": name,
        "name": name,
        "sample": sample,
        "view": view,
        "leases": leases[:LEASES_MAX],
        "left_out": max(0, len(leases) - LEASES_MAX),
        "stream": stream,
        "choices": choices,
        "all_streams": [one.name for one in streams.value.report.streams] if streams.value else [],
        "lag": lag,
        "by_lease": by_lease,
        "states": states,
        "chart": _chart(console, name, stream),
        "moves": list(trail.moves)[::-1][:MOVES_MAX] if trail is not None else [],
        "live": link("", page="application", name=name, stream=stream).partition("?")[2],
    }
    return rendered(request, "application.html", context)


def _chart(console: Console, name: str, stream: str | None) -> Any:
    if stream is None:
        return None
    trail = console.topics.trail(name, stream)
    return drawing.lag_chart(list(trail.points), trail.points[-1][0]) if trail.points else None


def topics(console: Console, request: Request) -> list[Topic[Any]]:
    """What the page looks at."""
    name, stream = request.query_params.get("name", ""), request.query_params.get("stream", "")
    found: list[Topic[Any]] = [console.topics.application(name), console.topics.streams()]
    return [*found, console.topics.lag(name, stream)] if stream else found


async def doctor(request: Request) -> Response:
    """Known symptoms of an application and its stream."""
    context, snapshot = await _examined(request)
    report = None if snapshot is None else examine(snapshot)
    return rendered(request, "doctor.html", {**context, "title": "Doctor", "report": report})


async def cost(request: Request) -> Response:
    """What a stream, its readers, leases and metrics cost, and what would cost less."""
    context, snapshot = await _examined(request)
    report = None if snapshot is None else cost_of(snapshot, prices_from())
    return rendered(request, "cost.html", {**context, "title": "Cost", "report": report})


async def _examined(request: Request) -> tuple[dict[str, Any], Snapshot | None]:
    """What was chosen, and the newest snapshot of it."""
    console = console_of(request)
    name, stream = request.query_params.get("app", "").strip(), request.query_params.get("stream", "").strip()
    if name and not stream:
        await console.sampler.sample(console.topics.application(name), wait_s=FIRST_LOOK_S)
        stream = next(iter(overview.streams_of(console, name)), "")
    sample = None
    if name or stream:
        sample = await console.sampler.sample(
            console.topics.snapshot(name or None, stream or None), wait_s=FIRST_LOOK_S
        )
    streams = await console.sampler.sample(console.topics.streams(), wait_s=1.0)
    applications = await console.sampler.sample(console.topics.applications(), wait_s=1.0)
    context = {
        "name": name,
        "stream": stream,
        "sample": sample,
        "all_streams": [one.name for one in streams.value.report.streams] if streams.value else [],
        "all_applications": [one.name for one in applications.value.applications] if applications.value else [],
        "live": link("", page="snapshot", app=name, stream=stream).partition("?")[2] if sample is not None else None,
    }
    return context, None if sample is None else sample.value


def snapshot_topics(console: Console, request: Request) -> list[Topic[Any]]:
    """What these two pages look at."""
    name, stream = request.query_params.get("app") or None, request.query_params.get("stream") or None
    return [console.topics.snapshot(name, stream)] if name or stream else []


ROUTES = [
    ("/applications/{name}", ["GET"], application),
    ("/doctor", ["GET"], doctor),
    ("/cost", ["GET"], cost),
]
