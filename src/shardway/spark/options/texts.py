"""Spark passes options as texts. Each function here makes a value of one, or raises ValueError, whose message is the
rest of a sentence that begins with the option's name.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from shardway.aws.options import region_fault, url_fault
from shardway.model import OutsidePolicy

_MILLISECONDS = re.compile(r"\d{12,14}")
_POSITIONS = {
    "TRIM_HORIZON": "TRIM_HORIZON",
    "EARLIEST": "TRIM_HORIZON",
    "LATEST": "LATEST",
    "AT_TIMESTAMP": "AT_TIMESTAMP",
}


def parse_text(text: str) -> str:
    """Parse any text but an empty one."""
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def parse_url(text: str) -> str:
    """Parse the URL of an endpoint."""
    if fault := url_fault(text):
        raise ValueError(fault)
    return text.rstrip("/")


def parse_region(text: str) -> str:
    """Parse the name of an AWS region."""
    region = text.strip()
    if region_fault(region):
        raise ValueError(f"must look like eu-west-1, not {text!r}")
    return region


def parse_boolean(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise ValueError("must be true or false")


def parse_whole(text: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number, not {text!r}") from None


def parse_position(text: str) -> str:
    """Parse a starting position."""
    kind = _POSITIONS.get(text.strip().upper())
    if kind is None:
        raise ValueError(f"must be TRIM_HORIZON, LATEST or AT_TIMESTAMP, not {text!r}")
    return kind


def parse_time(text: str) -> dt.datetime:
    """Parse a time: epoch seconds, or ISO 8601 with a time zone."""
    try:
        return dt.datetime.fromtimestamp(float(text), dt.UTC)
    except (ValueError, OverflowError, OSError):
        if _MILLISECONDS.fullmatch(text.strip()):
            seconds = int(text) / 1000
            raise ValueError(
                f"must be epoch seconds, and {text!r} looks like milliseconds: give {seconds:.3f}"
            ) from None
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"must be ISO 8601 with a time zone (2026-11-21T10:00:00Z) or epoch seconds, not {text!r}"
        ) from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} needs a time zone (2026-11-21T10:00:00Z)")
    return moment.astimezone(dt.UTC)


def parse_outside(text: str) -> OutsidePolicy:
    """Parse what becomes of aggregates outside the range."""
    try:
        return OutsidePolicy(text.strip().lower())
    except ValueError:
        raise ValueError(f"must be deliver, drop or raise, not {text!r}") from None


PARSERS: Mapping[Any, Callable[[str], Any]] = MappingProxyType(
    {str: parse_text, bool: parse_boolean, int: parse_whole, dt.datetime: parse_time, OutsidePolicy: parse_outside}
)
"""The function that makes a value of each type, where an option names no other."""
