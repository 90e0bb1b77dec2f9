"""``shardway cost`` shows what a stream and its readers cost in a month, in each mode, and what would cost less."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.application import (
    StoreText,
    Table,
)
from shardway.cli.doctor import OptionalName, SnapshotStream, SnapshotWindow, collected, snapshot_in
from shardway.cli.looking import LookHistory
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, pairs_of, show_report, tell_missing
from shardway.cli.tables import table_of
from shardway.errors import OptionError
from shardway.inspect.moments import span_s
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.inspect import CostReport, ModeCost


def cost_command(
    application: OptionalName = None,
    stream: SnapshotStream = None,
    window: SnapshotWindow = "25s",
    file: Annotated[
        Path | None, typer.Option("--from", help="Compute it from this snapshot in place of AWS.", metavar="FILE")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Prices of another region, or of your own.", metavar="FILE")
    ] = None,
    readers: Annotated[
        int | None, typer.Option(help="Applications that poll all of the stream; else as measured.", min=0, metavar="N")
    ] = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Show what a stream, its readers, their leases and metrics cost in a month, and what would cost less.

    All is computed from measured traffic and a dated list of prices, by default of us-east-1. No price is fetched.
    """
    from shardway.inspect import LagTimes, cost_of, prices_from

    known = prices_from(prices)
    if file is not None:
        if application is not None or stream is not None:
            raise OptionError("--from takes a snapshot as it is: leave APPLICATION and --stream out")
        snapshot = snapshot_in(file)
    else:
        connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
        times = LagTimes(window_s=span_s(window))
        snapshot = collected((application, stream), (store, table), connection, times, rate, LookHistory(None))
    report = cost_of(snapshot, known, readers=readers)
    show_report(report, report.modes, _cost_told(report), output)
    tell_missing(snapshot.missing)


def _cost_told(report: CostReport) -> str:
    money = report.currency
    parts = [f"{report.monthly:,.2f} {money} a month, by the prices of {report.prices_as_of} in {report.region}"]
    if (traffic := report.traffic) is not None:
        carried = f"{traffic.records_per_s:,.1f} records/s, {traffic.bytes_per_s / 1024:,.1f} KiB/s"
        kept = f"{traffic.shards} shards, {traffic.retention_hours:g} h, {traffic.fan_out} fan-out consumers"
        parts.append(pairs_of([("carries", carried), ("measured by", traffic.measured), ("keeps", kept)]))
    rows = [
        (_mode_named(mode), one.what, f"{one.quantity:,.2f} {one.unit}", f"{one.monthly:,.2f}")
        for mode in report.modes
        for one in mode.items
    ]
    rows += [("besides", one.what, f"{one.quantity:,.2f} {one.unit}", f"{one.monthly:,.2f}") for one in report.around]
    if rows:
        parts.append(table_of(("MODE", "FOR", "QUANTITY", money), rows))
    if report.modes:
        sums = ((_mode_named(mode), f"{mode.monthly:,.2f}", mode.remark or "") for mode in report.modes)
        parts.append(table_of(("MODE", money, "REMARK"), sums))
    if report.savings:
        less = ((one.what, f"{one.monthly:,.2f}", one.why, one.id) for one in report.savings)
        parts.append(table_of(("WHAT WOULD COST LESS", money, "WHY", "ID"), less))
    parts += [f"not computed: {one}" for one in report.left_out]
    return "\n\n".join(parts)


def _mode_named(mode: ModeCost) -> str:
    return mode.mode + (" (now)" if mode.current else "")
