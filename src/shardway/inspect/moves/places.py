"""Look up the positions of a stream that a goal names."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shardway.core.leases import Checkpoint
from shardway.core.leases.lease_key import LeaseKey
from shardway.core.leases.stream_mark import CLOCKS_DIFFER_S
from shardway.core.lineage import Lineage
from shardway.core.log.user_records import ShardView
from shardway.core.sequence import second_of, shard_id_number, shard_number_of
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.errors import InvalidArgumentError, NotFoundError, OptionError
from shardway.inspect.lag.looks import start_of
from shardway.inspect.moments import utc
from shardway.inspect.moves.plans import Target, Wishes
from shardway.inspect.reads.paces import PAGE_RECORDS_MAX
from shardway.model import IteratorAt, Position
from shardway.runtime.feeds.opening import user_records
from shardway.waiting import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.aws.kinesis.shapes import WireRecord
    from shardway.inspect.inspector import Inspector
    from shardway.inspect.moves.plans import Goal
    from shardway.inspect.moves.positions import PositionsReport, PositionView
    from shardway.inspect.values import StreamView
    from shardway.model import ListedShard, StreamName


AT_ONCE_MAX = 48
WINDOWS_S = (2.0, 60.0, 1_800.0, 86_400.0, 366 * 86_400.0)
"""Seconds before a place in which the last record before it is looked for, one window after the other."""
PAGES_MAX = 10_000
"""The pages that one such look reads: a page crosses some time of silence."""


class Places:
    """Looks up real positions in the shards of a stream."""

    def __init__(
        self, inspector: Inspector, stream: StreamName, view: StreamView, shards: Sequence[ListedShard]
    ) -> None:
        self.lineage = Lineage(shards)
        self.view = view
        self.inspector = inspector
        self.stream = stream
        self.now_s = inspector.now_s
        self.horizon_s = self.now_s - view.retention_hours * 3600.0

    async def before_time(self, shard_id: str, epoch_s: float) -> Target:
        """Return the target from which reading goes on with the first record that arrived at this time or later. If the
        time is now, reading goes on behind the newest record.
        """
        if epoch_s > self.now_s - SERVICE_CLOCK_S:  # the service takes no time that is still to come
            if self.lineage.shards[shard_id].closed:
                return Target(Checkpoint.SHARD_END, "the shard has ended")
            return await self._behind_last(shard_id, None, self.now_s)
        first = await self._first_record(shard_id, IteratorAt.at_timestamp(epoch_s))
        if first is None and self.lineage.shards[shard_id].closed:
            return Target(Checkpoint.SHARD_END, "the shard has no record as new as that, and has ended")
        until_s = self.now_s if first is None else first.approximate_arrival_timestamp
        return await self._behind_last(shard_id, None if first is None else int(first.sequence_number), until_s)

    async def before_number(self, shard_id: str, number: int, sub: int) -> Target:
        """Return the target from which reading goes on with this record. Raises NotFoundError where the stream has it
        no more.
        """
        if sub:
            return Target(
                Checkpoint.at(Position(number, sub - 1)), f"the record before {number}/{sub} in its aggregate"
            )
        first = await self._first_record(shard_id, IteratorAt.at_sequence(number))
        if first is None or int(first.sequence_number) != number:
            raise NotFoundError(
                "ResourceNotFoundException",
                f"{shard_id} of {self.stream} has no record {number}: it is trimmed, or was never there",
                operation="GetRecords",
            )
        return await self._behind_last(shard_id, number, first.approximate_arrival_timestamp)

    async def _behind_last(self, shard_id: str, number: int | None, until_s: float) -> Target:
        """Return the target behind the last record before ``number``; None: behind the last record that there is."""
        for window_s in WINDOWS_S:
            last = await self._last_record(shard_id, until_s - window_s, number, until_s)
            if last is not None:
                at = await self._end_of(shard_id, last)
                return Target(
                    Checkpoint.at(at), f"behind the record of {utc(last.approximate_arrival_timestamp):%F %T}"
                )
            if until_s - window_s <= self.horizon_s:
                break
        return Target(Checkpoint.TRIM_HORIZON, "no older record of the shard is left")

    async def _last_record(
        self, shard_id: str, since_s: float, number: int | None, until_s: float
    ) -> WireRecord | None:
        last: WireRecord | None = None
        at = IteratorAt.at_timestamp(max(since_s, 0.0))
        pages = self.inspector.pages(self.stream, shard_id, at, limit=PAGE_RECORDS_MAX)
        async with contextlib.aclosing(pages):
            looked = 0
            async for page in pages:
                looked += 1
                for record in page.records:
                    if number is not None and int(record.sequence_number) >= number:
                        return last
                    last = record
                beyond = page.records and page.records[-1].approximate_arrival_timestamp > until_s
                if page.millis_behind_latest == 0 or looked >= PAGES_MAX or (number is None and beyond):
                    break
        return last

    async def _end_of(self, shard_id: str, record: WireRecord) -> Position:
        """Return the position of the last user record in a Kinesis record."""
        shard, number = self.lineage.shards[shard_id], int(record.sequence_number)
        view = ShardView(self.stream.short, shard_id, shard.first_hash_key, shard.last_hash_key)
        found = await user_records(view, [record])
        at = found.position(-1) if len(found) else Position(number)
        return at if at.sequence_number == number else Position(number)

    async def _first_record(self, shard_id: str, at: IteratorAt) -> WireRecord | None:
        pages = self.inspector.pages(self.stream, shard_id, at, limit=1)
        async with contextlib.aclosing(pages):
            looked = 0
            async for page in pages:
                looked += 1
                if page.records:
                    return page.records[0]
                if page.millis_behind_latest == 0 or looked >= PAGES_MAX:
                    break
        return None

    async def next_at(self, shard_id: str, checkpoint: Checkpoint) -> float | None:
        """Return when the record arrived that is read next behind a checkpoint; the time of the plan where none has
        arrived yet. None: not known.
        """
        at = start_of(checkpoint)
        if at is None or shard_id not in self.lineage:
            return None
        try:
            first = await self._first_record(shard_id, at)
        except (InvalidArgumentError, NotFoundError):
            return None
        return self.now_s if first is None else first.approximate_arrival_timestamp


async def seek_targets(places: Places, goal: Goal) -> dict[str, Target]:
    """Return where the shards are to go on, if all of them go to one place. Raises OptionError."""
    (to, sub), shard_ids = goal.at(places.now_s), goal.shards
    chosen = list(shard_ids) or list(places.lineage.shards)
    if unknown := set(chosen).difference(places.lineage.shards):
        raise OptionError(f"the stream {places.view.name} has no shard {min(unknown)}")
    found: dict[str, Target] = {}
    if to.sequence_number is not None:
        shard_id = _shard_of(places, to.sequence_number, shard_ids)
        if to.type == "AFTER_SEQUENCE_NUMBER":
            at = Checkpoint.at(Position(to.sequence_number, sub))
            return {shard_id: Target(at, f"behind the record {to.sequence_number}/{sub}")}
        return {shard_id: await places.before_number(shard_id, to.sequence_number, sub)}
    if to.type == "TRIM_HORIZON":
        return {one: Target(Checkpoint.TRIM_HORIZON, "the oldest record that is left") for one in chosen}
    epoch_s = places.now_s if to.timestamp_s is None else to.timestamp_s
    if epoch_s > places.now_s + SERVICE_CLOCK_S:
        raise OptionError(f"{goal.to!r} is still to come")

    async def look(shard_id: str) -> None:
        found[shard_id] = await places.before_time(shard_id, epoch_s)

    await side_by_side(look, chosen, AT_ONCE_MAX)
    return found


def _shard_of(places: Places, number: int, shard_ids: Sequence[str]) -> str:
    if len(shard_ids) == 1:
        return shard_ids[0]
    if shard_ids:
        raise OptionError("a sequence number is of one shard: name one")
    wanted = shard_number_of(number)
    found = [one for one in places.lineage.shards if wanted is not None and shard_id_number(one) == wanted]
    if len(found) != 1:
        raise OptionError(f"the sequence number {number} does not tell a shard of this stream: name it with --shard")
    return found[0]


async def import_targets(places: Places, positions: PositionsReport) -> Wishes:
    """Return where the shards are to go on by a document, and what is wrong in the document."""
    found: dict[str, Target] = {}
    stays: dict[str, str] = {}
    wrong = {key: f"the document leaves it out: {why}" for key, why in positions.left_out.items()}

    async def look(key: str) -> None:
        shard_id, view = LeaseKey.parse(key).shard_id, positions.shards[key]
        fault = _not_of(places, shard_id, view)
        if fault is not None:
            wrong[key] = fault
        elif shard_id not in places.lineage:
            stays[key] = "the stream lists the shard no more"
        elif (target := await _import_position(places, shard_id, view)) is None:
            wrong[key] = f"it names no position: {view.why}"
        else:
            found[shard_id] = target

    await side_by_side(look, list(positions.shards), AT_ONCE_MAX)
    for shard_id in places.lineage.shards.keys() - found.keys() - {LeaseKey.parse(one).shard_id for one in wrong}:
        stays[shard_id] = "the document has no position of it"
    return Wishes(found, stays, wrong)


def _not_of(places: Places, shard_id: str, view: PositionView) -> str | None:
    """Return why a position cannot be of this stream; None: it can."""
    if view.sequence_number is None:
        return None
    number = int(view.sequence_number)
    second, of_shard = second_of(number), shard_number_of(number)
    if second is not None and second < places.view.created_at.timestamp() - CLOCKS_DIFFER_S:
        return f"its record arrived at {utc(second):%F %T}, and the stream was made at {places.view.created_at:%F %T}"
    known = shard_id_number(shard_id)
    if of_shard is not None and known is not None and of_shard != known:
        return f"its sequence number is of the shard {of_shard}"
    if shard_id not in places.lineage and (second is None or second > places.horizon_s):
        return f"the stream {places.view.name} has no shard {shard_id}"
    return None


async def _import_position(places: Places, shard_id: str, view: PositionView) -> Target | None:
    number = None if view.sequence_number is None else int(view.sequence_number)
    if view.at == "after" and number is not None and view.sequence_number is not None:
        checkpoint = Checkpoint.parse(view.sequence_number, view.sub_sequence_number or 0)
        second = second_of(number)
        old = "; it is older than the retention, so records behind it may be gone"
        return Target(checkpoint, view.why + old * (second is not None and second < places.horizon_s), view.exact)
    if view.at == "at" and number is not None:
        return await places.before_number(shard_id, number, view.sub_sequence_number or 0)
    if view.at == "timestamp" and view.timestamp is not None:
        target = await places.before_time(shard_id, view.timestamp.timestamp())
        return target._replace(exact=False, why=f"{view.why}; {target.why}")
    words = {
        "ended": Checkpoint.SHARD_END,
        "trim_horizon": Checkpoint.TRIM_HORIZON,
        "latest": Checkpoint.LATEST,
        "timestamp": Checkpoint.AT_TIMESTAMP,
    }
    return Target(words[view.at], view.why, view.exact) if view.at in words else None


async def places_in(inspector: Inspector, stream: StreamName) -> Places:
    """Describe a stream, list its shards, and return its `Places`. Raises NotFoundError where there is no such
    stream.
    """
    view = await inspector.describe(stream)
    return Places(inspector, stream, view, await inspector.shards(stream))
