"""The rows here follow a Spark query, which keeps its position in its own offset log and owns no lease.

The rows stay free. If a row named an owner that never renews it, the next reader would have to wait for that owner; and
a fleet of the KCL 2.x, which chooses its leader among the owners' names, could choose a leader that does nothing.

Every write asks for a row that is free and as it was read, and raises its counter. So it never costs an owner its
lease: of a worker's take and a write that is under way at the same time, one is refused. A checkpoint never goes back,
and neither does a counter, also where the row was deleted by hand or by a TTL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shardway.core.leases import writes
from shardway.core.leases.conditional_write import Done, Refused, Unknown, Write
from shardway.core.leases.row import CHECKPOINT_OWNER, CHILDREN, NOTE, OF_STREAM, OWNER, LeaseRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.stream_mark import StreamMark

__all__ = ["NOTE", "Create", "Mark", "MirroredRows", "Read", "Step", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The progress of one shard, as its lease is to say it."""

    shard_id: str
    checkpoint: Checkpoint
    note: str
    parents: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()
    hash_range: tuple[int, int]
    """The hash range of the shard; both bounds belong to it."""
    read_until_ms: int | None = None
    """The time (epoch milliseconds) up to which all that had arrived is read."""
    of_stream: StreamMark | None = None
    """The mark of the stream that the shard is of. Where a row carries the mark of another stream, the row is begun
    anew for this one: the query that wants that has made sure that it may.
    """


class Create(NamedTuple):
    """Add a row."""

    row: LeaseRow


class Read(NamedTuple):
    """Read a row again: it is not known what became of a write to it."""

    key: str


Step: TypeAlias = Create | Read | Write


def release(row: LeaseRow) -> Write:
    """Return a write that takes the owner's name off a row whose counter has not moved for the failover time."""
    write = writes.renew(row)
    return replace(write, changes=(*write.changes, (OWNER, None), (CHECKPOINT_OWNER, None)))


