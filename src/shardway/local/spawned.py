"""The local service in a process of its own, with the same controls as the one in this process."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from shardway.errors import ShardwayError
from shardway.local.counters import Stats
from shardway.local.faults import Fault
from shardway.local.options import LocalOptions, environment

if TYPE_CHECKING:
    from types import TracebackType


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
        """Start the service. Raises ControlError with the reason if it does not start."""
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
        """Reset the service: the options' streams alone remain, without faults or counts. The clock and the limits
        stay.
        """
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
