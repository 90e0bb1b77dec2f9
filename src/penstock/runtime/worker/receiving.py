"""Coming to leases: asking for what others hold, warming up, taking what is free."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.assignment.kcl3 import Step
from penstock.core.assignment.views import is_free
from penstock.core.handoff.receiver import ReceiverCommand, ReceiverInput, ReceiverState
from penstock.core.handoff.sides import ReceiverSide
from penstock.core.leases.steps import claim, receive
from penstock.runtime.waiting import LOOKS_AT_ONCE_MAX, side_by_side
from penstock.runtime.worker.warming import WarmUp

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Mapping

    from penstock.core.assignment.decide import Decision
    from penstock.core.assignment.views import LeaseView, WorkerView
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.steps import Result
    from penstock.ports import LeaseTable
    from penstock.runtime.feeds import PollingFeed
    from penstock.runtime.shard.window_reading import WindowRead
    from penstock.runtime.worker.presence import Presence
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.runtime.worker.sight import Sight
    from penstock.tasks import Heard

READS_MAX = 32
"""So many awaited leases are always read one by one."""
LEASES_PER_READ_MAX = 8
"""More are read one by one while they are fewer than one in so many of all leases: a consistent read of one costs as
much as a dozen small leases in a scan, which reads the whole table.
"""


class Receiving:
    """Does what the receiver's sides of handoffs command."""

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        settings: WorkerSettings,
        sight: Sight,
        presence: Presence,
        *,
        held: Container[str],
        open_feed: Callable[[LeaseRow], PollingFeed],
        open_window: Callable[[LeaseRow], WindowRead | None],
        begin: Callable[[ReceiverSide, Result], None],
        tell_failed: Callable[[LeaseRow, str, Callable[[BaseException], object]], Heard],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        stir: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """``held``: what this worker holds, or has claimed. ``begin`` starts a tenure; ``stir`` has another round made
        at once. ``tell_failed``: a handler for reading ahead that has failed, with what follows in words, and to be
        done.
        """
        self.id = worker_id
        self.sides: dict[str, ReceiverSide] = {}
        self.warming: dict[str, WarmUp] = {}
        self._table = table
        self._settings = settings
        self._sight = sight
        self._presence = presence
        self._held = held
        self._open_feed = open_feed
        self._open_window = open_window
        self._begin = begin
        self._tell_failed = tell_failed
        self._spawn = spawn
        self._stir = stir
        self._clock = clock
        self._by_scan_s = float("-inf")  # when the scan was sent by which the awaited leases were looked at last

    @property
    def waits_for_many(self) -> bool:
        """True while so many leases are awaited that one scan costs less than a read of each of them."""
        awaited = sum(side.polls for side in self.sides.values())
        return awaited > READS_MAX and awaited * LEASES_PER_READ_MAX >= len(self._sight.leases)

    @property
    def waits(self) -> bool:
        """True while a lease may come at any moment."""
        return any(side.polls for side in self.sides.values())

    async def round(
        self, part: Decision, mine: Collection[str], leases: Mapping[str, LeaseView], workers: Mapping[str, WorkerView]
    ) -> None:
        """Take, ask, warm up; look closely at the leases that are on their way here. ``mine``: leases that have this
        worker's name already, and that it does not hold.
        """
        offered = [key for owner in workers.values() for key, to in owner.gives.items() if to == self.id]
        coming = [key for key, one in part.follow.items() if one is Step.WARM_UP]
        for key in (*part.take, *part.ask, *mine, *coming, *offered):
            if key not in self._held and key not in self.sides:
                self.sides[key] = ReceiverSide(key, self.id, failover_s=self._settings.failover_s)
        planned = {*part.take, *mine}
        by_scan = self.waits_for_many and self._sight.scan_sent_s > self._by_scan_s
        if by_scan:
            self._by_scan_s = self._sight.scan_sent_s

        async def look(side: ReceiverSide) -> None:
            key = side.key
            await self._look(side, part, planned, leases.get(key), workers, by_scan=by_scan)
            if side.state is ReceiverState.IDLE and self.sides.get(key) is side:
                del self.sides[key]

        # A round trip each: one after another, a deploy would leave hundreds of shards without a reader for seconds.
        await side_by_side(look, list(self.sides.values()), LOOKS_AT_ONCE_MAX)

    async def began(self, side: ReceiverSide, began: bool) -> None:
        """The tenure has begun, or will not. The side stays until it is `over`, lest the same lease be taken twice."""
        if side.state is ReceiverState.TAKING:
            await self._do(side, side.tell(ReceiverInput.BEGAN if began else ReceiverInput.NOT_TAKEN))

    def over(self, side: ReceiverSide) -> None:
        """Its lease is held by now, or will not be."""
        if self.sides.get(side.key) is side:
            del self.sides[side.key]

    async def _look(
        self,
        side: ReceiverSide,
        part: Decision,
        planned: Collection[str],
        lease: LeaseView | None,
        workers: Mapping[str, WorkerView],
        *,
        by_scan: bool,
    ) -> None:
        key, leaving = side.key, self._presence.leaving
        if key in part.ask and lease is not None and lease.owner is not None and not leaving:
            await self._do(side, side.want(lease.owner))
        elif leaving or (side.state is ReceiverState.ASKING and key not in planned):
            # What an owner offers is taken, whatever the plan: the owner may be leaving.
            await self._do(side, side.drop())
        owner = workers.get(side.owner or (lease.owner if lease is not None else None) or "")
        refuses = leaving or key in self._presence.avoids()  # what it cannot read, the owner gives to another one
        await self._do(side, side.look_at_owner(owner, self._clock(), leaving=refuses))
        if side.polls:
            await self._poll(side, workers, by_scan=by_scan)
        elif lease is not None and (key in planned or part.follow.get(key) is Step.WARM_UP):
            looked = side.look_at_lease(
                lease,
                sent_s=self._sight.scanned_s,
                now_s=self._clock(),
                # What is to be taken is free, or a KCL worker has too much of it.
                free=key in part.take or is_free(lease, workers, self._settings.failover_s),
                planned=key in planned,
                leaving=leaving,
            )
            await self._do(side, looked)

    async def _poll(self, side: ReceiverSide, workers: Mapping[str, WorkerView], *, by_scan: bool) -> None:
        """``by_scan``: the last scan was made just now, for this."""
        sight = self._sight
        if by_scan:
            sent_s, row, known = sight.scan_sent_s, sight.leases.get(side.key), sight.before.get(side.key)
        else:
            sent_s, row = self._clock(), await sight.get(side.key)
            known = sight.leases.get(side.key)
            if row is not None:
                sight.saw(row)
        if row is not None and (warming := self.warming.get(side.key)) is not None:
            warming.drop(row.checkpoint)
        view = None if row is None else sight.view(row)
        # The owner's silence was looked at before this read: it counts only if the lease has not moved since the scan.
        moved = row is not None and row.owner is not None and (known is None or row.counter != known.counter)
        free = view is not None and not moved and is_free(view, workers, self._settings.failover_s)
        leaving = self._presence.leaving
        await self._do(side, side.look_at_lease(view, sent_s=sent_s, now_s=self._clock(), free=free, leaving=leaving))

    async def _do(self, side: ReceiverSide, commands: Iterable[ReceiverCommand]) -> None:
        key, presence = side.key, self._presence
        for command in commands:
            if command is ReceiverCommand.SAY_WANTED:
                presence.wanted.add(key)
                presence.changed()
            elif command is ReceiverCommand.SAY_WARM:
                presence.warm.add(key)
                presence.changed()
                self._stir()
            elif command is ReceiverCommand.UNSAY:
                presence.wanted.discard(key)
                presence.warm.discard(key)
                presence.changed()
            elif command is ReceiverCommand.WARM_UP:
                await self._warm_up(side)
            elif command is ReceiverCommand.DISCARD:
                await self.discard(key)
            elif command in (ReceiverCommand.TAKE, ReceiverCommand.RECEIVE):
                self._begin(side, self._begun(side, receives=command is ReceiverCommand.RECEIVE))
            elif command is ReceiverCommand.READ:
                self._stir()

    def _begun(self, side: ReceiverSide, *, receives: bool) -> Result:
        row, times, alive_s = self._sight.leases[side.key], self._settings.times, self._presence.alive_s
        if receives:
            assert side.unmoved_s is not None
            return receive(row, self.id, times, self._clock(), side.unmoved_s, alive_s, self._sight.process)
        return claim(row, self.id, times, self._clock(), alive_s, self._sight.process)

    async def _warm_up(self, side: ReceiverSide) -> None:
        row = await self._sight.get(side.key)
        if row is None or row.ended:
            return

        def warm() -> None:
            self._spawn(self._do(side, side.tell(ReceiverInput.WARMED, self._clock())))

        async def leave_it() -> None:
            self._presence.avoid(side.key, self._settings.failover_s)
            await self._do(side, side.drop())

        await self.discard(side.key)
        self._read_ahead(row, warm, leave_it)

    async def close(self) -> None:
        """Nothing is read ahead any more."""
        for key in list(self.warming):
            await self.discard(key)

    def expect(self, row: LeaseRow) -> None:
        """Read ahead in a shard that is likely to be this worker's soon: a child of one that ends here."""
        if row.key not in self.warming and row.key not in self.sides and not row.ended:
            self._read_ahead(row)

    def read_ahead(self, row: LeaseRow) -> None:
        """Read ahead in a shard that is this worker's, and whose delivery waits for a while."""
        if row.key not in self.warming:
            self._read_ahead(row)

    def _read_ahead(
        self,
        row: LeaseRow,
        warm: Callable[[], None] = lambda: None,
        leave_it: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """``leave_it``: what is done with a shard that is on its way here, and cannot be read."""
        window = self._open_window(row)

        async def discard() -> None:
            await self.discard(row.key)

        work = leave_it or discard
        follows = (
            "it is read when it is held"
            if leave_it is None
            else f"it is left to others for {self._settings.failover_s:.0f} s"
        )
        failed = self._tell_failed(row, follows, lambda _: self._spawn(work()))
        self.warming[row.key] = WarmUp(self._open_feed(row), self._settings.warm_bytes_max, warm, failed, window)

    async def discard(self, key: str) -> None:
        """Stop reading ahead, and drop what was read."""
        warming = self.warming.pop(key, None)
        if warming is not None:
            await warming.stop()
            if warming.window is not None:
                await warming.window.stop()
            if warming.feed.room is not None:
                warming.feed.room.share.leave()
            await warming.feed.close()
