"""The local service as an asyncio server: Kinesis in each region, its neighbours and the controls on one port."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.errors import OptionError
from shardway.local.answers import Answers
from shardway.local.clock import VirtualClock
from shardway.local.control import PREFIX, Control
from shardway.local.counters import Counters
from shardway.local.dynamodb_face import DynamoFace
from shardway.local.faults import FaultPlan
from shardway.local.gate import TARGET_PREFIX
from shardway.local.http import HttpConnection
from shardway.local.http_messages import Answer, ClientConnection, Request
from shardway.local.model import KinesisModel, Limits, ModelError
from shardway.local.neighbour_face import NeighbourFace
from shardway.local.neighbours import Neighbours, elsewhere, service_of
from shardway.local.regions import Regions, ServiceParts
from shardway.local.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shardway.local.journal import Journal
    from shardway.local.options import LocalOptions


log = logging.getLogger("shardway.local")
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
        dynamodb = None if elsewhere(options) else DynamoFace(self.regions, answers, self.counters)
        self._neighbour_face = NeighbourFace(self.neighbours, answers, self.faults, self.counters, dynamodb)
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
        for text in self.neighbours.warnings():
            log.warning("%s", text)
        self._load()
        self.clock.on_advance(lambda seconds: _call_soon(loop, self._clock_moved, seconds))
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
        from shardway.local.http_versions import UndecidedConnection

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
                return self._neighbour_face(service, request)
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


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[float], None], seconds: float) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the server is gone
        loop.call_soon_threadsafe(function, seconds)
