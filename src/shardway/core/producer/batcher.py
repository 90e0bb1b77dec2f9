"""The batcher: it says what to send now, and what an answer means."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from shardway.core.pacing import full_jitter_s
from shardway.core.producer import facts
from shardway.core.producer.answers import Answers
from shardway.core.producer.lanes import Lanes
from shardway.core.producer.limits import RUN_WORK, STEP_RECORDS
from shardway.core.producer.request import Failure, note_history
from shardway.core.producer.request_builder import RequestBuilder
from shardway.core.producer.settling import Settling
from shardway.core.producer.withdrawal import Withdrawal
from shardway.errors import RecordWithdrawnError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from random import Random

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.limits import BatchLimits
    from shardway.core.producer.outcome import EntryResult
    from shardway.core.producer.request import Load, MakeEntry, Request
    from shardway.core.producer.run import Run
    from shardway.model import ListedShard

CLOSED = "ProducerClosed"
"""The reason of the records that a close gave up."""
REQUEST_BYTES_FORMER = 5 * 1024 * 1024
"""The limit of a request's bytes before large records came (2025), which some endpoints still have."""
STRAYS_MAX = 3
"""After a record has strayed this often (its aggregate landed in a shard that is not the record's), aggregation ends:
the producer puts each record on its own.
"""


