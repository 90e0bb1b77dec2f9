"""A lane: the records that wait for one shard, in order, with the loads that go again."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from shardway.core.producer.request import Load, MakeEntry, note_history

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from shardway.core.producer.pace import AdaptiveRate
    from shardway.core.producer.run import Run
    from shardway.model import ListedShard


class Lane:
    """The records that are predicted to go to one shard; ``shard`` is None where that can't be predicted.

    ``runs`` have not been sent since they came here. ``retry`` has loads that were sent: each goes again as it was
    built, and first.
    """

    __slots__ = (
        "busy",
        "expiry_mixed",
        "held",
        "in_flight",
        "make_entry",
        "pace",
        "predecessors",
        "ready",
        "records_examined",
        "rejected",
        "retry",
        "runs",
        "shard",
        "taken",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, shard: ListedShard | None, pace: AdaptiveRate | None, make_entry: MakeEntry) -> None:
        self.shard = shard
        self.pace = pace
        self.make_entry = make_entry
        self.runs: deque[Run] = deque()
        self.expiry_mixed = False
        """True if what waits may not expire in its order: times to live differ, or a reshard put runs together."""
        self.waiting = 0
        """The number of user records in ``runs``, and of the first records of each key in ``ready``."""
        self.waiting_bytes = 0.0
        """The bytes of their data and keys, by estimate."""
        self.taken: list[Run] = []
        """The runs that a load is being made of: they are added here before they are taken off elsewhere."""
        self.rejected: list[tuple[Run, Exception]] = []
        """Records that were taken, and that the sink makes no entry of: the caller gives them their outcome."""
        self.retry: deque[Load] = deque()
        self.in_flight = 0
        """The number of loads that were sent and have no outcome."""
        self.predecessors: set[Lane] = set()
        """The lanes of former shards whose loads must have their outcome first: with order by key, after a reshard."""
        self.busy: set[str] = set()
        """The keys that have a record on its way: with order by key and no aggregation."""
        self.records_examined = 0
        """The number of records that the last ``plain_load_by_key`` examined."""
        self.held: dict[str, deque[Run]] = {}
        """The further records of the keys in ``busy``, one a run: all that were found before those of the key in
        ``runs``.
        """
        self.ready: dict[str, None] = {}
        """The keys in ``held`` that have no record on its way any more. Their first record may go, before what is in
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
            self.expiry_mixed = self.expiry_mixed and bool(self.held)
        elif expires_at_s > runs[0].chunk.expires_at_s if first else expires_at_s < runs[-1].chunk.expires_at_s:
            self.expiry_mixed = True
        if first:
            runs.appendleft(run)
        else:
            runs.append(run)
        self.count(run)

    def all_runs(self) -> Iterator[Run]:
        """Iterate over all runs that are here, in the order of each key."""
        for load in self.retry:
            yield from load.runs
        for queue in self.held.values():
            yield from queue
        yield from self.runs

    def runs_in_doubt(self) -> Iterator[Run]:
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
            note_history(load, *load.runs)
            for run in load.runs:
                self.busy.difference_update(run.keys)
        runs = list(self.all_runs())
        self.retry.clear()
        self.held.clear()
        self.ready.clear()
        self.runs.clear()
        self.waiting, self.waiting_bytes = 0, 0.0
        return runs

    def start_over(self) -> None:
        """Forget all records, also those on their way."""
        self.runs, self.retry, self.held, self.ready, self.taken = deque(), deque(), {}, {}, []
        self.busy, self.expiry_mixed, self.rejected = set(), False, []
        self.waiting, self.waiting_bytes, self.in_flight = 0, 0.0, 0

    def may_expire(self, now_s: float) -> bool:
        """False if no time to live has passed here."""
        queues = (*self.held.values(), self.runs)
        some = self.all_runs() if self.expiry_mixed else [queue[0] for queue in queues if queue]
        return any(run.chunk.expires_at_s <= now_s for run in some) or any(
            run.chunk.expires_at_s <= now_s for load in self.retry for run in load.runs
        )

    def expire(self, now_s: float) -> list[Run]:
        """Remove and return the runs whose time to live has passed."""

        def is_alive(run: Run) -> bool:
            return run.chunk.expires_at_s > now_s

        expired: list[Run] = []
        for load in [load for load in reversed(self.retry) if not all(map(is_alive, load.runs))]:
            if load.is_aggregate:
                self.take_apart(load)
            else:
                expired += self._shorten(load, is_alive)
        waiting: list[Run] = []
        while self.runs and not is_alive(self.runs[0]):
            waiting.append(self.runs.popleft())
        if self.expiry_mixed:
            waiting += [run for run in self.runs if not is_alive(run)]
            self.runs = deque(run for run in self.runs if is_alive(run))
        for run in waiting:
            self.uncount(run, len(run))
        return expired + waiting + self._expire_held(is_alive)

    def _expire_held(self, is_alive: Callable[[Run], bool]) -> list[Run]:
        expired: list[Run] = []
        for key, queue in list(self.held.items()):
            if is_alive(queue[0]) and (not self.expiry_mixed or all(map(is_alive, queue))):
                continue
            expired += [run for run in queue if not is_alive(run)]
            if key in self.ready:
                self.uncount(queue[0], len(queue[0]))
            self._hold(key, deque(run for run in queue if is_alive(run)))
        return expired

    def drop_withdrawn(self) -> None:
        """Let go of what was withdrawn, before its turn comes."""
        for run in self.runs:
            self.skip_withdrawn(run)
        self.runs = deque(run for run in self.runs if len(run))
        for key, queue in list(self.held.items()):
            if key in self.ready:
                self.uncount(queue[0], len(queue[0]))
            for run in queue:
                run.drop_withdrawn()
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

    def leave_out(self, key: str | None, start: int, part: Sequence[Run], removed: Collection[Run]) -> None:
        """Let go of some runs of a stretch that begins at this place."""
        queue = self.runs if key is None else self.held[key]
        if key is None:
            for run in removed:
                self.uncount(run, len(run))
        elif key in self.ready:
            self.uncount(queue[0], len(queue[0]))
        if not start and len(removed) == len(part):
            for _ in part:
                queue.popleft()
        else:
            kept = [run for run in part if run not in removed]
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
                self.count(queue[0])
        else:
            del self.held[key]
            self.ready.pop(key, None)

    def take_apart(self, load: Load) -> None:
        """Turn an aggregate that waits to be sent again into runs at the front."""
        self.retry.remove(load)
        note_history(load, *load.runs)
        for run in reversed(load.runs):
            self.add(run, first=True)

    def _shorten(self, load: Load, is_alive: Callable[[Run], bool]) -> list[Run]:
        expired: list[Run] = []
        left: list[Run] = []
        entries: list[Any] = []
        start = 0
        for run in load.runs:
            stop = start + len(run)
            (left if is_alive(run) else expired).append(run)
            if is_alive(run):
                entries += load.entries[start:stop]
            start = stop
        at = self.retry.index(load)
        if left:
            self.retry.insert(at, load.part(left, entries))
        self.retry.remove(load)
        for run in expired:
            note_history(load, run)
            self.release(run.keys)
        return expired

    def release(self, keys: Sequence[str]) -> None:
        """Let the next record of each of these keys go: the records before have their outcome."""
        for key in keys:
            self.busy.discard(key)
            if key in self.held and key not in self.ready:
                self.ready[key] = None
                self.count(self.held[key][0])

    def next_bytes(self) -> int:
        """Return the size of the next record as an entry; 0 if all that waited was withdrawn."""
        if self.ready:
            run = self.held[next(iter(self.ready))][0]
            return run.record_bytes(run.at) if len(run) else 0
        while self.runs:
            run = self.runs[0]
            self.skip_withdrawn(run)  # Otherwise the record behind it, which may be large, goes for a small one.
            if len(run):
                return run.record_bytes(run.at)
            self.runs.popleft()
        return 0

    def begin_load(self) -> list[Run]:
        """Return the list of the runs that the next load is made of. It is ``taken``, and empty."""
        self.taken = []
        return self.taken

    def count(self, run: Run) -> None:
        """Count a run among what waits."""
        self.waiting += len(run)
        self.waiting_bytes += len(run) * run.chunk.mean_payload_bytes

    def uncount(self, run: Run, count: int) -> None:
        """Count some records of a run no longer among what waits."""
        self.waiting -= count
        self.waiting_bytes = self.waiting_bytes - count * run.chunk.mean_payload_bytes if self.waiting else 0.0

    def skip_withdrawn(self, run: Run) -> None:
        """Leave out what was withdrawn of a run, before its turn comes."""
        if run.chunk.withdrawn:
            self.uncount(run, run.drop_withdrawn())
