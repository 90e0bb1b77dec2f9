"""HTTP/2 by hand, for tests that must see what is on the wire."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import h2.events
from botocore.eventstream import EventStreamBuffer
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from tests.local.rawhttp import SIGNED, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW_BYTES = 16 * 1024 * 1024


class Reply2(NamedTuple):
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ResetError(Exception):
    """The service has reset the stream; ``code`` says why."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCodes(code).name)
        self.code = ErrorCodes(code)


class ClosedError(Exception):
    """The connection ended before what was waited for."""


class Wire2:
    """One connection, which gives windows back as it reads, but not of streams in ``slow``."""

    def __init__(self, url: str, ca_file: str | None = None, *, window_bytes: int = WINDOW_BYTES) -> None:
        where = urlsplit(url)
        self._authority = where.netloc
        self.socket: socket.socket = socket.create_connection((where.hostname, where.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are sent one after the other
        self.tls: ssl.SSLSocket | None = None
        if where.scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            context.set_alpn_protocols(["h2", "http/1.1"])
            self.socket = self.tls = context.wrap_socket(self.socket, server_hostname=where.hostname)
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window_bytes, SettingCodes.ENABLE_PUSH: 0})
        self.h2.increment_flow_control_window(2**30)
        self.slow: set[int] = set()
        self.heads: dict[int, dict[str, str]] = {}
        self.bodies: dict[int, bytearray] = defaultdict(bytearray)
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goodbye: h2.events.ConnectionTerminated | None = None
        self.seen: list[h2.events.Event] = []
        self.closed = False
        self._unread = b""
        self.flush()
        self.until(lambda: any(isinstance(event, h2.events.RemoteSettingsChanged) for event in self.seen))

    # --- bytes ------------------------------------------------------------------------------------

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def read(self) -> None:
        """Read once, and answer what the protocol asks to be answered."""
        try:
            data = self.socket.recv(1 << 20)
        except (ConnectionError, ssl.SSLEOFError):
            data = b""
        if not data:
            self.closed = True
            return
        self._unread += data
        while len(self._unread) >= (size := 9 + int.from_bytes(self._unread[:3])):
            frame, self._unread = self._unread[:size], self._unread[size:]
            for event in self.h2.receive_data(frame):
                self._note(event)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.flush()

    def _note(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.heads[event.stream_id] = dict(event.headers)  # type: ignore[arg-type]  # texts, as it is configured
            case h2.events.DataReceived():
                self.bodies[event.stream_id] += event.data
                if event.stream_id not in self.slow and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.ended.add(event.stream_id)
            case h2.events.StreamReset():
                self.resets[event.stream_id] = event.error_code
            case h2.events.ConnectionTerminated():
                self.goodbye = event
                self.h2.state_machine.state = ConnectionState.CLIENT_OPEN  # what was asked is still answered
            case _:
                self.seen.append(event)

    def until(self, happened: Callable[[], object]) -> None:
        """Read until this is so. Raises ClosedError when the connection ends before it."""
        while not happened():
            if self.closed:
                raise ClosedError
            self.read()

    # --- requests and answers ---------------------------------------------------------------------

    def begin(self, headers: list[tuple[str, str]], *, ends: bool = False) -> int:
        """Open a stream; its number."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers, end_stream=ends)
        self.flush()
        return stream

    def head(self, method: str = "POST", path: str = "/", **headers: str) -> list[tuple[str, str]]:
        pseudo = {":method": method, ":path": path, ":scheme": "https" if self.tls else "http"}
        return list((pseudo | {":authority": self._authority} | headers).items())

    def send(self, stream: int, body: bytes, *, ends: bool = True) -> None:
        """Send a body, as the windows allow."""
        at = 0
        while at < len(body):
            self.until(lambda: self.h2.local_flow_control_window(stream) > 0 or stream in self.resets)
            if stream in self.resets:
                return
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            self.h2.send_data(stream, body[at : at + size])
            self.flush()
            at += size
        if ends:
            self.h2.end_stream(stream)
            self.flush()

    def start(self, operation: str, fields: dict[str, Any], **headers: str) -> int:
        """Send a signed call; its stream."""
        body = json.dumps(fields).encode()
        named = {name.lower(): value for name, value in SIGNED.items()}
        named |= {"x-amz-target": f"Kinesis_20131202.{operation}", "content-type": "application/x-amz-json-1.1"}
        named |= {"content-length": str(len(body))} | headers
        stream = self.begin(self.head(**named))
        self.send(stream, body)
        return stream

    def reply(self, stream: int) -> Reply2:
        """The whole answer. Raises ResetError or ClosedError."""
        self.until(lambda: stream in self.ended or stream in self.resets)
        if stream not in self.ended:
            raise ResetError(self.resets[stream])
        head = self.heads[stream]
        return Reply2(int(head[":status"]), head, bytes(self.bodies[stream]))

    def call(self, operation: str, fields: dict[str, Any], **headers: str) -> Reply2:
        return self.reply(self.start(operation, fields, **headers))

    def events(self, stream: int) -> list[Any]:
        """The events of a subscription that came so far."""
        buffer = EventStreamBuffer()
        buffer.add_data(bytes(self.bodies[stream]))
        return list(buffer)

    def data_of(self, stream: int) -> list[str]:
        """The records' data (in base64) of a subscription that came so far."""
        return [
            record["Data"]
            for event in self.events(stream)
            if event.headers.get(":event-type") == "SubscribeToShardEvent"
            for record in json.loads(event.payload)["Records"]
        ]

    def reset(self, stream: int) -> None:
        self.h2.reset_stream(stream, ErrorCodes.CANCEL)
        self.flush()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire2:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
