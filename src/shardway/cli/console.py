"""``shardway console``: streams, applications and records in a browser. Read-only, unless it is told otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardway.cli.application import StoreText, Table
from shardway.cli.output import OutputWhole, ResultShape, say, show
from shardway.cli.producing import EndpointUrl, Profile, Region
from shardway.errors import OptionError
from shardway.extras import check
from shardway.tasks import logged, thread
from shardway.wiring import ConnectionOptions, Credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardway.console.server import ConsoleServer
    from shardway.console.settings import ConsoleSettings
    from shardway.inspect import Store
    from shardway.local.server import LocalServer

END_S = 10.0
TOKEN_BYTES_MAX = 4096

AllowWrites = Annotated[
    bool, typer.Option("--allow-writes", help="Let writers change things; without, the console is read-only.")
]
NoPayloads = Annotated[
    bool, typer.Option("--no-payloads", help="Show no data and no partition key of any record, and search in none.")
]
Mask = Annotated[
    list[str] | None,
    typer.Option(help="Hide this of each record: key, or a path like .customer.email.", metavar="PATH"),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the token that signs in as a writer; else one is made.", metavar="FILE")
]
ViewerTokenFile = Annotated[
    Path | None, typer.Option(help="File with a token that signs in as a viewer.", metavar="FILE")
]
Audit = Annotated[
    Path | None,
    typer.Option(help="Audit log: a line of JSON for each write, view of payloads and sign-in.", metavar="FILE"),
]
Host = Annotated[
    str, typer.Option(help="Address to listen on. Another than loopback needs a token and TLS.", metavar="ADDRESS")
]
HostName = Annotated[
    list[str] | None, typer.Option(help="Name that browsers know the console by, or NAME:PORT.", metavar="NAME")
]
BehindProxy = Annotated[
    list[str] | None, typer.Option(help="Address or network of a proxy that may name the user.", metavar="ADDRESS")
]
UserHeader = Annotated[str | None, typer.Option(help="Header in which those proxies name the user.", metavar="HEADER")]
Writer = Annotated[
    list[str] | None, typer.Option(help="User of that header that may write; others may look.", metavar="USER")
]
Hsts = Annotated[bool, typer.Option("--hsts", help="Have browsers use HTTPS alone for this whole host, for a year.")]
AppStream = Annotated[
    list[str] | None,
    typer.Option(
        "--application", help="Stream of an application whose leases do not name it.", metavar="APPLICATION=STREAM"
    ),
]
Letters = Annotated[
    list[str] | None, typer.Option(help="Place of dead letters: a file, or stream:NAME.", metavar="PLACE")
]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job",
        help="Spark job: the address of its /metrics, its checkpoint directory, or a file of what it prints as JSON.",
        metavar="PLACE",
    ),
]
Certificate = Annotated[Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).", metavar="FILE")]
IsLocal = Annotated[
    bool, typer.Option("--local", help="The endpoint is a local Kinesis: show its clock and its faults too.")
]


def command(
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 4568,
    host: Host = "127.0.0.1",
    host_name: HostName = None,
    base_path: Annotated[str, typer.Option(help="Path below which a proxy serves it.", metavar="PATH")] = "",
    allow_writes: AllowWrites = False,
    no_payloads: NoPayloads = False,
    mask: Mask = None,
    token_file: TokenFile = None,
    viewer_token_file: ViewerTokenFile = None,
    audit: Audit = None,
    behind_proxy: BehindProxy = None,
    user_header: UserHeader = None,
    writer: Writer = None,
    certificate: Certificate = None,
    key: Annotated[Path | None, typer.Option(help="Key of the certificate (PEM).", metavar="FILE")] = None,
    hsts: Hsts = False,
    application: AppStream = None,
    letters: Letters = None,
    job: Jobs = None,
    local: IsLocal = False,
    store: StoreText = "dynamodb",
    table: Table = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    profile: Profile = None,
    output: OutputWhole = ResultShape.text,
) -> None:
    """Serve the console until Ctrl-C: streams, applications with their lag, records, dead letters, and the doctor.

    It prints a link that signs one browser in, once. It looks only at what an open page shows.
    """
    _require_console()
    from shardway.console.settings import ConsoleSettings

    settings = ConsoleSettings(
        token=_token(host, token_file),
        audit=str(audit or state_home() / "console-audit.jsonl"),
        host=host,
        port=port,
        host_names=tuple(host_name or ()),
        base_path=base_path,
        viewer_token=None if viewer_token_file is None else token_of(viewer_token_file),
        allow_writes=allow_writes,
        show_payloads=not no_payloads,
        masks=tuple(mask or ()),
        proxies=tuple(behind_proxy or ()),
        user_header=user_header,
        writers=tuple(writer or ()),
        certificate=_text(certificate),
        key=_text(key),
        hsts=hsts,
        store=_store(store, table),
        streams=_pairs(application or []),
        letters=tuple(letters or ()),
        jobs=tuple(job or ()),
        local_url=_local_url(endpoint_url) if local else None,
    )
    _serve(settings, ConnectionOptions(region=region, endpoint_url=endpoint_url, profile=profile), output)


def _store(text: str, table: str | None) -> Store:
    from shardway.inspect import Store

    return Store.parse(text, table)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _serve(settings: ConsoleSettings, connection: ConnectionOptions, output: ResultShape) -> None:
    from shardway.console.server import serve

    try:
        serve(settings, connection, lambda serving: announce(serving, as_json=output is ResultShape.json))
    except OSError as fault:
        raise OptionError(f"cannot serve on {settings.host}:{settings.port}: {fault.strerror or fault}") from fault


def announce(serving: ConsoleServer, *, as_json: bool = False) -> None:
    """Print where the console is. The link holds a token that works once; the console's own token is not printed."""
    link = serving.launch_url()
    kind = "Writers may change things" if serving.settings.allow_writes else "It is read-only"
    told = {"url": serving.url, "launch_url": link, "port": serving.settings.port}
    show(told, f"The console is at {link}\n", as_json=as_json)
    say(f"The link signs one browser in, once, within ten minutes. {kind}. Payloads that are viewed, and writes, are "
        f"noted in {serving.settings.audit}")  # fmt: skip


