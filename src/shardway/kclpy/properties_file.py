"""Read Java's properties files: lines of names and values, with escapes, comments, and lines that go on."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SPACE = " \t\f"
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse(text: str) -> dict[str, str]:
    """Return names and their values, as ``java.util.Properties`` reads them; of a name that stands twice, the last
    value.
    """
    found: dict[str, str] = {}
    for line in _whole_lines(text):
        name_end = _end_of_name(line)
        value = line[name_end:].lstrip(_SPACE)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_SPACE)
        found[_unescape(line[:name_end])] = _unescape(value)
    return found


def _whole_lines(text: str) -> list[str]:
    """Return lines without comments and empty ones; a line that ends in a backslash goes on with the next."""
    lines: list[str] = []
    goes_on = False
    for line in re.split(r"\r\n|\r|\n", text):
        start = line.lstrip(_SPACE)
        if goes_on:
            lines[-1] += start
        elif not start or start[0] in "#!":
            continue
        else:
            lines.append(start)
        backslashes = len(lines[-1]) - len(lines[-1].rstrip("\\"))
        goes_on = backslashes % 2 == 1
        if goes_on:
            lines[-1] = lines[-1][:-1]
    return lines


def _end_of_name(line: str) -> int:
    escaped = False
    for index, character in enumerate(line):
        if not escaped and character in "=: \t\f":
            return index
        escaped = character == "\\" and not escaped
    return len(line)


def _unescape(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CHARACTERS.get(code, code)

    return _ESCAPE.sub(one, text)
