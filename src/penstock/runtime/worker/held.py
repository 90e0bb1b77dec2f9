"""A shard that this worker holds: its tenure, its reader, and what is to become of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.handoff.owner import OwnerInput
from penstock.core.leases.tenure import End, Ended, HandoffAsked, Lost, Measured
from penstock.core.worker.round import LeaderNamed, OwnerLearnt
from penstock.runtime.shard.listener import ShardListener
from penstock.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.feeding.pages import FeedCursor
    from penstock.core.worker.round import Input
    from penstock.runtime.shard.shard_reader import ShardReader
    from penstock.runtime.shard.tenure_keeper import TenureKeeper
    from penstock.runtime.waiting import SteadyClock


class HeldShard(ShardListener):
    """Does what the worker decides on the owner's side of a handoff, and tells what the shard and its lease say."""

    def __init__(
        self,
        keeper: TenureKeeper,
        reader: ShardReader,
        cursor: FeedCursor,
        *,
        tell: Callable[[Input], None],
        clock: SteadyClock,
    ) -> None:
        """``cursor``: how far the shard is fetched. ``tell``: the worker's machine."""
        self.keeper = keeper
        self.reader = reader
        reader.listen(self)
        self._key = keeper.row.key
        self._cursor = cursor
        self._measured_s = clock()
        self._measured_bytes = cursor.payload_bytes
        self._throughput_kib_s: float | None = None
        self._tell = tell
        self._clock = clock
        self._draining: asyncio.Task[None] | None = None

    def lease_goes(self, reader: ShardReader, command: HandoffAsked | Ended | Lost) -> None:
        """See `ShardListener`."""
        if isinstance(command, HandoffAsked):
            self._tell(LeaderNamed(self._key, command.to))
        elif isinstance(command, Ended):
            reader.stop("the shard was handed over")
            self._learnt(OwnerInput.ENDED)
        else:
            self._learnt(OwnerInput.LOST)

    def measure(self) -> None:
        """Have the next renewal store how much is read, and until when all is settled."""
        now_s, cursor = self._clock(), self._cursor
        if now_s <= self._measured_s:
            return
        rate = (cursor.payload_bytes - self._measured_bytes) / 1024 / (now_s - self._measured_s)
        self._measured_s, self._measured_bytes = now_s, cursor.payload_bytes
        before, row = self._throughput_kib_s, self.keeper.row
        self._throughput_kib_s = rate if before is None else (before + rate) / 2  # as the KCL 3.x smooths it
        done = row.pending is None and self.reader.ledger.came_to <= self.reader.settled <= row.checkpoint
        until_ms = None if cursor.read_until_s is None or not done else int(cursor.read_until_s * 1000)
        self.keeper.tell(Measured(self._throughput_kib_s, until_ms))

    def let_go(self, reader: ShardReader) -> None:
        """See `ShardListener`: the lease is for any worker."""
        self._learnt(OwnerInput.FREE)

    def stop(self, due_s: float) -> None:
        """Hand out nothing more, and tell when all is settled, or when it is ``due_s``."""
        drained = self.reader.drain(max(0.0, due_s - self._clock()))
        self._draining = spawn(self._drain(drained), self._drain_failed)

    def resume(self) -> None:
        """Go on delivering."""
        if self._draining is not None:
            self._draining.cancel()
        self.reader.resume()

    def end(self, to: str | None, process: str | None) -> None:
        """Give the lease to a worker, or free it (None). ``process``: which process of that name gets it, if known."""
        self.reader.hand_over()
        self.keeper.tell(End(to, process))

    def cut(self, reason: str) -> None:
        """Reading has failed: what is settled is stored, and the lease is free."""
        self.end(None, None)
        self.reader.stop(reason)

    def close(self) -> None:
        """The tenure is over."""
        if self._draining is not None:
            self._draining.cancel()

    def _learnt(self, given: OwnerInput) -> None:
        self._tell(OwnerLearnt(self._key, given))

    async def _drain(self, drained: asyncio.Future[bool]) -> None:
        self._learnt(OwnerInput.DRAINED if await drained else OwnerInput.DRAIN_DEADLINE)

    def _drain_failed(self, error: BaseException) -> None:
        """What is settled by now goes with the lease, as at the deadline."""
        self.reader.tell_failed("the end of its delivery", "it is handed over with what is settled by now")(error)
        self._learnt(OwnerInput.DRAIN_DEADLINE)
