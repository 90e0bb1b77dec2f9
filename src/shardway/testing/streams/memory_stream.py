"""A stream in memory is the local Kinesis's model of the service, asked directly."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING, Any

from shardway.aws.calls.answers import error_class
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.record_source import KinesisSource
from shardway.core.service_clock import ServiceClock
from shardway.local.model import KinesisModel, Limits, ModelError
from shardway.model import Position, StreamName
from shardway.testing.streams.controls import StreamControls
from shardway.waiting import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.log.pages import ReadPage

EMPTY_READ_S = 5.0
"""Seconds that a read waits where nothing is: well within the five minutes that an iterator is good."""


class MemoryStream(StreamControls):
    """A stream of this process, for `TestConsumer`. Its clock is the event loop's, whose time can be let pass."""

    def __init__(self, name: str = "orders", *, shards: int = 1, seed: int = 0) -> None:
        super().__init__(name, self._answer)
        self.model = KinesisModel(clock=self.now_s, rng=random.Random(seed), limits=Limits(per_shard=False))
        self._begin: tuple[float, float] | None = None
        self._last_s = time.time()
        self._call("CreateStream", ShardCount=shards)
        self.changes = 0
        """A count that grows with all that is done to the stream."""
        self._waiting_events: set[asyncio.Event] = set()

    def source(self) -> KinesisSource:
        """Return the stream as a consumer reads it."""
        return _MemorySource(self)

    async def changed(self, seconds_max: float) -> None:
        """Wait until something is done to the stream, or for ``seconds_max``."""
        event = asyncio.Event()
        self._waiting_events.add(event)
        try:
            await wait_set(event, seconds_max)
        finally:
            self._waiting_events.discard(event)

    def ends(self) -> dict[str, Position]:
        """Return the position of the last record of each shard that has one."""
        return {
            record.shard_id: Position(record.sequence_number, record.sub_sequence_number) for record in self.records()
        }

    def _answer(self, operation: str, request: dict[str, Any]) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        if operation in ("PutRecords", "SplitShard", "MergeShards"):
            self.changes += 1
            for event in self._waiting_events:
                event.set()
        return json.loads(answer) if answer else None

    def now_s(self) -> float:
        """Return the stream's time in epoch seconds: from the first look inside of a loop on, it goes as the loop's
        time.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self._last_s if self._begin else time.time()
        if self._begin is None:
            self._begin = (time.time(), loop.time())
        self._last_s = max(self._last_s, self._begin[0] + loop.time() - self._begin[1])
        return self._last_s


class _ModelWire:
    """Stands in for `shardway.aws.wire.Wire` before a client."""

    def __init__(self, model: KinesisModel, wall: Callable[[], float]) -> None:
        self.options = ConnectionOptions()
        self.region = model.region
        self.clock = ServiceClock()
        self.wall = wall
        self._model = model

    async def call(self, _service: str, operation: str, body: bytes, **_options: Any) -> bytes:
        """Make one call, which is answered at the loop's next turn."""
        await asyncio.sleep(0)
        try:
            return self._model.handle(operation, body)
        except ModelError as fault:
            raise error_class(fault.code, fault.status)(
                fault.code, fault.message or "", operation=operation, status=fault.status
            ) from None

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _MemorySource(KinesisSource):
    """`KinesisSource` without a connection. A read where nothing is waits for something to come."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = StreamName(stream.name)
        self._client = KinesisClient(_ModelWire(stream.model, stream.now_s))  # type: ignore[arg-type]
        self._arn = None
        self._memory = stream

    @property
    def now_s(self) -> float:
        """The stream's time, in epoch seconds."""
        return self._memory.now_s()

    async def read(self, iterator: str, records_max: int) -> ReadPage:
        """See `RecordSource.read`."""
        before = self._memory.changes
        page = await super().read(iterator, records_max)
        at_tip = not page.records and page.millis_behind_latest == 0 and page.next_iterator is not None
        if at_tip and before == self._memory.changes:
            await self._memory.changed(EMPTY_READ_S)
        return page
