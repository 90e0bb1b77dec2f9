"""Is an application keeping up? Decided shard by shard from looks at its lease over a window of time.

A single look tells where a lease stands, not whether it moves. What one look cannot tell is not known yet.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.inspect.moments import span_text
from penstock.inspect.values import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

OK_S = 60.0
"""A shard whose oldest unread record is younger than this keeps up."""
STALLED_S = 120.0
"""A checkpoint that stands still for so long while records wait is stalled: programs checkpoint each minute or so."""
LOOK_INTERVAL_S = 3.0
"""Between looks at leases: workers renew them as often."""
WINDOW_MIN_S = 5.0
"""Two looks less far apart show no trend."""
FAILOVER_S = 10.0
"""The KCL's default. An owner whose counter stands still for twice as long has stopped."""
STEADY = 0.05
"""A lag that changes by fewer seconds in a second is steady."""
HISTORY_S = 3600.0
"""Looks that are older tell nothing of now."""
LOOKS_MAX = 1_000
"""Of one lease, in a history: the newest count."""


class LagTimes(msgspec.Struct, frozen=True, kw_only=True):
    """For how long an application is looked at, and what counts as what."""

    window_s: float = 0.0
    """Between the first look and the last; 0: one look, which shows no trend."""
    interval_s: float = LOOK_INTERVAL_S
    ok_s: float = OK_S
    """A shard whose oldest unread record is younger keeps up."""
    stalled_s: float = STALLED_S
    """A checkpoint that stands still for so long while records wait is stalled."""
    history_s: float = HISTORY_S
    """Looks that were made longer ago do not count. More than the default is not kept."""


class State(StrEnum):
    """How a shard's consumer does, the worst last."""

    ENDED = "ended"
    OK = "ok"
    UNKNOWN = "not known yet"
    CATCHING_UP = "catching up"
    STEADY = "steady"
    FALLING_BEHIND = "falling behind"
    STALLED = "stalled"
    REWOUND = "rewound"
    STOPPED = "stopped"
    UNOWNED = "unowned"
    GONE = "gone"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A lease at one time."""

    at_s: float
    owner: str | None
    counter: int
    sequence_number: int | None
    """Of the checkpoint; None for one of the KCL's words."""
    sub_sequence_number: int = 0
    ended: bool = False
    next_owner: str | None = None
    """The worker that the lease is being handed to."""
    pending: str | None = None
    """A checkpoint that was prepared, and is not settled."""
    behind_s: float | None = None
    """Age of the oldest record that is not settled; 0 at the tip. None: it was not found out."""
    by_query: bool = False
    """A Spark query keeps the row up, so that no worker owns it."""


class Judged(NamedTuple):
    """A verdict, and what it follows from."""

    state: State
    why: str
    slope: float | None = None
    """Seconds of lag that come with each second; negative while it catches up."""
    left_s: float | None = None
    """While it catches up: until the tip, at this pace."""


class ShardLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far one lease is behind."""

    lease: str
    shard_id: str
    owner: str | None
    state: State
    why: str
    checkpoint: str
    sub_sequence_number: int
    behind_s: float | None
    """Age of the oldest record that is not settled, in seconds; 0 at the tip. None: not known."""
    exact: bool
    """False: ``behind_s`` is at most that, since the shard was silent there and the next record was not reached."""
    slope: float | None
    left_s: float | None
    loses_in_s: float | None
    """Until the retention removes the oldest unread record, if it is not read; None: nothing is waiting."""
    may_have_lost: bool
    """The checkpoint is older than the retention: records between may be gone."""


class LagReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far an application is behind on a stream."""

    schema: str = "penstock.lag/1"
    application: str
    stream: str
    taken_at: dt.datetime
    window_s: float
    """Between the first look and the last."""
    state: State
    """The worst of all shards."""
    behind_s: float | None
    """The longest of all shards; None: none is known."""
    loses_in_s: float | None
    """The soonest of all shards."""
    shards: list[ShardLag]
    without_lease: list[str]
    """Open shards that no lease is for."""
    missing: list[Missing]
    calls: dict[str, int]


