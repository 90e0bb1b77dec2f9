"""The keeper keeps one lease: it runs the machine of its tenure on the event loop, and carries its writes to
the table.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from shardway.core.leases.conditional_write import Unknown
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.machine import step
from shardway.core.leases.tenure.state import State
from shardway.core.leases.writes import creates
from shardway.tasks import spawn
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.leases import LeaseRow, Write
    from shardway.core.leases.tenure.machine import Result
    from shardway.ports import LeaseTable


class TenureKeeper:
    """Keeps one tenure. ``run`` lives as long as it does; the shard's reader asks `may_deliver` before each
    delivery.
    """

    def __init__(
        self,
        table: LeaseTable,
        begun: Result,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """``begun``: what `claim` or `receive` returned just now, by this ``clock`` (None: the loop's)."""
        self.tenure, first = begun
        self._table = table
        self.lost: tenure_commands.LeaseLost | None = None
        """The loss of the lease, where the tenure ended by it."""
        self._hear: Callable[[tenure_commands.Command], None] | None = None
        self._unheard_commands: deque[tenure_commands.Command] = deque()
        self._clock = clock or asyncio.get_running_loop().time
        self._commands = deque(first)
        self._events: deque[tenure_events.Event] = deque()
        self._more_writes = asyncio.Event()
        self._end = asyncio.Event()
        self._write_task: asyncio.Task[None] | None = None
        self.began: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """A future: True once the lease is held, False when it is not to be had."""

    @property
    def row(self) -> LeaseRow:
        """The lease as it was last confirmed."""
        return self.tenure.row

    @property
    def token(self) -> int:
        """A number that grows with every owner of the lease; 0 before the tenure has begun."""
        return self.tenure.token

    def listen(self, hear: Callable[[tenure_commands.Command], None]) -> None:
        """Tell ``hear`` all that the tenure says, but for its writes: first what it has said so far, then what
        follows.
        """
        self._hear = hear
        while self._unheard_commands:
            hear(self._unheard_commands.popleft())

    def may_deliver(self) -> bool:
        """True while no other worker can have the lease."""
        return self.tenure.may_deliver(self._clock())

    def handle(self, event: tenure_events.Event) -> None:
        """Have the machine handle an event soon, and its commands performed."""
        if self._events and isinstance(event, tenure_events.StoreCheckpoint) and _rides(event):
            last = self._events[-1]
            if isinstance(last, tenure_events.StoreCheckpoint) and _rides(last):
                # Thousands of records may be settled one by one before the machine comes to its turn.
                if last.checkpoint < event.checkpoint:
                    self._events[-1] = event
                return
        self._events.append(event)
        self._more_writes.set()

    def confirm_worker_row(self, sent_s: float) -> None:
        """Note that a write to the worker's own row was confirmed, sent at this time of the keeper's clock."""
        if self.tenure.state is State.HELD and not self._events and self.may_deliver():
            # The event only puts off what is waited for. A thousand keepers that are woken up for that are most of the
            # work of a worker that has much to show. A keeper that may not deliver has to know: the machine may have
            # slept.
            self._take(tenure_events.WorkerRowConfirmed(sent_s))
        else:
            self.handle(tenure_events.WorkerRowConfirmed(sent_s))

    def see_lease(self, row: LeaseRow) -> None:
        """Note a row that a look at the table showed. A row that shows nothing new wakes nothing up: a scan
        shows all.
        """
        if row.counter > self.row.counter or row.checkpoint_owner is not None:
            self.handle(tenure_events.LeaseSeen(row))

    async def end(self, to: str | None = None) -> None:
        """Give the lease to a worker, or free it, and wait until the tenure is over."""
        self.handle(tenure_events.EndTenure(to))
        await self.over()

    def abandon(self) -> None:
        """Let the row be as it is, and do nothing more for the tenure."""
        self.handle(tenure_events.AbandonTenure())

    async def over(self) -> None:
        """Wait until the tenure is over."""
        await self._end.wait()

    async def run(self) -> None:
        """Run the tenure to its end. If this is cancelled, others have to wait for the lease's failover time."""
        try:
            self._do()
            while self.tenure.state is not State.OVER:
                now_s, wake_at_s = self._clock(), self.tenure.wake_at_s
                wait_s = None if wake_at_s is None else max(0.0, wake_at_s - now_s)
                if not self._events and wait_s != 0.0:
                    self._more_writes.clear()
                    await wait_set(self._more_writes, wait_s)
                self._take(self._events.popleft() if self._events else tenure_events.TimerFired())
        finally:
            if self.tenure.state is not State.OVER:
                self._take(tenure_events.AbandonTenure())
            if self._write_task is not None:
                self._write_task.cancel()
            if not self.began.done():
                self.began.set_result(False)
            self._end.set()

    def _take(self, event: tenure_events.Event) -> None:
        self.tenure, follows = step(self.tenure, event, self._clock())
        self._commands += follows
        self._do()

    def _do(self) -> None:
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, tenure_commands.SendWrite):
                self._write_task = spawn(self._write(command.write), self._handle_failure)
                continue
            if isinstance(command, tenure_commands.TenureBegan | tenure_commands.TakeFailed) and not self.began.done():
                self.began.set_result(isinstance(command, tenure_commands.TenureBegan))
            if isinstance(command, tenure_commands.LeaseLost):
                self.lost = command
            if self._hear is None:
                self._unheard_commands.append(command)
            else:
                self._hear(command)

    async def _write(self, write: Write) -> None:
        try:
            born = creates(write)
            outcome = await (self._table.write(write) if born is None else self._table.create(born))
        except Exception as error:  # Denied, no such table: the machine tries until its time is over.
            self._handle_failure(error)
        else:
            self.handle(tenure_events.WriteAnswered(outcome))

    def _handle_failure(self, error: BaseException) -> None:
        self.handle(tenure_events.WriteAnswered(Unknown(type(error).__name__)))


def _rides(event: tenure_events.StoreCheckpoint) -> bool:
    """True for a checkpoint that goes with the next renewal."""
    return not (event.at_once or event.commit)
