"""Options of commands that were renamed: the old name is refused, and the error says the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer

from shardway.cli.app import app
from shardway.core.given import FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .conftest import Done

COMMANDS = {
    "--aggregate": ("put", "load"),
    "--bind": ("kclpy",),
    "--dynamodb-endpoint": ("local",),
    "--json": ("console", "load", "local", "put", "run"),
    "--neighbour-endpoint": ("local",),
    "--ordered": ("put", "load"),
    "--ttl": ("put", "load"),
}


@pytest.mark.parametrize(("old", "command"), [(old, command) for old in FLAGS for command in COMMANDS[old]])
def test_an_old_option_is_refused_by_its_new_name(old: str, command: str, run: Callable[..., Done]) -> None:
    done = run(command, *(["orders"] if command in ("load", "put", "run") else []), old, "1")
    assert done.status == 2
    said = " ".join(done.stderr.replace("│", " ").split())
    assert f"{old} is called {FLAGS[old]} since version 0.2" in said


def test_an_unknown_option_is_refused_as_before(run: Callable[..., Done]) -> None:
    done = run("put", "orders", "--nothing-like-it")
    assert (done.status, "--nothing-like-it" in done.stderr) == (2, True)


def test_no_command_takes_an_old_option_and_each_new_one_is_taken() -> None:
    taken = set(_options(typer.main.get_command(app)))
    assert not taken & set(FLAGS)
    assert {new.split()[0] for new in FLAGS.values()} <= taken


def _options(command: object) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        yield from parameter.opts
    for inner in getattr(command, "commands", {}).values():
        yield from _options(inner)
