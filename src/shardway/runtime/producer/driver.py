"""The driver of a producer's batcher: it makes the batcher's steps whole, and passes on what they mean.

A signal handler may raise in the middle of a step. The batcher is marked as broken then, and the next step mends it
first: every record is in one place again, or has its outcome.
"""

from __future__ import annotations

import contextlib
import time
from math import inf
from typing import TYPE_CHECKING

from shardway.core.producer.mending import mend

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from shardway.core.producer.batcher import Batcher
    from shardway.core.producer.chunk import Chunk
    from shardway.core.producer.request import Request
    from shardway.runtime.producer.flushes import Flushes
    from shardway.runtime.producer.intake import Intake
    from shardway.runtime.producer.reporter import Reporter

EXPIRY_CHECK_S = 0.1
"""How late an expired record may get its outcome, in seconds."""


class BatcherDriver:
    """Gives the batcher what was put, and takes what it has noted: freed bytes, facts, and records with an outcome."""

    _close_steps: Iterator[None] | None = None
    _mend_count = 0

    def __init__(self, batcher: Batcher, intake: Intake, reporter: Reporter, flushes: Flushes) -> None:
        self.batcher = batcher
        self.intake = intake
        self.tasks: dict[Request, asyncio.Task[None]] = {}
        """The tasks that send requests."""
        self.next_expiry_s = inf
        """The time at which to look for records that have expired."""
        self._reporter = reporter
        self._flushes = flushes

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Make a step that leaves nothing half done; if it is broken off, the next one mends that."""
        try:
            yield
        except BaseException:
            self.batcher.broken = True
            raise

    def take_in(self, records_max: float = inf) -> bool:
        """Take in what was put, up to the chunk in which ``records_max`` records are reached. True where more is left.
        What was broken off before is mended first.
        """
        with self.intake.lock:
            self.intake.close_chunk()
        if self.batcher.broken:
            self._mend()
        queue = self.intake.queue
        if not queue:
            return False
        with self.step():
            while queue and records_max > 0:
                chunk = queue[0]
                records_max -= chunk.records
                self.batcher.add(chunk, chunk.keys, chunk.datas)
                self._let_in(chunk)
        if self.next_expiry_s == inf:
            self.next_expiry_s = time.monotonic() + EXPIRY_CHECK_S
        return bool(queue)

    def _let_in(self, chunk: Chunk) -> None:
        """Take a chunk off the queue: lanes have its records now."""
        self._reporter.meter.count_accepted(chunk.records)
        # No call stands between these: all are done, or none is.
        del self.intake.queue[0]
        chunk.keys = chunk.datas = ()

    def expire(self, now_s: float) -> None:
        """Give the records whose time to live has passed their outcome, if it is time to look."""
        if now_s >= self.next_expiry_s:
            self.batcher.expire(now_s)
            self.next_expiry_s = now_s + EXPIRY_CHECK_S if self.batcher.settling.live else inf

    def collect(self) -> None:
        """Take what the batcher has noted: the bytes that became free, the facts to count and to emit, and the chunks
        that are done.
        """
        settling = self.batcher.settling
        if settling.freed_bytes:
            room = self.intake.room
            with self.intake.lock:
                # No call stands between these: both are done, or none is.
                room.free += settling.freed_bytes
                settling.freed_bytes = 0
                room.give_back(0)
        noted = settling.facts_made
        while noted:
            self._reporter.report_fact(noted.popleft())
        self._flushes.finish()

    def withdraw(self, chunk: Chunk, index: int) -> bool:
        """Take back a record if it was never sent."""
        self.take_in()
        with self.step():
            withdrawn = self.batcher.withdraw(chunk, index)
        self.collect()
        return withdrawn

    def withdraw_in_steps(self, chunks: Sequence[Chunk]) -> Iterator[int]:
        """Take back the records of these chunks that were never sent, in steps; each yields how many they were."""
        steps: Iterator[int] | None = None
        mend_count = 0
        while True:
            self.take_in()
            if steps is None or mend_count != self._mend_count:
                steps, mend_count = self.batcher.withdraw_in_steps(chunks), self._mend_count
            with self.step():
                withdrawn = next(steps, None)
            if withdrawn is None:
                return
            self.collect()
            yield withdrawn

    def close_some(self) -> bool:
        """Make a step of the end, in which every record gets its outcome. True when it is through."""
        self.take_in()  # What was broken is mended, and its end begins again.
        if is_first := self._close_steps is None:
            self._close_steps = self.batcher.close_in_steps(time.monotonic())
        with self.step():
            is_through = next(self._close_steps, self) is self
        if is_first:
            for task in self.tasks.values():
                task.cancel()
        self.collect()
        return is_through

    def _mend(self) -> None:
        """Put together what a broken step has left: every record is in one place again, or has its outcome."""
        queue, settling = self.intake.queue, self.batcher.settling
        self._close_steps = None
        self._mend_count += 1
        mend(self.batcher, {request for request, task in self.tasks.items() if not task.done()})
        for chunk in list(settling.live.values()):
            if queue and queue[0] is chunk:
                self._let_in(chunk)
        self.batcher.recount()
        with self.intake.lock:
            held = sum([chunk.held_bytes for chunk in queue])
            held += sum([chunk.bytes_left for chunk in settling.live.values()])
            room = self.intake.room
            settling.freed_bytes = 0
            room.free = room.bytes_max - room.claimed - held
            room.give_back(0)
        self._flushes.finish()
        self.batcher.broken = False
        if settling.live:
            self.next_expiry_s = min(self.next_expiry_s, time.monotonic() + EXPIRY_CHECK_S)
