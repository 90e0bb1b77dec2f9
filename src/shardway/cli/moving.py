"""``shardway app seek``, ``export``, ``import`` and ``apply`` move positions, with a preview, and keep them before.

Nothing is written without ``--apply``, and then only what was shown and confirmed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from shardway.cli.application import Name, OfStream, StoreText, Table
from shardway.cli.looking import Names, looking
from shardway.cli.output import say, warn
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, pairs_of, show_report, tell_missing
from shardway.cli.tables import is_wide, table_of
from shardway.errors import OptionError
from shardway.inspect.moments import HOW, counted, span_s, span_text, time_text
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.core.ledger.letter import Letter
    from shardway.dead_letters import DeadLettersToFile, DeadLettersToStream
    from shardway.inspect import Applied, Inspector, Move, Plan, PositionsReport, Skip, Store
    from shardway.model import Position

PLAN_BYTES_MAX = 64 * 1024 * 1024

Shards = Annotated[
    list[str] | None, typer.Option("--shard", help="Only this shard; may be given again.", metavar="SHARD")
]
Failover = Annotated[
    str, typer.Option(help="Failover time of workers whose rows do not tell it, as KCL workers'.", metavar="SPAN")
]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", help="Write the plan to a file, for shardway app apply.", metavar="FILE")
]
Apply = Annotated[bool, typer.Option("--apply", help="Write it, once it is confirmed.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask: what is shown is confirmed.")]
Handoff = Annotated[bool, typer.Option("--handoff", help="Have live Shardway workers hand their leases over for it.")]
Inexact = Annotated[
    bool, typer.Option("--accept-inexact", help="Also write positions that do not say exactly where reading goes on.")
]
Save = Annotated[
    Path | None,
    typer.Option(help="File that keeps what was there; else APPLICATION-TIME.positions.json.", metavar="FILE"),
]


class ExportForm(StrEnum):
    """What ``shardway app export`` writes."""

    positions = "positions"
    kcl = "kcl"


def export_command(
    name: Name,
    form: Annotated[
        ExportForm, typer.Option("--format", help="positions; or kcl: items of a KCL table, as a scan tells them.")
    ] = ExportForm.positions,
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
) -> None:
    """Write an application's positions to standard output, as a document of JSON (shardway.positions/1)."""
    from shardway.inspect import Store
    from shardway.inspect.moves.documents import kcl_items
    from shardway.inspect.moves.positions import positions_of

    connection, where = (
        ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
        Store.parse(store, table),
    )
    names = Names((name,), store=(store, table))
    report = asyncio.run(looking(connection, lambda inspector: inspector.application(name, where), names=names))
    document = positions_of(report.application, dt.datetime.now(dt.UTC))
    if form is ExportForm.kcl:
        print(kcl_items(report.application).decode(), flush=True)
    else:
        show_report(document, [], "", Shape.json)
    for key, why in document.left_out.items():
        warn(f"left out: {key}: {why}")
    tell_missing(report.missing)
    if document.left_out or report.missing:
        raise typer.Exit(1)


