"""The pages of dead letters, which group letters by their errors, show them, and replay them to a stream."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.console.page import PageError, console_of, form_of, link, rendered, visitor_of
from shardway.console.writing import PartlyError, Write, written
from shardway.core.ledger.letter import Letter
from shardway.errors import ShardwayError
from shardway.inspect import SeenRecord
from shardway.runtime.dead_letters.reading import letters_of_file, letters_of_stream
from shardway.runtime.dead_letters.replay import ToStream, replay
from shardway.runtime.producer.producer import Producer
from shardway.wiring import sink_for, source_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from starlette.requests import Request
    from starlette.responses import Response

    from shardway.console.console import Console
    from shardway.runtime.dead_letters.reading import BadLetter


LETTERS_MAX = 5_000
"""The dead letters that are read of a place at a time."""
READ_S = 20.0
ROWS_MAX = 100
OF_STREAM = "stream:"


class Group(NamedTuple):
    """Letters with the same error, of the same stream."""

    stream: str
    error_type: str
    letters: list[Letter]

    @property
    def newest(self) -> Letter:
        """The letter of the group that was written last."""
        return max(self.letters, key=lambda one: one.written_at)


class ReadLetters(NamedTuple):
    """The dead letters that were read of a place."""

    letters: list[Letter]
    bad: int
    whole: bool
    fault: str | None


async def letters(request: Request) -> Response:
    """Show the places of dead letters, the groups of one place, or the letters of one group."""
    console, query = console_of(request), request.query_params
    where, error_type = query.get("place", ""), query.get("error")
    found = groups = chosen = None
    if where:
        _require_known(console, where)
        found = await _read(console, where)
        groups = _group(found.letters)
        if error_type is not None:
            stream = query.get("stream", "")
            chosen = next((one for one in groups if (one.stream, one.error_type) == (stream, error_type)), None)
    shown = chosen.letters[-ROWS_MAX:][::-1] if chosen is not None else []
    if shown and console.payloads.shown:
        target = {"place": where, "error": error_type, "letters": len(shown)}
        await console.audit.viewed(visitor_of(request), "letters.viewed", target)
    context: dict[str, Any] = {
        "title": "Dead letters",
        "places": console.settings.letters,
        "place": where,
        "found": found,
        "groups": groups,
        "chosen": chosen,
        "shown": await console.decoding.call(lambda: [(one, _text(console, one)) for one in shown]),
        "messages": console.payloads.whole,
    }
    return rendered(request, "letters.html", context)


async def replay_letters(request: Request) -> Response:
    """Put the records of a group into a stream once more."""
    console, form = console_of(request), form_of(request)
    where, error_type, stream = form.get("place", ""), form.get("error", ""), form.get("stream", "")
    to = form.get("to", "").strip()
    _require_known(console, where)
    if not to or form.get("confirm", "").strip() != to:
        raise PageError(400, "Write the name of the stream twice: where the records go, and to confirm it.")
    found = await _read(console, where)
    chosen = [one for one in found.letters if (one.stream, one.error_type) == (stream, error_type)]
    if form.get("count") != str(len(chosen)):
        raise PageError(409, "The letters have changed since you looked: look again.")

    async def do() -> dict[str, int]:
        return await _replay(console, chosen, to)

    target = {"place": where, "error": error_type, "of_stream": stream, "to": to}
    write = Write("letters.replayed", "Replay of dead letters", target, after={"letters": len(chosen)})
    return await written(request, write, do, back=link("letters", place=where))


async def _replay(console: Console, chosen: list[Letter], to: str) -> dict[str, int]:
    async def chosen_letters() -> AsyncIterator[Letter | BadLetter]:
        for one in chosen:
            yield one

    producer: Producer[Any] = Producer(sink_for(to, console.connection))
    async with producer:
        done = await replay(
            chosen_letters(),
            ToStream(producer),
            of={one.stream for one in chosen},  # one group, whose stream the visitor saw and sent
            open_source=lambda name: source_for(name, console.connection),
            on_left=lambda _: None,  # letters that were not replayed stay where they are: nothing is removed
            once=True,
        )
    told = {
        "from_stream": done.from_stream,
        "from_letter": done.from_letter,
        "again": done.again,
        "gone": len(done.gone),
        "failed": len(done.failed),
    }
    if done.failed or done.gone:
        raise PartlyError("records that are gone, or that the stream did not take, are left", told)
    return told


def _require_known(console: Console, where: str) -> None:
    """Refuse a place that the console was not started with: a browser must name no files."""
    if where not in console.settings.letters:
        raise PageError(404, "The console was not started with this place of dead letters (--letters).")


async def _read(console: Console, where: str) -> ReadLetters:
    letters: list[Letter] = []
    bad, whole, fault = 0, True, None
    try:
        async with asyncio.timeout(READ_S), contextlib.aclosing(_letters(console, where)) as found:
            async for one in found:
                if isinstance(one, Letter):
                    letters.append(one)
                else:
                    bad += 1
                if len(letters) >= LETTERS_MAX:
                    whole = False
                    break
    except TimeoutError:
        whole = False
    except (ShardwayError, OSError) as error:
        fault = str(error)
    return ReadLetters(letters, bad, whole, fault)


async def _letters(console: Console, where: str) -> AsyncGenerator[Letter | BadLetter, None]:
    if not where.startswith(OF_STREAM):
        for one in await asyncio.to_thread(_of_file, Path(where)):
            yield one
        return
    source = source_for(where.removeprefix(OF_STREAM), console.connection)
    try:
        async for one in letters_of_stream(source):
            yield one
    finally:
        await source.close()


def _of_file(path: Path) -> list[Letter | BadLetter]:
    found = []
    for one in letters_of_file(path):
        found.append(one)
        if len(found) >= LETTERS_MAX:
            break
    return found


def _group(letters: list[Letter]) -> list[Group]:
    found: dict[tuple[str, str], Group] = {}
    for one in letters:
        key = (one.stream, one.error_type)
        found.setdefault(key, Group(*key, [])).letters.append(one)
    return sorted(found.values(), key=lambda one: (-len(one.letters), one.error_type))


def _text(console: Console, letter: Letter) -> str | None:
    """Return the text of the letter's record, as far as it may be shown; None: the letter does not hold the record."""
    record = letter.record()
    if record is None:
        return None
    return console.payloads.row(console.payloads.masked(SeenRecord(record))).text


ROUTES = [("/letters", ["GET"], letters), ("/letters/replay", ["POST"], replay_letters)]
