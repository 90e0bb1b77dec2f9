"""Look at the shards of an application from outside: how far each checkpoint is behind, and whether it moves.

A look makes a GetShardIterator and mostly one GetRecords call for each shard with an unfinished lease, side by side: it
reads when the next record behind the checkpoint arrived. A single look says where a lease stands. Whether it moves
follows from looks over a window of time, or from the row of a Shardway worker, which tells for how long its oldest
record is not settled. A shard that is far behind is never said to be well only because one look does not know it.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.leases.lease_key import LeaseKey
from shardway.core.sequence import second_of
from shardway.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ThrottledError,
)
from shardway.inspect.applications.views import query_position
from shardway.inspect.lag.reports import FAILOVER_S, HISTORY_S, LagReport, Look, LossRisk, ShardLag, State, worst
from shardway.inspect.lag.verdicts import judge, unmoved_time_s, urgency
from shardway.inspect.moments import utc
from shardway.model import IteratorAt
from shardway.waiting import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.inspect.applications.views import ApplicationRows
    from shardway.inspect.lag.reports import LagTimes
    from shardway.inspect.reads.ports import StreamReads
    from shardway.model import ListedShard, StreamName


LOOKS_MAX = 1_000
"""The looks at one lease that a history keeps: the newest ones."""
AT_ONCE_MAX = 48
"""Shards of one look that are asked side by side."""
PAGES_MAX = 4
"""Pages that one look reads of a shard: a silence takes a page for each stretch of the log."""


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

    def __init__(self, inspector: StreamReads, application: str, stream: StreamName, *, retention_s: float) -> None:
        self.looks: dict[str, list[Look]] = {}
        """The looks at each lease, by lease keys, the oldest first."""
        self._inspector = inspector
        self._application = application
        self._stream = stream
        self._retention_s = retention_s
        """The stream's retention in seconds; infinite where the credentials do not show it."""
        self._rows: dict[str, LeaseRow] = {}
        self._distances: dict[str, Ahead] = {}
        self._workers: dict[str, WorkerRow] = {}
        self._shards_without_lease: list[str] = []

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
        self._shards_without_lease = sorted(
            shard.shard_id for shard in shards or () if not shard.closed and shard.shard_id not in leased
        )
        self._distances = {}

        async def look_ahead(row: LeaseRow) -> None:
            shard_id = LeaseKey.parse(row.key).shard_id
            gone = there is not None and shard_id not in there
            self._distances[row.key] = Ahead(None, gone=True) if gone else await self._find(shard_id, row.checkpoint)

        await side_by_side(look_ahead, [row for row in self._rows.values() if not row.ended], AT_ONCE_MAX)
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
                behind_s=self._distances[key].behind_s if key in self._distances else None,
                by_query=query_position(row) is not None,
                exact=self._distances[key].exact if key in self._distances else True,
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
            state=worst([one.state for one in shards] + [State.UNOWNED] * bool(self._shards_without_lease)),
            behind_s=max(behind, default=None),
            loses_in_s=min(loses, default=None),
            shards=shards,
            without_lease=self._shards_without_lease,
            missing=list(inspector.missing),
            calls=inspector.calls,
            loss_risk=max((one.loss_risk for one in shards), key=list(LossRisk).index, default=LossRisk.NONE),
            not_known=sum(one.behind_s is None and one.state is not State.ENDED for one in shards),
        )

    def _lag_of(self, row: LeaseRow, times: LagTimes) -> ShardLag:
        ahead = self._distances.get(row.key, Ahead(None))
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
            unmoved_s=unmoved_time_s(looks) if len(looks) > 1 else None,
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