def seek_command(
    name: Name,
    to: Annotated[str, typer.Option("--to", help=f"Where to go on: {HOW}.", metavar="PLACE")],
    shard: Shards = None,
    stream: OfStream = None,
    plan_file: PlanFile = None,
    apply: Apply = False,
    yes: Yes = False,
    handoff: Handoff = False,
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
    """Show what it takes to have an application go on at another place; with --apply, write it.

    A time, or the newest record, becomes a real position in each shard. A lease that a live worker has is not written,
    unless --handoff has Shardway workers hand theirs over.
    """
    from shardway.inspect import Goal, Store, plan_seek

    connection, where = (
        ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
        Store.parse(store, table),
    )
    goal = Goal(to, tuple(shard or ()))
    goal.at(0.0)

    async def look(inspector: Inspector) -> Plan:
        return await plan_seek(inspector, name, goal, stream=stream, store=where, failover_s=span_s(failover))

    say("shardway: looking whether the owners of leases live")
    plan = asyncio.run(looking(connection, look, names=Names((name,), stream, (store, table)), calls_per_s=rate))
    _go_on(plan, plan_file, output, lambda: _Writing(where, connection, yes, handoff, False, save), apply=apply)


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
        say(_skipped(skip, choice))
    before = _keeping_letter(skip, choice, connection)
    _go_on(skip.plan, None, output, lambda: _Writing(where, connection, yes, True, False, save, before), apply=apply)


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


def _skipped(skip: Skip, choice: DeadLettersToFile | DeadLettersToStream) -> str:
    from shardway.inspect.moves.skipping import position_text

    letter, place = skip.letter, getattr(choice, "path", None) or getattr(choice, "stream", None)
    return (
        f"the record {position_text(letter.position)} of {letter.shard_id}, which arrived at "
        f"{time_text(letter.arrived_at)} and has {len(letter.data or b'')} bytes, is passed over, and kept as a dead "
        f"letter in {place}"
    )


def import_command(
    name: Name,
    file: Annotated[Path, typer.Argument(help="The document; of Spark its checkpoint directory.", metavar="FILE")],
    form: Annotated[
        str,
        typer.Option(
            "--format", help="positions, kcl, spark-awslabs, databricks, kinsumer and others.", metavar="FORMAT"
        ),
    ] = "positions",
    scope: Annotated[
        str | None,
        typer.Option(help="Which rows of a table that several consumers share: a group, a stream.", metavar="NAME"),
    ] = None,
    stream: OfStream = None,
    plan_file: PlanFile = None,
    apply: Apply = False,
    yes: Yes = False,
    handoff: Handoff = False,
    accept_inexact: Inexact = False,
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
    """Show what it takes to have an application go on where a document says; with --apply, write it.

    It takes what export and --save have written, and what other consumers keep.
    """
    from shardway.inspect import Store, plan_import, positions_from

    connection, where = (
        ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
        Store.parse(store, table),
    )
    document = positions_from(file, form, taken_at=dt.datetime.now(dt.UTC), scope=scope)

    async def look(inspector: Inspector) -> Plan:
        return await plan_import(inspector, name, document, stream=stream, store=where, failover_s=span_s(failover))

    say("shardway: looking whether the owners of leases live")
    plan = asyncio.run(looking(connection, look, names=Names((name,), stream, (store, table)), calls_per_s=rate))
    _go_on(
        plan, plan_file, output, lambda: _Writing(where, connection, yes, handoff, accept_inexact, save), apply=apply
    )


def apply_command(
    file: Annotated[Path, typer.Argument(help="A plan that seek or import has written (--plan).", metavar="FILE")],
    yes: Yes = False,
    handoff: Handoff = False,
    accept_inexact: Inexact = False,
    save: Save = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Write a plan, if all rows are still as it saw them."""
    from shardway.inspect import Plan, Store

    try:
        if file.stat().st_size > PLAN_BYTES_MAX:
            raise OptionError(f"{file} has more than {PLAN_BYTES_MAX} bytes")
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    except OSError as fault:
        raise OptionError(f"{file}: {fault.strerror}") from fault
    except msgspec.DecodeError as fault:
        raise OptionError(f"{file} is no plan: {fault}") from None
    connection, where = (
        ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
        Store.parse(store, table),
    )
    _go_on(plan, None, output, lambda: _Writing(where, connection, yes, handoff, accept_inexact, save), apply=True)


class _Writing:
    """The options by which a plan is written."""

    def __init__(
        self,
        store: Store,
        connection: ConnectionOptions,
        yes: bool,
        handoff: bool,
        accept_inexact: bool,
        save: Path | None,
        before: Callable[[PositionsReport], Awaitable[None]] | None = None,
    ) -> None:
        """``before`` is awaited with the positions as they are, before anything is written; where it raises, nothing is
        written.
        """
        self._before = before
        self.store, self.connection, self.yes, self.save = store, connection, yes, save
        self.handoff, self.accept_inexact = handoff, accept_inexact

    def write(self, plan: Plan) -> Applied:
        from shardway.inspect import apply_plan, lease_table

        if plan.store != self.store.kind:
            raise OptionError(f"the plan is for {plan.store}: name the store (--store)")
        path = self.save or Path(f"{plan.application}-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%fZ}.positions.json")

        async def keep(found: PositionsReport) -> None:
            _keep(path, found)
            if self._before is not None:
                await self._before(found)

        async def write() -> Applied:
            table = lease_table(self.store, plan.application, self.connection)
            try:
                return await apply_plan(
                    plan,
                    table,
                    keep=keep,
                    handoff=self.handoff,
                    accept_inexact=self.accept_inexact,
                )
            finally:
                await table.close()

        return asyncio.run(write())

    def confirm(self, plan: Plan) -> None:
        """Ask the user to confirm the plan: nothing is written that was not confirmed."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise OptionError("nothing was written: there is no terminal to confirm it; give --yes")
        say(f"This writes {counted(len(plan.moves), 'lease')} of {plan.application}, {_where(plan)}.")
        say("Type the application's name to go on:")
        if sys.stdin.readline().strip() != plan.application:
            raise OptionError("nothing was written: it was not confirmed")


def _where(plan: Plan) -> str:
    """Return where the stream of a plan is: staging and production have the same names."""
    _, _, _, region, account, *_ = [*plan.stream_arn.split(":"), "", "", "", "", ""]
    return f"of the stream {plan.stream} in {region or 'an unknown region'}, account {account or 'unknown'}"


def _go_on(plan: Plan, plan_file: Path | None, output: Shape, writing: Any, *, apply: bool) -> None:
    """Show a plan, and write it if it is to be written."""
    if not apply or output is Shape.table:
        show_report(plan, plan.moves, _shown(plan), output)
    tell_missing(plan.missing)
    for key, why in plan.refused.items():
        warn(f"this cannot be written: {key}: {why}")
    if plan_file is not None:
        _create(plan_file, msgspec.json.format(msgspec.json.encode(plan), indent=2), "--plan")
    if not apply or plan.refused or not plan.moves:
        raise typer.Exit(1 if plan.refused else 0)
    writer = writing()
    writer.confirm(plan)
    applied = writer.write(plan)
    show_report(applied, [applied], _told(applied), output)
    raise typer.Exit(0 if applied.complete else 1)


def _keep(path: Path, found: PositionsReport) -> None:
    _create(path, msgspec.json.format(msgspec.json.encode(found), indent=2), "--save")
    say(f"shardway: what was there is kept in {path}")


def _create(path: Path, content: bytes, option: str) -> None:
    """Write a file that was not there before. It is on the disk when this returns."""
    try:
        with path.open("xb") as file:
            file.write(content + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        raise OptionError(f"{option} {path}: {fault.strerror}") from fault


def _shown(plan: Plan) -> str:
    shows_numbers = is_wide.get()  # two sequence numbers have 112 digits: the times say where a lease goes
    numbers = ("FROM", "TO") if shows_numbers else ()
    head = ("SHARD", "WAS", "NEXT RECORD", "DISTANCE", "OWNER", *numbers, "WHY")
    rows = [
        (
            one.shard_id,
            time_text(one.next_before),
            time_text(one.next_after),
            _distance(one.distance_s),
            one.life.value if one.before is None or one.before.owner is None else f"{one.before.owner}: {one.life}",
            *(_numbers(one) if shows_numbers else ()),
            ("" if one.exact else "not exact: ")
            + one.why
            + ("; the prepared checkpoint is dropped" if one.before and one.before.pending else ""),
        )
        for one in plan.moves
    ]
    lines = [f"{plan.application}: {counted(len(plan.moves), 'lease')} of {len(plan.moves) + len(plan.stays)} move"]
    lines[0] += f", {_where(plan)}"
    if rows:
        lines.append(table_of(head, rows))
    if plan.stays:
        lines.append(pairs_of(("stays", f"{key}: {why}") for key, why in plan.stays.items()))
    if plan.live:
        lines.append(f"{len(plan.live)} of them have live owners: stop these, or have them hand over (--handoff)")
    return "\n".join(lines)


def _numbers(move: Move) -> tuple[str, str]:
    """Return where a lease stands, and where it is to stand, as its row says it."""
    before = move.before
    return (
        "(no row)" if before is None else _place(before.checkpoint, before.sub_sequence_number),
        _place(move.checkpoint, move.sub_sequence_number),
    )


def _place(checkpoint: str, sub: int) -> str:
    return checkpoint + (f"/{sub}" if sub else "")


def _distance(distance_s: float | None) -> str | None:
    if distance_s is None:
        return None
    if abs(distance_s) < 1:
        return "none"
    return f"{span_text(abs(distance_s))} {'back' if distance_s < 0 else 'forward'}"


def _told(applied: Applied) -> str:
    lines = [f"{counted(len(applied.written), 'lease')} of {applied.application} written"]
    lines += [f"{key} was refused: {why}" for key, why in applied.refused.items()]
    lines += [f"{key}: it is not known whether it is written: {why}" for key, why in applied.unknown.items()]
    return "\n".join(lines)
