"""An HTTP/2 server on loopback that answers as a test's script says, or does what no server should.

It answers `Reply` as `ScriptedServer` does; ``on_request`` takes over what a test wants to do itself, frame by frame.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import GoAwayFrame

from tests.aws.aws_servers import Received, Reply, ok

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType


class Asked:
    """One request, and the means to answer it."""

    def __init__(self, peer: Peer, stream_id: int, headers: dict[str, str]) -> None:
        self.peer = peer
        self.stream_id = stream_id
        self.headers = headers
        self.body = bytearray()
        self.was_reset = False
        """The client has taken it back."""
        self.unsent = bytearray()
        self._ends = False

    def head(self, status: int = 200, headers: dict[str, str] | None = None, *, end: bool = False) -> None:
        block = [(":status", str(status)), *((name.lower(), value) for name, value in (headers or {}).items())]
        self.peer.h2.send_headers(self.stream_id, block, end_stream=end)
        self.peer.flush()

    def data(self, data: bytes, *, end: bool = False) -> None:
        """Send, now or when the client's windows let it through."""
        self.unsent += data
        self._ends = self._ends or end
        self.push()

    def push(self) -> None:
        h2 = self.peer.h2
        while not self.was_reset and (self.unsent or self._ends):
            size = min(len(self.unsent), h2.local_flow_control_window(self.stream_id), h2.max_outbound_frame_size)
            if self.unsent and size <= 0:
                return
            end = self._ends and size == len(self.unsent)
            h2.send_data(self.stream_id, bytes(self.unsent[:size]), end_stream=end)
            del self.unsent[:size]
            self.peer.flush()
            if end:
                self._ends = False
                return

    def answer(self, body: bytes = b"{}", status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.head(status, headers)
        self.data(body, end=True)

    def reset(self, code: ErrorCodes | int = ErrorCodes.INTERNAL_ERROR) -> None:
        self.peer.h2.reset_stream(self.stream_id, code)
        self.peer.flush()


class Peer(asyncio.Protocol):
    """One connection, as the server sees it."""

    def __init__(self, server: H2Server, number: int) -> None:
        self.server = server
        self.number = number
        self.asked: dict[int, Asked] = {}
        self.is_deaf = False
        """Nothing that comes is looked at any more, a PING neither."""
        self.is_gone = False
        self.on_ping: Callable[[bytes], None] = lambda data: None
        self.fault: ProtocolError | None = None
        """What the client did wrong."""
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))
        self.h2.local_settings = Settings(client=False, initial_values=server.settings)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.server.peers_open.add(self)
        if self.server.greets:
            self.h2.initiate_connection()
            self.flush()

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        try:
            events = self.h2.receive_data(data)
        except ProtocolError as error:
            self.fault = error
            self.flush()
            self.transport.close()
            return
        for event in events:
            if isinstance(event, RequestReceived):
                headers = {str(name): str(value) for name, value in event.headers or []}
                self.asked[event.stream_id] = Asked(self, event.stream_id, headers)
            elif isinstance(event, DataReceived):
                self.asked[event.stream_id].body += event.data or b""
                if self.server.reads_bodies:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, StreamReset):
                self.asked[event.stream_id].was_reset = True
            elif isinstance(event, StreamEnded):
                self.server.take(self.asked[event.stream_id])
            elif isinstance(event, PingReceived):
                self.on_ping(event.ping_data)
            elif isinstance(event, WindowUpdated):
                for asked in self.asked.values():
                    asked.push()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self.server.peers_open.discard(self)

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and not self.is_gone:
            self.transport.write(data)

    def goaway(self, last_stream_id: int, code: int = 0, text: bytes = b"") -> None:
        """Sent past the library, which would let nothing follow it."""
        self.flush()
        self.transport.write(
            GoAwayFrame(0, last_stream_id=last_stream_id, error_code=code, additional_data=text).serialize()
        )

    def allow(self, streams: int) -> None:
        """Change how many streams the client may have."""
        self.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: streams})
        self.flush()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class H2Server:
    """Answers with ``replies`` in their order, then by ``otherwise``; keeps what it received in ``requests``."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        streams_max: int | None = 100,
        window_bytes: int = 65_535,
        greets: bool = True,
        reads_bodies: bool = True,
    ) -> None:
        """``streams_max=None``: it does not say how many. ``greets=False``: it never sends its settings."""
        self.replies: deque[Reply] = deque()
        self.otherwise: Callable[[Received], Reply] = lambda received: ok()
        self.on_request: Callable[[Asked], None] | None = None
        self.requests: list[Received] = []
        self.peers: list[Peer] = []
        self.peers_open: set[Peer] = set()
        self.greets = greets
        self.reads_bodies = reads_bodies
        self.settings = {SettingCodes.INITIAL_WINDOW_SIZE: window_bytes}
        if streams_max is not None:
            self.settings[SettingCodes.MAX_CONCURRENT_STREAMS] = streams_max
        self._tls = tls
        if tls is not None:
            tls.set_alpn_protocols(["h2", "http/1.1"])

    @property
    def connections(self) -> int:
        return len(self.peers)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> H2Server:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for peer in list(self.peers_open):
            peer.transport.abort()
        await self._server.wait_closed()
        while self.peers_open:
            await asyncio.sleep(0)

    def _connected(self) -> Peer:
        peer = Peer(self, len(self.peers))
        self.peers.append(peer)
        return peer

    def take(self, asked: Asked) -> None:
        """A request is whole."""
        headers = dict(asked.headers)
        line = f"{headers.pop(':method')} {headers.pop(':path')} HTTP/2"
        headers["host"] = headers.pop(":authority")
        received = Received(line, headers, bytes(asked.body), asked.peer.number)
        self.requests.append(received)
        if self.on_request is not None:
            self.on_request(asked)
            return
        reply = self.replies.popleft() if self.replies else self.otherwise(received)
        if reply.cut is None and reply.then == "keep":
            asked.answer(reply.body, reply.status, {"content-length": str(len(reply.body)), **reply.headers})
            return
        if reply.cut is None or reply.cut >= 0:
            asked.head(reply.status, {"content-length": str(len(reply.body)), **reply.headers})
            asked.data(reply.body[: reply.cut], end=reply.cut is None)
        if reply.then == "reset":
            asked.peer.reset()
        elif reply.then == "close":
            asked.peer.transport.close()
