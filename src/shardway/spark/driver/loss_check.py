"""What was stored is compared with what the stream still holds, before anything is read: a shard's position when it is
opened, and the ranges of a batch.
"""

from __future__ import annotations

from shardway.errors import StalledError
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.lookahead.lookahead import Lookahead
from shardway.spark.lookahead.losses import Loss, LossPolicy, find_loss, is_at_risk
from shardway.spark.lookahead.shard_probe import ShardProbe
from shardway.spark.lookahead.stream_calls import StreamCalls, run_all
from shardway.spark.positions import SILENCE_MARGIN_MS, Kind, ShardPosition
from shardway.spark.ranges import ShardRange

CHECK_RECORDS = 1000
"""The most records of a page, where a range's first record is searched by the second of its arrival."""


class LossCheck:
    """Opens shards and checks ranges, and reports what was lost since they were stored."""

    def __init__(self, book: ShardBook, calls: StreamCalls, losses: LossPolicy) -> None:
        self._book = book
        self._calls = calls
        self._losses = losses

    async def open(self, state: ShardState, records_max: int) -> Lookahead:
        """Take the first look at a shard. A position from an offset is checked for loss as soon as that is possible:
        until then it stays ``stored``.
        """
        position = state.position
        if not state.stored:
            return await state.probe.open(position, by_time=False, records_max=records_max)
        state.look = None
        horizon_ms = self._book.horizon_ms()
        position = self._book.position_of(state)
        by_time = is_at_risk(position, horizon_ms)
        look = await self._open_at(state.probe, position, by_time, records_max)
        if not by_time and position.kind in (Kind.NEXT, Kind.AFTER) and _is_gone(position, look):
            # A trimmed sequence number looks like this (the retention was made shorter, say).
            by_time = True
            look = await self._open_at(state.probe, position, by_time, records_max)
        if by_time and look.crossing and not _is_passed(position, look):
            return look  # neither the record nor what follows it came yet
        loss = find_loss(state.shard_id, position, look, horizon_ms, by_time=by_time)
        if state.orphan:
            loss = Loss(state.shard_id, False, "the shard is new to this query, and none of its parents is known")
        if loss is not None:
            self._losses.report(loss)
            if look.first is None and position.kind in (Kind.NEXT, Kind.AFTER):
                state.position = ShardPosition(Kind.SINCE, position.witness_ms, position.read_up_to)
        state.stored = False
        if position.kind is Kind.AFTER and look.first and look.first.sequence_number == position.sequence_number:
            del look.records[0]
            if not look.records:
                look = await state.probe.extend(look, position, records_max)
        return look

    async def _open_at(self, probe: ShardProbe, position: ShardPosition, by_time: bool, records_max: int) -> Lookahead:
        if by_time and position.kind is Kind.AFTER:  # it begins with the record itself, to see if that is there
            position = ShardPosition(Kind.NEXT, position.witness_ms, position.sequence_number)
        return await probe.open(position, by_time=by_time, records_max=records_max)

    async def readable(self, ranges: list[ShardRange]) -> list[ShardRange]:
        """Return the ranges that still have something; report what they and the others have lost."""
        found = await run_all(self._is_readable(one) for one in ranges)
        return [one for one, is_readable in zip(ranges, found, strict=True) if is_readable]

    async def _is_readable(self, one: ShardRange) -> bool:
        if one.shard_id not in self._book.lineage:
            self._losses.report(Loss(one.shard_id, True, f"the shard is gone, with the range {one} unread"))
            return False
        if one.at_risk:
            position = ShardPosition(Kind.NEXT, one.first_arrival_s * 1000, one.first_sequence_number)
            look = await ShardProbe(self._calls, one.shard_id).open(position, by_time=True, records_max=CHECK_RECORDS)
            if look.crossing and not _is_passed(position, look):
                raise silence_error(one.shard_id)
            loss = find_loss(one.shard_id, position, look, self._book.horizon_ms(), by_time=True)
            if loss is not None:
                self._losses.report(loss)
        return True


def silence_error(shard_id: str) -> StalledError:
    """Return the error for a shard that answers with nothing but silence."""
    return StalledError(
        f"shard {shard_id}: the service gave only empty pages, with no progress towards the next record or the shard's "
        "tip: start the query again, and look at the service's state if this goes on"
    )


def _is_gone(position: ShardPosition, look: Lookahead) -> bool:
    """True when an iterator that was asked for at a position's number finds nothing: it stands, as it does at a trimmed
    number, or it has passed the time at which the record should have come.
    """
    return look.crossing and (look.stands or (position.kind is Kind.NEXT and _is_passed(position, look)))


def _is_passed(position: ShardPosition, look: Lookahead) -> bool:
    """True when a silence was crossed where a position's record should have come."""
    return look.crossing and look.reached_ms > position.witness_ms + SILENCE_MARGIN_MS
