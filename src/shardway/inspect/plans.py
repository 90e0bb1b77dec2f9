"""Plan what moving an application to other positions would write, lease by lease, before anything is written.

A plan is made of the rows as they are and of targets: where each shard is to go on. Targets are real positions: the
newest record, or a time, is looked up in each shard, and becomes the last record that lies before it. So a plan means
the same whenever it is applied, for whichever consumer reads the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.leases import Checkpoint
from shardway.core.leases.row import CLOCKS_DIFFER_S, NOTE, LeaseKey, LeaseRow, Listing
from shardway.core.lineage import Lineage
from shardway.core.log.user_records import ShardView, opened
from shardway.core.sequence import second_of, shard_id_number, shard_number_of
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.errors import InvalidArgumentError, NotFoundError, OptionError
from shardway.inspect.applications import ApplicationRows, application_view, only_stream
from shardway.inspect.inspector import PAGE_RECORDS_MAX
from shardway.inspect.lag import FAILOVER_S, of_stream, start_of
from shardway.inspect.moments import HOW, place, utc
from shardway.inspect.tables import Store, rows_of
from shardway.inspect.values import Missing
from shardway.model import IteratorAt, Position
from shardway.tasks import side_by_side
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.aws.kinesis import WireRecord
    from shardway.inspect.inspector import Inspector
    from shardway.inspect.positions import PositionsReport, PositionView
    from shardway.inspect.values import StreamView
    from shardway.model import ListedShard, StreamName

AT_ONCE_MAX = 48
WINDOWS_S = (2.0, 60.0, 1_800.0, 86_400.0, 366 * 86_400.0)
"""Seconds before a place in which the last record before it is looked for, one window after the other."""
PAGES_MAX = 10_000
"""The pages that one such look reads: a page crosses some time of silence."""
QUIET_FAILOVERS = 2
"""An owner whose counter stands still for this many failover times has stopped."""


class Life(StrEnum):
    """Whether the owner of a lease is at work."""

    NONE = "no owner"
    SILENT = "silent owner"
    """The lease has an owner whose counter stood still for twice the failover time."""
    LIVE = "live owner"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A row as the plan saw it. A write to the row is made only if the row is still so."""

    counter: int
    owner: str | None
    checkpoint_owner: str | None
    process: str | None
    checkpoint: str
    sub_sequence_number: int
    pending: str | None
    """A checkpoint that was prepared and is not committed: a move drops this checkpoint."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one lease."""

    lease: str
    shard_id: str
    before: Seen | None
    """The row before the move. None: there is no row, and the move makes one."""
    checkpoint: str
    """A sequence number (all records up to it count as settled), TRIM_HORIZON, LATEST, AT_TIMESTAMP or SHARD_END."""
    sub_sequence_number: int = 0
    exact: bool = True
    """False: where the next worker begins depends on its options, or on the time at which it starts."""
    why: str
    next_before: dt.datetime | None
    """When the record arrived that would be read next without the move; None: there is none, or it is not known."""
    next_after: dt.datetime | None
    """When the record arrived that is read next after the move; None: there is none yet, the shard is done, or it is
    not known.
    """
    distance_s: float | None
    """Seconds from ``next_before`` to ``next_after``; the time of the plan counts where no record has arrived yet. Less
    than 0: records are read again; more: they are left out. None: not known."""
    life: Life
    by_shardway: bool = False
    """True: the owner is a Shardway worker, which can hand the lease over."""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    first_hash_key: str | None = None
    last_hash_key: str | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What moving an application would write. Parents come before their children."""

    schema: str = "shardway.plan/1"
    application: str
    store: str
    """``dynamodb``, ``sqlite`` or ``postgresql``."""
    stream: str
    stream_arn: str
    stream_created_at: dt.datetime
    taken_at: dt.datetime
    moves: list[Move]
    stays: dict[str, str]
    """Leases and shards that are left as they are, and why."""
    refused: dict[str, str]
    """The leases or shards for whose sake nothing of the plan can be written, and why."""
    failover_s: float
    """The failover time of workers whose rows do not have theirs."""
    missing: list[Missing]
    calls: dict[str, int]

    @property
    def live(self) -> list[Move]:
        """The moves of leases that a live worker has."""
        return [one for one in self.moves if one.life is Life.LIVE]

    @property
    def inexact(self) -> list[Move]:
        """The moves that do not say exactly where reading goes on."""
        return [one for one in self.moves if not one.exact]


class Goal(NamedTuple):
    """Where an application is to go on: one place for all shards, or for those that are named."""

    to: str
    """The place as people write it: ``2h ago``, ``2026-11-22T10:00Z``, ``latest``, ``trim-horizon``; or a record of one
    shard, ``seq:NUMBER`` (which is read first) or ``after:NUMBER``, with ``/INDEX`` inside of an aggregate.
    """
    shards: tuple[str, ...] = ()

    def at(self, now_s: float) -> tuple[IteratorAt, int]:
        """Return the place, and the index in an aggregate. ``now_s``: the service's time. Raises OptionError."""
        text, slash, index = self.to.partition("/")
        if slash and not (index.isascii() and index.isdigit() and ":" in text):
            raise OptionError(f"{self.to!r} is no place: {HOW}, the last two with /INDEX inside of an aggregate")
        return place(text, now_s), int(index or 0)


