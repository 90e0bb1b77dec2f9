"""A small client of an ASGI application, for tests: requests are made as they are written, however wrong they are."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from shardway.tasks import awaited, give_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardway.console.looks.sampler import Sampler
    from shardway.console.security.gate import Gate

TOKEN = "writer-token-of-forty-characters-0123456"
VIEWER_TOKEN = "viewer-token-of-forty-characters-0123456"
HOST = "127.0.0.1:4568"


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def cookie(self) -> str:
        """The cookie that was set, as a browser sends it."""
        return self.headers["set-cookie"].partition(";")[0]


async def ask(
    gate: Gate,
    method: str,
    target: str,
    *,
    headers: Iterable[tuple[str, str]] | dict[str, str] = (),
    form: dict[str, str] | None = None,
    body: bytes | None = None,
    host: str | None = HOST,
    peer: str = "127.0.0.1",
    until: Callable[[str], bool] | None = None,
) -> Answer:
    """One request. ``until``: leave as soon as the text so far is this, as a browser leaves a stream of events."""
    given = list(headers.items() if isinstance(headers, dict) else headers)
    if host is not None:
        given.append(("host", host))
    if form is not None:
        body = urlencode(form).encode()
        given.append(("content-type", "application/x-www-form-urlencoded"))
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given],
        "client": (peer, 50000),
        "server": ("127.0.0.1", 4568),
    }
    sent = [{"type": "http.request", "body": body or b"", "more_body": False}]
    left = asyncio.Event()
    started, parts = dict[str, Any](status=0, headers=[]), list[bytes]()

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
            return
        parts.append(message.get("body", b""))
        if until is not None and until(b"".join(parts).decode()):
            left.set()

    task = awaited(gate(scope, receive, send))
    waiting = awaited(left.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    await give_up(task, waiting)
    found = {name.decode().lower(): value.decode() for name, value in started["headers"]}
    return Answer(started["status"], found, b"".join(parts).decode("utf-8", "replace"))


async def signed_in(gate: Gate, token: str = TOKEN) -> dict[str, str]:
    """The headers of a browser that is signed in, and that asks from one of the console's pages."""
    origin = {"origin": f"http://{HOST}"}
    answer = await ask(gate, "POST", "/sign-in", headers=origin, form={"token": token})
    assert answer.status == 303, answer.text
    return {**origin, "cookie": answer.cookie, "accept": "text/html"}


def csrf_of(page: str) -> str:
    """What the forms of a page carry."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def text_of(page: str) -> str:
    """What a page says, without its marks."""
    return re.sub("<[^>]*>", "", page)


def looked_at(sampler: Sampler) -> list[tuple[str, ...]]:
    """Return the topics that the sampler looks at."""
    return [key for key, kept in sampler._entries.items() if kept.task is not None]
