"""A shard that this worker holds: its tenure, its reader, and what is to become of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.handoff.owner import OwnerCommand, OwnerInput
from penstock.core.handoff.sides import OwnerSide
from penstock.core.leases.tenure import End, Ended, HandoffAsked, Lost, Measured
from penstock.runtime.shard.listener import ShardListener
from penstock.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.core.assignment.views import WorkerView
    from penstock.core.feeding.cursor import FeedCursor
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.tenure import Command
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.runtime.shard.tenure_keeper import TenureKeeper


class HeldShard(ShardListener):
    """Does what the owner's side of a handoff commands."""

    def __init__(
        self,
        keeper: TenureKeeper,
        reader: ShardReader,
        side: OwnerSide,
        cursor: FeedCursor,
        *,
        name: Callable[[str, str | None], None],
        clock: Callable[[], float],
    ) -> None:
        """``cursor``: how far the shard is fetched. ``name(key, receiver)``: write into this worker's own row which
        worker gets the lease; None: no worker.
        """
        self.keeper = keeper
        self.reader = reader
        self.side = side
        reader.listen(self)
        self._cursor = cursor
        self._measured_s = clock()
        self._measured_bytes = cursor.payload_bytes
        self._throughput_kib_s: float | None = None
        self._name = name
        self._clock = clock
        self._draining: asyncio.Task[None] | None = None
        self._stopped_s: float | None = None
        self._receiver: str | None = None
        self._workers: Mapping[str, WorkerView] = {}

    def heard(self, command: Command) -> None:
        """What the tenure says."""
        self.reader.heard(command)
        if isinstance(command, HandoffAsked):
            self._do(self.side.leader_named(command.to, self._clock()))
        elif isinstance(command, Ended):
            self.reader.stop("the shard was handed over")
            self._do(self.side.tell(OwnerInput.ENDED, self._clock()))
        elif isinstance(command, Lost):
            self._do(self.side.tell(OwnerInput.LOST, self._clock()))

    def measure(self) -> None:
        """Have the next renewal store how much is read, and until when all is settled."""
        now_s, cursor, ledger = self._clock(), self._cursor, self.reader.ledger
        if now_s <= self._measured_s:
            return
        rate = (cursor.payload_bytes - self._measured_bytes) / 1024 / (now_s - self._measured_s)
        self._measured_s, self._measured_bytes = now_s, cursor.payload_bytes
        before, row = self._throughput_kib_s, self.keeper.row
        self._throughput_kib_s = rate if before is None else (before + rate) / 2  # as the KCL 3.x smooths it
        done = row.pending is None and ledger.came_to <= ledger.safe <= row.checkpoint
        until_ms = None if cursor.read_until_s is None or not done else int(cursor.read_until_s * 1000)
        self.keeper.tell(Measured(self._throughput_kib_s, until_ms))

    def offer(self, receiver: str, *, cold: bool = False) -> None:
        """Hand the shard to this worker."""
        self._do(self.side.offer(receiver, self._clock(), cold=cold))

    def let_go(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        self.free()

    def free(self) -> None:
        """Drain, and free the lease for any worker."""
        self._do(self.side.tell(OwnerInput.FREE, self._clock()))

    def look(self, workers: Mapping[str, WorkerView], *, may_stop: bool = True) -> None:
        """The worker rows were read. ``may_stop``: see `OwnerSide.look`."""
        self._workers = workers
        self._do(self.side.look(workers, self._clock(), may_stop=may_stop))
        self._do(self.side.tick(self._clock(), may_stop=may_stop))

    @property
    def stopped_for_s(self) -> float | None:
        """For how long nothing is handed out, since it is to go. None: it is not."""
        return None if self._stopped_s is None else self._clock() - self._stopped_s

    @property
    def given(self) -> LeaseRow | None:
        """The lease as a give to another worker left it. None: it was not given, or that is not known, or it was given
        to a worker without a row of its own.
        """
        row = self.keeper.row
        return row if self._receiver is not None and row.actual_owner == self._receiver else None

    def cut(self, reason: str) -> None:
        """Reading has failed: what is settled is stored, and the lease is free."""
        self._end(None)
        self.reader.stop(reason)

    def close(self) -> None:
        """The tenure is over."""
        if self._draining is not None:
            self._draining.cancel()

    def _do(self, commands: Iterable[OwnerCommand]) -> None:
        for command in commands:
            if command is OwnerCommand.NAME:
                self._name(self.side.key, self.side.receiver)
            elif command is OwnerCommand.UNNAME:
                self._name(self.side.key, None)
            elif command is OwnerCommand.STOP:
                self.reader.begin_drain()
                self._stopped_s = self._clock()
                self._draining = spawn(self._drain(), self._drain_failed)
            elif command is OwnerCommand.RESUME:
                if self._draining is not None:
                    self._draining.cancel()
                self._stopped_s = None
                self.reader.resume()
            elif command is OwnerCommand.GIVE:
                self._end(self.side.receiver)
            elif command is OwnerCommand.FREE:
                self._end(None)

    async def _drain(self) -> None:
        due_s = self.side.due_s
        wait_s = 3600.0 if due_s is None else max(0.0, due_s - self._clock())
        drained = await self.reader.drain(wait_s)
        given = OwnerInput.DRAINED if drained else OwnerInput.DRAIN_DEADLINE
        self._do(self.side.tell(given, self._clock()))

    def _drain_failed(self, error: BaseException) -> None:
        """What is settled by now goes with the lease, as at the deadline."""
        self.reader.tell_failed("the end of its delivery", "it is handed over with what is settled by now")(error)
        self._do(self.side.tell(OwnerInput.DRAIN_DEADLINE, self._clock()))

    def _end(self, to: str | None) -> None:
        self.reader.hand_over()
        receiver = None if to is None else self._workers.get(to)
        self._receiver = None if receiver is None else to
        self.keeper.tell(End(to, None if receiver is None else receiver.process))
