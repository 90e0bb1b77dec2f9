"""A lane: the records that wait for one shard, in order, and what leaves it to be sent."""

from __future__ import annotations

from collections import deque
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from shardway.core.producer.request import Load, MakeEntry, remember
from shardway.core.producer.run import Run, fitting, note_taken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from shardway.core.aggregation.writer import Aggregator
    from shardway.core.producer.pace import AdaptiveRate
    from shardway.model import ListedShard


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
