"""Values from the environment, ``${NAME}`` and ``${NAME:-default}``, and what of them must never be shown."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from penstock.pipeline.job.faults import Fault, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.pipeline.job.lines import Path

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_]\w*)(:-([^}]*))?\}|\$\{")
_SECRET_NAME = re.compile(r"secret|passw|pwd|token|credential|access_?key|api_?key|private|auth", re.IGNORECASE)
_SHOWN = "***"
_SHORTEST = 3
"""A shorter secret would blot out half of every message, and hide nothing."""


class Secrets:
    """Texts that stand for something secret; takes them out of whatever is to be shown.

    Secret is: what the environment gave for a value in ``options`` or ``spark``; what it gave for a name that looks
    like a secret's, wherever it stands; and the value of an option or setting with such a name.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self.options: set[str] = set()
        """Names of the options that hold one, for Spark's own redaction of plans."""

    def add(self, text: str, path: Path) -> None:
        """Never show this text."""
        if len(text) >= _SHORTEST:
            self._texts.add(text)
        if path and isinstance(path[-1], str):
            self.options.add(path[-1])

    def hide(self, text: str) -> str:
        """The text with stars in place of every secret."""
        for secret in sorted(self._texts, key=len, reverse=True):
            text = text.replace(secret, _SHOWN)
        return text

    def __repr__(self) -> str:
        return f"Secrets({len(self._texts)})"


def looks_secret(name: str) -> bool:
    """True for names like ``password`` or ``AWS_SECRET_ACCESS_KEY``."""
    return _SECRET_NAME.search(name) is not None


def filled_in(tree: Any, environment: Mapping[str, str], secrets: Secrets, faults: list[Fault], path: Path = ()) -> Any:
    """The parsed file with its references replaced. ``$${`` stands for ``${`` itself."""
    if isinstance(tree, dict):
        return {name: filled_in(value, environment, secrets, faults, (*path, name)) for name, value in tree.items()}
    if isinstance(tree, list):
        return [filled_in(value, environment, secrets, faults, (*path, at)) for at, value in enumerate(tree)]
    if isinstance(tree, dt.date | dt.time):
        return tree.isoformat()
    hidden_place = "options" in path[:-1] or "stream" in path[:-1] or path[:1] == ("spark",)
    if isinstance(tree, str) and "${" in tree:
        tree = _replaced(tree, environment, secrets, faults, path, hidden_place=hidden_place)
    if hidden_place and isinstance(tree, str) and looks_secret(str(path[-1])):
        secrets.add(tree, path)
    return tree


def _replaced(
    text: str,
    environment: Mapping[str, str],
    secrets: Secrets,
    faults: list[Fault],
    path: Path,
    *,
    hidden_place: bool,
) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        name, has_default, default = found[1], found[2], found[3]
        if name is None:
            faults.append(Fault(path, "${ is followed by no name and }: write ${NAME} or ${NAME:-default}, or $${"))
            return ""
        value = environment.get(name)
        if value is None or (value == "" and has_default):
            if not has_default:
                faults.append(Fault(path, f"the environment has no {name}{_near(name, environment)}"))
            return default or ""
        if hidden_place or looks_secret(name):
            secrets.add(value, path)
        return value

    return _REFERENCE.sub(replace, text)


def _near(name: str, environment: Mapping[str, str]) -> str:
    hint = nearest(name, list(environment))
    return hint if "did you mean" in hint else ""
