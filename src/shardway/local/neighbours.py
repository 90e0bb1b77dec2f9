"""Calls to CloudWatch and STS are forwarded to moto, and those to DynamoDB and them to other endpoints, where options
name some.

moto runs in a process of its own, which the first such call starts: its work never holds up Kinesis.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from shardway.aws.http.dialing import Dialer, Origin
from shardway.aws.http.exchange import Limits, fit_to_send
from shardway.aws.http.exchange import Request as Sent
from shardway.aws.http.http1.pool import Pool
from shardway.aws.options import url_fault
from shardway.aws.transport import FAULTS, tls_context
from shardway.errors import OptionError
from shardway.local.http_messages import Answer, Request
from shardway.local.moto_process import SERVICE_HEADER, moto_fault
from shardway.tasks import SharedWork, logged

if TYPE_CHECKING:
    from shardway.local.answers import Answers
    from shardway.local.options import LocalOptions


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 60.0
KEEPALIVE_S = 20.0
CONNECTIONS_MAX = 64
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_TARGETS = {
    b"DynamoDB_20120810": "dynamodb",
    b"DynamoDBStreams_20120810": "dynamodb",
    b"GraniteServiceVersion20100801": "cloudwatch",
}
_SCOPES = {b"dynamodb": "dynamodb", b"monitoring": "cloudwatch", b"sts": "sts"}
_UNSIGNED_STS = (b"Action=AssumeRoleWithWebIdentity", b"Action=AssumeRoleWithSAML")
_RPC_PATH = re.compile(rb"^/service/([A-Za-z0-9_]+)/operation/([A-Za-z0-9]+)")
_SCOPE = re.compile(rb"Credential=[^/,\s]+/\d+/[^/,\s]+/([a-z0-9-]+)/aws4_request")
_FORM = b"application/x-www-form-urlencoded"
# These headers are hop by hop, or the next server writes them anew.
_NOT_SENT_ON = frozenset(
    (b"connection", b"content-length", b"expect", b"host", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_NOT_SENT_BACK = frozenset(
    (
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "server",
        "transfer-encoding",
        "x-amz-id-2",
        "x-amzn-requestid",
    )
)


def service_of(request: Request) -> str | None:
    """Return ``dynamodb``, ``cloudwatch`` or ``sts``; None when the call is for Kinesis, or for no service here."""
    target = request.headers.get(b"x-amz-target")
    if target is not None:
        return _TARGETS.get(target.partition(b".")[0])
    rpc = _RPC_PATH.match(request.target)
    if rpc is not None:
        return _TARGETS.get(rpc[1])
    if not request.headers.get(b"content-type", b"").startswith(_FORM):
        return None
    scope = _SCOPE.search(request.headers.get(b"authorization", b""))
    if scope is not None:
        return _SCOPES.get(scope[1])
    return "sts" if any(action in request.body[:4096] for action in _UNSIGNED_STS) else None


def operation_of(request: Request) -> str:
    """Return the operation's name, which a request has in one of three protocols."""
    target = request.headers.get(b"x-amz-target")
    if target is not None:
        return target.partition(b".")[2].decode("latin-1")
    rpc = _RPC_PATH.match(request.target)
    if rpc is not None:
        return rpc[2].decode()
    fields = parse_qs(request.body.decode("latin-1"), max_num_fields=10_000)
    return fields.get("Action", ["unknown"])[0]


class UnreachableError(Exception):
    """The neighbour cannot be reached or does not answer in time."""


class MissingError(UnreachableError):
    """The neighbour is not installed, so that no repetition helps."""


def elsewhere(options: LocalOptions) -> str | None:
    """Return the address of the DynamoDB that answers in place of the service's own; None: the own one does."""
    return options.dynamodb_endpoint_url or options.neighbour_endpoint_url


