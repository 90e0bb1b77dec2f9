"""The leases that a worker holds, each from the claim to the end of its tenure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shardway.core.assignment.kcl.fleet import Fleet
from shardway.core.assignment.views import lease_view
from shardway.core.handoff.owner import OwnerEvent
from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure.state import Loss
from shardway.core.leases.worker_row import longest_unsettled
from shardway.core.ledger.parts import PARTS_MAX
from shardway.core.worker import events
from shardway.runtime.dead_letters.shard_letters import LetterWriter
from shardway.runtime.feeds.admission import Admission
from shardway.runtime.feeds.pages import Pages
from shardway.runtime.shard.listener import Origin, ShardListener
from shardway.runtime.shard.shard_reader import ReaderChoices, ShardReader
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from shardway.core.ledger.failures import GiveUpReason
    from shardway.core.log.pages import ChildShard
    from shardway.core.worker.state import WorkerState
    from shardway.model import Position
    from shardway.options.consumer import ConsumerOptions
    from shardway.runtime.background import Chores
    from shardway.runtime.dead_letters.writers import LetterSink
    from shardway.runtime.shard.reader_context import ReaderContext
    from shardway.runtime.shard.tenure_keeper import TenureKeeper
    from shardway.runtime.worker.reading_ahead import ReadingAhead, WarmUp
    from shardway.runtime.worker.shard_leases import ShardLeases
    from shardway.runtime.worker.sharded_stream import StreamPart
    from shardway.runtime.worker.sight import SeenTables


DEAD_LETTER_TIMEOUT_S = 60.0
"""A dead letter that is not written within this time counts as failed, and is written again later."""
COOL_DOWN_S = 60.0
"""How many seconds a shard is left to others that could not be read here, as with `GiveUp`."""


class Readers:
    """Opens the readers of shards, as the options say."""

    def __init__(
        self,
        parts: Iterable[StreamPart],
        options: ConsumerOptions,
        letters: LetterSink | None,
        *,
        context_of: Callable[[str, str], ReaderContext],
        rng: Random,
        on_event: Callable[[Any], None],
    ) -> None:
        """``parts`` are of one stream, or of several with keys. ``letters`` is the sink for dead letters.
        ``context_of`` returns the context of a reader, of a stream and a shard.
        """
        self.parts = {part.text: part for part in parts}
        """The parts, by what their leases have as ``streamName``."""
        self.letters = letters
        self._options = options
        self._context_of = context_of
        self._rng = rng
        self._on_event = on_event
        self._choices = ReaderChoices(
            ledger=options.ledger,
            cadence=options.checkpoints.cadence,
            batch_records_max=options.buffer.batch_records_max,
            checkpoint_manually=options.checkpoints.manual,
            on_pending=options.checkpoints.on_pending,
        )

    def open(self, keeper: TenureKeeper, warming: WarmUp | None) -> ShardReader:
        """Return a reader for a tenure that goes on with what was read ahead."""
        options, part = self._options, self.parts[keeper.row.stream]
        feed = part.stream.promote(part.stream.open_feed(keeper.row) if warming is None else warming.feed)
        window = part.stream.open_window(keeper.row) if warming is None else warming.window
        admission = Admission(window=window, split_by=options.split, parts_max=PARTS_MAX)
        pages = Pages(feed, () if warming is None else warming.pages, admission)
        return ShardReader(
            keeper,
            pages,
            self._choices,
            self._context_of(pages.stream, pages.shard_id),
            rng=self._rng,
            on_event=self._on_event,
            letters=self._writer(keeper, pages),
        )

    def _writer(self, keeper: TenureKeeper, pages: Pages) -> LetterWriter | None:
        """Return the writer of a tenure's dead letters, where there is a place for them; else None."""
        if self.letters is None:
            return None
        return LetterWriter(
            self.letters,
            stream=pages.stream,
            shard_id=pages.shard_id,
            worker=keeper.tenure.worker,
            token=keeper.token,
            timeout_s=DEAD_LETTER_TIMEOUT_S,
        )


