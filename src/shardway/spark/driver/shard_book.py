"""The driver's book of a stream's shards: how far each is read, what is known ahead, which may start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Set

from shardway.aws.kinesis.shapes import StreamSummary
from shardway.core.leases.row import LeaseRow
from shardway.core.leases.stream_mark import StreamMark
from shardway.core.lineage import Lineage
from shardway.errors import ShardwayError
from shardway.model import ListedShard, StartingPosition, epoch_ms
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.driver.stream_summary import check_owner, describe
from shardway.spark.leases.starts import LeaseStarts
from shardway.spark.lookahead.lookahead import Tail
from shardway.spark.lookahead.losses import RISK_MARGIN_MS, Loss, LossPolicy
from shardway.spark.lookahead.shard_probe import ShardProbe
from shardway.spark.lookahead.stream_calls import StreamCalls
from shardway.spark.offsets import StreamOffset
from shardway.spark.positions import Kind, ShardPosition

log = logging.getLogger("shardway.spark")

CREATING_POLL_S = 0.5
CREATING_POLLS_MAX = 240
"""The most looks at a stream that is being made: that takes seconds, and with very many shards a minute or so."""


class ShardBook:
    """Keeps all shards of one stream that are unread or still listed."""

    def __init__(
        self, calls: StreamCalls, start: StartingPosition, losses: LossPolicy, listing_interval_s: float
    ) -> None:
        self._calls = calls
        self._start = start
        self._losses = losses
        self._listing_interval_s = listing_interval_s
        self._listed_at_s = 0.0
        self.states: dict[str, ShardState] = {}
        self.lineage = Lineage(())
        """The lineage of all shards that the service names."""
        self.summary: StreamSummary

    @property
    def retention_ms(self) -> int:
        """How long the stream keeps records, in milliseconds."""
        return self.summary.retention_hours * 3_600_000

    def horizon_ms(self) -> int:
        """Return the oldest arrival time that the retention surely covers, in epoch milliseconds."""
        return self._calls.service_ms() - self.retention_ms

    def risk_before_ms(self) -> int:
        """Return the time before which ranges that start are read with care: their first record may be trimmed."""
        return self.horizon_ms() + RISK_MARGIN_MS

    async def begin(self, stored: StreamOffset | None, leases: Mapping[str, LeaseRow]) -> StreamOffset | None:
        """Take all shards into the book: where the stored offset says, else where leases say, else at the start.

        Return the offset to go on from; None when there is none, or when its stream does not exist any more.
        """
        await self._describe()
        again = False
        if stored is not None:
            check_owner(stored.stream_arn, self.summary.stream_arn)
            if stored.created_s != int(self.summary.creation_timestamp_s):
                self._stream_was_made_again()
                stored, again = None, True
        await self._list()
        if stored is not None:
            self._resume(stored.shards)
        elif leases and not again:
            stream = StreamMark(self.summary.stream_arn, int(self.summary.creation_timestamp_s))
            horizon_ms = self.horizon_ms()
            found = LeaseStarts(self._calls, leases, self._start, self._losses, stream=stream, horizon_ms=horizon_ms)
            self._resume(await found.positions(self.lineage))
        else:
            self._start_all()
        return stored

    async def refresh(self, *, now: bool = False) -> bool:
        """Ask again what the stream is and which shards it has, when that is due or at once.

        Return True when the stream was deleted and made again, and the query may go on with it.
        """
        if not now and self._calls.monotonic() - self._listed_at_s < self._listing_interval_s:
            return False
        created_s = int(self.summary.creation_timestamp_s)
        await self._describe()
        made_again = created_s != int(self.summary.creation_timestamp_s)
        await self._list()
        if made_again:
            self._stream_was_made_again()
            self._start_all()
        else:
            self._adopt_new()
            self._drop_gone()
        return made_again

    async def _describe(self) -> None:
        """Ask what the stream is, and wait while it is being made: it has no shards yet."""
        stream = self._calls.stream
        for _ in range(CREATING_POLLS_MAX):
            self.summary = await describe(self._calls.client, stream, self._calls.retry)
            if self.summary.stream_status != "CREATING":
                return
            await asyncio.sleep(CREATING_POLL_S)
        raise ShardwayError(
            f"stream {stream} is still being created after {CREATING_POLLS_MAX * CREATING_POLL_S:.0f} s: start the "
            "query again when its status is ACTIVE"
        )

    async def _list(self) -> None:
        shards = await self._calls.client.list_shards(self._calls.stream, retry=self._calls.retry)
        self._listed_at_s = self._calls.monotonic()
        self.lineage = Lineage(shards)
        for shard in shards:
            if shard.shard_id in self.states:
                self.states[shard.shard_id].probe.closed = shard.closed

    def _stream_was_made_again(self) -> None:
        what = "the stream was deleted and made again; what was unread in the old one is gone"
        self._losses.report(Loss(None, True, what))
        self._start = StartingPosition.TRIM_HORIZON

    def _start_all(self) -> None:
        """Set the first positions: LATEST becomes a time at once, so that it never means another place later."""
        now_ms = self._calls.service_ms()
        self.states = {}
        for shard_id, shard in sorted(self.lineage.shards.items()):
            if self._start.kind == "TRIM_HORIZON":
                position = ShardPosition(Kind.BEGINNING, 0)
            elif self._start.kind == "LATEST":
                position = ShardPosition(Kind.ENDED if shard.closed else Kind.SINCE, now_ms)
            else:
                assert self._start.timestamp is not None
                position = ShardPosition(Kind.SINCE, epoch_ms(self._start.timestamp))
            self.states[shard_id] = ShardState(shard, position, self._probe(shard))

    def _resume(self, positions: Mapping[str, ShardPosition]) -> None:
        self.states = {}
        for shard_id, position in sorted(positions.items()):
            shard = self.lineage.shards.get(shard_id)
            if shard is not None:
                state = ShardState(shard, position, self._probe(shard), stored=True)
                self.states[shard_id] = state
            elif position.kind is not Kind.ENDED:
                self._report_gone(shard_id, position)
        self._adopt_new()

    def _adopt_new(self) -> None:
        for shard_id, shard in sorted(self.lineage.shards.items()):
            if shard_id not in self.states:
                orphan = not any(parent in self.states for parent in shard.parents)
                position = ShardPosition(Kind.BEGINNING, 0)
                self.states[shard_id] = ShardState(shard, position, self._probe(shard), stored=True, orphan=orphan)

    def _probe(self, shard: ListedShard) -> ShardProbe:
        probe = ShardProbe(self._calls, shard.shard_id)
        probe.closed = shard.closed
        return probe

    def _drop_gone(self) -> None:
        """Let go of shards that the service no longer names: read ones for good, unread ones as a loss."""
        for shard_id in [shard_id for shard_id in self.states if shard_id not in self.lineage]:
            state = self.states.pop(shard_id)
            if state.position.kind is not Kind.ENDED:
                self._report_gone(shard_id, state.stored_form())

    def _report_gone(self, shard_id: str, position: ShardPosition) -> None:
        if position.kind in (Kind.SINCE, Kind.AFTER, Kind.BEGINNING):
            certain, what = False, "the shard is gone; what arrived in it after it was last looked at was not read"
        else:
            certain, what = True, f"the shard is gone, with all from {position.sequence_number} on unread"
        self._losses.report(Loss(shard_id, certain, what))

    def positions(self) -> dict[str, ShardPosition]:
        """Return all positions as an offset holds them.

        A child that waits for its parents was born after the newest time at which one of them was seen alive: that is
        its witness.
        """
        stored: dict[str, ShardPosition] = {}
        for shard_id, state in sorted(self.states.items()):  # parents come first: ids count up
            stored[shard_id] = self._with_birth(state, stored)
        return stored

    def position_of(self, state: ShardState) -> ShardPosition:
        """Return the position of one shard as an offset holds it, by what is known of its parents."""
        parents = {one: self.states[one].position for one in state.shard.parents if one in self.states}
        return self._with_birth(state, parents)

    def _with_birth(self, state: ShardState, parents: Mapping[str, ShardPosition]) -> ShardPosition:
        position = state.stored_form()
        if state.look is not None and state.look.crossing and position.witness_ms < self.risk_before_ms():
            position = state.position  # a time so near the horizon would look like a loss to a query that goes on there
        known = [parents[parent] for parent in state.shard.parents if parent in parents]
        if position.kind is Kind.ENDED and any(parent.kind is not Kind.ENDED for parent in known):
            position = state.position  # it was found empty, but what comes after it must wait for what came before it
        born_ms = max((parent.witness_ms for parent in known), default=0)
        if position.kind is Kind.BEGINNING:
            return position._replace(witness_ms=max(position.witness_ms, born_ms))
        if position.kind is Kind.SINCE and state.look is None and position.read_up_to is None:
            # Nothing of the shard is read: born after the time at which the query starts, it is wanted as a whole.
            return ShardPosition(Kind.BEGINNING, born_ms) if born_ms > position.witness_ms else position
        return position

    def startable(self) -> list[ShardState]:
        """Return the shards that may be read now: they are unread, and no parent is unread. A parent that is not known
        is trimmed.
        """
        ended = {shard_id for shard_id, state in self.states.items() if state.position.kind is Kind.ENDED}
        return [self.states[shard_id] for shard_id in self.lineage.ready(ended) if shard_id in self.states]

    def may_start(self, state: ShardState, finished: Set[str]) -> bool:
        """True when each parent is read to its end, or will be (``finished``)."""
        return state.position.kind is not Kind.ENDED and all(
            parent in finished or self.states[parent].position.kind is Kind.ENDED
            for parent in self.lineage.parents(state.shard_id)
        )

    async def children_of(self, ended: Iterable[ShardState]) -> list[ShardState]:
        """Return the children of shards that were found ended; the shards are listed again where children are not known
        yet.
        """
        ids = {state.shard_id for state in ended}
        if any(shard_id not in self.lineage or not self.lineage.children(shard_id) for shard_id in ids):
            await self._list()
            self._adopt_new()
        # Children are found by the names of their parents, which may be listed no longer.
        found = [one for one, shard in self.lineage.shards.items() if not ids.isdisjoint(shard.parents)]
        return [self.states[child] for child in found]

    def doubt_old(self) -> None:
        """Have those shards opened and checked again that the retention has caught up with since they were looked at: a
        batch took that long, or the machine slept. An iterator at a trimmed record would find nothing for ever.
        """
        for state in self.startable():
            if self.is_overtaken(state):
                self.doubt(state)

    def doubt(self, state: ShardState) -> None:
        """Have a shard opened and checked again."""
        state.position = state.stored_form()
        if state.look is not None and state.look.crossing:  # what lay behind there may be gone by now
            state.position = ShardPosition(Kind.SINCE, state.look.reached_ms, state.position.read_up_to)
        state.stored, state.look = True, None

    def is_overtaken(self, state: ShardState) -> bool:
        """True when a shard was looked at, and the retention may have taken since what comes next in it."""
        look = state.look
        if look is None or look.exhausted or state.stored:
            return False
        if look.crossing:
            return 0 < look.reached_ms < self.horizon_ms()
        position = state.stored_form()
        pinned = position.kind in (Kind.NEXT, Kind.AFTER) or look.beyond is Tail.TIP
        return pinned and position.witness_ms < self.horizon_ms()
