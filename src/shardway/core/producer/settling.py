"""Settling says what an answer, or the passing of time, means for the records: written, to be sent again, or given up.

What was settled is noted as facts, which the batcher's caller takes from `Settling.facts_made` after each step.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any

from shardway.core.producer.facts import Expired, Fact, Failed, Landed, Refused, Repeated, Withdrawn, Written
from shardway.core.producer.lanes import holds_all
from shardway.core.producer.outcome import NotWritten
from shardway.core.producer.request import remember
from shardway.core.producer.run import chosen_runs
from shardway.errors import PutError, RecordExpiredError, RecordRefusedError, RecordWithdrawnError
from shardway.model import PutResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.lane import Lane
    from shardway.core.producer.lanes import Lanes
    from shardway.core.producer.outcome import EntryResult, Fate
    from shardway.core.producer.request import Load, Request
    from shardway.core.producer.run import Run

THROTTLED = "ProvisionedThroughputExceededException"
NOT_DONE = frozenset({THROTTLED, "KMSThrottlingException", "LimitExceededException", "ThrottlingException"})
"""Error codes of entries that certainly were not written. After other codes (InternalFailure) they may have been."""

WITHDRAWN_BYTES_MAX = 1024 * 1024
"""The bytes above which records that were withdrawn are let go: they count for no bound any more."""

ACROSS_A_RESHARD = "its aggregate landed across a reshard"

RECORD_BYTES_USUAL = 1024 * 1024
"""The largest record that a stream takes unless its MaxRecordSizeInKiB was raised (AWS API reference,
UpdateMaxRecordSize).
"""

STEP_RECORDS = 2_000
"""The number of records in one step of what takes long: a few milliseconds. Others may run in between."""
RUN_WORK = 8
"""The number of records that a run counts for in a step, beside its own."""
WITHDRAWN_STEP_RECORDS = 10_000
"""The number of records in a step where runs are withdrawn: that takes long by the run, and hardly by the record."""

CLOSED = "ProducerClosed"
"""The reason of the records that a close gave up."""


class Settling:
    """Gives every record its one outcome."""

    def __init__(self, lanes: Lanes, *, ordered: bool) -> None:
        self.live: dict[int, Chunk] = {}
        """The chunks that have a record without an outcome, by number, the oldest first."""
        self.freed_bytes = 0
        """The bytes that became free of the buffer's bound. The caller sets it to 0 when it has taken it."""
        self.facts_made: deque[Fact] = deque()
        """The facts that were made and not taken yet. It is always the same object."""
        self.place = ""
        """The name of the stream, and once it is known the region, for messages."""
        self.record_bytes_max: int | None = None
        """The largest record that the stream takes, in bytes, if that is known."""
        self.strays = 0
        """The most aggregates that one record was in, and that landed in a shard to which the record does not belong:
        more than one or two come of no reshard, but of a stream that answers other shard ids than it lists.
        """
        self.saw_another_shard = False
        """True when an answer named another shard than was predicted."""
        self.trouble = ""
        """The reason why nothing goes through at the moment, for records that were never sent."""
        self._lanes = lanes
        self._ordered = ordered
        self._undecided: dict[Load, EntryResult] = {}
        self._withdrawn_bytes = 0

    def undecided(self) -> Iterator[Load]:
        """Iterate over the loads that were written to a shard that no listing has shown yet."""
        return iter(self._undecided)

    def start_over(self) -> None:
        """Forget all records."""
        self._undecided = {}
        self.saw_another_shard = False

    # --- answers --------------------------------------------------------------------------------

    def answered(self, load: Load, results: Sequence[EntryResult], now_s: float) -> Load | None:
        """Settle what was written; returns what has to be sent again."""
        lane = load.lane
        bad = [place for place, result in enumerate(results) if result.error_code]
        self._tell_pace(load, results, bad, now_s)
        if bad:
            load.reason = results[bad[0]].error_code or ""
            load.alone = False  # What spoils a request gets no answer of its own.
            self.facts_made.append(Refused(lane.shard_id, len(bad), load.reason))
        if load.is_aggregate:
            if bad:
                load.doubtful = load.doubtful or load.reason not in NOT_DONE
                return load
            self._look_at(lane, {results[0].shard_id})
            self._landed(load, results[0], now_s)
            return None
        again = self._split(load, results, bad) if bad else None
        self._written_each(load, results, set(bad), now_s)
        if again is None:
            self._lanes.came_back(lane)
        return again

    def _look_at(self, lane: Lane, shards: set[str | None]) -> None:
        """Note whether the map has changed: records of a lane were taken by these shards."""
        if lane.shard is not None:
            changed = shards != {lane.shard_id}
        else:  # The listing has a hole there, and may be older than the shard.
            changed = any(self._lanes.may_come(shard_id or "") for shard_id in shards)
        self.saw_another_shard = self.saw_another_shard or changed

    def decide(self, now_s: float) -> bool:
        """Look again with a fresh map at aggregates that landed elsewhere. True if some are still undecided."""
        undecided, self._undecided = self._undecided, {}
        for load, result in undecided.items():
            self._landed(load, result, now_s)
        return bool(self._undecided)

    def _landed(self, load: Load, result: EntryResult, now_s: float) -> None:
        """Settle an aggregate that was written, or put its records again where they do not belong to the shard that it
        is in.
        """
        shard_id = result.shard_id or ""
        if load.user_records > 1 and shard_id != load.lane.shard_id:
            shard = self._lanes.shard(shard_id)
            if shard is None and self._lanes.may_come(shard_id):
                # No listing has shown this shard yet. Until one does, its hash range is not known.
                self._undecided[load] = result
                return
            if shard is None or not holds_all(shard, load.runs):
                self._repeat(load, shard_id)
                return
        self.facts_made.append(Landed(shard_id, 1, load.user_records, load.payload_bytes, load.data_bytes))
        # A single record goes as it is, unless it would be taken for an aggregate.
        framed = load.user_records > 1 or load.payload_bytes != load.runs[0].payload_bytes()
        sub, number = 0, int(result.sequence_number or 0)
        for run in load.runs:
            attempts, doubtful = load.history_of(run)
            fate = PutResult(shard_id, number, sub if framed else None, attempts, doubtful)
            latency_s = now_s - run.chunk.put_at_s
            self.facts_made.append(Written(shard_id, len(run.keys), attempts, doubtful, latency_s))
            self._settle(run.chunk, run.indices, fate)
            sub += len(run.keys)
        self._lanes.came_back(load.lane)

    def _repeat(self, load: Load, shard_id: str) -> None:
        """Put all records of an aggregate again, by shard: the KCL drops it whole, as it leaves its shard's range."""
        self.facts_made.append(Repeated(shard_id, 1, load.user_records))
        load.doubtful, load.reason = True, ACROSS_A_RESHARD
        remember(load, *load.runs)
        for run in load.runs:
            run.strays += 1
            self.strays = max(self.strays, run.strays)
        self._lanes.put_again(load.runs, first=True)
        self._lanes.came_back(load.lane)

    def _written_each(self, load: Load, results: Sequence[EntryResult], bad: set[int], now_s: float) -> None:
        runs, good = load.runs, results
        if bad:
            places = [place for place in range(len(results)) if place not in bad]
            runs, good = load.chosen(places), [results[place] for place in places]
        if not good:
            return
        self._tell_written(load, runs, good, now_s)
        start = 0
        for run in runs:
            stop = start + len(run.keys)
            fate: Fate = good[start:stop]
            attempts, doubtful = load.history_of(run)
            if attempts > 1 or doubtful:
                fate = [
                    PutResult(result.shard_id or "", int(result.sequence_number or 0), None, attempts, doubtful)
                    for result in good[start:stop]
                ]
            start = stop
            self._settle(run.chunk, run.indices, fate)
            if self._ordered:
                load.lane.release(run.keys)

    def _tell_written(self, load: Load, runs: list[Run], good: Sequence[EntryResult], now_s: float) -> None:
        """Note the records that are entries of their own by the shard that took them: usually the one predicted."""
        by_shard: dict[str, list[Run]] = {}
        shards = {result.shard_id for result in good}
        self._look_at(load.lane, shards)
        for shard_id in shards:
            ours = runs
            if len(shards) > 1:
                ours = chosen_runs(runs, [at for at, result in enumerate(good) if result.shard_id == shard_id])
            by_shard[shard_id or ""] = ours
        for shard_id, ours in by_shard.items():
            records = sum(len(run.keys) for run in ours)
            whole = records == load.user_records
            payload_bytes = load.payload_bytes if whole else sum(run.payload_bytes() for run in ours)
            data_bytes = sum([sum(map(len, run.datas)) for run in ours])
            self.facts_made.append(Landed(shard_id, records, records, payload_bytes, data_bytes))
            counts: dict[tuple[float, int, bool], int] = {}
            for run in ours:  # With order by key each is a record: those that went through the same make one fact.
                went_through = (run.chunk.put_at_s, *load.history_of(run))
                counts[went_through] = counts.get(went_through, 0) + len(run.keys)
            for (put_at_s, attempts, doubtful), count in counts.items():
                self.facts_made.append(Written(shard_id, count, attempts, doubtful, now_s - put_at_s))

    def _split(self, load: Load, results: Sequence[EntryResult], bad: list[int]) -> Load:
        """Return what was refused of a load, as a load."""
        runs: list[Run] = []
        entries: list[Any] = []
        for known in (True, False):
            places = [place for place in bad if (results[place].error_code in NOT_DONE) is known]
            chosen = load.chosen(places)
            for run in chosen:
                run.doubtful = run.doubtful or not known
            runs += chosen
            entries += [load.entries[place] for place in places]
        return load.lane.part_of(load, runs, entries)

    def _tell_pace(self, load: Load, results: Sequence[EntryResult], bad: list[int], now_s: float) -> None:
        pace = load.lane.pace
        if pace is None:
            return
        refused = sum(1 for place in bad if results[place].error_code == THROTTLED) if bad else 0
        mean_bytes = load.payload_bytes // len(load.entries)
        if refused:
            pace.refused(now_s, refused, mean_bytes * refused)
        if taken := len(load.entries) - len(bad):
            pace.accepted(now_s, taken, mean_bytes * taken)

    # --- again ----------------------------------------------------------------------------------

    def queue_again(self, loads: Iterable[Load], now_s: float) -> None:
        """Queue loads to be sent again; what has expired gets its outcome instead."""
        for load in loads:
            lane = load.lane
            if self._lanes.is_gone(lane):
                remember(load, *load.runs)
                runs = self._without_expired(load.runs, lane, now_s, load.reason)
                self._lanes.put_again(runs, first=True)
                continue
            lane.retry.append(load)
            if any(run.chunk.expires_at_s <= now_s for run in load.runs):
                self._expire(lane, now_s)
            self._lanes.wake(lane)

    def halves(self, load: Load) -> list[Load]:
        """Return a load of several entries as two."""
        middle = load.user_records // 2
        both = (range(middle), range(middle, load.user_records))
        return [
            load.lane.part_of(load, load.chosen(places), load.entries[places.start : places.stop]) for places in both
        ]

    # --- given up -------------------------------------------------------------------------------

    def give_up(self, load: Load, reason: str, now_s: float, *, invalid: bool = False) -> None:
        """Give up a load that will never be taken; ``invalid``: for what it is."""
        load.reason = reason
        remember(load, *load.runs)
        for run in load.runs:
            self._tell_failed(run, load.lane.shard_id, reason, now_s)
            if self._ordered:
                load.lane.release(run.keys)
        message = "the service does not take a record"
        if invalid:
            message += f" of {load.payload_bytes} bytes (data and partition key)"
            if load.payload_bytes > (limit := self.record_bytes_max or RECORD_BYTES_USUAL):
                known = "the stream takes" if self.record_bytes_max else "a stream takes by default"
                message += f", and {known} at most {limit} (its MaxRecordSizeInKiB)"
        self._fail(load.runs, RecordRefusedError, message, load.lane.shard_id, reason)
        self._lanes.came_back(load.lane)

    def refuse_unmade(self, lane: Lane, now_s: float) -> None:
        """Give up the records of which the sink has made no entry: it raised."""
        while lane.unmade:
            run, error = lane.unmade[0]
            reason = type(error).__name__
            if len(run):
                self._tell_failed(run, lane.shard_id, reason, now_s)
            if self._ordered:
                lane.release(run.keys)
            self._fail([run], RecordRefusedError, "the sink makes no entry of a record", lane.shard_id, reason)
            del lane.unmade[0]

    def give_up_waiting(self, reason: str, now_s: float) -> None:
        """Give up all that is not on its way."""
        message = "no record can be put to this stream"
        for lane in list(self._lanes):
            self._lanes.moving = list(lane.wherever())
            runs = lane.clear()
            for run in runs:
                run.without_withdrawn()
                if len(run):
                    self._tell_failed(run, lane.shard_id, reason, now_s)
            self._fail(runs, RecordRefusedError, message, lane.shard_id, reason)
        self._lanes.moving = []

    def expire(self, now_s: float) -> None:
        """Give the records whose time to live has passed their outcome."""
        for lane in list(self._lanes):
            self._expire(lane, now_s)
        for load in [load for load in self._undecided if all(run.chunk.expires_at_s <= now_s for run in load.runs)]:
            # It is written, but on a shard that nothing is known of: the KCL may or may not drop it.
            del self._undecided[load]
            load.doubtful = True
            remember(load, *load.runs)
            self._without_expired(load.runs, load.lane, now_s, "a shard that is not listed")
            self._lanes.came_back(load.lane)

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take a record back that was never sent. False if the record was sent, or has its outcome."""
        if chunk.outcomes[index] is not None or not self._is_waiting(chunk, index):
            return False
        self.facts_made.append(Withdrawn(1))
        freed_bytes = chunk.settle((index,), self._withdrawn())
        # Lanes skip the record after this. It has its outcome before: a signal handler that raises in between would
        # otherwise leave a record that is neither sent nor settled, for ever.
        if chunk.withdrawn is None:
            chunk.withdrawn = set()
        chunk.withdrawn.add(index)
        self.freed_bytes += freed_bytes
        if not chunk.unsettled:
            self.live.pop(chunk.number, None)
        self._withdrawn_bytes += freed_bytes
        if self._withdrawn_bytes > WITHDRAWN_BYTES_MAX:
            self._withdrawn_bytes = 0
            for lane in self._lanes:
                lane.drop_withdrawn()
        return True

    def withdrawing(self, chunks: Iterable[Chunk]) -> Iterator[int]:
        """Take back what was never sent of these chunks, in steps; each step yields how many records it took back.

        Others may run between two steps, but nothing may be sent, and after `batcher.mend` it has to begin anew.
        """
        chunks = set(chunks)
        missed = True
        while missed and any(chunk.unsettled for chunk in chunks):
            missed = False
            lanes = list(self._lanes)
            for lane in lanes:
                for key in (None, *lane.held):
                    start = 0
                    while part := lane.stretch(key, start, WITHDRAWN_STEP_RECORDS, RUN_WORK):
                        ours = {run for run in part if not run.attempts and run.chunk in chunks}
                        withdrawn = self._withdraw_runs(ours)
                        # The lane lets them go afterwards: where a signal handler raises before, `mend` finds the
                        # records, and their outcome.
                        if ours:
                            lane.leave_out(key, start, part, ours)
                        start += len(part) - len(ours)
                        missed = missed or withdrawn > 0
                        yield withdrawn
            # A listing between two steps moves records into new lanes, also where this pass found none of these chunks.
            missed = missed or lanes != list(self._lanes)

    def _withdraw_runs(self, runs: Iterable[Run]) -> int:
        columns: dict[Chunk, list[Sequence[int]]] = {}
        for run in runs:
            gone = run.chunk.withdrawn
            indices: Sequence[int] = run.indices[run.at :]
            if gone:
                indices = [index for index in indices if index not in gone]
            columns.setdefault(run.chunk, []).append(indices)
        if not columns:
            return 0
        outcome = self._withdrawn()
        withdrawn = 0
        for chunk, parts in columns.items():
            indices = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
            if indices:
                self._settle(chunk, indices, outcome)
                withdrawn += len(indices)
        self.facts_made.append(Withdrawn(withdrawn))
        return withdrawn

    def _withdrawn(self) -> NotWritten:
        message = self._placed("a record was withdrawn before it was sent")
        return NotWritten(RecordWithdrawnError, message, 0, False, None, "")

    def closing(self, sent: dict[Request, None], now_s: float) -> Iterator[None]:
        """Give every record that has no outcome one that says that it gets no other; ``sent`` are the requests on their
        way.

        Others may run between two steps: nothing is on its way or waits by then, and a mended batcher is closed anew.
        """
        todo: list[tuple[Run, str | None]] = []
        for load in [*(load for request in sent for load in request.loads), *self._undecided]:
            load.doubtful = True
            remember(load, *load.runs)
            todo += [(run, load.lane.shard_id) for run in load.runs]
        lanes = list(self._lanes)
        for lane in lanes:
            for load in lane.retry:
                remember(load, *load.runs)
            todo += [(run, lane.shard_id) for run in lane.everything()]
        self._lanes.moving = [run for run, _ in todo]
        sent.clear()
        self._undecided.clear()
        for lane in lanes:
            lane.retry.clear()
            lane.clear()
        message = "the producer was closed before a record was written"
        work = 0
        for run, shard_id in todo:
            run.without_withdrawn()
            work += RUN_WORK + len(run)
            if len(run):
                self._tell_failed(run, shard_id, CLOSED, now_s)
            self._fail([run], RecordWithdrawnError, message, shard_id, "")
            if work >= STEP_RECORDS:
                work = 0
                yield
        self._lanes.moving = []

    def unsettled(self, sent: Iterable[Load]) -> Iterator[tuple[Run, bool]]:
        """Iterate over all records without an outcome, and whether they were sent; ``sent`` are the loads on
        their way.
        """
        for load in [*sent, *self._undecided, *(load for lane in self._lanes for load in lane.retry)]:
            yield from ((run, True) for run in load.runs)
        for lane in self._lanes:
            for queue in (*lane.held.values(), lane.runs):
                yield from ((run, run.attempts > 0) for run in queue)

    def _is_waiting(self, chunk: Chunk, index: int) -> bool:
        if chunk.taken == 0:
            return True
        if chunk.taken >= chunk.records:
            return False
        return any(
            run.chunk is chunk and not run.attempts and index in run.indices[run.at :]
            for lane in self._lanes
            for queue in (lane.runs, *lane.held.values())
            for run in queue
        )

    def _expire(self, lane: Lane, now_s: float) -> None:
        if not lane.may_expire(now_s):
            return
        self._lanes.moving = list(lane.wherever())
        gone = lane.expire(now_s)
        reason = lane.retry[0].reason if lane.retry else self.trouble
        self._without_expired(gone, lane, now_s, reason)
        self._lanes.moving = []

    def _without_expired(self, runs: Iterable[Run], lane: Lane, now_s: float, reason: str) -> list[Run]:
        expired: list[Run] = []
        left: list[Run] = []
        for run in runs:
            (expired if run.chunk.expires_at_s <= now_s else left).append(run)
        for run in expired:
            run.without_withdrawn()
            if len(run):
                latency_s = now_s - run.chunk.put_at_s
                self.facts_made.append(Expired(lane.shard_id, len(run), run.attempts, run.doubtful, latency_s))
        self._fail(expired, RecordExpiredError, "a record's time to live passed", lane.shard_id, reason)
        return left

    def _settle(self, chunk: Chunk, indices: Sequence[int], fate: Fate) -> None:
        self.freed_bytes += chunk.settle(indices, fate)
        if not chunk.unsettled:
            self.live.pop(chunk.number, None)

    def _tell_failed(self, run: Run, shard_id: str | None, reason: str, now_s: float) -> None:
        self.facts_made.append(Failed(shard_id, len(run), run.attempts, reason, now_s - run.chunk.put_at_s))

    def _placed(self, message: str) -> str:
        return f"{self.place}: {message}" if self.place else message

    def _fail(self, runs: Iterable[Run], kind: type[PutError], message: str, shard_id: str | None, reason: str) -> None:
        for run in runs:
            run.without_withdrawn()
            rest = run.next(len(run))
            if rest.indices:
                outcome = NotWritten(
                    kind, self._placed(message), run.attempts, run.doubtful, shard_id, run.reason or reason
                )
                self._settle(rest.chunk, rest.indices, outcome)
            # The run is emptied afterwards: where a signal handler raises before, the records are still found here.
            run.at = len(run.datas)
