"""The rules of deliveries in a simulation: which records a process may be given, in which order, and how often."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardway.testing.sim.history.journal import shown
from shardway.testing.sim.history.shard_story import Stint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.leases.checkpoint import Checkpoint
    from shardway.model import Position
    from shardway.testing.sim.history.journal import Journal
    from shardway.testing.sim.history.promises import Promises
    from shardway.testing.sim.history.shard_story import ShardStory, SoughtPlace


@dataclass
class DeliveryCounts:
    """The deliveries of one run, in numbers."""

    deliveries: int = 0
    duplicates: int = 0
    done_again: int = 0
    """The number of deliveries of what a program had settled before, unless the drain was cut short."""
    handed_twice: int = 0
    """The number of deliveries of what another tenure had delivered before, unless its program put that off, or the
    drain was cut short.
    """
    tenures: int = 0


class DeliveryRules:
    """Checks each batch as it is delivered, and counts."""

    def __init__(self, journal: Journal, promises: Promises, shards: Mapping[str, ShardStory]) -> None:
        self.counts = DeliveryCounts()
        self._journal = journal
        self._fault = journal.fault
        self._promises = promises
        self._shards = shards

    def check_batch(
        self, who: str, shard_id: str, token: int, positions: list[Position], parts: Sequence[int] | None, by_key: bool
    ) -> None:
        """Note that a process got a batch. ``parts``: which parts of the records, where they are split. ``by_key``:
        order is by partition key.
        """
        self._journal.note("got", who, shard_id, token, positions[0], len(positions))
        story = self._shards[shard_id]
        self.counts.deliveries += len(positions)
        self._check_tenure(story, who, shard_id, token)
        for parent in story.parents:
            if parent in self._shards and not self._shards[parent].over:
                self._fault("an early child", f"{who} has a record of {shard_id}, whose parent {parent} is not done")
        self._check_cool_down(story, who, shard_id, token)
        begun = story.stored.get(token)
        if begun is None:
            self._fault("a batch without a tenure", f"{who} has {shard_id} with token {token}, which no worker wrote")
            return
        key = story.puts[positions[0]].key if by_key else None
        sought = story.sought.get(token)
        for position in dict.fromkeys(positions):  # Parts of one record have one position.
            self._check_order(story, who, shard_id, token, begun, position, key)
            if sought is None:
                self._check_wanted(story, who, shard_id, position)
            elif self._has_its_twin(story, shard_id, sought, position):
                self._fault("a duplicate is delivered", f"{who} got {shown(position)} of {shard_id} after a seek")
        if key is not None:
            self._check_key(story, who, shard_id, token, positions, key)
        for one in zip(positions, parts or [0] * len(positions), strict=True):
            self._check_again(story, who, shard_id, one, story.stint(token))

    def _check_cool_down(self, story: ShardStory, who: str, shard_id: str, token: int) -> None:
        """Check that a process which gave the shard up gets nothing of it. A seek asks for the shard again, as long as
        the tenure lasts in which the process gave it up: the shard did not leave that process yet.
        """
        until_s, given_up = story.cooling.get(who, (0.0, Stint(0, 0)))
        is_sought = token == given_up.token and story.stint(token).seeks > given_up.seeks
        if self._journal.clock() < until_s and not is_sought:
            self._fault("a shard comes back in its cool-down", f"{who} gave {shard_id} up, and is handed it out")

    def _check_wanted(self, story: ShardStory, who: str, shard_id: str, position: Position) -> None:
        """Check a record of a tenure without a seek: it lies behind the start, and is no duplicate."""
        if position in story.before_start:
            self._fault("a record before the start", f"{who} got {shown(position)} of {shard_id}")
        elif (
            position in story.left_out
            and self._promises.window_s
            and self._promises.window_waits
            and not self._follows_start(story, position)
        ):
            self._fault("a duplicate is delivered", f"{who} got {shown(position)} of {shard_id}")

    def _follows_start(self, story: ShardStory, position: Position) -> bool:
        """True for a duplicate of a record before the start. A worker need not know that record, so this one may be
        delivered, or left out.
        """
        twin = story.twins.get(position)
        return twin is not None and twin[1] in self._shards[twin[0]].before_start

    def _has_its_twin(self, story: ShardStory, shard_id: str, sought: SoughtPlace, position: Position) -> bool:
        """True for a duplicate of a record that came since the seek: the window of duplicates begins with the seek."""
        twin = story.twins.get(position)
        if twin is None or not self._promises.window_waits:
            return False
        return twin[0] == shard_id and story.place(twin[1]) >= sought.first

    def _check_again(self, story: ShardStory, who: str, shard_id: str, one: tuple[Position, int], stint: Stint) -> None:
        """Check that a record comes again for a reason, and count it."""
        before = story.delivered.get(one)
        if before == stint:
            if story.done_in.get(one) == stint:
                self._fault("settled and delivered again", f"{who} got {shown(one[0])} of {shard_id} in one tenure")
            elif one in story.with_handler and not self._promises.redelivers:
                self._fault("with two handlers at once", f"{who} got {shown(one[0])} of {shard_id}, and had it")
        if before is not None:
            self.counts.duplicates += 1
            is_asked_for = story.is_dropped(before) or (stint.seeks > 0 and before != stint)
            if not is_asked_for:  # a program may put off a duplicate that came all the same
                done = story.done_in.get(one)
                is_dropped = done is not None and (story.is_dropped(done) or (stint.seeks > 0 and done != stint))
                is_cut_short = before.token in story.cut_short
                self.counts.done_again += one[0] in story.handled and not (is_dropped or is_cut_short)
                self.counts.handed_twice += (
                    before.token != stint.token and one not in story.put_off and not is_cut_short
                )
        story.put_off.discard(one)
        story.delivered[one] = stint
        story.with_handler.add(one)

    def _check_tenure(self, story: ShardStory, who: str, shard_id: str, token: int) -> None:
        if token < story.token:
            self._fault(
                "two readers",
                f"{who} gets records of {shard_id} with token {token}, after {story.tenure} was with {story.token}",
            )
        elif token > story.token:
            story.token, story.tenure = token, who
            self.counts.tenures += 1
        elif who != story.tenure:
            self._fault("a token that does not grow", f"{who} has {shard_id} with {token}, as {story.tenure} had it")

    def _check_order(
        self, story: ShardStory, who: str, shard_id: str, token: int, begun: Checkpoint, position: Position,
        key: str | None,
    ) -> None:  # fmt: skip
        """Check that positions come from the stored checkpoint on, or from the place that was sought, without a gap; a
        repetition may come at any time.
        """
        positions, stint, sought = story.lane(key), story.stint(token), story.sought.get(token)
        place = story.next_place.get((stint, key))
        if place is None:
            place = self._first_place(story, positions, position, begun, sought)
        while (
            place < len(positions)
            and positions[place] != position
            and (self._may_lack(story, sought, positions[place]) or story.delivered.get((positions[place], 0)) == stint)
        ):  # Where the order changes, another order has delivered some of them in this tenure.
            place += 1
        if place < len(positions) and position == positions[place]:
            place += 1
        elif story.delivered.get((position, 0)) == stint:
            return  # It is a repetition: another order may have delivered it before those that are next.
        elif (found := bisect_left(positions, position)) > place or found == len(positions):
            expected = shown(positions[place]) if place < len(positions) else "nothing"
            self._fault("a gap", f"{who} got {shown(position)} of {shard_id} where {expected} is next")
            place = found + 1
        elif sought is not None:
            if not self._may_lack(story, sought, position) or story.place(position) < sought.earliest:
                self._fault("a record of the former place", f"{who} got {shown(position)} of {shard_id} after a seek")
        elif begun.is_position and position <= begun.position:
            self._fault("settled before", f"{who} got {shown(position)} of {shard_id} again, behind its checkpoint")
        story.next_place[stint, key] = place

    def _first_place(
        self,
        story: ShardStory,
        positions: list[Position],
        position: Position,
        begun: Checkpoint,
        sought: SoughtPlace | None,
    ) -> int:
        """Return the place, among these positions, of the first one that a stint has to deliver."""
        if sought is None:
            behind = [begun.position] if begun.is_position else []
            behind += [] if story.resumed is None else [story.resumed]
            return bisect_right(positions, max(behind)) if behind else 0
        if sought.earliest <= (found := story.place(position)) < sought.first:
            return bisect_left(positions, position)
        first = story.positions[sought.first : sought.first + 1]
        assert first or found < sought.first
        return bisect_left(positions, first[0]) if first else len(positions)

    def _may_lack(self, story: ShardStory, sought: SoughtPlace | None, position: Position) -> bool:
        """True for a position that a stint need not deliver. A seek asks also for what lies before the start, and for
        what an earlier seek has passed over.
        """
        if sought is None or position not in story.left_out:
            return position in story.left_out
        return (
            position in story.twins
            or story.place(position) < story.trimmed
            or not self._promises.parts_of(story.puts[position])
        )

    def _check_key(
        self, story: ShardStory, who: str, shard_id: str, token: int, positions: list[Position], key: str
    ) -> None:
        """Check that a record of a key is delivered only when all before it of that key are done, or given up."""
        if any(story.puts[position].key != key for position in positions):
            self._fault("a batch of several keys", f"{who} got {shard_id}")
        out = story.out.setdefault((story.stint(token), key), set())
        out -= story.settled
        if early := [one for one in out if one < positions[0] and not story.puts[one].is_bad]:
            what = f"{who} got {shown(positions[0])} of {shard_id}, before {shown(min(early))} of its key is done"
            self._fault("a key out of order", what)
        out.update(positions)
