"""Keep what happened in a simulation, and check the rules that it must not break.

The history sees everything at once: what was put, each write to the lease table as it is applied, each batch as it is
delivered, each settlement as it is said. None of the processes knows as much.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.events import CheckpointTrimmed
from shardway.model import Position, Record
from shardway.policies import Redeliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.core.leases import LeaseRow
    from shardway.options.consumer import ConsumerOptions

# --- a shard --------------------------------------------------------------------------------------
# A shard of a simulation has records, which are done up to somewhere.

CLOCK_TICK_S = 0.002
"""The seconds by which a drain may end before the deadline that its process told."""
LET_GO_S = 0.5
"""The seconds within which a worker that nothing disturbs lets a lease go, once the drain is over."""
STREAM = "orders"
"""The name of the first stream."""
BAD = b"!"
"""The end of data that makes each handler fail."""


class Put(NamedTuple):
    """A user record as it is put."""

    key: str
    data: bytes

    @property
    def is_bad(self) -> bool:
        """True for a record that can only become a dead letter."""
        return self.data.endswith(BAD)


class Stint(NamedTuple):
    """A part of a tenure: from its begin, or from a seek, to the next seek or the end."""

    token: int
    seeks: int
    """The number of seeks of the tenure before it."""


class SoughtPlace(NamedTuple):
    """The place that the program asked for by the last seek of a tenure."""

    seeks: int
    first: int
    """The place of the first position that has to come."""
    earliest: int
    """The place of the first position that may come: LATEST may lie as far back as a service's clock is wrong."""
    hides_loss: bool
    """True where the tenure need not say any more that the retention took records: the program sought another place
    before the worker could miss them.
    """


class DrainWait(NamedTuple):
    """What a process says of a drain that waits for its handlers."""

    who: str
    until_s: float
    """The time at which the drain ends, whatever it still waits for."""
    handle_s: float
    """The longest time that a handler of the process takes."""


