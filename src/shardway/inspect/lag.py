"""Find out from outside whether an application keeps up: how far each checkpoint is behind, and whether it moves.

A look makes a GetShardIterator and mostly one GetRecords call for each shard with an unfinished lease, side by side: it
reads when the next record behind the checkpoint arrived. A single look says where a lease stands. Whether it moves
follows from looks over a window of time, or from the row of a Shardway worker, which tells for how long its oldest
record is not settled. A shard that is far behind is never said to be well only because one look does not know it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.core.leases.row import LeaseKey
from shardway.core.sequence import second_of
from shardway.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ThrottledError,
)
from shardway.inspect.applications import query_position
from shardway.inspect.moments import span_text, utc
from shardway.inspect.values import Missing
from shardway.model import IteratorAt
from shardway.tasks import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.membership import WorkerRow
    from shardway.core.leases.row import Checkpoint
    from shardway.inspect.applications import ApplicationRows
    from shardway.inspect.inspector import Inspector
    from shardway.model import ListedShard, StreamName


OK_S = 60.0
"""A shard whose oldest unread record is younger than this keeps up."""
STALLED_S = 120.0
"""A checkpoint that stands still for this time while records wait is stalled: programs checkpoint each minute or so."""
LOOK_INTERVAL_S = 3.0
"""Seconds between looks at leases: workers renew them as often."""
WINDOW_MIN_S = 5.0
"""Two looks less far apart show no trend."""
FAILOVER_S = 10.0
"""The KCL's default failover time. An owner whose counter stands still for twice this time has stopped."""
WARNING_OF_RETENTION = 0.25
CRITICAL_OF_RETENTION = 0.5
"""The parts of the retention from which on a lag is a warning, or critical: the alarms' rules have the same."""
STEADY = 0.05
"""A lag that changes by less than this, in seconds per second, is steady."""
HISTORY_S = 3600.0
"""Looks that are older than this say nothing of now."""
LOOKS_MAX = 1_000
"""The looks at one lease that a history keeps: the newest ones."""


AT_ONCE_MAX = 48
"""Shards of one look that are asked side by side."""
PAGES_MAX = 4
"""Pages that one look reads of a shard: a silence takes a page for each stretch of the log."""


class LagTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which an application is looked at, and the times from which on a shard counts as behind or
    stalled.
    """

    window_s: float = 0.0
    """Seconds between the first look and the last; 0: one look, which shows no trend."""
    interval_s: float = LOOK_INTERVAL_S
    ok_s: float = OK_S
    """A shard whose oldest unread record is younger keeps up."""
    stalled_s: float = STALLED_S
    """A checkpoint that stands still for this time while records wait is stalled."""
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
    FAR_BEHIND = "far behind"
    """Records wait for as long as a stalled shard's would, and the looks do not tell whether the checkpoint moves."""
    STALLED = "stalled"
    REWOUND = "rewound"
    STOPPED = "stopped"
    UNOWNED = "unowned"
    GONE = "gone"


class LossRisk(StrEnum):
    """How much of the retention a lag has used up: the rest is the time until records are lost."""

    NONE = "none"
    WARNING = "warning"
    CRITICAL = "critical"

    @classmethod
    def of(cls, used: float | None, *, may_have_lost: bool = False) -> LossRisk:
        """Return the risk by the part of the retention that is used, from 0 to 1; None: it is not known."""
        if may_have_lost or (used or 0.0) > CRITICAL_OF_RETENTION:
            return cls.CRITICAL
        return cls.WARNING if (used or 0.0) > WARNING_OF_RETENTION else cls.NONE


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a lease at one time."""

    at_s: float
    owner: str | None
    counter: int
    sequence_number: int | None
    """The sequence number of the checkpoint; None where the checkpoint is one of the KCL's words."""
    sub_sequence_number: int = 0
    ended: bool = False
    next_owner: str | None = None
    """The worker that the lease is being handed to."""
    pending: str | None = None
    """A checkpoint that was prepared, and is not settled."""
    behind_s: float | None = None
    """Seconds since the oldest record that is not settled arrived; 0 at the tip. None: it was not found out."""
    by_query: bool = False
    """True: a Spark query keeps the row up to date, so that no worker owns the lease."""
    exact: bool = True
    """False: ``behind_s`` is an upper bound, so that perhaps no record waits."""
    unsettled_s: float | None = None
    """Seconds for which the owner's oldest fetched record is not settled, as its own row tells; 0: it makes progress.
    None: the owner does not tell it, as KCL workers do not.
    """
    silent_s: float | None = None
    """Seconds since the owner wrote its own row. None: it has none, or the row does not tell it."""


