"""The dead letters of one shard in one tenure are made and written here."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING, Any

from shardway.core.ledger.letter import Letter
from shardway.waiting import is_cancelled

if TYPE_CHECKING:
    from shardway.core.ledger.letters import DeadLetter
    from shardway.runtime.dead_letters.writers import LetterSink


TIMEOUT_S = 60.0
"""The seconds after which a dead letter that is not written is written again: a destination that hangs must not hold a
shard up unnoticed.
"""


class LetterWriter:
    """Writes the dead letters of one shard in one tenure."""

    def __init__(
        self, sink: LetterSink, *, stream: str, shard_id: str, worker: str, token: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._sink = sink
        self._stream, self._shard_id, self._worker, self._token = stream, shard_id, worker, token
        self._timeout_s = timeout_s

    async def write(self, dead: DeadLetter[Any]) -> BaseException | None:
        """Write a letter. Returns why it is not known to be written, if it is not; raises only when the task is
        to end.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._sink.write(self._letter(dead))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return error  # What the sink waited for was cancelled.
        except Exception as error:  # The user's function, a full disk, a stream that is gone: it stays unsettled.
            return error
        return None

    def _letter(self, dead: DeadLetter[Any]) -> Letter:
        record = getattr(dead.record, "record", dead.record)  # It may be of a part, or of a value.
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
