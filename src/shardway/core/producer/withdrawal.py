"""The withdrawal of records: a caller takes back what was never sent."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from shardway.core.producer import facts
from shardway.core.producer.limits import RUN_WORK
from shardway.core.producer.outcome import NotWritten
from shardway.errors import RecordWithdrawnError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.lanes import Lanes
    from shardway.core.producer.run import Run
    from shardway.core.producer.settling import Settling

WITHDRAWN_BYTES_MAX = 1024 * 1024
"""The bytes above which records that were withdrawn are let go: they count for no bound any more."""
WITHDRAWN_STEP_RECORDS = 10_000
"""The number of records in a step where runs are withdrawn: that takes long by the run, and hardly by the record."""


class Withdrawal:
    """Takes records back, one at a time or many in steps."""

    def __init__(self, lanes: Lanes, settling: Settling) -> None:
        self._lanes = lanes
        self._settling = settling
        self._withdrawn_bytes = 0  # They are still in the lanes.

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take a record back that was never sent. False if the record was sent, or has its outcome."""
        if chunk.outcomes[index] is not None or not self._is_waiting(chunk, index):
            return False
        self._settling.facts_made.append(facts.Withdrawn(1))
        freed_bytes = chunk.settle((index,), self._outcome())
        # Lanes skip the record after this. It has its outcome before: a signal handler that raises in between would
        # otherwise leave a record that is neither sent nor settled, for ever.
        if chunk.withdrawn is None:
            chunk.withdrawn = set()
        chunk.withdrawn.add(index)
        self._settling.freed_bytes += freed_bytes
        if not chunk.unsettled:
            self._settling.live.pop(chunk.number, None)
        self._withdrawn_bytes += freed_bytes
        if self._withdrawn_bytes > WITHDRAWN_BYTES_MAX:
            self._withdrawn_bytes = 0
            for lane in self._lanes:
                lane.drop_withdrawn()
        return True

    def withdraw_in_steps(self, chunks: Iterable[Chunk]) -> Iterator[int]:
        """Take back what was never sent of these chunks, in steps; each step yields how many records it took back.

        Others may run between two steps, but nothing may be sent. After `mend` it has to begin again.
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
            before = run.chunk.withdrawn
            indices: Sequence[int] = run.indices[run.at :]
            if before:
                indices = [index for index in indices if index not in before]
            columns.setdefault(run.chunk, []).append(indices)
        if not columns:
            return 0
        outcome = self._outcome()
        withdrawn = 0
        for chunk, parts in columns.items():
            indices = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
            if indices:
                self._settling.settle(chunk, indices, outcome)
                withdrawn += len(indices)
        self._settling.facts_made.append(facts.Withdrawn(withdrawn))
        return withdrawn

    def _outcome(self) -> NotWritten:
        message = self._settling.with_place("a record was withdrawn before it was sent")
        return NotWritten(RecordWithdrawnError, message, 0, False, None, "")

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
