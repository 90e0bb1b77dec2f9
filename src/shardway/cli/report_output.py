"""Show a report as a table, as JSON or as YAML."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shardway.cli.output import warn
from shardway.cli.tables import cell, is_wide
from shardway.errors import OptionError
from shardway.inspect.moments import moment_s
from shardway.shown import json_line, json_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.inspect import Missing


AHEAD_S = 60.0
"""Seconds. A time that is no further ahead than this may be due to clocks that differ."""


class Shape(StrEnum):
    """Shapes of what is shown."""

    table = "table"
    wide = "wide"
    json = "json"
    jsonl = "jsonl"
    yaml = "yaml"


def _shape_of(shape: Shape) -> Shape:
    """Take ``wide`` as a table that is shown whole: no command has to tell the two apart."""
    is_wide.set(shape is Shape.wide)
    return Shape.table if shape is Shape.wide else shape


Output = Annotated[
    Shape,
    typer.Option(
        "--output",
        "-o",
        help="table, as the terminal has room; wide; or json (the whole report), jsonl (a line per row), yaml.",
        callback=_shape_of,
    ),
]
Rate = Annotated[
    float, typer.Option(help="Read calls a second of each shard, of the 5 that all its readers share.", metavar="CALLS")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Only what is from this time on: a span before now as in 10m, or a time as in 2026-11-22T10:00Z.",
        metavar="TIME",
    ),
]
"""The option ``--since`` of all commands that have it: it is about records by their arrival, or about looks at leases
by the time at which they were made.
"""


def begin_of(since: str | None, now_s: float) -> float | None:
    """Return the epoch seconds of ``--since``. Raises OptionError for what is no time, and for a time still to come."""
    if since is None:
        return None
    begin_s = moment_s(since, now_s)
    if begin_s > now_s + AHEAD_S:
        raise OptionError(f"--since {since}: that time is still to come")
    return begin_s


def back_s(since: str | None, now_s: float) -> float | None:
    """Return how many seconds ``--since`` lies back. Raises OptionError."""
    begin_s = begin_of(since, now_s)
    return None if begin_s is None else max(1.0, now_s - begin_s)


def show_report(report: msgspec.Struct, rows: Sequence[Any], table: str, shape: Shape) -> None:
    """Show a report: as a table, whole, or its rows one by one."""
    if shape is Shape.table:
        text = table
    elif shape is Shape.jsonl:
        text = "\n".join(json_line(row) for row in rows)
    elif shape is Shape.json:
        text = _printable(msgspec.json.format(json_of(report), indent=2).decode())
    else:
        text = _printable("\n".join(_yaml(msgspec.to_builtins(report), 0)))
    if text:
        print(text, flush=True)


def tell_missing(missing: Iterable[Missing]) -> None:
    """Warn of what the report does not show, and of the permissions that it lacks."""
    for one in missing:
        warn(f"not shown: {one.what}. {one.told[0].upper()}{one.told[1:]}")


def pairs_of(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return names and values, a line each; names without a value are left out."""
    told = [(name, cell(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in told), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in told)


def _printable(text: str) -> str:
    """Return text of several lines. What no terminal should get is escaped as JSON writes it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def _yaml(value: Any, depth: int) -> list[str]:
    """Return lines of YAML in block style; texts are quoted as in JSON, which YAML reads, too."""
    pad = "  " * depth
    if isinstance(value, dict) and value:
        lines = []
        for name, member in value.items():
            if isinstance(member, dict | list) and member:
                lines += [f"{pad}{_scalar(name)}:", *_yaml(member, depth + 1)]
            else:
                lines.append(f"{pad}{_scalar(name)}: {_scalar(member)}")
        return lines
    if isinstance(value, list) and value:
        lines = []
        for member in value:
            first, *rest = _yaml(member, depth + 1)
            lines += [f"{pad}- {first.lstrip()}", *rest]
        return lines
    return [f"{pad}{_scalar(value)}"]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"})