class Batcher:
    """Collects user records by predicted shard, makes requests of them, and settles them by what is answered.

    ``make_entry(data, partition_key, explicit_hash_key)`` makes an entry as the sink takes it. What a step means for
    others stands in ``settling`` until the caller takes it: the facts, the bytes that are free again, the chunks
    without an outcome.
    """

    def __init__(self, limits: BatchLimits, *, make_entry: MakeEntry, rng: Random) -> None:
        self.limits = limits
        self.urgent = False
        """True while a flush waits: nothing lingers."""
        self.stale = False
        """True when an answer showed that the shards have changed: ``set_shards`` is due."""
        self.lanes = Lanes(make_entry, limits.pace, rng, ordered=limits.ordered_by_key)
        self.settling = Settling(self.lanes, ordered=limits.ordered_by_key)
        self.builder = RequestBuilder(limits, self.lanes, self.settling)
        self.answers = Answers(self.lanes, self.settling, ordered=limits.ordered_by_key)
        self.withdrawal = Withdrawal(self.lanes, self.settling)
        self.in_flight: dict[Request, None] = {}
        self.broken = False
        """True when a step was broken off in the middle: `mend` is due."""
        self.salvage: dict[Chunk, dict[int, Any]] | None = None
        """The records that `mend` has found, until all of them are queued again."""
        self._rng = rng
        self._pause_until_s = -inf  # Nothing is sent before this time: requests failed as a whole.
        self._failures = 0  # The failures in a row.
        self._strays = 0  # The strays that Answers has noted until now.
        self._has_succeeded = False

    def start_over(self, on_their_way: Container[Request]) -> None:
        """Forget all records but those of the requests on their way. The shards may be others: they are to be
        listed.
        """
        self.builder.start_over()
        for request in [request for request in self.in_flight if request not in on_their_way]:
            del self.in_flight[request]
        self.answers.start_over()
        self.lanes.start_over(list(self.loads_in_flight()))
        self.stale = True

    def recount(self) -> None:
        """Count again what has its outcome, and call back: either may have been broken off in the middle."""
        live = self.settling.live
        for chunk in list(live.values()):
            chunk.recount()
            if not chunk.unsettled:
                del live[chunk.number]

    # --- what comes in --------------------------------------------------------------------------

    def add(self, chunk: Chunk, keys: Sequence[str], datas: Sequence[bytes]) -> None:
        """Take the records of a chunk, whose partition keys were checked."""
        self.settling.live[chunk.number] = chunk
        self.lanes.add(chunk, keys, datas)

    def set_shards(self, shards: Sequence[ListedShard] | None, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Follow a new listing (see `Lanes.set_shards`); then decide about what waited for a fresh map."""
        try:
            return self._set_shards(shards, now_s)
        except BaseException:
            self.broken = True
            raise

    def _set_shards(
        self, shards: Sequence[ListedShard] | None, now_s: float
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        change = self.lanes.set_shards(shards, now_s)
        self.stale = False
        if any(change):  # What strayed by the former shards says nothing of these.
            self.builder.aggregating = self.limits.aggregate
            self.answers.strays = self._strays = 0
        if self.answers.settle_undecided(now_s):
            self.stale = True
        self._heed_strays(now_s)
        return change

    def loads_in_flight(self) -> Iterator[Load]:
        """Iterate over the loads that are on their way."""
        return (load for request in self.in_flight for load in request.loads)

    def expire(self, now_s: float) -> None:
        """Give the records whose time to live has passed their outcome."""
        self.settling.expire(now_s)
        self.answers.expire(now_s)

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take a record back that was never sent. False if the record was sent, or has its outcome."""
        return self.withdrawal.withdraw(chunk, index)

    def withdraw_in_steps(self, chunks: Iterable[Chunk]) -> Iterator[int]:
        """Take back what was never sent of these chunks, in steps, between which nothing may be sent; each step yields
        how many records it took back.
        """
        return self.withdrawal.withdraw_in_steps(chunks)

    def give_up_waiting(self, reason: str, now_s: float) -> None:
        """Give up the records that wait: nothing can be put until the cause is removed."""
        self.settling.give_up_waiting(reason, now_s)

    def unsettled_runs(self) -> Iterator[tuple[Run, bool]]:
        """Iterate over all records without an outcome, and whether they were sent."""
        retried = (load for lane in self.lanes for load in lane.retry)
        for load in [*self.loads_in_flight(), *self.answers.undecided_loads(), *retried]:
            yield from ((run, True) for run in load.runs)
        for lane in self.lanes:
            for queue in (*lane.held.values(), lane.runs):
                yield from ((run, run.attempts > 0) for run in queue)

    def close(self, now_s: float) -> None:
        """Give every record that has no outcome the last one: it is not known to be written."""
        for _ in self.close_in_steps(now_s):
            pass

    def close_in_steps(self, now_s: float) -> Iterator[None]:
        """See `close`: this does the same, in steps between which others may run.

        Nothing is on its way or waits between two steps. After `mend` the close begins again.
        """
        runs: list[tuple[Run, str | None]] = []
        for load in [*self.loads_in_flight(), *self.answers.undecided_loads()]:
            load.doubtful = True
            note_history(load, *load.runs)
            runs += [(run, load.lane.shard_id) for run in load.runs]
        lanes = list(self.lanes)
        for lane in lanes:
            for load in lane.retry:
                note_history(load, *load.runs)
            runs += [(run, lane.shard_id) for run in lane.all_runs()]
        self.lanes.moving_runs = [run for run, _ in runs]
        self.in_flight.clear()
        self.answers.forget_undecided()
        for lane in lanes:
            lane.retry.clear()
            lane.clear()
        message = "the producer was closed before a record was written"
        work = 0
        for run, shard_id in runs:
            run.drop_withdrawn()
            work += RUN_WORK + len(run)
            if len(run):
                self.settling.note_failed(run, shard_id, CLOSED, now_s)
            self.settling.fail([run], RecordWithdrawnError, message, shard_id, "")
            if work >= STEP_RECORDS:
                work = 0
                yield
        self.lanes.moving_runs = []

    # --- what goes out --------------------------------------------------------------------------

    def next_request(self, now_s: float) -> Request | None:
        """Return what to send now, or None: then ``wake_at_s`` says when to ask again."""
        builder, lanes = self.builder, self.lanes
        builder.wake_at_s = inf
        if not lanes.active or not lanes.known or self._is_enough_in_flight():
            return None
        if now_s < self._pause_until_s:
            builder.wake_at_s = self._pause_until_s
            return None
        request = builder.build(now_s, urgent=self.urgent)
        if request is not None:
            for load in request.loads:
                load.lane.in_flight += 1
                load.lane.taken = []
            self.in_flight[request] = None
        builder.unfinished = None
        return request

    @property
    def wake_at_s(self) -> float:
        """The time at which to call ``next_request`` again if nothing happens before, after it returned None."""
        return self.builder.wake_at_s

    def _is_enough_in_flight(self) -> bool:
        """True if nothing may be sent before an answer, or a failure, has come."""
        in_flight, limits = self.in_flight, self.limits
        return bool(in_flight) and (
            len(in_flight) >= limits.requests_in_flight_max
            or sum([request.payload_bytes for request in in_flight]) >= limits.in_flight_bytes_max
        )

    # --- what comes back ------------------------------------------------------------------------

    def handle_answer(self, request: Request, results: Sequence[EntryResult], now_s: float) -> None:
        """Take the service's answer: one result for each entry."""
        if request not in self.in_flight:
            return  # The batcher was closed meanwhile: its records have their outcome.
        self._failures, self._has_succeeded, self._pause_until_s = 0, True, -inf
        self.settling.trouble = ""
        start = 0
        for load in request.loads:
            stop = start + len(load.entries)
            refused = self.answers.settle(load, results[start:stop], now_s)
            if refused is not None:
                self._retry(refused, now_s)
            self.stale = self.stale or self.answers.saw_another_shard
            start = stop
        self.answers.saw_another_shard = False
        self._heed_strays(now_s)
        del self.in_flight[request]

    def _heed_strays(self, now_s: float) -> None:
        """Pause, and at last stop aggregating, where records stray. A record strays once or twice where a stream is
        split. More often it would be written again for ever.
        """
        strays, before, self._strays = self.answers.strays, self._strays, self.answers.strays
        if strays > max(1, before):
            wait_s = full_jitter_s(
                strays, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
            )
            self._pause_until_s = now_s + wait_s
            # If the stream answers wrong shard ids, no map helps, and each aggregate would be put again for ever.
            self.builder.aggregating = self.builder.aggregating and strays < STRAYS_MAX

    def handle_failure(self, request: Request, failure: Failure, reason: str, now_s: float) -> None:
        """Take the failure of a request as a whole. ``reason`` is an error code, or the class of the error."""
        if request not in self.in_flight:
            return
        if failure is Failure.INVALID:
            self._isolate(request, reason, now_s)
        else:
            self._retry_request(request, failure, reason, now_s)
        del self.in_flight[request]

    def _retry_request(self, request: Request, failure: Failure, reason: str, now_s: float) -> None:
        self.settling.trouble = reason
        self._failures += 1
        self._pause_until_s = now_s + full_jitter_s(
            self._failures, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
        )
        if failure is Failure.UNKNOWN:
            self.settling.facts_made.append(facts.Unknown(len(request.entries), reason))
        for load in request.loads:
            load.reason = reason
            load.doubtful = load.doubtful or failure is Failure.UNKNOWN
            if failure is Failure.THROTTLED and load.lane.pace is not None:
                load.lane.pace.note_refused(now_s, len(load.entries), load.payload_bytes)
            if failure is Failure.DENIED and not self._has_succeeded:
                # Nothing ever went through: the setup is wrong, and the program should learn that now.
                self.settling.give_up(load, reason, now_s)
            else:
                self._retry(load, now_s)

    def _isolate(self, request: Request, reason: str, now_s: float) -> None:
        """Find out which entry spoils a request, by sending its halves."""
        if len(request.entries) == 1:
            self.settling.give_up(request.loads[0], reason, now_s, invalid=True)
            return
        if request.payload_bytes > REQUEST_BYTES_FORMER:
            self.builder.request_bytes_max = min(self.builder.request_bytes_max, REQUEST_BYTES_FORMER)
        for load in request.loads:
            load.reason = reason
            halves = [load] if len(request.loads) > 1 or load.is_aggregate else load.halves()
            for half in halves:
                half.alone = True
            self.settling.requeue(halves, now_s)
            self.lanes.end_load(load.lane)

    def _retry(self, load: Load, now_s: float) -> None:
        load.not_before_s = now_s + full_jitter_s(
            load.attempts, base_s=self.limits.retry_base_s, cap_s=self.limits.retry_cap_s, rng=self._rng
        )
        self.settling.requeue([load], now_s)
        self.lanes.end_load(load.lane)
