"""The answers of PutRecords: what one result for each entry means for the records that the entries hold.

A record that was written gets its outcome, and what was refused is sent again. An aggregate that landed in a shard to
which its records do not belong is put again, by shard, as readers with the KCL's rules drop it whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.producer import facts
from shardway.core.producer.lanes import holds_all
from shardway.core.producer.outcome import NOT_DONE, THROTTLED
from shardway.core.producer.request import note_history
from shardway.core.producer.run import pick_records
from shardway.model import PutResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardway.core.producer.lane import Lane
    from shardway.core.producer.lanes import Lanes
    from shardway.core.producer.outcome import EntryResult, Fate
    from shardway.core.producer.request import Load
    from shardway.core.producer.run import Run
    from shardway.core.producer.settling import Settling

ACROSS_A_RESHARD = "its aggregate landed across a reshard"


class Answers:
    """Settles what was written, and returns or queues what has to be sent again."""

    def __init__(self, lanes: Lanes, settling: Settling, *, ordered: bool) -> None:
        self.strays = 0
        """The largest number of times that an aggregate with the same record landed in a shard that does not hold the
        record. A reshard causes one or two; more show that the stream answers other shard ids than it lists.
        """
        self.saw_another_shard = False
        """True when an answer named another shard than was predicted."""
        self._lanes = lanes
        self._settling = settling
        self._is_ordered = ordered
        self._undecided_results: dict[Load, EntryResult] = {}

    def start_over(self) -> None:
        """Forget all records."""
        self._undecided_results = {}
        self.saw_another_shard = False

    def forget_undecided(self) -> None:
        """Forget the loads that were written to a shard that no listing has shown yet."""
        self._undecided_results.clear()

    def expire(self, now_s: float) -> None:
        """Give the loads that no listing decides in time their outcome."""
        for load in [
            load for load in self._undecided_results if all(run.chunk.expires_at_s <= now_s for run in load.runs)
        ]:
            # It is written, but on a shard that nothing is known of: the KCL may or may not drop it.
            del self._undecided_results[load]
            load.doubtful = True
            note_history(load, *load.runs)
            self._settling.settle_expired(load.runs, load.lane, now_s, "a shard that is not listed")
            self._lanes.end_load(load.lane)

    def undecided_loads(self) -> Iterator[Load]:
        """Iterate over the loads that were written to a shard that no listing has shown yet."""
        return iter(self._undecided_results)

    def settle(self, load: Load, results: Sequence[EntryResult], now_s: float) -> Load | None:
        """Settle what was written; returns what has to be sent again."""
        lane = load.lane
        bad = [place for place, result in enumerate(results) if result.error_code]
        self._adjust_pace(load, results, bad, now_s)
        if bad:
            load.reason = results[bad[0]].error_code or ""
            load.alone = False  # What spoils a request gets no answer of its own.
            self._settling.facts_made.append(facts.Refused(lane.shard_id, len(bad), load.reason))
        if load.is_aggregate:
            if bad:
                load.doubtful = load.doubtful or load.reason not in NOT_DONE
                return load
            self._note_shards(lane, {results[0].shard_id})
            self._settle_aggregate(load, results[0], now_s)
            return None
        again = self._refused_part(load, results, bad) if bad else None
        self._settle_entries(load, results, set(bad), now_s)
        if again is None:
            self._lanes.end_load(lane)
        return again

    def _note_shards(self, lane: Lane, shards: set[str | None]) -> None:
        """Note whether the map has changed: records of a lane were taken by these shards."""
        if lane.shard is not None:
            changed = shards != {lane.shard_id}
        else:  # The listing has a hole there, and may be older than the shard.
            changed = any(self._lanes.may_come(shard_id or "") for shard_id in shards)
        self.saw_another_shard = self.saw_another_shard or changed

    def settle_undecided(self, now_s: float) -> bool:
        """Look again with a fresh map at aggregates that landed elsewhere. True if some are still undecided."""
        undecided, self._undecided_results = self._undecided_results, {}
        for load, result in undecided.items():
            self._settle_aggregate(load, result, now_s)
        return bool(self._undecided_results)

    def _settle_aggregate(self, load: Load, result: EntryResult, now_s: float) -> None:
        """Settle an aggregate that was written, or put its records again where they do not belong to the shard that it
        is in.
        """
        shard_id = result.shard_id or ""
        if load.user_records > 1 and shard_id != load.lane.shard_id:
            shard = self._lanes.shard(shard_id)
            if shard is None and self._lanes.may_come(shard_id):
                # No listing has shown this shard yet. Until one does, its hash range is not known.
                self._undecided_results[load] = result
                return
            if shard is None or not holds_all(shard, load.runs):
                self._repeat_aggregate(load, shard_id)
                return
        self._settling.facts_made.append(
            facts.Landed(shard_id, 1, load.user_records, load.payload_bytes, load.data_bytes)
        )
        # A single record goes as it is, unless it would be taken for an aggregate.
        framed = load.user_records > 1 or load.payload_bytes != load.runs[0].payload_bytes()
        sub, number = 0, int(result.sequence_number or 0)
        for run in load.runs:
            attempts, doubtful = load.history_of(run)
            fate = PutResult(shard_id, number, sub if framed else None, attempts, doubtful)
            latency_s = now_s - run.chunk.put_at_s
            self._settling.facts_made.append(facts.Written(shard_id, len(run.keys), attempts, doubtful, latency_s))
            self._settling.settle(run.chunk, run.indices, fate)
            sub += len(run.keys)
        self._lanes.end_load(load.lane)

    def _repeat_aggregate(self, load: Load, shard_id: str) -> None:
        """Put all records of an aggregate again, by shard: the KCL drops it whole, as it leaves its shard's range."""
        self._settling.facts_made.append(facts.Repeated(shard_id, 1, load.user_records))
        load.doubtful, load.reason = True, ACROSS_A_RESHARD
        note_history(load, *load.runs)
        for run in load.runs:
            run.strays += 1
            self.strays = max(self.strays, run.strays)
        self._lanes.requeue(load.runs, first=True)
        self._lanes.end_load(load.lane)

    def _settle_entries(self, load: Load, results: Sequence[EntryResult], bad: set[int], now_s: float) -> None:
        runs, good = load.runs, results
        if bad:
            places = [place for place in range(len(results)) if place not in bad]
            runs, good = load.pick(places), [results[place] for place in places]
        if not good:
            return
        self._note_written(load, runs, good, now_s)
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
            self._settling.settle(run.chunk, run.indices, fate)
            if self._is_ordered:
                load.lane.release(run.keys)

    def _note_written(self, load: Load, runs: list[Run], good: Sequence[EntryResult], now_s: float) -> None:
        """Note the records that are entries of their own by the shard that took them: usually the one predicted."""
        by_shard: dict[str, list[Run]] = {}
        shards = {result.shard_id for result in good}
        self._note_shards(load.lane, shards)
        for shard_id in shards:
            ours = runs
            if len(shards) > 1:
                ours = pick_records(runs, [at for at, result in enumerate(good) if result.shard_id == shard_id])
            by_shard[shard_id or ""] = ours
        for shard_id, ours in by_shard.items():
            records = sum(len(run.keys) for run in ours)
            whole = records == load.user_records
            payload_bytes = load.payload_bytes if whole else sum(run.payload_bytes() for run in ours)
            data_bytes = sum([sum(map(len, run.datas)) for run in ours])
            self._settling.facts_made.append(facts.Landed(shard_id, records, records, payload_bytes, data_bytes))
            counts: dict[tuple[float, int, bool], int] = {}
            for run in ours:  # With order by key each is a record: those that went through the same make one fact.
                went_through = (run.chunk.put_at_s, *load.history_of(run))
                counts[went_through] = counts.get(went_through, 0) + len(run.keys)
            for (put_at_s, attempts, doubtful), count in counts.items():
                self._settling.facts_made.append(facts.Written(shard_id, count, attempts, doubtful, now_s - put_at_s))

    def _refused_part(self, load: Load, results: Sequence[EntryResult], bad: list[int]) -> Load:
        """Return what was refused of a load, as a load."""
        runs: list[Run] = []
        entries: list[Any] = []
        for known in (True, False):
            places = [place for place in bad if (results[place].error_code in NOT_DONE) is known]
            picked = load.pick(places)
            for run in picked:
                run.doubtful = run.doubtful or not known
            runs += picked
            entries += [load.entries[place] for place in places]
        return load.part(runs, entries)

    def _adjust_pace(self, load: Load, results: Sequence[EntryResult], bad: list[int], now_s: float) -> None:
        pace = load.lane.pace
        if pace is None:
            return
        refused = sum(1 for place in bad if results[place].error_code == THROTTLED) if bad else 0
        mean_bytes = load.payload_bytes // len(load.entries)
        if refused:
            pace.note_refused(now_s, refused, mean_bytes * refused)
        if taken := len(load.entries) - len(bad):
            pace.note_accepted(now_s, taken, mean_bytes * taken)
