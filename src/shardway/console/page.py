"""Make pages of templates, with what all of them need, and with the values that they show as text."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from shardway import __version__
from shardway.console import charts, drawing
from shardway.console.columns import whole_characters
from shardway.console.json_colours import coloured
from shardway.console.location import location_of
from shardway.console.looks.standing import Standing, need_of
from shardway.console.security.visitors import Visitor
from shardway.inspect.moments import span_text, time_text

if TYPE_CHECKING:
    from starlette.requests import Request

    from shardway.console.console import Console
    from shardway.console.looks.sampler import Sample
    from shardway.inspect import ShardLag

BAD = {"far behind", "falling behind", "stalled", "rewound", "stopped", "unowned", "gone", "failed", "not shown"}
GOOD = {"ok", "ended", "catching up", "steady"}

NAV = (
    ("/", "Overview"),
    ("/jobs", "Spark jobs"),
    ("/letters", "Dead letters"),
    ("/doctor", "Doctor"),
    ("/cost", "Cost"),
    ("/local", "Local Kinesis"),
    ("/audit", "Audit log"),
)

BEAT_S = 5.0
"""Seconds after which a stream of events says again that it goes on."""
PADDING = ":" + " " * 2048 + "\n"
"""The beginning of a stream of events. A proxy that waits until it has some bytes gets them at once."""
HEADERS = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}
"""The headers of a stream of events."""


class PageError(Exception):
    """A page cannot be shown, or a form not be taken."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


def console_of(request: Request) -> Console:
    """Return the console that a request is for."""
    found: Console = request.app.state.console
    return found


def visitor_of(request: Request) -> Visitor:
    """The visitor that the gate let in."""
    found = request.state.visitor
    assert isinstance(found, Visitor)
    return found


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the form, as the gate has read them."""
    found: dict[str, str] = request.state.form
    return found


def rendered(request: Request, template: str, context: dict[str, Any], *, status: int = 200) -> Response:
    """Return the page that a template makes."""
    console = console_of(request)
    visitor = getattr(request.state, "visitor", None)
    settings = console.settings
    values = {
        "base": settings.base_path,
        "visitor": visitor,
        "csrf": _hidden_field(visitor),
        "nav": [one for one in NAV if one[0] != "/local" or console.local is not None],
        "may_write": visitor is not None and visitor.may_write,
        "settings": settings,
        "payloads": console.payloads,
        "is_local": console.local is not None,
        "location": location_of(console),
        "version": __version__,
        "path": settings.base_path + request.scope["path"],
        "live": None,
        **context,
    }
    return HTMLResponse(ENVIRONMENT.get_template(template).render(values), status)


def redirect(request: Request, path: str) -> Response:
    """Return an answer that sends the browser to another page of the console."""
    return Response(status_code=303, headers={"location": console_of(request).settings.base_path + path})


def link(*parts: str, **query: Any) -> str:
    """Return a path below the base, with its query, from which empty values are left out."""
    path = "".join(f"/{quote(one, safe='')}" for one in parts) or "/"
    chosen = [(name.rstrip("_"), value) for name, value in query.items() if value not in (None, "", (), [])]
    return path + (f"?{urlencode(chosen, doseq=True)}" if chosen else "")


def _hidden_field(visitor: Visitor | None) -> Markup:
    """Return the field that every form of the console carries, so that no other site can send it."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(visitor.csrf if visitor is not None else "")


def _age(sample: Sample[Any]) -> Markup:
    """Return how old the sample is, and why it is not newer."""
    parts = []
    if sample.age_s is not None:
        parts.append(Markup('<span class="age">seen {} ago</span>').format(span_text(round(sample.age_s))))
    elif sample.fault is None:
        parts.append(Markup('<span class="age">is being looked at</span>'))
    if sample.fault is not None:
        parts.append(Markup('<p class="fault" role="status">{}</p>').format(sample.fault))
    return Markup(" ").join(parts)


def _verdict(text: str, kind: str | None = None) -> Markup:
    """Return a verdict in its colour. ``kind``: the colour where more than the verdict decides it."""
    kind = kind or ("good" if text in GOOD else "bad" if text in BAD else "open")
    return Markup('<span class="verdict {}">{}</span>').format(kind, text)


def _severity(text: str) -> Markup:
    kind = {"critical": "bad", "warning": "warn"}.get(text, "open")
    return Markup('<span class="verdict {}">{}</span>').format(kind, text)


def _bytes(count: float | None) -> str:
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def _shard_verdict(seen: ShardLag) -> Markup:
    return _verdict(seen.state.value, Standing(need_of(seen.state, seen.behind_s), None, None, 0).colour)


DIGITS_SHOWN = 12


def _digits(text: str) -> Markup:
    """Return a long number. The style sheet cuts its beginning for the eye alone: a reader copies the whole."""
    if len(text) <= DIGITS_SHOWN + 2:
        return escape(text)
    return Markup('<span class="digits" title="{all}">{all}</span>').format(all=text)


def _time_element(at: dt.datetime | float | None) -> Markup:
    if isinstance(at, int | float):
        at = dt.datetime.fromtimestamp(at, dt.UTC)
    text = time_text(at)
    return Markup("-") if at is None else Markup('<time datetime="{0}">{0}</time>').format(text)


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("shardway.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(
        span=lambda value: "-" if value is None else span_text(value),
        time=_time_element,
        bytes=_bytes,
        count=lambda value: "-" if value is None else f"{value:,}",
        age=_age,
        verdict=_verdict,
        shard_verdict=_shard_verdict,
        digits=_digits,
        severity=_severity,
        bar=drawing.bar,
        whole=whole_characters,
        json=coloured,
        rate=lambda value: "-" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:,.1f}",
        short=lambda shard_id: str(shard_id).removeprefix("shardId-").lstrip("0") or "0",
    )
    found.globals.update(spark=charts.spark, link=link, now=lambda: time.time())
    return found


ENVIRONMENT = _environment()
