"""``shardway doctor`` shows known symptoms of an application and its stream, and what to do. It only reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from shardway.cli.application import (
    History,
    OkText,
    StalledText,
    StoreText,
    Table,
)
from shardway.cli.completing import complete_applications, complete_streams
from shardway.cli.looking import LookHistory, Names, looking, snapshot_since
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.cli.report_output import Output, Rate, Shape, Since, pairs_of, show_report, tell_missing
from shardway.errors import OptionError
from shardway.inspect.moments import span_s
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.inspect import DoctorReport, Finding, Inspector, LagTimes, Snapshot


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
    show_report(report, report.findings, _report_text(report), output)
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


def _report_text(report: DoctorReport) -> str:
    parts = [_finding_text(one) for one in report.findings]
    if not parts:
        parts = [f"none of {len(report.looked_for)} symptoms is there"]
    if report.not_looked_for:
        ids = [one.id for one in report.not_looked_for]
        lines = [f"not looked for, since the look was too short: {', '.join(ids)}. Give --window 3m"]
        lines += [pairs_of((f"  {one.id}", f"{one.title}: {why}") for one in report.not_looked_for for why in one.why)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _finding_text(found: Finding) -> str:
    head = f"{found.id} {found.severity.value}: {found.title} ({found.confidence.value})"
    pairs = [("  seen", one) for one in found.evidence]
    return "\n".join([head, pairs_of([*pairs, ("  do", found.do), ("  verify", found.verify)])])
