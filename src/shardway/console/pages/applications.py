"""The pages of an application: its leases, owners, lag over time and moves; the doctor; the cost; and the seek.

To seek is to go on at another place. The page first shows the plan, with real positions; once the visitor has confirmed
the plan, the console writes it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from shardway.console import charts
from shardway.console.looks import rates
from shardway.console.looks.figures import PRICE
from shardway.console.looks.lag_history import FIGURES
from shardway.console.looks.standing import Urgency, need_of, standing_of
from shardway.console.page import console_of, link, rendered
from shardway.console.pages import overview
from shardway.errors import NotFoundError
from shardway.inspect import examine
from shardway.inspect.costs.prices import prices_from
from shardway.inspect.costs.reports import cost_of
from shardway.inspect.lag.reports import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.console.looks.sampler import Topic
    from shardway.console.pages.overview import Line
    from shardway.inspect import ShardLag, Snapshot
    from shardway.inspect.applications.views import LeaseView


FIRST_LOOK_S = 5.0
LEASES_MAX = 1_000
MOVES_MAX = 100


async def application(request: Request) -> Response:
    """Show one application, on one of its streams."""
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
    choices = overview.streams_of(console, name)
    stream = asked or (choices[0] if choices else None)
    lag = None if stream is None else await sampler.sample(console.topics.lag(name, stream), wait_s=FIRST_LOOK_S)
    view = sample.value.application if sample.value is not None else None
    by_lease = {one.lease: one for one in lag.value.shards} if lag is not None and lag.value is not None else {}
    trail = None if stream is None else console.topics.trail(name, stream)
    if stream is not None:
        await sampler.sample(console.topics.lag_history(name, stream))
    leases = _worst_first(view.leases if view is not None else [], by_lease)
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
        "standing": standing_of(lag.value if lag is not None else None),
        "states": states,
        "chart": _chart(console, name, stream),
        "moves": list(trail.moves)[::-1][:MOVES_MAX] if trail is not None else [],
        "live": link("", page="application", name=name, stream=stream).partition("?")[2],
    }
    return rendered(request, "application.html", context)


def _worst_first(leases: Sequence[LeaseView], by_lease: Mapping[str, ShardLag]) -> list[LeaseView]:
    """Return the leases in the order of their need, so that the one that stands still is in sight among hundreds."""
    order = list(State)

    def need(one: LeaseView) -> tuple[int, int, float, str]:
        if (seen := by_lease.get(one.key)) is None:
            return 1, 0, 0.0, one.key
        return -need_of(seen.state, seen.behind_s), -order.index(seen.state), -(seen.behind_s or 0.0), one.key

    return sorted(leases, key=need)


def _chart(console: Console, name: str, stream: str | None) -> Any:
    if stream is None:
        return None
    trail = console.topics.trail(name, stream)
    if not trail.points:
        return None
    first_s = trail.points[0][0]
    return charts.lag_chart(list(trail.points), trail.points[-1][0], [one for one in trail.told if one[0] < first_s])


def topics(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the page of an application looks at."""
    name, stream = request.query_params.get("name", ""), request.query_params.get("stream", "")
    found: list[Topic[Any]] = [console.topics.application(name), console.topics.streams()]
    return [*found, console.topics.lag(name, stream), console.topics.lag_history(name, stream)] if stream else found


async def doctor(request: Request) -> Response:
    """Show the known symptoms of an application and its stream."""
    context, snapshot = await _examine(request)
    report = None if snapshot is None else examine(snapshot)
    if not context["name"] and not context["stream"]:
        context = {**context, **await _unwell(console_of(request)), "live": "page=overview"}
    return rendered(request, "doctor.html", {**context, "title": "Doctor", "report": report})


async def _unwell(console: Console) -> dict[str, Any]:
    """Return which applications need the doctor, the worst first, each with the reason of its worst shard."""
    lines = sorted(await overview.lines_of(console), key=overview.urgency)
    needs = [(line, line.standing.need) for line in lines]
    unwell = [line for line, need in needs if need in (Urgency.SICK, Urgency.WATCH) or line.view.fault is not None]
    return {
        "unwell": [(line, _reason(line)) for line in unwell],
        "unseen": sum(need is Urgency.OPEN for _, need in needs),
        "well": sum(need is Urgency.WELL for _, need in needs),
    }


def _reason(line: Line) -> str:
    if line.report is None:
        return line.view.fault or ""
    order = list(State)
    worst = max(line.report.shards, key=lambda one: (order.index(one.state), one.behind_s or 0.0), default=None)
    if line.report.without_lease:
        return f"{len(line.report.without_lease)} open shards have no lease"
    return "" if worst is None else f"{worst.shard_id}: {worst.why}"


async def cost(request: Request) -> Response:
    """Show what a stream, its readers, leases and metrics cost, and what would cost less."""
    context, snapshot = await _examine(request)
    report = None if snapshot is None else cost_of(snapshot, prices_from())
    return rendered(
        request, "cost.html", {**context, **_own_cost(console_of(request)), "title": "Cost", "report": report}
    )


def _own_cost(console: Console) -> dict[str, Any]:
    """Return what the page says of the console's own cost."""
    return {
        "figures": console.topics.rate_keeper.figures + console.topics.figures_of_lag,
        "figures_lag": FIGURES,
        "figures_stream": rates.figures_an_hour(1),
        "figures_most": rates.figures_an_hour(rates.STREAMS_MAX),
        "figure_price": PRICE,
        "streams_most": rates.STREAMS_MAX,
    }


async def _examine(request: Request) -> tuple[dict[str, Any], Snapshot | None]:
    """Return what the visitor chose, and the newest snapshot of it."""
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
        "applications": applications,
        "all_streams": [one.name for one in streams.value.report.streams] if streams.value else [],
        "all_applications": [one.name for one in applications.value.applications] if applications.value else [],
        "live": link("", page="snapshot", app=name, stream=stream).partition("?")[2] if sample is not None else None,
    }
    return context, None if sample is None else sample.value


def snapshot_topics(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the pages of the doctor and of the cost look at."""
    name, stream = request.query_params.get("app") or None, request.query_params.get("stream") or None
    return [console.topics.snapshot(name, stream)] if name or stream else []


ROUTES = [
    ("/applications/{name}", ["GET"], application),
    ("/doctor", ["GET"], doctor),
    ("/cost", ["GET"], cost),
]