class MirroredRows:
    """The rows as they were read last, the marks that they are to reach, and the writes that are missing."""

    def __init__(self, rows: Iterable[LeaseRow]) -> None:
        """``rows`` are the leases of one stream, by shard id."""
        self._rows = {row.key: row for row in rows}
        self._known_rows = dict(self._rows)
        """The row with the highest counter of each lease: a worker's token was no higher."""
        self._marks: dict[str, Mark] = {}
        self._gone_keys: frozenset[str] = frozenset()
        self._notes = False
        self._doubtful: set[str] = set()

    @property
    def rows(self) -> Mapping[str, LeaseRow]:
        """The rows by shard id."""
        return self._rows

    def want(self, marks: Iterable[Mark], *, gone: Collection[str] = (), notes: bool = False) -> None:
        """Set the marks of all shards; the marks before count no more.

        ``gone`` are shards that the retention has trimmed: their rows are deleted. ``notes``: also write where only
        the note is another one; else a note goes with a checkpoint.
        """
        self._marks = {mark.shard_id: mark for mark in marks}
        self._known_rows = {
            key: row for key, row in self._known_rows.items() if key in self._marks or key in self._rows
        }
        self._gone_keys = frozenset(gone)
        self._notes = notes

    def steps(self) -> list[Step]:
        """Return the steps to do now, in any order; call it again when all of it was learnt, until nothing comes.

        A row says that its shard has ended only when the children have rows: else the next reader could find the shard
        ended, and no lease to go on with.
        """
        steps: list[Step] = []
        for key, mark in self._marks.items():
            if key in self._doubtful:
                steps.append(Read(key))
            elif (row := self._rows.get(key)) is None:
                steps.append(Create(self._new_row(mark)))
            elif row.actual_owner is None and row.counter < self._known_rows[key].counter and not row.ended:
                steps.append(writes.restore(self._as_known(row), row))
            elif row.actual_owner is None and _is_foreign(row, mark):
                steps.append(writes.begin_anew(row, _first_row(mark), note=mark.note))
            elif row.actual_owner is None and not (mark.checkpoint.is_end and self._lacks_children(mark)):
                write = self._write_towards(row, mark)
                steps += [] if write is None else [write]
        for key in (self._gone_keys | self._of_others()) - self._marks.keys():
            row = self._rows.get(key)
            if key in self._doubtful:
                steps.append(Read(key))
            elif row is not None and row.actual_owner is None:
                steps.append(writes.delete(row))
        return steps

    def learn(self, key: str, outcome: Done | Refused | Unknown) -> None:
        """Take the outcome of a step; of a read, ``Done`` with the row that was found."""
        if isinstance(outcome, Unknown):
            self._doubtful.add(key)
            return
        self._doubtful.discard(key)
        if outcome.row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = outcome.row
            if key not in self._known_rows or outcome.row.counter >= self._known_rows[key].counter:
                self._known_rows[key] = outcome.row

    def doubt(self, keys: Iterable[str]) -> None:
        """Have these rows read again."""
        self._doubtful.update(keys)

    def owned(self) -> dict[str, str]:
        """Return the owner of each shard whose lease has one by now: such rows are not written to."""
        return {
            key: owner
            for key in self._marks
            if (row := self._rows.get(key)) is not None and (owner := row.actual_owner) is not None
        }

    def behind(self, marks: Iterable[Mark] | None = None) -> list[str]:
        """Return the shards whose rows do not say yet what is wanted, or what these marks say."""
        return [
            mark.shard_id
            for mark in (list(self._marks.values()) if marks is None else marks)
            if (row := self._rows.get(mark.shard_id)) is None
            or _is_ahead(row, mark)
            or _is_foreign(row, mark)
            or mark.shard_id in self._doubtful
        ]

    def ahead(self, marks: Iterable[Mark]) -> list[str]:
        """Return the shards whose rows say more than these marks: another reader has read on."""
        return [
            mark.shard_id
            for mark in marks
            if (row := self._rows.get(mark.shard_id)) is not None
            and (row.checkpoint.is_position or row.ended)
            and row.checkpoint > mark.checkpoint
        ]

    def _of_others(self) -> set[str]:
        """Return the leases of another stream, of shards that this stream has not."""
        mark = next(iter(self._marks.values()), None)
        return set() if mark is None else {key for key, row in self._rows.items() if _is_foreign(row, mark)}

    def _new_row(self, mark: Mark) -> LeaseRow:
        """Return the row of a shard that has none; the counter of a row that was deleted goes on."""
        known, born = self._known_rows.get(mark.shard_id), _first_row(mark)
        return born if known is None else replace(born, counter=known.counter + 1)

    def _as_known(self, found: LeaseRow) -> LeaseRow:
        """Return a lease whose row was deleted and made anew by others, as it was, unless the new row says more."""
        known = self._known_rows[found.key]
        checkpoint = max(known.checkpoint, found.checkpoint) if found.checkpoint.is_position else known.checkpoint
        return replace(known, checkpoint=checkpoint, owner=None, checkpoint_owner=None, process=None)

    def _lacks_children(self, mark: Mark) -> bool:
        return any(child in self._marks and child not in self._rows for child in mark.children)

    def _write_towards(self, row: LeaseRow, mark: Mark) -> Write | None:
        if _is_ahead(row, mark):
            write = writes.checkpoint(row, mark.checkpoint, read_until_ms=mark.read_until_ms)
        elif self._wants_note(row, mark):
            write = writes.renew(row, read_until_ms=mark.read_until_ms)
        else:
            return None
        changes = (*write.changes, (NOTE, mark.note))
        if mark.of_stream is not None and row.of_stream is None:
            changes = (*changes, (OF_STREAM, mark.of_stream.text))
        if mark.checkpoint.is_end and mark.children:
            changes = (*changes, (CHILDREN, mark.children))
        return replace(write, changes=changes)

    def _wants_note(self, row: LeaseRow, mark: Mark) -> bool:
        """True where the row says the same, and not yet in the reader's words. One word of the KCL's is as good as
        another: it says that nothing is read, and which word it is was decided when the row was made.
        """
        words = not (row.checkpoint.is_position or row.ended or mark.checkpoint.is_position or mark.checkpoint.is_end)
        if row.checkpoint != mark.checkpoint and not words:
            return False
        note = row.others.get(NOTE)
        return note is None or (self._notes and note != mark.note)


def _is_foreign(row: LeaseRow, mark: Mark) -> bool:
    return mark.of_stream is not None and mark.of_stream.disowns(row)


def _is_ahead(row: LeaseRow, mark: Mark) -> bool:
    return mark.checkpoint > row.checkpoint and (mark.checkpoint.is_position or mark.checkpoint.is_end)


def _first_row(mark: Mark) -> LeaseRow:
    first, last = mark.hash_range
    return LeaseRow(
        key=mark.shard_id,
        checkpoint=mark.checkpoint,
        parents=mark.parents,
        children=mark.children if mark.checkpoint.is_end else frozenset(),
        first_hash_key=first,
        last_hash_key=last,
        read_until_ms=mark.read_until_ms,
        of_stream=None if mark.of_stream is None else mark.of_stream.text,
    )
