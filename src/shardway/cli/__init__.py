"""The ``shardway`` command. Each subcommand is a module; results are text, or JSON with ``-o json``.

Read `app` first, which has all subcommands and shows their errors, then one subcommand, such as `stream`.

- The subcommands: `application`, `checks`, `completion`, `console`, `contexts`, `cost`, `dead_letters`, `doctor`,
  `kclpy`, `load`, `local`, `put`, `records`, `run` (with `job_draft` and `spark_extra`), `stream` and `top`. `moving`
  and `skip` are parts of ``shardway app``.
- What several of them share: `looking` is for those that look, and `record_choice` for those that read records.
  `producing` is for those that put records, with `put_lines`, `workload`, `delivery`, `accounts` and `progress`.
  `plan_writing` and `plan_lines` are for those that move positions.
- How they show what they found: `output`, `report_output`, `tables`, `lag_table` and `record_lines`. `terminal` writes
  it, and `interrupt` waits for Ctrl-C. `help_words` has the words of the help.
- `contexts_file` keeps the named places, and `write_guard` says in one table which commands write and are refused in
  some of them. `completing` gives a shell the names of streams and applications.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The status that tells shells that Ctrl-C ended a command."""


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
