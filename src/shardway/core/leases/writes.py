"""Each write to a lease that an owner, another worker or an operator makes, as a value (`conditional_write`).

The writes are the KCL's, with conditions that are at least as strict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.leases.conditional_write import Kind, Write
from shardway.core.leases.row import (
    CHECKPOINT,
    CHECKPOINT_OWNER,
    CHILDREN,
    COUNTER,
    FIRST_HASH_KEY,
    KEY,
    LAST_HASH_KEY,
    NOTE,
    OF_STREAM,
    OWNER,
    PARENTS,
    PENDING,
    PENDING_STATE,
    PENDING_SUB,
    PROCESS,
    READ_UNTIL,
    SUB,
    SWITCHES,
    THROUGHPUT,
    THROUGHPUT_DIGITS,
    lease_row,
    pending_attributes,
)
from shardway.core.sequence import second_of

if TYPE_CHECKING:
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.row import LeaseRow

_PROGRESS = frozenset({CHECKPOINT, SUB, PENDING, PENDING_SUB, PENDING_STATE})


def take(row: LeaseRow, worker: str, process: str | None = None, start_ms: int | None = None) -> Write:
    """Return a write that makes the worker the owner, whichever worker had the lease; a handoff under way is dropped.
    ``process`` is the process of the worker's name. Without it two processes of one name would each take the other's
    write for their own. ``start_ms`` (epoch milliseconds) is the time at which the lease begins, where the row lacks
    it.
    """
    switched = row.actual_owner is not None and row.actual_owner != worker
    return _owners(
        row,
        Kind.TAKE,
        {OWNER: worker, CHECKPOINT_OWNER: None, **_of_process(row, process)}
        | ({SWITCHES: row.switches + 1} if switched else {})
        | ({READ_UNTIL: start_ms} if start_ms is not None and row.lacks_time else {}),
    )


def renew(row: LeaseRow, throughput_kib_s: float | None = None, read_until_ms: int | None = None) -> Write:
    """Return a write that shows that the owner lives. Measurements are stored with it: for a KCL leader, for balancing,
    for a later owner.
    """
    return _owners(row, Kind.RENEW, _measures(row, throughput_kib_s, read_until_ms))


def checkpoint(
    row: LeaseRow, to: Checkpoint, throughput_kib_s: float | None = None, read_until_ms: int | None = None
) -> Write:
    """Return a write that stores progress, which is a renewal too. Raises ValueError for a step back."""
    changes = _checkpoint_changes(row, to) | _measures(row, throughput_kib_s, read_until_ms)
    return _owners(row, Kind.CHECKPOINT, changes)


def prepare(row: LeaseRow, to: Checkpoint, state: bytes | None = None) -> Write:
    """Return a write of a checkpoint that `checkpoint` commits later, with bytes of the application's."""
    _forward(row, to)
    return _owners(row, Kind.PREPARE, pending_attributes(to, state))


def give(
    row: LeaseRow,
    worker: str,
    to: Checkpoint | None = None,
    process: str | None = None,
    read_until_ms: int | None = None,
) -> Write:
    """Return a write that hands the lease to another worker, with the last checkpoint. Without it what is pending
    stays. ``process`` is the process of the worker's name that is to have it, as its row shows it.
    """
    changes = ({} if to is None else _checkpoint_changes(row, to)) | _measures(row, None, read_until_ms)
    if worker != row.actual_owner:
        changes[SWITCHES] = 1 if to is not None else row.switches + 1
    return _owners(row, Kind.GIVE, {**changes, OWNER: worker, CHECKPOINT_OWNER: None, **_of_process(row, process)})


def restore(known: LeaseRow, found: LeaseRow | None, lost: Write | None = None) -> Write:
    """Return a write that restores a row that was deleted under its owner, as the owner knows it, with a higher
    counter. ``found``: the row that was made in its place, and has no owner; None: there is none, and the write is a
    `create` (`creates`). ``lost``: the owner's last write, where it may have been applied before the row was deleted.
    Then its counter has been seen, and its checkpoint must not go back. The worker to which it gave the lease is not
    kept.
    """
    changes = {name: value for name, value in _known_attributes(known, lost).items() if name not in known.others}
    if found is None:
        stored = tuple((name, value) for name, value in changes.items() if value is not None)
        return Write(Kind.RESTORE, known.key, ((KEY, None),), stored)
    del changes[KEY]
    changes.setdefault(READ_UNTIL, None)  # The time of the row that was made in its place is not its own.
    return Write(Kind.RESTORE, known.key, _as_seen(found), tuple(changes.items()))


def as_known(known: LeaseRow, lost: Write | None = None) -> LeaseRow:
    """Return the row that `restore` would write, without an owner: for a row that is to be made where one is
    missing.
    """
    of_owner = (OWNER, CHECKPOINT_OWNER, PROCESS)
    after = {
        name: value
        for name, value in _known_attributes(known, lost).items()
        if value is not None and name not in of_owner
    }
    return lease_row(after)


def _known_attributes(known: LeaseRow, lost: Write | None) -> dict[str, Any]:
    may_be = {} if lost is None else dict(lost.changes)
    progress = {name: value for name, value in may_be.items() if name in _PROGRESS}
    return {**known.attributes(), **progress, COUNTER: max(known.counter, may_be.get(COUNTER, 0)) + 1}


def creates(write: Write) -> LeaseRow | None:
    """Return the row that a write adds, where there is none; None for a write to a row that is there."""
    return lease_row(dict(write.changes)) if write.expects == ((KEY, None),) else None


