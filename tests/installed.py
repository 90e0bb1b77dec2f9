"""Says what an installation of Shardway brings, for tests of what runs with it and with nothing else."""

from __future__ import annotations

import importlib.metadata as metadata
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator


def brought_by(*extras: str) -> set[str]:
    """Return the names of all packages that ``shardway`` with these extras leads to, as they are installed here."""
    known: set[tuple[str, str]] = set()
    waiting = [("shardway", set(extras))]
    while waiting:
        name, wanted = waiting.pop()
        for extra in {"", *wanted}:
            if (name, extra) not in known:
                known.add((name, extra))
                waiting += _wanted_by(name, extra)
    return {name for name, _ in known}


def modules_outside(brought: set[str]) -> list[str]:
    """Return the top-level modules that are installed here and belong to none of these packages, sorted."""
    return sorted(
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & brought
    )


def _wanted_by(name: str, extra: str) -> Iterator[tuple[str, set[str]]]:
    for text in metadata.requires(name) or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            yield canonicalize_name(one.name), set(one.extras)
