"""A shard read in one tenure, with all parts real: the local service, a lease table, the machine, the ledger."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardway.aws.options import ConnectionOptions, Credentials
from shardway.aws.record_source import KinesisSource
from shardway.core.leases.row import LeaseRow
from shardway.core.leases.tenure.machine import claim
from shardway.core.leases.tenure.times import LeaseTimes
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.log.pace import PollingOptions
from shardway.core.log.user_records import ShardView
from shardway.model import HASH_KEY_MAX, Position, StreamName
from shardway.runtime.dead_letters.shard_letters import TIMEOUT_S, LetterWriter
from shardway.runtime.feeds.pages import Pages
from shardway.runtime.feeds.polling import PollingFeed
from shardway.runtime.shard.reader_context import ReaderContext
from shardway.runtime.shard.shard_reader import ReaderChoices, ShardReader
from shardway.runtime.shard.tenure_keeper import TenureKeeper
from shardway.runtime.threads.host import SameLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.core.leases.tenure import commands as tenure_commands
    from shardway.local import LocalKinesis
    from shardway.ports import LeaseTable
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.pending import PendingCheckpoint

STREAM = "orders"
SHARD_ID = "shardId-000000000000"
POLL = PollingOptions(interval_s=0.02, idle_interval_s=0.05)
DEADLINE_S = 20.0


@dataclass
class Reading:
    """A worker's one shard."""

    keeper: TenureKeeper
    reader: ShardReader
    events: list[Any] = field(default_factory=list)
    commands: list[tenure_commands.Command] = field(default_factory=list)

    async def take(self, count: int) -> list[bytes]:
        """So many records, each batch settled at once; fewer when the tenure ends before."""
        found: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                batch = await self.reader.delivery.next_batch()
                if batch is None:
                    break
                with batch:
                    found += [record.data for record in batch.records]
        return found

    async def prepare(self, batch: Batch[Any], state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """As `Consumer.prepare`."""
        record = batch.records[index]
        position = Position(record.sequence_number, record.sub_sequence_number)
        return await self.reader.checkpointing.prepare(position, state)


def plain_context(stream: str, shard_id: str) -> ReaderContext:
    """The context of a reader on the running loop, without a deserializer."""
    return ReaderContext(host=SameLoop(asyncio.get_running_loop()))


async def lease_of(table: LeaseTable, key: str = SHARD_ID) -> LeaseRow:
    row = await table.get(key)
    assert row is not None
    return row


@asynccontextmanager
async def reading(
    local: LocalKinesis,
    table: LeaseTable,
    worker: str = "worker-1",
    *,
    failover_s: float = 2.0,
    policy: LedgerPolicy | None = None,
    **choices: Any,
) -> AsyncIterator[Reading]:
    """Claim the lease, and read while the context lasts; at its end the tenure is abandoned, as by a crash."""
    loop = asyncio.get_running_loop()
    source = KinesisSource(
        StreamName(STREAM),
        ConnectionOptions(
            endpoint_url=local.endpoint_url, region=local.region, credentials=Credentials("local", "local")
        ),
    )
    await table.create(LeaseRow(key=SHARD_ID))
    events: list[Any] = []
    commands: list[tenure_commands.Command] = []
    readers: list[ShardReader] = []

    def heard(command: tenure_commands.Command) -> None:
        commands.append(command)
        for reader in readers:
            reader.driver.hear(command)

    keeper = TenureKeeper(table, claim(await lease_of(table), worker, LeaseTimes.of(failover_s), loop.time()))
    keeper.listen(heard)
    keeping = asyncio.create_task(keeper.run())
    assert await asyncio.wait_for(keeper.began, DEADLINE_S)
    shard = ShardView(STREAM, SHARD_ID, 0, HASH_KEY_MAX)
    feed = PollingFeed(
        source,
        FeedCursor(shard, keeper.row.checkpoint),
        rng=random.Random(1),
        on_event=events.append,
        options=POLL,
    )
    letters, timeout_s = choices.pop("letters", None), choices.pop("letter_timeout_s", TIMEOUT_S)
    where: dict[str, Any] = {
        "stream": STREAM,
        "shard_id": SHARD_ID,
        "worker": worker,
        "token": keeper.token,
        "timeout_s": timeout_s,
    }
    reader = ShardReader(
        keeper,
        Pages(feed),
        ReaderChoices(ledger=policy or LedgerPolicy(), **choices),
        plain_context(STREAM, SHARD_ID),
        rng=random.Random(2),
        on_event=events.append,
        letters=None if letters is None else LetterWriter(letters, **where),
    )
    readers.append(reader)
    fetching = asyncio.create_task(reader.fetcher.run())
    try:
        yield Reading(keeper, reader, events, commands)
    finally:
        for task in (fetching, keeping):
            task.cancel()
        await asyncio.gather(fetching, keeping, return_exceptions=True)
        await source.close()
