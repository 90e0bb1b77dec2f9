"""``penstock doctor``: known symptoms of an application and its stream, and what to do about them. It only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.application import History, StoreText, Table
from penstock.cli.looking import Earlier, looking, snapshot_since
from penstock.cli.output import Output, Rate, Shape, Since, pairs_of, show_report, tell_missing
from penstock.cli.producing import EndpointUrl, Profile, Region
from penstock.errors import OptionError
from penstock.inspect.moments import span_s
from penstock.wiring import ConnectionOptions

if TYPE_CHECKING:
    from penstock.inspect import DoctorReport, Finding, Inspector, Snapshot

app = typer.Typer(
    invoke_without_command=True,
    help="Known symptoms of an application and its stream: what shows them, and what to do.",
)

SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024

Application = Annotated[
    str | None, typer.Option("--application", help="Application to look at.", metavar="APPLICATION")
]
OfStream = Annotated[str | None, typer.Option("--stream", help="Stream to look at.", metavar="STREAM")]
Window = Annotated[str, typer.Option(help="How long to look: one look shows no trend.", metavar="SPAN")]


@app.callback()
def command(
    context: typer.Context,
    application: Application = None,
    stream: OfStream = None,
    window: Window = "25s",
    history: History = None,
    since: Since = None,
    file: Annotated[
        Path | None, typer.Option("--from", help="Examine this snapshot in place of AWS.", metavar="FILE")
    ] = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: Output = Shape.table,
) -> None:
    """Look for all known symptoms. Status 1 when there is one that is critical or a warning.

    Name an application, a stream, or both; or a snapshot that penstock doctor collect has written.
    """
    from penstock.inspect import examine

    if context.invoked_subcommand is not None:
        sources = [context.get_parameter_source(one) for one in context.params]
        if any(one is not None and one.name == "COMMANDLINE" for one in sources):
            raise OptionError(
                f"options go behind {context.invoked_subcommand}: penstock doctor collect --application ..."
            )
        return
    if file is not None:
        if application is not None or stream is not None:
            raise OptionError("--from examines a snapshot as it is: leave --application and --stream out")
        snapshot = snapshot_in(file)
    else:
        connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
        snapshot = collected((application, stream), (store, table), connection, window, rate, Earlier(history, since))
    report = examine(snapshot)
    show_report(report, report.findings, _told(report), output)
    tell_missing(report.missing)
    if any(one.severity != "info" for one in report.findings):
        raise typer.Exit(1)


@app.command("collect")
def collect_command(
    application: Application = None,
    stream: OfStream = None,
    window: Window = "25s",
    history: History = None,
    since: Since = None,
    store: StoreText = "dynamodb",
    table: Table = None,
    rate: Rate = 2.0,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
) -> None:
    """Write a snapshot to standard output, for penstock doctor --from. It holds no payload and no partition key."""
    connection = ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile)
    snapshot = collected((application, stream), (store, table), connection, window, rate, Earlier(history, since))
    show_report(snapshot, [], "", Shape.json)
    tell_missing(snapshot.missing)


def collected(
    of: tuple[str | None, str | None],
    where: tuple[str, str | None],
    connection: ConnectionOptions,
    window: str,
    rate: float,
    earlier: Earlier,
) -> Snapshot:
    """One look at all that a snapshot ``of`` an application and a stream holds. ``where``: the store and the table.

    Raises OptionError.
    """
    from penstock.inspect import LagTimes, Store

    application, stream = of
    if application is None and stream is None:
        raise OptionError("name what to look at: --application APPLICATION, --stream STREAM, or both")
    store, times = Store.parse(*where), LagTimes(window_s=span_s(window))

    async def look(inspector: Inspector) -> Snapshot:
        return await snapshot_since(inspector, application, stream, store, times, earlier)

    return asyncio.run(looking(connection, look, calls_per_s=rate))


def snapshot_in(path: Path) -> Snapshot:
    """What penstock doctor collect has written. Raises OptionError."""
    from penstock.inspect import Snapshot

    try:
        if path.stat().st_size > SNAPSHOT_BYTES_MAX:
            raise OptionError(f"--from {path}: it has more than {SNAPSHOT_BYTES_MAX} bytes: it is no snapshot")
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except OSError as fault:
        raise OptionError(f"--from {path}: {fault.strerror}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise OptionError(f"--from {path}: it is no snapshot: {fault}") from None


def _told(report: DoctorReport) -> str:
    if not report.findings:
        return f"none of {len(report.looked_for)} symptoms is there"
    return "\n\n".join(map(_finding, report.findings))


def _finding(found: Finding) -> str:
    head = f"{found.id} {found.severity.value}: {found.title} ({found.confidence.value})"
    pairs = [("  seen", one) for one in found.evidence]
    return "\n".join([head, pairs_of([*pairs, ("  do", found.do), ("  verify", found.verify)])])
