"""How a subcommand shows what it has to say: text for people, or a line of JSON for programs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec


def show(value: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Write ``value`` as a line of JSON, or ``text``, to standard output at once."""
    print(msgspec.json.encode(value).decode() if as_json else text, flush=True)


def warn(text: str) -> None:
    """Write a remark to standard error."""
    print(f"penstock: {text}", file=sys.stderr, flush=True)
