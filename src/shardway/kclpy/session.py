"""A session has one shard, one tenure and one processor, which it tells what the KCL's MultiLangDaemon would, in that
order.

The calls are initialize, then processRecords again and again, then one of: shutdownRequested and leaseLost (the shard
goes to another worker), leaseLost alone (it is gone already), shardEnded (and the processor has to checkpoint).
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.tenure.state import Loss
from shardway.core.options.base import Options
from shardway.kclpy.processor import ProcessorGoneError, ProcessorRaisedError
from shardway.model import Position
from shardway.runtime.shard.listener import ShardListener
from shardway.tasks import awaited, drop, spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.kclpy.processor import ProcessorProcess
    from shardway.model import Record
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader


class OnError(StrEnum):
    """Says what becomes of a batch that a processor raises for."""

    RETRY = "retry"
    """The batch is given again, after a while; a bad record ends up alone. Nothing of the shard passes it."""
    SKIP = "skip"
    """The batch is passed over, as amazon_kclpy does: the next checkpoint covers it."""


class SessionOptions(Options, frozen=True, kw_only=True):
    """How a processor is treated."""

    on_error: OnError = OnError.RETRY
    answer_timeout_s: Annotated[float, Meta(gt=0)] | None = None
    """Seconds after which a call that is not answered ends the process; None: a call may take any time."""
    last_call_timeout_s: Annotated[float, Meta(gt=0)] = 10.0
    """Seconds after which a call that is not answered ends the process, for calls after which the processor is done."""
    stored_timeout_s: Annotated[float, Meta(gt=0)] = 5.0
    """Seconds after which a checkpoint that the table has not taken is answered with ThrottlingException; it is stored
    later.
    """
    end_again_s: Annotated[float, Meta(gt=0)] = 0.5
    """The pause before a processor that did not checkpoint at its shard's end is asked again; it doubles each time."""
    end_again_max_s: Annotated[float, Meta(gt=0)] = 30.0
    empty_call_after_s: Annotated[float, Meta(gt=0)] | None = None
    """Seconds of a shard's silence after which processRecords is called without records; None: it never is."""


