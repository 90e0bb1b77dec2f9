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
    came_from: dict[Any, Any] = {first: None}
    queue = deque([first])
    while queue:
        world = queue.popleft()
        counts.states += 1
        step = ""
        try:
            for name, after in steps(world):
                step = name
                counts.moves += 1
                if after not in came_from:
                    check(after)
                    came_from[after] = world
                    queue.append(after)
        except BrokenRuleError as broken:
            path = [_step(steps, *pair) for pair in _pairs(came_from, world)]
            raise BrokenRuleError(f"{broken}; after {', '.join(path)}; at or behind: {step}") from None


def _pairs(came_from: dict[Any, Any], world: Any) -> list[tuple[Any, Any]]:
    """Each world on the way, and the next one."""
    pairs = []
    while (before := came_from[world]) is not None:
        pairs.append((before, world))
        world = before
    return pairs[::-1]


def _step(steps: Callable[[Any], Iterable[tuple[str, Any]]], before: Any, after: Any) -> str:
    """The step between two worlds is looked for again: a search that kept all of them would need twice the memory."""
    return next(step for step, to in steps(before) if to == after)
