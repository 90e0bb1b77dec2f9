"""Fill in a job file's values from the environment, ``${NAME}`` and ``${NAME:-default}``, and hide what must never be
shown of them.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
import shlex
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from shardway.pipeline.job.file.faults import Fault, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.pipeline.job.file.lines import KeyPath


_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)(:-([^}]*))?\}|\$\{")
_SECRET_NAME = re.compile(r"secret|passw|pwd|token|credential|access_?key|api_?key|private|auth", re.IGNORECASE)
_MASK = "***"
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
"""The pattern of a private key as text, wherever it comes from."""
_LINE_SHORTEST = 8
"""The least length of a line that is hidden for itself, where a secret has several."""
_SHORTEST = 3
"""The least length of a text that is hidden: a shorter secret would blot out half of every message, and hide nothing.
"""


class Secrets:
    """Keeps texts that stand for something secret, and takes them out of whatever is to be shown.

    Secret is: what the environment gave for a value in ``options`` or ``spark``; what it gave for a name that looks
    like a secret's, wherever it stands; and the value of an option or setting with such a name.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self.options: set[str] = set()
        """Names of the options that hold a secret, for Spark's own redaction of plans."""

    def add(self, text: str, path: KeyPath) -> None:
        """Never show this text, in none of the forms in which messages quote it."""
        self._texts |= {form for form in _forms_of(text) if len(form) >= _SHORTEST}
        if path and isinstance(path[-1], str):
            self.options.add(path[-1])

    def hide(self, text: str) -> str:
        """Return the text with stars in place of every secret."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, _MASK)
        return _PEM.sub(_MASK, text)

    def __repr__(self) -> str:
        return f"Secrets({len(self._texts)})"


def _forms_of(text: str) -> set[str]:
    """Return a secret as messages may have it: stripped, a line of it, percent-encoded, in Base64, or as Python, JSON
    and a shell write it between quotes.
    """
    lines = [line.strip() for line in text.splitlines()]
    parts = {text, text.strip(), *(line for line in lines if len(line) >= _LINE_SHORTEST)}
    forms = set(parts)
    for part in parts:
        encoded, data = quote(part, safe=""), part.encode("utf-8", "surrogateescape")
        forms |= {quote(part), encoded, quote_plus(part), encoded.replace("%", "%25"), _small_hex(encoded)}
        forms |= {
            repr(part)[1:-1],
            repr(data)[2:-1],
            json.dumps(part)[1:-1],
            json.dumps(part, ensure_ascii=False)[1:-1],
        }
        forms |= {shlex.quote(part).strip("'"), part.replace("'", "\\'"), part.replace("'", "''")}
        forms.add(base64.b64encode(data).decode())
    return forms


def _small_hex(encoded: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def looks_secret(name: str) -> bool:
    """True for names like ``password`` or ``AWS_SECRET_ACCESS_KEY``."""
    return _SECRET_NAME.search(name) is not None


class References:
    """Replaces the references of a parsed file by values of the environment. ``$${`` stands for ``${`` itself."""

    def __init__(self, environment: Mapping[str, str], secrets: Secrets) -> None:
        self._environment = environment
        self._secrets = secrets
        self.faults: list[Fault] = []
        """All that was found wrong until now."""

    def filled_in(self, tree: Any, path: KeyPath = ()) -> Any:
        """Return the parsed file with its references replaced."""
        if isinstance(tree, dict):
            return {name: self.filled_in(value, (*path, name)) for name, value in tree.items()}
        if isinstance(tree, list):
            return [self.filled_in(value, (*path, at)) for at, value in enumerate(tree)]
        if isinstance(tree, dt.date | dt.time):
            return tree.isoformat()
        hidden_place = "options" in path[:-1] or "stream" in path[:-1] or path[:1] == ("spark",)
        if isinstance(tree, str) and "${" in tree:
            tree = _REFERENCE.sub(lambda found: self._value_of(found, path, hidden_place=hidden_place), tree)
        if hidden_place and isinstance(tree, str) and looks_secret(str(path[-1])):
            self._secrets.add(tree, path)
        return tree

    def _value_of(self, found: re.Match[str], path: KeyPath, *, hidden_place: bool) -> str:
        if found[0] == "$${":
            return "${"
        name, has_default, default = found[1], found[2], found[3]
        if name is None:
            what = "${ is followed by no name and }: write ${NAME} or ${NAME:-default}, or $${"
            self.faults.append(Fault(path, what))
            return ""
        value = self._environment.get(name)
        if value is None or (value == "" and has_default):
            if not has_default:
                self.faults.append(Fault(path, f"the environment has no {name}{_near_name(name, self._environment)}"))
            return default or ""
        if hidden_place or looks_secret(name):
            self._secrets.add(value, path)
        return value


def _near_name(name: str, environment: Mapping[str, str]) -> str:
    hint = nearest(name, list(environment))
    return hint if "did you mean" in hint else ""
