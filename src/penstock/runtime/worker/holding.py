"""The leases that a worker holds, each from the claim to the end of its tenure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.core.assignment.fleet import Fleet
from penstock.core.handoff.sides import OwnerSide
from penstock.core.leases.tenure import End, Loss
from penstock.runtime.shard.admitting import Admission
from penstock.runtime.shard.listener import ShardListener
from penstock.runtime.shard.origin import Origin
from penstock.runtime.shard.shard_reader import ReaderChoices, ShardReader
from penstock.runtime.shard.tenure_keeper import TenureKeeper
from penstock.runtime.worker.held import HeldShard
from penstock.runtime.worker.stream_part import shard_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from random import Random

    from penstock.core.feeding.pages import ChildShard
    from penstock.core.handoff.sides import ReceiverSide
    from penstock.core.leases import LeaseRow
    from penstock.core.leases.steps import Result
    from penstock.core.ledger.endings import Ending
    from penstock.ports import LeaseTable
    from penstock.runtime.dead_letters.destinations import LetterSink
    from penstock.runtime.worker.presence import Presence
    from penstock.runtime.worker.receiving import Receiving
    from penstock.runtime.worker.settings import WorkerSettings
    from penstock.runtime.worker.shard_leases import ShardLeases
    from penstock.runtime.worker.sight import Sight
    from penstock.runtime.worker.stream_part import StreamPart

COOL_DOWN_S = 60.0
"""For so long a shard is left to others that could not be read here: as with `GiveUp`."""


class Holding(ShardListener):
    """Begins tenures, has their shards read, and clears away after them."""

    def __init__(
        self,
        worker_id: str,
        table: LeaseTable,
        settings: WorkerSettings,
        parts: Mapping[str | None, StreamPart],
        *,
        rng: Random,
        on_event: Callable[[Any], None],
        on_reader: Callable[[ShardReader], None],
        letters: LetterSink | None,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        clock: Callable[[], float],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``changed``: there is something new to show, and to look at. ``failed`` hears what ended a shard's reading.

        Its neighbours are attributes, set once they are there: each of them knows of what is held.
        """
        self.id = worker_id
        self.held: dict[str, HeldShard] = {}
        self.claims: dict[str, TenureKeeper] = {}
        """Leases on their way to be held."""
        self.heirs: set[str] = set()
        """Leases of the children of shards that ended here. The worker takes them at once, and evens them out later."""
        self.given: dict[str, LeaseRow] = {}
        """Leases as gives to others left them, until their receivers are seen to have begun."""
        self.stolen: set[str] = set()
        """Those of the claims that were stolen: their KCL workers have to notice first that they lost them."""
        self.retreats_until_s = float("-inf")
        """A lease was lost because no write was confirmed: until then others are to have it."""
        self.receiving: Receiving
        self.sight: Sight
        self.presence: Presence
        self.shards: ShardLeases
        self._table = table
        self._settings = settings
        self._parts = parts
        self._rng = rng
        self._on_event = on_event
        self._on_reader = on_reader
        self._choices = ReaderChoices(
            ledger=settings.ledger,
            cadence=settings.cadence,
            batch_records_max=settings.batch_records_max,
            checkpoint_when_told=settings.checkpoint_when_told,
            letters=letters,
            letter_timeout_s=settings.dead_letter_timeout_s,
            letters_at_once_max=settings.dead_letters_at_once_max,
            on_pending=settings.on_pending,
        )
        self._spawn = spawn
        self._clock = clock
        self._changed = changed
        self._failed = failed

    def __contains__(self, key: object) -> bool:
        """True from the claim on."""
        return key in self.held or key in self.claims

    def alive(self, sent_s: float) -> None:
        """A write to the worker's own row was confirmed."""
        for keeper in (*(held.keeper for held in self.held.values()), *self.claims.values()):
            keeper.alive(sent_s)

    def give_up(self, key: str, cool_down_s: float) -> None:
        """Let another worker have a lease, or free it, and do not take it again for a while."""
        self.presence.avoid(key, cool_down_s)
        self._changed()

    def begin(self, side: ReceiverSide, begun: Result) -> None:
        """A tenure begins: at once, or when the take is confirmed."""
        key = side.key
        keeper = TenureKeeper(self._table, begun, clock=self._clock)
        self.claims[key] = keeper
        if self.sight.is_robbed(self.sight.leases[key]):
            self.stolen.add(key)
        self._spawn(self._hold(side, keeper, self._origin(side)))

    def _origin(self, side: ReceiverSide) -> Origin:
        """How the shard comes here."""
        row = self.sight.leases[side.key]
        if row.actual_owner not in (None, self.id):
            return Origin.TAKEN
        if row.actual_owner == self.id:
            if self.sight.fleet is not Fleet.KCL3:
                return Origin.HANDED_OVER
            lived = self.sight.came_from_living(side.key)  # a leader assigns also what a dead worker had, or none
            if lived is not None:
                return Origin.HANDED_OVER if lived else Origin.TAKEN
        return Origin.CONTINUED if row.checkpoint.is_position else Origin.NEW

    async def _hold(self, side: ReceiverSide, keeper: TenureKeeper, origin: Origin) -> None:
        """From the claim to the end of the tenure."""
        key = side.key
        one: HeldShard | None = None
        keeping = self._spawn(keeper.run())
        try:
            began = await keeper.began
            self.sight.saw(keeper.row)
            await self.receiving.began(side, began)
            if not began:
                return
            if keeper.row.ended:  # an old look showed it as unread
                keeper.abandon()
                await self.receiving.discard(key)
                return
            if key in self.stolen and not await self._victim_has_heard(keeper):
                await self.receiving.discard(key)
                await asyncio.wait((keeping,))
                return
            self.stolen.discard(key)
            one = await self._deliver(key, keeper, origin)
            keeper.listen(one.heard)
            self.claims.pop(key, None)
            self.receiving.over(side)
            self._changed()
            await self._read(one)
            if one.reader.failure is not None and not keeper.row.ended:
                # Nothing here reads it any more: another worker may be able to, with another program.
                self.give_up(key, COOL_DOWN_S)
                one.cut(one.reader.over_because)
            await asyncio.wait((keeping,))
        except Exception as error:
            self._failed(error)
            if one is not None:
                one.cut(f"reading failed: {type(error).__name__}")
                await asyncio.wait((keeping,))
        finally:
            if (lost := keeper.lost) is not None:
                if one is None:  # else its reader has said so
                    self._retreat(lost.why)
                # In one step with the end of the hold: what a worker holds counts as leased, though there is no row.
                if lost.known is not None:
                    self.shards.gone(lost.known)
            self.claims.pop(key, None)
            self.stolen.discard(key)
            self.receiving.over(side)
            if (gone := self.held.pop(key, None)) is not None:
                gone.close()
                gone.reader.stop("the tenure is over")
                self.sight.saw(keeper.row)
                if (given := gone.given) is not None:
                    self.given[key] = given
            self.presence.given.pop(key, None)
            if not keeper.row.ended:
                self.sight.forget_scan()
            keeping.cancel()
            self._changed()

    async def _victim_has_heard(self, keeper: TenureKeeper) -> bool:
        """A KCL worker from which a lease was stolen reads on until its next renewal: wait for as long, and read ahead
        meanwhile. False: this worker leaves, or the lease is lost, before anything was delivered.
        """
        self.receiving.read_ahead(keeper.row)
        over = self._spawn(keeper.over())
        until_s = self._clock() + self._settings.steal_wait_s
        while (left_s := until_s - self._clock()) > 0 and not over.done():
            if self.presence.leaving:
                keeper.tell(End(None))
                await over
            await asyncio.wait((over,), timeout=min(left_s, self._settings.look_interval_s))
        lost = over.done()
        over.cancel()
        return not lost

    async def _deliver(self, key: str, keeper: TenureKeeper, origin: Origin) -> HeldShard:
        warming = self.receiving.warming.pop(key, None)
        if warming is not None:
            await warming.stop()
        settings, stream = self._settings, keeper.row.stream
        part = self._parts[stream]
        feed = part.promote(part.open_feed(keeper.row) if warming is None else warming.feed)
        window = part.open_window(keeper.row) if warming is None else warming.window
        reader = ShardReader(
            keeper,
            feed,
            self._choices,
            stream=part.name,
            shard_id=shard_id_of(key),
            rng=self._rng,
            on_event=self._on_event,
            read_ahead=() if warming is None else warming.pages,
            admission=Admission(
                window=window, split_by=settings.split, parts_max=settings.parts_max, on_event=self._on_event
            ),
        )
        reader.listen(self)
        reader.origin = origin
        side = OwnerSide(key, warm_deadline_s=settings.warm_deadline_s, drain_deadline_s=settings.drain_deadline_s)
        name, clock = self.presence.name, self._clock
        held = self.held[key] = HeldShard(keeper, reader, side, feed.cursor, name=name, clock=clock)
        self._on_reader(reader)
        return held

    def gave_up(self, reader: ShardReader, ending: Ending) -> None:
        """See `ShardListener`: another worker is to try, unless the shard is to stand still."""
        if not ending.stops:
            self.give_up(reader.row.key, ending.cool_down_s)

    def over(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        self._retreat(reader.lost)

    def _retreat(self, why: Loss | None) -> None:
        """Leave leases to others for a while, where this worker cannot write to the table."""
        if why is Loss.UNCONFIRMED:
            self.retreats_until_s = self._clock() + self._settings.failover_s

    async def fetched(self, reader: ShardReader, children: tuple[ChildShard, ...]) -> None:
        """See `ShardListener`: the children's leases are made, and known here without another look."""
        key, stream = reader.row.key, reader.row.stream
        found = await self.shards.at_end(key, stream, children)
        # The other parent of a merge may have got its lease since the last scan, by another worker. A parent that is
        # not in sight would count as read to its end, and the child would be read before it.
        for row in found.others:
            if row.key not in self.sight.leases:
                self.sight.saw(row)
        for row in found.children:
            self.sight.saw(row)
            if row.actual_owner is not None or self.sight.fleet is Fleet.KCL3:
                continue
            self.heirs.add(row.key)
            others = {self._parts[stream].key_of(parent) for parent in row.parents} - {key}
            if all(self.sight.leases[other].ended for other in others & self.sight.leases.keys()):
                self.receiving.expect(row)

    async def _read(self, held: HeldShard) -> None:
        """Fetch until the tenure is over. Of a shard that has ended the row stays as it is, with its last owner's name:
        no worker needs to renew it.
        """
        fetching = self._spawn(held.reader.run())
        reading = self._spawn(held.reader.over())
        try:
            await asyncio.wait((fetching, reading), return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                await fetching  # raises what reading raised
            await reading
            if held.keeper.row.ended:
                held.keeper.abandon()
        finally:
            fetching.cancel()
            reading.cancel()
