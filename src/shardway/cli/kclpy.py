"""``shardway kclpy`` runs a record processor that was written for amazon_kclpy, without a JVM."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.interrupt import Stopping
from shardway.cli.output import warn
from shardway.cli.producing import EndpointUrl, Profile, Region, cli_logger, stop_logger
from shardway.errors import OptionError
from shardway.events import StopBegun, StopWaits
from shardway.kclpy.session import OnError
from shardway.tasks import logged, spawn
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.events import Event
    from shardway.kclpy.properties import KclOptions
    from shardway.telemetry.exporting import Exporter

Target = Annotated[
    str | None,
    typer.Argument(
        help="module:Processor, file.py:Processor, or a script that runs a KCLProcess. Without it: the script that the "
        "properties name as executableName.",
        metavar="TARGET",
        show_default=False,
    ),
]
File = Annotated[
    Path | None, typer.Option("--properties", help="The properties file of the MultiLangDaemon.", metavar="FILE")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="One more property, or another value for one; may be repeated.", metavar="NAME=VALUE"),
]
Shim = Annotated[bool, typer.Option("--shim", help="Do without amazon_kclpy also where it is installed.")]
Errors = Annotated[
    OnError,
    typer.Option(
        "--on-error",
        help="What to do with records for which the processor raises: give them again until it does not, or skip "
        "them, as amazon_kclpy does.",
    ),
]

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        help="Serve /metrics for Prometheus, /health/live and /health/ready there; 0 takes a free port.",
        metavar="PORT",
    ),
]
Host = Annotated[str, typer.Option("--host", help="The address that --metrics-port listens on.", metavar="ADDRESS")]


def command(
    target: Target = None,
    properties: File = None,
    settings: Set = None,
    shim: Shim = False,
    on_error: Errors = OnError.RETRY,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    metrics_port: MetricsPort = None,
    host: Host = "127.0.0.1",
) -> None:
    """Read a stream with a record processor that was written for amazon_kclpy, until SIGTERM or Ctrl-C.

    Its shards are handed to the application's other workers then; a second signal ends it at once. Exit status: 0
    stopped, 1 failed, 128 + the signal when there was a second one.
    """
    from shardway.kclpy.properties import options_of

    given = _properties(properties, settings or [])
    options = options_of(
        given,
        target=target or _executable(given, properties),
        shim=shim,
        on_error=on_error,
        connection=ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile),
    )
    for remark in options.remarks:
        if target is not None or not remark.lower().startswith("executablename"):
            warn(remark)
    from shardway.telemetry import CloudWatchExporter, PrometheusExporter

    with contextlib.ExitStack() as exporters:
        found: list[Exporter] = []
        if options.metrics is not None:
            found.append(
                exporters.enter_context(CloudWatchExporter(options.metrics, connection=options.metrics_connection))
            )
        if metrics_port is not None:
            endpoint: PrometheusExporter = exporters.enter_context(PrometheusExporter(metrics_port, host=host))
            found.append(endpoint)
            warn(f"serving /metrics on {host}, port {endpoint.port}")
        asyncio.run(_run(options, found))


async def _run(options: KclOptions, exporters: list[Exporter]) -> None:
    from shardway.kclpy.daemon import Daemon
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.telemetry import together
    from shardway.telemetry.log import log_events

    stopping, stops = Stopping(), log_events(stop_logger())

    def tell_stops(event: Event) -> None:
        if isinstance(event, StopBegun | StopWaits):
            stops(event)

    on_event = together(log_events(cli_logger()), tell_stops, *exporters)
    consumer = Consumer(
        options.stream,
        application=options.application,
        worker_id=options.worker_id,
        connection=options.connection,
        on_event=on_event,
        **options.consumer.arguments(),
    )
    with stopping.listening():
        async with consumer:
            warn(f"reading {options.stream} as {options.application}, worker {consumer.worker_id}")
            hurrying = spawn(_end_at_once(stopping), logged("a second signal does not end the process at once"))
            telling = spawn(_tell_stop(stopping, options.application, on_event), logged("a stop was not told"))
            try:
                await Daemon(options.daemon, warn).run(consumer, stopping.signalled)
            finally:
                hurrying.cancel()
                telling.cancel()


async def _tell_stop(stopping: Stopping, application: str, on_event: Callable[[Event], None]) -> None:
    """Emit `StopBegun` at the first signal: from then on the consumer reports each second what it waits for."""
    await stopping.signalled.wait()
    if stopping.signal is not None:
        on_event(StopBegun(application, stopping.signal.name))


async def _end_at_once(stopping: Stopping) -> None:
    """End the process at the second signal. Nothing is waited for: the leases expire, and the processors find their
    sockets closed.
    """
    await stopping.at_once.wait()
    assert stopping.signal is not None
    warn(f"ended by a second {stopping.signal.name}: the shards are free after the failover time")
    os._exit(128 + stopping.signal)


def _properties(file: Path | None, settings: list[str]) -> dict[str, str]:
    from shardway.kclpy.properties_file import parse

    found: dict[str, str] = {}
    if file is not None:
        try:
            found = parse(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as fault:
            raise OptionError(f"{file} cannot be read: {getattr(fault, 'strerror', None) or fault}") from fault
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise OptionError(f"--set takes NAME=VALUE, not {setting!r}")
        for given in [given for given in found if given.lower() == name.lower()]:
            del found[given]
        found[name] = value
    return found


def _executable(properties: dict[str, str], file: Path | None) -> str:
    """Return the script that the properties name, beside their file or in the current folder."""
    name = next((value for name, value in properties.items() if name.lower() == "executablename"), "").strip()
    if not name.endswith(".py"):
        raise OptionError("say which processor is to run: shardway kclpy module:Processor --properties FILE")
    beside = name if file is None else file.parent / name
    for path in (Path(name), Path(beside)):
        if path.is_file():
            return str(path)
    raise OptionError(f"executableName is {name}, and there is no such file")
