"""The columns of a list of records: the fixed ones, and fields of JSON that a visitor has chosen.

A field is written as a path: ``.customer.tier``, ``.items[0].sku``, and ``["a name"]`` for a name that is no word, as
JSON writes that name. So every name that data may have, however hostile, has one way to be written, and a page and an
address carry it as text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


FIXED = {
    "arrived": "Arrived", "shard": "Shard", "position": "Position", "key": "Key", "kind": "Kind", "bytes": "Bytes",
    "data": "Data",
}  # fmt: skip
"""The columns that every record has, with their headings."""
DEFAULT = ("arrived", "shard", "key", "kind", "bytes", "data")
COLUMNS_MAX = 16
PATH_CHARACTERS_MAX = 256
FIELDS_MAX = 40
"""The fields that a page offers as columns."""
FIELD_DEPTH_MAX = 3
CELL_CHARACTERS_MAX = 200
_STEP = re.compile(r'\.([A-Za-z_][\w-]*)|\[(\d{1,6})\]|\[("(?:[^"\\]|\\.)*")\]')
_WORD = re.compile(r"[A-Za-z_][\w-]*")


class Column(NamedTuple):
    """A column of the list."""

    name: str
    """As the address has it: the name of a fixed column, or a path."""
    heading: str
    steps: tuple[str | int, ...] = ()
    """The path of a field; empty for a fixed column."""


class Columns:
    """The columns that a page shows. Raises OptionError for a path that cannot be read."""

    def __init__(self, names: Sequence[str]) -> None:
        chosen = [one for text in names for one in _split(text)]
        found = {name: _column(name) for name in chosen or DEFAULT}
        self.is_default = tuple(found) == DEFAULT
        self.shown = [*found.values()]
        if len(self.shown) > COLUMNS_MAX:
            raise OptionError(f"a page has at most {COLUMNS_MAX} columns, and {len(self.shown)} were chosen")

    @property
    def names(self) -> list[str]:
        """The names as the address has them; empty for the default."""
        return [] if self.is_default else [one.name for one in self.shown]

    def has(self, name: str) -> bool:
        """Return whether a column is shown."""
        return any(one.name == name for one in self.shown)


def _split(text: str) -> list[str]:
    """Return the names in a text that a visitor wrote: apart by commas or blanks, which a quoted name may hold."""
    return re.findall(r'(?:\["(?:[^"\\]|\\.)*"\]|[^\s,])+', text)


def _column(name: str) -> Column:
    if name in FIXED:
        return Column(name, FIXED[name])
    steps = steps_of(name)
    return Column(path_of(steps), path_of(steps), steps)


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return the steps of a path. Raises OptionError."""
    steps: list[str | int] = []
    at = 0
    text = path if path[:1] in (".", "[") else f".{path}"
    while at < len(text) and len(text) <= PATH_CHARACTERS_MAX:
        match = _STEP.match(text, at)
        if match is None:
            break
        word, number, quoted = match.groups()
        try:
            steps.append(word if word is not None else int(number) if number is not None else json.loads(quoted))
        except ValueError:
            break
        at = match.end()
    if at != len(text) or not steps:
        raise OptionError(
            f"{path[:80]!r} is no column: choose of {', '.join(FIXED)}, or write a path as in .customer.tier, "
            '.items[0].sku or ["a name"]'
        )
    return tuple(steps)


def path_of(steps: Iterable[str | int]) -> str:
    """Return the one way in which a path is written. It is ASCII."""
    return "".join(
        f"[{one}]" if isinstance(one, int) else f".{one}" if _WORD.fullmatch(one) and one.isascii()
        else f"[{json.dumps(one)}]"
        for one in steps
    )  # fmt: skip


def cell_of(value: Any, steps: Sequence[str | int]) -> str | None:
    """Return the text of a field; None: the record has no such field."""
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            if step not in value:
                return None
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    cut = text[:CELL_CHARACTERS_MAX]
    return whole_characters(cut + "…" if len(text) > len(cut) else cut)


def fields_of(values: Iterable[Any]) -> list[str]:
    """Return the paths of the fields that records have, the most frequent first, as columns to choose from."""
    counts: dict[str, int] = {}
    for value in values:
        for path in _paths(value, (), 1):
            if path in counts or len(counts) < FIELDS_MAX * 4:
                counts[path] = counts.get(path, 0) + 1
    found = sorted(counts, key=lambda path: -counts[path])
    return found[:FIELDS_MAX]


def _paths(value: Any, above: tuple[str | int, ...], depth: int) -> Iterable[str]:
    if not isinstance(value, dict):
        return
    for name, inner in list(value.items())[:FIELDS_MAX]:
        steps = (*above, str(name))
        if isinstance(inner, dict) and inner and depth < FIELD_DEPTH_MAX:
            yield from _paths(inner, steps, depth + 1)
            continue
        path = path_of(steps)
        if len(path) <= PATH_CHARACTERS_MAX:
            yield path


def whole_characters(text: str) -> str:
    """Return the text without halves of characters beyond 16 bits, which JSON may hold and no page can."""
    return text.encode("utf-8", "replace").decode()
