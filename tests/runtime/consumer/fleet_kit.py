"""Workers of one application in one process, each with its own source, on one table; an account of what they get."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
import zlib
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.record_source import KinesisSource
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.log.pace import PollingOptions
from shardway.core.log.pages import Retention
from shardway.core.log.user_records import ShardView
from shardway.core.service_clock import SERVICE_CLOCK_S
from shardway.model import HASH_KEY_MAX, StartingPosition, StreamName
from shardway.runtime.dead_letters.writers import open_letters
from shardway.runtime.feeds.polling import PollingFeed
from shardway.runtime.worker.holding import Readers
from shardway.runtime.worker.sharded_stream import StreamPart, shard_id_of
from shardway.runtime.worker.worker import Worker
from shardway.stores.memory import MemoryLeaseTable
from tests.options_kit import options_of
from tests.runtime.consumer.reading_kit import plain_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from shardway.core.leases import Checkpoint, LeaseRow
    from shardway.local import LocalKinesis
    from shardway.model import ListedShard
    from shardway.ports import LeaseTable
    from shardway.runtime.shard.shard_reader import ShardReader

STREAM = "orders"
POLL = PollingOptions(interval_s=0.02, idle_interval_s=0.05)
DEADLINE_S = 40.0
RETENTION_S = 24 * 3600.0
LONG_BEFORE_S = 3600.0
STARTS = (
    StartingPosition.TRIM_HORIZON,
    StartingPosition.LATEST,
    StartingPosition.at_timestamp(dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
)


def drawn_start() -> StartingPosition:
    """Each test begins at one of the three starts, and always at the same."""
    return STARTS[zlib.crc32(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0].encode()) % len(STARTS)]


@dataclass
class Account:
    """Every delivery of every worker."""

    got: list[tuple[str, str, int, bytes]] = field(default_factory=list)
    """Worker, shard, token, data."""
    times: list[tuple[float, str, str]] = field(default_factory=list)
    """Of each batch: when (the loop's time), worker, shard."""
    events: list[Any] = field(default_factory=list)

    def counts(self) -> Counter[bytes]:
        return Counter(data for *_, data in self.got)

    async def until(self, wanted: set[bytes]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not wanted <= {data for *_, data in self.got}:
                await asyncio.sleep(0.02)

    def tokens_rise(self) -> bool:
        """Of each shard, no delivery came with a token below one that was seen."""
        seen: dict[str, int] = {}
        for _, shard_id, token, _ in self.got:
            if token < seen.get(shard_id, 0):
                return False
            seen[shard_id] = token
        return True


class PolledStream:
    """The stream, as one worker reads it."""

    name = STREAM

    def __init__(
        self, source: KinesisSource, rng: random.Random, on_event: Callable[[Any], None], before_s: float
    ) -> None:
        """``before_s``: how long before now a lease begins that is made at LATEST, or at a time."""
        self._source = source
        self._before_s = before_s
        self._rng = rng
        self._on_event = on_event

    @property
    def now_s(self) -> float:
        return self._source.now_s

    async def list_shards(self) -> Sequence[ListedShard]:
        return await self._source.shards()

    def start_ms(self, checkpoint: Checkpoint) -> int | None:
        return int((self._source.now_s - self._before_s) * 1000) if checkpoint.is_timed else None

    def open_feed(self, row: LeaseRow) -> PollingFeed:
        first = 0 if row.first_hash_key is None else row.first_hash_key
        last = HASH_KEY_MAX if row.last_hash_key is None else row.last_hash_key
        until_s = None if row.read_until_ms is None else row.read_until_ms / 1000
        view = ShardView(STREAM, shard_id_of(row.key), first, last)
        return PollingFeed(
            self._source,
            FeedCursor(view, row.checkpoint, read_until_s=until_s),
            rng=self._rng,
            on_event=self._on_event,
            options=POLL,
            retention=Retention(RETENTION_S),
        )

    def promote(self, feed: PollingFeed) -> PollingFeed:
        return feed

    def open_window(self, row: LeaseRow) -> None:
        """No duplicates are left out."""


class Fleet:
    """Starts, stops and kills workers."""

    def __init__(self, local: LocalKinesis, table: LeaseTable, **settings: Any) -> None:
        self.account = Account()
        self.workers: dict[str, Worker] = {}
        self.table = table
        self._local = local
        # Where the start is drawn all that a test puts is wanted, as if the leases had been made long before it began.
        self._before_s = SERVICE_CLOCK_S if "starting_position" in settings else LONG_BEFORE_S
        self._options = dict[str, Any](
            **{
                "failover_s": 2.0,
                "look_interval_s": 0.1,
                "wait_interval_s": 0.02,
                "starting_position": drawn_start(),
                "polling": POLL,
                "drain_deadline_s": 5.0,
                **settings,
            }
        )
        self._tasks: dict[str, list[asyncio.Task[Any]]] = {}
        self._sources: dict[str, KinesisSource] = {}
        self.handle_s = 0.0

    def start(self, name: str, table: LeaseTable | None = None, **settings: Any) -> Worker:
        """``table``: as this worker reaches it; ``settings`` of this one alone."""
        source = KinesisSource(
            StreamName(STREAM),
            ConnectionOptions(
                endpoint_url=self._local.endpoint_url,
                region=self._local.region,
                credentials=Credentials("local", "local"),
            ),
        )
        rng = random.Random(name)
        tasks = self._tasks[name] = []

        def on_reader(reader: ShardReader) -> None:
            tasks.append(asyncio.create_task(self._handle(name, reader)))

        chosen, tell = options_of(**{**self._options, **settings}), self.account.events.append
        part = StreamPart(stream=PolledStream(source, rng, tell, self._before_s))
        letters = open_letters(chosen.dead_letters, None)
        readers = Readers([part], chosen, letters, context_of=plain_context, rng=rng, on_event=tell)
        worker = self.workers[name] = Worker(
            name, table or self.table, chosen, readers=readers, rng=rng, on_event=tell, on_reader=on_reader
        )
        self._sources[name] = source
        tasks.append(asyncio.create_task(worker.run()))
        return worker

    async def _handle(self, name: str, reader: ShardReader) -> None:
        while (batch := await reader.delivery.next_batch()) is not None:
            with batch:
                self.account.times.append((asyncio.get_running_loop().time(), name, reader.shard_id))
                self.account.got += [(name, reader.shard_id, batch.token, record.data) for record in batch]
                if self.handle_s:
                    await asyncio.sleep(self.handle_s)

    async def stop(self, name: str) -> None:
        """As at a deploy: everything is handed over."""
        async with asyncio.timeout(DEADLINE_S):
            await self.workers.pop(name).stop()
            await asyncio.gather(*self._tasks.pop(name))
        await self._sources.pop(name).close()

    async def kill(self, name: str) -> None:
        """The worker does nothing any more, and does not tell the others."""
        self.workers.pop(name)
        tasks = self._tasks.pop(name)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sources.pop(name).close()

    def failures(self) -> list[BaseException]:
        return [
            error
            for tasks in self._tasks.values()
            for task in tasks
            if task.done() and not task.cancelled() and (error := task.exception()) is not None
        ]

    async def close(self) -> None:
        for name in list(self.workers):
            await self.kill(name)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                if failures := self.failures():
                    raise failures[0]
                await asyncio.sleep(0.02)

    def held(self) -> dict[str, set[str]]:
        return {name: set(worker.held) for name, worker in self.workers.items()}


@asynccontextmanager
async def fleet_of(local: LocalKinesis, table: MemoryLeaseTable | None = None, **settings: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(local, table or MemoryLeaseTable(), **settings)
    try:
        yield fleet
        assert fleet.failures() == []
    finally:
        await fleet.close()
