"""Give a shell what it needs to complete commands."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that complete commands."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


COMPLETE = "_SHARDWAY_COMPLETE"
"""The variable that a shell sets to get words in place of a command's results."""


def completion_command(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Write a script that completes commands, options and contexts. Your shell reads it when it starts.

    bash: eval "$(shardway completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, behind compinit; fish:
    shardway completion fish > ~/.config/fish/completions/shardway.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # typer names it without __all__

    print(get_completion_script(prog_name="shardway", complete_var=COMPLETE, shell=shell.value).strip())


def begin_completion() -> None:
    """Register the shells with typer, where a shell asks for words."""
    if COMPLETE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined] # as above

        completion_init()
