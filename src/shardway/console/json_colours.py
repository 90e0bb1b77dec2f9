"""Mark JSON for the style sheet of a page."""

from __future__ import annotations

import re

from markupsafe import Markup

_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|'
    r"(?P<word>true|false|null|NaN|-?Infinity)"
)


def coloured(text: str) -> Markup:
    """Return JSON with its names, texts and numbers marked for the style sheet."""
    parts, at = [], 0
    for match in _TOKEN.finditer(text):
        parts.append(Markup("{}").format(text[at : match.start()]))
        parts.append(Markup('<span class="j-{}">{}</span>').format(match.lastgroup, match[0]))
        at = match.end()
    parts.append(Markup("{}").format(text[at:]))
    return Markup("").join(parts)
