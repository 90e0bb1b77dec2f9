"""The lanes of a stream: one for each shard, and what happens to them at a reshard."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from shardway.core.hashkeys import ShardMap, hash_key
from shardway.core.producer.lane import Lane
from shardway.core.producer.pace import AdaptiveRate
from shardway.core.producer.routes import Routes
from shardway.core.producer.run import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from random import Random

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.limits import PaceLimits
    from shardway.core.producer.request import Load, MakeEntry
    from shardway.model import ListedShard


class Lanes:
    """Lanes by shard. Until the shards are known (or known to be unknowable) everything waits in ``unmapped``."""

    def __init__(self, make_entry: MakeEntry, pace: PaceLimits | None, rng: Random, *, ordered: bool) -> None:
        self._make_entry = make_entry
        self._pace = pace
        self._rng = rng
        self._is_ordered = ordered
        self._by_shard: dict[str, Lane] = {}
        self._shards: dict[str, ListedShard] = {}
        self._draining_lanes: set[Lane] = set()
        self.leaving_lanes: list[Lane] = []
        """The lanes of former shards whose records are being put into others, from ``moving_runs``."""
        self.moving_runs: list[Run] = []
        """The runs that are on their way out of a lane, to another one or to their outcome."""
        self.unmapped = Lane(None, None, make_entry)
        """The lane for keys that no shard is known for."""
        self.routes = Routes(None, (), self.unmapped)
        self.known = False
        """False while the first shard map is waited for: nothing is sent."""
        self.active: dict[Lane, None] = {}
        """The lanes that may have something to send, the one whose turn it is first."""

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes, also those of former shards that still have loads on their way."""
        yield self.unmapped
        yield from self._by_shard.values()
        yield from self._draining_lanes

    def add(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes]) -> None:
        """Queue the records of a chunk, whose partition keys were checked."""
        self._spread(Run(chunk, keys, datas, range(len(keys))), first=False)

    def requeue(self, runs: Iterable[Run], *, first: bool) -> None:
        """Queue runs again, each record where the map says now; with ``first``, before what waits there."""
        for run in reversed(list(runs)) if first else runs:
            run.drop_withdrawn()
            self._spread(run.next(len(run)), first=first)
            run.at = len(run.datas)  # It is set afterwards: after a signal handler's error the run is still here.

    def wake(self, lane: Lane) -> None:
        """Note that a lane may have something to send."""
        self.active.setdefault(lane)

    def shard(self, shard_id: str) -> ListedShard | None:
        """Return a shard that takes records, if it is known."""
        return self._shards.get(shard_id)

    def may_come(self, shard_id: str) -> bool:
        """True if a later listing may show this shard, which is not known: ids rise, so an older one is closed."""
        return bool(self._shards) and shard_id > max(self._shards)

    def set_shards(self, shards: Iterable[ListedShard] | None, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Follow a new listing; None if there is none to be had, or if partition keys do not choose the shard.

        What waits for shards that are gone is queued for those that took their place. Returns the shards that came
        and those that went. Raises ValueError if open shards overlap; then nothing was changed.
        """
        found = None if shards is None else ShardMap(shards)
        listed = () if found is None else found.shards
        before = self._by_shard
        shards_now = {shard.shard_id: shard for shard in listed}
        by_shard = {shard.shard_id: before.get(shard.shard_id) or self._lane_of(shard, now_s) for shard in listed}
        routes = Routes(found, [by_shard[shard.shard_id] for shard in listed], self.unmapped)
        former = [lane for shard_id, lane in before.items() if shard_id not in by_shard]
        # No call stands between these: all are done, or none is.
        self.leaving_lanes = former
        self._shards, self._by_shard, self.routes, self.known = shards_now, by_shard, routes, True
        came = tuple(shard_id for shard_id in self._by_shard if shard_id not in before)
        went = tuple(shard_id for shard_id in before if shard_id not in self._by_shard)
        if found is not None:
            # What went without a prediction until now is behind the lanes of the map.
            former.append(self.unmapped)
            fresh = Lane(None, None, self._make_entry)
            self.unmapped = self.routes.lanes[-1] = fresh
        for lane in former:
            self.active.pop(lane, None)
            if lane.in_flight:
                self._draining_lanes.add(lane)
        if self._is_ordered:
            self._set_predecessors()
        for lane in former:
            self.moving_runs = list(lane.all_runs())
            self.requeue(lane.clear(), first=False)
        self.moving_runs, self.leaving_lanes = [], []
        return came, went

    def runs_in_doubt(self) -> Iterator[Run]:
        """Iterate over every run that some lane has, also in the middle of a step; some come twice."""
        for lane in {*self, *self.leaving_lanes, *self.routes.lanes}:
            yield from lane.runs_in_doubt()
        yield from self.moving_runs

    def start_over(self, sent: Sequence[Load]) -> None:
        """Forget all records but those of the loads on their way."""
        for lane in {*self, *self.leaving_lanes, *self.routes.lanes, *(load.lane for load in sent)}:
            lane.start_over()
        self.active.clear()
        self.moving_runs, self.leaving_lanes = [], []
        for load in sent:
            load.lane.in_flight += 1
            if self._is_ordered and not load.is_aggregate:
                load.lane.busy.update(key for run in load.runs for key in run.keys)
        self.unmapped = self.routes.lanes[-1]
        self._draining_lanes = {load.lane for load in sent if self.is_former(load.lane)}
        for lane in self:
            lane.predecessors &= self._draining_lanes
        if self._is_ordered:
            self._set_predecessors()

    def end_load(self, lane: Lane) -> None:
        """Note that a load of this lane has its outcome."""
        lane.in_flight -= 1
        if not lane.in_flight and lane in self._draining_lanes:
            self._draining_lanes.discard(lane)
            for other in (*self._by_shard.values(), self.unmapped):
                if lane in other.predecessors:
                    other.predecessors.discard(lane)
                    self.wake(other)
        if not lane.idle:
            self.wake(lane)

    def is_former(self, lane: Lane) -> bool:
        """True if the lane's shard takes no more records."""
        return lane is not self.unmapped and self._by_shard.get(lane.shard_id or "") is not lane

    def _lane_of(self, shard: ListedShard, now_s: float) -> Lane:
        pace = None
        if (limits := self._pace) is not None:
            pace = AdaptiveRate(
                records_per_s=limits.records_per_s,
                bytes_per_s=limits.bytes_per_s,
                share=limits.start_share,
                now_s=now_s,
                rng=self._rng,
            )
        return Lane(shard, pace, self._make_entry)

    def _set_predecessors(self) -> None:
        for lane in (*self._by_shard.values(), self.unmapped):
            for former in self._draining_lanes:
                if former.shard is None or lane.shard is None or _overlaps(lane.shard, former.shard):
                    lane.predecessors.add(former)

    def _spread(self, run: Run, *, first: bool) -> None:
        """Give each lane its part of a run."""
        if not run.keys:
            return
        numbers: Sequence[int]
        if run.chunk.hash_keys is None:
            numbers = self.routes.numbers(run.keys)
        else:
            both = zip(run.keys, run.hash_keys(), strict=True)
            numbers = [self.routes.number_for(key, explicit) for key, explicit in both]
        lanes = self.routes.lanes
        if numbers[0] == numbers[-1] and numbers.count(numbers[0]) == len(numbers):
            lanes[numbers[0]].add(run, first=first)
            self.wake(lanes[numbers[0]])
            return
        for number, ours in _places(numbers, len(lanes)):
            lanes[number].add(run.pick(ours), first=first)
            self.wake(lanes[number])


def holds_all(shard: ListedShard, runs: Iterable[Run]) -> bool:
    """True if all these records' hash keys lie in the shard's range, as the KCL asks of an aggregate."""
    return all(
        shard.holds(hash_key(key) if explicit is None else explicit)
        for run in runs
        for key, explicit in zip(run.keys, run.hash_keys(), strict=True)
    )


def _places(numbers: Sequence[int], lane_count: int) -> Iterable[tuple[int, list[int]]]:
    """Return where each of these numbers of lanes stands."""
    if len(numbers) < lane_count:
        some: defaultdict[int, list[int]] = defaultdict(list)
        for place, number in enumerate(numbers):
            some[number].append(place)
        return some.items()
    # Each record passes here, so what is the same for all is looked up once.
    places: list[list[int]] = [[] for _ in range(lane_count)]
    append_to = [one.append for one in places]
    for place, number in enumerate(numbers):
        append_to[number](place)
    return [(number, ours) for number, ours in enumerate(places) if ours]


def _overlaps(one: ListedShard, other: ListedShard) -> bool:
    return one.first_hash_key <= other.last_hash_key and other.first_hash_key <= one.last_hash_key
