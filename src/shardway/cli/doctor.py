"""The commands that judge an application and its stream: for people, by money, and for a monitoring system.

``shardway doctor`` shows known symptoms, and what to do about them. ``shardway cost`` shows what a stream and its
readers cost in a month, in each mode, and what would cost less. ``shardway check`` prints one line and ends with a
status from 0 to 3, as Nagios' plugins do. All three only read.
"""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from shardway.cli.application import (
    History,
    Name,
    OfStream,
    OkText,
    StalledText,
    StoreText,
    Table,
    Window,
    earlier_of,
)
from shardway.cli.completing import complete_applications, complete_streams
from shardway.cli.looking import LookHistory, Names, lag_since, looking, snapshot_since
from shardway.cli.output import Output, Rate, Shape, Since, pairs_of, show_report, tell_missing
from shardway.cli.producing import EndpointUrl, Profile, Region, Stream
from shardway.cli.tables import table_of
from shardway.errors import OptionError, ShardwayError
from shardway.inspect.moments import span_s
from shardway.shown import one_line
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.inspect import Checked, CostReport, DoctorReport, Finding, Inspector, LagTimes, ModeCost, Snapshot

# --- symptoms -------------------------------------------------------------------------------------

SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024

OptionalName = Annotated[
    str | None,
    typer.Argument(
        help="Name of the application.",
        metavar="APPLICATION",
        show_default=False,
        autocompletion=complete_applications,
    ),
]
INCOMPLETE = 3
"""The exit status of a doctor that found nothing, and looked too short for some symptoms."""
SnapshotStream = Annotated[
    str | None,
    typer.Option("--stream", help="Stream to look at.", metavar="STREAM", autocompletion=complete_streams),
]
SnapshotWindow = Annotated[str, typer.Option(help="How long to look: one look shows no trend.", metavar="SPAN")]


def command(
    application: OptionalName = None,
    stream: SnapshotStream = None,
    window: SnapshotWindow = "25s",
    ok: OkText = "60s",
    stalled: StalledText = "2m",
    history: History = None,
    since: Since = None,
    file: Annotated[
        Path | None, typer.Option("--from", help="Examine this snapshot in place of AWS.", metavar="FILE")
    ] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="Write a snapshot for --from, without payloads and partition keys.")
    ] = False,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Look for all known symptoms of an application, of a stream (--stream), or of both.

    Status 1: one is there that is critical or a warning. Status 3: none is, and the look was too short for some, which
    are named. Status 0: none is there. --collect writes what was seen to standard output in place of a verdict.
    """
    from shardway.inspect import LagTimes, examine

    if file is not None:
        if application is not None or stream is not None or collect:
            raise OptionError("--from examines a snapshot as it is: leave APPLICATION, --stream and --collect out")
        snapshot = snapshot_in(file)
    else:
        connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
        times = LagTimes(window_s=span_s(window), ok_s=span_s(ok), stalled_s=span_s(stalled))
        earlier = LookHistory(history, since)
        snapshot = collected((application, stream), (store, table), connection, times, rate, earlier)
    if collect:
        show_report(snapshot, [], "", Shape.json)
        tell_missing(snapshot.missing)
        return
    report = examine(snapshot)
    show_report(report, report.findings, _told(report), output)
    tell_missing(report.missing)
    if any(one.severity != "info" for one in report.findings):
        raise typer.Exit(1)
    if report.not_looked_for:
        raise typer.Exit(INCOMPLETE)


def collected(
    of: tuple[str | None, str | None],
    where: tuple[str, str | None],
    connection: ConnectionOptions,
    times: LagTimes,
    rate: float,
    earlier: LookHistory,
) -> Snapshot:
    """Take a snapshot ``of`` an application and a stream. ``where``: the store and the table.

    Raises OptionError.
    """
    from shardway.inspect import Store

    application, stream = of
    if application is None and stream is None:
        raise OptionError("name what to look at: APPLICATION, --stream STREAM, or both")
    store = Store.parse(*where)

    async def look(inspector: Inspector) -> Snapshot:
        return await snapshot_since(inspector, application, stream, store, times, earlier)

    names = Names(() if application is None else (application,), stream, where)
    return asyncio.run(looking(connection, look, names=names, calls_per_s=rate))


def snapshot_in(path: Path) -> Snapshot:
    """Return the snapshot that shardway doctor --collect has written to a file. Raises OptionError."""
    from shardway.inspect import Snapshot

    try:
        if path.stat().st_size > SNAPSHOT_BYTES_MAX:
            raise OptionError(f"--from {path}: it has more than {SNAPSHOT_BYTES_MAX} bytes: it is no snapshot")
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except OSError as fault:
        raise OptionError(f"--from {path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise OptionError(f"--from {path}: it is no snapshot: {fault}") from None


def _told(report: DoctorReport) -> str:
    parts = [_finding(one) for one in report.findings]
    if not parts:
        parts = [f"none of {len(report.looked_for)} symptoms is there"]
    if report.not_looked_for:
        ids = [one.id for one in report.not_looked_for]
        lines = [f"not looked for, since the look was too short: {', '.join(ids)}. Give --window 3m"]
        lines += [pairs_of((f"  {one.id}", f"{one.title}: {why}") for one in report.not_looked_for for why in one.why)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _finding(found: Finding) -> str:
    head = f"{found.id} {found.severity.value}: {found.title} ({found.confidence.value})"
    pairs = [("  seen", one) for one in found.evidence]
    return "\n".join([head, pairs_of([*pairs, ("  do", found.do), ("  verify", found.verify)])])


# --- cost -----------------------------------------------------------------------------------------


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


# --- checks ---------------------------------------------------------------------------------------


class _Checks(typer.core.TyperGroup):
    """All checks. Whatever keeps one from being made is UNKNOWN, as Nagios wants it: a status of 1 or 2 would say that
    something is wrong with what is checked.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except ShardwayError as fault:
            end_unknown(str(fault))
        except Exception as fault:
            # typer brings a copy of click in some versions and not in others, so a wrong use has no one class
            told = getattr(fault, "format_message", None)
            if told is None:
                traceback.print_exc()
            end_unknown(told() if told is not None else f"the check failed: {type(fault).__name__}")


