"""Contexts are named places (region, endpoint, profile); some may only be read.

A context is chosen by ``--context``, by SHARDWAY_CONTEXT, or for good by ``shardway context use``. Its values take the
place of options that are not given. They are kept in ``shardway/contexts.toml`` below XDG_CONFIG_HOME or ~/.config. The
file has no secret: credentials stay where the AWS SDK finds them.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from shardway.cli.contexts_file import CONTEXTS_MAX, VALUES, Context, contexts_kept, keep, names_of_contexts
from shardway.cli.output import say
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Shape, show_report
from shardway.cli.tables import table_of
from shardway.cli.write_guard import WITHOUT, guard
from shardway.errors import OptionError
from shardway.wiring import ConnectionOptions

app = typer.Typer(no_args_is_help=True, help="Contexts: named places; some of them may only be read.")


def choose(context: typer.Context, name: str | None) -> None:
    """Choose a context for this run: give its values to the commands, and make commands that write refuse where the
    context may only be read. Raises OptionError.
    """
    if context.invoked_subcommand is None or context.invoked_subcommand in WITHOUT:
        return
    known = contexts_kept()
    wanted = name or known.current
    if wanted is None:
        return
    found = known.named(wanted)
    values = {one: value for one in VALUES if (value := getattr(found, one)) is not None}
    context.default_map = _defaults(context.command, values)
    if found.read_only:
        guard(context.command, wanted)


def _defaults(command: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults by subcommands, for the subcommands that take all of the values."""
    taken = {one.name for one in command.params}
    found: dict[str, Any] = dict(values) if taken.issuperset(VALUES) else {}
    for name, sub in getattr(command, "commands", {}).items():
        if name not in WITHOUT:
            found[name] = _defaults(sub, values)
    return found


Name = Annotated[
    str, typer.Argument(help="Name of the context.", metavar="CONTEXT", autocompletion=lambda: names_of_contexts())
]


@app.command("ls")
def ls_command(output: Output = Shape.table) -> None:
    """List the contexts; the one in use is marked."""
    known = contexts_kept()
    rows = (
        ("*" if name == known.current else "", name, one.region, one.endpoint_url, one.profile, _mark(one))
        for name, one in sorted(known.contexts.items())
    )
    head = ("", "CONTEXT", "REGION", "ENDPOINT", "PROFILE", "")
    listed = [{"name": name, **msgspec.structs.asdict(one)} for name, one in sorted(known.contexts.items())]
    show_report(known, listed, table_of(head, rows), output)


@app.command("set")
def set_command(
    name: Name,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Commands that write refuse to.")] = False,
) -> None:
    """Keep a context, in place of the one that has this name."""
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        raise OptionError(f"{name!r} is no name of a context: it has letters, digits, - and _")
    made = Context(region=region, endpoint_url=endpoint_url, profile=profile, read_only=read_only)
    _check(made)
    known = contexts_kept()
    contexts = {**known.contexts, name: made}
    if len(contexts) > CONTEXTS_MAX:
        raise OptionError(f"there are {CONTEXTS_MAX} contexts: remove one (shardway context rm)")
    keep(msgspec.structs.replace(known, contexts=contexts))


@app.command("use")
def use_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of the context; without one, none is in use.",
            metavar="CONTEXT",
            autocompletion=lambda: names_of_contexts(),
        ),
    ] = None,
) -> None:
    """Use a context until another one is chosen."""
    known = contexts_kept()
    if name is not None:
        known.named(name)
    keep(msgspec.structs.replace(known, current=name))
    say(f"shardway: the context is {name}" if name is not None else "shardway: no context is in use")


@app.command("rm")
def rm_command(name: Name) -> None:
    """Forget a context."""
    known = contexts_kept()
    known.named(name)
    left = {one: found for one, found in known.contexts.items() if one != name}
    keep(msgspec.structs.replace(known, contexts=left, current=None if known.current == name else known.current))


def _check(made: Context) -> None:
    """Raise OptionError for values that no command would take, and for secrets."""
    for key, value in msgspec.structs.asdict(made).items():
        if isinstance(value, str) and not value.isprintable():
            raise OptionError(f"{key} holds characters that cannot be shown")
    ConnectionOptions(region=made.region, endpoint_url=made.endpoint_url, profile=made.profile)
    parts = urlsplit(made.endpoint_url or "")
    if parts.username is not None or parts.password is not None or parts.query:
        raise OptionError("--endpoint-url: a context keeps no secret: leave the user, the password and the query out")


def _mark(one: Context) -> str:
    return "read-only" if one.read_only else ""
