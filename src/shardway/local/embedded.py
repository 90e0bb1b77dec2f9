"""The local service, served for a test or a tool in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.local.counters import Stats
from shardway.local.options import LocalOptions, environment
from shardway.local.server import LocalServer
from shardway.local.spawned import SpawnedKinesis
from shardway.reply import Reply
from shardway.tasks import logged, thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shardway.local.clock import VirtualClock
    from shardway.local.faults import FaultPlan
    from shardway.local.model import Limits


START_TIMEOUT_S = 30.0
CALL_TIMEOUT_S = 30.0
T = TypeVar("T")


def options_of(values: dict[str, Any]) -> LocalOptions:
    """Return options from keyword arguments; a path may be any path-like value, and a tuple a list. Raises
    OptionError.
    """
    plain = dict(values)
    for name, value in values.items():
        if isinstance(value, os.PathLike):
            plain[name] = os.fspath(value)
        elif isinstance(value, list):
            plain[name] = tuple(value)
    return LocalOptions(**plain)


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
        self._end = Reply[None]()

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
                self._end.result(timeout_s)

    def _run(self) -> None:
        self._has_begun = True
        try:
            asyncio.run(self._serve())
        except BaseException as fault:
            self.fault = fault
            self.listens.set_exception(fault)
        finally:
            self._end.set_result(None)

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
        from shardway.local.spawned import SpawnedKinesis

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
        return self._running_server().endpoint_url

    @property
    def region(self) -> str:
        """The region of the streams' ARNs."""
        return self.options.region

    @property
    def clock(self) -> VirtualClock:
        """The service's clock: ``now()``, ``advance(seconds)``."""
        return self._running_server().clock

    @property
    def ca_file(self) -> str | None:
        """The file of the certificate that clients must trust, when the service serves HTTPS; else None."""
        return self._running_server().ca_file

    @property
    def faults(self) -> FaultPlan:
        """The faults. A test adds to them: ``faults.add(Fault(how="throttle", operation="GetRecords", count=2))``."""
        return self._running_server().faults

    @property
    def limits(self) -> Limits:
        """The limits; a value that is set on them holds from the next call on."""
        return self._running_server().limits

    def set_limits(self, **changes: Any) -> None:
        """Switch limits on or off (``per_shard=True``), or set their numbers. Raises ``ValueError``."""
        self._running_server().change_limits(changes)

    def reset(self) -> None:
        """Make all as new: only the options' streams, no faults, no counts. The clock and the limits stay."""
        self._on_loop(self._running_server().reset)

    def stats(self) -> Stats:
        """Return the counts of calls since the start or the last :meth:`reset_stats`."""
        return self._on_loop(self._running_server().counters.snapshot)

    def reset_stats(self) -> None:
        """Begin to count at zero."""
        self._on_loop(self._running_server().counters.reset)

    def ask(self, operation: str, body: bytes) -> bytes:
        """Make one call to Kinesis, without HTTP, limits of connections, faults or counts, with JSON in and out as
        AWS's.

        Raises `shardway.local.model.ModelError`.
        """
        server = self._running_server()
        return self._on_loop(lambda: server.model.handle(operation, body))

    def environment(self) -> dict[str, str]:
        """Return environment variables that make any AWS SDK in a child process use this service."""
        return environment(self.endpoint_url, self.region, self.ca_file)

    def _running_server(self) -> LocalServer:
        if self._life is None or self._life.server is None:
            raise RuntimeError("this local Kinesis is not running: use it in a with statement, or start() it")
        return self._life.server

    def _on_loop(self, function: Callable[[], T]) -> T:
        self._running_server()
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
