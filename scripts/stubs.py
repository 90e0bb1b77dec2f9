"""Writes what type checkers read of the public modules: ``python -m scripts.stubs``.

A public module lists its names once, with the module of each (`shardway.public`), and loads a name when it is first
used. The stub beside it imports all of them at once, which only type checkers do. A test compares the two.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

LAZY = (
    "shardway",
    "shardway.aggregates",
    "shardway.checkpoints",
    "shardway.dead_letters",
    "shardway.inspect",
    "shardway.leases",
    "shardway.local",
    "shardway.options",
    "shardway.pipeline",
    "shardway.pipeline.job",
    "shardway.statistics",
    "shardway.telemetry",
    "shardway.testing",
)
"""The modules that load their public names when these are used."""


def stub_of(module: str) -> tuple[Path, str]:
    """Return the path and the text of the stub of a public module."""
    found: Any = importlib.import_module(module)
    names: dict[str, list[str]] = {}
    homes = vars(found)["_HOMES"]
    for name, home in homes.items():
        names.setdefault(home, []).append(name)
    own = [name for name in found.__all__ if name not in homes]
    lines = [
        f"# Written by scripts/stubs.py from the list in {Path(found.__file__).name}.",
        "",
        *(f"from {home} import {name} as {name}" for home in sorted(names) for name in sorted(names[home], key=_place)),
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in sorted(found.__all__, key=_kind)),
        "]",
        *(["", *(f"{name}: {type(getattr(found, name)).__name__}" for name in own)] if own else []),
    ]
    return Path(found.__file__).with_suffix(".pyi"), "\n".join(lines) + "\n"


def _place(name: str) -> tuple[bool, bool, str]:
    """Return the place of a name among those of one module, as ruff sorts imports."""
    return (*_kind(name)[:2], name.lower() if name[0].isupper() else name)


def _kind(name: str) -> tuple[bool, bool, str]:
    """Return the place of a name in a list, as ruff sorts it: constants, classes, functions."""
    return not name.isupper(), not name[0].isupper(), name


if __name__ == "__main__":
    for one in LAZY:
        path, text = stub_of(one)
        path.write_text(text, encoding="utf-8")
