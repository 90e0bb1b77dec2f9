"""``shardway dead-letters`` shows the records that were given up, and replays them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shardway.cli.looking import named_streams
from shardway.cli.output import Lines, OutputLines, OutputWhole, ResultShape, show, warn
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Since, begin_of
from shardway.errors import OptionError, ShardwayError
from shardway.inspect.moments import counted, time_text
from shardway.shown import one_line
from shardway.wiring import ConnectionOptions, sink_for, source_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from shardway.core.ledger.letter import Letter
    from shardway.runtime.dead_letters.reading import BadLetter
    from shardway.runtime.dead_letters.replay import Replayed, Target

    Letters = AbstractAsyncContextManager[AsyncIterator[Letter | BadLetter]]

SHOWN_MAX = 10
"""The complaints of each kind, and the letters with each error, that are shown as text."""
GROUPS_MAX = 200
OTHERS = "other errors"
"""The group of all errors beyond the bound of groups."""

app = typer.Typer(no_args_is_help=True, help="Records that were given up: list them, or replay them.")

File = Annotated[
    Path | None, typer.Argument(help="File of dead letters, a line of JSON each.", metavar="FILE", show_default=False)
]
FromStream = Annotated[
    str | None, typer.Option("--from", help="Stream of dead letters, in place of a file.", metavar="STREAM")
]


@app.command("list")
def list_command(
    file: File = None,
    from_stream: FromStream = None,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Also print the messages of the errors, which may hold data of the records."),
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="With -o jsonl: also print the records' data, where the letters hold it.")
    ] = False,
    since: Since = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputLines = Lines.text,
) -> None:
    """List dead letters by their errors, and count them. The exit status is 1 if a line is no dead letter.

    As text it shows the first ten with each error; -o jsonl writes each letter, in the order in which they lie there.
    """
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    letters = _letters(file, from_stream, connection, since)
    asyncio.run(_list(letters, messages=messages, data=data, as_json=output is Lines.jsonl))


@app.command("replay")
def replay_command(
    file: File = None,
    from_stream: FromStream = None,
    to_stream: Annotated[
        str | None, typer.Option("--to", help="Put the records into this stream.", metavar="STREAM")
    ] = None,
    call: Annotated[
        str | None,
        typer.Option("--call", help="Call this function with each record and its letter.", metavar="MODULE:FUNCTION"),
    ] = None,
    of: Annotated[
        list[str] | None,
        typer.Option("--of", help="Stream of the records, as the letters name it (may be repeated).", metavar="STREAM"),
    ] = None,
    left: Annotated[
        Path | None,
        typer.Option("--left", help="Write the letters that were not replayed to this new file.", metavar="FILE"),
    ] = None,
    since: Since = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Hand the records of dead letters on once more: to a stream, or to a function.

    The command reads each record again from its stream, by its position; where the stream has it no more, it takes the
    record from the letter. It reads no stream that --of does not name, whatever a letter says. Each replay hands all
    records of its letters on again, so keep letters that were replayed apart. The exit status is 1 when a record was
    not replayed.
    """
    if (to_stream is None) == (call is None):
        raise typer.BadParameter("choose one of --to STREAM and --call MODULE:FUNCTION")
    if not of:
        raise typer.BadParameter(
            "name the stream of the records with --of STREAM, as `shardway dead-letters list` shows it: a letter alone "
            "must not choose which stream is read"
        )
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    target = _Target(to_stream, call, tuple(of), left)
    found = asyncio.run(_replay(_letters(file, from_stream, connection, since), target, connection))
    _finish(found, as_json=output is ResultShape.json)


async def _list(source: Letters, *, messages: bool, data: bool, as_json: bool) -> None:
    import msgspec

    groups: dict[str, _Group] = {}
    bad = []
    async with source as letters:
        async for letter in letters:
            if isinstance(letter, Exception):
                bad.append(str(letter))
                continue
            name = letter.error_type if letter.error_type in groups or len(groups) < GROUPS_MAX else OTHERS
            group = groups.setdefault(name, _Group())
            values: dict[str, Any] = msgspec.json.decode((letter if data else letter.without_data()).to_json())
            if not messages:
                values.pop("error_message", None)
            values["data_bytes"] = None if letter.data is None else len(letter.data)
            message = f": {letter.error_message}" if messages and letter.error_message else ""
            text = f"{_letter_line(letter)}  {letter.attempts} attempts  {letter.error_type}{message}"
            group.add(letter, one_line(text))
            if as_json:
                show(values, "", as_json=True)
    if not as_json:
        _show_groups(groups)
    _complain(bad, "no dead letter")
    if bad:
        raise typer.Exit(1)