def free(row: LeaseRow, to: Checkpoint | None = None, read_until_ms: int | None = None) -> Write:
    """Return a write that lets the lease go, with the last checkpoint. If a KCL leader has named the next owner, that
    worker has it then.
    """
    changes = ({} if to is None else _checkpoint_changes(row, to)) | _measures(row, None, read_until_ms)
    if row.handoff_to is None:
        changes[OWNER] = None
    return _owners(row, Kind.FREE, {**changes, CHECKPOINT_OWNER: None})


def ask_handoff(row: LeaseRow, worker: str) -> Write:
    """Return a write that asks for a handoff as the KCL 3.x's leader does: it names the next owner, while the present
    one goes on.
    """
    if row.owner is None or row.checkpoint_owner is not None:
        raise ValueError(f"the lease {row.key} has no owner, or is being handed over")
    expects = ((OWNER, row.owner), (CHECKPOINT_OWNER, None))
    return Write(Kind.ASK_HANDOFF, row.key, expects, ((OWNER, worker), (CHECKPOINT_OWNER, row.owner)))


def begin_anew(row: LeaseRow, born: LeaseRow, *, note: str | None = None) -> Write:
    """Return a write that makes of a lease of another stream a lease of this stream, as ``born`` has it. The counter
    goes on, so that tokens grow. ``note`` is a Spark query's.
    """
    lost = dict.fromkeys(row.attributes().keys() - row.others.keys() - {KEY, COUNTER})
    changes = {**lost, **born.attributes(), COUNTER: row.counter + 1}
    if note is not None or NOTE in row.others:
        changes[NOTE] = note
    del changes[KEY]
    expects = (*_as_seen(row), (OF_STREAM, row.of_stream))
    return Write(Kind.BEGIN_ANEW, row.key, expects, tuple(changes.items()))


def move(row: LeaseRow, to: Checkpoint, *, children: frozenset[str] = frozenset()) -> Write:
    """Return the write of an operator that moves the lease forward or back, without an owner. A checkpoint that was
    prepared is dropped, and so is the time up to which all was read. ``children`` are those of a shard that counts as
    ended then.
    """
    changes: dict[str, Any] = {
        COUNTER: row.counter + 1,
        OWNER: None,
        CHECKPOINT_OWNER: None,
        CHECKPOINT: to.text,
        SUB: to.sub_sequence_number,
        SWITCHES: 0,
        READ_UNTIL: None,
        **pending_attributes(None, None),
        **_of_process(row, None),
    }
    if to.is_end and children:
        changes[CHILDREN] = children
    return Write(Kind.MOVE, row.key, (*_as_seen(row), (CHECKPOINT, row.checkpoint.text)), tuple(changes.items()))


def mark_stream(row: LeaseRow, of_stream: str) -> Write:
    """Return a write that names the stream of a lease, unless it is named. No counter moves."""
    return Write(Kind.METADATA, row.key, ((KEY, row.key), (OF_STREAM, None)), ((OF_STREAM, of_stream),))


def metadata(
    key: str,
    *,
    parents: frozenset[str] | None = None,
    children: frozenset[str] | None = None,
    hash_range: tuple[int, int] | None = None,
) -> Write:
    """Return a write that fills in what is known of the shard by now. No counter moves, so it does not disturb the
    lease's owner.
    """
    changes: dict[str, Any] = {}
    if parents:
        changes[PARENTS] = parents
    if children:
        changes[CHILDREN] = children
    if hash_range is not None:
        changes |= {FIRST_HASH_KEY: str(hash_range[0]), LAST_HASH_KEY: str(hash_range[1])}
    if not changes:
        raise ValueError("a write of metadata needs parents, children or a hash range")
    return Write(Kind.METADATA, key, ((KEY, key),), tuple(changes.items()))


def delete(row: LeaseRow) -> Write:
    """Return a write that removes the row as it was read: the row stays when another write has changed it since."""
    return Write(Kind.DELETE, row.key, _as_seen(row), ())


def _as_seen(row: LeaseRow) -> tuple[tuple[str, Any], ...]:
    seen = ((COUNTER, row.counter), (OWNER, row.owner), (CHECKPOINT_OWNER, row.checkpoint_owner))
    return seen if row.process is None else (*seen, (PROCESS, row.process))


def _of_process(row: LeaseRow, process: str | None) -> dict[str, Any]:
    return {} if process is None and row.process is None else {PROCESS: process}


def _owners(row: LeaseRow, kind: Kind, changes: dict[str, Any]) -> Write:
    if row.checkpoint_owner is not None and row.checkpoint_owner == row.owner:
        changes = {CHECKPOINT_OWNER: None, **changes}  # The owner hands over to itself: it keeps the lease.
    return Write(kind, row.key, _as_seen(row), ((COUNTER, row.counter + 1), *changes.items()))


def _measures(row: LeaseRow, throughput_kib_s: float | None, read_until_ms: int | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if throughput_kib_s is not None:
        changes[THROUGHPUT] = round(throughput_kib_s, THROUGHPUT_DIGITS)
    if read_until_ms is not None and (row.read_until_ms is None or read_until_ms > row.read_until_ms):
        changes[READ_UNTIL] = read_until_ms
    return changes


def _checkpoint_changes(row: LeaseRow, to: Checkpoint) -> dict[str, Any]:
    _forward(row, to)
    changes = {CHECKPOINT: to.text, SUB: to.sub_sequence_number, **pending_attributes(None, None), SWITCHES: 0}
    if row.checkpoint.is_timed and row.read_until_ms is not None and to.is_position:
        second = second_of(to.position.sequence_number)
        if second is not None and (second + 1) * 1000 <= row.read_until_ms:
            # The program has sought a place before the start: what lies between is not settled.
            changes[READ_UNTIL] = None
    return changes


def _forward(row: LeaseRow, to: Checkpoint) -> None:
    if to < row.checkpoint:
        raise ValueError(f"the checkpoint of {row.key} would go back: from {row.checkpoint.text} to {to.text}")
