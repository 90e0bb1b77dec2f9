"""Judge the looks at a shard: whether its reader keeps up, falls behind, stands still or stopped, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardway.inspect.lag.reports import FAILOVER_S, OK_S, STALLED_S, STEADY, WINDOW_MIN_S, Judged, State
from shardway.inspect.moments import span_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.inspect.lag.reports import LagReport, Look, ShardLag


def urgency(one: ShardLag) -> tuple[int, float, str]:
    """Return the key that sorts shards, the worst first. Those that are well keep their order from look to look."""
    is_well = one.state in (State.OK, State.ENDED)
    return -list(State).index(one.state), 0.0 if is_well else -(one.behind_s or 0.0), one.shard_id


def report_urgency(report: LagReport) -> tuple[int, float, str]:
    """Return the key that sorts applications, the worst first."""
    return -list(State).index(report.state), -(report.behind_s or 0.0), report.application


def judge(
    looks: Sequence[Look], *, failover_s: float = FAILOVER_S, ok_s: float = OK_S, stalled_s: float = STALLED_S
) -> Judged:
    """Return the verdict on one lease by looks at it, the oldest first (at least one)."""
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
    if last.owner is not None and (last.silent_s or 0.0) > 2 * failover_s and not _has_renewals(looks, 2 * failover_s):
        return Judged(State.STOPPED, f"{last.owner} has not written its own row for {span_text(last.silent_s or 0.0)}")
    if last.behind_s is None:
        return Judged(State.UNKNOWN, "it is not known where the next record is")
    if last.behind_s <= ok_s:
        return Judged(State.OK, "at the tip" if last.behind_s == 0 else f"{span_text(last.behind_s)} behind")
    if (last.unsettled_s or 0.0) >= stalled_s:
        why = f"its oldest record is not settled for {span_text(last.unsettled_s or 0.0)}, as its worker tells"
        return Judged(State.STALLED, why)
    window_s = last.at_s - first.at_s
    if window_s < WINDOW_MIN_S:
        return _unmoved_verdict(
            last, stalled_s, "one look does not tell whether it moves: look again, or give --window"
        )
    return _trend(looks, last.behind_s, window_s, stalled_s)


def _trend(looks: Sequence[Look], behind_s: float, window_s: float, stalled_s: float) -> Judged:
    slope = _slope(looks)
    first, last = looks[0], looks[-1]
    if _position(first) == _position(last):
        if not last.exact:  # a shard that was silent for long: to say that records wait there would be a guess
            return Judged(State.UNKNOWN, "no record was found behind the checkpoint yet: perhaps none waits")
        if window_s >= stalled_s:
            why = f"its checkpoint has not moved for {span_text(window_s)} while records wait"
            if last.by_query:
                why = f"the query does not run, or its batch lasts: {why}"
            else:
                why = f"the lease is renewed, but {why}"
            return Judged(State.STALLED, why, slope)
        return _unmoved_verdict(
            last, stalled_s, f"the checkpoint has not moved in {span_text(window_s)}: look for longer"
        )
    if slope is None or abs(slope) < STEADY:
        return Judged(State.STEADY, f"it stays {span_text(behind_s)} behind", slope)
    if slope > 0:
        return Judged(State.FALLING_BEHIND, f"the lag grows by {slope:.2f} s each second", slope)
    left_s = behind_s / -slope
    return Judged(State.CATCHING_UP, f"at this pace it is at the tip in {span_text(left_s)}", slope, left_s)


def _unmoved_verdict(last: Look, stalled_s: float, why: str) -> Judged:
    """Return the verdict on a shard that is behind, while the looks do not show that it moves."""
    if last.unsettled_s is not None and last.unsettled_s > 0:
        why = f"its oldest record is not settled for {span_text(last.unsettled_s)}; {why}"
    elif last.unsettled_s is not None:
        why = f"its worker settles records; {why}"
    is_far = last.exact and (last.behind_s or 0.0) > stalled_s
    return Judged(State.FAR_BEHIND if is_far else State.UNKNOWN, why)


def _has_renewals(looks: Sequence[Look], within_s: float) -> bool:
    """Return True where the looks of this time have seen the lease's counter move."""
    last = looks[-1]
    return any(
        (one.owner, one.counter) != (last.owner, last.counter) for one in looks if last.at_s - one.at_s <= within_s
    )


def _rewound(looks: Sequence[Look]) -> Judged | None:
    """Return the verdict on a checkpoint that went back, and is not again where it was; None for any other."""
    known = [(one.sequence_number, one.sub_sequence_number) for one in looks if one.sequence_number is not None]
    if not known:
        return None
    if looks[-1].sequence_number is None or known[-1] < max(known):
        return Judged(State.REWOUND, "the checkpoint went back: a program or an operator has moved it")
    return None


def _still_s(looks: Sequence[Look]) -> float:
    """Return for how many seconds the looks have shown the same owner and the same counter."""
    last = looks[-1]
    since_s = last.at_s
    for one in reversed(looks):
        if (one.owner, one.counter) != (last.owner, last.counter):
            break
        since_s = one.at_s
    return last.at_s - since_s


def unmoved_time_s(looks: Sequence[Look]) -> float:
    """Return for how many seconds the looks have shown the same checkpoint."""
    last, since_s = looks[-1], looks[-1].at_s
    for one in reversed(looks):
        if _position(one) != _position(last):
            break
        since_s = one.at_s
    return last.at_s - since_s


def _slope(looks: Sequence[Look]) -> float | None:
    """Return the growth of the lag in seconds per second, by least squares. None: too few looks know the lag."""
    points = [(one.at_s - looks[0].at_s, one.behind_s) for one in looks if one.behind_s is not None]
    if len(points) < 2:
        return None
    mean_t = sum(t for t, _ in points) / len(points)
    mean_b = sum(b for _, b in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return None if spread == 0 else sum((t - mean_t) * (b - mean_b) for t, b in points) / spread


def _position(look: Look) -> tuple[int | None, int]:
    return look.sequence_number, look.sub_sequence_number
