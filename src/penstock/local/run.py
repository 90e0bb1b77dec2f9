"""The local service as a process: serves until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

from penstock.local.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.local.settings import LocalSettings


def serve(settings: LocalSettings, announce: Callable[[LocalServer], None], *, with_parent: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, or ``with_parent`` until standard input is closed.

    ``announce`` is called once it listens. Raises what :meth:`LocalServer.start` raises.
    """
    asyncio.run(_serve(settings, announce, with_parent))


async def _serve(settings: LocalSettings, announce: Callable[[LocalServer], None], with_parent: bool) -> None:
    _allow_many_connections()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    server = LocalServer(settings)
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
    """Each connection is an open file, and the usual limit is 1,024; a process may raise its own to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
