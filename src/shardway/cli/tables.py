"""Tables of text that fit the terminal. Times and distances always stay whole; numbers and names are cut where they
must be, and ``-o wide`` shows all of them.

A table that goes to a file or a pipe is as wide as it must be: programs read it.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import unicodedata
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CELL_CHARACTERS_MAX = 200
"""A longer cell is cut in a table; the other shapes show it whole."""
WIDTH_MIN = 40
"""A terminal that is narrower gets a table for this width."""
GAP = "  "
DIGITS_SHOWN = 10
"""The last digits of a sequence number, which are those that differ between records of one shard."""
NAME_CHARACTERS_MIN = 12
"""A worker's name is cut to this, in its middle: its beginning says the host, its end the process."""
TEXT_CHARACTERS_MIN = 8
REASON_CHARACTERS_MIN = 30
"""A reason that has less room in its row stands below it."""
NAMES = frozenset({"OWNER", "WORKER"})
WHOLE = frozenset({"VERDICT", "BEHIND", "TREND", "LOSES DATA IN", "WAS", "NEXT RECORD", "DISTANCE", "ARRIVED", "SEEN"})
"""Columns that are never cut."""
REASONS = frozenset({"WHY"})
"""Columns that are never cut, and are broken into lines."""

_SHARD = re.compile(r"shardId-0*(?=\d{3})")
_NUMBER = re.compile(r"\d{21,}")
is_wide: ContextVar[bool] = ContextVar("is_wide", default=False)
"""True while a command shows its tables whole, whatever the terminal's width is (``-o wide``)."""


class Line(NamedTuple):
    """A line of a table."""

    text: str
    row: int | None = None
    """The row that the line belongs to. None: the head."""
    tone: str = ""
    """The sequence that gives the line its colour on a terminal; empty: it has none."""


def terminal_columns() -> int | None:
    """Return the width that tables are to fit. None: standard output is no terminal, or all is to be shown."""
    if is_wide.get() or not sys.stdout.isatty():
        return None
    try:
        return max(WIDTH_MIN, os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return None


def table_of(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return columns of text that fit the terminal. Numbers stand to the right."""
    return "\n".join(one.text for one in table_lines(head, rows, terminal_columns()))


def table_lines(head: Sequence[str], rows: Iterable[Sequence[Any]], columns: int | None) -> list[Line]:
    """Return the lines of a table. ``columns``: the width that it is to fit; None: it is as wide as it must be."""
    cells = [[cell(value) for value in row] for row in rows]
    right = [all(_is_number(row[place]) for row in cells) and bool(cells) for place in range(len(head))]
    reasons = [""] * len(cells)
    if columns is not None and _width(head, cells) > columns:
        head, cells, reasons = _fit(head, cells, columns)
    widths = _widths(head, cells)

    def line(row: Sequence[str]) -> str:
        aligned = (
            " " * (width - display_width(one)) + one if is_right else one + " " * (width - display_width(one))
            for one, width, is_right in zip(row, widths, right, strict=False)
        )
        return GAP.join(aligned).rstrip()

    lines = [Line(line(head))]
    for number, (row, why) in enumerate(zip(cells, reasons, strict=True)):
        lines.append(Line(line(row), number))
        lines += [Line(f"{GAP}{one}", number) for one in _wrap(why, (columns or 0) - len(GAP))]
    return lines


def cell(value: Any) -> str:
    """Return a value as a cell shows it: one line, that obeys no escape sequence."""
    text = "-" if value is None else one_line(str(value))
    return text if len(text) <= CELL_CHARACTERS_MAX else text[: CELL_CHARACTERS_MAX - 3] + "..."


def display_width(text: str) -> int:
    """Return the columns that a text takes: some characters take two, and some none."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def _columns_of(one: str) -> int:
    return 0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """Return as much of a line as fits into ``columns``."""
    width = 0
    for place, one in enumerate(text):
        width += _columns_of(one)
        if width > columns:
            return text[:place]
    return text


def _fit(head: Sequence[str], cells: list[list[str]], columns: int) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the head and the cells as they fit, and what stands below each row. What loses least is cut first."""
    head, cells = [*head], [[_NUMBER.sub(_last_digits, _SHARD.sub("...", one)) for one in row] for row in cells]
    reasons = [""] * len(cells)
    if head[-1] in REASONS and _width(head, cells) > columns:
        room = columns - _width(head[:-1], [row[:-1] for row in cells]) - len(GAP)
        if room < REASON_CHARACTERS_MIN or max(display_width(row[-1]) for row in cells) > room:
            reasons = [row[-1] for row in cells]
            head, cells = head[:-1], [row[:-1] for row in cells]
    for least, named in ((NAME_CHARACTERS_MIN, NAMES), (TEXT_CHARACTERS_MIN, None)):
        for place, name in sorted(enumerate(head), key=lambda one: -_widths(head, cells)[one[0]]):
            over = _width(head, cells) - columns
            if over <= 0:
                break
            if name in WHOLE or (named is not None and name not in named):
                continue
            room = max(least, len(name), _widths(head, cells)[place] - over)
            for row in cells:
                row[place] = _shorten(row[place], room)
    return head, cells, reasons


def _wrap(text: str, room: int) -> list[str]:
    if not text:
        return []
    if text.isascii():
        return textwrap.wrap(text, room)
    found = []
    while text := text.strip():
        found.append(cut(text, room))
        text = text[len(found[-1]) :]
    return found


def _shorten(text: str, room: int) -> str:
    if display_width(text) <= room:
        return text
    end = (room - 3) // 2
    # The end is counted in columns, too: a wide character is one letter and two of them.
    return cut(text, room - 3 - end) + "..." + cut(text[::-1], end)[::-1]


def _last_digits(found: re.Match[str]) -> str:
    return f"...{found[0][-DIGITS_SHOWN:]}"


def _widths(head: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(display_width(row[place]) for row in [head, *cells]) for place in range(len(head))]


def _width(head: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(head, cells)) + len(GAP) * (len(head) - 1)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "").replace("%", "").strip().isdigit()
