"""The ``penstock`` command. Each subcommand is a module; results are text, or JSON with ``-o json``."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line, and return the process's exit status."""
    try:
        from penstock.cli.app import run
    except ModuleNotFoundError as fault:
        if fault.name not in ("typer", "click", "rich"):
            raise
        print('The penstock command needs its extra: pip install "penstock[cli]"', file=sys.stderr)
        return 1
    return run()
