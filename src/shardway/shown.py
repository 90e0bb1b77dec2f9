"""Text that came from elsewhere is made fit to be shown: without orders to a terminal, and without a URL's password."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

from shardway.core.unicode import writable_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENCODER = msgspec.json.Encoder()
_USER_IN_URL = re.compile(r"(?<=//)[^\s'\"]*@")
_USER_OF_ONE_URL = re.compile(r"(?<=//).*@", re.DOTALL)


def one_line(text: str) -> str:
    """Return the text with each character that is not printable written as Python escapes it: ``\\x1b``, ``\\n``.

    A stream, a dead letter and a service's message can hold anything. Written to a terminal as it is, an escape
    sequence would move the cursor, hide lines, or rename the window; a line feed would forge a line.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def lines(text: str) -> str:
    """Return text of several lines with such characters escaped; line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else _escape(one) for one in text)


def json_of(value: object) -> bytes:
    """Return a value as JSON. Half of a surrogate pair is replaced wherever it stands: no text from elsewhere makes a
    line fail.
    """
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(writable_value(msgspec.to_builtins(value)))


def json_line(value: object) -> str:
    """Return JSON on one line. What no terminal should get is escaped, as JSON writes it."""
    encoded = json_of(value)
    text = encoded.decode()
    # JSON has escaped what is below the space; of the other ASCII characters one cannot be printed.
    if (encoded.isascii() and b"\x7f" not in encoded) or text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def json_lines(values: Sequence[object]) -> str:
    """Return JSON of many values, each on a line of its own."""
    try:
        encoded = _ENCODER.encode_lines(values)
    except UnicodeEncodeError:
        encoded = b"".join(json_of(one) + b"\n" for one in values)
    text = encoded.decode()
    if (encoded.isascii() and b"\x7f" not in encoded) or text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def without_password(url: str) -> str:
    """Return a text with URLs without the user names and passwords in them. For one URL: `url_without_password`."""
    return _USER_IN_URL.sub("***@", url)


def url_without_password(url: str) -> str:
    """Return one URL without its user name and password, whatever stands in them: blanks and quotes, too."""
    return _USER_OF_ONE_URL.sub("***@", url, count=1)


def _escape(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
