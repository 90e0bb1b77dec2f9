"""The local service, served for a test or a tool in this process, or in another one with the same controls."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from shardway.errors import ShardwayError
from shardway.local.control import Stats
from shardway.local.faults import Fault
from shardway.local.options import LocalOptions, environment
from shardway.local.server import LocalServer
from shardway.tasks import Reply, logged, thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shardway.local.control import VirtualClock
    from shardway.local.faults import FaultPlan
    from shardway.local.model import Limits


# --- in this process ------------------------------------------------------------------------------

START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 30.0

T = TypeVar("T")


def options_of(values: dict[str, Any]) -> LocalOptions:
    """Return options from keyword arguments; a path may be any path-like value. Raises msgspec.ValidationError."""
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    return msgspec.convert(plain, LocalOptions)


class _Life:
    """The service's thread, from a start to its stop.

    Ctrl-C may come at any moment of the thread that starts, asks and stops: nothing that the service's loop waits for
    may stay locked by it, as Python's own events and futures may.
    """

    def __init__(self, options: LocalOptions) -> None:
        self.listens = Reply[None]()
        self.fault: BaseException | None = None
        self.server: LocalServer | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._options = options
        self._stopping: asyncio.Event
        self._has_begun = self._is_to_end = False
        self._over = Reply[None]()

    def begin(self) -> None:
        """Begin to serve."""
        thread(self._run, "shardway-local", logged("the local Kinesis has ended"))

    def end(self, timeout_s: float | None) -> None:
        """Stop the service, even where it has hardly begun, and wait for its end."""
        self._is_to_end = True
        if self.loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._stopping.set)
        if self._has_begun:  # else the service sees it by itself, if its thread ever runs
            with contextlib.suppress(TimeoutError):
                self._over.result(timeout_s)

    def _run(self) -> None:
        self._has_begun = True
        try:
            asyncio.run(self._serve())
        except BaseException as fault:
            self.fault = fault
            self.listens.set_exception(fault)
        finally:
            self._over.set_result(None)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        if self._is_to_end:
            return
        self.server = server = LocalServer(self._options)
        try:
            await server.start()
            self.listens.set_result(None)
            await self._stopping.wait()
        finally:
            await server.stop()


class LocalKinesis:
    """A local Kinesis in a thread of this process, with its own event loop.

    ::

        with LocalKinesis(streams={"orders": 4}) as local:
            client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
            local.clock.advance(3600)

    Keyword arguments are the fields of :class:`LocalOptions`. Any credentials will do.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options_of(options)
        self._life: _Life | None = None

    @staticmethod
    def spawn(*, cpu: int | None = None, **options: Any) -> SpawnedKinesis:
        """Return a local Kinesis in a process of its own, kept to one core if ``cpu`` is given: a context manager,
        too.
        """
        from shardway.local.embedded import SpawnedKinesis

        return SpawnedKinesis(options_of(options), cpu=cpu)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> LocalKinesis:
        """Start to serve, and return when the service listens. Raises what kept it from that (OSError: the port is
        taken).
        """
        if self._life is not None:
            raise RuntimeError("this local Kinesis is running already")
        life = self._life = _Life(self.options)
        try:
            life.begin()
            life.listens.result(START_TIMEOUT_S)
        except BaseException as fault:  # also what a signal handler raises
            self._life = None
            life.end(CALL_TIMEOUT_S)
            if isinstance(fault, TimeoutError) and not life.listens.done():
                raise TimeoutError(f"the local Kinesis did not start within {START_TIMEOUT_S:.0f} s") from None
            raise
        return self

    def stop(self) -> None:
        """Close all connections and end the thread. Raises what went wrong in it. Data without a folder is gone."""
        life = self._life
        if life is None:
            return
        life.end(None)
        self._life = None
        if life.fault is not None:
            raise life.fault

    def __enter__(self) -> LocalKinesis:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- controls ---------------------------------------------------------------------------------

    @property
    def endpoint_url(self) -> str:
        """The URL at which clients reach the service."""
        return self._running().endpoint_url

    @property
    def region(self) -> str:
        """The region of the streams' ARNs."""
        return self.options.region

    @property
    def clock(self) -> VirtualClock:
        """The service's clock: ``now()``, ``advance(seconds)``."""
        return self._running().clock

    @property
    def ca_file(self) -> str | None:
        """The file of the certificate that clients must trust, when the service serves HTTPS; else None."""
        return self._running().ca_file

    @property
    def faults(self) -> FaultPlan:
        """The faults, to which a test adds: ``faults.add(Fault(how="throttle", operation="GetRecords", count=2))``."""
        return self._running().faults

    @property
    def limits(self) -> Limits:
        """The limits; a value that is set on them holds from the next call on."""
        return self._running().limits

    def set_limits(self, **changes: Any) -> None:
        """Switch limits on or off (``per_shard=True``), or set their numbers. Raises ``ValueError``."""
        self._running().change_limits(changes)

    def reset(self) -> None:
        """Make all as new: only the options' streams, no faults, no counts. The clock and the limits stay."""
        self._on_loop(self._running().reset)

    def stats(self) -> Stats:
        """Return the counts of calls since the start or the last :meth:`reset_stats`."""
        return self._on_loop(self._running().counters.snapshot)

    def reset_stats(self) -> None:
        """Begin to count at zero."""
        self._on_loop(self._running().counters.reset)

    def ask(self, operation: str, body: bytes) -> bytes:
        """Make one call to Kinesis, without HTTP, limits of connections, faults or counts, with JSON in and out as
        AWS's.

        Raises `shardway.local.model.ModelError`.
        """
        server = self._running()
        return self._on_loop(lambda: server.model.handle(operation, body))

    def environment(self) -> dict[str, str]:
        """Return environment variables that make any AWS SDK in a child process use this service."""
        return environment(self.endpoint_url, self.region, self.ca_file)

    def _running(self) -> LocalServer:
        if self._life is None or self._life.server is None:
            raise RuntimeError("this local Kinesis is not running: use it in a with statement, or start() it")
        return self._life.server

    def _on_loop(self, function: Callable[[], T]) -> T:
        self._running()
        assert self._life is not None
        assert self._life.loop is not None
        reply = Reply[T]()

        def call() -> None:
            try:
                reply.set_result(function())
            except BaseException as error:
                reply.set_exception(error)

        self._life.loop.call_soon_threadsafe(call)
        return reply.result(CALL_TIMEOUT_S)


