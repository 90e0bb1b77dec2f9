"""Refuse what writes, in a context that may only be read. One table says which commands write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


WITHOUT = frozenset({"context", "completion"})
"""Commands that choose no context: they mend a file of contexts that is wrong."""


def _writes_always(given: Mapping[str, Any]) -> bool:  # noqa: ARG001 - it is one of several
    return True


def _applies(given: Mapping[str, Any]) -> bool:
    return bool(given["apply"])


def _runs(given: Mapping[str, Any]) -> bool:
    return not (given["check"] or given["schema"])


def _writers_come(given: Mapping[str, Any]) -> bool:
    return bool(given["allow_writes"])


WRITES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "app apply": _writes_always,
    "app import": _applies,
    "app seek": _applies,
    "app skip": _applies,
    "console": _writers_come,
    "dead-letters replay": _writes_always,
    "kclpy": _writes_always,
    "load": _writes_always,
    "put": _writes_always,
    "run": _runs,
}
"""The commands that write to AWS or to a lease table, and with which options they do: a read-only context refuses them,
here and nowhere else. A function that ``dead-letters replay --call`` calls may write, too.
"""


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield all commands below one, with their names."""
    for name, sub in getattr(command, "commands", {}).items():
        below = (*path, name)
        if getattr(sub, "commands", None):
            yield from _leaves(sub, below)
        else:
            yield " ".join(below), sub


def guard(commands: Any, context: str) -> None:
    """Make each command that writes refuse to do so, just before it begins."""
    for name, command in _leaves(commands):
        if (writes := WRITES.get(name)) is not None:
            command.invoke = _guard_command(command.invoke, name, writes, context)


def _guard_command(begin: Any, name: str, writes: Callable[[Mapping[str, Any]], bool], context: str) -> Any:
    def invoke(command_context: Any) -> Any:
        if writes(command_context.params):
            raise OptionError(
                f"the context {context} is read-only, and shardway {name} writes: nothing was done. Choose another "
                "context (--context) for it"
            )
        return begin(command_context)

    return invoke
