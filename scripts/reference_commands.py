"""Makes the tables of commands on the reference page from what the commands themselves say.

``python -m scripts.reference_commands docs/reference/commands.md`` writes them anew. A table has the name of its
command. `scripts.reference` has what all pages share.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import typer
from scripts.reference import plain, renew_files, renewed_with, table

from shardway.cli.app import app

COMMANDS = ("console", "local")


def options_of(name: str) -> str:
    """Return the table of the options of a command: how each is written, its default, and what it does. The options
    that all commands have are left out.
    """
    root: Any = typer.main.get_command(app)
    command = root.get_command(root.make_context("shardway", [name], resilient_parsing=True), name)
    rows = []
    for one in command.params:
        if one.name in ("help", "install_completion", "show_completion"):
            continue
        written = max(one.opts, key=len)
        if not one.is_flag:
            written += f" {one.metavar or one.name.upper()}"
        default = "" if one.is_flag or one.default in (None, "") else f"`{one.default}`"
        about = plain(one.help or "") + (" It may be given more than once." if one.multiple else "")
        rows.append((f"`{written}`", default, about))
    return table(("option", "default", "what it does"), tuple(rows))


TABLES = {name: partial(options_of, name) for name in COMMANDS}


def renewed(page: str) -> str:
    """Return the text of the page with its tables as the commands have them now."""
    return renewed_with(page, TABLES)


if __name__ == "__main__":
    renew_files(renewed)
