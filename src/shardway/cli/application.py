"""``shardway app``: the applications that read streams, their leases and workers, and how far they are behind.

It only reads, and needs no running Shardway: tables of the KCL 1.x, 2.x and 3.x are shown as those of Shardway are.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardway.cli.completing import complete_applications, complete_streams
from shardway.cli.lag_table import headline, lag_lines, painted
from shardway.cli.looking import LookHistory, Names, lag_since, looking
from shardway.cli.output import warn
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, Since, pairs_of, show_report, tell_missing
from shardway.cli.tables import Line, table_of, terminal_columns
from shardway.errors import OptionError
from shardway.inspect.moments import span_s, time_text
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.inspect import ApplicationReport, Inspector, LagReport

app = typer.Typer(no_args_is_help=True, help="Applications: their leases and workers, and how far they are behind.")

Name = Annotated[
    str, typer.Argument(help="Name of the application.", metavar="APPLICATION", autocompletion=complete_applications)
]
StoreText = Annotated[
    str, typer.Option("--store", help="dynamodb, sqlite:FILE or postgresql://HOST/DATABASE.", metavar="STORE")
]
Table = Annotated[
    str | None,
    typer.Option(
        "--lease-table",
        help="Lease table; else the application's name in DynamoDB, and leases elsewhere.",
        metavar="TABLE",
    ),
]
OfStream = Annotated[
    str | None,
    typer.Option(
        "--stream",
        help="Stream of the leases, where they do not name it.",
        metavar="STREAM",
        autocompletion=complete_streams,
    ),
]
Window = Annotated[
    str, typer.Option(help="Look again for so long, as in 30s: one look shows no trend.", metavar="SPAN")
]
OkText = Annotated[str, typer.Option("--ok", help="A shard that is less behind keeps up.", metavar="SPAN")]
StalledText = Annotated[
    str, typer.Option("--stalled", help="A checkpoint that stands still for so long is stalled.", metavar="SPAN")
]
History = Annotated[
    Path | None,
    typer.Option(help="File that keeps the looks of the last hour, so that the next run sees a trend.", metavar="FILE"),
]


@app.command("ls")
def ls_command(
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """List the applications that have lease tables."""
    from shardway.inspect import Store

    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    where = Store.parse(store, table)
    report = asyncio.run(looking(connection, lambda inspector: inspector.applications(where)))
    rows = (
        (
            one.name,
            one.store,
            one.leases,
            ", ".join(["Shardway"] * one.workers_table + ["KCL 3.0 to 3.4"] * one.coordinator_table) or None,
        )
        for one in report.applications
    )
    show_report(report, report.applications, table_of(("APPLICATION", "STORE", "LEASES", "TABLES OF"), rows), output)
    tell_missing(report.missing)


@app.command("describe")
def describe_command(
    name: Name,
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show an application's leases and workers."""
    report = _read(name, store, table, ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile))
    show_report(report, report.application.leases, _application_text(report), output)
    for key, why in report.application.unreadable.items():
        warn(f"the row {key} is no lease that can be read: {why}")
    tell_missing(report.missing)


@app.command("lag")
def lag_command(
    name: Name,
    stream: OfStream = None,
    window: Window = "0s",
    ok: OkText = "60s",
    stalled: StalledText = "2m",
    history: History = None,
    since: Since = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show how far an application is behind, shard by shard, with a verdict and the time until records are lost.

    One look tells where each lease stands. Whether it moves takes two: with --window the command looks again for a
    while, with --history it compares with its own earlier runs, or with those --since a time.
    """
    from shardway.inspect import LagTimes, Store

    earlier = earlier_of(history, since)

    connection, where = (
        ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
        Store.parse(store, table),
    )
    times = LagTimes(window_s=span_s(window), ok_s=span_s(ok), stalled_s=span_s(stalled))

    async def look(inspector: Inspector) -> LagReport:
        return await lag_since(inspector, name, stream, where, times, earlier)

    report = asyncio.run(looking(connection, look, names=Names((name,), stream, (store, table)), calls_per_s=rate))
    show_report(report, report.shards, _lag_text(report), output)
    tell_missing(report.missing)


def earlier_of(history: Path | None, since: str | None) -> LookHistory:
    """Return the looks of earlier runs that count. Raises OptionError."""
    if since is not None and history is None:
        raise OptionError("--since chooses among the looks of earlier runs: name the file that has them with --history")
    return LookHistory(history, since)


def _read(name: str, store: str, table: str | None, connection: ConnectionOptions) -> ApplicationReport:
    from shardway.inspect import Store

    where = Store.parse(store, table)
    names = Names((name,), store=(store, table))
    return asyncio.run(looking(connection, lambda inspector: inspector.application(name, where), names=names))


def _application_text(report: ApplicationReport) -> str:
    found = report.application
    pairs: list[tuple[str, Any]] = [
        ("application", found.name),
        ("store", found.store),
        ("written by", ", ".join(found.kinds)),
        ("streams", ", ".join(found.streams)),
        ("fleet's mode", found.client_version),
        ("table migration", found.table_migration),
        ("other rows", ", ".join(found.other_rows)),
    ]
    for one in found.tables:
        capacity = "" if one.read_units is None else f" {one.read_units} reads/s, {one.write_units} writes/s"
        indexes = "".join(f", index {name} {status}" for name, status in one.indexes.items())
        pairs.append(("table", f"{one.name}: {one.status}, {one.billing}{capacity}{indexes}"))
    workers = (
        (one.worker_id, one.kind, one.leases, _remarks(one.leader, one.leaving), time_text(one.updated_at))
        for one in found.workers
    )
    leases = (
        (
            one.shard_id if one.stream is None else f"{one.stream} {one.shard_id}",
            one.owner + (f" -> {one.next_owner}" if one.next_owner else "") if one.owner else None,
            one.counter,
            one.checkpoint + (f"/{one.sub_sequence_number}" if one.sub_sequence_number else ""),
            time_text(one.checkpoint_at),
            one.pending_checkpoint,
        )
        for one in found.leases
    )
    return "\n\n".join(
        [
            pairs_of(pairs),
            table_of(("WORKER", "KIND", "LEASES", "", "SEEN"), workers),
            table_of(("SHARD", "OWNER", "COUNTER", "CHECKPOINT", "ARRIVED", "PENDING"), leases),
        ]
    )


def _remarks(leader: bool, leaving: bool) -> str | None:
    return ", ".join(["leader"] * leader + ["leaving"] * leaving) or None


def _lag_text(report: LagReport) -> str:
    return "\n".join(painted(one) for one in [Line(headline(report)), *lag_lines(report, terminal_columns())])
