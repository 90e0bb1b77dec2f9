"""The local service inside a test's or a tool's own process."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.local.environment import environment
from penstock.local.server import LocalServer
from penstock.local.settings import LocalSettings
from penstock.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from penstock.local.clock import VirtualClock
    from penstock.local.faults import FaultPlan
    from penstock.local.model import Limits
    from penstock.local.spawned import SpawnedKinesis
    from penstock.local.stats import Stats

START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 30.0

T = TypeVar("T")


def settings_of(values: dict[str, Any]) -> LocalSettings:
    """Settings from keyword arguments; a path may be any path-like value. Raises msgspec.ValidationError."""
    plain = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
    return msgspec.convert(plain, LocalSettings)


class LocalKinesis:
    """A local Kinesis in a thread of this process, with its own event loop.

    ::

        with LocalKinesis(streams={"orders": 4}) as local:
            client = boto3.client("kinesis", endpoint_url=local.endpoint_url, region_name=local.region)
            local.clock.advance(3600)

    Keyword arguments are the fields of :class:`LocalSettings`. Any credentials will do.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings_of(settings)
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._server: LocalServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @staticmethod
    def spawn(*, cpu: int | None = None, **settings: Any) -> SpawnedKinesis:
        """The same in a process of its own, kept to one core if ``cpu`` is given: a context manager, too."""
        from penstock.local.spawned import SpawnedKinesis

        return SpawnedKinesis(settings_of(settings), cpu=cpu)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> LocalKinesis:
        """Serve. Returns when it listens; raises what kept it from that (OSError: the port is taken)."""
        if self._thread is not None:
            raise RuntimeError("this local Kinesis is running already")
        self._ready.clear()
        self._thread = thread(self._run, "penstock-local", logged("the local Kinesis has ended"))
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the local Kinesis did not start within {START_TIMEOUT_S:.0f} s")
        if self._fault is not None:
            self._thread.join()
            self._thread = None
            raise self._fault
        return self

    def stop(self) -> None:
        """Close all connections and end the thread; raises what went wrong in it. Data without a folder is gone."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def __enter__(self) -> LocalKinesis:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- controls ---------------------------------------------------------------------------------

    @property
    def endpoint_url(self) -> str:
        """Where clients reach it."""
        return self._running().endpoint_url

    @property
    def region(self) -> str:
        """The region of its ARNs."""
        return self.settings.region

    @property
    def clock(self) -> VirtualClock:
        """The service's clock: ``now()``, ``advance(seconds)``."""
        return self._running().clock

    @property
    def ca_file(self) -> str | None:
        """The certificate that clients must trust, when it serves HTTPS."""
        return self._running().ca_file

    @property
    def faults(self) -> FaultPlan:
        """Faults to order: ``faults.add(Fault(how="throttle", operation="GetRecords", count=2))``."""
        return self._running().faults

    @property
    def limits(self) -> Limits:
        """The limits; what is set on them holds from the next call on."""
        return self._running().limits

    def set_limits(self, **changes: Any) -> None:
        """Switch limits on or off (``per_shard=True``), or set their numbers. Raises ``ValueError``."""
        self._running().change_limits(changes)

    def reset(self) -> None:
        """As new: no streams but those of the settings, no faults, no counts. The clock and the limits stay."""
        self._on_loop(self._running().reset)

    def stats(self) -> Stats:
        """What was asked since the start or the last :meth:`reset_stats`."""
        return self._on_loop(self._running().counters.snapshot)

    def reset_stats(self) -> None:
        """Begin to count at zero."""
        self._on_loop(self._running().counters.reset)

    def ask(self, operation: str, body: bytes) -> bytes:
        """One call to Kinesis, without HTTP, limits of connections, faults or counts; JSON in and out, as AWS's.

        Raises `penstock.local.model.ModelError`.
        """
        server = self._running()
        return self._on_loop(lambda: server.model.handle(operation, body))

    def environment(self) -> dict[str, str]:
        """Environment variables that make any AWS SDK in a child process use this service."""
        return environment(self.endpoint_url, self.region, self.ca_file)

    def _running(self) -> LocalServer:
        if self._server is None or self._thread is None:
            raise RuntimeError("this local Kinesis is not running: use it in a with statement, or start() it")
        return self._server

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        self._running()
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(CALL_TIMEOUT_S)

    def _run(self) -> None:
        self._fault = None
        try:
            asyncio.run(self._serve())
        except BaseException as fault:
            self._fault = fault
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        server = self._server = LocalServer(self.settings)
        try:
            await server.start()
            self._ready.set()
            await self._stopping.wait()
        finally:
            await server.stop()
