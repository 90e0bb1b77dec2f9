"""The local service as an asyncio server: Kinesis in each region, its neighbours and the controls on one port, over TLS
where that is wanted: with a given certificate, or with one made for this run.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import ipaddress
import logging
import os
import random
import re
import resource
import signal
import ssl
import sys
import tempfile
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import OptionError
from shardway.local.control import PREFIX, Control, Counters, VirtualClock
from shardway.local.faults import FaultPlan, FaultyKinesis
from shardway.local.gate import TARGET_PREFIX, Answers, Verifier
from shardway.local.http import Answer, ClientConnection, HttpConnection, Request
from shardway.local.kinesis import KinesisFace, Subscriptions
from shardway.local.model import KinesisModel, Limits, ModelError
from shardway.local.neighbours import NeighbourFace, Neighbours, service_of
from shardway.local.options import is_region

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cryptography.x509 import GeneralName, KeyUsage

    from shardway.local.journal import Journal
    from shardway.local.kinesis import Call, EventFault
    from shardway.local.options import LocalOptions


# --- the server -----------------------------------------------------------------------------------

LISTEN_BACKLOG = 512
ACCEPT_ROUNDS = 5
"""The rounds of asyncio's loop, and one more, between the moment when a connection is accepted and when it is made."""
_FOREIGN = msgspec.json.encode(
    {
        "__type": "AccessDeniedException",
        "message": "web pages may not call this local service: name its origin at the "
        "start (--origin, LocalOptions.origins) if it is one of yours",
    }
)


