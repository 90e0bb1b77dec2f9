"""Read and write times and positions in a stream as people do: ``10m ago``, ``2026-11-22T10:00Z``, ``seq:495...``."""

from __future__ import annotations

import datetime as dt
import re

from shardway.errors import OptionError
from shardway.model import IteratorAt

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*(ms|s|m|h|d|w)", re.ASCII)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_SEQUENCE = re.compile(r"(seq|after):(\d{1,128})", re.ASCII)
_WORDS = {
    "latest": IteratorAt.latest(),
    "trim-horizon": IteratorAt.trim_horizon(),
}
HOW = (
    "write a span as in 10m (s, m, h, d, w), a time as in 2026-11-22T10:00Z, latest, trim-horizon, seq:NUMBER or "
    "after:NUMBER"
)


def span_s(text: str) -> float:
    """Return the seconds of ``90s``, ``10m`` or ``1h30m``. Raises OptionError."""
    cleaned = text.strip()
    parts = _SPAN.findall(cleaned)
    if not parts or _SPAN.sub("", cleaned).strip():
        raise OptionError(f"{text!r} is no span of time: write it as in 30s, 10m, 1h30m or 2d")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def moment_s(text: str, now_s: float) -> float:
    """Return the epoch seconds of a span before now, or of a time. A time without a zone is in UTC. Raises
    OptionError.
    """
    cleaned = text.strip().removesuffix("ago").strip()
    if _SPAN.match(cleaned) and not re.match(r"\d{4}-", cleaned):
        return now_s - span_s(cleaned)
    try:
        found = dt.datetime.fromisoformat(cleaned)
    except ValueError:
        raise OptionError(f"{text!r} is no time: {HOW}") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()


def place(text: str, now_s: float) -> IteratorAt:
    """Return the place in a shard that a text names, as ``10m ago`` or ``latest``. Raises OptionError."""
    word = text.strip().lower().replace("_", "-")
    if word in _WORDS:
        return _WORDS[word]
    if (match := _SEQUENCE.fullmatch(word)) is not None:
        number = int(match[2])
        return IteratorAt.at_sequence(number) if match[1] == "seq" else IteratorAt.after_sequence(number)
    return IteratorAt.at_timestamp(moment_s(text, now_s))


def counted(count: int, what: str) -> str:
    """Return a number with its noun: ``1 lease``, ``3 leases``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span_text(seconds: float) -> str:
    """Return a span of time as a text: ``850 ms``, ``12 s``, ``3 m 20 s``, ``5 h 4 m``, ``2 d 3 h``."""
    if seconds < 0:
        return f"-{span_text(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    whole = round(seconds)
    for size, unit, lower, lower_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // lower
            return f"{whole // size} {unit}" + (f" {rest} {lower_unit}" if rest else "")
    return f"{whole} s"


def time_text(at: dt.datetime | None) -> str:
    """Return a time as a text in UTC, ``2026-11-22T10:00:00Z``; ``-`` for None."""
    return "-" if at is None else at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc(epoch_s: float) -> dt.datetime:
    """Return epoch seconds as an aware datetime in UTC."""
    return dt.datetime.fromtimestamp(epoch_s, dt.UTC)
