"""A query begins in each shard at its lease, or where the stream says if the lease does not say enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.leases.stream_mark import StreamMark, disowned_text
from shardway.core.sequence import just_before
from shardway.errors import InvalidArgumentError, OptionError
from shardway.spark.leases.lease_position import position_in_note, position_since, positions_without_lease
from shardway.spark.lookahead.losses import after_trimmed
from shardway.spark.lookahead.shard_probe import ShardProbe
from shardway.spark.lookahead.stream_calls import run_all
from shardway.spark.positions import Kind, ShardPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.lineage import Lineage
    from shardway.model import StartingPosition
    from shardway.spark.lookahead.losses import LossPolicy
    from shardway.spark.lookahead.stream_calls import StreamCalls


class LeaseStarts:
    """Finds the position of each shard from the leases, and from the stream where the leases do not say enough."""

    def __init__(
        self,
        calls: StreamCalls,
        rows: Mapping[str, LeaseRow],
        start: StartingPosition,
        losses: LossPolicy,
        *,
        stream: StreamMark,
        horizon_ms: int,
    ) -> None:
        """``stream``: the stream that is read. ``horizon_ms``: the oldest arrival time that its retention covers."""
        self._calls = calls
        self._rows = rows
        self._start = start
        self._losses = losses
        self._stream = stream
        self._horizon_ms = horizon_ms

    async def positions(self, lineage: Lineage) -> dict[str, ShardPosition]:
        """Return the position of every shard that is listed, and of those that have an unfinished lease and are gone.

        Raises OptionError for leases of another stream.
        """
        if foreign := [row for row in self._rows.values() if self._stream.disowns(row)]:
            raise OptionError(
                f"{disowned_text(foreign, self._stream)}: the query can't go on where they say. Give the query an "
                "applicationName of its own, or set continueFromLeases to false: then they begin again"
            )
        now_ms = self._calls.service_ms()
        held = {key: row.ended for key, row in self._rows.items()}
        listed = [row for key, row in self._rows.items() if key in lineage]
        positions = await run_all(self._position(row, now_ms) for row in listed)
        found = dict(zip([row.key for row in listed], positions, strict=True))
        gone = {
            key: ShardPosition(Kind.BEGINNING, 0)
            for key, row in self._rows.items()
            if key not in lineage and not row.ended
        }
        return gone | found | positions_without_lease(lineage, held, self._start, now_ms)

    async def _position(self, row: LeaseRow, now_ms: int) -> ShardPosition:
        try:
            position = position_in_note(row, self._stream.created_s)
            if position is not None:
                return position
            if row.ended:
                return ShardPosition(Kind.ENDED, 0)
            if row.checkpoint.is_position:
                return await self._find(row)
            word = row.checkpoint.text
            if word == "TRIM_HORIZON":
                return ShardPosition(Kind.BEGINNING, 0)
            return position_since(word, self._start, now_ms, row.read_until_ms)
        except (ValueError, InvalidArgumentError) as error:
            raise OptionError(
                f"stream {self._calls.stream}, shard {row.key}: the query can't go on where its lease says: {error}. "
                "Give the query an applicationName of its own, or set continueFromLeases to false"
            ) from error

    async def _find(self, row: LeaseRow) -> ShardPosition:
        """Return the position behind the record that the checkpoint names. The record is looked at: its time says what
        may be lost.
        """
        done = row.checkpoint.position
        asked = ShardPosition(Kind.NEXT, 0, done.sequence_number)
        look = await ShardProbe(self._calls, row.key).open(asked, by_time=False, records_max=1)
        first = look.first
        if first is not None and first.sequence_number == done.sequence_number:
            whole = done.sub_sequence_number >= first.rows - 1
            return ShardPosition(Kind.AFTER if whole else Kind.NEXT, first.arrival_ms, first.sequence_number)
        if first is not None and just_before(first.sequence_number) == done.sequence_number:
            return ShardPosition(Kind.NEXT, first.arrival_ms, first.sequence_number)
        until_ms = row.read_until_ms
        if until_ms is not None and until_ms >= self._horizon_ms:
            return ShardPosition(Kind.SINCE, until_ms, done.sequence_number)  # the shard was only silent
        self._losses.report(after_trimmed(row.key, done.sequence_number))
        if first is None:
            return ShardPosition(Kind.BEGINNING, 0)
        return ShardPosition(Kind.NEXT, first.arrival_ms, first.sequence_number)
