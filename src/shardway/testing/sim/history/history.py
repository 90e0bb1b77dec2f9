"""The history of a simulation: what happened to its stream, its leases and its records, and the rules for that."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.events import CheckpointTrimmed
from shardway.model import Position
from shardway.testing.sim.history.delivery_rules import DeliveryRules
from shardway.testing.sim.history.journal import Journal, shown
from shardway.testing.sim.history.lease_rules import LeaseRules
from shardway.testing.sim.history.shard_story import DrainWait, ShardStory, SoughtPlace
from shardway.testing.sim.history.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.leases import LeaseRow
    from shardway.testing.sim.history.promises import Promises
    from shardway.testing.sim.history.shard_story import Put


class History(Journal):
    """Keeps facts in their order, and checks them as they come."""

    def __init__(
        self,
        clock: Callable[[], float],
        promises: Promises,
        on_note: Callable[[float, tuple[object, ...]], None] | None = None,
    ) -> None:
        """``clock`` has the simulation's time in seconds. ``on_note`` hears each fact, in order, to look at a run."""
        super().__init__(clock, on_note)
        self.promises = promises
        self.shards: dict[str, ShardStory] = {}
        self.lease_rules = LeaseRules(self, self.shards)
        self.transactions = Transactions(self, self.shards)
        self.seeks = 0
        """The number of seeks that a consumer has taken."""
        self.told: Counter[str] = Counter()
        """The number of events that the workers emitted, by kind."""
        self._delivery_rules = DeliveryRules(self, promises, self.shards)
        self.counts = self._delivery_rules.counts
        self._arrivals: dict[tuple[str, bytes | str], tuple[float, tuple[str, Position]]] = {}

    def shard(self, key: str, stream: str, parents: Iterable[str], taking: bool) -> None:
        """Note a shard as a listing shows it. ``key`` is its lease's, wherever a shard is named here."""
        story = self.shards.setdefault(key, ShardStory(stream))
        story.parents, story.closed = tuple(parents), not taking

    def put(self, key: str, sequence_number: int, records: Sequence[Put], at_s: float) -> None:
        """Note records that were written: one, or those of an aggregate. ``at_s`` is the service's time."""
        self.note("put", key, sequence_number, len(records))
        story = self.shards[key]
        for sub, record in enumerate(records):
            position = Position(sequence_number, sub)
            story.positions.append(position)
            story.puts[position], story.arrived[position] = record, at_s
            story.lanes.setdefault(record.key, []).append(position)
            count = self.promises.parts_of(record)
            if self.promises.splits:
                story.parts_left[position] = set(range(count))
            twin = self._repeats(story.stream, record, at_s, (key, position))
            if twin is not None:
                story.twins[position] = twin
            if twin is not None or not count:
                story.leave_out(position)
            if story.start_s is not None and at_s < story.start_s:
                self.fault("a start that is still to come", f"{shown(position)} of {key} arrived before it")

    def _repeats(
        self, stream: str, record: Put, at_s: float, place: tuple[str, Position]
    ) -> tuple[str, Position] | None:
        """Return the shard and the position of the record whose duplicate this is; None: it is no duplicate."""
        promises = self.promises
        if not promises.window_s or (key := promises.key_of(record)) is None:
            return None
        before = self._arrivals.get((stream, key))
        self._arrivals[stream, key] = at_s, place
        return before[1] if before is not None and at_s - before[0] <= promises.window_s else None

    def trimmed(self, horizon_s: float, listed: set[str]) -> None:
        """Note that time has passed: what arrived before ``horizon_s`` cannot be read any more, nor shards that are not
        listed. Records among these that were not settled are no fault, if the next owner says that they were trimmed.
        """
        self.note("trimmed", horizon_s, sorted(listed))
        for key, story in self.shards.items():
            story.gone = key not in listed
            past = [one for one in story.positions if story.arrived[one] < horizon_s]
            lost = [one for one in past if one not in story.settled]
            story.trimmed = len(past)
            for position in past:
                story.leave_out(position)
            if lost and not story.gone and story.checkpoint is not None and story.checkpoint.is_position:
                story.untold = lost[-1]

    @property
    def untold(self) -> list[str]:
        """The shards that lost unsettled records to the retention, while a worker has still to say so."""
        shards = self.shards.items()
        return sorted(key for key, story in shards if story.untold is not None and not story.hides_loss)

    @property
    def settled_count(self) -> int:
        """The number of records that are settled, of all shards."""
        return sum(len(story.settled) for story in self.shards.values())

    def row_written(self, before: LeaseRow | None, row: LeaseRow | None, kind: str) -> None:
        """Note that a write to a lease was applied. ``row`` is None where the lease was deleted."""
        self.lease_rules.check_write(before, row, kind)

    def delivered(
        self, who: str, shard_id: str, token: int, positions: list[Position], parts: Sequence[int] | None, by_key: bool
    ) -> None:
        """Note that a process got a batch. ``parts``: which parts of the records, where they are split. ``by_key``:
        order is by partition key.
        """
        self._delivery_rules.check_batch(who, shard_id, token, positions, parts, by_key)

    def settled(
        self, who: str, shard_id: str, token: int, positions: list[Position], counts: bool,
        parts: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Note that a process says that positions are done, and whether the consumer says that this counts."""
        self.note("settled", who, shard_id, token, positions[0] if positions else None, len(positions), counts)
        if counts:
            self.lease_rules.settled_at_s[who] = self.clock()
            story = self.shards[shard_id]
            story.settle(positions, parts)
            found = list(zip(positions, parts or [0] * len(positions), strict=True))
            story.with_handler.difference_update(found)
            story.done_in.update(dict.fromkeys(found, story.stint(token)))

    def put_off(
        self, who: str, shard_id: str, token: int, positions: list[Position], parts: Sequence[int] | None
    ) -> None:
        """Note that a process asks for positions again: they may come from the next owner as well."""
        self.note("put off", who, shard_id, token, positions[0], len(positions))
        self.shards[shard_id].put_off.update(zip(positions, parts or [0] * len(positions), strict=True))
        self.given_back(shard_id, positions, parts)

    def given_back(self, shard_id: str, positions: list[Position], parts: Sequence[int] | None) -> None:
        """Note that no handler has these positions any more: they were put off, failed or were given up."""
        found = zip(positions, parts or [0] * len(positions), strict=True)
        self.shards[shard_id].with_handler.difference_update(found)

    def left(self, who: str) -> None:
        """Note that a process has left its run: until its program begins another one no caller asks for records."""
        self.note("left", who)
        self.lease_rules.left_at_s[who] = self.clock()

    def taken_back(self, shard_id: str) -> None:
        """Note that a program has left its iteration: what it had comes again."""
        self.shards[shard_id].with_handler.clear()

    def delivered_by(self, shard_id: str, token: int, last: Position) -> list[Position]:
        """Return what a tenure has delivered since its last seek, up to and with a position."""
        story = self.shards[shard_id]
        stint = story.stint(token)
        return [position for (position, _), by in story.delivered.items() if by == stint and position <= last]

    def sought(self, who: str, shard_id: str, token: int, to: Position | str | float, service_s: float) -> None:
        """Note that a consumer has taken a seek: behind a position, to TRIM_HORIZON, to LATEST, or to a time. Times are
        epoch seconds of the service; ``service_s`` is its time now, as the process knows it.
        """
        self.note("sought", who, shard_id, token, to)
        self.seeks += 1
        story = self.shards[shard_id]
        if isinstance(to, Position):
            first = earliest = bisect_right(story.positions, to)
        elif to == "TRIM_HORIZON":
            first = earliest = 0
        elif to == "LATEST":
            first = len(story.positions)
            # The lease keeps whole milliseconds, rounded down, as the service keeps arrival times: what arrived
            # later in that millisecond has the same time, and must not be passed over.
            earliest = self._place_at(story, math.floor((service_s - SERVICE_CLOCK_S) * 1000) / 1000)
        else:
            # Arrival times are whole milliseconds, and a time that is one of them comes to the service unchanged.
            first = earliest = self._place_at(story, float(to))
        # A worker that does not know yet that it lost the lease takes a seek as well. It stores nothing any more, so
        # the seek changes nothing of what the present owner has to deliver.
        if token >= story.owner_counter:
            story.pass_over(first)
            self.transactions.want_again(shard_id, story.positions[earliest:])
        story.sought[token] = SoughtPlace(
            story.stint(token).seeks + 1, first, earliest, story.hides_loss_from(token, first, isinstance(to, Position))
        )

    def _place_at(self, story: ShardStory, at_s: float) -> int:
        return bisect_left(story.positions, at_s, key=story.arrived.__getitem__)

    def letter_written(self, who: str, shard_id: str, position: Position, part: int | None, data: bytes | None) -> None:
        """Note that a dead letter is written."""
        self.note("dead-lettered", who, shard_id, position, part)
        story = self.shards[shard_id]
        put = story.puts[position]
        if not put.is_bad:
            self.fault("a good record is given up", f"{who}: {shown(position)} of {shard_id} is a dead letter")
        if data != put.data:
            self.fault("a letter of another record", f"{who}: that of {shown(position)} of {shard_id}")
        story.settle([position], None if part is None else [part])

    def was_sought(self, shard_id: str, token: int) -> bool:
        """Return whether the program has sought in a tenure: then records come again that it has put out."""
        return self.shards[shard_id].stint(token).seeks > 0

    def gave_up(self, who: str, shard_id: str, cool_down_s: float) -> None:
        """Note that a process leaves a shard alone for ``cool_down_s``."""
        self.note("gave up", who, shard_id, cool_down_s)
        story = self.shards[shard_id]
        token = story.token if story.tenure == who else 0
        story.cooling[who] = self.clock() + cool_down_s, story.stint(token)

    def drain_waits(self, who: str, shard_id: str, left_s: float, handle_s: float) -> None:
        """Note that the drain of a shard waits for handlers, for ``left_s`` at most. ``handle_s``: the longest time
        that a handler of this process takes.
        """
        self.note("drain waits", who, shard_id, left_s)
        self.shards[shard_id].drain = DrainWait(who, self.clock() + left_s, handle_s)

    def lease_lost(self, who: str, worker_id: str, key: str, token: int) -> None:
        """Note that a process believes that another has its lease."""
        self.note("lost", who, key, token)
        story = self.shards[key]
        if story.owner == worker_id and story.owner_counter <= token:
            self.fault("a healthy owner lost its lease", f"{who} let go of {key}, which is its own since {token}")

    def unsettled(self) -> dict[str, int]:
        """Return how many records of each shard are not settled."""
        left = {one: len(story.positions) - story.settled_prefix() for one, story in self.shards.items()}
        return {one: count for one, count in left.items() if count}

    def is_stored(self, row: LeaseRow) -> bool:
        """Return whether what is settled of a shard is stored, now that all workers have left."""
        story = self.shards[row.key]
        wanted = story.positions
        if story.sought:  # What a seek has dropped, or has passed over, is not the matter of the last tenure.
            stint = story.stint(story.token)
            own = {one for (one, _), by in story.delivered.items() if by == stint}
            wanted = [one for one in story.positions[: story.settled_prefix()] if one in own]
        elif len(story.positions) <= max(story.trimmed, len(story.before_start)):
            return True
        return (
            row.ended
            or not wanted
            or row.checkpoint == Checkpoint.at(wanted[-1])
            or (bool(story.sought) and row.checkpoint > Checkpoint.at(wanted[-1]))
        )

    def lost(self) -> None:
        """Find the records that no worker will ever deliver: the stored checkpoint has passed them."""
        for one, story in self.shards.items():
            done, checkpoint = story.settled_prefix(), story.checkpoint
            if done == len(story.positions) or checkpoint is None:
                continue
            first = story.positions[done]
            if checkpoint.is_end or (checkpoint.is_position and first <= checkpoint.position):
                self.fault("a lost record", f"{shown(first)} of {one} was not settled, and is behind the checkpoint")

    def event(self, event: Any, shard_id: str | None) -> None:
        """Note an event of a worker, and the shard that it is about."""
        self.told[type(event).__name__] += 1
        if isinstance(event, CheckpointTrimmed) and not event.surely_nothing_lost:
            story = self.shards.get(shard_id or "")
            if story is not None:
                story.untold = None