class LocalServer:
    """One local service. It is made, started and stopped on one event loop; any thread may move the clock."""

    def __init__(self, options: LocalOptions) -> None:
        self.options = options
        self.clock = VirtualClock(options.clock_start_s, running=options.clock_running)
        self.limits = Limits(per_shard=options.limits, api=options.limits, page_span_s=options.page_span_s)
        """The limits, which the model shares: a value that is set here holds from the next call on."""
        self.faults = FaultPlan()
        self.counters = Counters()
        answers = self._answers = Answers(self.clock.now)
        self.regions = Regions(ServiceParts(options, self.clock, self.limits, answers, self.counters, self.faults))
        self.neighbours = Neighbours(options, answers)
        self._neighbour_face = NeighbourFace(self.neighbours, answers, self.faults, self.counters)
        self._control = Control(self, answers)
        self._connections: set[ClientConnection] = set()
        self._server: asyncio.Server | None = None
        self._journal: Journal | None = None
        self._tls: Tls | None = None
        self.port = 0

    @property
    def model(self) -> KinesisModel:
        """Kinesis in the home region."""
        return self.regions.home.model

    @property
    def endpoint_url(self) -> str:
        """The URL at which clients reach the service, once it is started."""
        host = self.options.host
        name = f"[{host}]" if ":" in host else host
        return f"{'https' if self.options.secure else 'http'}://{name}:{self.port}"

    @property
    def ca_file(self) -> str | None:
        """The file of the certificate that clients must trust, when the service serves HTTPS; else None."""
        return None if self._tls is None else str(self._tls.ca_file)

    async def start(self) -> None:
        """Load the data, make the streams, listen. Raises OSError (the port is taken), JournalError, OptionError."""
        loop = asyncio.get_running_loop()
        self._load()
        self.clock.on_advance(lambda seconds: _soon(loop, self._clock_moved, seconds))
        self._create_streams()
        http2 = self.options.http2 and find_spec("h2") is not None
        if self.options.secure:
            self._tls = Tls(self.options, http2=http2)
        self._server = await loop.create_server(
            self._new_connection(http2),
            self.options.host,
            self.options.port,
            backlog=LISTEN_BACKLOG,
            ssl=None if self._tls is None else self._tls.context,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _new_connection(self, http2: bool) -> Callable[[], asyncio.Protocol]:
        if not http2:
            return lambda: HttpConnection(self._answer, self._connections)
        from shardway.local.http2 import UndecidedConnection

        return lambda: UndecidedConnection(self._answer, self._connections, streams_max=self.options.http2_streams_max)

    def _load(self) -> None:
        if self.options.data is None:
            return
        from shardway.local.journal import Journal

        journal = self._journal = Journal(Path(self.options.data), fsync=self.options.fsync)
        journal.load(self.model, self.clock.advance, lambda name: self.regions.named(name).model)
        self.regions.keep_in(journal)

    def _create_streams(self) -> None:
        for name, shards in self.options.streams.items():
            if name in self.model.state.streams:
                continue
            request = msgspec.json.encode({"StreamName": name, "ShardCount": shards})
            try:
                self.model.handle("CreateStream", request)
            except ModelError as fault:
                raise OptionError(f"stream {name} with {shards} shards: {fault.message}") from fault

    def _clock_moved(self, seconds: float) -> None:
        for region in self.regions:
            region.subscriptions.wake_all()
        if self._journal is not None:
            self._journal.record_clock(seconds)

    def _answer(self, request: Request) -> Answer | Awaitable[Answer]:
        if b"origin" in request.headers and self._is_foreign(request):
            return self._answers.raw(403, _FOREIGN, b"Content-Type: application/json\r\n")
        if not request.headers.get(b"x-amz-target", b"").startswith(TARGET_PREFIX):
            if request.target.startswith(PREFIX):
                return self._control(request)
            service = service_of(request)
            if service is not None:
                return self._neighbour_face.answer(service, request)
        region = self.regions.of(request)
        return region.faulty(request) if self.faults.active else region.kinesis(request)

    def _is_foreign(self, request: Request) -> bool:
        """Return True for a request of a web page that may not call. The controls answer no page at all (`Control`)."""
        if request.target.startswith(PREFIX):
            return False
        origin = request.headers[b"origin"].decode("latin-1")
        return origin not in self.options.origins and "*" not in self.options.origins

    def change_limits(self, changes: dict[str, Any]) -> None:
        """Switch limits on or off, or set their numbers. Raises ``ValueError`` on an unknown name or a wrong value."""
        fields = msgspec.to_builtins(self.limits)
        unknown = sorted(set(changes) - set(fields))
        if unknown:
            raise ValueError(f"unknown limits {', '.join(unknown)}; there are {', '.join(sorted(fields))}")
        checked = msgspec.convert(fields | changes, Limits)
        for name in changes:
            setattr(self.limits, name, getattr(checked, name))

    def reset(self) -> None:
        """Make all as new: only the options' streams, no faults, no counts. The clock and the limits stay."""
        if self._journal is not None:
            self._journal.clear()
        self.regions.reset()
        self.faults.clear()
        self.counters.reset()
        self._create_streams()

    async def stop(self) -> None:
        """Stop listening, close all connections, and end all that was started, whatever fails on the way."""
        async with contextlib.AsyncExitStack() as rest:
            if self._tls is not None:
                rest.callback(self._tls.close)
                self._tls = None
            if self._journal is not None:
                rest.callback(self._journal.close)
                self._journal = None
            rest.push_async_callback(self.neighbours.close)
            if self._server is not None:
                server, self._server = self._server, None
                await self._accept_no_more(server)
                server.close()
                for connection in list(self._connections):
                    connection.shut()
                await server.wait_closed()

    async def _accept_no_more(self, server: asyncio.Server) -> None:
        """Let connections be made that were accepted just now: a server that is closed meanwhile forgets them, and
        they stay open.
        """
        loop = asyncio.get_running_loop()
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(ACCEPT_ROUNDS):
            await asyncio.sleep(0)


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[float], None], seconds: float) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the server is gone
        loop.call_soon_threadsafe(function, seconds)


# --- as a process ---------------------------------------------------------------------------------
# As a process the local service serves until a signal ends it.


