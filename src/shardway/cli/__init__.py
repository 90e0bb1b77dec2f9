"""The ``shardway`` command. Each subcommand is a module; results are text, or JSON with ``-o json``."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The status by which shells know that Ctrl-C ended a command."""


def main() -> int:
    """Run the command line, and return the process's exit status."""
    try:
        from shardway.cli.app import run

        return run()
    except ModuleNotFoundError as fault:
        if fault.name not in ("typer", "click", "rich"):
            raise
        print('The shardway command needs its extra: pip install "shardway[cli]"', file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # also while modules are imported, when no command listens for it yet
        return INTERRUPTED