class Neighbours:
    """Forwards calls. It is used on the server's loop only."""

    def __init__(self, options: LocalOptions, answers: Answers) -> None:
        self._answers = answers
        self._fixed_urls = {
            "dynamodb": elsewhere(options),
            "cloudwatch": options.neighbour_endpoint_url,
            "sts": options.neighbour_endpoint_url,
        }
        self._moto = _Moto(options.account_id)
        self._connections: tuple[Dialer, Pool] | None = None
        faults = [
            f"the neighbour's URL {fault}"
            for url in set(self._fixed_urls.values())
            if url and (fault := url_fault(url))
        ]
        if faults:
            raise OptionError(faults)

    def describe(self) -> dict[str, Any]:
        """Return which endpoint answers for each service (None: this one for DynamoDB, moto for the others once it is
        started), and how long moto took to start (None: not started yet).
        """
        return {
            "endpoints": {
                name: url or (None if name == "dynamodb" else self._moto.endpoint_url)
                for name, url in self._fixed_urls.items()
            },
            "moto_start_s": self._moto.started_s,
        }

    def warnings(self) -> list[str]:
        """Return what is wrong with moto, where its services are asked of it; nothing is started for that."""
        fault = None if self._fixed_urls["cloudwatch"] else moto_fault()
        return [] if fault is None else [f"CloudWatch and STS do not answer: {fault}"]

    async def forward(self, service: str, request: Request) -> Answer:
        """Return the neighbour's answer. Raises :class:`UnreachableError`; MissingError where moto is not installed, or
        not the right one.
        """
        base = self._fixed_urls[service] or await self._moto.start()
        parts = urlsplit(base)
        tls = parts.scheme == "https"
        headers = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in request.headers.items()
            if name not in _NOT_SENT_ON
        }
        headers |= {"host": parts.netloc} | ({} if self._fixed_urls[service] else {SERVICE_HEADER: service})
        target = parts.path.rstrip("/") + request.target.decode("latin-1")
        origin = Origin(parts.hostname or "", parts.port or (443 if tls else 80), tls)  # never behind a proxy
        connection, pool = None, self._pool()
        try:
            sent = fit_to_send(Sent(target, headers, request.body, request.method.decode("latin-1")))
            connection = await pool.take(origin, streamed=False)
            found = await connection.request(sent, Limits(ANSWER_BYTES_MAX, CALL_TIMEOUT_S, CALL_TIMEOUT_S))
        except (*FAULTS, OptionError) as fault:
            raise UnreachableError(f"{service} at {base} does not answer: {type(fault).__name__}") from fault
        finally:
            if connection is not None:
                pool.give_back(origin, connection, streamed=False)
        lines = b"".join(
            f"{name}: {value}\r\n".encode("latin-1")
            for name, value in found.headers.items()
            if name not in _NOT_SENT_BACK
        )
        return self._answers.raw(found.status, found.body, lines)

    def _pool(self) -> Pool:
        if self._connections is None:
            dialer = Dialer(connect_timeout_s=CONNECT_TIMEOUT_S, tls=lambda: tls_context(None))
            self._connections = dialer, Pool(dialer, in_use_max=CONNECTIONS_MAX, keepalive_s=KEEPALIVE_S)
        return self._connections[1]

    async def close(self) -> None:
        """Close the connections and end moto."""
        opened, self._connections = self._connections, None
        if opened is not None:
            dialer, pool = opened
            pool.close()
            await dialer.close()
        await self._moto.stop()


class _Moto:
    """moto in a process of its own."""

    def __init__(self, account_id: str) -> None:
        self._account_id = account_id
        self._process: asyncio.subprocess.Process | None = None
        # A caller that goes away does not end the start for the other callers.
        self._start_work = SharedWork(self._start, logged("moto could not be started"))
        self.endpoint_url: str | None = None
        self.started_s: float | None = None

    async def start(self) -> str:
        """Start moto unless it runs, and return its address. Raises :class:`UnreachableError`."""
        if self.endpoint_url is not None and self._process is not None and self._process.returncode is None:
            return self.endpoint_url
        return await self._start_work()

    async def _start(self) -> str:
        began = time.monotonic()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment["MOTO_ACCOUNT_ID"] = self._account_id
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "shardway.local.moto_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
            said = msgspec.json.decode(line or b'{"error": "it ended at once"}', type=dict[str, Any])
        except (TimeoutError, ValueError) as fault:
            await self.stop()
            raise UnreachableError("moto did not start") from fault
        if "port" not in said:
            await self.stop()
            raise MissingError(f"moto did not start: {said.get('error')}")
        self.started_s = round(time.monotonic() - began, 3)
        self.endpoint_url = f"http://127.0.0.1:{said['port']}"
        return self.endpoint_url

    async def stop(self) -> None:
        """End the process: close its standard input, and kill it where that does not end it."""
        process, self._process = self._process, None
        self.endpoint_url = None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()