class Wishes(NamedTuple):
    """What a plan is to bring about."""

    targets: Mapping[str, Target]
    stays: Mapping[str, str] = {}
    refused: Mapping[str, str] = {}


class Target(NamedTuple):
    """Where a shard is to go on."""

    checkpoint: Checkpoint
    why: str
    exact: bool = True


# --- positions, looked up -------------------------------------------------------------------------


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
        first = await self._first(shard_id, IteratorAt.at_timestamp(epoch_s))
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
        first = await self._first(shard_id, IteratorAt.at_sequence(number))
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
            last = await self._last(shard_id, until_s - window_s, number, until_s)
            if last is not None:
                at = self._end_of(shard_id, last)
                return Target(
                    Checkpoint.at(at), f"behind the record of {utc(last.approximate_arrival_timestamp):%F %T}"
                )
            if until_s - window_s <= self.horizon_s:
                break
        return Target(Checkpoint.TRIM_HORIZON, "no older record of the shard is left")

    async def _last(self, shard_id: str, since_s: float, number: int | None, until_s: float) -> WireRecord | None:
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

    def _end_of(self, shard_id: str, record: WireRecord) -> Position:
        """Return the position of the last user record in a Kinesis record."""
        shard, number = self.lineage.shards[shard_id], int(record.sequence_number)
        view = ShardView(self.stream.short, shard_id, shard.first_hash_key, shard.last_hash_key)
        found = opened(view, [record]).records
        at = found.position(-1) if len(found) else Position(number)
        return at if at.sequence_number == number else Position(number)

    async def _first(self, shard_id: str, at: IteratorAt) -> WireRecord | None:
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
            first = await self._first(shard_id, at)
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
        elif (target := await _imported(places, shard_id, view)) is None:
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


async def _imported(places: Places, shard_id: str, view: PositionView) -> Target | None:
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


# --- the plan -------------------------------------------------------------------------------------


class Look(NamedTuple):
    """The rows of an application, looked at twice."""

    first: ApplicationRows
    second: ApplicationRows
    """The rows after twice the failover time; the same as the first where no lease has an owner."""

    failover_s: float
    """The failover time of workers whose rows do not have theirs."""

    def life_of(self, row: LeaseRow) -> Life:
        """Return whether the owner is at work. The lease's counter shows it, or the row that a Shardway worker has of
        its own.
        """
        owner = row.actual_owner
        if owner is None or row.ended:
            return Life.NONE
        before = {one.key: one for one in self.first.listing.rows}.get(row.key)
        workers = {one.worker_id: one.counter for one in self.first.workers}
        now = {one.worker_id: one.counter for one in self.second.workers}
        moved = before is None or (before.counter, before.actual_owner) != (row.counter, owner)
        if moved or (owner in now and workers.get(owner) != now[owner]):
            return Life.LIVE
        return Life.SILENT


