"""Find the symptoms that the looks of a snapshot were too short for: that these are not there is not known.

Each function yields a sentence for each thing that the looks leave open, and nothing where they were long enough, or
where a Shardway worker tells in its own row what they do not show. These are pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.inspect.lag.reports import FAILOVER_S, OK_S, STALLED_S, State
from shardway.inspect.moments import counted, span_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.inspect.doctor.snapshots import Snapshot
    from shardway.inspect.lag.reports import Look, ShardLag


STANDS_S = 2 * FAILOVER_S
"""A handoff, a pending checkpoint or a counter that stands still for this time does not go on by itself."""
LOOKS_FOR_MOVES = 3
"""The looks that show two changes of owner."""


def stalled(snapshot: Snapshot) -> Iterable[str]:
    """Yield the shards whose checkpoint may stand still: the looks do not show it (SHW-D002)."""
    for one in _open_questions(snapshot):
        if one.unsettled_s is None:
            seen = "one look" if one.unmoved_s is None else f"{span_text(one.unmoved_s)} of looks"
            yield f"{one.shard_id}: {seen} without a move; a checkpoint that stands still takes {span_text(STALLED_S)}"


def falls_behind(snapshot: Snapshot) -> Iterable[str]:
    """Yield the shards whose lag may grow: the looks do not show it (SHW-D005)."""
    for one in _open_questions(snapshot):
        yield f"{one.shard_id}: its checkpoint was not seen to move, so there is no trend"


def stopped(snapshot: Snapshot) -> Iterable[str]:
    """Yield the owners that may renew no lease: the looks do not show it (SHW-D018)."""
    leases: dict[str, int] = {}
    for looks in snapshot.looks.values():
        last = looks[-1]
        if last.owner is None or last.ended or last.silent_s is not None:
            continue
        same = [one for one in looks if (one.owner, one.counter) == (last.owner, last.counter)]
        if len(same) == len(looks) and last.at_s - looks[0].at_s <= STANDS_S:
            leases[last.owner] = leases.get(last.owner, 0) + 1
    for owner, count in leases.items():
        yield f"{owner}: no renewal of {counted(count, 'lease')} was seen; to miss one takes {span_text(STANDS_S)}"


def lease_moves(snapshot: Snapshot) -> Iterable[str]:
    """Yield whether there were too few looks to see leases go from worker to worker (SHW-D032)."""
    if (looks := _looks(snapshot)) is not None and looks < LOOKS_FOR_MOVES:
        yield f"{looks} of {LOOKS_FOR_MOVES} looks"


def rewound(snapshot: Snapshot) -> Iterable[str]:
    """Yield whether there were too few looks to see a checkpoint go back (SHW-D041)."""
    if (looks := _looks(snapshot)) is not None and looks < 2:
        yield "one look"


def handoffs(snapshot: Snapshot) -> Iterable[str]:
    """Yield the leases that are being handed over, and were not looked at for long enough (SHW-D035)."""
    for key, looks in _short(snapshot):
        if looks[-1].next_owner is not None:
            yield f"{key}: it is being handed over; one that hangs shows after {span_text(STANDS_S)}"


def pending(snapshot: Snapshot) -> Iterable[str]:
    """Yield the leases with a prepared checkpoint that were not looked at for long enough (SHW-D036)."""
    for key, looks in _short(snapshot):
        if looks[-1].pending is not None:
            yield f"{key}: a checkpoint is prepared; one that hangs shows after {span_text(STANDS_S)}"


def _short(snapshot: Snapshot) -> Iterable[tuple[str, list[Look]]]:
    return ((key, looks) for key, looks in snapshot.looks.items() if looks[-1].at_s - looks[0].at_s < STANDS_S)


def _open_questions(snapshot: Snapshot) -> list[ShardLag]:
    """Return the shards that are behind, while the looks do not show whether they move."""
    return [
        one
        for one in (snapshot.lag.shards if snapshot.lag else ())
        if one.state in (State.UNKNOWN, State.FAR_BEHIND) and (one.behind_s or 0.0) > OK_S
    ]


def _looks(snapshot: Snapshot) -> int | None:
    """Return the number of looks at the lease that was looked at most often; None: no lease is left to be read."""
    return max((len(looks) for looks in snapshot.looks.values() if not looks[-1].ended), default=None)
