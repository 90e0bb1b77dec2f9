"""Keep contexts in a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec

from shardway.cli.output import replace_file
from shardway.errors import OptionError

VALUES = ("region", "endpoint_url", "profile")
"""A context has values for these options. A command gets the values if it has all of these options."""
CONTEXTS_BYTES_MAX = 1024 * 1024
CONTEXTS_MAX = 1_000


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named place."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    read_only: bool = False
    """True: commands that write refuse to do so."""


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All contexts, as their file holds them."""

    schema: str = "shardway.contexts/1"
    current: str | None = None
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return the context of this name. Raises OptionError where there is none."""
        if name not in self.contexts:
            there = ", ".join(sorted(self.contexts)) or "none"
            raise OptionError(f"there is no context {name!r}; there are: {there}")
        return self.contexts[name]


def path_of_contexts() -> Path:
    """Return the path of the file that keeps the contexts."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "shardway" / "contexts.toml"


def contexts_kept() -> Contexts:
    """Return all contexts; none where there is no file. Raises OptionError."""
    try:
        path = path_of_contexts()
    except RuntimeError:  # this user has no home
        return Contexts()
    try:
        if not path.exists():
            return Contexts()
        if path.stat().st_size > CONTEXTS_BYTES_MAX:
            raise OptionError(f"{path} has more than {CONTEXTS_BYTES_MAX} bytes: it holds no contexts")
        return msgspec.toml.decode(path.read_bytes(), type=Contexts)
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise OptionError(f"{path} holds no contexts: {fault}") from None


def keep(contexts: Contexts) -> None:
    """Write the contexts in place of those that are kept. Raises OptionError."""
    lines = [f"schema = {json.dumps(contexts.schema)}"]
    if contexts.current is not None:
        lines.append(f"current = {json.dumps(contexts.current)}")
    for name, one in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{name}]"]
        given = ((key, value) for key, value in msgspec.structs.asdict(one).items() if value not in (None, False))
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given]
    path = path_of_contexts()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, ("\n".join(lines) + "\n").encode())
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault


def names_of_contexts() -> list[str]:
    """Return the names of all contexts, for completion; none where the file cannot be read."""
    try:
        return sorted(contexts_kept().contexts)
    except OptionError:
        return []
