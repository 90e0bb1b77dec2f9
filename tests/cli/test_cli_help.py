"""The help of every command names what a user writes, and no type of Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import typer

from shardway.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Done

TYPES = re.compile(r"<[^>|]*>|\b(?:list|tuple|dict|set)\[|\b(?:str|int|float|bool|path|datetime|NoneType) range\b")
"""What typer writes for a type. ``<a|b>`` is a list of what may be chosen."""


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


COMMANDS = tuple(_commands(typer.main.get_command(app)))


def test_the_walk_meets_commands_on_each_level() -> None:
    assert {(), ("put",), ("records",), ("records", "tail"), ("app", "seek"), ("check", "leases")} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_help_shows_a_type_of_python(
    path: tuple[str, ...], run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = run(*path, "--help")
    assert (done.status, done.stderr) == (0, "")
    said = done.stdout
    assert "--help" in said
    assert not TYPES.findall(said), said


def test_an_option_and_an_argument_are_named_by_words(run: Callable[..., Done]) -> None:
    said = run("doctor", "--help").stdout
    assert re.search(r"--history +FILE ", said)
    assert re.search(r"--lease-table +TABLE ", said)
    assert re.search(r"--collect +Write ", said)
    assert "doctor [OPTIONS] [APPLICATION]" in said
    assert "top [OPTIONS] {APPLICATION}..." in run("top", "--help").stdout
