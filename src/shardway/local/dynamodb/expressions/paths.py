"""Places in an item: an attribute, a member of a map, an element of a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from shardway.local.dynamodb.attribute_values import Item, Value

Step: TypeAlias = str | int
"""A name, a ``#name`` that stands in for a name, or the index of a list's element."""
Names: TypeAlias = Mapping[str, str]
"""The names behind the ``#names``."""


class Path:
    """A path as it is written. ``literal``: its first step is a name, whatever it looks like."""

    __slots__ = ("_literal", "_single", "steps")

    def __init__(self, steps: tuple[Step, ...], *, literal: bool = False) -> None:
        self.steps = steps
        self._literal = literal
        self._single = steps[0] if len(steps) == 1 and isinstance(steps[0], str) else None

    def places(self) -> list[str]:
        """Return the ``#names`` in it."""
        if self._literal:
            return []
        return [step for step in self.steps if isinstance(step, str) and step.startswith("#")]

    def resolved(self, names: Names) -> tuple[Step, ...]:
        """Return the steps with the names that are meant."""
        if self._literal:
            return self.steps
        return tuple(names.get(step, step) if isinstance(step, str) else step for step in self.steps)

    def root(self, names: Names) -> str:
        """Return the name of the attribute that the path leads into."""
        first = str(self.steps[0])
        return first if self._literal else names.get(first, first)

    def find(self, item: Item, names: Names) -> Value | None:
        """Return what is there; None: nothing."""
        single = self._single
        if single is not None:
            return item.get(single if self._literal else names.get(single, single))
        return found_at(item, self.resolved(names))


def found_at(item: Item, steps: tuple[Step, ...]) -> Value | None:
    """Return what is at these steps in an item; None: nothing."""
    found = item.get(str(steps[0]))
    for step in steps[1:]:
        if found is None:
            return None
        if isinstance(step, str):
            members = found.get("M")
            found = None if members is None else members.get(step)
        else:
            elements = found.get("L")
            found = elements[step] if elements is not None and step < len(elements) else None
    return found


def shown(steps: tuple[Step, ...]) -> str:
    """Return a path as errors write it: ``[a, [0]]``."""
    return "[" + ", ".join(f"[{step}]" if isinstance(step, int) else step for step in steps) + "]"


def path_fault(paths: list[tuple[Step, ...]]) -> str | None:
    """Return what is wrong when two of the paths are the same, or one leads into the other; else None."""
    if len({steps[0] for steps in paths}) == len(paths):
        return None
    tree: dict[Step, object] = {}
    for steps in paths:
        fault = _plant(tree, steps)
        if fault is not None:
            what, other = fault
            return (
                f"Two document paths {what} with each other; must remove or rewrite one of these paths; "
                f"path one: {shown(other)}, path two: {shown(steps)}"
            )
    return None


def _plant(tree: dict[Step, object], steps: tuple[Step, ...]) -> tuple[str, tuple[Step, ...]] | None:
    """Add a path to a tree, whose leaves are whole paths. Return what stood in the way, and the path that it is."""
    branch: dict[Step, object] = tree
    for at, step in enumerate(steps):
        other = next(iter(branch), step)
        if isinstance(other, int) != isinstance(step, int):
            return "conflict", _leaf(branch)
        below = branch.get(step)
        last = at == len(steps) - 1
        if isinstance(below, tuple) or (last and below is not None):
            return "overlap", below if isinstance(below, tuple) else _leaf(branch)
        if last:
            branch[step] = steps
        elif below is None:
            fresh: dict[Step, object] = {}
            branch[step] = fresh
            branch = fresh
        else:
            assert isinstance(below, dict)
            branch = below
    return None


def _leaf(branch: dict[Step, object]) -> tuple[Step, ...]:
    found: object = branch
    while isinstance(found, dict):
        found = next(iter(found.values()))
    assert isinstance(found, tuple)
    return found