def serve(options: LocalOptions, announce: Callable[[LocalServer], None], *, with_parent: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, or ``with_parent`` until standard input is closed.

    ``announce`` is called once the service listens. Raises what :meth:`LocalServer.start` raises.
    """
    asyncio.run(_serve(options, announce, with_parent))


async def _serve(options: LocalOptions, announce: Callable[[LocalServer], None], with_parent: bool) -> None:
    _allow_many_connections()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    server = LocalServer(options)
    try:
        await server.start()
        gc.freeze()  # what is loaded by now stays: no later collection looks at it
        announce(server)
        if with_parent:
            loop.add_reader(sys.stdin.fileno(), _read_parent, loop, stop)
        await stop.wait()
    finally:
        await server.stop()


def _read_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()


def _allow_many_connections() -> None:
    """Raise this process's limit of open files to the hard one: each connection is a file, and the usual limit is
    1,024.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- regions --------------------------------------------------------------------------------------
# Each region has streams of its own, as at AWS. A call is for the region that it is signed for.

log = logging.getLogger("shardway.local")

REGIONS_MAX = 64
"""The regions that a service may have. AWS has fewer; each costs little, but any client may name one."""

_SCOPE = re.compile(rb"Credential(?:=|%3D)[^/,\s&]+?(?:/|%2F)[0-9]+(?:/|%2F)([A-Za-z0-9-]+)(?:/|%2F)", re.IGNORECASE)


class ServiceParts:
    """What all regions of a service have in common."""

    def __init__(
        self,
        options: LocalOptions,
        clock: VirtualClock,
        limits: Limits,
        answers: Answers,
        counters: Counters,
        faults: FaultPlan,
    ) -> None:
        self.options = options
        self.clock = clock
        self.limits = limits
        self.answers = answers
        self.counters = counters
        self.faults = faults


class Region:
    """Kinesis in one region: its model, and the faces before it."""

    def __init__(self, name: str, shared: ServiceParts) -> None:
        self.name = name
        self._shared = shared
        options, answers = shared.options, shared.answers
        self.subscriptions = Subscriptions(answers, self._spoil)
        verifier = Verifier(options.credentials, name, shared.clock.now) if options.credentials else None
        self.model = self._new_model()
        self.kinesis = KinesisFace(self.model, answers, shared.counters, self.subscriptions, verifier)
        self.faulty = FaultyKinesis(self.kinesis, shared.faults)
        self._journal: Callable[[tuple[object, ...]], None] | None = None

    def reset(self) -> None:
        """Make the region as new; the model that is forgotten has no journal any more."""
        self.subscriptions.end_all()
        self.model.keep_in(None)
        self.model = self.kinesis.model = self._new_model()
        self.model.keep_in(self._journal)

    def keep_in(self, journal: Callable[[tuple[object, ...]], None]) -> None:
        """Give ``journal`` each change of the region's model."""
        self._journal = journal
        self.model.keep_in(journal)

    def _spoil(self, call: Call) -> EventFault | None:
        return self.faulty.spoil_event(call)

    def _new_model(self) -> KinesisModel:
        options = self._shared.options
        model = KinesisModel(
            clock=self._shared.clock,
            rng=random.Random(options.seed),
            region=self.name,
            account_id=options.account_id,
            limits=self._shared.limits,
            shard_quota=options.shard_quota,
            stream_settle_s=options.stream_settle_s,
        )
        if self.name != options.region:
            # An iterator holds its stream's number. With numbers of its own for each region, no iterator of one region
            # passes for one of a stream in another.
            model.state.next_uid = (zlib.crc32(self.name.encode()) << 24) + 1
        return model


class Regions:
    """All regions that were called so far; the home region, which the options name, is always there."""

    def __init__(self, shared: ServiceParts) -> None:
        self._shared = shared
        self.home = Region(shared.options.region, shared)
        self._by_name = {self.home.name: self.home}
        self._journal: Journal | None = None

    def __iter__(self) -> Iterator[Region]:
        return iter(list(self._by_name.values()))

    def of(self, request: Request) -> Region:
        """Return the region that a request is signed for. It is the home region for a request that names none, and
        where signatures are verified: there a call for another region is refused.
        """
        if self._shared.options.credentials:
            return self.home
        found = _SCOPE.search(request.headers.get(b"authorization", b""))
        if found is None:
            found = _SCOPE.search(request.target)
            if found is None:
                return self.home
        name = found[1].decode("latin-1")
        return self._by_name.get(name) or self._opened(name)

    def named(self, name: str) -> Region:
        """Return the region of this name, opened if need be. Raises OptionError for what is no region's name, and where
        there are too many.
        """
        region = self._by_name.get(name)
        if region is not None:
            return region
        if not is_region(name) or len(self._by_name) >= REGIONS_MAX:
            raise OptionError(f"{name!r} is no region, or there are {REGIONS_MAX} of them already")
        region = self._by_name[name] = Region(name, self._shared)
        if self._journal is not None:
            region.keep_in(self._journal.recording(name))
        return region

    def keep_in(self, journal: Journal) -> None:
        """Give the journal each change, even of a region that is opened later."""
        self._journal = journal
        for region in self:
            # The first journals knew of one region, and so a change in the home region still names none.
            region.keep_in(journal.record if region is self.home else journal.recording(region.name))

    def reset(self) -> None:
        """Make all regions as new."""
        for region in self:
            region.reset()

    def _opened(self, name: str) -> Region:
        try:
            region = self.named(name)
        except OptionError:
            return self.home  # as a service that knows no region: there is none to ask
        if self.home.model.state.streams:
            log.warning(
                "a client calls the region %s, which has no streams yet: those that were made at the start are in %s",
                name,
                self.home.name,
            )
        return region


# --- TLS ------------------------------------------------------------------------------------------

VALID_DAYS = 30
_NAMES = ("localhost", "*.localhost")
_ADDRESSES = ("127.0.0.1", "::1")


class Tls:
    """A server's TLS context, and the file by which clients trust the server."""

    def __init__(self, options: LocalOptions, *, http2: bool = False) -> None:
        """Load the certificate and key of the options, or make a pair. Raises OSError or ssl.SSLError.

        With ``http2`` clients may choose it (ALPN).
        """
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if options.certificate is not None:
            certificate, key = Path(options.certificate), options.key
            self.ca_file = certificate
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="shardway-tls-")
            certificate, key_file = make_certificate(Path(self._folder.name), options.host)
            self.ca_file, key = certificate, str(key_file)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
        self.context.load_cert_chain(certificate, key)

    def close(self) -> None:
        """Delete the certificate and key that were made for this run."""
        if self._folder is not None:
            self._folder.cleanup()


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """Write a self-signed certificate and its key, for loopback and ``host``, and return their files.

    The key is readable by its owner only. Clients trust the certificate file as a CA (``AWS_CA_BUNDLE``).
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Shardway local service")])
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=VALID_DAYS + 1))
        .add_extension(x509.SubjectAlternativeName(_alternative_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


def _alternative_names(host: str) -> list[GeneralName]:
    from cryptography import x509

    names: list[GeneralName] = [x509.DNSName(name) for name in _NAMES]
    addresses = {ipaddress.ip_address(address) for address in _ADDRESSES}
    try:
        addresses.add(ipaddress.ip_address(host))
    except ValueError:
        names.append(x509.DNSName(host))
    return names + [x509.IPAddress(address) for address in sorted(addresses, key=str)]


def _key_usage() -> KeyUsage:
    """Return the certificate's key usage: strict clients (Python 3.13's default) want a CA certificate to have one."""
    from cryptography.x509 import KeyUsage

    return KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