class HeldLeases(ShardListener):
    """Begins tenures, has their shards read, and clears away after them. The worker decides what is held, and what
    becomes of it (`shardway.core.worker`): it handles the events that happen here.
    """

    def __init__(
        self,
        state: WorkerState,
        *,
        readers: Readers,
        ahead: ReadingAhead,
        sight: SeenTables,
        shards: ShardLeases,
        chores: Chores,
        handle: Callable[[events.Event], None],
    ) -> None:
        """``handle`` takes the events of each tenure: that it has begun, that its shard is read, that it is over."""
        self.held: dict[str, HeldShard] = {}
        """The shards that are read, by the keys of their leases."""
        self.claims: dict[str, TenureKeeper] = {}
        """The tenures of leases on their way to be held, by the keys of the leases."""
        self._state = state
        self._readers = readers
        self._reading_ahead = ahead
        self._sight = sight
        self._shards = shards
        self._chores = chores
        self._clock = sight.clock
        self._handle = handle

    def alive(self, sent_s: float) -> None:
        """Note that a write to the worker's own row was confirmed."""
        for keeper in (*(held.keeper for held in self.held.values()), *self.claims.values()):
            keeper.confirm_worker_row(sent_s)

    def unsettled(self, now_s: float) -> Mapping[str, float]:
        """Return for how long each lease's oldest unsettled record has been the oldest, in seconds."""
        return longest_unsettled({key: held.unsettled_s(now_s) for key, held in self.held.items()})

    def begin(self, key: str, keeper: TenureKeeper) -> None:
        """Begin a tenure: at once, or when the take is confirmed."""
        self.claims[key] = keeper
        self._chores.spawn(self._hold(key, keeper, self._origin(key)))

    def _origin(self, key: str) -> Origin:
        """Return the way in which the shard comes here."""
        row, me = self._sight.leases[key], self._state.terms.worker_id
        if row.actual_owner not in (None, me):
            return Origin.TAKEN
        if row.actual_owner == me:
            if self._sight.fleet is not Fleet.KCL3:
                return Origin.HANDED_OVER
            lived = self._sight.came_from_living(key)  # A leader assigns also what a dead worker had, or none.
            if lived is not None:
                return Origin.HANDED_OVER if lived else Origin.TAKEN
        return Origin.CONTINUED if row.checkpoint.is_position else Origin.NEW

    async def _hold(self, key: str, keeper: TenureKeeper, origin: Origin) -> None:
        """Follow a tenure from the claim to the end."""
        one: HeldShard | None = None
        keeping = self._chores.spawn(keeper.run())
        try:
            began = await keeper.began
            self._sight.saw(keeper.row)
            self._handle(events.TakeAnswered(key, began))
            if not began:
                return
            if keeper.row.ended:  # An old look showed it as unread.
                keeper.abandon()
                self._reading_ahead.discard(key)
                return
            if key in self._state.stolen and not await self._victim_has_heard(keeper):
                self._reading_ahead.discard(key)
                await asyncio.wait((keeping,))
                return
            one = await self._deliver(key, keeper, origin)
            keeper.listen(one.reader.driver.hear)
            await self._read(one)
            if one.reader.failure is not None and not keeper.row.ended:
                # Nothing here reads the shard any more: another worker may be able to, with another program.
                self._handle(events.LeaseGivenUp(key, COOL_DOWN_S))
                one.cut(one.reader.over_because)
            await asyncio.wait((keeping,))
        except Exception as error:
            self._chores.failed(error)
            if one is not None:
                one.cut(f"reading failed: {type(error).__name__}")
                await asyncio.wait((keeping,))
        finally:
            self._end(key, keeper)
            keeping.cancel()

    def _end(self, key: str, keeper: TenureKeeper) -> None:
        """Clear away after a tenure, all in one step."""
        gone, lost = self.held.pop(key, None), keeper.lost
        if lost is not None:
            if gone is None:  # Otherwise its reader has said so.
                self._retreat(lost.why)
            # It is one step with the end of the hold: what a worker holds counts as leased, though there is no row.
            if lost.known is not None:
                self._shards.gone(lost.known)
        self.claims.pop(key, None)
        if gone is not None:
            gone.close()
            gone.reader.handle.stop("the tenure is over")
            self._sight.saw(keeper.row)
        if not keeper.row.ended:
            self._sight.forget_scan()
        self._handle(events.TenureOver(key, keeper.row))

    async def _victim_has_heard(self, keeper: TenureKeeper) -> bool:
        """Wait until the KCL worker from which a lease was stolen has renewed in vain, as it reads on until then, and
        read ahead meanwhile. False: this worker leaves, or the lease is lost, before anything was delivered.
        """
        self._reading_ahead.expect(keeper.row)
        over = self._chores.spawn(keeper.over())
        until_s = self._clock() + self._state.terms.steal_wait_s
        while (left_s := until_s - self._clock()) > 0 and not over.done():
            if self._state.leaving:
                keeper.handle(tenure_events.EndTenure(None))
                await over
            await asyncio.wait((over,), timeout=min(left_s, self._state.terms.look_interval_s))
        lost = over.done()
        over.cancel()
        return not lost

    async def _deliver(self, key: str, keeper: TenureKeeper, origin: Origin) -> HeldShard:
        warming = await self._reading_ahead.taken(keeper.row)
        reader = self._readers.open(keeper, warming)
        reader.listen(self)
        reader.origin = origin
        held = self.held[key] = HeldShard(keeper, reader, handle=self._handle, clock=self._clock)
        self.claims.pop(key, None)
        self._handle(events.ReadingBegan(key))
        return held

    def gave_up(self, reader: ShardReader, ending: GiveUpReason) -> None:
        """See `ShardListener`: another worker is to try, unless the shard is to stand still."""
        if not ending.stops:
            self._handle(events.LeaseGivenUp(reader.row.key, ending.cool_down_s))

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        self._retreat(reader.lost)

    def _retreat(self, why: Loss | None) -> None:
        """Leave leases to others for a while, where this worker cannot write to the table."""
        if why is Loss.UNCONFIRMED:
            self._handle(events.LeaseUnconfirmed())

    async def fetched(self, reader: ShardReader, children: tuple[ChildShard, ...]) -> None:
        """See `ShardListener`: the children's leases are made here, and known without another look."""
        sight, key = self._sight, reader.row.key
        found = await self._shards.at_end(key, reader.row.stream, children)
        # The other parent of a merge may have got its lease since the last scan, by another worker. A parent that is
        # not in sight would count as read to its end, and the child would be read before it.
        for row in found.others:
            if row.key not in sight.leases:
                sight.saw(row)
        for row in found.children:
            sight.saw(row)
            if row.actual_owner is not None or sight.fleet is Fleet.KCL3:
                continue
            others = {*lease_view(row).parents} - {key}
            parents_ended = all(sight.leases[other].ended for other in others & sight.leases.keys())
            self._handle(events.ChildFound(row.key, may_start=parents_ended))

    async def _read(self, held: HeldShard) -> None:
        """Fetch until the tenure is over. The row of a shard that has ended stays as it is, with its last owner's name:
        no worker needs to renew it.
        """
        fetching = self._chores.spawn(held.reader.fetcher.run())
        reading = self._chores.spawn(held.reader.handle.over())
        try:
            await asyncio.wait((fetching, reading), return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                await fetching  # This raises what reading raised.
            await reading
            if held.keeper.row.ended:
                held.keeper.abandon()
        finally:
            fetching.cancel()
            reading.cancel()


class HeldShard(ShardListener):
    """Does what the worker decides on the owner's side of a handoff, and reports what the shard and its lease say."""

    def __init__(
        self,
        keeper: TenureKeeper,
        reader: ShardReader,
        *,
        handle: Callable[[events.Event], None],
        clock: Callable[[], float],
    ) -> None:
        """``handle`` takes the events of the worker's machine."""
        self.keeper = keeper
        self.reader = reader
        reader.listen(self)
        self._key = keeper.row.key
        self._cursor = cursor = reader.cursor
        self._oldest: Position | None = None
        self._oldest_since_s = clock()
        self._measured_s = clock()
        self._measured_bytes = cursor.payload_bytes
        self._throughput_kib_s: float | None = None
        self._handle = handle
        self._clock = clock
        self._drain_task: asyncio.Task[None] | None = None

    def lease_goes(self, reader: ShardReader, command: tenure_commands.Departure) -> None:
        """See `ShardListener`."""
        if isinstance(command, tenure_commands.HandoffAsked):
            self._handle(events.LeaderNamedReceiver(self._key, command.to))
        elif isinstance(command, tenure_commands.TenureEnded):
            reader.handle.stop("the shard was handed over")
            self._inform_side(OwnerEvent.ENDED)
        else:
            self._inform_side(OwnerEvent.LOST)

    def unsettled_s(self, now_s: float) -> float:
        """Return for how long the shard's oldest unsettled record has been the oldest, as the calls so far have seen
        it; 0 where all that was fetched is settled.
        """
        # A handler that hangs, one that fails, and a program that does not ask for records any more all show here.
        if (oldest := self.reader.ledger.progress.oldest) != self._oldest:
            self._oldest, self._oldest_since_s = oldest, now_s
        return 0.0 if oldest is None else now_s - self._oldest_since_s

    def measure(self) -> None:
        """Have the next renewal store how much is read, and the time up to which all is settled."""
        now_s, cursor, former = self._clock(), self.reader.cursor, self._cursor
        if now_s <= self._measured_s:
            return
        came_bytes = former.payload_bytes - self._measured_bytes
        if cursor is not former:  # The program has sought another place since.
            self._cursor, came_bytes = cursor, came_bytes + cursor.payload_bytes
        rate = came_bytes / 1024 / (now_s - self._measured_s)
        self._measured_s, self._measured_bytes = now_s, cursor.payload_bytes
        before, row = self._throughput_kib_s, self.keeper.row
        self._throughput_kib_s = rate if before is None else (before + rate) / 2  # The KCL 3.x smooths it so.
        done = row.pending is None and self.reader.ledger.progress.came_to <= self.reader.settled <= row.checkpoint
        until_ms = None if cursor.read_until_s is None or not done else int(cursor.read_until_s * 1000)
        self.keeper.handle(tenure_events.StoreMeasurements(self._throughput_kib_s, until_ms))

    def let_go(self, reader: ShardReader) -> None:
        """See `ShardListener`: the lease becomes free for any worker."""
        self._inform_side(OwnerEvent.FREE)

    def stop(self, deadline_s: float) -> None:
        """Deliver nothing more, and inform the worker when all is settled, or at the deadline."""
        drained = self.reader.handle.drain(max(0.0, deadline_s - self._clock()))
        self._drain_task = spawn(self._drain(drained), self._drain_failed)

    def resume(self) -> None:
        """Go on delivering."""
        if self._drain_task is not None:
            self._drain_task.cancel()
        self.reader.handle.resume()

    def end(self, to: str | None, process: str | None) -> None:
        """Give the lease to a worker, or free it (None). ``process`` is the process of that name that gets it, if it is
        known.
        """
        self.reader.handle.hand_over()
        self.keeper.handle(tenure_events.EndTenure(to, process))

    def cut(self, reason: str) -> None:
        """Store what is settled, and free the lease: reading has failed."""
        self.end(None, None)
        self.reader.handle.stop(reason)

    def close(self) -> None:
        """End the drain: the tenure is over."""
        if self._drain_task is not None:
            self._drain_task.cancel()

    def _inform_side(self, event: OwnerEvent) -> None:
        self._handle(events.OwnerSideLearned(self._key, event))

    async def _drain(self, drained: asyncio.Future[bool]) -> None:
        self._inform_side(OwnerEvent.DRAINED if await drained else OwnerEvent.DRAIN_DEADLINE)

    def _drain_failed(self, error: BaseException) -> None:
        """Report the error, and go on: what is settled by now goes with the lease, as at the deadline."""
        self.reader.driver.report_failure(
            "the end of its delivery", "it is handed over with what is settled by now", error
        )
        self._inform_side(OwnerEvent.DRAIN_DEADLINE)