@dataclass
class ShardStory:
    """The records of one shard, and how far they are done."""

    stream: str = ""
    parents: tuple[str, ...] = ()
    closed: bool = False
    gone: bool = False
    """True where the retention has taken all of the shard."""
    positions: list[Position] = field(default_factory=list)
    trimmed: int = 0
    """The number of the positions that cannot be read any more."""
    puts: dict[Position, Put] = field(default_factory=dict)
    arrived: dict[Position, float] = field(default_factory=dict)
    """The time at which each record arrived, by the service's clock."""
    lanes: dict[str, list[Position]] = field(default_factory=dict)
    """The positions by partition key."""
    settled: set[Position] = field(default_factory=set)
    left_out: set[Position] = field(default_factory=set)
    """The settled positions that no handler needs to get, as they are duplicates, or trimmed, or have no parts."""
    handled: set[Position] = field(default_factory=set)
    """The settled positions that a program has settled."""
    parts_left: dict[Position, set[int]] = field(default_factory=dict)
    """The parts that are not settled, of each record that is split."""
    delivered: dict[tuple[Position, int], Stint] = field(default_factory=dict)
    """The stint of the last delivery of each part (0 where records are not split)."""
    done_in: dict[tuple[Position, int], Stint] = field(default_factory=dict)
    """The stint in which the program settled each part."""
    with_handler: set[tuple[Position, int]] = field(default_factory=set)
    """The parts that a handler has got, and neither settled nor gave back."""
    sought: dict[int, SoughtPlace] = field(default_factory=dict)
    """The place that was sought last, by the token of the tenure."""
    untold: Position | None = None
    """The last of the unsettled records that the retention took, while no worker has said so yet."""
    passed_over: set[Position] = field(default_factory=set)
    """The positions that were not settled when a seek of the present tenure passed over them. The checkpoint may pass
    over them as well; where it has not, the next owner has to deliver them.
    """
    put_off: set[tuple[Position, int]] = field(default_factory=set)
    """The parts (0 where records are not split) that a program asked to be delivered again, and that were not yet."""
    prefix: int = 0
    """The number of the first positions that are settled."""
    token: int = 0
    """The highest token that a batch had."""
    tenure: str | None = None
    """The process that had that batch."""
    checkpoint: Checkpoint | None = None
    resumed: Position | None = None
    """The position behind its checkpoint at which an owner began, as it was told that what was prepared is done."""
    owner: str | None = None
    owner_counter: int = 0
    """The counter with which the row began to name the owner."""
    born: bool = False
    """True where the shard has, or had, a lease."""
    start_s: float | None = None
    """The time at which its lease begins, by the service's clock: what arrived before is not wanted. None: it begins at
    the oldest record, or no owner has stored that time yet.
    """
    passed: bool = False
    """True where the application begins at LATEST, with a descendant."""
    before_start: set[Position] = field(default_factory=set)
    """The positions that lie before the start."""
    twins: dict[Position, tuple[str, Position]] = field(default_factory=dict)
    """The record before it with the same key, of each record that is a duplicate, with its shard."""
    ended: bool = False
    """True once it was stored that the shard is done."""
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    """The checkpoints, by the counter that their write left: a tenure's token is the counter that it began with."""
    next_place: dict[tuple[Stint, str | None], int] = field(default_factory=dict)
    """The place of the position that is delivered next for the first time, by stint, and by key where order is by key.
    """
    out: dict[tuple[Stint, str], set[Position]] = field(default_factory=dict)
    """The positions that were delivered, by stint and key."""
    cooling: dict[str, tuple[float, Stint]] = field(default_factory=dict)
    """The time until which each process that gave the shard up leaves it alone, and the stint in which it did so."""

    drain: DrainWait | None = None
    """The last drain that waited."""
    cut_short: set[int] = field(default_factory=set)
    """The tokens of the tenures whose drains ended before all was settled, with good reason: at their deadline, while
    handlers still worked, or as the program had left its run.
    """

    @property
    def over(self) -> bool:
        """True when nothing more comes of the shard: it is stored as ended, all of it is trimmed, or none of it is
        wanted.
        """
        return self.ended or self.gone or self.passed

    def settled_prefix(self) -> int:
        """Return how many of the first positions are settled by now."""
        positions, settled = self.positions, self.settled
        while self.prefix < len(positions) and positions[self.prefix] in settled:
            self.prefix += 1
        return self.prefix

    def stint(self, token: int) -> Stint:
        """Return the present stint of a tenure."""
        sought = self.sought.get(token)
        return Stint(token, 0 if sought is None else sought.seeks)

    def is_dropped(self, stint: Stint) -> bool:
        """True when a later seek has dropped what a stint had: what of it was not stored comes again."""
        return stint != self.stint(stint.token)

    @property
    def hides_loss(self) -> bool:
        """True where the present tenure need not say that records are lost. A seek holds for its tenure: the next owner
        begins at the checkpoint, and says so, unless the checkpoint has passed them.
        """
        sought = self.sought.get(self.owner_counter)
        return sought is not None and sought.hides_loss

    def hides_loss_from(self, token: int, first: int, is_record: bool) -> bool:
        """Return whether a seek hides a loss. That a record is trimmed is noticed where reading goes on behind it; a
        time, LATEST and the oldest record say nothing of what lay before. What the tenure delivered before the seek lay
        behind the loss, so that had to be told by then.
        """
        stint, sought = self.stint(token), self.sought.get(token)
        if self.untold is None or (is_record and first <= self.place(self.untold)):
            return False
        return (sought is not None and sought.hides_loss) or all(by != stint for by, _ in self.next_place)

    def pass_over(self, first: int) -> None:
        """Take note that a seek passes over what lies before a place and is not settled."""
        found = [one for one in self.positions[:first] if one not in self.settled]
        self.passed_over.update(found)
        for position in found:
            self.leave_out(position)

    def want_again(self, checkpoint: Checkpoint, start_s: float | None) -> None:
        """Take note that a seek holds no longer: what it passed over is wanted, unless the checkpoint has passed it,
        or the time (epoch seconds) at which the lease begins.
        """
        again = {
            one
            for one in self.passed_over
            if checkpoint < Checkpoint.at(one)
            and (start_s is None or self.arrived[one] >= start_s)
            and self.place(one) >= self.trimmed
        }
        self.passed_over.clear()
        # A seek by time may bring what it passed over, and a handler may settle that. It comes again all the same,
        # because the checkpoint lies before it.
        self.left_out -= again
        unsettled = again - self.handled
        self.settled -= unsettled
        if unsettled:
            self.prefix = min(self.prefix, self.place(min(unsettled)))

    def place(self, position: Position) -> int:
        """Return the place of a position among all of the shard."""
        return bisect_left(self.positions, position)

    def settle(self, positions: Sequence[Position], parts: Sequence[int] | None = None) -> None:
        """Take note that positions are done, or one part of each; a record is done when all of its parts are."""
        if parts is None:
            self.settled.update(positions)
            self.handled.update(positions)
            return
        for position, part in zip(positions, parts, strict=True):
            left = self.parts_left[position]
            left.discard(part)
            if not left:
                self.settled.add(position)
                self.handled.add(position)

    def leave_out(self, position: Position) -> None:
        """Count a record as settled, which no handler needs to get."""
        self.left_out.add(position)
        self.settled.add(position)

    def start(self, start_s: float) -> None:
        """Take note that the lease begins at this time."""
        self.start_s = start_s
        early = [one for one in self.positions if self.arrived[one] < start_s]
        self.before_start.update(early)
        for position in early:
            self.leave_out(position)

    def lane(self, key: str | None) -> list[Position]:
        """Return the positions of a key, or all for None."""
        return self.positions if key is None else self.lanes[key]


