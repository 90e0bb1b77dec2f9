"""A worker reads its share of streams' shards, beside other workers, through a lease table.

It shows itself in a row of its own (`Presence`), and looks at the others' rows and the leases (`sight`). A function
(`shardway.core.worker`) decides what follows, in each round, and whenever something happens between rounds. The worker
does what that answers: by the tenures of its leases (`holding`), the shards that it reads ahead (`reading_ahead`), and
the leases to create and to delete (`shard_leases`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.handoff.receiver import ReceiverState
from shardway.core.leases import writes
from shardway.core.leases.row import process_name
from shardway.core.leases.tenure.machine import claim, receive
from shardway.core.worker import actions, events
from shardway.core.worker.machine import step
from shardway.core.worker.state import Terms, Work, WorkerState
from shardway.errors import ServiceError, ShardwayError
from shardway.events import FleetChanged, LeasesBegunAnew, LeaseUnreadable, LeaseUpkeepFailed
from shardway.ports import SharedWithKcl
from shardway.runtime.background import Chores, emits_failure
from shardway.runtime.clocks import SteadyClock
from shardway.runtime.shard.tenure_keeper import TenureKeeper
from shardway.runtime.worker.holding import HeldLeases
from shardway.runtime.worker.kcl_watch import KclTimes, KclWatch
from shardway.runtime.worker.presence import Presence
from shardway.runtime.worker.reading_ahead import ReadingAhead
from shardway.runtime.worker.shard_leases import ShardLeases
from shardway.runtime.worker.sight import SeenTables
from shardway.waiting import LOOKS_AT_ONCE_MAX, side_by_side, wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from random import Random

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.options.consumer import ConsumerOptions
    from shardway.ports import LeaseTable
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.runtime.worker.holding import Readers


class Worker:
    """The part of an application that is one process. ``run`` goes on until cancelled, or until ``stop`` has handed
    over all.
    """

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        options: ConsumerOptions,
        *,
        readers: Readers,
        rng: Random,
        on_event: Callable[[Any], None],
        on_reader: Callable[[ShardReader], None],
    ) -> None:
        """``readers`` are of one stream, or of several with keys; the worker opens and closes their place for dead
        letters. ``on_reader`` hears of each shard that this worker begins to hold.
        """
        self.id = worker_id
        self.options, self._times, retry_s = options, options.times, options.times.lease.retry_s
        self._parts = parts = readers.parts
        self._letters = readers.letters
        self._table = table
        self._on_event = on_event
        self._on_reader = on_reader
        self._clock = clock = SteadyClock(asyncio.get_running_loop())
        self._look_now = asyncio.Event()
        self._stop_event = asyncio.Event()  # This is set when all is handed over.
        self._end_event = asyncio.Event()
        self._failure: BaseException | None = None
        self._unreadable: set[str] = set()
        self._todo: deque[actions.Action] = deque()
        self._is_doing = False
        self._state = state = WorkerState(_terms(worker_id, options), options.leases.assignment, rng)
        self._chores = chores = Chores(self._fail)
        self._presence = Presence(table, state, self._own_row, retry_s=retry_s, clock=clock)
        self._kcl = _kcl_watch(worker_id, table, options, clock)
        self._sight = SeenTables(
            state, table, streams=parts.keys(), scan_interval_s=self._times.scan_interval_s, clock=clock, kcl=self._kcl
        )
        self._shards = ShardLeases(
            table, parts, options.starting_position, retry_s=retry_s, changed=self._rescan, owned=self._owned_leases
        )
        self._reading_ahead = ReadingAhead(
            parts, options, chores, on_event=on_event, handle=self._handle_between_rounds
        )
        self._holding = HeldLeases(
            state,
            readers=readers,
            ahead=self._reading_ahead,
            sight=self._sight,
            shards=self._shards,
            chores=chores,
            handle=self._handle_between_rounds,
        )
        self.held = self._holding.held

    def _own_row(self, now_s: float, counter: int) -> WorkerRow:
        """Return the worker's own row as it is written now, with what those want to know that look from outside."""
        service_s = next(iter(self._parts.values())).stream.now_s
        row = self._state.row(now_s, counter)
        return replace(row, written_ms=int(service_s * 1000), unsettled=self._holding.unsettled(now_s))

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Share shards until the end. Raises what cannot be mended by trying again: no permission, no such stream,
        options that fault.

        An error that ends the reading of a shard is raised here too, once all other shards are handed over.
        """
        try:
            if await self._begin():
                await self._share()
        finally:
            self._end_event.set()
            await self._chores.end()
            await self._reading_ahead.close()
            if self._letters is not None:
                await self._letters.close()
            if self._stop_event.is_set():
                with contextlib.suppress(ShardwayError):  # The others find out what is left in the table.
                    await self._leave()
        if self._failure is not None:
            raise self._failure

    async def _begin(self) -> bool:
        """Make sure that tables and streams are there and fit each other. False: this worker is to leave before they
        were.

        What cannot be reached is tried again, here as in each later round: a table that is away for a while must not
        end the workers that start meanwhile.
        """
        begins_anew, retry_s = self.options.leases.other_stream_begins_anew, self._times.lease.retry_s
        while not self._state.leaving:
            self._look_now.clear()
            try:
                await self._table.ensure()
                anew = await self._shards.claim_stream(
                    begins_anew=begins_anew, failover_s=self.options.leases.failover_s
                )
            except ShardwayError as error:
                if not error.retryable:
                    raise
            else:
                for stream, count in anew.items():
                    self._on_event(LeasesBegunAnew(self._table.name, stream, count))
                return await self._letters_begun()
            await wait_set(self._look_now, retry_s)
        return False

    async def _letters_begun(self) -> bool:
        """Make sure that dead letters can be written. False: this worker is to leave before they could."""
        if self._letters is None:
            return True
        tell = emits_failure(
            self._on_event,
            (", ".join(part.name for part in self._parts.values()), None),
            "opening the place for dead letters",
            "it is tried again; no shard is read before that",
        )
        while not self._state.leaving:
            self._look_now.clear()
            try:
                await self._letters.start()
            except ShardwayError as error:
                if not error.retryable:
                    raise
                tell(error)
            else:
                return True
            await wait_set(self._look_now, self._times.lease.retry_s)
        return False

    async def _share(self) -> None:
        """Look and act, round after round, until nothing is held any more by a worker that leaves."""
        announcing = self._chores.spawn(self._presence.run(self._holding.alive))
        announcing.add_done_callback(lambda _: self._look_now.set())
        while self._presence.alive_s is None and not self._state.leaving:
            if announcing.done():
                await announcing  # A worker that the others cannot see must hold no lease.
            await wait_set(self._look_now, 0.01)
        while not self._stop_event.is_set():
            if announcing.done():
                await announcing
            self._look_now.clear()
            try:
                waits = await self._round()
            except ShardwayError as error:
                if not error.retryable:
                    raise
                waits = False
                # The table cannot be reached as a whole. Leases are kept by their own writes meanwhile.
                await asyncio.sleep(self._times.lease.retry_s)
            interval_s = self._times.wait_interval_s if waits else self._times.look_interval_s
            await wait_set(self._look_now, interval_s)
        # The row is taken away next. A write of it that is under way could arrive behind that: it would show a worker
        # that is not there, which is given leases, and these would wait for its failover time. That remains the bound
        # where an earlier write without an answer arrives still later: no condition on the row can refuse it, because
        # the worker's row has gone, as before its first write.
        self._presence.end()
        await asyncio.wait((announcing,))

    async def stop(self) -> None:
        """Hand over everything, and leave: `run` ends when the worker holds nothing any more."""
        self._handle_between_rounds(events.LeaveAsked())
        await self._end_event.wait()

    def leases(self) -> Collection[LeaseRow]:
        """Return the leases of all shards of the worker's streams, as they were read last."""
        return self._sight.leases.values()

    def leases_without_owner(self) -> int:
        """Return how many of these leases could be read, and have no worker that lives."""
        return self._sight.without_owner()

    def give_up(self, key: str, cool_down_s: float) -> None:
        """Let another worker have a lease, or free it, and do not take it again for a while."""
        self._handle_between_rounds(events.LeaseGivenUp(key, cool_down_s))

    async def _leave(self) -> None:
        """Take away this worker's row, and free what was given to it while it left.

        The row goes first. A giver looks at it after its give: so either the giver finds that the row has gone, and
        frees the lease, or the lease was given before the row went, and is found here.
        """
        if self._kcl is not None:
            await self._kcl.leave()
        await self._table.delete_worker(self.id)
        listing = await self._table.scan(consistent=True)
        ours = [row for row in listing.rows if row.stream in self._parts and not row.ended and self._sight.is_mine(row)]
        await self._free(ours)
        if given := {*self._state.given}:
            rows = await self._table.workers(consistent=True)
            await self._take_back(given, {row.worker_id: row for row in rows})

    def _fail(self, error: BaseException) -> None:
        """Hand over the rest, then raise the error: reading has met what repeating does not mend."""
        if self._failure is None:
            self._failure = error
        self._handle_between_rounds(events.LeaveAsked())

    # --- a round --------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Look, decide, act. Return True while something is waited for that may come at any moment."""
        slow = self._handle(self._view(await self._look()))
        if any(isinstance(one, actions.CreateMissing) for one in slow):
            await self._shards.missing(self._sight.leases)
            return True
        await self._do(slow)
        if self._state.is_done:
            self._stop_event.set()
        return self._state.looks_often

    async def _look(self) -> list[str]:
        """Look at the tables, and tell tenures what was seen of their leases. Returns the workers that are silent."""
        sight, state, before, fleet = self._sight, self._state, self._sight.scanned_s, self._sight.fleet
        given = {*state.given}
        silent = await sight.look(closely=state.looks_closely, scans=state.waits_for_many(len(sight.leases)))
        await self._take_back(given, sight.members.rows)
        if sight.scanned_s != before:
            for key in sight.unreadable.keys() - self._unreadable:
                self._on_event(LeaseUnreadable(self._table.name, key, sight.unreadable[key]))
            self._unreadable = {*sight.unreadable}
            for key, held in self.held.items():
                if (row := sight.leases.get(key)) is not None:
                    held.keeper.see_lease(row)
        if sight.fleet is not fleet:
            self._on_event(FleetChanged(self._table.name, sight.fleet.value))
        if self._kcl is not None and not state.leaving:
            await self._kcl.report()
        return silent

    async def _take_back(self, given: Collection[str], workers: Mapping[str, WorkerRow]) -> None:
        """Free what was given to a worker that has left meanwhile. ``given``: the leases that were given when a
        consistent look at the workers was sent, which showed them as ``workers``.
        """
        await self._do(self._handle(events.WorkersSeen(given, workers, self._sight.leases)))

    def _view(self, silent: Collection[str]) -> events.View:
        sight, state, rows = self._sight, self._state, self._sight.leases
        steals = sight.fleet is Fleet.KCL2
        return events.View(
            fleet=sight.fleet,
            leases=sight.views(),
            rows=rows,
            workers=sight.workers(silent),
            named={
                key
                for key, row in rows.items()
                if row.actual_owner == self.id and key not in state and sight.is_mine(row)
            },
            robbed={key for key, row in rows.items() if sight.is_robbed(row)} if steals else (),
            given_up={key for key, held in self.held.items() if held.reader.ledger.given_up},
            is_complete=self._parts.keys() <= {row.stream for row in rows.values()},
            has_gone=self._shards.has_gone,
            scanned_s=sight.scanned_s,
            scan_sent_s=sight.scan_sent_s,
            before=sight.before,
        )

    def _rescan(self) -> None:
        self._sight.forget_scan()
        self._look_now.set()

    def _owned_leases(self) -> set[str]:
        """Return the leases that this worker holds, and that living workers say they hold; and rows that cannot be
        read.
        """
        now_s, members = self._clock(), self._sight.members
        quiet = {*members.quiet(now_s)}
        others = (row.held for one, row in members.rows.items() if one not in quiet)
        return {*self.held, *self._sight.unreadable}.union(*others)

    # --- what follows ---------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> list[actions.TableCall]:
        """Have the worker's machine decide what follows from an event, and do what takes no time; return what calls a
        table.

        What is done may lead to another event at once. Then its actions come behind those of the first one: a shard
        must not be stopped before it was resumed, where that was decided first.
        """
        slow: list[actions.TableCall] = []
        for one in step(self._state, event, self._clock()):
            if isinstance(one, actions.TABLE_CALLS):
                slow.append(one)
            else:
                self._todo.append(one)
        if not self._is_doing:
            self._is_doing = True
            try:
                while self._todo:
                    self._do_now(self._todo.popleft())
            finally:
                self._is_doing = False
        return slow

    def _handle_between_rounds(self, event: events.Event) -> None:
        """Handle an event of a part of the worker between rounds, and do what follows."""
        if slow := self._handle(event):
            self._chores.spawn(self._do(slow))

    def _do_now(self, action: actions.Action) -> None:
        match action:
            case actions.PublishRow():
                self._presence.changed()
            case actions.Wake():
                self._look_now.set()
            case actions.Take():
                self._take(action)
            case actions.Follow(key, checkpoint):
                self._reading_ahead.follow(key, checkpoint)
            case actions.Discard(key):
                self._reading_ahead.discard(key)
            case actions.ReadAhead(key):
                self._reading_ahead.expect(self._sight.leases[key])
            case actions.Deliver(key):
                self._on_reader(self.held[key].reader)
            case actions.Measure():
                for held in self.held.values():
                    held.measure()
            case actions.KeepUp(work):
                self._chores.spawn(self._keep_up(work))
            case actions.StopDelivering() | actions.ResumeDelivering() | actions.EndTenure():
                self._do_held(action)

    def _do_held(self, action: actions.StopDelivering | actions.ResumeDelivering | actions.EndTenure) -> None:
        if (held := self.held.get(action.key)) is None:
            return  # Its tenure ends in this very step.
        match action:
            case actions.StopDelivering(_, deadline_s):
                held.stop(deadline_s)
            case actions.ResumeDelivering():
                held.resume()
            case actions.EndTenure(_, to, process):
                held.end(to, process)

    def _take(self, action: actions.Take) -> None:
        row, me, times, now_s = self._sight.leases[action.key], self.id, self._times.lease, self._clock()
        alive_s, process = self._presence.alive_s, self._sight.process
        if action.receives and not row.lacks_time:
            assert action.unmoved_s is not None
            begun = receive(row, me, times, now_s, action.unmoved_s, alive_s, process)
        else:
            start_ms = self._parts[row.stream].stream.start_ms(row.checkpoint) if row.lacks_time else None
            begun = claim(row, me, times, now_s, alive_s, process, start_ms)
        self._holding.begin(action.key, TenureKeeper(self._table, begun, clock=self._clock))

    async def _do(self, slow: Iterable[actions.TableCall]) -> None:
        """Do what calls a table: first free leases, then look at the others side by side, each in its own order."""
        frees: list[actions.FreeRows] = []
        by_key: dict[str, deque[actions.TableCall]] = {}
        for one in slow:
            if isinstance(one, actions.FreeRows):
                frees.append(one)
            elif isinstance(one, actions.WarmUp | actions.LookAt):
                by_key.setdefault(one.key, deque()).append(one)
        try:
            for free in frees:
                await self._free(free.rows)
        finally:  # A side that warms up counts on it, whatever becomes of another lease.
            # Each look is a round trip: one after another, a deploy would leave hundreds of shards unread for seconds.
            await side_by_side(self._look_closely, by_key.values(), LOOKS_AT_ONCE_MAX)

    async def _free(self, rows: Collection[LeaseRow]) -> None:
        self._sight.forget_scan()
        await side_by_side(lambda row: self._table.write(writes.free(row)), rows, LOOKS_AT_ONCE_MAX)
        self._handle(events.RowsFreed([row.key for row in rows]))

    async def _look_closely(self, todo: deque[actions.TableCall]) -> None:
        """Do what is to be done for one lease that may come."""
        while todo:
            one = todo.popleft()
            if isinstance(one, actions.WarmUp):
                await self._warm_up(one.key)
            elif isinstance(one, actions.LookAt):
                todo += await self._look_at(one.key)

    async def _warm_up(self, key: str) -> None:
        row = await self._sight.get(key)
        side = self._state.receiving.get(key)
        if row is not None and not row.ended and side is not None and side.state is ReceiverState.WARMING:
            self._reading_ahead.come(row)

    async def _look_at(self, key: str) -> list[actions.TableCall]:
        sight = self._sight
        sent_s, row = self._clock(), await sight.get(key)
        known = sight.leases.get(key)
        if row is None:
            return self._handle(events.LeaseSeen(key=key, row=None, lease=None, known=known, sent_s=sent_s))
        sight.saw(row)
        return self._handle(
            events.LeaseSeen(
                key=key,
                row=row,
                lease=sight.view(row),
                known=known,
                sent_s=sent_s,
                is_robbed=sight.is_robbed(row),
            )
        )

    # --- upkeep ---------------------------------------------------------------------------------

    async def _keep_up(self, work: Work) -> None:
        failed = True
        try:
            if work is Work.GONE:
                await self._shards.missing_of_gone()
            elif work is Work.SEARCH:
                await self._shards.missing(self._sight.leases)
            else:
                await self._shards.upkeep()
            failed = False
        except ShardwayError as error:
            reason = error.code if isinstance(error, ServiceError) else type(error).__name__
            self._on_event(LeaseUpkeepFailed(self._table.name, reason, self._state.terms.upkeep_retry_s))
        finally:
            self._handle_between_rounds(events.UpkeepDone(work, failed))


def _terms(worker_id: str, options: ConsumerOptions) -> Terms:
    return Terms(
        worker_id=worker_id,
        process=process_name(uuid.uuid4().hex[:16], worker_id),
        failover_s=options.leases.failover_s,
        leases_max=options.leases.leases_max,
        warm_deadline_s=options.handoff.warm_deadline_s,
        drain_deadline_s=options.handoff.drain_deadline_s,
        upkeep_interval_s=options.leases.upkeep_interval_s,
        steal_wait_s=options.steal_wait_s,
        look_interval_s=options.times.look_interval_s,
    )


def _kcl_watch(
    worker_id: str, table: LeaseTable, options: ConsumerOptions, clock: Callable[[], float]
) -> KclWatch | None:
    """Return the watch for KCL workers; None: no KCL worker can share such a table."""
    if not isinstance(table, SharedWithKcl):
        return None
    return KclWatch(
        worker_id,
        table,
        KclTimes(
            failover_s=options.leases.failover_s,
            report_interval_s=options.leases.kcl_report_interval_s,
            look_interval_s=options.times.kcl_look_interval_s,
        ),
        clock=clock,
    )
