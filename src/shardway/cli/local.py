"""``shardway local`` serves a Kinesis on this machine."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardway.cli.output import OutputWhole, ResultShape, show, warn
from shardway.errors import OptionError
from shardway.extras import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from shardway.local.options import LocalOptions
    from shardway.local.server import LocalServer

Region = Annotated[
    str, typer.Option(help="Region of the streams made at the start; calls signed for another one have its own.")
]
PageSpan = Annotated[
    float,
    typer.Option(help="Seconds of a shard's log that one GetRecords crosses: silence gives empty pages.", metavar="S"),
]
Settle = Annotated[
    float, typer.Option(help="Seconds that a stream or table stays CREATING, UPDATING and DELETING.", metavar="S")
]
Origin = Annotated[
    list[str] | None,
    typer.Option(
        help="Web page that may call the service, such as http://localhost:3000. * allows any page.", metavar="ORIGIN"
    ),
]
WithConsole = Annotated[
    bool, typer.Option("--console", help="Serve a console of it too: records, shards, its clock and its faults.")
]
HEALTH = "/_shardway/health"
HOLDER_S = 2.0
"""Seconds that a program which has the port may take for an answer."""
HEALTH_BYTES_MAX = 64_000
_NO_HEALTH = (OSError, http.client.HTTPException, ValueError, RecursionError)


def command(
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 4567,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    region: Region = "us-east-1",
    stream: Annotated[
        list[str] | None,
        typer.Option(help="Stream to make at the start, NAME or NAME:SHARDS.", metavar="NAME"),
    ] = None,
    shards: Annotated[int, typer.Option(help="Shards of the streams given without a number.", metavar="N")] = 1,
    limits: Annotated[bool, typer.Option(help="Enforce AWS's limits on shards and calls.")] = False,
    settle: Settle = 0.0,
    origin: Origin = None,
    page_span: PageSpan = 3600.0,
    data: Annotated[
        Path | None, typer.Option(help="Folder that keeps the streams across restarts.", metavar="FOLDER")
    ] = None,
    fsync: Annotated[bool, typer.Option(help="With --data: write every change to the disk before its answer.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Serve HTTPS with a certificate made now.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).", metavar="FILE")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).", metavar="FILE")] = None,
    dynamodb_endpoint_url: Annotated[
        str | None, typer.Option(help="Address of a DynamoDB, in place of its own.", metavar="URL")
    ] = None,
    neighbour_endpoint_url: Annotated[
        str | None,
        typer.Option(help="Address of DynamoDB, CloudWatch and STS, in place of its own and moto.", metavar="URL"),
    ] = None,
    console: WithConsole = False,
    console_port: Annotated[int, typer.Option(help="Port of the console; 0 takes a free one.", metavar="PORT")] = 4568,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Serve a local Kinesis until Ctrl-C. DynamoDB, CloudWatch and STS answer on the same port."""
    try:
        check("local", "the local service")
    except ModuleNotFoundError as fault:
        raise OptionError(str(fault)) from None
    from shardway.local.options import LocalOptions

    options = LocalOptions(
        host=host,
        port=port,
        region=region,
        streams=_streams(stream or [], shards),
        limits=limits,
        stream_settle_s=settle,
        table_settle_s=settle,
        origins=tuple(origin or ()),
        page_span_s=page_span,
        data=_text(data),
        fsync=fsync,
        tls=tls,
        certificate=_text(certificate),
        key=_text(key),
        dynamodb_endpoint_url=dynamodb_endpoint_url,
        neighbour_endpoint_url=neighbour_endpoint_url,
    )
    _serve(options, console_port if console else None, output is ResultShape.json)


def _serve(options: LocalOptions, console_port: int | None, as_json: bool) -> None:
    from shardway.local.process import serve

    host, port = options.host, options.port
    if not options.on_loopback:
        warn(f"{host} may be reached from other machines, and any credentials will do")
    beside: AbstractContextManager[Callable[[LocalServer], dict[str, str | int]] | None]
    beside = contextlib.nullcontext(None) if console_port is None else _console(console_port)

    def announce(server: LocalServer) -> None:
        _announce(server, as_json, None if begin is None else begin(server))

    try:
        with beside as begin:
            serve(options, announce)
    except OSError as fault:
        holder = f": {_holder(host, port)} has this port" if fault.errno == errno.EADDRINUSE else ""
        raise OptionError(f"cannot serve on {host}:{port}: {fault.strerror or fault}{holder}") from fault
    except UnicodeError as fault:  # no resolver takes such a host's name
        raise OptionError(f"cannot serve on {host}:{port}: {host!r} is no host's name") from fault


def _holder(host: str, port: int) -> str:
    """Return what has a port: a local Kinesis says so itself by its own control, over HTTP or HTTPS. Its answer is not
    trusted with anything else than a number, so a certificate that this machine does not know will do.
    """
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    for connection in (
        http.client.HTTPConnection(host, port, timeout=HOLDER_S),
        http.client.HTTPSConnection(host, port, timeout=HOLDER_S, context=anything),
    ):
        with contextlib.closing(connection), contextlib.suppress(*_NO_HEALTH):
            connection.request("GET", HEALTH)
            health = json.loads(connection.getresponse().read(HEALTH_BYTES_MAX))
            if isinstance(health, dict) and "neighbours" in health:
                pid = health.get("pid")
                of = f" of process {pid}" if isinstance(pid, int) else ""
                return f"another local Kinesis{of}, with its own streams,"
    return "another program"


def _console(port: int) -> AbstractContextManager[Callable[[LocalServer], dict[str, str | int]]]:
    from shardway.cli.console import beside_local  # it needs another extra

    return beside_local(port)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _streams(given: list[str], shards: int) -> dict[str, int]:
    """Return texts like ``["orders:4", "clicks"]`` as names with numbers of shards. Raises OptionError."""
    streams = {}
    for item in given:
        name, _, number = item.partition(":")
        if not name or (number and not number.isdecimal()):
            raise OptionError(f"--stream {item}: write NAME or NAME:SHARDS, as in orders:4")
        streams[name] = int(number or shards)
    return streams


def _announce(server: LocalServer, as_json: bool, console: dict[str, str | int] | None) -> None:
    from shardway.local.options import environment

    variables = environment(server.endpoint_url, server.options.region, server.ca_file)
    value: dict[str, Any] = {"endpoint_url": server.endpoint_url, "ca_file": server.ca_file, "environment": variables}
    exports = "\n".join(f"  export {name}={text}" for name, text in variables.items())
    text = f"Kinesis is at {server.endpoint_url}. For its clients:\n\n{exports}\n"
    if console is not None:
        value["console"] = console
        text += f"\nIts console is at {console['launch_url']}\n"
    show(value, text, as_json=as_json)
