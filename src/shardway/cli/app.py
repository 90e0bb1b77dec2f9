"""All subcommands, and how their errors are shown."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardway import __version__
from shardway.cli import (
    application,
    checks,
    completion,
    console,
    contexts,
    contexts_file,
    cost,
    dead_letters,
    doctor,
    kclpy,
    load,
    local,
    moving,
    put,
    records,
    skip,
    stream,
    top,
)
from shardway.cli import run as run_job
from shardway.cli.help_words import name_values
from shardway.cli.output import warn
from shardway.cli.terminal import NO_ROOM, drop_output, prepare_output
from shardway.errors import OptionError, ShardwayError


class _Commands(typer.core.TyperGroup):
    """All commands, whose help names the values in the words of a user."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        name_values(self)


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Carries records from Amazon Kinesis Data Streams to where they are used, and back.",
)
RUN, WRITE, LOOK, CHECK, SET_UP = "Run", "Write", "Look", "Check", "Set up"
"""What a command is for: the help shows the commands under these."""

app.command("run", rich_help_panel=RUN)(run_job.command)
app.command("kclpy", rich_help_panel=RUN)(kclpy.command)
app.command("local", rich_help_panel=RUN)(local.command)
app.command("put", rich_help_panel=WRITE)(put.command)
app.command("load", rich_help_panel=WRITE)(load.command)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel=WRITE)
app.add_typer(stream.app, name="stream", rich_help_panel=LOOK)
app.add_typer(application.app, name="app", rich_help_panel=LOOK)
app.add_typer(records.app, name="records", rich_help_panel=LOOK)
app.command("top", rich_help_panel=LOOK)(top.command)
app.command("console", rich_help_panel=LOOK)(console.command)
app.command("doctor", rich_help_panel=CHECK)(doctor.command)
app.add_typer(checks.checks, name="check", rich_help_panel=CHECK)
app.command("cost", rich_help_panel=CHECK)(cost.cost_command)
app.add_typer(contexts.app, name="context", rich_help_panel=SET_UP)
app.command("completion", rich_help_panel=SET_UP)(completion.completion_command)
application.app.command("export")(moving.export_command)
application.app.command("seek")(moving.seek_command)
application.app.command("skip")(skip.skip_command)
application.app.command("import")(moving.import_command)
application.app.command("apply")(moving.apply_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardway {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Option(
            "--context",
            envvar="SHARDWAY_CONTEXT",
            help="Context to work in, of shardway context ls.",
            metavar="CONTEXT",
            autocompletion=lambda: contexts_file.names_of_contexts(),
        ),
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the subcommand."""
    try:
        contexts.choose(context, name)
    except OptionError as fault:
        if context.invoked_subcommand == "check":
            checks.end_unknown(str(fault))
        raise


def run() -> int:
    """Run one subcommand, and return its status. An error that was foreseen is shown as one line, with status 1, and so
    is a disk that has no room for the output; a wrong use has status 2.
    """
    prepare_output()
    try:
        completion.begin_completion()
        app(prog_name="shardway")
    except ShardwayError as fault:
        warn(str(fault))
        return 1
    except OSError as fault:
        if fault.errno not in NO_ROOM or fault.filename is not None:
            raise
        drop_output()
        warn(f"the output cannot be written: {fault.strerror}")
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0
