"""Show what a subcommand has to say: as text or a table for people; as JSON, lines of JSON or YAML for programs.

Data goes to standard output, everything else to standard error. What is shown may come from a stream, a dead letter or
a service: no escape sequence in it reaches the terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shardway.shown import json_line, lines


class ResultShape(StrEnum):
    """Shapes of one result."""

    text = "text"
    json = "json"


class Lines(StrEnum):
    """Shapes of one thing after another."""

    text = "text"
    jsonl = "jsonl"


# A long metavar makes the help cut the names of other options short.
OutputWhole = Annotated[ResultShape, typer.Option("--output", "-o", help="text; or json, one object.", metavar="SHAPE")]
OutputLines = Annotated[
    Lines,
    typer.Option("--output", "-o", help="text; or jsonl, a line of JSON for each thing that is told.", metavar="SHAPE"),
]


def show(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Write ``value`` as a line of JSON, or ``text``, to standard output at once."""
    print(json_line(value) if as_json else lines(text), flush=True)


def say(text: str) -> None:
    """Write a line on how far something is to standard error."""
    print(lines(text), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Write a remark to standard error."""
    print(f"shardway: {lines(text)}", file=sys.stderr, flush=True)


def of_bytes(count: float) -> str:
    """Return a number of bytes as a text: ``12 B``, ``3.4 KiB``, ``5.6 MiB``, ..."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} GiB"


def of_seconds(seconds: float | None) -> str:
    """Return seconds as a text: ``0.8 ms``, ``12 ms``, ``3.4 s``; ``-`` for None."""
    if seconds is None:
        return "-"
    if seconds < 0.010:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole: a run that is broken off leaves the one before. Raises OSError."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