def failover_of(rows: ApplicationRows, owner: str | None, otherwise_s: float) -> float:
    """Return the failover time in the owner's row, or ``otherwise_s`` where there is none."""
    return next((one.failover_s for one in rows.workers if one.worker_id == owner), otherwise_s)


def quiet_of(rows: ApplicationRows, failover_s: float) -> float:
    """Return for how many seconds owners have to be watched; 0 where no lease has an owner."""
    owners = {row.actual_owner for row in rows.listing.rows if not row.ended and row.actual_owner is not None}
    return max((QUIET_FAILOVERS * failover_of(rows, one, failover_s) for one in owners), default=0.0)


def rows_for(rows: ApplicationRows, stream: StreamName) -> dict[str, LeaseRow]:
    """Return the leases of a stream, by their shards."""
    return {LeaseKey.parse(row.key).shard_id: row for row in rows.listing.rows if of_stream(row, stream)}


async def plan_seek(
    inspector: Inspector,
    application: str,
    goal: Goal,
    *,
    stream: str | None = None,
    store: Store | None = None,
    failover_s: float = FAILOVER_S,
) -> Plan:
    """Return the plan by which an application goes on at another place. Nothing is written.

    The owners are watched for twice their failover time, which is ``failover_s`` where their rows do not have it.
    Raises NotFoundError, OptionError.
    """
    goal.at(0.0)  # a text that is no place is refused before any call is made
    store = store or Store()
    look = await watched(inspector, application, store, failover_s)
    name = stream_of(look.second, application, store, stream)
    places = await places_in(inspector, name)
    return await plan_of(places, application, store, look, Wishes(await seek_targets(places, goal)))


async def plan_import(
    inspector: Inspector,
    application: str,
    positions: PositionsReport,
    *,
    stream: str | None = None,
    store: Store | None = None,
    failover_s: float = FAILOVER_S,
) -> Plan:
    """Return the plan by which an application goes on where a document says. The plan makes the rows of an application
    that has none yet. Nothing is written. Raises NotFoundError, OptionError.
    """
    store = store or Store()
    try:
        look = await watched(inspector, application, store, failover_s)
    except NotFoundError:
        look = Look(NO_ROWS, NO_ROWS, failover_s)
    if stream is None and not look.second.listing.rows and len(positions.streams) == 1:
        stream = positions.streams[0]
    name = stream_of(look.second, application, store, stream)
    places = await places_in(inspector, name)
    chosen = {
        key: at for key, at in positions.shards.items() if (LeaseKey.parse(key).stream or name).name == name.short
    }
    wishes = await import_targets(places, msgspec.structs.replace(positions, shards=chosen))
    return await plan_of(places, application, store, look, wishes)


NO_ROWS = ApplicationRows(Listing([], {}, {}))


def stream_of(rows: ApplicationRows, application: str, store: Store, stream: str | None) -> StreamName:
    """Return the stream that was given, or else the one that the rows name. Raises OptionError."""
    if stream is not None:
        return stream_name(stream)
    return stream_name(only_stream(application_view(application, store.kind, rows)))


async def places_in(inspector: Inspector, stream: StreamName) -> Places:
    """Describe a stream, list its shards, and return its `Places`. Raises NotFoundError where there is no such
    stream.
    """
    view = await inspector.describe(stream)
    return Places(inspector, stream, view, await inspector.shards(stream))


async def watched(inspector: Inspector, application: str, store: Store, failover_s: float) -> Look:
    """Read the rows, wait long enough to see whether their owners live, and read the rows again. Raises OptionError
    where the credentials do not show the rows: a plan must not take them for rows that are not there.
    """
    first = await _listed_rows(application, store, inspector)
    if not (wait_s := quiet_of(first, failover_s)):
        return Look(first, first, failover_s)
    await asyncio.sleep(wait_s)
    return Look(first, await _listed_rows(application, store, inspector), failover_s)


async def _listed_rows(application: str, store: Store, inspector: Inspector) -> ApplicationRows:
    rows = await rows_of(application, store, inspector)
    if not rows.listed:
        raise OptionError(
            f"{application} shows no leases: {'; '.join(dict.fromkeys(one.told for one in inspector.missing))}"
        )
    return rows


