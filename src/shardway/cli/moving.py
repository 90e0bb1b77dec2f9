"""``shardway app seek``, ``export``, ``import`` and ``apply`` move positions, with a preview, and keep them before.

Nothing is written without ``--apply``, and then only what was shown and confirmed.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from shardway.cli.application import Name, OfStream, StoreText, Table
from shardway.cli.looking import Names, looking
from shardway.cli.output import say, warn
from shardway.cli.plan_writing import (
    PLAN_BYTES_MAX,
    Apply,
    Failover,
    Handoff,
    Inexact,
    PlanFile,
    PlanWriting,
    Save,
    Shards,
    Yes,
    go_on_with,
)
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, show_report, tell_missing
from shardway.errors import OptionError
from shardway.inspect.moments import HOW, span_s
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.inspect import Inspector, Plan


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
    go_on_with(plan, plan_file, output, lambda: PlanWriting(where, connection, yes, handoff, False, save), apply=apply)


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
    go_on_with(
        plan, plan_file, output, lambda: PlanWriting(where, connection, yes, handoff, accept_inexact, save), apply=apply
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
    go_on_with(
        plan, None, output, lambda: PlanWriting(where, connection, yes, handoff, accept_inexact, save), apply=True
    )
