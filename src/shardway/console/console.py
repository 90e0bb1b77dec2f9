"""The console: the parts that its pages share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.console import plans
from shardway.console.audit import AuditLog
from shardway.console.decoding_threads import DecodingThreads
from shardway.console.local_control import LocalControl
from shardway.console.looks.sampler import CALLS_PER_S, Sampler
from shardway.console.looks.tailing import Tails
from shardway.console.looks.topics import Topics
from shardway.console.payloads import Payloads
from shardway.inspect import Inspector
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from shardway.console.settings import ConsoleSettings


class Console:
    """The parts that pages use. A console belongs to one event loop."""

    def __init__(self, settings: ConsoleSettings, connection: ConnectionOptions | None = None) -> None:
        self.settings = settings
        self.connection = connection or ConnectionOptions()
        self.inspector = Inspector(self.connection, calls_per_s=CALLS_PER_S)
        self.sampler = Sampler(self.inspector)
        self.topics = Topics(settings.store)
        self.payloads = Payloads(settings)
        self.decoding = DecodingThreads()
        self.tails = Tails(self.inspector, self.payloads, self.decoding)
        self.audit = AuditLog(settings.audit)
        self.streams = dict(settings.streams)
        """The streams of applications whose leases do not name them, as the console was started. A visitor's choice
        stands in the address alone: it is no other visitor's.
        """
        self.plans = plans.Plans()
        self.account: str | None = None
        """The account whose streams were seen; None: none was seen yet."""
        self.live_pages = 0
        self.ending = asyncio.Event()
        """The event that is set when the server is to end: it ends the streams of events."""
        self.local = (
            None
            if settings.local_url is None
            else LocalControl(settings.local_url, self.connection, self.connection.ca_bundle)
        )

    def end(self) -> None:
        """End the streams of events, which would go on for as long as their browsers do."""
        self.ending.set()
        self.sampler.wake()
        self.tails.wake()

    async def close(self) -> None:
        """Stop looking at topics, and close the connections."""
        self.end()
        await self.tails.close()
        await self.sampler.close()
        await self.inspector.close()
        self.decoding.close()
