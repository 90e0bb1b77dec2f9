"""How far an application is behind, looked at from outside: from each checkpoint one record ahead, in time.

A look takes a GetShardIterator and mostly one GetRecords call of each shard with an unfinished lease, side by side.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.leases.row import LeaseKey
from penstock.core.sequence import second_of
from penstock.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    NotFoundError,
    OptionError,
    ThrottledError,
)
from penstock.inspect.applications import query_position
from penstock.inspect.moments import utc
from penstock.inspect.verdicts import FAILOVER_S, HISTORY_S, LOOKS_MAX, LagReport, Look, ShardLag, State, judge, worst
from penstock.model import IteratorAt
from penstock.runtime.waiting import side_by_side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.core.leases import LeaseRow
    from penstock.core.leases.row import Checkpoint
    from penstock.inspect.applications import ApplicationRows
    from penstock.inspect.inspector import Inspector
    from penstock.inspect.verdicts import LagTimes
    from penstock.model import ListedShard, StreamName

AT_ONCE_MAX = 48
PAGES_MAX = 4
"""Of a shard in one look: a silence takes a page for each stretch of the log."""


class Ahead(NamedTuple):
    """What lies ahead of a checkpoint."""

    behind_s: float | None
    exact: bool = True
    gone: bool = False
    """The shard, or the position, is not in the stream."""


class Lags:
    """Looks at one application's leases on one stream, and what they tell together."""

    def __init__(self, inspector: Inspector, application: str, stream: StreamName, *, retention_s: float) -> None:
        self.looks: dict[str, list[Look]] = {}
        """By lease keys, the oldest first."""
        self._inspector = inspector
        self._application = application
        self._stream = stream
        self._retention_s = retention_s
        """Infinite where it is not shown."""
        self._rows: dict[str, LeaseRow] = {}
        self._ahead: dict[str, Ahead] = {}
        self._failover_s: dict[str, float] = {}
        self._without: list[str] = []

    def remember(self, looks: Mapping[str, Sequence[Look]], history_s: float = HISTORY_S) -> None:
        """Looks of earlier runs. Those that are too old tell nothing any more, and are left out."""
        since_s = self._inspector.now_s - min(history_s, HISTORY_S)
        for key, found in looks.items():
            kept = [one for one in found if one.at_s >= since_s]
            self.looks[key] = sorted([*kept, *self.looks.get(key, [])], key=lambda one: one.at_s)[-LOOKS_MAX:]

    async def look(self, rows: ApplicationRows, shards: Sequence[ListedShard] | None) -> None:
        """Look once at all leases of the stream, whose shards may not be shown. Raises OptionError where there are
        none.
        """
        self._rows = {row.key: row for row in rows.listing.rows if of_stream(row, self._stream)}
        if not self._rows and rows.listing.rows:
            raise OptionError(f"{self._application} has leases, but none of the stream {self._stream}")
        self._failover_s = {row.worker_id: row.failover_s for row in rows.workers}
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
            )
            self.looks[key] = [*self.looks.get(key, []), seen][-LOOKS_MAX:]

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
        return found

    def report(self, times: LagTimes) -> LagReport:
        """What the looks so far tell."""
        shards = [self._lag_of(row, times) for _, row in sorted(self._rows.items())]
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
        )

    def _lag_of(self, row: LeaseRow, times: LagTimes) -> ShardLag:
        ahead = self._ahead.get(row.key, Ahead(None))
        failover_s = self._failover_s.get(row.actual_owner or "", FAILOVER_S)
        judged = judge(self.looks[row.key], failover_s=failover_s, ok_s=times.ok_s, stalled_s=times.stalled_s)
        state, why = judged.state, judged.why
        if ahead.gone:
            state, why = State.GONE, "the stream has no such shard or position: it is trimmed, or of another stream"
        loses_in_s = None
        if ahead.behind_s is not None and ahead.behind_s > 0 and math.isfinite(self._retention_s):
            loses_in_s = max(0.0, self._retention_s - ahead.behind_s)
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
            may_have_lost=self._may_have_lost(row),
        )

    def _may_have_lost(self, row: LeaseRow) -> bool:
        """The checkpoint is behind the retention's horizon, and no worker has said that nothing came since."""
        if not row.checkpoint.is_position:
            return False
        settled_s = second_of(row.checkpoint.position.sequence_number)
        if settled_s is None:
            return False
        return max(settled_s, (row.read_until_ms or 0) / 1000) < self._inspector.now_s - self._retention_s


def start_of(checkpoint: Checkpoint) -> IteratorAt | None:
    """Where the reading goes on; None: the row does not tell (LATEST, AT_TIMESTAMP)."""
    if checkpoint.is_position:
        return IteratorAt.after_sequence(checkpoint.position.sequence_number)
    return IteratorAt.trim_horizon() if checkpoint.text == "TRIM_HORIZON" else None


def of_stream(row: LeaseRow, stream: StreamName) -> bool:
    """True unless the row says that it is of another stream."""
    key = LeaseKey.parse(row.key)
    if key.stream is not None:
        return key.stream.name == stream.short
    return row.of_stream is None or row.of_stream.rpartition(" ")[0].rpartition("/")[2] == stream.short
