"""Translate a query's position in a shard into what a lease says, and back; a note in the row makes it exact.

A lease's checkpoint names the last record that is done. A query often knows only the next one: then the checkpoint is
the number just before it (`shardway.core.sequence.just_before`), which no record carries, and at which the service
begins with that next record. The note beside it is the position as the offset log has it, so that a new query goes on
just as one with the old Spark checkpoint directory would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.core.assignment.lease_births import births
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.mirror import NOTE, Mark
from shardway.core.leases.stream_mark import StreamMark
from shardway.core.sequence import just_before, shard_id_number
from shardway.model import Position, epoch_ms
from shardway.spark.positions import Kind, ShardPosition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.lineage import Lineage
    from shardway.model import StartingPosition
    from shardway.spark.offsets import StreamOffset

WHOLE_RECORD = 2**31 - 1
"""The sub-sequence number that stands for all user records of a Kinesis record, however many."""

_WORDS = {
    "TRIM_HORIZON": Checkpoint.TRIM_HORIZON,
    "LATEST": Checkpoint.LATEST,
    "AT_TIMESTAMP": Checkpoint.AT_TIMESTAMP,
}


def checkpoint_of(position: ShardPosition, unread: Checkpoint) -> Checkpoint:
    """Return what a lease says of a position. ``unread``: the word for a shard without a record that is read."""
    number = position.sequence_number
    if position.kind is Kind.ENDED:
        return Checkpoint.SHARD_END
    if number is None:
        return unread
    if position.kind is Kind.NEXT:
        return Checkpoint.at(Position(just_before(number)))
    return Checkpoint.at(Position(number, WHOLE_RECORD))


def marks_of(offset: StreamOffset, lineage: Lineage, start: StartingPosition) -> list[Mark]:
    """Return how far each shard is read at an offset. Shards that are listed no longer are left out."""
    marks, of_stream = [], StreamMark(offset.stream_arn, offset.created_s)
    for shard_id, position in offset.shards.items():
        shard = lineage.shards.get(shard_id)
        if shard is None:
            continue
        # A child is wanted from its beginning, wherever the query began.
        unread = Checkpoint.TRIM_HORIZON if lineage.parents(shard_id) else _WORDS[start.kind]
        marks.append(
            Mark(
                shard_id=shard_id,
                checkpoint=checkpoint_of(position, unread),
                note=note_of(position, offset.created_s),
                parents=frozenset(shard.parents),
                children=frozenset(lineage.children(shard_id)),
                hash_range=(shard.first_hash_key, shard.last_hash_key),
                read_until_ms=read_until_ms(position),
                of_stream=of_stream,
            )
        )
    return marks


def read_until_ms(position: ShardPosition) -> int | None:
    """Return the time up to which all that had arrived is surely read, in epoch milliseconds; None where it is not
    known.
    """
    if position.kind is Kind.ENDED or position.witness_ms == 0:
        return None
    return position.witness_ms - 1


def keys_of_trimmed_shards(keys: Collection[str], offset: StreamOffset, lineage: Lineage) -> list[str]:
    """Return the keys of the leases of shards that the retention has trimmed, and that the query has done with."""
    newest = max((number for one in lineage.shards if (number := shard_id_number(one)) is not None), default=-1)
    gone = []
    for key in keys:
        number, position = shard_id_number(key), offset.shards.get(key)
        trimmed = key not in lineage and number is not None and number < newest
        if trimmed and (position is None or position.kind is Kind.ENDED):
            gone.append(key)
    return gone


def note_of(position: ShardPosition, created_s: int) -> str:
    """Return the position as the offset log has it, behind the stream's creation time."""
    return f"{created_s} {position.encode()}"


def position_in_note(row: LeaseRow, created_s: int) -> ShardPosition | None:
    """Return the position in a row's note, if the row still says the same; None when another reader has moved the row
    since.

    Raises ValueError for the note of another stream, or of a former one of this name.
    """
    created, _, text = str(row.others.get(NOTE, "")).partition(" ")
    if not text:
        return None
    if created != str(created_s):
        raise ValueError("it was written for another stream, or for a former one of this name")
    try:
        position = ShardPosition.decode(text)
    except ValueError:
        return None
    if not (row.checkpoint.is_position or row.ended):  # words: nothing is read, and the note says since when
        return position if position.sequence_number is None and position.kind is not Kind.ENDED else None
    return position if checkpoint_of(position, Checkpoint.TRIM_HORIZON) == row.checkpoint else None


def positions_without_lease(
    lineage: Lineage, held: Mapping[str, bool], start: StartingPosition, now_ms: int
) -> dict[str, ShardPosition]:
    """Return where the shards stand that have no lease, beside those that have one.

    ``held`` says of each shard with a lease whether it has ended.
    """
    born = {birth.shard.shard_id: birth.start for birth in births(lineage, held, start)}
    passed = lineage.ancestors(one for one in (*born, *held) if one in lineage)
    found = {}
    for shard_id, shard in lineage.shards.items():
        if shard_id in held:
            continue
        word = born.get(shard_id)
        if shard_id in passed or (word == "LATEST" and shard.closed):
            found[shard_id] = ShardPosition(Kind.ENDED, 0)
        elif word in ("LATEST", "AT_TIMESTAMP"):
            found[shard_id] = position_since(word, start, now_ms)
        else:
            found[shard_id] = ShardPosition(Kind.BEGINNING, 0)
    return found


def position_since(word: str, start: StartingPosition, now_ms: int, read_until_ms: int | None = None) -> ShardPosition:
    """Return the position of a shard that begins at LATEST or AT_TIMESTAMP, or later where a reader has looked at it
    since.

    Raises ValueError where no time is known.
    """
    if read_until_ms is not None:
        return ShardPosition(Kind.SINCE, read_until_ms)
    if word == "LATEST":
        return ShardPosition(Kind.SINCE, now_ms)
    if start.timestamp is None:
        raise ValueError("it begins AT_TIMESTAMP, and the time is not given: give startingTimestamp")
    return ShardPosition(Kind.SINCE, epoch_ms(start.timestamp))