def worst(states: Sequence[State]) -> State:
    """The worst of several; OK for none."""
    order = list(State)
    return max(states, key=order.index, default=State.OK)


def judge(
    looks: Sequence[Look], *, failover_s: float = FAILOVER_S, ok_s: float = OK_S, stalled_s: float = STALLED_S
) -> Judged:
    """The verdict on one lease by looks at it, the oldest first (at least one)."""
    first, last = looks[0], looks[-1]
    if last.ended:
        return Judged(State.ENDED, "the shard is read to its end")
    if (rewound := _rewound(looks)) is not None:
        return rewound
    if last.owner is None and not last.by_query:
        return Judged(State.UNOWNED, "no worker has the lease")
    still_s = _still_s(looks)
    if last.owner is not None and still_s > 2 * failover_s:
        return Judged(State.STOPPED, f"{last.owner} has not renewed the lease for {span_text(still_s)}")
    if last.behind_s is None:
        return Judged(State.UNKNOWN, "it is not known where the next record is")
    if last.behind_s <= ok_s:
        return Judged(State.OK, "at the tip" if last.behind_s == 0 else f"{span_text(last.behind_s)} behind")
    window_s = last.at_s - first.at_s
    if window_s < WINDOW_MIN_S:
        return Judged(State.UNKNOWN, "one look does not tell whether it moves: look again, or give --window")
    return _trend(looks, last.behind_s, window_s, stalled_s)


def _trend(looks: Sequence[Look], behind_s: float, window_s: float, stalled_s: float) -> Judged:
    slope = _slope(looks)
    first, last = looks[0], looks[-1]
    if _position(first) == _position(last):
        if window_s >= stalled_s:
            why = f"its checkpoint has not moved for {span_text(window_s)} while records wait"
            if last.by_query:
                why = f"the query does not run, or its batch lasts: {why}"
            else:
                why = f"the lease is renewed, but {why}"
            return Judged(State.STALLED, why, slope)
        return Judged(State.UNKNOWN, f"the checkpoint has not moved in {span_text(window_s)}: look for longer", slope)
    if slope is None or abs(slope) < STEADY:
        return Judged(State.STEADY, f"it stays {span_text(behind_s)} behind", slope)
    if slope > 0:
        return Judged(State.FALLING_BEHIND, f"the lag grows by {slope:.2f} s each second", slope)
    left_s = behind_s / -slope
    return Judged(State.CATCHING_UP, f"at this pace it is at the tip in {span_text(left_s)}", slope, left_s)


def _rewound(looks: Sequence[Look]) -> Judged | None:
    """A checkpoint that went down, and is not back where it was."""
    known = [(one.sequence_number, one.sub_sequence_number) for one in looks if one.sequence_number is not None]
    if not known:
        return None
    if looks[-1].sequence_number is None or known[-1] < max(known):
        return Judged(State.REWOUND, "the checkpoint went back: a program or an operator has moved it")
    return None


def _still_s(looks: Sequence[Look]) -> float:
    """For how long the owner and the counter were seen to be the same."""
    last = looks[-1]
    since_s = last.at_s
    for one in reversed(looks):
        if (one.owner, one.counter) != (last.owner, last.counter):
            break
        since_s = one.at_s
    return last.at_s - since_s


def _slope(looks: Sequence[Look]) -> float | None:
    """Seconds of lag per second, by least squares. None: too few looks tell the lag."""
    points = [(one.at_s - looks[0].at_s, one.behind_s) for one in looks if one.behind_s is not None]
    if len(points) < 2:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_b = sum(b for _, b in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return None if spread == 0 else sum((t - mean_t) * (b - mean_b) for t, b in points) / spread


def _position(look: Look) -> tuple[int | None, int]:
    return look.sequence_number, look.sub_sequence_number