class _Group:
    """The letters with one error: how many, the first ones, and the time in which they were written."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []
        self.first_at: dt.datetime | None = None
        self.last_at: dt.datetime | None = None

    def add(self, letter: Letter, line: str) -> None:
        """Count a letter, and keep its line where there is room."""
        self.count += 1
        if len(self.lines) < SHOWN_MAX:
            self.lines.append(line)
        self.first_at = min(self.first_at or letter.written_at, letter.written_at)
        self.last_at = max(self.last_at or letter.written_at, letter.written_at)


def _show_groups(groups: Mapping[str, _Group]) -> None:
    """Show letters by their errors, the most common error first: with a thousand letters one seeks the errors."""
    ordered = sorted(groups.items(), key=lambda one: -one[1].count)
    for name, group in ordered:
        for line in group.lines:
            typer.echo(line)
        if (more := group.count - len(group.lines)) > 0:
            written = f"written from {time_text(group.first_at)} to {time_text(group.last_at)}"
            typer.echo(one_line(f"and {more} more with {name}, {written}"))
    kinds = ", ".join(f"{group.count} {name}" for name, group in ordered)
    total = sum(group.count for group in groups.values())
    typer.echo(one_line(f"{counted(total, 'dead letter')}{': ' + kinds if kinds else ''}"))


class _Target(NamedTuple):
    """What a replay reads, and where its records and the letters that are left go."""

    to: str | None
    call: str | None
    of: tuple[str, ...]
    left: Path | None


async def _replay(source: Letters, chosen: _Target, connection: ConnectionOptions) -> Replayed:
    from shardway.runtime.dead_letters.replay import ToCallable, ToStream, replay
    from shardway.runtime.producer.producer import Producer

    async with contextlib.AsyncExitStack() as stack:
        letters = await stack.enter_async_context(source)
        target: Target
        if chosen.to is None:
            target = ToCallable(_function(chosen.call or ""))
        else:
            producer: Producer[Any] = Producer(sink_for(chosen.to, connection))
            async with named_streams(connection, chosen.to):
                target = ToStream(await stack.enter_async_context(producer))
        return await replay(
            letters,
            target,
            of=chosen.of,
            open_source=lambda name: source_for(name, connection),
            on_left=_drop if chosen.left is None else stack.enter_context(_letter_writer(chosen.left)),
            once=chosen.to is not None,
        )


@contextlib.asynccontextmanager
async def _letters(
    file: Path | None, stream: str | None, connection: ConnectionOptions, since: str | None
) -> AsyncIterator[AsyncIterator[Letter | BadLetter]]:
    """Yield the letters of a file or of a stream. ``since``: only those that were written from this time on."""
    from shardway.runtime.dead_letters.reading import letters_of_file, letters_of_stream

    begin_s = begin_of(since, time.time()) or 0.0

    async def select(found: AsyncIterator[Letter | BadLetter]) -> AsyncIterator[Letter | BadLetter]:
        async for letter in found:
            if isinstance(letter, Exception) or letter.written_at.timestamp() >= begin_s:
                yield letter

    if (file is None) == (stream is None):
        raise typer.BadParameter("name a file of dead letters, or a stream with --from")
    if stream is not None:
        source = source_for(stream, connection)
        try:
            async with named_streams(connection, stream):
                yield select(letters_of_stream(source))
        finally:
            await source.close()
        return

    async def of_file() -> AsyncIterator[Letter | BadLetter]:
        assert file is not None
        try:
            for letter in letters_of_file(file):
                yield letter
        except OSError as fault:
            raise ShardwayError(f"{file} cannot be read: {fault.strerror}") from fault

    yield select(of_file())


@contextlib.contextmanager
def _letter_writer(path: Path) -> Any:
    """Write letters to a new file, which its owner alone may read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as fault:
        raise OptionError(f"--left {path}: {fault.strerror}") from fault
    with os.fdopen(descriptor, "wb") as file:
        yield lambda letter: file.write(letter.to_json() + b"\n")


def _drop(letter: Letter) -> None:
    """Drop a letter that was not replayed: without ``--left`` it is not written down."""


def _function(name: str) -> Callable[..., Any]:
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise OptionError("--call: write MODULE:FUNCTION, as in orders.repair:handle")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as fault:
        raise OptionError(f"--call {name}: {fault}") from fault
    if not callable(found):
        raise OptionError(f"--call {name}: that is no function")
    return found  # type: ignore[no-any-return]


def _finish(found: Replayed, *, as_json: bool) -> None:
    done = found.from_stream + found.from_letter
    text = f"{done} records replayed, {found.from_letter} of them from their letters"
    if found.again:
        text += f"; {found.again} letters were of records that were replayed already"
    show(
        {
            "replayed": done,
            "from_stream": found.from_stream,
            "from_letter": found.from_letter,
            "again": found.again,
            "gone": len(found.gone),
            "failed": len(found.failed),
            "foreign": len(found.foreign),
            "bad": len(found.bad),
        },
        text,
        as_json=as_json,
    )
    _complain([_letter_line(letter) for letter in found.gone], "in the stream no more, and not in its letter")
    _complain([f"{_letter_line(letter)} ({type(error).__name__})" for letter, error in found.failed], "not taken")
    _complain([_letter_line(letter) for letter in found.foreign], "of a stream that --of does not name, and not read")
    _complain(found.bad, "no dead letter")
    if not found.complete:
        raise typer.Exit(1)


def _complain(names: list[str], what: str) -> None:
    for name in names[:SHOWN_MAX]:
        warn(one_line(f"{name}: {what}"))
    if len(names) > SHOWN_MAX:
        warn(f"and {len(names) - SHOWN_MAX} more: {what}")


def _letter_line(letter: Letter) -> str:
    number, sub = letter.position
    part = "" if letter.part is None else f" part {letter.part}"
    return f"{letter.written_at:%Y-%m-%dT%H:%M:%S%z}  {letter.stream} {letter.shard_id} {number}/{sub}{part}"
