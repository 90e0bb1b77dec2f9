"""Plan what moving an application to other positions would write, lease by lease, before anything is written.

A plan is made of the rows as they are and of targets: where each shard is to go on. Targets are real positions: the
newest record, or a time, is looked up in each shard, and becomes the last record that lies before it. So a plan means
the same whenever it is applied, for whichever consumer reads the table.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.leases import Checkpoint
from shardway.core.leases.lease_key import LeaseKey
from shardway.core.leases.listing import Listing
from shardway.core.leases.row import NOTE, LeaseRow
from shardway.errors import NotFoundError, OptionError
from shardway.inspect.applications.stores import Store
from shardway.inspect.applications.tables import rows_of
from shardway.inspect.applications.views import ApplicationRows, application_view, only_stream
from shardway.inspect.lag.looks import of_stream
from shardway.inspect.lag.reports import FAILOVER_S
from shardway.inspect.moments import utc
from shardway.inspect.moves.places import AT_ONCE_MAX, import_targets, places_in, seek_targets
from shardway.inspect.moves.plans import Life, Move, Plan, Seen, Wishes
from shardway.waiting import side_by_side
from shardway.wiring import stream_name

if TYPE_CHECKING:
    from shardway.inspect.inspector import Inspector
    from shardway.inspect.moves.places import Places
    from shardway.inspect.moves.plans import Goal, Target
    from shardway.inspect.moves.positions import PositionsReport
    from shardway.model import StreamName


QUIET_FAILOVERS = 2
"""An owner whose counter stands still for this many failover times has stopped."""


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
    """Return the plan that has an application continue at another place. Nothing is written.

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
    """Return the plan that has an application continue where a document says. The plan makes the rows of an application
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

    async def plan_shard(shard_id: str) -> None:
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

    await side_by_side(plan_shard, [one for one in places.lineage.shards if one in targets], AT_ONCE_MAX)
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
