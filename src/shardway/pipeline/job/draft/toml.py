"""Write texts as TOML does: quoted on a line, over several lines, and as comments."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


COMMENT_CHARACTERS_MAX = 118


def toml_text(text: str) -> str:
    """Return a text as TOML, in one line; ``${`` of it is no reference to the environment."""
    return f'"{_escape(text)}"'


def toml_lines(text: str) -> str:
    """Return a text as TOML with a line for each of its lines; a text that is in one line anyhow stays in one."""
    return '"""\n' + "\n".join(map(_escape, text.split("\n"))) + '\n"""'


def _escape(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "$${")
    return "".join(
        one if one.isprintable() else f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in plain
    )


def comment(lines: Iterable[str]) -> str:
    """Return sentences as lines of a comment, broken at blanks."""
    wrapped = (
        textwrap.wrap(
            line, COMMENT_CHARACTERS_MAX, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        for line in lines
    )
    return "\n".join(f"# {line}" for found in wrapped for line in found)
