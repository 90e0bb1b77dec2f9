"""Lanes hold what waits for each shard; it is taken from there to be sent, again if need be.

A `Lane` has what waits for one shard, in order; `Lanes` are all of a stream, and know what happens to them at a
reshard. What a lane gives out is a `Load`, with a fate of its own; a `Request` is made of loads of several lanes.
"""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardway.core.batching.chunk import Run
from shardway.core.batching.routes import Routes
from shardway.core.hashkeys import ShardMap, hash_key
from shardway.core.pacing import START_SHARE, AdaptiveRate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from random import Random

    from shardway.core.aggregation.writer import Aggregator
    from shardway.core.batching.chunk import Chunk
    from shardway.model import ListedShard

MakeEntry: TypeAlias = "Callable[[bytes, str, str | None], Any]"
"""A function of data, partition key, and explicit hash key in decimal or None, which returns an entry as the sink takes
it.
"""


class PaceLimits(NamedTuple):
    """The limits of what a shard takes, and the share of them at which a producer starts."""

    records_per_s: float = 1_000
    bytes_per_s: float = 1_048_576
    start_share: float = START_SHARE


class Failure(enum.Enum):
    """The reasons why a whole request failed, as far as they matter for what is done about it."""

    THROTTLED = "throttled"
    """The service refused the request for now; nothing was written."""
    NOT_SENT = "not sent"
    """The request never reached the service; nothing was written."""
    UNKNOWN = "unknown"
    """The request may have been written, or some of it: no whole answer came, or a 5xx."""
    INVALID = "invalid"
    """Something in the request is wrong, and it will be wrong again."""
    DENIED = "denied"
    """There is no such stream, no permission, or no credentials: a person has to mend that."""


class Load:
    """Entries for one shard: one aggregate with many user records, or user records each as an entry of its own."""

    __slots__ = (
        "alone",
        "attempts",
        "data_bytes",
        "doubtful",
        "entries",
        "is_aggregate",
        "lane",
        "not_before_s",
        "payload_bytes",
        "reason",
        "runs",
        "user_records",
    )

    def __init__(
        self,
        lane: Lane,
        runs: list[Run],
        entries: list[Any],
        payload_bytes: int,
        *,
        is_aggregate: bool,
        data_bytes: int = 0,
    ) -> None:
        self.lane = lane
        self.runs = runs
        self.entries = entries
        self.payload_bytes = payload_bytes
        """The bytes of data and partition keys of the entries, as the service counts them."""
        self.data_bytes = data_bytes
        """The data bytes of an aggregate's user records."""
        self.is_aggregate = is_aggregate
        """True if the one entry stands for all user records."""
        self.user_records = sum(map(len, runs))
        self.attempts = 0
        self.doubtful = False
        self.not_before_s = 0.0
        """The time before which the load is not sent again."""
        self.alone = False
        """True if the load has to be a request of its own, because it may be what spoilt one."""
        self.reason = ""
        """The reason for which the last attempt failed."""

    def history_of(self, run: Run) -> tuple[int, bool]:
        """Return how many requests carried one of the load's runs in all, and whether one of them may have
        written it.
        """
        return run.attempts + self.attempts, run.doubtful or self.doubtful

    def as_runs(self) -> Iterator[Run]:
        """Iterate over the load's records as runs that remember what they went through."""
        for run in self.runs:
            attempts, doubtful = self.history_of(run)
            again = run.next(len(run))
            again.attempts, again.doubtful, again.reason = attempts, doubtful, self.reason
            yield again

    def chosen(self, places: Sequence[int]) -> list[Run]:
        """Return the user records at these places (rising), as runs again."""
        return chosen_runs(self.runs, places)


class Request:
    """One PutRecords call."""

    __slots__ = ("entries", "loads", "payload_bytes", "sent_at_s", "user_records")

    def __init__(self, sent_at_s: float) -> None:
        self.loads: list[Load] = []
        self.entries: list[Any] = []
        self.payload_bytes = 0
        self.user_records = 0
        self.sent_at_s = sent_at_s

    def add(self, load: Load) -> None:
        """Put a load in."""
        self.loads.append(load)
        self.entries += load.entries
        self.payload_bytes += load.payload_bytes
        self.user_records += load.user_records
        load.attempts += 1


def chosen_runs(runs: Iterable[Run], places: Sequence[int]) -> list[Run]:
    """Return the user records at these places (rising) of runs that nothing was taken off, as runs again."""
    chosen, start, position = [], 0, 0
    for run in runs:
        stop = start + len(run.keys)
        ours = []
        while position < len(places) and places[position] < stop:
            ours.append(places[position] - start)
            position += 1
        if ours:
            chosen.append(run.only(ours))
        start = stop
    return chosen