async def plan_of(places: Places, application: str, store: Store, look: Look, wishes: Wishes) -> Plan:
    """Compare each lease with its target, and return the plan. A row that cannot be read decides nothing: it stands
    under ``refused``.
    """
    targets, inspector, stream = wishes.targets, places.inspector, places.stream
    rows, left = rows_for(look.second, stream), dict(wishes.stays)
    unreadable = look.second.listing.unreadable.items()
    wrong = {**wishes.refused, **{key: why for key, why in unreadable if LeaseKey.parse(key).shard_id in targets}}
    moves: dict[str, Move] = {}
    shardway = {one.worker_id for one in look.second.workers}
    prefix = next((one.stream for one in map(LeaseKey.parse, (row.key for row in rows.values())) if one.stream), None)

    async def beside(shard_id: str) -> None:
        target, row = targets[shard_id], rows.get(shard_id)
        key = LeaseKey(shard_id, prefix).text if row is None else row.key
        if key in wrong:
            return
        if row is not None and NOTE in row.others:
            wrong[key] = "a Spark query keeps its position in the row: it goes by its own checkpoint directory"
            return
        now = Checkpoint.TRIM_HORIZON if row is None else row.checkpoint
        if (row is None and target.checkpoint.is_end) or (row is not None and now == target.checkpoint):
            left[key] = "it is there already"
            return
        moves[shard_id] = await _move(places, key, shard_id, row, target, look, shardway)

    await side_by_side(beside, [one for one in places.lineage.shards if one in targets], AT_ONCE_MAX)
    return Plan(
        application=application,
        store=store.kind,
        stream=stream.short,
        stream_arn=places.view.arn,
        stream_created_at=places.view.created_at,
        taken_at=utc(places.now_s),
        moves=[moves[one] for one in places.lineage.shards if one in moves],
        stays=dict(sorted(left.items())),
        refused=dict(sorted(wrong.items())),
        failover_s=look.failover_s,
        missing=list(inspector.missing),
        calls=inspector.calls,
    )


async def _move(
    places: Places, key: str, shard_id: str, row: LeaseRow | None, target: Target, look: Look, shardway: set[str]
) -> Move:
    shard = places.lineage.shards[shard_id]
    now_s = places.now_s
    before_s, after_s = await asyncio.gather(
        _next_at(places, shard_id, None if row is None else row.checkpoint),
        _next_at(places, shard_id, target.checkpoint),
    )
    known = before_s is not None and after_s is not None
    return Move(
        lease=key,
        shard_id=shard_id,
        before=None if row is None else seen(row),
        checkpoint=target.checkpoint.text,
        sub_sequence_number=target.checkpoint.sub_sequence_number,
        exact=target.exact,
        why=target.why,
        next_before=None if before_s is None or before_s >= now_s else utc(before_s),
        next_after=None if after_s is None or after_s >= now_s else utc(after_s),
        distance_s=after_s - before_s if known and after_s is not None and before_s is not None else None,
        life=Life.NONE if row is None else look.life_of(row),
        by_shardway=row is not None and row.actual_owner in shardway,
        parents=shard.parents,
        children=places.lineage.children(shard_id),
        first_hash_key=str(shard.first_hash_key),
        last_hash_key=str(shard.last_hash_key),
    )


async def _next_at(places: Places, shard_id: str, checkpoint: Checkpoint | None) -> float | None:
    if checkpoint is None:
        return None
    return places.now_s if checkpoint.is_end else await places.next_at(shard_id, checkpoint)


def seen(row: LeaseRow) -> Seen:
    """Return the values of a row that a write to it depends on."""
    return Seen(
        counter=row.counter,
        owner=row.owner,
        checkpoint_owner=row.checkpoint_owner,
        process=row.process,
        checkpoint=row.checkpoint.text,
        sub_sequence_number=row.checkpoint.sub_sequence_number,
        pending=None if row.pending is None else row.pending.text,
    )
