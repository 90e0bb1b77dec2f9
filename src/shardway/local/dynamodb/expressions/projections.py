"""The parts of an item that a reader wants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from shardway.local.dynamodb.attribute_values import Item, Value
from shardway.local.dynamodb.expressions.paths import Names, Path, Step, path_fault
from shardway.local.dynamodb.expressions.tokens import ExpressionError, Tokens

PARSED_MAX = 256


class Projection(NamedTuple):
    """The paths, and the ``#names`` in them."""

    paths: tuple[Path, ...]
    names: frozenset[str]


@lru_cache(maxsize=PARSED_MAX)
def parse_projection(text: str) -> Projection:
    """Return the paths of a projection. Raises ExpressionError."""
    tokens = Tokens(text)
    paths = [tokens.path()]
    while tokens.take_if(","):
        paths.append(tokens.path())
    tokens.expect_end()
    return Projection(tuple(paths), frozenset(place for path in paths for place in path.places()))


def checked_paths(paths: Sequence[Path], names: Names) -> list[tuple[Step, ...]]:
    """Return the paths with the names that are meant. Raises ExpressionError when two lie in each other."""
    resolved = [path.resolved(names) for path in paths]
    fault = path_fault(resolved)
    if fault is not None:
        raise ExpressionError(fault)
    return resolved


def projected(item: Item, paths: Sequence[tuple[Step, ...]]) -> Item:
    """Return the parts of an item that are at these paths, each in the maps and lists around it."""
    branches: dict[Step, list[tuple[Step, ...]]] = {}
    for steps in paths:
        branches.setdefault(steps[0], []).append(steps[1:])
    found: Item = {}
    for name, rest in branches.items():
        value = item.get(str(name))
        part = None if value is None else _part(value, rest)
        if part is not None:
            found[str(name)] = part
    return found


def _part(value: Value, paths: list[tuple[Step, ...]]) -> Value | None:
    if not all(paths):
        return value
    branches: dict[Step, list[tuple[Step, ...]]] = {}
    for steps in paths:
        branches.setdefault(steps[0], []).append(steps[1:])
    ((kind, content),) = value.items()
    if kind == "M":
        members = {
            name: part
            for name, rest in branches.items()
            if name in content and (part := _part(content[name], rest)) is not None
        }
        return {"M": members} if members else None
    if kind == "L":
        elements = [
            part
            for index in sorted(step for step in branches if isinstance(step, int))
            if index < len(content) and (part := _part(content[index], branches[index])) is not None
        ]
        return {"L": elements} if elements else None
    return None
