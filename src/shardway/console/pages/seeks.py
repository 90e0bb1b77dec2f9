"""Plan to move an application's positions, show the plan, and apply it."""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.console.looks.sampler import fault_text
from shardway.console.page import PageError, console_of, form_of, link, rendered, visitor_of
from shardway.console.pages import overview
from shardway.console.writing import PartlyError, Write, written
from shardway.errors import OptionError, ShardwayError
from shardway.inspect import Goal, apply_plan, lease_table, plan_seek
from shardway.inspect.moments import HOW

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.inspect.moves.positions import PositionsReport


ROWS_MAX = 1_000


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
                console.inspector.make_sibling(), name, Goal(to, shards), stream=stream, store=console.settings.store
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
    ("/applications/{name}/seek", ["GET"], seek),
    ("/applications/{name}/seek", ["POST"], apply),
]
