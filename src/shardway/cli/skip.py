"""``shardway app skip`` passes over one record, which becomes a dead letter."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.application import Name, OfStream, StoreText, Table
from shardway.cli.looking import Names, looking
from shardway.cli.output import say
from shardway.cli.plan_writing import Apply, Failover, PlanWriting, Save, Yes, go_on_with
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape
from shardway.errors import OptionError
from shardway.inspect.moments import span_s, time_text
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.core.ledger.letter import Letter
    from shardway.dead_letters import DeadLettersToFile, DeadLettersToStream
    from shardway.inspect import Inspector, PositionsReport, Skip
    from shardway.model import Position


def skip_command(
    name: Name,
    shard: Annotated[str, typer.Option("--shard", help="The shard that stands still.", metavar="SHARD")],
    at: Annotated[
        str | None,
        typer.Option("--at", help="The record, so that no other one is passed over.", metavar="NUMBER[/INDEX]"),
    ] = None,
    letters: Annotated[
        Path | None,
        typer.Option(help="File of dead letters; else APPLICATION-TIME.dead-letters.jsonl.", metavar="FILE"),
    ] = None,
    letters_stream: Annotated[
        str | None, typer.Option("--letters-stream", help="Stream of dead letters.", metavar="STREAM")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the dead letter.", metavar="TEXT")] = "",
    stream: OfStream = None,
    apply: Apply = False,
    yes: Yes = False,
    save: Save = None,
    failover: Failover = "10s",
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Pass over the one record that a shard stands still at, and keep it as a dead letter; it shows what it would do.

    With --apply a live Shardway worker hands the shard over, the letter is written, and the checkpoint moves behind the
    record. Records of other shards are handled meanwhile. A live worker of a KCL has to be stopped first.
    """
    from shardway.inspect import Store, plan_skip

    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    where, choice = Store.parse(store, table), _letters_of(name, letters, letters_stream)
    position, wait_s = None if at is None else _position(at), span_s(failover)

    async def look(inspector: Inspector) -> Skip:
        return await plan_skip(inspector, name, shard, position, stream=stream, store=where, failover_s=wait_s)

    say("shardway: looking whether the owners of leases live")
    skip = asyncio.run(looking(connection, look, names=Names((name,), stream, (store, table)), calls_per_s=rate))
    skip = skip._replace(letter=replace(skip.letter, error_message=reason))
    if output is Shape.table:
        say(_skip_text(skip, choice))
    before = _keeping_letter(skip, choice, connection)
    go_on_with(
        skip.plan, None, output, lambda: PlanWriting(where, connection, yes, True, False, save, before), apply=apply
    )


def _keeping_letter(
    skip: Skip, choice: DeadLettersToFile | DeadLettersToStream, connection: ConnectionOptions
) -> Callable[[PositionsReport], Awaitable[None]]:
    """Return what is done before the checkpoint moves: the letter is written, unless it is not wanted any more."""

    async def keep(found: PositionsReport) -> None:
        _check_in_the_way(skip, found)
        await _write_letter(choice, skip.letter, connection)

    return keep


def _position(text: str) -> Position:
    from shardway.model import Position

    number, _, index = text.removeprefix("seq:").partition("/")
    if not (number.isascii() and number.isdigit() and (index or "0").isascii() and (index or "0").isdigit()):
        raise OptionError(f"--at {text}: write a sequence number, with /INDEX inside of an aggregate")
    return Position(int(number), int(index or 0))


def _letters_of(name: str, path: Path | None, stream: str | None) -> DeadLettersToFile | DeadLettersToStream:
    from shardway.dead_letters import DeadLettersToFile, DeadLettersToStream

    if path is not None and stream is not None:
        raise OptionError("choose one of --letters FILE and --letters-stream STREAM")
    if stream is not None:
        return DeadLettersToStream(stream=stream)
    return DeadLettersToFile(path=path or Path(f"{name}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%fZ}.dead-letters.jsonl"))


async def _write_letter(
    choice: DeadLettersToFile | DeadLettersToStream, letter: Letter, connection: ConnectionOptions
) -> None:
    """Write the letter for good. Raises OptionError where it cannot be: then the checkpoint does not move."""
    from shardway.runtime.dead_letters.writers import open_letters

    sink = open_letters(choice, connection)
    assert sink is not None
    try:
        await sink.start()
        await sink.write(letter)
    except OSError as fault:
        raise OptionError(f"the dead letter cannot be written: {fault.strerror or type(fault).__name__}") from fault
    finally:
        await sink.close()
    say("shardway: the dead letter is written")


def _check_in_the_way(skip: Skip, found: PositionsReport) -> None:
    """Raise OptionError where the worker has settled the record before it handed the shard over."""
    letter = skip.letter
    now = found.shards.get(skip.plan.moves[0].lease)
    if now is None or now.at != "after" or now.sequence_number is None:
        return
    settled = int(now.sequence_number), now.sub_sequence_number or 0
    if settled >= (letter.position.sequence_number, letter.position.sub_sequence_number):
        raise OptionError("nothing was written: the worker has settled the record meanwhile")


def _skip_text(skip: Skip, choice: DeadLettersToFile | DeadLettersToStream) -> str:
    from shardway.inspect.moves.skipping import position_text

    letter, place = skip.letter, getattr(choice, "path", None) or getattr(choice, "stream", None)
    return (
        f"the record {position_text(letter.position)} of {letter.shard_id}, which arrived at "
        f"{time_text(letter.arrived_at)} and has {len(letter.data or b'')} bytes, is passed over, and kept as a dead "
        f"letter in {place}"
    )
