"""Send the stream of events of an open page, which says when the browser is to fetch the page again.

While it is open, the sampler looks at the page's topics; once it is closed, no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from shardway.console.console import Console
from shardway.console.page import BEAT_S, HEADERS, PADDING, PageError, console_of
from shardway.console.pages import applications, jobs, overview, streams
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from shardway.console.looks.sampler import Topic


PAGES_MAX = 64
OF_PAGES: dict[str, Callable[[Console, Request], list[Topic[object]]]] = {
    "overview": overview.topics,
    "stream": streams.topics,
    "application": applications.topics,
    "snapshot": applications.snapshot_topics,
    "jobs": jobs.topics,
    "job": jobs.topics_of_job,
}


async def live(request: Request) -> Response:
    """Answer with the events of an open page, until the browser leaves."""
    console = console_of(request)
    topics = OF_PAGES.get(request.query_params.get("page", ""))
    if topics is None:
        raise PageError(404, "There is no such page.")
    topics(console, request)  # raises for what no page shows, while the answer can still say so
    if console.live_pages >= PAGES_MAX:
        raise PageError(503, "Too many pages are open: close some.")
    return StreamingResponse(_events(console, request, topics), media_type="text/event-stream", headers=HEADERS)


async def _events(
    console: Console, request: Request, topics: Callable[[Console, Request], list[Topic[object]]]
) -> AsyncIterator[str]:
    yield f"{PADDING}retry: 3000\n\nevent: beat\ndata: {{}}\n\n"
    sampler, holding = console.sampler, contextlib.ExitStack()
    console.live_pages += 1
    try:
        seen: tuple[int, ...] | None = None
        while not console.ending.is_set():
            shown = topics(console, request)
            fresh = contextlib.ExitStack()
            fresh.enter_context(sampler.held(shown))  # before the old hold ends, so that nothing stops between
            holding.close()
            holding = fresh
            change, now = sampler.change, sampler.versions(shown)
            yield "event: changed\ndata: {}\n\n" if seen is not None and now != seen else "event: beat\ndata: {}\n\n"
            seen = now
            await wait_set(change, BEAT_S)
            if console.ending.is_set():
                break
            await asyncio.sleep(1.0)  # a page is fetched once a second at most
    finally:
        console.live_pages -= 1
        holding.close()
