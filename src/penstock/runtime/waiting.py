"""Waiting for an event, for a while at most."""

from __future__ import annotations

import asyncio
import contextlib


async def wait_set(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until the event is set, or so long; None: as long as it takes.

    (Python 3.11's ``wait_for`` may lose a cancellation that comes with the event.)
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
