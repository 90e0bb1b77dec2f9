"""A worker: reads its share of a stream's shards, beside others, through a lease table. Among Penstock workers alone.

It shows itself in a row of its own, looks at the others' rows, and acts on its part of the assignment: takes what is
free, asks for what others have too much of, hands over what others should have. The decisions are
`penstock.core.assignment` and `penstock.core.handoff`; here they are carried out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.assignment.births import Birth, births, births_at_end, needs_search
from penstock.core.assignment.plan import Plan, plan, receiver_for
from penstock.core.assignment.rows import lease_view, worker_view
from penstock.core.assignment.views import is_free
from penstock.core.handoff.receiver import ReceiverCommand, ReceiverInput, ReceiverState
from penstock.core.handoff.sides import OwnerSide, ReceiverSide
from penstock.core.leases import Done, LeaseRow
from penstock.core.leases.checkpoint import Checkpoint
from penstock.core.leases.membership import WRITES_PER_FAILOVER, Members, WorkerRow
from penstock.core.leases.observed import Observed
from penstock.core.leases.steps import claim, receive
from penstock.core.lineage import Lineage
from penstock.errors import PenstockError
from penstock.model import Shard
from penstock.runtime.consumer.held import HeldShard
from penstock.runtime.consumer.shard_reader import ShardReader
from penstock.runtime.consumer.tenure_keeper import TenureKeeper
from penstock.runtime.consumer.warming import WarmUp
from penstock.runtime.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random
    from typing import Any

    from penstock.core.assignment.views import LeaseView, WorkerView
    from penstock.core.feeding.pages import ChildShard
    from penstock.core.leases.steps import Result
    from penstock.core.leases.tenure import Command
    from penstock.ports import LeaseTable
    from penstock.runtime.consumer.settings import WorkerSettings
    from penstock.runtime.feeds import FanOutFeed, PollingFeed

ERROR_PAUSE_S = 0.5
"""After a round that failed as a whole (the table cannot be reached): leases are kept by their own writes meanwhile."""


class Worker:
    """One process's part of an application. ``run`` until cancelled, or until ``stop`` has handed everything over."""

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        settings: WorkerSettings,
        *,
        stream: str,
        list_shards: Callable[[], Any],
        open_feed: Callable[[LeaseRow], PollingFeed],
        rng: Random,
        on_event: Callable[[Any], None],
        on_reader: Callable[[ShardReader], None],
        promote: Callable[[PollingFeed], PollingFeed | FanOutFeed] = lambda feed: feed,
    ) -> None:
        """``list_shards()`` awaits all shards of the stream; ``open_feed(row)`` reads a lease's shard from its
        checkpoint on; ``on_reader`` hears of each shard that this worker begins to hold; ``promote`` makes of a feed
        that polls the one that is used while the shard is held.
        """
        self.id = worker_id
        self.settings = settings
        self.held: dict[str, HeldShard] = {}
        self._table = table
        self._stream = stream
        self._list_shards = list_shards
        self._open_feed = open_feed
        self._rng = rng
        self._on_event = on_event
        self._on_reader = on_reader
        self._promote = promote
        self._loop = asyncio.get_running_loop()
        self._row = WorkerRow(worker_id=worker_id, failover_s=settings.failover_s)
        self._wanted: set[str] = set()
        self._warm: set[str] = set()
        self._given: dict[str, str] = {}
        self._members = Members(worker_id, settings.failover_s)
        self._observed = Observed()
        self._leases: dict[str, LeaseRow] = {}
        self._scanned_s = float("-inf")
        self._pictures: Mapping[str, object] = {}
        self._sides: dict[str, ReceiverSide] = {}
        self._warming: dict[str, WarmUp] = {}
        self._claims: dict[str, TenureKeeper] = {}
        self._alive_s: float | None = None  # send time of the last confirmed write of the own row
        self._tasks: set[asyncio.Task[Any]] = set()
        self._announce_now = asyncio.Event()
        self._look_now = asyncio.Event()
        self._leaving = False
        self._stopped = asyncio.Event()

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises what cannot be mended by trying again: no permission, no such stream, options that fault."""
        await self._table.ensure()
        announcing = self._spawn(self._announce())
        try:
            while self._alive_s is None and not self._leaving:  # nobody may hold a lease whom nobody can see
                await wait_set(self._look_now, 0.01)
            while not self._stopped.is_set():
                self._look_now.clear()
                try:
                    waits = await self._round()
                except PenstockError as error:
                    if not error.retryable:
                        raise
                    waits = False
                    await asyncio.sleep(ERROR_PAUSE_S)
                interval_s = self.settings.wait_interval_s if waits else self.settings.look_interval_s
                await wait_set(self._look_now, interval_s)
        finally:
            announcing.cancel()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self._stopped.is_set():
                await self._table.delete_worker(self.id)

    async def stop(self) -> None:
        """Hand over everything, and leave: `run` ends when nothing is held any more."""
        self._leaving = True
        self._look_now.set()
        await self._stopped.wait()

    # --- this worker's own row ------------------------------------------------------------------

    async def _announce(self) -> None:
        """Write the own row at every change, and often enough to be known as alive."""
        interval_s = self.settings.failover_s / WRITES_PER_FAILOVER
        while True:
            self._announce_now.clear()
            row = WorkerRow(
                worker_id=self.id,
                counter=self._row.counter + 1,
                failover_s=self.settings.failover_s,
                held=frozenset(self.held),
                wanted=frozenset(self._wanted),
                given=dict(self._given),
                warm=frozenset(self._warm),
            )
            sent_s = self._loop.time()
            self._row = row
            try:
                outcome = await self._table.put_worker(row)
            except PenstockError:
                outcome = None
            if isinstance(outcome, Done):
                self._alive_s = sent_s
                for keeper in (*(held.keeper for held in self.held.values()), *self._claims.values()):
                    keeper.alive(sent_s)
            await wait_set(
                self._announce_now, interval_s if isinstance(outcome, Done) else min(interval_s, ERROR_PAUSE_S)
            )

    def _changed(self) -> None:
        self._announce_now.set()
        self._look_now.set()

    def _name(self, key: str, receiver: str | None) -> None:
        if receiver is None:
            self._given.pop(key, None)
        else:
            self._given[key] = receiver
        self._announce_now.set()

    # --- a round --------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Look, decide, act. True while something is waited for that may come at any moment."""
        silent = await self._look()
        leases = {key: self._view(row) for key, row in self._leases.items()}
        workers = self._workers(silent)
        if not leases and not self._leaving:
            await self._give_birth(Lineage(await self._list_shards()))
            return True
        part = plan(
            leases.values(), workers.values(), self.id, self.settings.strategy, failover_s=self.settings.failover_s
        )
        self._give(part, workers)
        await self._receive(part, leases, workers)
        for held in list(self.held.values()):
            held.look(workers)
        if self._leaving and not self.held and not self._claims:
            self._stopped.set()
        return bool(self._given) or any(side.polls for side in self._sides.values()) or self._leaving

    async def _look(self) -> list[str]:
        """Read the workers' rows, and the leases when those may have changed; workers that are certainly silent."""
        waiting = bool(self._given) or any(side.polls for side in self._sides.values())
        rows = await self._table.workers(consistent=waiting)
        self._members.look(rows, self._loop.time())
        # A row's beat is no news; what it holds, wants and gives is.
        pictures = {row.worker_id: (row.held, row.wanted, frozenset(row.given.items()), row.warm) for row in rows}
        quiet = self._members.quiet(self._loop.time())
        age_s = self._loop.time() - self._scanned_s
        if pictures == self._pictures and not quiet and age_s < self.settings.failover_s / 2:
            return []
        self._pictures = pictures
        await self._scan()
        if not quiet:
            return []
        answered_s = sent_s = self._loop.time()
        self._members.look(await self._table.workers(consistent=True), self._loop.time())
        silent = self._members.silent(leases_answered_s=answered_s, look_sent_s=sent_s, now_s=self._loop.time())
        for row in self._members.forgettable(self._loop.time()):
            await self._table.delete_worker(row.worker_id, counter=row.counter)
        return silent

    async def _scan(self) -> None:
        listing = await self._table.scan(consistent=True)
        self._scanned_s = self._loop.time()
        ours = [row for row in listing.rows if row.stream is None]
        self._observed.look_at_leases(ours, self._scanned_s)
        self._leases = {row.key: row for row in ours}

    def _view(self, row: LeaseRow) -> LeaseView:
        return lease_view(row, self._observed.unmoved_s(row.key, self._loop.time()))

    def _workers(self, silent: Iterable[str]) -> dict[str, WorkerView]:
        dead = set(silent)
        views = {one: worker_view(row, alive=one not in dead) for one, row in self._members.rows.items()}
        views[self.id] = worker_view(self._row, leaving=self._leaving, leases_max=self.settings.leases_max)
        return views

    # --- giving ---------------------------------------------------------------------------------

    def _give(self, part: Plan, workers: Mapping[str, WorkerView]) -> None:
        load = {one: sum(row.owner == one for row in self._leases.values()) for one in workers}
        for key, held in self.held.items():
            if self._leaving:
                receiver = part.give.get(key)
                if receiver is None or receiver in held.side.tried:
                    receiver = receiver_for(key, load, workers.values(), self.id, held.side.tried)
                if receiver is None:
                    held.free()
                else:
                    held.offer(receiver)
            elif (wanting := part.give.get(key)) is not None and key in workers[wanting].wants:
                held.offer(wanting)
            elif key in part.free:
                held.free()

    # --- receiving ------------------------------------------------------------------------------

    async def _receive(self, part: Plan, leases: Mapping[str, LeaseView], workers: Mapping[str, WorkerView]) -> None:
        """Take, ask, warm up; and look closely at the leases that are on their way here."""
        planned = set(part.take)
        for key in (*part.take, *part.ask):
            if key not in self.held:
                self._sides.setdefault(key, ReceiverSide(key, self.id, failover_s=self.settings.failover_s))
        for owner in workers.values():
            for key, receiver in owner.gives.items():
                if receiver == self.id and key not in self.held:
                    self._sides.setdefault(key, ReceiverSide(key, self.id, failover_s=self.settings.failover_s))
        for key, side in list(self._sides.items()):
            await self._side(key, side, part, planned, leases.get(key), workers)
            if side.state is ReceiverState.IDLE:
                del self._sides[key]

    async def _side(
        self,
        key: str,
        side: ReceiverSide,
        part: Plan,
        planned: set[str],
        lease: LeaseView | None,
        workers: Mapping[str, WorkerView],
    ) -> None:
        if key in part.ask and lease is not None and lease.owner is not None and not self._leaving:
            await self._do(side, side.want(lease.owner))
        elif self._leaving or (side.state is ReceiverState.ASKING and key not in planned):
            # What an owner offers is taken, whatever the plan: he may be leaving.
            await self._do(side, side.drop())
        owner = workers.get(side.owner or (lease.owner if lease is not None else None) or "")
        await self._do(side, side.look_at_owner(owner, self._loop.time(), leaving=self._leaving))
        if side.polls:
            await self._poll(side, workers)
        elif lease is not None and key in planned:
            free = is_free(lease, workers, self.settings.failover_s)
            looked = side.look_at_lease(
                lease, sent_s=self._scanned_s, now_s=self._loop.time(), free=free, planned=True, leaving=self._leaving
            )
            await self._do(side, looked)

    async def _poll(self, side: ReceiverSide, workers: Mapping[str, WorkerView]) -> None:
        sent_s = self._loop.time()
        row, known = await self._table.get(side.key), self._leases.get(side.key)
        if row is not None:
            self._leases[side.key] = row
            self._observed.look(row.key, row.counter, self._loop.time(), owner=row.owner)
            if (warming := self._warming.get(side.key)) is not None:
                warming.drop(row.checkpoint)
        view = None if row is None else self._view(row)
        # The owner's silence was looked at before this read: it counts only if the lease has not moved since the scan.
        moved = row is not None and row.owner is not None and (known is None or row.counter != known.counter)
        free = view is not None and not moved and is_free(view, workers, self.settings.failover_s)
        looked = side.look_at_lease(view, sent_s=sent_s, now_s=self._loop.time(), free=free, leaving=self._leaving)
        await self._do(side, looked)

    async def _do(self, side: ReceiverSide, commands: Iterable[ReceiverCommand]) -> None:
        key = side.key
        for command in commands:
            if command is ReceiverCommand.SAY_WANTED:
                self._wanted.add(key)
                self._changed()
            elif command is ReceiverCommand.SAY_WARM:
                self._warm.add(key)
                self._changed()
            elif command is ReceiverCommand.UNSAY:
                self._wanted.discard(key)
                self._warm.discard(key)
                self._changed()
            elif command is ReceiverCommand.WARM_UP:
                await self._warm_up(side)
            elif command is ReceiverCommand.DISCARD:
                await self._discard(key)
            elif command is ReceiverCommand.TAKE:
                self._begin(
                    side, claim(self._leases[key], self.id, self.settings.times, self._loop.time(), self._alive_s)
                )
            elif command is ReceiverCommand.RECEIVE:
                assert side.unmoved_s is not None
                row = self._leases[key]
                begun = receive(row, self.id, self.settings.times, self._loop.time(), side.unmoved_s, self._alive_s)
                self._begin(side, begun)
            elif command is ReceiverCommand.READ:
                self._look_now.set()

    async def _warm_up(self, side: ReceiverSide) -> None:
        row = await self._table.get(side.key)
        if row is None or row.ended:
            return

        def warm() -> None:
            self._spawn(self._do(side, side.tell(ReceiverInput.WARMED, self._loop.time())))

        self._warming[side.key] = WarmUp(self._open_feed(row), self.settings.warm_bytes_max, warm)

    async def _discard(self, key: str) -> None:
        warming = self._warming.pop(key, None)
        if warming is not None:
            await warming.stop()
            await warming.feed.close()

    # --- holding --------------------------------------------------------------------------------

    def _begin(self, side: ReceiverSide, begun: Result) -> None:
        """A tenure begins: at once, or when the take is confirmed."""
        key = side.key
        held: list[HeldShard] = []

        def heard(command: Command) -> None:
            for one in held:
                one.heard(command)

        keeper = TenureKeeper(self._table, begun, heard)
        self._claims[key] = keeper
        self._spawn(self._hold(side, keeper, held))

    async def _hold(self, side: ReceiverSide, keeper: TenureKeeper, held: list[HeldShard]) -> None:
        """From the claim to the end of the tenure."""
        key = side.key
        keeping = self._spawn(keeper.run())
        try:
            began = await keeper.began
            self._leases[key] = keeper.row
            if side.state is ReceiverState.TAKING:
                await self._do(side, side.tell(ReceiverInput.BEGAN if began else ReceiverInput.NOT_TAKEN))
            self._sides.pop(key, None)
            if not began:
                self._scanned_s = float("-inf")
                return
            one = await self._deliver(key, keeper)
            held.append(one)
            self._claims.pop(key, None)
            self._changed()
            await self._read(one)
            await asyncio.wait((keeping,))
        finally:
            self._claims.pop(key, None)
            if (gone := self.held.pop(key, None)) is not None:
                gone.close()
                gone.reader.stop("the tenure is over")
            self._given.pop(key, None)
            self._scanned_s = float("-inf")
            keeping.cancel()
            self._changed()

    async def _deliver(self, key: str, keeper: TenureKeeper) -> HeldShard:
        warming = self._warming.pop(key, None)
        if warming is not None:
            await warming.stop()
        settings = self.settings
        reader = ShardReader(
            keeper,
            self._promote(self._open_feed(keeper.row) if warming is None else warming.feed),
            stream=self._stream,
            shard_id=key,
            settings=settings.ledger,
            cadence=settings.cadence,
            rng=self._rng,
            on_event=self._on_event,
            batch_records_max=settings.batch_records_max,
            read_ahead=() if warming is None else warming.pages,
            on_end=lambda children: self._ended(key, children),
            checkpoint_when_told=settings.checkpoint_when_told,
        )
        side = OwnerSide(key, warm_deadline_s=settings.warm_deadline_s, drain_deadline_s=settings.drain_deadline_s)
        held = self.held[key] = HeldShard(keeper, reader, side, name=self._name)
        self._on_reader(reader)
        return held

    async def _read(self, held: HeldShard) -> None:
        """Fetch until the tenure is over; a shard that has ended is let go of once that is stored."""
        fetching = self._spawn(held.reader.run())
        reading = self._spawn(held.reader.over())
        try:
            await asyncio.wait((fetching, reading), return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                await fetching  # raises what reading raised
            await reading
            if held.keeper.row.ended:
                await held.keeper.end()
        finally:
            fetching.cancel()
            reading.cancel()

    # --- lineage --------------------------------------------------------------------------------

    async def _ended(self, key: str, children: tuple[ChildShard, ...]) -> None:
        """The shard's last record was fetched: its children get their leases before it may be stored as ended."""
        listing = {row.key: row.ended for row in (await self._table.scan(consistent=True)).rows}
        shards = [
            Shard(
                shard_id=child.shard_id,
                parents=child.parents,
                first_hash_key=child.first_hash_key,
                last_hash_key=child.last_hash_key,
                first_sequence_number=0,
            )
            for child in children
        ]
        if not shards or needs_search(shards, listing):
            found = births(Lineage(await self._list_shards()), {**listing, key: True}, self.settings.start_at)
        else:
            found = births_at_end(shards, listing)
        await self._create(found)

    async def _give_birth(self, lineage: Lineage) -> None:
        await self._create(births(lineage, {}, self.settings.start_at))
        self._scanned_s = float("-inf")

    async def _create(self, found: Iterable[Birth]) -> None:
        for birth in found:
            shard = birth.shard
            await self._table.create(
                LeaseRow(
                    key=shard.shard_id,
                    checkpoint=Checkpoint.parse(birth.start),
                    parents=frozenset(shard.parents),
                    first_hash_key=shard.first_hash_key,
                    last_hash_key=shard.last_hash_key,
                )
            )
        self._scanned_s = float("-inf")
        self._look_now.set()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
