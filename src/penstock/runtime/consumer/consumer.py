"""`Consumer`: the records of a stream, shared with whoever consumes it under the same application's name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import uuid
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.core.feeding.cursor import FeedCursor
from penstock.core.feeding.user_records import ShardView
from penstock.model import HASH_KEY_MAX
from penstock.runtime.consumer.settings import WorkerSettings
from penstock.runtime.consumer.stream_part import StreamPart, shard_id_of
from penstock.runtime.consumer.worker import Worker
from penstock.runtime.feeds import FanOutFeed, PollingFeed, SubscriptionGate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from penstock.core.leases import LeaseRow
    from penstock.model import Record
    from penstock.ports import LeaseTable, RecordSource
    from penstock.runtime.consumer.batch import Batch
    from penstock.runtime.consumer.shard_reader import ShardReader
    from penstock.wiring import LeaseTableOptions, WireSettings

CLOSE_GRACE_S = 5.0
"""Beyond the drain's deadline, for the writes that give the leases away."""


class Consumer:
    """Reads a stream's shards beside other consumers of the same ``application``, each shard by one of them.

    ::

        async with Consumer("orders", application="billing") as consumer:
            async for batch in consumer:
                async with batch:
                    await handle(batch.records)

    ``stream`` is a name or ARN, which ``wire`` says how to reach, or any RecordSource. ``leases`` is where the
    consumers of the application agree: by default a DynamoDB table with the application's name, made if it is not
    there;
    LeaseTableOptions name another and say how it is made; or a LeaseTable, which stays open. At the
    end of the ``async with`` block all shards are handed to the other consumers.
    """

    def __init__(
        self,
        stream: str | RecordSource,
        *,
        application: str,
        worker_id: str | None = None,
        leases: LeaseTable | LeaseTableOptions | None = None,
        settings: WorkerSettings | None = None,
        wire: WireSettings | None = None,
        on_event: Callable[[Any], None] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.application = application
        self.worker_id = worker_id or new_worker_id()
        self.settings = settings or WorkerSettings()
        self._stream = stream
        self._wire = wire
        self._leases = leases
        self._on_event = on_event
        self._rng = rng or random.Random()
        self._readers: dict[ShardReader, None] = {}
        self._ready: deque[ShardReader] = deque()
        self._is_ready: set[ShardReader] = set()
        self._stirred = asyncio.Event()
        self._new: deque[ShardReader] = deque()
        self._source: RecordSource | None = None
        self._table: LeaseTable | None = None
        self._own_table: LeaseTable | None = None
        self._worker: Worker | None = None
        self._running: asyncio.Task[None] | None = None
        self._retention_s: float | None = None

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin. Raises what says that it cannot work: no such stream, no permission, options that fault."""
        from penstock.wiring import LeaseTableOptions, lease_table_for, source_for

        self._source = source_for(self._stream, self._wire)
        leases = self._leases
        if leases is None or isinstance(leases, LeaseTableOptions):
            leases = lease_table_for(self.application, self._wire, leases, failover_s=self.settings.failover_s)
            self._own_table = leases
        self._table = leases
        facts = await self._source.describe()
        self._retention_s = facts.retention_s
        promote: Callable[[PollingFeed], PollingFeed | FanOutFeed] = _as_it_is
        if self.settings.fan_out is not None:
            consumer_arn = await self._source.register(self.settings.fan_out_consumer or self.application)
            promote = partial(self._subscribed, consumer_arn, SubscriptionGate(self.settings.subscriptions_per_s))
        self._worker = Worker(
            self.worker_id,
            self._table,
            self.settings,
            streams=[
                StreamPart(
                    name=self._source.stream,
                    list_shards=self._source.shards,
                    open_feed=self._open_feed,
                    promote=promote,
                )
            ],
            rng=self._rng,
            on_event=self._tell,
            on_reader=self._on_reader,
        )
        self._running = asyncio.create_task(self._worker.run())
        self._running.add_done_callback(lambda _: self._stir())

    async def close(self) -> None:
        """Hand over all shards, within the drain's deadline, and end. Nothing more is handed out."""
        worker, running = self._worker, self._running
        self._worker = self._running = None
        try:
            if worker is not None and running is not None and not running.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.drain_deadline_s + CLOSE_GRACE_S):
                        await worker.stop()
        finally:
            if running is not None:
                if not running.done():
                    await asyncio.wait((running,), timeout=CLOSE_GRACE_S)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            if self._source is not None:
                await self._source.close()
            if self._own_table is not None:
                await self._own_table.close()
            self._stir()

    async def __aenter__(self) -> Consumer:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- reading --------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[Batch[Record]]:
        """Batches of all shards that this consumer holds, each shard's in order. Ends when the consumer is closed."""
        try:
            while True:
                batch = self._take()
                if batch is not None:
                    yield batch
                    continue
                self._check()
                if self._running is None:
                    return
                self._stirred.clear()
                await self._stirred.wait()
        finally:
            for reader in list(self._readers):
                reader.take_back()

    async def shards(self) -> AsyncIterator[ShardReader]:
        """Each shard as this consumer begins to hold it: iterate it for its batches, in a task of its own."""
        while True:
            while self._new:
                yield self._new.popleft()
            self._check()
            if self._running is None:
                return
            self._stirred.clear()
            await self._stirred.wait()

    async def run(self, handler: Callable[[Batch[Record]], Awaitable[object]]) -> None:
        """Call ``handler`` with each batch, one at a time per shard, shards side by side, until the consumer is closed.

        A batch is settled when the handler returns; what it raises is a failure of the batch.
        """

        async def follow(reader: ShardReader) -> None:
            async for batch in reader:
                async with batch:
                    await handler(batch)

        async with asyncio.TaskGroup() as group:
            async for reader in self.shards():
                group.create_task(follow(reader))

    # --- parts ----------------------------------------------------------------------------------

    def _take(self) -> Batch[Record] | None:
        while self._ready:
            reader = self._ready.popleft()
            self._is_ready.discard(reader)
            batch = reader.take()
            if batch is not None:
                self._make_ready(reader)  # its turn comes again after the others'
                return batch
        return None

    def _on_reader(self, reader: ShardReader) -> None:
        self._readers[reader] = None
        self._new.append(reader)
        reader.on_stir = self._make_ready
        self._make_ready(reader)

    def _make_ready(self, reader: ShardReader) -> None:
        if reader.is_over:
            self._readers.pop(reader, None)
        elif reader not in self._is_ready:
            self._is_ready.add(reader)
            self._ready.append(reader)
        self._stir()

    def _stir(self) -> None:
        self._stirred.set()

    def _check(self) -> None:
        """Raise what ended the worker."""
        running = self._running
        if running is not None and running.done() and not running.cancelled():
            error = running.exception()
            if error is not None:
                raise error

    def _tell(self, event: Any) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler({"message": "on_event raised", "exception": error})

    def _open_feed(self, row: LeaseRow) -> PollingFeed:
        source = self._source
        assert source is not None
        start = self.settings.start_at
        cursor = FeedCursor(
            ShardView(
                source.stream,
                shard_id_of(row.key),
                0 if row.first_hash_key is None else row.first_hash_key,
                HASH_KEY_MAX if row.last_hash_key is None else row.last_hash_key,
                self.settings.outside,
            ),
            row.checkpoint,
            timestamp_s=None if start.timestamp is None else start.timestamp.timestamp(),
        )
        return PollingFeed(
            source,
            cursor,
            rng=self._rng,
            on_event=self._tell,
            times=self.settings.polling,
            horizon_s=self._horizon_s,
        )

    def _subscribed(self, consumer_arn: str, gate: SubscriptionGate, feed: PollingFeed) -> FanOutFeed:
        """Go on by subscription where a feed that polls has come to."""
        assert self._source is not None
        return FanOutFeed(
            self._source,
            consumer_arn,
            feed.cursor,
            gate=gate,
            rng=self._rng,
            on_event=self._tell,
            times=self.settings.fan_out,
            poll_times=self.settings.polling,
            horizon_s=self._horizon_s,
        )

    def _horizon_s(self) -> float | None:
        """The oldest arrival time that the retention covers."""
        if self._source is None or self._retention_s is None:
            return None
        return self._source.now_s - self._retention_s


def _as_it_is(feed: PollingFeed) -> PollingFeed:
    return feed


def new_worker_id() -> str:
    """Unique among all processes: host, process, and chance."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
