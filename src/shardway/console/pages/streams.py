"""The page of a stream: its settings, shards, lineage, consumers, and where its load lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.console import drawing
from shardway.console.location import account_in
from shardway.console.looks.sampler import fault_text
from shardway.console.page import console_of, link, rendered
from shardway.console.pages import overview
from shardway.errors import NotFoundError, OptionError
from shardway.inspect.moments import span_s

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.console.looks.sampler import Topic


FIRST_LOOK_S = 5.0
RATES_WAIT_S = 0.5
"""How many seconds the page waits for CloudWatch. Figures that come later show when the page is refreshed."""
HEAT_S_MAX = 3600.0
ROWS_MAX = 1_000


async def stream(request: Request) -> Response:
    """Show one stream."""
    console, name = console_of(request), request.path_params["name"]
    sample = await console.sampler.sample(console.topics.stream(name), wait_s=FIRST_LOOK_S)
    if sample.value is None and sample.fault is not None and "ResourceNotFound" in sample.fault:
        raise NotFoundError("ResourceNotFoundException", f"there is no stream {name}")
    heat_text = request.query_params.get("heat", "")
    heat = None
    if (since_s := _heat_start(heat_text)) is not None:
        topic = console.topics.heat(name, since_s, show_keys=console.payloads.key_shown)
        heat = await console.sampler.sample(topic, wait_s=FIRST_LOOK_S)
    by_shard = {one.shard_id: one for one in heat.value.shards} if heat is not None and heat.value is not None else {}
    every = request.query_params.get("all") == "1"
    report = sample.value
    if report is not None and report.stream is not None:
        console.account = console.account or account_in([report.stream.arn])
    shards = [one for one in (report.shards or [] if report else []) if every or one.open]
    await console.sampler.sample(console.topics.applications())
    lines = [line for line in await overview.lines_of(console, lambda _: False) if line.stream == name]
    rates = (await console.sampler.sample(console.topics.rates([name]), wait_s=RATES_WAIT_S)).value
    context: dict[str, Any] = {
        "title": name,
        "name": name,
        "sample": sample,
        "report": report,
        "shards": shards[:ROWS_MAX],
        "left_out": max(0, len(shards) - ROWS_MAX),
        "every": every,
        "picture": drawing.lineage(report.shards, by_shard) if report is not None and report.shards else None,
        "hour": None if rates is None else rates.hours.get(name),
        "rate_fault": None if rates is None or rates.fault is None else fault_text(rates.fault),
        "heat": heat,
        "heat_text": heat_text,
        "by_shard": by_shard,
        "reading": overview.readings_of(console, lines).get(name),
        "readers": [line.found.name for line in lines],
        "live": link("", page="stream", name=name, heat=heat_text).partition("?")[2],
    }
    return rendered(request, "stream.html", context)


def topics(console: Console, request: Request) -> list[Topic[Any]]:
    """Return the topics that the page looks at."""
    name = request.query_params.get("name", "")
    found: list[Topic[Any]] = [console.topics.stream(name), console.topics.rates([name])]
    readers = [application for application, stream in overview.pairs(console) if stream == name]
    found += [console.topics.application(one.name) for one in readers]
    if (since_s := _heat_start(request.query_params.get("heat", ""))) is not None:
        found.append(console.topics.heat(name, since_s, show_keys=console.payloads.key_shown))
    return found


def _heat_start(text: str) -> float | None:
    if not text:
        return None
    found = span_s(text)
    if not 0 < found <= HEAT_S_MAX:
        raise OptionError("the heat covers the last hour at most: write a span such as 60s or 10m")
    return found


ROUTES = [("/streams/{name}", ["GET"], stream)]
