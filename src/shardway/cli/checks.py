"""``shardway check`` prints one line and ends with a status from 0 to 3, as Nagios' plugins do. It only reads."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

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
from shardway.cli.looking import Names, lag_since, looking
from shardway.cli.producing import EndpointUrl, Profile, Region, Stream
from shardway.cli.report_output import Output, Rate, Shape, Since, show_report
from shardway.errors import ShardwayError
from shardway.inspect.moments import span_s
from shardway.shown import one_line
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.inspect import Checked, Inspector


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
