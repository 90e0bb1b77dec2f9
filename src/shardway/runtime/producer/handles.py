"""Handles are what a caller holds of records that were put: the way to their outcomes. A flush names what has none."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.core.producer.chunk import ALL, Chunk
from shardway.core.producer.outcome import NotWritten
from shardway.errors import PutError
from shardway.model import OutRecord, PutResult
from shardway.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


class PutHandle(msgspec.Struct, gc=False, eq=False):
    """A record that was put with ``put_nowait``. ``await`` it for its PutResult, or its PutError."""

    _chunk: Chunk
    _index: int

    def done(self) -> bool:
        """True if the record's outcome is known."""
        return self._chunk.is_settled(self._index)

    def result(self) -> PutResult:
        """Return the result. Raises the record's PutError, or RuntimeError while the outcome is not known."""
        if not self.done():
            raise RuntimeError("the record has no outcome yet: await it, or look at done()")
        return result_of(self._chunk, self._index)

    def withdraw(self) -> bool:
        """Take the record back. True if it was never sent, and never will be; it fails with RecordWithdrawnError.

        False if the record is on its way, or has its outcome: then nothing changes.
        """
        if self.done():
            return False
        owner = self._chunk.owner
        return owner is not None and owner.withdraw(self._chunk, self._index)

    def __await__(self) -> Generator[Any, None, PutResult]:
        chunk, index = self._chunk, self._index
        known = chunk.known_outcomes
        outcome = known[index] if index < len(known) else None
        if isinstance(outcome, PutResult):  # This is the usual case, without a call.
            return outcome
        if not chunk.is_settled(index):
            yield from outcome_future(chunk, index).__await__()
        return result_of(chunk, index)


class SyncPutHandle(PutHandle, gc=False, eq=False):
    """A `PutHandle` for threads: ``result`` waits."""

    def result(self, timeout_s: float | None = None) -> PutResult:
        """Wait for the result. Raises the record's PutError, or TimeoutError when it is not known after
        ``timeout_s``.
        """
        wait_for_outcome(self._chunk, self._index, timeout_s)
        return super().result()


class Puts:
    """Records that were put with ``put_many``, numbered as they were given."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return sum(chunk.records for chunk in self._chunks)

    def done(self) -> bool:
        """True if all outcomes are known."""
        return all(chunk.is_settled(ALL) for chunk in self._chunks)

    async def settled(self) -> Puts:
        """Wait until all outcomes are known; return the same object."""
        for chunk in self._chunks:
            if not chunk.is_settled(ALL):
                await outcome_future(chunk, ALL)
        return self

    def results(self) -> list[PutResult | PutError]:
        """Return a result, or an error, for each record. Raises RuntimeError while some have no outcome."""
        return list(self._results())

    def failures(self) -> list[tuple[int, PutError]]:
        """Return the numbers and errors of the records that are not known to be written. Raises what ``results``
        raises.
        """
        self._check_done()
        found, before = [], 0
        for chunk in self._chunks:
            for index, outcome in enumerate(chunk.outcomes):
                if isinstance(outcome, NotWritten):
                    found.append((before + index, outcome.error()))
            before += chunk.records
        return found

    def raise_failure(self) -> None:
        """Raise the first PutError, if a record is not known to be written."""
        for _, error in self.failures():
            raise error

    def withdraw(self) -> int:
        """Take back what was never sent; return how many records that is."""
        owner = self._chunks[0].owner if self._chunks else None
        return 0 if owner is None else owner.withdraw_all(self._chunks)

    def _results(self) -> Iterator[PutResult | PutError]:
        self._check_done()
        for chunk in self._chunks:
            for outcome in chunk.outcomes:
                if outcome is not None:
                    yield outcome.error() if isinstance(outcome, NotWritten) else outcome

    def _check_done(self) -> None:
        if not self.done():
            raise RuntimeError("some records have no outcome yet: wait with settled()")


class SyncPuts(Puts):
    """`Puts` for threads."""

    def wait(self, timeout_s: float | None = None) -> SyncPuts:
        """Wait until all outcomes are known; return the same object. Raises TimeoutError after ``timeout_s``."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        for chunk in self._chunks:
            wait_for_outcome(chunk, ALL, None if end_s is None else max(0.0, end_s - time.monotonic()))
        return self


def result_of(chunk: Chunk, index: int) -> PutResult:
    """Return the result of a record that has its outcome. Raises its PutError if it was not written."""
    outcome = chunk.outcomes[index]
    assert outcome is not None
    if isinstance(outcome, NotWritten):
        raise outcome.error()
    return outcome


def outcome_future(chunk: Chunk, index: int) -> asyncio.Future[None]:
    """Return a future that is done when the record (with ``ALL``: every record) has its outcome."""
    _check_process(chunk)
    loop, thread = asyncio.get_running_loop(), threading.get_ident()
    future: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not future.done():
            future.set_result(None)

    def finish_on_loop() -> None:
        if threading.get_ident() == thread:
            finish()
        else:  # A SyncProducer settles on a loop of its own.
            loop.call_soon_threadsafe(finish)

    chunk.when_settled(index, finish_on_loop)
    return future


def wait_for_outcome(chunk: Chunk, index: int, timeout_s: float | None) -> None:
    """Wait in a thread until the record has its outcome. Raises TimeoutError after ``timeout_s``."""
    if chunk.is_settled(index):
        return
    _check_process(chunk)
    reply = Reply[None]()
    chunk.when_settled(index, lambda: reply.set_result(None))
    try:
        reply.result(timeout_s)
    except TimeoutError:
        raise TimeoutError(
            "the record had no outcome in time: it was not sent yet, or its answer had not come"
        ) from None


def _check_process(chunk: Chunk) -> None:
    if chunk.owner is not None:
        chunk.owner.check_process()


class Unwritten(msgspec.Struct, frozen=True):
    """A record that has no outcome yet. It is still being put."""

    record: OutRecord
    sent: bool
    """True if a request has carried it, so that it may be written already."""

    def __repr__(self) -> str:
        size = len(self.record.data)
        return f"Unwritten({size} bytes, {'sent, no answer yet' if self.sent else 'never sent'})"
