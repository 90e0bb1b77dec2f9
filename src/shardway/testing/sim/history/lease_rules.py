"""The rules of leases in a simulation: where a tenure begins and ends, and how far its checkpoint may be."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.testing.sim.history.journal import shown, shown_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases import LeaseRow
    from shardway.testing.sim.history.journal import Journal
    from shardway.testing.sim.history.shard_story import ShardStory

CLOCK_TICK_S = 0.002
"""How many seconds a drain may end before the deadline that its process told."""
LET_GO_S = 0.5
"""The seconds within which a worker that nothing disturbs lets a lease go, once the drain is over."""


class LeaseRules:
    """Checks each write to the lease table as it is applied."""

    def __init__(self, journal: Journal, shards: Mapping[str, ShardStory]) -> None:
        self.moves: list[tuple[float, str, str | None]] = []
        """The changes of owners: the time, the lease, and its new owner."""
        self.settled_at_s: dict[str, float] = {}
        """The time at which each process settled something last."""
        self.left_at_s: dict[str, float] = {}
        """The time at which the program of each process left its run last."""
        self._journal = journal
        self._fault = journal.fault
        self._shards = shards

    def check_write(self, before: LeaseRow | None, row: LeaseRow | None, kind: str) -> None:
        """Note that a write to a lease was applied. ``row`` is None where the lease was deleted."""
        key = (row or before).key  # type: ignore[union-attr]
        self._journal.note(kind, key, None if row is None else (row.counter, row.owner, row.checkpoint.text))
        story = self._shards.get(key)
        if story is None or row is None:
            return
        self._begins(key, story, row)
        if row.actual_owner != story.owner or kind == "take":
            start_ms = row.read_until_ms if row.checkpoint.is_timed else None
            story.want_again(row.checkpoint, None if start_ms is None else start_ms / 1000)
        if row.actual_owner != story.owner:
            self._let_go(story)
            self.moves.append((self._journal.clock(), key, row.actual_owner))
            story.owner, story.owner_counter = row.actual_owner, row.counter
        elif kind == "take":
            story.owner_counter = row.counter
        if row.actual_owner is not None:
            story.stored[row.counter] = row.checkpoint
        if story.checkpoint is None or row.checkpoint != story.checkpoint:
            self._check_checkpoint(key, story, row.checkpoint)

    def _let_go(self, story: ShardStory) -> None:
        """Note whether a tenure ended by the deadline of its drain, with records that the program was at work on: these
        come again, and so does what was settled behind them. A program that stood still does not count: what it had
        should have been settled in time.

        A drain waits for what was put off only as long as a caller asks for it. So the same is true where the program
        had just left its run, and no caller has taken what it put off.
        """
        drain, now_s = story.drain, self._journal.clock()
        story.drain = None
        if now_s - self.left_at_s.get(story.tenure or "", -math.inf) <= LET_GO_S and any(
            story.delivered[one].token == story.token for one in story.put_off
        ):
            story.cut_short.add(story.token)
        if drain is None or drain.who != story.tenure:
            return
        is_late = drain.until_s - CLOCK_TICK_S <= now_s <= drain.until_s + LET_GO_S
        is_working = now_s - self.settled_at_s.get(drain.who, -math.inf) <= drain.handle_s + LET_GO_S
        if is_late and is_working and any(story.delivered[one].token == story.token for one in story.with_handler):
            story.cut_short.add(story.token)

    def _begins(self, key: str, story: ShardStory, row: LeaseRow) -> None:
        """Note where a lease begins, when its row says so for the first time."""
        if not story.born and row.checkpoint.is_timed:
            read = [one for one in story.parents if one in self._shards and self._shards[one].born]
            if read:
                self._fault("a child that loses its beginning", f"{key} is at {row.checkpoint.text} behind {read[0]}")
            if row.checkpoint == Checkpoint.LATEST:
                self._pass_over(story)
        story.born, story.passed = True, False
        if row.lacks_time and row.owner is not None:
            self._fault("an owner without a time", f"{key} is at {row.checkpoint.text}, and does not say since when")
        if story.start_s is None and row.checkpoint.is_timed and row.read_until_ms is not None:
            story.start(row.read_until_ms / 1000)

    def _pass_over(self, story: ShardStory) -> None:
        """Note that nothing is wanted of the ancestors of a shard that begins at LATEST, unless they have leases."""
        for parent in story.parents:
            found = self._shards.get(parent)
            if found is not None and not (found.born or found.passed):
                found.passed = True
                found.start(math.inf)
                self._pass_over(found)

    def _check_checkpoint(self, key: str, story: ShardStory, checkpoint: Checkpoint) -> None:
        known = story.checkpoint
        if known is not None and checkpoint < known:
            self._fault("a checkpoint goes back", f"{key} from {known.text} to {checkpoint.text}")
            return
        story.checkpoint = checkpoint
        if story.untold is not None and story.hides_loss and not checkpoint < Checkpoint.at(story.untold):
            story.untold = None  # No later owner begins before the place that was sought.
        done = story.settled_prefix()
        if checkpoint.is_position:
            covered = bisect_right(story.positions, checkpoint.position)
        elif checkpoint.is_end:
            story.ended, covered = True, len(story.positions)
            if not story.closed:
                self._fault("a shard that is open is stored as ended", key)
            for child in self._unborn_children(key):
                self._fault("an end before the children have leases", f"{key} is stored as ended, {child} has none")
        else:
            covered = 0
        if covered > done:
            first = story.positions[done]
            what = "is not settled" if not story.puts[first].is_bad else "has no dead letter"
            self._fault(
                "a checkpoint ahead of settlement" if not story.puts[first].is_bad else "settled before its letter",
                f"{key} at {shown_checkpoint(checkpoint)}, while {shown(first)} {what} ({covered - done} records)",
            )

    def _unborn_children(self, key: str) -> list[str]:
        """Return children without a lease, of which this was the last parent: where another one has still to end, that
        one sees to it. Of a child that the retention has taken there is nothing to read.
        """
        return [
            child
            for child, story in self._shards.items()
            if key in story.parents
            and not (story.born or story.gone)
            and all(self._shards[one].over for one in story.parents)
        ]