def end_unknown(why: str) -> NoReturn:
    """Print that nothing could be checked, and why, and end with the status for that."""
    from shardway.inspect import unknown

    print(one_line(unknown("check", why).line), flush=True)
    raise typer.Exit(3)


checks = typer.Typer(
    cls=_Checks, no_args_is_help=True, help="Checks for a monitoring system: a line, and 0 to 3 as the exit status."
)


def _span(what: str) -> Any:
    return typer.Option(help=what, metavar="SPAN")


@checks.command("lag")
def lag_command(
    name: Name,
    stream: OfStream = None,
    warning: Annotated[str, _span("Warn when the oldest unread record is older.")] = "5m",
    critical: Annotated[str, _span("It is critical when the oldest unread record is older.")] = "1h",
    loses_warning: Annotated[str, _span("Warn when records are lost in less than this.")] = "12h",
    loses_critical: Annotated[str, _span("It is critical when records are lost in less than this.")] = "6h",
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
    """Check whether an application keeps up, and how long it takes until records are lost.

    An owner that has stopped, a stalled checkpoint, and a shard without an owner are critical, whatever the lag is.
    Shardway workers tell the first two in one look; of others they take two: give --history FILE, or --window.
    """
    from shardway.inspect import LagLimits, LagTimes, Store, check_lag

    async def look(inspector: Inspector) -> Checked:
        limits = LagLimits(
            warning_s=span_s(warning),
            critical_s=span_s(critical),
            loses_warning_s=span_s(loses_warning),
            loses_critical_s=span_s(loses_critical),
        )
        times = LagTimes(window_s=span_s(window), ok_s=span_s(ok), stalled_s=span_s(stalled))
        where = Store.parse(store, table)
        return check_lag(await lag_since(inspector, name, stream, where, times, earlier_of(history, since)), limits)

    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    _end("lag", connection, look, Names((name,), stream, (store, table)), output, rate)


@checks.command("leases")
def leases_command(
    name: Name,
    window: Annotated[
        str, typer.Option(help="How long to look at most for a sign of life of each owner.", metavar="SPAN")
    ] = "25s",
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Check that a worker that lives has each lease of an application, and that each row can be read.

    Shardway workers tell in one look that they live. Of others the command waits for a renewal of each lease: some
    seconds where all live, --window where one does not. It takes no --history: a renewal says that an owner lives now,
    and what an earlier run saw does not.
    """
    from shardway.inspect import Store, check_leases, look_for_renewals

    async def look(inspector: Inspector) -> Checked:
        where = Store.parse(store, table)
        report, renewals = await look_for_renewals(inspector, name, where, window_s=span_s(window))
        return check_leases(report.application, report.missing, renewals)

    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    _end("leases", connection, look, Names((name,), store=(store, table)), output)


@checks.command("stream")
def stream_command(
    stream: Stream,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Check that a stream is active, that its open shards take all hash keys, and that its consumers are active."""
    from shardway.inspect import check_stream

    async def look(inspector: Inspector) -> Checked:
        return check_stream(await inspector.stream(stream))

    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    _end("stream", connection, look, Names(stream=stream), output)


def _end(
    check: str,
    connection: ConnectionOptions,
    look: Callable[[Inspector], Awaitable[Checked]],
    names: Names,
    shape: Shape,
    rate: float | None = None,
) -> None:
    """Make a check, show what it found, and end with its status. An error that keeps the check from being made is
    UNKNOWN.
    """
    from shardway.inspect import unknown

    try:
        found = asyncio.run(looking(connection, look, names=names, calls_per_s=rate))
    except ShardwayError as fault:
        found = unknown(check, str(fault))
    show_report(found, [found], one_line(found.line), shape)
    raise typer.Exit(int(found.status))
