"""The pages of an application: its leases, owners, lag over time and moves; the doctor; the cost; and the seek.

To seek is to go on at another place. The page first shows the plan, with real positions; once the visitor has confirmed
the plan, the console writes it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.console import charts, overview, rates
from shardway.console.audit import PartlyError, Write, written
from shardway.console.figures import PRICE
from shardway.console.lag_history import FIGURES
from shardway.console.page import PageError, console_of, form_of, link, rendered, visitor_of
from shardway.console.sampling import fault_text
from shardway.console.standing import Urgency, need_of, standing_of
from shardway.errors import NotFoundError, OptionError, ShardwayError
from shardway.inspect import Goal, apply_plan, examine, lease_table, plan_seek
from shardway.inspect.costs.prices import prices_from
from shardway.inspect.costs.reports import cost_of
from shardway.inspect.lag.reports import State
from shardway.inspect.moments import HOW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.asgi import Console
    from shardway.console.overview import Line
    from shardway.console.sampling import Topic
    from shardway.inspect import Plan, ShardLag, Snapshot
    from shardway.inspect.applications.views import LeaseView
    from shardway.inspect.moves.positions import PositionsReport

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
    context, snapshot = await _examined(request)
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
        "unwell": [(line, _why(line)) for line in unwell],
        "unseen": sum(need is Urgency.OPEN for _, need in needs),
        "well": sum(need is Urgency.WELL for _, need in needs),
    }


def _why(line: Line) -> str:
    if line.report is None:
        return line.view.fault or ""
    order = list(State)
    worst = max(line.report.shards, key=lambda one: (order.index(one.state), one.behind_s or 0.0), default=None)
    if line.report.without_lease:
        return f"{len(line.report.without_lease)} open shards have no lease"
    return "" if worst is None else f"{worst.shard_id}: {worst.why}"


async def cost(request: Request) -> Response:
    """Show what a stream, its readers, leases and metrics cost, and what would cost less."""
    context, snapshot = await _examined(request)
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


async def _examined(request: Request) -> tuple[dict[str, Any], Snapshot | None]:
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


# --- seek -----------------------------------------------------------------------------------------

PLANS_MAX = 32
PLANS_OF_VISITOR_MAX = 8
PLAN_S = 900.0
ROWS_MAX = 1_000


class PendingPlan(NamedTuple):
    """A plan that waits to be confirmed."""

    plan: Plan
    visitor: str
    until_s: float


class Plans:
    """Keeps plans that were shown, for a while."""

    def __init__(self) -> None:
        self._made: dict[str, PendingPlan] = {}

    def add(self, plan: Plan, visitor: str) -> str:
        """Keep a plan, and return its number. Where there is no room, the oldest plan of the same visitor goes first,
        and then of the visitor that has the most.
        """
        now_s = time.monotonic()
        self._made = {number: one for number, one in self._made.items() if one.until_s >= now_s}
        counts = Counter(one.visitor for one in self._made.values())
        if counts[visitor] >= PLANS_OF_VISITOR_MAX:
            self._drop_oldest_of(visitor)
        elif len(self._made) >= PLANS_MAX:
            self._drop_oldest_of(counts.most_common(1)[0][0])
        number = secrets.token_urlsafe(16)
        self._made[number] = PendingPlan(plan, visitor, now_s + PLAN_S)
        return number

    def _drop_oldest_of(self, visitor: str) -> None:
        del self._made[next(number for number, one in self._made.items() if one.visitor == visitor)]

    def take(self, number: str, visitor: str) -> Plan | None:
        """Return a plan that this visitor was shown, and forget it: a plan is taken once."""
        found = self._made.get(number)
        if found is None or found.visitor != visitor:
            return None
        del self._made[number]
        return found.plan if found.until_s >= time.monotonic() else None


async def seek(request: Request) -> Response:
    """Show the form; where the form names a place, show the plan for it. Nothing is written."""
    console, name = console_of(request), request.path_params["name"]
    query = request.query_params
    stream = query.get("stream", "").strip() or next(iter(overview.streams_of(console, name)), None)
    to, shards = query.get("to", "").strip(), tuple(one for one in query.getlist("shard") if one)
    plan, number, fault = None, None, None
    if to:
        try:
            plan = await plan_seek(
                console.inspector.apart(), name, Goal(to, shards), stream=stream, store=console.settings.store
            )
            visitor = visitor_of(request)
            if visitor.may_write:  # No other visitor can confirm it.
                number = console.plans.add(plan, visitor.name)
        except ShardwayError as error:
            fault = fault_text(error)
    context: dict[str, Any] = {
        "title": f"Seek {name}",
        "name": name,
        "stream": stream,
        "to": to,
        "how": HOW,
        "plan": plan,
        "moves": plan.moves[:ROWS_MAX] if plan is not None else [],
        "number": number,
        "fault": fault,
    }
    return rendered(request, "seek.html", context, status=400 if fault else 200)


async def apply(request: Request) -> Response:
    """Write a plan that was shown. Each row is written only where it is still as the plan saw it."""
    console, name, form = console_of(request), request.path_params["name"], form_of(request)
    if form.get("confirm", "").strip() != name:
        raise PageError(400, "Write the application's name to confirm it.")
    plan = console.plans.take(form.get("plan", ""), visitor_of(request).name)
    if plan is None or plan.application != name:
        raise PageError(409, "There is no such plan any more: look again.")
    handoff, accept_inexact = form.get("handoff") == "1", form.get("inexact") == "1"
    kept = _kept_path(console, name)

    async def do() -> Any:
        table = lease_table(console.settings.store, name, console.connection)
        try:
            done = await apply_plan(
                plan, table, keep=lambda found: _keep(kept, found), handoff=handoff, accept_inexact=accept_inexact
            )
        finally:
            await table.close()
        told = {**msgspec.to_builtins(done), "kept": str(kept)}
        if not done.complete:
            text = (
                f"{len(done.written)} of {len(plan.moves)} leases were written; what is left is as the lists below say"
            )
            raise PartlyError(text, told, unknown=bool(done.unknown))
        return told

    target = {"application": name, "stream": plan.stream, "leases": len(plan.moves), "handoff": handoff}
    before = {one.lease: None if one.before is None else one.before.checkpoint for one in plan.moves}
    after = {one.lease: one.checkpoint for one in plan.moves}
    write = Write("app.sought", f"Seek of {name}", target, before=before, after=after)
    return await written(request, write, do, back=link("applications", name, stream=plan.stream))


def _kept_path(console: Console, name: str) -> Path:
    """Return the path, beside the audit log, of the file that keeps the positions as they were."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")
    return console.audit.path.with_name(f"{safe}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%fZ}.positions.json")


def _keep(path: Path, found: PositionsReport) -> None:
    """Write the positions to a file, which is on the disk when this returns. Where it raises, nothing of the plan is
    written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        raise OptionError(f"the positions cannot be kept in {path}: {fault.strerror}") from fault


ROUTES = [
    ("/applications/{name}", ["GET"], application),
    ("/applications/{name}/seek", ["GET"], seek),
    ("/applications/{name}/seek", ["POST"], apply),
    ("/doctor", ["GET"], doctor),
    ("/cost", ["GET"], cost),
]