class Lane:
    """The records that are predicted to go to one shard; ``shard`` is None where that can't be predicted.

    ``runs`` have not been sent since they came here. ``retry`` has loads that were sent: each goes again as it was
    built, and first.
    """

    __slots__ = (
        "behind",
        "busy",
        "held",
        "in_flight",
        "looked_at",
        "make_entry",
        "mixed",
        "pace",
        "ready",
        "retry",
        "runs",
        "shard",
        "taken",
        "unmade",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, shard: ListedShard | None, pace: AdaptiveRate | None, make_entry: MakeEntry) -> None:
        self.shard = shard
        self.pace = pace
        self.make_entry = make_entry
        self.runs: deque[Run] = deque()
        self.mixed = False
        """True if what waits may not expire in its order: times to live differ, or a reshard put runs together."""
        self.waiting = 0
        """The number of user records in ``runs``, and of the first records of each key in ``ready``."""
        self.waiting_bytes = 0.0
        """The bytes of their data and keys, by estimate."""
        self.taken: list[Run] = []
        """The runs that a load is being made of: they are added here before they are taken off elsewhere."""
        self.unmade: list[tuple[Run, Exception]] = []
        """The records that were taken, but of which the sink makes no entry: the caller gives them their outcome."""
        self.retry: deque[Load] = deque()
        self.in_flight = 0
        """The number of loads that were sent and have no outcome."""
        self.behind: set[Lane] = set()
        """The lanes of former shards whose loads must have their outcome first: with order by key, after a reshard."""
        self.busy: set[str] = set()
        """The keys of which a record is on its way: with order by key and no aggregation."""
        self.looked_at = 0
        """The number of records that the last ``take_by_key`` looked at."""
        self.held: dict[str, deque[Run]] = {}
        """The further records of the keys in ``busy``, one a run: all that were found before those of the key in
        ``runs``.
        """
        self.ready: dict[str, None] = {}
        """The keys in ``held`` of which no record is on its way any more: their first may go, and before what is in
        ``runs``.
        """

    @property
    def shard_id(self) -> str | None:
        """The shard's id, if it is known."""
        return None if self.shard is None else self.shard.shard_id

    @property
    def idle(self) -> bool:
        """True if there is nothing to send."""
        return not self.runs and not self.retry and not self.ready

    def add(self, run: Run, *, first: bool = False) -> None:
        """Queue a run, at the end, or before all others."""
        runs, expires_at_s = self.runs, run.chunk.expires_at_s
        if not runs:
            self.mixed = self.mixed and bool(self.held)
        elif expires_at_s > runs[0].chunk.expires_at_s if first else expires_at_s < runs[-1].chunk.expires_at_s:
            self.mixed = True
        if first:
            runs.appendleft(run)
        else:
            runs.append(run)
        self._count(run)

    def everything(self) -> Iterator[Run]:
        """Iterate over all runs that are here, in the order of each key."""
        for load in self.retry:
            yield from load.runs
        for queue in self.held.values():
            yield from queue
        yield from self.runs

    def wherever(self) -> Iterator[Run]:
        """Iterate over every run that is here, also in the middle of a step, with what it went through; some come
        twice.
        """
        for load in self.retry:
            yield from load.as_runs()
        for queue in (*self.held.values(), self.runs, self.taken):
            yield from queue

    def clear(self) -> list[Run]:
        """Take everything out, in the order of each key. ``retry`` comes as runs that remember their attempts."""
        for load in self.retry:
            remember(load, *load.runs)
            for run in load.runs:
                self.busy.difference_update(run.keys)
        runs = list(self.everything())
        self.retry.clear()
        self.held.clear()
        self.ready.clear()
        self.runs.clear()
        self.waiting, self.waiting_bytes = 0, 0.0
        return runs

    def start_over(self) -> None:
        """Forget all records, also those on their way."""
        self.runs, self.retry, self.held, self.ready, self.taken = deque(), deque(), {}, {}, []
        self.busy, self.mixed, self.unmade = set(), False, []
        self.waiting, self.waiting_bytes, self.in_flight = 0, 0.0, 0

    def may_expire(self, now_s: float) -> bool:
        """False if no time to live has passed here."""
        queues = (*self.held.values(), self.runs)
        some = self.everything() if self.mixed else [queue[0] for queue in queues if queue]
        return any(run.chunk.expires_at_s <= now_s for run in some) or any(
            run.chunk.expires_at_s <= now_s for load in self.retry for run in load.runs
        )

    def expire(self, now_s: float) -> list[Run]:
        """Remove and return the runs whose time to live has passed."""

        def wanted(run: Run) -> bool:
            return run.chunk.expires_at_s > now_s

        gone: list[Run] = []
        for load in [load for load in reversed(self.retry) if not all(map(wanted, load.runs))]:
            if load.is_aggregate:
                self.take_apart(load)
            else:
                gone += self._shorten(load, wanted)
        waiting: list[Run] = []
        while self.runs and not wanted(self.runs[0]):
            waiting.append(self.runs.popleft())
        if self.mixed:
            waiting += [run for run in self.runs if not wanted(run)]
            self.runs = deque(run for run in self.runs if wanted(run))
        for run in waiting:
            self._took(run, len(run))
        return gone + waiting + self._keep_held(wanted)

    def _keep_held(self, wanted: Callable[[Run], bool]) -> list[Run]:
        gone: list[Run] = []
        for key, queue in list(self.held.items()):
            if wanted(queue[0]) and (not self.mixed or all(map(wanted, queue))):
                continue
            gone += [run for run in queue if not wanted(run)]
            if key in self.ready:
                self._took(queue[0], len(queue[0]))
            self._hold(key, deque(run for run in queue if wanted(run)))
        return gone

    def drop_withdrawn(self) -> None:
        """Let go of what was withdrawn, before its turn comes."""
        for run in self.runs:
            self._drop_withdrawn(run)
        self.runs = deque(run for run in self.runs if len(run))
        for key, queue in list(self.held.items()):
            if key in self.ready:
                self._took(queue[0], len(queue[0]))
            for run in queue:
                run.without_withdrawn()
            self._hold(key, deque(run for run in queue if len(run)))

    def stretch(self, key: str | None, start: int, records_max: int, run_work: int) -> list[Run]:
        """Return some of the runs that were not sent, from a place of the queue on: those of a key that is held, or
        (None) the others. Each run counts for ``run_work`` records, beside its own. An empty list says that the queue
        ends here.
        """
        queue = self.runs if key is None else self.held.get(key, ())
        found: list[Run] = []
        work = 0
        for run in islice(queue, start, None):
            found.append(run)
            work += run_work + len(run.keys)
            if work >= records_max:
                break
        return found

    def leave_out(self, key: str | None, start: int, part: Sequence[Run], gone: Collection[Run]) -> None:
        """Let go of some runs of a stretch that begins at this place."""
        queue = self.runs if key is None else self.held[key]
        if key is None:
            for run in gone:
                self._took(run, len(run))
        elif key in self.ready:
            self._took(queue[0], len(queue[0]))
        if not start and len(gone) == len(part):
            for _ in part:
                queue.popleft()
        else:
            kept = [run for run in part if run not in gone]
            queue = deque((*islice(queue, start), *kept, *islice(queue, start + len(part), None)))
        if key is None:
            self.runs = queue
        else:
            self._hold(key, queue)

    def _hold(self, key: str, queue: deque[Run]) -> None:
        """Keep these as the further records of a key; the first of a key that is ready is not counted yet."""
        if queue:
            self.held[key] = queue
            if key in self.ready:
                self._count(queue[0])
        else:
            del self.held[key]
            self.ready.pop(key, None)

    def take_apart(self, load: Load) -> None:
        """Turn an aggregate that waits to be sent again into runs at the front."""
        self.retry.remove(load)
        remember(load, *load.runs)
        for run in reversed(load.runs):
            self.add(run, first=True)

    def _shorten(self, load: Load, wanted: Callable[[Run], bool]) -> list[Run]:
        gone: list[Run] = []
        left: list[Run] = []
        entries: list[Any] = []
        start = 0
        for run in load.runs:
            stop = start + len(run)
            (left if wanted(run) else gone).append(run)
            if wanted(run):
                entries += load.entries[start:stop]
            start = stop
        at = self.retry.index(load)
        if left:
            self.retry.insert(at, self.part_of(load, left, entries))
        self.retry.remove(load)
        for run in gone:
            remember(load, run)
            self.release(run.keys)
        return gone

    def take_aggregate(self, aggregator: Aggregator) -> Load | None:
        """Return as many records as one aggregate holds, as a load."""
        taken = self._take_anew()
        while self.runs:
            run = self.runs[0]
            self._drop_withdrawn(run)
            count, is_full = run.add_to(aggregator)
            if count:
                self._took(run, count)
                taken.append(run.next(count))
                run.at += count
            if is_full:
                break
            if not len(run):
                self.runs.popleft()
        data_bytes = aggregator.data_bytes
        container = aggregator.finish()
        if container is None:
            return None
        note_taken(taken)
        columns = container.data, container.partition_key, str(container.explicit_hash_key)
        try:
            entry = self.make_entry(*columns)
        except Exception:
            try:
                self.make_entry(*columns)
            except Exception as again:
                self.unmade += [(run, again) for run in taken]
                return None
            raise  # A signal handler raised: it was no record's fault.
        payload_bytes = len(container.data) + len(container.partition_key.encode())
        return Load(self, taken, [entry], payload_bytes, is_aggregate=True, data_bytes=data_bytes)

    def take_plain(self, records_max: int, bytes_max: int, *, first_any: bool) -> Load | None:
        """Return records that each become an entry, within both bounds; with ``first_any`` the first may be of any
        size.
        """
        taken = self._take_anew()
        total_bytes = 0
        while self.runs and records_max:
            run = self.runs[0]
            self._drop_withdrawn(run)
            count, payload_bytes = fitting(run, records_max, bytes_max - total_bytes)
            if first_any and not (count or taken) and len(run):
                count, payload_bytes = 1, run.record_bytes(run.at)
            if count:
                self._took(run, count)
                taken.append(run.next(count))
                run.at += count
                records_max -= count
                total_bytes += payload_bytes
            if len(run):
                break
            self.runs.popleft()
        note_taken(taken)
        return self._plain_load(taken, total_bytes)

    def take_by_key(self, records_max: int, bytes_max: int, *, first_any: bool, looks_max: int) -> Load | None:
        """Return what ``take_plain`` would, but no record whose key is on its way, and each key once. At most
        ``looks_max`` records of ``runs`` are looked at, and set aside where their key is on its way: ``looked_at`` says
        how many.
        """
        self.looked_at = 0
        taken, total_bytes = self._take_ready(records_max, bytes_max, first_any=first_any)
        records_max -= len(taken)
        while self.runs and records_max and not self.ready and self.looked_at < looks_max:
            run = self.runs[0]
            self._drop_withdrawn(run)
            places: list[int] = []
            stop = min(len(run.keys), run.at + looks_max - self.looked_at)
            for place in range(run.at, stop):
                key = run.keys[place]
                if key in self.busy:
                    queue = self.held.setdefault(key, deque())
                    if queue and queue[-1].chunk.expires_at_s > run.chunk.expires_at_s:
                        self.mixed = True
                    queue.append(run.only((place,)))
                    continue
                payload_bytes = run.record_bytes(place)
                fits = total_bytes + payload_bytes <= bytes_max or (first_any and not total_bytes)
                if not records_max or not fits:
                    break
                places.append(place)
                self.busy.add(key)
                records_max -= 1
                total_bytes += payload_bytes
            else:
                place = stop
            self.looked_at += place - run.at
            self._took(run, place - run.at)
            if places:
                taken.append(run.only(places))
            if place < len(run.keys):
                run.at = place
                break
            self.runs.popleft()
        note_taken(taken)
        return self._plain_load(taken, total_bytes)

    def _take_ready(self, records_max: int, bytes_max: int, *, first_any: bool) -> tuple[list[Run], int]:
        """Return the first record of each key that may go, within both bounds; and their bytes."""
        taken = self._take_anew()
        total_bytes = 0
        while self.ready and len(taken) < records_max:
            key = next(iter(self.ready))
            queue = self.held[key]
            run = queue[0]
            self._drop_withdrawn(run)
            if len(run):
                payload_bytes = run.record_bytes(0)
                if total_bytes + payload_bytes > bytes_max and not (first_any and not taken):
                    break
                self._took(run, 1)
                taken.append(run)
                total_bytes += payload_bytes
                self.busy.add(key)
            queue.popleft()
            if len(run) or not queue:
                del self.ready[key]
            else:
                self._count(queue[0])  # The record before it was withdrawn.
            if not queue:
                del self.held[key]
        return taken, total_bytes

    def release(self, keys: Sequence[str]) -> None:
        """Let the next record of each of these keys go: the records before have their outcome."""
        for key in keys:
            self.busy.discard(key)
            if key in self.held and key not in self.ready:
                self.ready[key] = None
                self._count(self.held[key][0])

    def next_bytes(self) -> int:
        """Return the size of the next record as an entry; 0 if all that waited was withdrawn."""
        if self.ready:
            run = self.held[next(iter(self.ready))][0]
            return run.record_bytes(run.at) if len(run) else 0
        while self.runs:
            run = self.runs[0]
            self._drop_withdrawn(run)  # Otherwise the record behind it, which may be large, goes for a small one.
            if len(run):
                return run.record_bytes(run.at)
            self.runs.popleft()
        return 0

    def part_of(self, load: Load, runs: list[Run], entries: list[Any]) -> Load:
        """Return some records of a load that was sent, each an entry, as a load that went through the same."""
        payload_bytes = sum(run.payload_bytes() for run in runs)
        part = Load(self, runs, entries, payload_bytes, is_aggregate=False)
        part.attempts, part.doubtful = load.attempts, load.doubtful
        part.not_before_s, part.alone, part.reason = load.not_before_s, load.alone, load.reason
        return part

    def _plain_load(self, runs: list[Run], payload_bytes: int) -> Load | None:
        """Return a load of records that each are an entry."""
        entries: list[Any] = []
        try:
            for run in runs:
                entries += self._entries(run)
        except Exception as error:
            runs, entries = self._one_by_one(runs)
            if not self.unmade:  # It was no record's fault then.
                raise error from None
            payload_bytes = sum(run.payload_bytes() for run in runs)
        return Load(self, runs, entries, payload_bytes, is_aggregate=False) if entries else None

    def _entries(self, run: Run) -> Iterator[Any]:
        if run.chunk.hash_keys is None:
            return map(self.make_entry, run.datas, run.keys, repeat(None))
        hash_keys = (None if hash_key is None else str(hash_key) for hash_key in run.hash_keys())
        return map(self.make_entry, run.datas, run.keys, hash_keys)

    def _one_by_one(self, runs: Iterable[Run]) -> tuple[list[Run], list[Any]]:
        """Return the runs without those records of which the sink makes no entry, and the entries."""
        left: list[Run] = []
        entries: list[Any] = []
        for run in runs:
            good: list[int] = []
            for place in range(len(run.keys)):
                one = run.only((place,))
                try:
                    made = list(self._entries(one))
                except Exception:
                    try:
                        made = list(self._entries(one))  # A signal handler may have raised: it does so once.
                    except Exception as again:
                        self.unmade.append((one, again))
                        continue
                entries += made
                good.append(place)
            if good:
                left.append(run.only(good))
        return left, entries

    def _take_anew(self) -> list[Run]:
        self.taken = []
        return self.taken

    def _count(self, run: Run) -> None:
        self.waiting += len(run)
        self.waiting_bytes += len(run) * run.chunk.mean_payload_bytes

    def _took(self, run: Run, count: int) -> None:
        self.waiting -= count
        self.waiting_bytes = self.waiting_bytes - count * run.chunk.mean_payload_bytes if self.waiting else 0.0

    def _drop_withdrawn(self, run: Run) -> None:
        if run.chunk.withdrawn:
            self._took(run, run.without_withdrawn())