@contextlib.contextmanager
def beside_local(port: int) -> Iterator[Callable[[LocalServer], dict[str, str | int]]]:
    """Keep a console of a local Kinesis in this process, on a thread of its own, until the ``with`` block ends.

    The block gets a function, to be called once the service is there: it starts the console, and says where it is.
    """
    _require_console()
    from shardway.console.server import ConsoleServer

    running: list[tuple[ConsoleServer, asyncio.AbstractEventLoop, threading.Thread]] = []

    def begin(server: LocalServer) -> dict[str, str | int]:
        credentials = Credentials(access_key_id="local", secret_access_key="local")  # noqa: S106 - any will do
        connection = ConnectionOptions(
            region=server.options.region,
            endpoint_url=server.endpoint_url,
            credentials=credentials,
            ca_bundle=server.ca_file,
        )
        try:
            serving = ConsoleServer(local_settings(server.endpoint_url, port), connection)
        except OSError as fault:
            raise OptionError(
                f"cannot serve the console on 127.0.0.1:{port}: {fault.strerror or fault} (--console-port)"
            ) from fault
        loop = asyncio.new_event_loop()
        heard = logged("the console failed")
        running.append((serving, loop, thread(lambda: _run_server(serving, loop), "shardway-console", heard)))
        return {"url": serving.url, "launch_url": serving.launch_url(), "port": serving.settings.port}

    try:
        yield begin
    finally:
        for serving, loop, runner in running:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(serving.end)
            runner.join(END_S)


def _run_server(serving: ConsoleServer, loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(serving.run_until_told())


def local_settings(url: str, port: int) -> ConsoleSettings:
    """Return the settings for a local Kinesis: the visitor may write, since there is nothing but this service."""
    from shardway.console.settings import ConsoleSettings

    return ConsoleSettings(
        token=secrets.token_urlsafe(32),
        audit=str(state_home() / "console-audit.jsonl"),
        port=port,
        allow_writes=True,
        local_url=url,
    )


def state_home() -> Path:
    """Return the folder in which this user's programs keep what they note."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "shardway"


def token_of(path: Path) -> str:
    """Return the token in a file. Raises OptionError for a file that others may read."""
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise OptionError(f"{path}: others may read it: chmod 600 {path}")
            return file.read(TOKEN_BYTES_MAX).decode().strip()
    except OSError as fault:
        raise OptionError(f"{path}: {fault.strerror}") from fault
    except UnicodeDecodeError:
        raise OptionError(f"{path}: it holds no token: a text of one line is wanted") from None


def _token(host: str, path: Path | None) -> str:
    if path is not None:
        return token_of(path)
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise OptionError(f"{host} may be reached from other machines: give the console a token (--token-file)")
    return secrets.token_urlsafe(32)


def _pairs(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        name, sign, stream = one.partition("=")
        if not (name and sign and stream):
            raise OptionError(f"--application {one}: write APPLICATION=STREAM")
        found[name] = stream
    return found


def _local_url(endpoint_url: str | None) -> str:
    found = endpoint_url or os.environ.get("AWS_ENDPOINT_URL_KINESIS") or os.environ.get("AWS_ENDPOINT_URL")
    if found is None:
        raise OptionError("--local: name the local Kinesis (--endpoint-url)")
    return found


def _require_console() -> None:
    try:
        check("console", "the console")
    except ModuleNotFoundError as fault:
        raise OptionError(str(fault)) from None