# --- in a process of its own ----------------------------------------------------------------------

STOP_TIMEOUT_S = 10.0
CONTROL_TIMEOUT_S = 30.0


class ControlError(ShardwayError):
    """The service did not start, or refused a control."""


class SpawnedKinesis:
    """A local Kinesis in a child process. It ends with :meth:`stop`, or when this process ends, however that ends.

    Only one thread at a time may use it.
    """

    def __init__(self, options: LocalOptions, *, cpu: int | None = None) -> None:
        self.options = options
        self._cpu = cpu
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint_url = ""
        """The URL at which clients reach the service."""
        self.ca_file: str | None = None
        """The file of the certificate that clients must trust, when the service serves HTTPS; else None."""
        self.clock = RemoteClock(self)
        self.faults = RemoteFaults(self)

    def start(self) -> SpawnedKinesis:
        """Start to serve. Raises ControlError with what kept the service from that."""
        if self._process is not None:
            raise RuntimeError("this local Kinesis is running already")
        process = self._process = subprocess.Popen(  # noqa: S603  (this interpreter, arguments of our own)
            [sys.executable, "-m", "shardway.local", msgspec.json.encode(self.options).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        if self._cpu is not None:
            os.sched_setaffinity(process.pid, {self._cpu})
        assert process.stdout is not None
        line = process.stdout.readline()
        said = msgspec.json.decode(line, type=dict[str, Any]) if line else {"error": "it ended at once"}
        if "error" in said:
            self.stop()
            raise ControlError(f"the local Kinesis did not start: {said['error']}")
        self.endpoint_url, self.ca_file = said["endpoint_url"], said["ca_file"]
        return self

    def stop(self) -> None:
        """End the process in order."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        if self._process is not None:
            self._process.kill()
        self.stop()

    def __enter__(self) -> SpawnedKinesis:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process's id. Raises RuntimeError when it is not running."""
        if self._process is None:
            raise RuntimeError("this local Kinesis is not running: use it in a with statement, or start() it")
        return self._process.pid

    @property
    def region(self) -> str:
        """The region of the streams' ARNs."""
        return self.options.region

    def environment(self) -> dict[str, str]:
        """Return environment variables that make any AWS SDK in a child process use this service."""
        return environment(self.endpoint_url, self.region, self.ca_file)

    def stats(self) -> Stats:
        """Return the counts of calls since the start or the last :meth:`reset_stats`."""
        return msgspec.convert(self.control("GET", "stats"), Stats)

    def reset_stats(self) -> None:
        """Begin to count at zero."""
        self.control("DELETE", "stats")

    def limits(self) -> dict[str, Any]:
        """The limits as they are now."""
        return dict(self.control("GET", "limits"))

    def set_limits(self, **changes: Any) -> None:
        """Switch limits on or off (``per_shard=True``), or set their numbers."""
        self.control("POST", "limits", changes)

    def reset(self) -> None:
        """Make all as new: only the options' streams, no faults, no counts. The clock and the limits stay."""
        self.control("POST", "reset")

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Use a control under ``/_shardway/``. Raises ControlError when it is refused."""
        address = urlsplit(self.endpoint_url)
        host, port = address.hostname or "", address.port or 0
        connection: http.client.HTTPConnection
        if self.ca_file is None:
            connection = http.client.HTTPConnection(host, port, timeout=CONTROL_TIMEOUT_S)
        else:
            context = ssl.create_default_context(cafile=self.ca_file)
            connection = http.client.HTTPSConnection(host, port, timeout=CONTROL_TIMEOUT_S, context=context)
        try:
            connection.request(method, f"/_shardway/{path}", None if body is None else msgspec.json.encode(body))
            response = connection.getresponse()
            answer = msgspec.json.decode(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise ControlError(f"{method} {path}: {answer['error']}")
        return answer


class RemoteClock:
    """The clock of a service in another process."""

    def __init__(self, service: SpawnedKinesis) -> None:
        self._service = service

    def now(self) -> float:
        """The service's time in seconds since the epoch."""
        return float(self._service.control("GET", "clock")["now_s"])

    def advance(self, seconds: float) -> float:
        """Move the clock forward, and return the new time."""
        return float(self._service.control("POST", "clock", {"advance_s": seconds})["now_s"])


class RemoteFault:
    """A fault ordered in another process."""

    def __init__(self, service: SpawnedKinesis, number: int, fault: Fault) -> None:
        self._service = service
        self.number = number
        self.fault = fault

    @property
    def hits(self) -> int:
        """How often the fault struck."""
        return int(self._service.control("GET", f"faults/{self.number}")["hits"])

    def clear(self) -> None:
        """Take the fault back."""
        self._service.control("DELETE", f"faults/{self.number}")


class RemoteFaults:
    """The faults of a service in another process."""

    def __init__(self, service: SpawnedKinesis) -> None:
        self._service = service

    def add(self, fault: Fault) -> RemoteFault:
        """Order a fault."""
        return RemoteFault(self._service, self._service.control("POST", "faults", fault)["id"], fault)

    def clear(self) -> None:
        """Take all faults back."""
        self._service.control("DELETE", "faults")