# --- the history ----------------------------------------------------------------------------------

FAULTS_MAX = 20
"""The most broken rules that are kept: a run that breaks rules goes on breaking them."""


class BrokenRule(NamedTuple):
    """A rule that was broken."""

    rule: str
    at_s: float
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:.3f} s: {self.rule}: {self.what}"


class Promises:
    """Keeps what the consumers' options say of the records, also options that are not the plan's. What their functions
    make of a record follows from it alone.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        choice = options.deduplicate
        self.window_s = 0.0 if choice is None else choice.window_s
        """Seconds within which a record whose key came before is a duplicate; 0: none is."""
        self.window_waits = choice is None or choice.wait
        """True where no duplicate is ever delivered."""
        self.redelivers = isinstance(options.settling.stalled, Redeliver)
        """True where what a handler has is delivered again after some time."""
        self.splits = options.split is not None
        """True where records are delivered in parts."""
        self._options = options

    def key_of(self, put: Put) -> bytes | str | None:
        """Return the key by which a record is a duplicate."""
        choice = self._options.deduplicate
        return put.data if choice is None else choice.key(_record(put))

    def parts_of(self, put: Put) -> int:
        """Return how many parts a record is split into."""
        split = self._options.split
        return 1 if split is None else sum(1 for _ in split(_record(put)))


def _record(put: Put) -> Record:
    return Record(
        stream=STREAM,
        shard_id="",
        partition_key=put.key,
        data=put.data,
        sequence_number=0,
        approximate_arrival_timestamp=dt.datetime.fromtimestamp(0, dt.UTC),
    )


class History:
    """Keeps facts in their order, and checks them as they come."""

    def __init__(
        self,
        clock: Callable[[], float],
        promises: Promises,
        on_note: Callable[[float, tuple[object, ...]], None] | None = None,
    ) -> None:
        """``on_note`` hears each fact, in order, to look at a run."""
        self.promises = promises
        self.shards: dict[str, ShardStory] = {}
        self.broken: list[BrokenRule] = []
        self.deliveries = 0
        self.duplicates = 0
        self.done_again = 0
        """The number of deliveries of what a program had settled before, unless the drain was cut short."""
        self.handed_twice = 0
        """The number of deliveries of what another tenure had delivered before, unless its program put that off, or
        the drain was cut short.
        """
        self.tenures = 0
        self.seeks = 0
        """The number of seeks that a consumer has taken."""
        self.told: Counter[str] = Counter()
        """The number of events that the workers emitted, by kind."""
        self.moves: list[tuple[float, str, str | None]] = []
        """The changes of owners: the time, the lease, and its new owner."""
        self._on_note = on_note
        self._clock = clock
        self._settled_at_s: dict[str, float] = {}  # The time at which each process settled something last.
        self._left_at_s: dict[str, float] = {}  # The time at which the program of each process left its run last.
        self._came: dict[tuple[str, bytes | str], tuple[float, tuple[str, Position]]] = {}
        self._put_out: set[tuple[str, Position]] = set()
        self._transactions: dict[str, bool] = {}
        self._trace = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """The digest of the facts, which is the same for two runs that took the same steps at the same times."""
        return self._trace.hexdigest()

    def note(self, *facts: object) -> None:
        """Note a fact that two runs of one seed must have in common."""
        self._trace.update(f"{self._clock():.9f} {facts}\n".encode())
        if self._on_note is not None:
            self._on_note(self._clock(), facts)

    def fault(self, rule: str, what: str) -> None:
        """Note that a rule was broken now."""
        self.note(rule, what)
        if len(self.broken) < FAULTS_MAX:
            self.broken.append(BrokenRule(rule, self._clock(), what))

    # --- the stream -----------------------------------------------------------------------------

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
                self.fault("a start that is still to come", f"{_shown(position)} of {key} arrived before it")

    def _repeats(
        self, stream: str, record: Put, at_s: float, place: tuple[str, Position]
    ) -> tuple[str, Position] | None:
        """Return the shard and the position of the record whose duplicate this is; None: it is no duplicate."""
        promises = self.promises
        if not promises.window_s or (key := promises.key_of(record)) is None:
            return None
        before = self._came.get((stream, key))
        self._came[stream, key] = at_s, place
        return before[1] if before is not None and at_s - before[0] <= promises.window_s else None

    def _follows_start(self, story: ShardStory, position: Position) -> bool:
        """True for a duplicate of a record before the start. A worker need not know that record, so this one may be
        delivered, or left out.
        """
        twin = story.twins.get(position)
        return twin is not None and twin[1] in self.shards[twin[0]].before_start

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
        """The shards of which the retention took unsettled records, while a worker has still to say so."""
        shards = self.shards.items()
        return sorted(key for key, story in shards if story.untold is not None and not story.hides_loss)

    @property
    def settled_count(self) -> int:
        """The number of records that are settled, of all shards."""
        return sum(len(story.settled) for story in self.shards.values())

    # --- the table ------------------------------------------------------------------------------

    def row_written(self, before: LeaseRow | None, row: LeaseRow | None, kind: str) -> None:
        """Note that a write to a lease was applied. ``row`` is None where the lease was deleted."""
        key = (row or before).key  # type: ignore[union-attr]
        self.note(kind, key, None if row is None else (row.counter, row.owner, row.checkpoint.text))
        story = self.shards.get(key)
        if story is None or row is None:
            return
        self._begins(key, story, row)
        if row.actual_owner != story.owner or kind == "take":
            start_ms = row.read_until_ms if row.checkpoint.is_timed else None
            story.want_again(row.checkpoint, None if start_ms is None else start_ms / 1000)
        if row.actual_owner != story.owner:
            self._let_go(story)
            self.moves.append((self._clock(), key, row.actual_owner))
            story.owner, story.owner_counter = row.actual_owner, row.counter
        elif kind == "take":
            story.owner_counter = row.counter
        if row.actual_owner is not None:
            story.stored[row.counter] = row.checkpoint
        if story.checkpoint is None or row.checkpoint != story.checkpoint:
            self._checkpointed(key, story, row.checkpoint)

    def _let_go(self, story: ShardStory) -> None:
        """Note whether a tenure ended by the deadline of its drain, with records that the program was at work on: these
        come again, and so does what was settled behind them. A program that stood still does not count: what it had
        should have been settled in time.

        A drain waits for what was put off only as long as a caller asks for it. So the same is true where the program
        had just left its run, and no caller has taken what it put off.
        """
        drain, now_s = story.drain, self._clock()
        story.drain = None
        if now_s - self._left_at_s.get(story.tenure or "", -math.inf) <= LET_GO_S and any(
            story.delivered[one].token == story.token for one in story.put_off
        ):
            story.cut_short.add(story.token)
        if drain is None or drain.who != story.tenure:
            return
        is_late = drain.until_s - CLOCK_TICK_S <= now_s <= drain.until_s + LET_GO_S
        is_working = now_s - self._settled_at_s.get(drain.who, -math.inf) <= drain.handle_s + LET_GO_S
        if is_late and is_working and any(story.delivered[one].token == story.token for one in story.with_handler):
            story.cut_short.add(story.token)

    def _begins(self, key: str, story: ShardStory, row: LeaseRow) -> None:
        """Note where a lease begins, when its row says so for the first time."""
        if not story.born and row.checkpoint.is_timed:
            read = [one for one in story.parents if one in self.shards and self.shards[one].born]
            if read:
                self.fault("a child that loses its beginning", f"{key} is at {row.checkpoint.text} behind {read[0]}")
            if row.checkpoint == Checkpoint.LATEST:
                self._pass_over(story)
        story.born, story.passed = True, False
        if row.lacks_time and row.owner is not None:
            self.fault("an owner without a time", f"{key} is at {row.checkpoint.text}, and does not say since when")
        if story.start_s is None and row.checkpoint.is_timed and row.read_until_ms is not None:
            story.start(row.read_until_ms / 1000)

    def _pass_over(self, story: ShardStory) -> None:
        """Note that nothing is wanted of the ancestors of a shard that begins at LATEST, unless they have leases."""
        for parent in story.parents:
            found = self.shards.get(parent)
            if found is not None and not (found.born or found.passed):
                found.passed = True
                found.start(math.inf)
                self._pass_over(found)

    def _checkpointed(self, key: str, story: ShardStory, checkpoint: Checkpoint) -> None:
        known = story.checkpoint
        if known is not None and checkpoint < known:
            self.fault("a checkpoint goes back", f"{key} from {known.text} to {checkpoint.text}")
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
                self.fault("a shard that is open is stored as ended", key)
            for child in self._unborn(key):
                self.fault("an end before the children have leases", f"{key} is stored as ended, {child} has none")
        else:
            covered = 0
        if covered > done:
            first = story.positions[done]
            what = "is not settled" if not story.puts[first].is_bad else "has no dead letter"
            self.fault(
                "a checkpoint ahead of settlement" if not story.puts[first].is_bad else "settled before its letter",
                f"{key} at {_short(checkpoint)}, while {_shown(first)} {what} ({covered - done} records)",
            )

    def _unborn(self, key: str) -> list[str]:
        """Return children without a lease, of which this was the last parent: where another one has still to end, that
        one sees to it. Of a child that the retention has taken there is nothing to read.
        """
        return [
            child
            for child, story in self.shards.items()
            if key in story.parents
            and not (story.born or story.gone)
            and all(self.shards[one].over for one in story.parents)
        ]

    # --- the processes --------------------------------------------------------------------------

    def delivered(
        self, who: str, shard_id: str, token: int, positions: list[Position], parts: Sequence[int] | None, by_key: bool
    ) -> None:
        """Note that a process got a batch. ``parts``: which parts of the records, where they are split. ``by_key``:
        order is by partition key.
        """
        self.note("got", who, shard_id, token, positions[0], len(positions))
        story = self.shards[shard_id]
        self.deliveries += len(positions)
        self._check_tenure(story, who, shard_id, token)
        for parent in story.parents:
            if parent in self.shards and not self.shards[parent].over:
                self.fault("an early child", f"{who} has a record of {shard_id}, whose parent {parent} is not done")
        self._check_cool_down(story, who, shard_id, token)
        begun = story.stored.get(token)
        if begun is None:
            self.fault("a batch without a tenure", f"{who} has {shard_id} with token {token}, which no worker wrote")
            return
        key = story.puts[positions[0]].key if by_key else None
        sought = story.sought.get(token)
        for position in dict.fromkeys(positions):  # Parts of one record have one position.
            self._check_order(story, who, shard_id, token, begun, position, key)
            if sought is None:
                self._check_wanted(story, who, shard_id, position)
            elif self._has_its_twin(story, shard_id, sought, position):
                self.fault("a duplicate is delivered", f"{who} got {_shown(position)} of {shard_id} after a seek")
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
        if self._clock() < until_s and not is_sought:
            self.fault("a shard comes back in its cool-down", f"{who} gave {shard_id} up, and is handed it out")

    def _check_wanted(self, story: ShardStory, who: str, shard_id: str, position: Position) -> None:
        """Check a record of a tenure without a seek: it lies behind the start, and is no duplicate."""
        if position in story.before_start:
            self.fault("a record before the start", f"{who} got {_shown(position)} of {shard_id}")
        elif (
            position in story.left_out
            and self.promises.window_s
            and self.promises.window_waits
            and not self._follows_start(story, position)
        ):
            self.fault("a duplicate is delivered", f"{who} got {_shown(position)} of {shard_id}")

    def _has_its_twin(self, story: ShardStory, shard_id: str, sought: SoughtPlace, position: Position) -> bool:
        """True for a duplicate of a record that came since the seek: the window of duplicates begins with the seek."""
        twin = story.twins.get(position)
        if twin is None or not self.promises.window_waits:
            return False
        return twin[0] == shard_id and story.place(twin[1]) >= sought.first

    def _check_again(self, story: ShardStory, who: str, shard_id: str, one: tuple[Position, int], stint: Stint) -> None:
        """Check that a record comes again for a reason, and count it."""
        before = story.delivered.get(one)
        if before == stint:
            if story.done_in.get(one) == stint:
                self.fault("settled and delivered again", f"{who} got {_shown(one[0])} of {shard_id} in one tenure")
            elif one in story.with_handler and not self.promises.redelivers:
                self.fault("with two handlers at once", f"{who} got {_shown(one[0])} of {shard_id}, and had it")
        if before is not None:
            self.duplicates += 1
            is_asked_for = story.is_dropped(before) or (stint.seeks > 0 and before != stint)
            if not is_asked_for:  # a program may put off a duplicate that came all the same
                done = story.done_in.get(one)
                is_dropped = done is not None and (story.is_dropped(done) or (stint.seeks > 0 and done != stint))
                is_cut_short = before.token in story.cut_short
                self.done_again += one[0] in story.handled and not (is_dropped or is_cut_short)
                self.handed_twice += before.token != stint.token and one not in story.put_off and not is_cut_short
        story.put_off.discard(one)
        story.delivered[one] = stint
        story.with_handler.add(one)

    def _check_tenure(self, story: ShardStory, who: str, shard_id: str, token: int) -> None:
        if token < story.token:
            self.fault(
                "two readers",
                f"{who} gets records of {shard_id} with token {token}, after {story.tenure} was with {story.token}",
            )
        elif token > story.token:
            story.token, story.tenure = token, who
            self.tenures += 1
        elif who != story.tenure:
            self.fault("a token that does not grow", f"{who} has {shard_id} with {token}, as {story.tenure} had it")

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
            expected = _shown(positions[place]) if place < len(positions) else "nothing"
            self.fault("a gap", f"{who} got {_shown(position)} of {shard_id} where {expected} is next")
            place = found + 1
        elif sought is not None:
            if not self._may_lack(story, sought, position) or story.place(position) < sought.earliest:
                self.fault("a record of the former place", f"{who} got {_shown(position)} of {shard_id} after a seek")
        elif begun.is_position and position <= begun.position:
            self.fault("settled before", f"{who} got {_shown(position)} of {shard_id} again, behind its checkpoint")
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
            or not self.promises.parts_of(story.puts[position])
        )

    def _check_key(
        self, story: ShardStory, who: str, shard_id: str, token: int, positions: list[Position], key: str
    ) -> None:
        """Check that a record of a key is delivered only when all before it of that key are done, or given up."""
        if any(story.puts[position].key != key for position in positions):
            self.fault("a batch of several keys", f"{who} got {shard_id}")
        out = story.out.setdefault((story.stint(token), key), set())
        out -= story.settled
        if early := [one for one in out if one < positions[0] and not story.puts[one].is_bad]:
            what = f"{who} got {_shown(positions[0])} of {shard_id}, before {_shown(min(early))} of its key is done"
            self.fault("a key out of order", what)
        out.update(positions)

    def settled(
        self, who: str, shard_id: str, token: int, positions: list[Position], counts: bool,
        parts: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        """Note that a process says that positions are done, and whether the consumer says that this counts."""
        self.note("settled", who, shard_id, token, positions[0] if positions else None, len(positions), counts)
        if counts:
            self._settled_at_s[who] = self._clock()
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
        self._left_at_s[who] = self._clock()

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
            self._put_out -= {(shard_id, one) for one in story.positions[earliest:]}
        story.sought[token] = SoughtPlace(
            story.stint(token).seeks + 1, first, earliest, story.hides_loss_from(token, first, isinstance(to, Position))
        )

    def _place_at(self, story: ShardStory, at_s: float) -> int:
        return bisect_left(story.positions, at_s, key=story.arrived.__getitem__)

    # --- what becomes of records otherwise ------------------------------------------------------

    def letter_written(self, who: str, shard_id: str, position: Position, part: int | None, data: bytes | None) -> None:
        """Note that a dead letter is written."""
        self.note("dead-lettered", who, shard_id, position, part)
        story = self.shards[shard_id]
        put = story.puts[position]
        if not put.is_bad:
            self.fault("a good record is given up", f"{who}: {_shown(position)} of {shard_id} is a dead letter")
        if data != put.data:
            self.fault("a letter of another record", f"{who}: that of {_shown(position)} of {shard_id}")
        story.settle([position], None if part is None else [part])

    def put_out(self, who: str, shard_id: str, token: int, name: str, positions: list[Position]) -> bool:
        """Note a transaction with the outputs of records, under a name. Return False where it was given up before."""
        self.note("put out", who, shard_id, name, positions[0], len(positions))
        if self._transactions.setdefault(name, True) is False:
            return False
        is_asked_for = self.was_sought(shard_id, token)
        for position in positions:
            if (shard_id, position) in self._put_out and not is_asked_for:
                self.fault("put out twice", f"{who}: {_shown(position)} of {shard_id}, in two transactions")
            self._put_out.add((shard_id, position))
        self.shards[shard_id].settle(positions)
        return True

    def was_sought(self, shard_id: str, token: int) -> bool:
        """Return whether the program has sought in a tenure: then records come again that it has put out."""
        return self.shards[shard_id].stint(token).seeks > 0

    def is_put_out(self, shard_id: str, name: str, position: Position | None) -> bool:
        """Return whether a transaction was done that the former owner prepared; if not, it is given up."""
        done = self._transactions.setdefault(name, False)
        self.note("found prepared", shard_id, name, done)
        if done:
            self.shards[shard_id].resumed = position
        return done

    def gave_up(self, who: str, shard_id: str, cool_down_s: float) -> None:
        """Note that a process leaves a shard alone for ``cool_down_s``."""
        self.note("gave up", who, shard_id, cool_down_s)
        story = self.shards[shard_id]
        token = story.token if story.tenure == who else 0
        story.cooling[who] = self._clock() + cool_down_s, story.stint(token)

    def drain_waits(self, who: str, shard_id: str, left_s: float, handle_s: float) -> None:
        """Note that the drain of a shard waits for handlers, for ``left_s`` at most. ``handle_s``: the longest time
        that a handler of this process takes.
        """
        self.note("drain waits", who, shard_id, left_s)
        self.shards[shard_id].drain = DrainWait(who, self._clock() + left_s, handle_s)

    def lease_lost(self, who: str, worker_id: str, key: str, token: int) -> None:
        """Note that a process believes that another has its lease."""
        self.note("lost", who, key, token)
        story = self.shards[key]
        if story.owner == worker_id and story.owner_counter <= token:
            self.fault("a healthy owner lost its lease", f"{who} let go of {key}, which is its own since {token}")

    # --- the end --------------------------------------------------------------------------------

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
                self.fault("a lost record", f"{_shown(first)} of {one} was not settled, and is behind the checkpoint")

    def event(self, event: Any, shard_id: str | None) -> None:
        """Note an event of a worker, and the shard that it is about."""
        self.told[type(event).__name__] += 1
        if isinstance(event, CheckpointTrimmed) and not event.surely_nothing_lost:
            story = self.shards.get(shard_id or "")
            if story is not None:
                story.untold = None


def _shown(position: Position) -> str:
    return f"…{str(position.sequence_number)[-14:]}/{position.sub_sequence_number}"


def _short(checkpoint: Checkpoint) -> str:
    return _shown(checkpoint.position) if checkpoint.is_position else checkpoint.text
