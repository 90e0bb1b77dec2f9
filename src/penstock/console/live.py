"""The stream of events of an open page: it says when to fetch the page again. While it is open, the page's topics are
looked at; when it closes, they are not.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

from penstock.console import application_pages, job_pages, overview, stream_pages
from penstock.console.page import PageError, console_of
from penstock.runtime.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.console.asgi import Console
    from penstock.console.sampling import Topic

BEAT_S = 5.0
PAGES_MAX = 64
PADDING = ":" + " " * 2048 + "\n"
"""A proxy that waits until it has some bytes gets them at once."""
HEADERS = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}

OF_PAGES: dict[str, Callable[[Console, Request], list[Topic[object]]]] = {
    "overview": overview.topics,
    "stream": stream_pages.topics,
    "application": application_pages.topics,
    "snapshot": application_pages.snapshot_topics,
    "jobs": job_pages.topics,
    "job": job_pages.topics_of_job,
}


async def live(request: Request) -> Response:
    """Events until the browser leaves."""
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


ROUTES = [("/live", ["GET"], live)]