class Judged(NamedTuple):
    """A verdict on a lease, and why it is this one."""

    state: State
    why: str
    slope: float | None = None
    """Seconds by which the lag grows in each second; negative while the consumer catches up."""
    left_s: float | None = None
    """Seconds until the tip at this pace, while the consumer catches up; else None."""


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
    """False: ``behind_s`` is an upper bound, since the shard was silent there and the next record was not reached."""
    slope: float | None
    left_s: float | None
    loses_in_s: float | None
    """Seconds until the retention removes the oldest unread record; None: no record waits, or the age or the retention
    is not known.
    """
    may_have_lost: bool
    """True: the checkpoint is older than the retention, so that records behind it may be gone."""
    retention_used: float | None = None
    """The part of the retention that the lag has used up, from 0 to 1. None: the lag or the retention is not known."""
    loss_risk: LossRisk = LossRisk.NONE
    """``warning`` from a quarter of the retention on, ``critical`` from a half on or where records may be lost."""
    unsettled_s: float | None = None
    """Seconds for which the owner's oldest fetched record is not settled, as the owner tells; None: it does not tell
    it.
    """
    unmoved_s: float | None = None
    """Seconds for which the looks have shown the same checkpoint. None: one look only."""


class LagReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far an application is behind on a stream."""

    schema: str = "shardway.lag/1"
    application: str
    stream: str
    taken_at: dt.datetime
    window_s: float
    """Seconds between the first look and the last."""
    state: State
    """The worst state of all shards."""
    behind_s: float | None
    """The longest lag of all shards, in seconds; None: none is known."""
    loses_in_s: float | None
    """The shortest `ShardLag.loses_in_s` of all shards."""
    shards: list[ShardLag]
    """All shards, the worst first."""
    without_lease: list[str]
    """Open shards for which there is no lease."""
    missing: list[Missing]
    calls: dict[str, int]
    loss_risk: LossRisk = LossRisk.NONE
    """The worst `ShardLag.loss_risk` of all shards."""
    not_known: int = 0
    """Shards whose lag is not known, so that ``behind_s`` leaves them out."""


# --- verdicts -------------------------------------------------------------------------------------


def worst(states: Sequence[State]) -> State:
    """Return the worst of several states; OK for none."""
    order = list(State)
    return max(states, key=order.index, default=State.OK)


def urgency(one: ShardLag) -> tuple[int, float, str]:
    """Return the key by which shards stand, the worst first. Those that are well keep their order from look to look."""
    is_well = one.state in (State.OK, State.ENDED)
    return -list(State).index(one.state), 0.0 if is_well else -(one.behind_s or 0.0), one.shard_id


def report_urgency(report: LagReport) -> tuple[int, float, str]:
    """Return the key by which applications stand, the worst first."""
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
    if last.owner is not None and (last.silent_s or 0.0) > 2 * failover_s and not _renewed(looks, 2 * failover_s):
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
        return _unmoved(last, stalled_s, "one look does not tell whether it moves: look again, or give --window")
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
        return _unmoved(last, stalled_s, f"the checkpoint has not moved in {span_text(window_s)}: look for longer")
    if slope is None or abs(slope) < STEADY:
        return Judged(State.STEADY, f"it stays {span_text(behind_s)} behind", slope)
    if slope > 0:
        return Judged(State.FALLING_BEHIND, f"the lag grows by {slope:.2f} s each second", slope)
    left_s = behind_s / -slope
    return Judged(State.CATCHING_UP, f"at this pace it is at the tip in {span_text(left_s)}", slope, left_s)


def _unmoved(last: Look, stalled_s: float, why: str) -> Judged:
    """Return the verdict on a shard that is behind, and of which the looks do not say that it moves."""
    if last.unsettled_s is not None and last.unsettled_s > 0:
        why = f"its oldest record is not settled for {span_text(last.unsettled_s)}; {why}"
    elif last.unsettled_s is not None:
        why = f"its worker settles records; {why}"
    is_far = last.exact and (last.behind_s or 0.0) > stalled_s
    return Judged(State.FAR_BEHIND if is_far else State.UNKNOWN, why)


def _renewed(looks: Sequence[Look], within_s: float) -> bool:
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


def _unmoved_s(looks: Sequence[Look]) -> float:
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


# --- looks ----------------------------------------------------------------------------------------


class Ahead(NamedTuple):
    """What lies ahead of a checkpoint."""

    behind_s: float | None
    exact: bool = True
    gone: bool = False
    """True: the shard, or the position, is not in the stream."""
    refused: str | None = None
    """The error code with which the service refused the read; None: it was not refused."""


class Lags:
    """Looks at one application's leases on one stream, and reports what the looks say together."""

    def __init__(self, inspector: Inspector, application: str, stream: StreamName, *, retention_s: float) -> None:
        self.looks: dict[str, list[Look]] = {}
        """The looks at each lease, by lease keys, the oldest first."""
        self._inspector = inspector
        self._application = application
        self._stream = stream
        self._retention_s = retention_s
        """The stream's retention in seconds; infinite where the credentials do not show it."""
        self._rows: dict[str, LeaseRow] = {}
        self._ahead: dict[str, Ahead] = {}
        self._workers: dict[str, WorkerRow] = {}
        self._without: list[str] = []

    def remember(self, looks: Mapping[str, Sequence[Look]], history_s: float = HISTORY_S) -> None:
        """Add looks of earlier runs. Looks that are older than the history say nothing any more, and are left out."""
        since_s = self._inspector.now_s - min(history_s, HISTORY_S)
        for key, found in looks.items():
            kept = [one for one in found if one.at_s >= since_s]
            self.looks[key] = sorted([*kept, *self.looks.get(key, [])], key=lambda one: one.at_s)[-LOOKS_MAX:]

    async def look(self, rows: ApplicationRows, shards: Sequence[ListedShard] | None) -> None:
        """Look once at all leases of the stream. ``shards``: None where the credentials do not show them. Raises
        OptionError where the application has leases, but none of this stream.
        """
        self._rows = {row.key: row for row in rows.listing.rows if of_stream(row, self._stream)}
        if not self._rows and rows.listing.rows:
            raise OptionError(f"{self._application} has leases, but none of the stream {self._stream}")
        self._workers = {row.worker_id: row for row in rows.workers}
        there = None if shards is None else {shard.shard_id for shard in shards}
        leased = {LeaseKey.parse(key).shard_id for key in self._rows}
        self._without = sorted(
            shard.shard_id for shard in shards or () if not shard.closed and shard.shard_id not in leased
        )
        self._ahead = {}

        async def ahead(row: LeaseRow) -> None:
            shard_id = LeaseKey.parse(row.key).shard_id
            gone = there is not None and shard_id not in there
            self._ahead[row.key] = Ahead(None, gone=True) if gone else await self._find(shard_id, row.checkpoint)

        await side_by_side(ahead, [row for row in self._rows.values() if not row.ended], AT_ONCE_MAX)
        now_s = self._inspector.now_s
        for key, row in self._rows.items():
            number = row.checkpoint.position.sequence_number if row.checkpoint.is_position else None
            seen = Look(
                at_s=now_s,
                owner=row.actual_owner,
                counter=row.counter,
                sequence_number=number,
                sub_sequence_number=row.checkpoint.sub_sequence_number,
                ended=row.ended,
                next_owner=row.handoff_to,
                pending=None if row.pending is None else row.pending.text,
                behind_s=self._ahead[key].behind_s if key in self._ahead else None,
                by_query=query_position(row) is not None,
                exact=self._ahead[key].exact if key in self._ahead else True,
                **self._told_of(row, now_s),
            )
            self.looks[key] = [*self.looks.get(key, []), seen][-LOOKS_MAX:]

    def _told_of(self, row: LeaseRow, now_s: float) -> dict[str, float]:
        """Return what the owner's own row tells of its lease; nothing where it has none that says it."""
        worker = self._workers.get(row.actual_owner or "")
        if worker is None or worker.written_ms is None:
            return {}
        silent_s = max(0.0, now_s - worker.written_ms / 1000)
        told_s = worker.unsettled.get(row.key, 0.0)
        return {"silent_s": silent_s, "unsettled_s": told_s + silent_s if told_s else 0.0}

    async def _find(self, shard_id: str, checkpoint: Checkpoint) -> Ahead:
        at = start_of(checkpoint)
        if at is None:
            return Ahead(None)
        inspector, found, looked = self._inspector, Ahead(None), 0
        try:
            async with contextlib.aclosing(inspector.pages(self._stream, shard_id, at, limit=1)) as pages:
                async for page in pages:
                    looked += 1
                    if page.records:
                        return Ahead(max(0.0, inspector.now_s - page.records[0].approximate_arrival_timestamp))
                    if page.next_shard_iterator is None:
                        return Ahead(0.0)  # the shard has ended, and the checkpoint does not say so yet
                    if page.millis_behind_latest is not None:
                        found = Ahead(page.millis_behind_latest / 1000, exact=page.millis_behind_latest == 0)
                    if found.behind_s == 0 or looked == PAGES_MAX:
                        return found
        except (InvalidArgumentError, NotFoundError):
            return Ahead(None, gone=True)
        except (AccessDeniedError, ThrottledError) as fault:
            inspector.lacks(f"the records of {self._stream}", "kinesis", fault)
            return found._replace(refused=fault.code)
        return found

    def report(self, times: LagTimes) -> LagReport:
        """Return what the looks so far say."""
        shards = sorted((self._lag_of(row, times) for row in self._rows.values()), key=urgency)
        behind = [one.behind_s for one in shards if one.behind_s is not None]
        loses = [one.loses_in_s for one in shards if one.loses_in_s is not None]
        looked_s = [look.at_s for key in self._rows for look in self.looks[key]]
        inspector = self._inspector
        return LagReport(
            application=self._application,
            stream=self._stream.short,
            taken_at=utc(inspector.now_s),
            window_s=max(looked_s) - min(looked_s) if looked_s else 0.0,
            state=worst([one.state for one in shards] + [State.UNOWNED] * bool(self._without)),
            behind_s=max(behind, default=None),
            loses_in_s=min(loses, default=None),
            shards=shards,
            without_lease=self._without,
            missing=list(inspector.missing),
            calls=inspector.calls,
            loss_risk=max((one.loss_risk for one in shards), key=list(LossRisk).index, default=LossRisk.NONE),
            not_known=sum(one.behind_s is None and one.state is not State.ENDED for one in shards),
        )

    def _lag_of(self, row: LeaseRow, times: LagTimes) -> ShardLag:
        ahead = self._ahead.get(row.key, Ahead(None))
        worker = self._workers.get(row.actual_owner or "")
        failover_s = FAILOVER_S if worker is None else worker.failover_s
        looks = self.looks[row.key]
        judged = judge(looks, failover_s=failover_s, ok_s=times.ok_s, stalled_s=times.stalled_s)
        state, why = judged.state, judged.why
        if ahead.refused is not None and state is State.UNKNOWN:
            why = f"the read of the shard was refused ({ahead.refused}): how far it is behind is not known"
        if ahead.gone:
            state, why = State.GONE, "the stream has no such shard or position: it is trimmed, or of another stream"
        loses_in_s = used = None
        if ahead.behind_s is not None and math.isfinite(self._retention_s):
            used = ahead.behind_s / self._retention_s
            if ahead.behind_s > 0:
                loses_in_s = max(0.0, self._retention_s - ahead.behind_s)
        may_have_lost = self._may_have_lost(row)
        return ShardLag(
            lease=row.key,
            shard_id=LeaseKey.parse(row.key).shard_id,
            owner=row.actual_owner,
            state=state,
            why=why,
            checkpoint=row.checkpoint.text,
            sub_sequence_number=row.checkpoint.sub_sequence_number,
            behind_s=ahead.behind_s,
            exact=ahead.exact,
            slope=judged.slope,
            left_s=judged.left_s,
            loses_in_s=loses_in_s,
            may_have_lost=may_have_lost,
            retention_used=used,
            loss_risk=LossRisk.of(used if ahead.exact else None, may_have_lost=may_have_lost),
            unsettled_s=looks[-1].unsettled_s,
            unmoved_s=_unmoved_s(looks) if len(looks) > 1 else None,
        )

    def _may_have_lost(self, row: LeaseRow) -> bool:
        """Return True where the checkpoint is older than the retention, and no worker has stored that it has read
        since then.
        """
        if not row.checkpoint.is_position:
            return False
        settled_s = second_of(row.checkpoint.position.sequence_number)
        if settled_s is None:
            return False
        return max(settled_s, (row.read_until_ms or 0) / 1000) < self._inspector.now_s - self._retention_s


def start_of(checkpoint: Checkpoint) -> IteratorAt | None:
    """Return where the reading goes on from a checkpoint; None: the row does not say it (LATEST, AT_TIMESTAMP)."""
    if checkpoint.is_position:
        return IteratorAt.after_sequence(checkpoint.position.sequence_number)
    return IteratorAt.trim_horizon() if checkpoint.text == "TRIM_HORIZON" else None


def of_stream(row: LeaseRow, stream: StreamName) -> bool:
    """Return True unless the row says that its lease is of another stream."""
    key = LeaseKey.parse(row.key)
    if key.stream is not None:
        return key.stream.name == stream.short
    return row.of_stream is None or row.of_stream.rpartition(" ")[0].rpartition("/")[2] == stream.short
