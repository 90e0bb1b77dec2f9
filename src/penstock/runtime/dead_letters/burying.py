"""Writes a shard's dead letters, and tells its ledger which of them are written."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.ledger.letter import Letter
from penstock.runtime.waiting import is_cancelled
from penstock.tasks import failure_of, spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.ledger.ledger import Ledger
    from penstock.core.ledger.ticket import DeadLetter
    from penstock.runtime.dead_letters.destinations import LetterSink
    from penstock.tasks import Heard

AT_ONCE_MAX = 16
"""So many letters of a shard are written side by side: a failing dependency can make thousands."""
TIMEOUT_S = 60.0
"""A letter that is not written by then is written anew: a destination that hangs must not hold a shard up unnoticed."""


class Burying:
    """One tenure's letters on their way. The shard's reader calls `work` whenever letters may be due."""

    def __init__(
        self, ledger: Ledger[Any], sink: LetterSink, *, stream: str, shard_id: str, worker: str, token: int,
        timeout_s: float = TIMEOUT_S, at_once_max: int = AT_ONCE_MAX, on_written: Callable[[], None], on_failed: Heard,
    ) -> None:  # fmt: skip
        """``on_written`` is called when a letter is written, or could not be: its record counts as settled, or is due
        again later. ``on_failed`` hears of an error by which a record is neither.
        """
        self._ledger = ledger
        self._sink = sink
        self._stream, self._shard_id, self._worker, self._token = stream, shard_id, worker, token
        self._timeout_s = timeout_s
        self._at_once_max = at_once_max
        self._loop = asyncio.get_running_loop()
        self._due: deque[DeadLetter[Any]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_written, self._on_failed = on_written, on_failed

    def work(self) -> None:
        """Begin to write what is due."""
        self._due.extend(self._ledger.dead_letters(self._loop.time()))
        while self._due and len(self._tasks) < self._at_once_max:
            task = spawn(self._write(self._due.popleft()), self._on_failed)
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def stop(self) -> None:
        """The tenure is over: the next owner hands those records out again."""
        self._due.clear()
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and failure_of(task) is None:
            self._on_written()

    async def _write(self, dead: DeadLetter[Any]) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._sink.write(self._letter(dead))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            self._ledger.not_buried(dead, error, self._loop.time())  # what the sink waited for was cancelled
        except Exception as error:  # a function of the user's, a full disk, a stream that is gone: it stays unsettled
            self._ledger.not_buried(dead, error, self._loop.time())
        else:
            self._ledger.buried(dead)

    def _letter(self, dead: DeadLetter[Any]) -> Letter:
        record = getattr(dead.record, "record", dead.record)  # of a part, or of a value that was made of it
        return Letter(
            stream=self._stream,
            shard_id=self._shard_id,
            position=dead.position,
            part=dead.part,
            attempts=dead.attempts,
            error_type=dead.error_type,
            error_message=dead.error_message,
            written_at=dt.datetime.now(dt.UTC),
            worker=self._worker,
            token=self._token,
            arrived_at=record.approximate_arrival_timestamp,
            partition_key=record.partition_key,
            explicit_hash_key=record.explicit_hash_key,
            data=record.data,
        )
