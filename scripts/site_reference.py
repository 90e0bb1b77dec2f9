"""The pages of the site about the public Python modules: mkdocstrings describes their names by the docstrings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

MODULES = (
    "shardway",
    "shardway.options",
    "shardway.errors",
    "shardway.events",
    "shardway.aws_lambda",
    "shardway.aggregates",
    "shardway.leases",
    "shardway.checkpoints",
    "shardway.dead_letters",
    "shardway.deserializers",
    "shardway.fences",
    "shardway.statistics",
    "shardway.telemetry",
    "shardway.testing",
    "shardway.local",
    "shardway.inspect",
    "shardway.pipeline",
    "shardway.pipeline.job",
    "shardway.ports",
)
"""The public modules, in the order in which a program meets them."""


def module_page(module: str) -> str:
    """Return the page of a module: what it says of itself, and each of its public names."""
    found: Any = importlib.import_module(module)
    about = inspect.cleandoc(found.__doc__ or "")
    parts = [f"# {module}", about]
    for name in sorted(_names(found), key=lambda name: (not name[0].isupper(), name.lower())):
        home = _home(getattr(found, name), name)
        if home is not None:
            parts.append(f"::: {home}\n    options:\n      heading: {name}\n      toc_label: {name}")
    return "\n\n".join(parts) + "\n"


def _names(module: Any) -> list[str]:
    """Return the names that a module lists as public, or else those that are written in it or below it."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    path = module.__name__
    own = {name for name, value in vars(module).items() if str(getattr(value, "__module__", "")).startswith(path)}
    return [name for name in own if not name.startswith("_")]


def _home(value: object, name: str) -> str | None:
    """Return the path of a class or a function where it is written; None for a value, which has no docstring."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return None
    return f"{value.__module__}.{getattr(value, '__qualname__', name)}"
