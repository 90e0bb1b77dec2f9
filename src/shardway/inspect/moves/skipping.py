"""Plan how an application passes over one record that is in its way, and make the dead letter that keeps the record.

The record is the first one behind the shard's checkpoint: a seek to any later place would pass over records that no
handler has seen. So the plan moves one lease by one record. Nothing is written here: `apply_plan` writes the plan, and
the caller writes the letter before that.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.leases import Checkpoint
from shardway.core.ledger.letter import Letter
from shardway.core.log.user_records import ShardView
from shardway.errors import InvalidArgumentError, NotFoundError, OptionError
from shardway.inspect.applications.stores import Store
from shardway.inspect.lag.looks import start_of
from shardway.inspect.lag.reports import FAILOVER_S
from shardway.inspect.moves.places import Places, places_in
from shardway.inspect.moves.planning import plan_of, rows_for, stream_of, watched
from shardway.inspect.moves.plans import Plan, Target, Wishes
from shardway.model import IteratorAt, Position
from shardway.runtime.feeds.opening import user_records

if TYPE_CHECKING:
    from shardway.core.leases import LeaseRow
    from shardway.inspect.inspector import Inspector
    from shardway.model import Record


PAGES_MAX = 10_000
"""The pages that are read for the next record: a page crosses some time of silence."""
ERROR_TYPE = "SkippedByOperator"
"""What a letter has in the place of the handler's error."""


class Skip(NamedTuple):
    """A record that is to be passed over, with the plan that does it and the dead letter that keeps it."""

    plan: Plan
    letter: Letter


async def plan_skip(
    inspector: Inspector,
    application: str,
    shard_id: str,
    at: Position | None = None,
    *,
    stream: str | None = None,
    store: Store | None = None,
    failover_s: float = FAILOVER_S,
) -> Skip:
    """Return what passes over the record behind a shard's checkpoint. ``at``: its position, so that no other record is
    passed over than the one that the caller knows; None: whichever it is.

    The owners are watched for twice their failover time. Raises NotFoundError; OptionError where the record at ``at``
    is not the one behind the checkpoint, or where there is none.
    """
    store = store or Store()
    look = await watched(inspector, application, store, failover_s)
    name = stream_of(look.second, application, store, stream)
    row = rows_for(look.second, name).get(shard_id)
    if row is None or row.ended:
        why = "it has no lease" if row is None else "it is read to its end"
        raise OptionError(f"{shard_id} of {name}: no record is in the way of {application}: {why}")
    places = await places_in(inspector, name)
    if shard_id not in places.lineage:
        raise OptionError(f"the stream {name} has no shard {shard_id}")
    record = await _next_record(places, shard_id, row)
    if record is None:
        raise OptionError(f"{shard_id} of {name}: no record waits behind the checkpoint {row.checkpoint.text}")
    found = Position(record.sequence_number, record.sub_sequence_number)
    if at is not None and at != found:
        raise OptionError(
            f"{shard_id} of {name}: the record behind the checkpoint is {position_text(found)}, and not "
            f"{position_text(at)}: a skip of {position_text(at)} would leave out records that no handler has settled"
        )
    target = Target(Checkpoint.at(found), f"behind the record {position_text(found)}, which is passed over")
    plan = await plan_of(places, application, store, look, Wishes({shard_id: target}))
    return Skip(plan, _letter_of(str(name), record, row, inspector.now_s))


def position_text(at: Position) -> str:
    """Return a position as the tools take it: ``495...`` or, inside of an aggregate, ``495.../3``."""
    return f"{at.sequence_number}/{at.sub_sequence_number}" if at.sub_sequence_number else str(at.sequence_number)


async def _next_record(places: Places, shard_id: str, row: LeaseRow) -> Record | None:
    """Return the first user record behind a checkpoint, which may lie inside of an aggregate."""
    done = row.checkpoint.position if row.checkpoint.is_position else None
    start = start_of(row.checkpoint)
    if start is None:
        raise OptionError(f"{shard_id}: its checkpoint is {row.checkpoint.text}, which names no record")
    if done is not None:
        with contextlib.suppress(InvalidArgumentError, NotFoundError):
            # The aggregate at the checkpoint may hold records that come behind it.
            found = await _first_record(places, shard_id, IteratorAt.at_sequence(done.sequence_number), done)
            if found is not None:
                return found
    return await _first_record(places, shard_id, start, done)


async def _first_record(places: Places, shard_id: str, at: IteratorAt, done: Position | None) -> Record | None:
    shard = places.lineage.shards[shard_id]
    view = ShardView(places.stream.short, shard_id, shard.first_hash_key, shard.last_hash_key)
    pages = places.inspector.pages(places.stream, shard_id, at, limit=1)
    async with contextlib.aclosing(pages):
        looked = 0
        async for page in pages:
            looked += 1
            records = await user_records(view, page.records, done=done)
            for place in range(len(records)):
                if done is None or records.position(place) > done:
                    return records[place]
            if page.millis_behind_latest == 0 or looked >= PAGES_MAX:
                break
    return None


def _letter_of(stream: str, record: Record, row: LeaseRow, now_s: float) -> Letter:
    return Letter(
        stream=stream,
        shard_id=record.shard_id,
        position=Position(record.sequence_number, record.sub_sequence_number),
        attempts=0,
        error_type=ERROR_TYPE,
        written_at=dt.datetime.fromtimestamp(now_s, dt.UTC),
        worker=row.actual_owner or "",
        arrived_at=record.approximate_arrival_timestamp,
        partition_key=record.partition_key,
        explicit_hash_key=record.explicit_hash_key,
        data=record.data,
    )
