"""Show live tails of a stream: the page, and the events with its records."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import StreamingResponse

from shardway.console.looks.tailing import rows
from shardway.console.page import BEAT_S, HEADERS, PADDING, PageError, console_of, link, rendered, visitor_of
from shardway.console.pages.record_query import NUMBER, RecordQuery
from shardway.console.pages.record_views import note_view, shard_ids
from shardway.errors import OptionError
from shardway.inspect.moments import HOW
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.console.looks.tailing import Basket


TAIL_INTERVAL_S = 0.25
_BROWSER = re.compile(r"[A-Za-z0-9-]{8,64}", re.ASCII)


async def tail(request: Request) -> Response:
    """Show the page of a live tail; its records come by events."""
    console, name = console_of(request), request.path_params["name"]
    fault, chosen = None, None
    try:
        chosen = RecordQuery(console, name, request.query_params, at="latest")
        if chosen.key:
            raise OptionError('a tail has no key of its own: write it into the filter, as in key == "a"')
    except OptionError as error:
        fault = str(error)
    query = {} if chosen is None else chosen.query(until=None, limit=None, col=None)
    context: dict[str, Any] = {
        "title": f"Live tail of {name}",
        "name": name,
        "query": request.query_params,
        "fault": fault,
        "events": None if fault else link("streams", name, "tail", "events", **query),
        "records": link("streams", name, "records", **{**query, "from_": None}),
        "how": HOW,
        "shards": await shard_ids(console, name),
    }
    return rendered(request, "tail.html", context, status=400 if fault else 200)


async def tail_events(request: Request) -> Response:
    """Answer with the records of a live tail, until the browser leaves."""
    console, name, query = console_of(request), request.path_params["name"], request.query_params
    browser = query.get("browser", "")
    if not _BROWSER.fullmatch(browser):
        raise PageError(400, "A live tail names its browser.")
    visitor = visitor_of(request)
    browser = f"{visitor.name} {browser}"  # so no visitor takes another's basket
    for_text = query.get("for", "")
    for_s = float(for_text) if NUMBER.fullmatch(for_text) else None
    basket = console.tails.basket_of(browser)
    # A proxy may hold the rows that an endless answer has taken: a browser that comes in steps from now on begins anew.
    anew = basket is None or (for_s is not None and not basket.in_steps)
    if basket is None or anew:
        chosen = RecordQuery(console, name, query, at="latest")
        await note_view(request, "records.tailed", chosen.target())
        shards = () if chosen.shard is None else (chosen.shard,)
        basket = console.tails.follow(browser, name, chosen.at, shards, chosen.matches)
    basket.in_steps = for_s is not None
    events = _tail_events(console, basket, for_s, anew=anew)
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)


async def _tail_events(console: Console, basket: Basket, for_s: float | None, *, anew: bool) -> AsyncIterator[str]:
    """Yield events with rows. ``for_s``: the answer ends after this time, so that a proxy that holds the answer back
    lets it go. ``anew``: the browser's reading begins now, though the browser may have been here before.
    """
    turn = basket.taken_over()
    clock = asyncio.get_running_loop().time
    end_s = None if for_s is None else clock() + for_s
    yield f"{PADDING}retry: 1000\n\n"
    try:
        while not console.ending.is_set() and basket.turn == turn and (end_s is None or clock() < end_s):
            held = basket.take()
            shown = await console.decoding.call(partial(rows, held, console.payloads)) if held else []
            if basket.turn != turn:
                basket.put_back(held)
                break
            told = {"rows": shown, "seen": basket.seen, "matched": basket.matched, "lost": basket.lost, "anew": anew}
            told |= {"fault": basket.fault, "note": basket.note}
            yield f"event: rows\ndata: {msgspec.json.encode(told).decode()}\n\n"
            anew = False
            if basket.fault is not None:
                break
            await wait_set(basket.filled, BEAT_S if end_s is None else min(BEAT_S, max(0.0, end_s - clock())))
            await asyncio.sleep(TAIL_INTERVAL_S)
    finally:
        if basket.turn == turn:
            console.tails.left(basket)


ROUTES = [
    ("/streams/{name}/tail", ["GET"], tail),
    ("/streams/{name}/tail/events", ["GET"], tail_events),
]