def remember(load: Load, *runs: Run) -> None:
    """Note in runs of a load what it went through, before it is taken apart."""
    for run in runs:
        run.attempts += load.attempts
        run.doubtful = run.doubtful or load.doubtful
        run.reason = load.reason


def note_taken(runs: Sequence[Run]) -> None:
    """Count in their chunks the records that go out for the first time."""
    for run in runs:
        if not run.attempts:
            run.chunk.taken += len(run)


def fitting(run: Run, records_max: int, bytes_max: int) -> tuple[int, int]:
    """Return how many of a run's next records stay within both bounds, and their bytes."""
    count = min(len(run), records_max)
    start, stop = run.at, run.at + count
    keys = "".join(run.keys[start:stop])
    total = sum(map(len, run.datas[start:stop])) + (len(keys) if keys.isascii() else len(keys.encode()))
    if total <= bytes_max:
        return count, total
    total = 0
    for place in range(start, stop):
        payload_bytes = run.record_bytes(place)
        if total + payload_bytes > bytes_max:
            return place - start, total
        total += payload_bytes
    return count, total


class Lanes:
    """Lanes by shard. Until the shards are known (or known to be unknowable) everything waits in ``elsewhere``."""

    def __init__(self, make_entry: MakeEntry, pace: PaceLimits | None, rng: Random, *, ordered: bool) -> None:
        self._make_entry = make_entry
        self._pace = pace
        self._rng = rng
        self._ordered = ordered
        self._by_shard: dict[str, Lane] = {}
        self._shards: dict[str, ListedShard] = {}
        self._draining: set[Lane] = set()
        self.leaving: list[Lane] = []
        """The lanes of former shards whose records are being put into others, from ``moving``."""
        self.moving: list[Run] = []
        """The runs that are on their way out of a lane, to another one or to their outcome."""
        self.elsewhere = Lane(None, None, make_entry)
        """The lane for keys that no shard is known for."""
        self.routes = Routes(None, (), self.elsewhere)
        self.known = False
        """False while the first shard map is waited for: nothing is sent."""
        self.active: dict[Lane, None] = {}
        """The lanes that may have something to send, the one whose turn it is first."""

    def __iter__(self) -> Iterator[Lane]:
        """Iterate over all lanes, also those of former shards that still have loads on their way."""
        yield self.elsewhere
        yield from self._by_shard.values()
        yield from self._draining

    def add(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes]) -> None:
        """Queue the records of a chunk, whose partition keys were checked."""
        self._spread(Run(chunk, keys, datas, range(len(keys))), first=False)

    def put_again(self, runs: Iterable[Run], *, first: bool) -> None:
        """Queue runs again, each record where the map says now; with ``first``, before what waits there."""
        for run in reversed(list(runs)) if first else runs:
            run.without_withdrawn()
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
        routes = Routes(found, [by_shard[shard.shard_id] for shard in listed], self.elsewhere)
        gone = [lane for shard_id, lane in before.items() if shard_id not in by_shard]
        # No call stands between these: all are done, or none is.
        self.leaving = gone
        self._shards, self._by_shard, self.routes, self.known = shards_now, by_shard, routes, True
        came = tuple(shard_id for shard_id in self._by_shard if shard_id not in before)
        went = tuple(shard_id for shard_id in before if shard_id not in self._by_shard)
        if found is not None:
            # What went without a prediction until now is behind the lanes of the map.
            gone.append(self.elsewhere)
            fresh = Lane(None, None, self._make_entry)
            self.elsewhere = self.routes.lanes[-1] = fresh
        for lane in gone:
            self.active.pop(lane, None)
            if lane.in_flight:
                self._draining.add(lane)
        if self._ordered:
            self._stay_behind()
        for lane in gone:
            self.moving = list(lane.everything())
            self.put_again(lane.clear(), first=False)
        self.moving, self.leaving = [], []
        return came, went

    def wherever(self) -> Iterator[Run]:
        """Iterate over every run that some lane has, also in the middle of a step; some come twice."""
        for lane in {*self, *self.leaving, *self.routes.lanes}:
            yield from lane.wherever()
        yield from self.moving

    def start_over(self, sent: Sequence[Load]) -> None:
        """Forget all records but those of the loads on their way."""
        for lane in {*self, *self.leaving, *self.routes.lanes, *(load.lane for load in sent)}:
            lane.start_over()
        self.active.clear()
        self.moving, self.leaving = [], []
        for load in sent:
            load.lane.in_flight += 1
            if self._ordered and not load.is_aggregate:
                load.lane.busy.update(key for run in load.runs for key in run.keys)
        self.elsewhere = self.routes.lanes[-1]
        self._draining = {load.lane for load in sent if self.is_gone(load.lane)}
        for lane in self:
            lane.behind &= self._draining
        if self._ordered:
            self._stay_behind()

    def came_back(self, lane: Lane) -> None:
        """Note that a load of this lane has its outcome."""
        lane.in_flight -= 1
        if not lane.in_flight and lane in self._draining:
            self._draining.discard(lane)
            for other in (*self._by_shard.values(), self.elsewhere):
                if lane in other.behind:
                    other.behind.discard(lane)
                    self.wake(other)
        if not lane.idle:
            self.wake(lane)

    def is_gone(self, lane: Lane) -> bool:
        """True if the lane's shard takes no more records."""
        return lane is not self.elsewhere and self._by_shard.get(lane.shard_id or "") is not lane

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

    def _stay_behind(self) -> None:
        for lane in (*self._by_shard.values(), self.elsewhere):
            for former in self._draining:
                if former.shard is None or lane.shard is None or _overlap(lane.shard, former.shard):
                    lane.behind.add(former)

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
            lanes[number].add(run.only(ours), first=first)
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


def _overlap(one: ListedShard, other: ListedShard) -> bool:
    return one.first_hash_key <= other.last_hash_key and other.first_hash_key <= one.last_hash_key
