"""Serve the local Kinesis as a process, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

from shardway.local.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.local.options import LocalOptions


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
