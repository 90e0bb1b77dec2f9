"""``penstock check``: one line and an exit status from 0 to 3, as Nagios' plugins have them. It only reads."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from penstock.cli.application import History, Name, OfStream, StoreText, Table, Window, earlier_of
from penstock.cli.looking import lag_since, looking
from penstock.cli.output import Output, Rate, Shape, Since, show_report
from penstock.cli.producing import EndpointUrl, Profile, Region, Stream
from penstock.errors import PenstockError
from penstock.inspect.moments import span_s
from penstock.shown import one_line
from penstock.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.inspect import Checked, Inspector


class _Checks(typer.core.TyperGroup):
    """All checks. Whatever keeps one from being made is UNKNOWN, as Nagios wants it: a status of 1 or 2 would say that
    something is wrong with what is checked.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except PenstockError as fault:
            end_unknown(str(fault))
        except Exception as fault:
            # typer brings a copy of click in some versions and not in others, so a wrong use has no one class
            told = getattr(fault, "format_message", None)
            if told is None:
                traceback.print_exc()
            end_unknown(told() if told is not None else f"the check failed: {type(fault).__name__}")


def end_unknown(why: str) -> NoReturn:
    """Say that nothing could be checked, and why."""
    from penstock.inspect import unknown

    print(one_line(unknown("check", why).line), flush=True)
    raise typer.Exit(3)


app = typer.Typer(
    cls=_Checks, no_args_is_help=True, help="Checks for a monitoring system: a line, and 0 to 3 as the exit status."
)


def _span(what: str) -> Any:
    return typer.Option(help=what, metavar="SPAN")


@app.command("lag")
def lag_command(
    name: Name,
    stream: OfStream = None,
    warning: Annotated[str, _span("Warn when the oldest unread record is older.")] = "5m",
    critical: Annotated[str, _span("It is critical when the oldest unread record is older.")] = "1h",
    loses_warning: Annotated[str, _span("Warn when records are lost in less than this.")] = "12h",
    loses_critical: Annotated[str, _span("It is critical when records are lost in less than this.")] = "6h",
    window: Window = "0s",
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

    An owner that has stopped, a stalled checkpoint, and a shard without an owner are critical, whatever the lag is. The
    first two take two looks: give --history FILE, or --window.
    """
    from penstock.inspect import LagLimits, LagTimes, Store, check_lag

    async def look(inspector: Inspector) -> Checked:
        limits = LagLimits(
            warning_s=span_s(warning),
            critical_s=span_s(critical),
            loses_warning_s=span_s(loses_warning),
            loses_critical_s=span_s(loses_critical),
        )
        times, where = LagTimes(window_s=span_s(window)), Store.parse(store, table)
        return check_lag(await lag_since(inspector, name, stream, where, times, earlier_of(history, since)), limits)

    _end("lag", ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile), look, output, rate)


@app.command("leases")
def leases_command(
    name: Name,
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Check that a worker has each lease of an application, and that each row can be read."""
    from penstock.inspect import Store, check_leases

    async def look(inspector: Inspector) -> Checked:
        report = await inspector.application(name, Store.parse(store, table))
        return check_leases(report.application, report.missing)

    _end("leases", ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile), look, output)


@app.command("stream")
def stream_command(
    stream: Stream,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Check that a stream is active, that its open shards take all hash keys, and that its consumers are active."""
    from penstock.inspect import check_stream

    async def look(inspector: Inspector) -> Checked:
        return check_stream(await inspector.stream(stream))

    _end("stream", ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile), look, output)


def _end(
    check: str,
    connection: ConnectionOptions,
    look: Callable[[Inspector], Awaitable[Checked]],
    shape: Shape,
    rate: float | None = None,
) -> None:
    """Make a check, show what it found, and end with its status. What keeps it from that is UNKNOWN."""
    from penstock.inspect import unknown

    try:
        found = asyncio.run(looking(connection, look, calls_per_s=rate))
    except PenstockError as fault:
        found = unknown(check, str(fault))
    show_report(found, [found], one_line(found.line), shape)
    raise typer.Exit(int(found.status))
