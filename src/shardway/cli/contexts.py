"""Contexts are named places (region, endpoint, profile), of which some may only be read. Completion for shells stands
here, too.

A context is chosen by ``--context``, by SHARDWAY_CONTEXT, or for good by ``shardway context use``. Its values take the
place of options that are not given. They are kept in ``shardway/contexts.toml`` below XDG_CONFIG_HOME or ~/.config. The
file has no secret: credentials stay where the AWS SDK finds them.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from shardway.cli.output import Output, Shape, replace_file, say, show_report
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.tables import table_of
from shardway.errors import OptionError
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

VALUES = ("region", "endpoint_url", "profile")
"""The options for which a context has values. A command gets the values if it has all of these options."""
CONTEXTS_BYTES_MAX = 1024 * 1024
CONTEXTS_MAX = 1_000
WITHOUT = frozenset({"context", "completion"})
"""Commands for which no context is chosen: they mend a file of contexts that is wrong."""

app = typer.Typer(no_args_is_help=True, help="Contexts: named places, of which some may only be read.")


# --- what may be written --------------------------------------------------------------------------


def _always(given: Mapping[str, Any]) -> bool:  # noqa: ARG001 - it is one of several
    return True


def _applied(given: Mapping[str, Any]) -> bool:
    return bool(given["apply"])


def _runs(given: Mapping[str, Any]) -> bool:
    return not (given["check"] or given["schema"])


def _writers_come(given: Mapping[str, Any]) -> bool:
    return bool(given["allow_writes"])


WRITES: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "app apply": _always,
    "app import": _applied,
    "app seek": _applied,
    "app skip": _applied,
    "console": _writers_come,
    "dead-letters replay": _always,
    "kclpy": _always,
    "load": _always,
    "put": _always,
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


def _guard(commands: Any, context: str) -> None:
    """Make each command that writes refuse to do so, just before it begins."""
    for name, command in _leaves(commands):
        if (writes := WRITES.get(name)) is not None:
            command.invoke = _refusing(command.invoke, name, writes, context)


def _refusing(begin: Any, name: str, writes: Callable[[Mapping[str, Any]], bool], context: str) -> Any:
    def invoke(command_context: Any) -> Any:
        if writes(command_context.params):
            raise OptionError(
                f"the context {context} is read-only, and shardway {name} writes: nothing was done. Choose another "
                "context (--context) for it"
            )
        return begin(command_context)

    return invoke


# --- the file -------------------------------------------------------------------------------------


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named place."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    read_only: bool = False
    """True: commands that write refuse to do so."""


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All contexts, as their file holds them."""

    schema: str = "shardway.contexts/1"
    current: str | None = None
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return the context of this name. Raises OptionError where there is none."""
        if name not in self.contexts:
            there = ", ".join(sorted(self.contexts)) or "none"
            raise OptionError(f"there is no context {name!r}; there are: {there}")
        return self.contexts[name]


def path_of_contexts() -> Path:
    """Return the path of the file that keeps the contexts."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "shardway" / "contexts.toml"


def contexts_kept() -> Contexts:
    """Return all contexts; none where there is no file. Raises OptionError."""
    try:
        path = path_of_contexts()
    except RuntimeError:  # this user has no home
        return Contexts()
    try:
        if not path.exists():
            return Contexts()
        if path.stat().st_size > CONTEXTS_BYTES_MAX:
            raise OptionError(f"{path} has more than {CONTEXTS_BYTES_MAX} bytes: it holds no contexts")
        return msgspec.toml.decode(path.read_bytes(), type=Contexts)
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise OptionError(f"{path} holds no contexts: {fault}") from None


def _keep(contexts: Contexts) -> None:
    """Write the contexts in place of those that are kept. Raises OptionError."""
    lines = [f"schema = {json.dumps(contexts.schema)}"]
    if contexts.current is not None:
        lines.append(f"current = {json.dumps(contexts.current)}")
    for name, one in sorted(contexts.contexts.items()):
        lines += ["", f"[contexts.{name}]"]
        given = ((key, value) for key, value in msgspec.structs.asdict(one).items() if value not in (None, False))
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in given]
    path = path_of_contexts()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, ("\n".join(lines) + "\n").encode())
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault


# --- the choice -----------------------------------------------------------------------------------


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
    context.default_map = _given(context.command, values)
    if found.read_only:
        _guard(context.command, wanted)


def names_of_contexts() -> list[str]:
    """Return the names of all contexts, for completion; none where the file cannot be read."""
    try:
        return sorted(contexts_kept().contexts)
    except OptionError:
        return []


def _given(command: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults by subcommands, for the subcommands that take all of the values."""
    taken = {one.name for one in command.params}
    found: dict[str, Any] = dict(values) if taken.issuperset(VALUES) else {}
    for name, sub in getattr(command, "commands", {}).items():
        if name not in WITHOUT:
            found[name] = _given(sub, values)
    return found


# --- commands -------------------------------------------------------------------------------------

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
    _keep(msgspec.structs.replace(known, contexts=contexts))


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
    _keep(msgspec.structs.replace(known, current=name))
    say(f"shardway: the context is {name}" if name is not None else "shardway: no context is in use")


@app.command("rm")
def rm_command(name: Name) -> None:
    """Forget a context."""
    known = contexts_kept()
    known.named(name)
    left = {one: found for one, found in known.contexts.items() if one != name}
    _keep(msgspec.structs.replace(known, contexts=left, current=None if known.current == name else known.current))


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


# --- completion -----------------------------------------------------------------------------------


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