class ShardSession:
    """Serves one processor. ``say`` takes a line that tells the operator what goes on; ``on_began`` is called when the
    processor has answered for the first time.
    """

    def __init__(
        self,
        reader: ShardReader,
        process: ProcessorProcess,
        options: SessionOptions,
        say: Callable[[str], None],
        on_began: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_began = on_began
        self._reader = reader
        self._process = process
        self._options = options
        self._say = say
        self._turn = asyncio.Lock()  # the processor does one thing at a time
        self._batch: Batch[Record] | None = None
        self._newest: Checkpoint = reader.stored
        self._at_end = False
        self._has_left = False
        self._leave_task: asyncio.Task[None] | None = None
        self._gone_error: ProcessorGoneError | None = None
        self.began = False
        """True once the processor was called, and has answered: it works at all."""
        self.progressed = False
        """True once the processor has taken records, and not raised."""

    async def run(self) -> None:
        """Serve until the tenure is over. Raises ProcessorGoneError; what was not settled is delivered again then."""
        follower = _Follower(self)
        with self._reader.host.lock:
            self._reader.listen(follower)
        try:
            await self._begin()
            while (batch := await self._next_batch()) is not None:
                if not await self._give(batch):
                    return
            if not self._reader.is_over:
                await self._end()
            if not self._reader.stored.is_end:
                await self._last_call({"action": "leaseLost"})
        finally:
            with self._reader.host.lock:
                self._reader.unlisten(follower)
            if self._leave_task is not None:
                self._leave_task.cancel()
            if self._batch is not None:
                self._batch.nack()

    # --- the calls ------------------------------------------------------------------------------

    async def _begin(self) -> None:
        start = self._newest
        message = {
            "action": "initialize",
            "shardId": self._reader.shard_id,
            "sequenceNumber": start.text,
            "subSequenceNumber": start.sub_sequence_number,
        }
        async with self._turn:
            raised = await self._ask(message)
        self.began = True
        self._on_began()
        if raised is not None:
            raise ProcessorGoneError(f"the processor raised {raised} in initialize")

    async def _next_batch(self) -> Batch[Record] | None:
        """Return the next records; None when the shard has no more, or the tenure is over."""
        while True:
            asking = awaited(self._reader.delivery.next_batch())
            try:
                await asyncio.wait(
                    (asking, self._process.exited),
                    timeout=self._options.empty_call_after_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if asking.done():
                    return asking.result()
            finally:
                drop(asking)
            async with self._turn:  # a process that has ended is asked too: the asking says how it ended
                if not self._has_left or self._process.exited.done():
                    await self._ask(_records_message((), None))

    async def _give(self, batch: Batch[Record]) -> bool:
        """Let the processor have records. Return False where it was told to leave, and is not to have them."""
        async with self._turn:
            if self._has_left:
                batch.nack()
                self.stays()
                return False
            self._batch = batch
            self._newest = Checkpoint.at(_position(batch.records[-1]))
            begun_s = self._reader.driver.now_s
            raised = await self._ask(_records_message(batch.records, batch.millis_behind_latest))
            self._reader.driver.handled(self._reader.driver.now_s - begun_s)
            self._batch = None
            if raised is None:
                self.progressed = True
                batch.ack()
            elif self._options.on_error is OnError.SKIP:
                batch.skip(reason=f"the processor raised {raised}")
            else:
                batch.fail(ProcessorRaisedError(f"the processor raised {raised}"))
        return True

    async def _end(self) -> None:
        """Ask the processor of a shard that has ended until it has put a checkpoint there, as the KCL does."""
        pause_s = self._options.end_again_s
        self._at_end = True
        while not self._reader.is_over:
            async with self._turn:
                if self._has_left:  # it was told to leave, just before its shard turned out to have ended
                    break
                await self._ask({"action": "shardEnded"})
            if self._reader.stored.is_end:
                return
            if not self._reader.is_over:
                self._say(
                    f"{self._reader.shard_id} has ended, and its processor has not put a checkpoint: it is asked again "
                    f"in {pause_s:g} s, and the shard's children wait. Call checkpoint() without arguments there."
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._reader.handle.over()
            pause_s = min(2 * pause_s, self._options.end_again_max_s)
        await self._reader.handle.over()

    async def leave(self) -> None:
        """Tell the processor that the shard goes to another worker: this is the last chance to put a checkpoint."""
        if self._leave_task is None:
            self._leave_task = spawn(self._say_goodbye(), self._goodbye_failed)
        # The drain that waits here may give up while the processor is in the middle of it, or the processor may die.
        # So the goodbye is a task of its own, which goes on.
        await asyncio.wait((self._leave_task,))

    async def _say_goodbye(self) -> None:
        async with self._turn:
            if self._at_end or not self._reader.ledger.draining:  # the processor knows already, or the shard stays
                self._leave_task = None
                return
            self._has_left = True
            if self.began:
                with contextlib.suppress(ProcessorGoneError):  # the next asking raises it again
                    await self._last_call({"action": "shutdownRequested"})

    def _goodbye_failed(self, error: BaseException) -> None:
        """Take note of a goodbye that failed. The shard leaves all the same; what the processor has not put a
        checkpoint for is read again.
        """
        what = f"telling the processor that the shard goes has failed: {type(error).__name__}"
        self._gone_error = ProcessorGoneError(what)
        self._say(f"{self._reader.shard_id}: {what}; it is ended, and the shard goes")

    def stays(self) -> None:
        """Take note that the shard does not go after all. A processor that was told to leave has finished: another one
        is to begin.
        """
        if self._has_left and not self._reader.is_over:
            self._reader.let_go()

    async def _last_call(self, message: dict[str, Any]) -> None:
        await self._ask(message, self._options.last_call_timeout_s)

    async def _ask(self, message: dict[str, Any], timeout_s: float | None = None) -> str | None:
        """Send a message and serve the processor until it is done. Return what it raised, by name. When this has failed
        once, it fails again.
        """
        if self._gone_error is not None:
            raise self._gone_error
        limits_s = [one for one in (timeout_s, self._options.answer_timeout_s) if one is not None]
        limit_s = min(limits_s, default=None)
        try:
            async with asyncio.timeout(limit_s):
                return await self._talk(message)
        except TimeoutError:
            self._gone_error = ProcessorGoneError(
                f"the processor has not answered {message['action']} within {limit_s:g} s"
            )
            raise self._gone_error from None
        except ProcessorGoneError as error:
            self._gone_error = error
            raise

    async def _talk(self, message: dict[str, Any]) -> str | None:
        raised: str | None = None
        action = message["action"]
        await self._process.send(message)
        while True:
            answer = await self._process.receive()
            match answer:
                case {"action": "checkpoint"}:
                    await self._process.send(await self._answer_checkpoint(answer))
                case {"action": "raised", "error": str(error)}:
                    raised = error
                case {"action": "status", "responseFor": str(done)} if done == action:
                    return raised
                case _:
                    raise ProcessorGoneError(
                        f"the processor's process answered {action} with a message that is no answer to it"
                    )

    # --- checkpoints ----------------------------------------------------------------------------

    async def _answer_checkpoint(self, asked: dict[str, Any]) -> dict[str, Any]:
        number, sub = asked.get("sequenceNumber"), asked.get("subSequenceNumber")
        number = None if number is None else str(number)
        error = await self._checkpoint(number, sub)
        return {"action": "checkpoint", "sequenceNumber": number, "subSequenceNumber": sub, "error": error}

    async def _checkpoint(self, number: str | None, sub: object) -> str | None:
        """Settle through a position and wait until that is stored. Return the name of the KCL's exception, if it is
        not.
        """
        reader, end = self._reader, Checkpoint.SHARD_END
        try:
            wanted = self._newest if number is None else Checkpoint.parse(number, int(str(sub or 0)))
        except ValueError:
            return "IllegalArgumentException"
        if self._at_end and wanted in (self._newest, end):
            wanted = end
        elif not (reader.checkpoint_max or reader.stored) <= wanted <= self._newest:
            return "IllegalArgumentException"
        if reader.is_over:
            return self._refusal()
        if self._batch is not None and wanted.is_position:
            self._settle(self._batch, wanted.position)
        reader.checkpointing.checkpoint_to(wanted)
        try:
            async with asyncio.timeout(self._options.stored_timeout_s):
                stored = await reader.checkpointing.until_stored(min(wanted, reader.ledger.progress.safe))
        except TimeoutError:
            return "ThrottlingException"
        return None if stored else self._refusal()

    def _settle(self, batch: Batch[Record], through: Position) -> None:
        records = batch.records
        done = bisect_right(range(len(records)), through, key=lambda index: _position(records[index]))
        if done:
            batch.settle_through(done - 1)

    def _refusal(self) -> str:
        """Return the name of the exception that says why there can be no checkpoint any more."""
        return "InvalidStateException" if self._reader.lost is Loss.GONE else "ShutdownException"


def _position(record: Record) -> Position:
    return Position(record.sequence_number, record.sub_sequence_number)


def _records_message(records: Sequence[Record], millis_behind_latest: int | None) -> dict[str, Any]:
    return {
        "action": "processRecords",
        "millisBehindLatest": millis_behind_latest,
        "records": [
            {
                "action": "record",
                "data": record.data,
                "partitionKey": record.partition_key,
                "sequenceNumber": str(record.sequence_number),
                "subSequenceNumber": record.sub_sequence_number,
                "approximateArrivalTimestamp": round(record.approximate_arrival_timestamp.timestamp() * 1000),
            }
            for record in records
        ],
    }


class _Follower(ShardListener):
    """Hears what becomes of a session's shard. The reader may run on another loop, in another thread, and calls it
    there; the session and its processor stay on their own.
    """

    def __init__(self, session: ShardSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()

    async def leaving(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        if not self._loop.is_closed():  # else nothing is left of the session that could be told
            await reader.host.outside(self._session.leave)

    def resumed(self, reader: ShardReader) -> None:
        """See `ShardListener`. The session is told soon, and not at once: whatever resumes is in the middle of it."""
        reader.host.on_user_loop(lambda: self._loop.call_soon(self._session.stays))
