"""The settling of records: each gets one outcome, or is queued to be sent again.

What a step has settled is noted as facts, which the batcher's caller takes from `Settling.facts_made` after the step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from shardway.core.producer import facts
from shardway.core.producer.outcome import NotWritten
from shardway.core.producer.request import note_history
from shardway.errors import PutError, RecordExpiredError, RecordRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.lane import Lane
    from shardway.core.producer.lanes import Lanes
    from shardway.core.producer.outcome import Fate
    from shardway.core.producer.request import Load
    from shardway.core.producer.run import Run

RECORD_BYTES_USUAL = 1024 * 1024
"""The largest record that a stream takes unless its MaxRecordSizeInKiB was raised (AWS API reference,
UpdateMaxRecordSize).
"""


class Settling:
    """Gives every record its one outcome."""

    def __init__(self, lanes: Lanes, *, ordered: bool) -> None:
        self.live: dict[int, Chunk] = {}
        """The chunks that have a record without an outcome, by number, the oldest first."""
        self.freed_bytes = 0
        """The bytes that became free of the buffer's bound. The caller sets it to 0 when it has taken it."""
        self.facts_made: deque[facts.Fact] = deque()
        """The facts that were made and not taken yet. It is always the same object."""
        self.place = ""
        """The name of the stream, and once it is known the region, for messages."""
        self.record_bytes_max: int | None = None
        """The largest record that the stream takes, in bytes, if that is known."""
        self.trouble = ""
        """The reason why nothing goes through at the moment, for records that were never sent."""
        self._lanes = lanes
        self._is_ordered = ordered

    def requeue(self, loads: Iterable[Load], now_s: float) -> None:
        """Queue loads to be sent again; what has expired gets its outcome instead."""
        for load in loads:
            lane = load.lane
            if self._lanes.is_former(lane):
                note_history(load, *load.runs)
                runs = self.settle_expired(load.runs, lane, now_s, load.reason)
                self._lanes.requeue(runs, first=True)
                continue
            lane.retry.append(load)
            if any(run.chunk.expires_at_s <= now_s for run in load.runs):
                self._expire(lane, now_s)
            self._lanes.wake(lane)

    def give_up(self, load: Load, reason: str, now_s: float, *, invalid: bool = False) -> None:
        """Give up a load that will never be taken; ``invalid``: for what it is."""
        load.reason = reason
        note_history(load, *load.runs)
        for run in load.runs:
            self.note_failed(run, load.lane.shard_id, reason, now_s)
            if self._is_ordered:
                load.lane.release(run.keys)
        message = "the service does not take a record"
        if invalid:
            message += f" of {load.payload_bytes} bytes (data and partition key)"
            if load.payload_bytes > (limit := self.record_bytes_max or RECORD_BYTES_USUAL):
                known = "the stream takes" if self.record_bytes_max else "a stream takes by default"
                message += f", and {known} at most {limit} (its MaxRecordSizeInKiB)"
        self.fail(load.runs, RecordRefusedError, message, load.lane.shard_id, reason)
        self._lanes.end_load(load.lane)

    def refuse_rejected(self, lane: Lane, now_s: float) -> None:
        """Give up the records that the sink has made no entry of: it raised."""
        while lane.rejected:
            run, error = lane.rejected[0]
            reason = type(error).__name__
            if len(run):
                self.note_failed(run, lane.shard_id, reason, now_s)
            if self._is_ordered:
                lane.release(run.keys)
            self.fail([run], RecordRefusedError, "the sink makes no entry of a record", lane.shard_id, reason)
            del lane.rejected[0]

    def give_up_waiting(self, reason: str, now_s: float) -> None:
        """Give up all that is not on its way."""
        message = "no record can be put to this stream"
        for lane in list(self._lanes):
            self._lanes.moving_runs = list(lane.runs_in_doubt())
            runs = lane.clear()
            for run in runs:
                run.drop_withdrawn()
                if len(run):
                    self.note_failed(run, lane.shard_id, reason, now_s)
            self.fail(runs, RecordRefusedError, message, lane.shard_id, reason)
        self._lanes.moving_runs = []

    def expire(self, now_s: float) -> None:
        """Give the records whose time to live has passed their outcome."""
        for lane in list(self._lanes):
            self._expire(lane, now_s)

    def _expire(self, lane: Lane, now_s: float) -> None:
        if not lane.may_expire(now_s):
            return
        self._lanes.moving_runs = list(lane.runs_in_doubt())
        expired = lane.expire(now_s)
        reason = lane.retry[0].reason if lane.retry else self.trouble
        self.settle_expired(expired, lane, now_s, reason)
        self._lanes.moving_runs = []

    def settle_expired(self, runs: Iterable[Run], lane: Lane, now_s: float, reason: str) -> list[Run]:
        """Give those of the runs that have expired their outcome; return the others."""
        expired: list[Run] = []
        left: list[Run] = []
        for run in runs:
            (expired if run.chunk.expires_at_s <= now_s else left).append(run)
        for run in expired:
            run.drop_withdrawn()
            if len(run):
                latency_s = now_s - run.chunk.put_at_s
                self.facts_made.append(facts.Expired(lane.shard_id, len(run), run.attempts, run.doubtful, latency_s))
        self.fail(expired, RecordExpiredError, "a record's time to live passed", lane.shard_id, reason)
        return left

    def settle(self, chunk: Chunk, indices: Sequence[int], fate: Fate) -> None:
        """Settle these records of a chunk together."""
        self.freed_bytes += chunk.settle(indices, fate)
        if not chunk.unsettled:
            self.live.pop(chunk.number, None)

    def note_failed(self, run: Run, shard_id: str | None, reason: str, now_s: float) -> None:
        """Note as a fact that the records of a run are given up."""
        self.facts_made.append(facts.Failed(shard_id, len(run), run.attempts, reason, now_s - run.chunk.put_at_s))

    def with_place(self, message: str) -> str:
        """Return a message to a record with the stream in front."""
        return f"{self.place}: {message}" if self.place else message

    def fail(self, runs: Iterable[Run], kind: type[PutError], message: str, shard_id: str | None, reason: str) -> None:
        """Give the records of runs an outcome that says why they are not known to be written."""
        for run in runs:
            run.drop_withdrawn()
            rest = run.next(len(run))
            if rest.indices:
                outcome = NotWritten(
                    kind, self.with_place(message), run.attempts, run.doubtful, shard_id, run.reason or reason
                )
                self.settle(rest.chunk, rest.indices, outcome)
            # The run is emptied afterwards: where a signal handler raises before, the records are still found here.
            run.at = len(run.datas)
