"""A worker: reads its share of streams' shards, beside others, through a lease table.

It shows itself in a row of its own (`presence`), looks at the others' rows and the leases (`sight`), and acts on its
part of the assignment: takes what is free, asks for what others have too much of (`receiving`), hands over what others
should have (`held`). The decisions are `penstock.core.assignment` and `penstock.core.handoff`; here they are carried
out.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.core.assignment.decide import decide
from penstock.core.assignment.fleet import Fleet
from penstock.core.assignment.kcl3 import Step
from penstock.core.assignment.plan import receiver_for
from penstock.core.assignment.views import startable
from penstock.core.leases import writes
from penstock.core.leases.row import process_name
from penstock.errors import PenstockError, ServiceError
from penstock.events import FleetChanged, LeasesBegunAnew, LeaseUnreadable, LeaseUpkeepFailed
from penstock.ports import SharedWithKcl
from penstock.runtime.clock import SteadyClock
from penstock.runtime.dead_letters.destinations import open_letters
from penstock.runtime.shard.shard_reader import ShardReader
from penstock.runtime.telling import told
from penstock.runtime.waiting import LOOKS_AT_ONCE_MAX, side_by_side, wait_set
from penstock.runtime.worker.holding import Holding
from penstock.runtime.worker.kcl_watch import KclWatch
from penstock.runtime.worker.presence import Presence
from penstock.runtime.worker.receiving import Receiving
from penstock.runtime.worker.shard_leases import ShardLeases
from penstock.runtime.worker.sight import Sight
from penstock.runtime.worker.stream_part import shard_id_of
from penstock.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
    from random import Random

    from penstock.core.assignment.decide import Decision
    from penstock.core.assignment.views import LeaseView, WorkerView
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.membership import WorkerRow
    from penstock.ports import LeaseTable
    from penstock.runtime.dead_letters.destinations import LetterSink
    from penstock.runtime.feeds import PollingFeed
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.runtime.worker.stream_part import StreamPart
    from penstock.tasks import Heard

STOPS_AT_ONCE = 64
"""So many leases are on their way to other workers at the same time."""
STOPPING_TURNS_MAX = 16
"""More, where this worker would have to let go of its leases in more turns than so many."""
STOP_COUNTS_S = 0.25
"""A lease that has been on its way for longer counts no more: what it waits for is not the table."""


class Worker:
    """One process's part of an application. ``run`` until cancelled, or until ``stop`` has handed everything over."""

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        settings: WorkerSettings,
        *,
        streams: Iterable[StreamPart],
        rng: Random,
        on_event: Callable[[Any], None],
        on_reader: Callable[[ShardReader], None],
        version: str = "",
        process: str = "",
        letters: LetterSink | None = None,
    ) -> None:
        """``streams``: one, or several with keys; ``on_reader`` hears of each shard that this worker begins to hold;
        ``version`` is shown to the others; ``letters``: where dead letters go (None: as the settings say);
        they are closed at the end. ``process`` tells this one from others that have its id, now or later; by default it
        is drawn.
        """
        self.id = worker_id
        self.settings = settings
        self._parts = {part.text: part for part in streams}
        self._table = table
        self._rng = rng
        self._on_event = on_event
        self._letters = open_letters(settings.dead_letters, None) if letters is None else letters
        self._loop = asyncio.get_running_loop()
        self._clock = SteadyClock(self._loop)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._look_now = asyncio.Event()
        self._stopped = asyncio.Event()  # all is handed over
        self._over = asyncio.Event()
        self._failure: BaseException | None = None
        self._keeping_up: asyncio.Task[None] | None = None
        self._keep_up_at_s = float("-inf")
        self._look_for_gone_at_s = float("-inf")
        self._searched = False
        """Once in its life a worker asks which leases are missing, though the table has some."""
        self._measure_at_s = float("-inf")
        self._unreadable: set[str] = set()
        self._holding = Holding(
            worker_id,
            table,
            settings,
            self._parts,
            rng=rng,
            on_event=on_event,
            on_reader=on_reader,
            letters=self._letters,
            spawn=self._spawn,
            clock=self._clock,
            changed=self._changed,
            failed=self._fail,
        )
        self.held = self._holding.held
        self._connect(version, process_name(process or uuid.uuid4().hex[:16], worker_id))

    def _connect(self, version: str, process: str) -> None:
        """Make the worker's own parts, which know of each other."""
        table, settings, clock, holding = self._table, self.settings, self._clock, self._holding
        self._presence = holding.presence = Presence(
            self.id,
            table,
            failover_s=settings.failover_s,
            retry_s=settings.times.retry_s,
            leases_max=settings.leases_max,
            version=version,
            process=process,
            held=lambda: self.held,
            on_alive=holding.alive,
            clock=clock,
        )
        self._kcl = None
        if isinstance(table, SharedWithKcl):
            self._kcl = KclWatch(
                self.id,
                table,
                failover_s=settings.failover_s,
                report_interval_s=settings.kcl_report_interval_s,
                look_interval_s=settings.kcl_look_interval_s,
                clock=clock,
            )
        self._sight = holding.sight = Sight(
            self.id,
            table,
            failover_s=settings.failover_s,
            scan_interval_s=settings.scan_interval_s,
            streams=self._parts.keys(),
            process=process,
            held=holding,
            clock=clock,
            kcl=self._kcl,
        )
        self._shards = holding.shards = ShardLeases(
            table,
            self._parts,
            settings.start_at,
            retry_s=settings.times.retry_s,
            changed=self._rescan,
            owned=self._owned,
        )
        self._receiving = holding.receiving = Receiving(
            self.id,
            table,
            settings,
            self._sight,
            self._presence,
            held=holding,
            open_feed=self._open_feed,
            open_window=lambda row: self._parts[row.stream].open_window(row),
            begin=holding.begin,
            tell_failed=self._tell_ahead,
            spawn=self._spawn,
            stir=self._look_now.set,
            clock=clock,
        )

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises what cannot be mended by trying again: no permission, no such stream, options that fault.

        An error that ends the reading of a shard comes here too, once all other shards are handed over.
        """
        try:
            if await self._begun():
                await self._share()
        finally:
            self._over.set()
            for task in list(self._tasks):
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._receiving.close()
            if self._letters is not None:
                await self._letters.close()
            if self._stopped.is_set():
                with contextlib.suppress(PenstockError):  # what is left in the table is found out by the others
                    await self._leave()
        if self._failure is not None:
            raise self._failure

    async def _begun(self) -> bool:
        """See that tables and streams are there and fit each other. False: this worker is to leave before they were.

        What cannot be reached is tried again, here as in each later round: a table that is away for a while must not
        end the workers that start meanwhile.
        """
        begins_anew, retry_s = self.settings.other_stream_begins_anew, self.settings.times.retry_s
        while not self._presence.leaving:
            self._look_now.clear()
            try:
                await self._table.ensure()
                anew = await self._shards.claim_stream(begins_anew=begins_anew, failover_s=self.settings.failover_s)
            except PenstockError as error:
                if not error.retryable:
                    raise
            else:
                for stream, count in anew.items():
                    self._on_event(LeasesBegunAnew(self._table.name, stream, count))
                return await self._letters_begun()
            await wait_set(self._look_now, retry_s)
        return False

    async def _letters_begun(self) -> bool:
        """See that dead letters can be written. False: this worker is to leave before they could."""
        if self._letters is None:
            return True
        tell = told(
            self._on_event,
            (", ".join(part.name for part in self._parts.values()), None),
            "opening the place for dead letters",
            "it is tried again; no shard is read before that",
        )
        while not self._presence.leaving:
            self._look_now.clear()
            try:
                await self._letters.start()
            except PenstockError as error:
                if not error.retryable:
                    raise
                tell(error)
            else:
                return True
            await wait_set(self._look_now, self.settings.times.retry_s)
        return False

    async def _share(self) -> None:
        """Look and act, round after round, until nothing is held any more by a worker that leaves."""
        announcing = self._spawn(self._presence.run())
        announcing.add_done_callback(lambda _: self._look_now.set())
        while self._presence.alive_s is None and not self._presence.leaving:
            if announcing.done():
                await announcing  # a worker that the others cannot see must hold no lease
            await wait_set(self._look_now, 0.01)
        while not self._stopped.is_set():
            if announcing.done():
                await announcing
            self._look_now.clear()
            try:
                waits = await self._round()
            except PenstockError as error:
                if not error.retryable:
                    raise
                waits = False
                # As a whole: the table cannot be reached. Leases are kept by their own writes meanwhile.
                await asyncio.sleep(self.settings.times.retry_s)
            interval_s = self.settings.wait_interval_s if waits else self.settings.look_interval_s
            await wait_set(self._look_now, interval_s)

    async def stop(self) -> None:
        """Hand over everything, and leave: `run` ends when nothing is held any more."""
        self._presence.leaving = True
        self._presence.changed()
        self._look_now.set()
        await self._over.wait()

    def leases(self) -> Collection[LeaseRow]:
        """The leases of all shards of its streams, as they were read last."""
        return self._sight.leases.values()

    def give_up(self, key: str, cool_down_s: float) -> None:
        """Let another worker have a lease, or free it, and do not take it again for a while."""
        self._holding.give_up(key, cool_down_s)

    async def _leave(self) -> None:
        """Take away this worker's row, and free what was given to it while it left.

        The row goes first. A giver looks at it after its give: so either the giver finds that the row has gone, and
        frees the lease, or the lease was given before the row went, and is found here.
        """
        if self._kcl is not None:
            await self._kcl.leave()
        await self._table.delete_worker(self.id)
        listing = await self._table.scan(consistent=True)
        mine = [row for row in listing.rows if row.stream in self._parts and not row.ended and self._sight.is_mine(row)]
        await side_by_side(lambda row: self._table.write(writes.free(row)), mine, LOOKS_AT_ONCE_MAX)
        if self._holding.given:
            rows = await self._table.workers(consistent=True)
            await self._take_back({*self._holding.given}, {row.worker_id: row for row in rows})

    def _fail(self, error: BaseException) -> None:
        """Reading has met what repeating does not mend: hand over the rest, then raise it."""
        if self._failure is None:
            self._failure = error
        self._presence.leaving = True
        self._changed()

    # --- a round --------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Look, decide, act. True while something is waited for that may come at any moment."""
        presence, sight, settings = self._presence, self._sight, self.settings
        silent = await self._look()
        self._retreat()
        leases, workers = sight.views(), sight.workers(presence.shown(), silent)
        if not presence.leaving and not self._parts.keys() <= {row.stream for row in sight.leases.values()}:
            await self._shards.missing(sight.leases)
            return True
        claimed = {key: replace(leases[key], owner=self.id) for key in self._holding.claims if key in leases}
        part = decide(
            sight.fleet,
            (leases | claimed).values() if sight.fleet is Fleet.KCL2 else leases.values(),
            workers.values(),
            self.id,
            strategy=settings.assignment,
            rng=self._rng,
            failover_s=settings.failover_s,
            steal_max=0 if self._holding.stolen else 1,
        )
        self._keep_up(workers)
        self._give(part, workers)
        await self._forward(part)
        await self._receiving.round(part, self._mine(leases), leases, workers)
        self._let_go(workers)
        if presence.leaving and not self.held and not self._holding.claims and not self._receiving.waits:
            self._stopped.set()
        return bool(presence.given) or self._receiving.waits or presence.leaving

    async def _look(self) -> list[str]:
        """Look at the tables, and tell tenures what was seen of their leases. Returns the workers that are silent."""
        sight, before, fleet = self._sight, self._sight.scanned_s, self._sight.fleet
        given = {*self._holding.given}
        closely = bool(given or self._presence.given or self._receiving.waits)
        silent = await sight.look(closely=closely, scans=self._receiving.waits_for_many)
        await self._take_back(given, sight.members.rows)
        if sight.scanned_s != before:
            for key in sight.unreadable.keys() - self._unreadable:
                self._on_event(LeaseUnreadable(self._table.name, key, sight.unreadable[key]))
            self._unreadable = {*sight.unreadable}
            for key, held in self.held.items():
                if (row := sight.leases.get(key)) is not None:
                    held.keeper.saw(row)
        if sight.fleet is not fleet:
            self._on_event(FleetChanged(self._table.name, sight.fleet.value))
        if self._kcl is not None and not self._presence.leaving:
            await self._kcl.report()
        return silent

    async def _take_back(self, keys: Collection[str], workers: Mapping[str, WorkerRow]) -> None:
        """Free what was given to a worker that has left meanwhile: it would wait for that worker's failover time.

        ``keys``: what was given before a consistent look at the workers was sent, which showed them as ``workers``.
        A worker that began with the lease wrote to the lease's row before its own row went: then the free is refused.
        """
        given, leases = self._holding.given, self._sight.leases
        for key in keys:
            row, now = given[key], leases.get(key)
            receiver = workers.get(row.actual_owner or "")
            if now is None or now.counter > row.counter or (receiver is not None and key in receiver.held):
                del given[key]
        orphans = [row for key, row in given.items() if key in keys and row.actual_owner not in workers]
        if orphans:
            self._sight.forget_scan()
            await side_by_side(lambda row: self._table.write(writes.free(row)), orphans, LOOKS_AT_ONCE_MAX)
            for row in orphans:
                given.pop(row.key, None)

    async def _forward(self, part: Decision) -> None:
        """Pass on what a leader wants handed over by this worker, which does not hold it: it did in a former life."""
        rows = self._sight.leases
        former = [
            rows[key]
            for key, one in part.follow.items()
            if one is Step.HAND_OVER and key not in self._holding and self._sight.is_mine(rows[key])
        ]
        if former:
            self._sight.forget_scan()
            await side_by_side(lambda row: self._table.write(writes.free(row)), former, LOOKS_AT_ONCE_MAX)

    def _mine(self, leases: Mapping[str, LeaseView]) -> list[str]:
        """Leases to take although no plan says so: those with this worker's name on them that it does not hold, and
        children of shards that have ended here.
        """
        presence = self._presence
        if presence.leaving or presence.retreats:
            return []
        avoids = presence.avoids()
        readable = {lease.key: lease for lease in startable(leases.values())}
        self._disinherit(leases)
        rows, mine, leases_max = self._sight.leases, (None, self.id), self.settings.leases_max
        has_room = leases_max is None or len(self.held) + len(self._holding.claims) < leases_max
        named = [key for key, one in readable.items() if one.next_owner in mine and self._sight.is_mine(rows[key])]
        heirs = self._holding.heirs & readable.keys() if has_room and self._sight.fleet is not Fleet.KCL3 else ()
        return [key for key in (*named, *heirs) if key not in self._holding and key not in avoids]

    def _disinherit(self, leases: Mapping[str, LeaseView]) -> None:
        """What others have taken is not to be taken any more, nor read ahead."""
        heirs = self._holding.heirs
        for key in [key for key in heirs & leases.keys() if leases[key].ended or leases[key].owner is not None]:
            heirs.discard(key)
            if key not in self._holding and key not in self._receiving.sides:
                self._spawn(self._receiving.discard(key))

    def _keep_up(self, workers: Mapping[str, WorkerView]) -> None:
        """Once at the start see which leases are missing; from time to time clean up, one worker for all."""
        now_s, task = self._clock(), self._keeping_up
        if now_s >= self._measure_at_s:
            self._measure_at_s = now_s + self.settings.failover_s / 4
            for held in self.held.values():
                held.measure()
        if task is not None and not task.done():
            return
        if self._shards.has_gone and now_s >= self._look_for_gone_at_s:
            self._keeping_up = self._spawn(self._upkeep(self._shards.missing_of_gone))
            return
        if now_s < self._keep_up_at_s:
            return
        if not self._searched:
            self._keeping_up = self._spawn(self._upkeep(self._search))
        elif self.id == min(one for one in workers if workers[one].alive):
            self._keeping_up = self._spawn(self._upkeep(self._shards.upkeep))
        else:
            return
        self._keep_up_at_s = now_s + self.settings.upkeep_interval_s

    async def _search(self) -> None:
        await self._shards.missing(self._sight.leases)
        self._searched = True

    async def _upkeep(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except PenstockError as error:
            reason = error.code if isinstance(error, ServiceError) else type(error).__name__
            # A shard may be waiting for its lease: not for as long as when all is well.
            again_s = min(self.settings.failover_s, self.settings.upkeep_interval_s)
            self._keep_up_at_s = self._look_for_gone_at_s = self._clock() + again_s
            self._on_event(LeaseUpkeepFailed(self._table.name, reason, again_s))

    def _retreat(self) -> None:
        """A worker that could not write for long leaves its leases to others, if there are any, for a while."""
        others = any(not row.leaving for row in self._sight.members.rows.values())
        retreats = self._clock() < self._holding.retreats_until_s and others
        if retreats != self._presence.retreats:
            self._presence.retreats = retreats
            self._presence.changed()

    def _changed(self) -> None:
        self._presence.changed()
        self._look_now.set()

    def _owned(self) -> set[str]:
        """What this worker holds, and those that live say they do; and rows that are there, and cannot be read."""
        now_s, members = self._clock(), self._sight.members
        quiet = {*members.quiet(now_s)}
        others = (row.held for one, row in members.rows.items() if one not in quiet)
        return {*self.held, *self._sight.unreadable}.union(*others)

    def _rescan(self) -> None:
        self._sight.forget_scan()
        self._look_now.set()

    # --- giving ---------------------------------------------------------------------------------

    def _give(self, part: Decision, workers: Mapping[str, WorkerView]) -> None:
        load = Counter(row.actual_owner for row in self._sight.leases.values() if row.actual_owner and not row.ended)
        avoids = self._presence.avoids()
        for key, held in self.held.items():
            if self._presence.leaving or key in avoids or held.reader.ledger.given_up:
                receiver = part.give.get(key)
                if receiver is None or receiver in held.side.tried:
                    receiver = receiver_for(key, load, workers.values(), self.id, held.side.tried)
                if receiver is None:
                    held.free()
                else:
                    held.offer(receiver)
                    load[receiver] += 1
            elif (wanting := part.give.get(key)) is not None and key in workers[wanting].wants:
                held.offer(wanting)
            elif key in part.free and not self._presence.retreats:
                held.free()

    def _let_go(self, workers: Mapping[str, WorkerView]) -> None:
        """Stop what is to go once its receiver is ready, few at a time: a shard waits without a reader for all that
        stop together with it. One that takes long to be settled keeps no other from stopping.
        """
        ages_s = [age_s for held in self.held.values() if (age_s := held.stopped_for_s) is not None]
        most = max(STOPS_AT_ONCE, len(self.held) // STOPPING_TURNS_MAX)
        room = most - sum(age_s < STOP_COUNTS_S for age_s in ages_s)
        for held in list(self.held.values()):
            before = held.stopped_for_s
            held.look(workers, may_stop=room > 0)
            if before is None and held.stopped_for_s is not None:
                room -= 1

    # --- parts ----------------------------------------------------------------------------------

    def _open_feed(self, row: LeaseRow) -> PollingFeed:
        return self._parts[row.stream].open_feed(row)

    def _tell_ahead(self, row: LeaseRow, follows: str, then: Callable[[BaseException], object]) -> Heard:
        where = self._parts[row.stream].name, shard_id_of(row.key)
        return told(self._on_event, where, "reading ahead of the handover", follows, then)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """What it raises ends the worker, whatever else waits for it."""
        task: asyncio.Task[Any] = spawn(work, self._fail)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
