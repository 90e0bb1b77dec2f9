"""Values of a look at the lag of an application, and the times that verdicts go by."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from shardway.inspect.values import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence


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


class LagTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long an application is looked at, and the times from which on a shard counts as behind or
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
    """How many seconds the owner's oldest fetched record is not settled, as its own row tells; 0: it makes progress.
    None: the owner does not tell it, as KCL workers do not.
    """
    silent_s: float | None = None
    """Seconds since the owner wrote its own row. None: it has none, or the row does not tell it."""


class Judged(NamedTuple):
    """A verdict on a lease, and why it is this one."""

    state: State
    why: str
    slope: float | None = None
    """How many seconds the lag grows in each second; negative while the consumer catches up."""
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
    """How many seconds the owner's oldest fetched record is not settled, as the owner tells; None: it does not tell
    it.
    """
    unmoved_s: float | None = None
    """How many seconds the looks have shown the same checkpoint. None: one look only."""


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
    """Open shards that have no lease."""
    missing: list[Missing]
    calls: dict[str, int]
    loss_risk: LossRisk = LossRisk.NONE
    """The worst `ShardLag.loss_risk` of all shards."""
    not_known: int = 0
    """Shards whose lag is not known, so that ``behind_s`` leaves them out."""


def worst(states: Sequence[State]) -> State:
    """Return the worst of several states; OK for none."""
    order = list(State)
    return max(states, key=order.index, default=State.OK)
