"""Walks through all worlds that can be reached, nearest first, and says how one came to a bad one."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class BrokenRuleError(AssertionError):
    """A world that must not be. The steps that lead to it are in the message."""


class Counting(Protocol):
    """How far a search came."""

    states: int
    moves: int


def explore(
    counts: Counting, first: Any, steps: Callable[[Any], Iterable[tuple[str, Any]]], check: Callable[[Any], None]
) -> None:
    """``steps(world)`` are what may happen next, with their names; ``check`` raises BrokenRuleError. Worlds are
    hashable. Raises BrokenRuleError for the first world that breaks a rule.
    """
    came_from: dict[Any, tuple[Any, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        counts.states += 1
        try:
            for step, after in steps(world):
                counts.moves += 1
                if after not in came_from:
                    check(after)
                    came_from[after] = (world, step)
                    queue.append(after)
        except BrokenRuleError as broken:
            raise BrokenRuleError(f"{broken}; after {_path(came_from, world)}") from None


def _path(came_from: dict[Any, tuple[Any, str] | None], world: Any) -> str:
    path: list[str] = []
    while (found := came_from[world]) is not None:
        world, step = found
        path.append(step)
    return ", ".join(reversed(path))
