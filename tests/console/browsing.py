"""A console as it is served, on a thread of its own, and a Chromium that looks at it."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.console.serving import Serving
from penstock.tasks import logged, thread

if TYPE_CHECKING:
    from penstock.console.settings import ConsoleSettings
    from penstock.wiring import ConnectionOptions

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def chromium() -> str | None:
    """Where Chromium is; None: there is none."""
    found = subprocess.run([ROOT / "scripts" / "chromium"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


class Served:
    """Serves a console until it is left."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions) -> None:
        self._given = (settings, connection)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.serving: Serving

    def __enter__(self) -> Served:
        self._thread = thread(self._run, "console-under-test", logged("the console under test failed"))
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self.serving.end)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        """Where it is."""
        return self.serving.url

    @property
    def console(self) -> Any:
        """Its parts."""
        return self.serving.gate.console

    def launch_url(self) -> str:
        """A link that signs in once."""
        return self.serving.launch_url()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.serving = Serving(*self._given)
        self._ready.set()
        await self.serving.run_until_told()
