"""The place where a consumer's own work runs: the program's event loop, or a loop in a thread of its own.

The start decides it. Where the work is on the program's loop, a program that blocks that loop holds it up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shardway.runtime.clocks import OwnTimeLoop, YieldBudget
from shardway.runtime.threads.host import SameLoop
from shardway.runtime.threads.loop_thread import CALLER
from shardway.runtime.threads.own_thread import OwnThread

if TYPE_CHECKING:
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.threads.host import Host


class Placement:
    """The place of one consumer's work."""

    def __init__(self, spec: ConsumerSpec, *, may_leave: bool) -> None:
        """``may_leave`` False: the work stays on the loop of the start, whatever the options say."""
        self._spec = spec
        self._may_leave = may_leave
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_programs = False
        """True where the loop of the start is the program's: neither one with a time of its own, nor that of a
        `SyncConsumer`, which is in a thread of its own already.
        """
        self.host: Host = SameLoop()
        """The host in which the work runs."""
        self.budget = YieldBudget()
        """The pauses on the program's loop, between batches."""

    def choose(self) -> None:
        """Choose the host, as the consumer starts, on the running loop."""
        self._loop = loop = asyncio.get_running_loop()
        in_thread = CALLER.get() is not None
        self.is_programs = self._may_leave and not in_thread and not isinstance(loop, OwnTimeLoop)
        leaves = self.is_programs and self._spec.allows_own_thread
        self.host = OwnThread() if leaves else SameLoop(loop)
        if leaves:
            self.budget.turns = 1

    @property
    def now_s(self) -> float:
        """The time of the loop that the consumer was started on; 0 before."""
        return 0.0 if self._loop is None else self._loop.time()
