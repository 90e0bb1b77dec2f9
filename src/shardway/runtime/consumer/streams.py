"""A stream that a consumer reads: the facts about it, and feeds of its shards."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.lease_key import StreamKey
from shardway.core.leases.row import LeaseRow
from shardway.core.leases.stream_mark import StreamMark
from shardway.core.log.cursor import latest_s
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.log.pages import Retention
from shardway.core.log.user_records import ShardView
from shardway.errors import OptionError, ThrottledError
from shardway.model import HASH_KEY_MAX, epoch_ms
from shardway.runtime.background import emits_failure
from shardway.runtime.consumer.statistics import shard_statistics
from shardway.runtime.feeds.fan_out import FanOutFeed, Registration, SubscriptionGate, SubscriptionTimes
from shardway.runtime.feeds.polling import FetchRoom, PollingFeed
from shardway.runtime.shard.window_reading import WindowRead
from shardway.runtime.worker.sharded_stream import StreamPart, shard_id_of
from shardway.tasks import SharedWork

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from shardway.core.log.buffer import Buffer
    from shardway.core.log.pages import StreamFacts
    from shardway.model import ListedShard, StartingPosition
    from shardway.options.consumer import ConsumerOptions
    from shardway.ports import RecordSource
    from shardway.runtime.consumer.statistics import ShardStatistics
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.tasks import Heard


FACTS_AGE_MAX_S = 600.0
"""The seconds after which a stream is described anew."""


class OpenStream:
    """One stream of a consumer. Call `open` first."""

    def __init__(
        self,
        source: RecordSource,
        options: ConsumerOptions,
        gate: SubscriptionGate,
        *,
        rng: Random,
        on_event: Callable[[Any], None],
        buffer: Buffer | None = None,
    ) -> None:
        """``gate`` and ``buffer`` are those of all streams of the consumer together."""
        self._buffer = buffer
        self.source = source
        self._options = options
        self._times = options.times.subscriptions or SubscriptionTimes()
        self._gate = gate
        self._rng = rng
        self._on_event = on_event
        self._facts: StreamFacts | None = None
        self._consumer_arn: str | None = None
        self._consumer = ""
        self._refusal: ThrottledError | None = None  # The stream has as many consumers as it may.
        self._register_at_s = float("-inf")
        self._retention = Retention()
        self._describing_at: asyncio.TimerHandle | None = None
        self._description_work = SharedWork(
            self._describe_again,
            self._tell_failed("asking for its retention", "what is known holds, and it is asked for again"),
        )
        self._search_work = SharedWork(
            self._find,
            self._tell_failed("looking for the consumer of its fan-out", "the next shard that needs it looks again"),
        )

    @property
    def name(self) -> str:
        """The stream's name or ARN, as it was given."""
        return self.source.stream

    @property
    def now_s(self) -> float:
        """The service's time, in epoch seconds, as its answers have shown it."""
        return self.source.now_s

    @property
    def facts(self) -> StreamFacts:
        """The facts that the service gave about the stream when it was opened, or last described."""
        assert self._facts is not None
        return self._facts

    async def open(self, consumer: str) -> None:
        """Ask for the facts of the stream; with fan-out, register under this name. Raises the error that says that it
        cannot be read.

        A stream that has as many consumers as it may is polled, until there is room for this one.
        """
        await self._describe()
        self._describe_later()
        self._consumer = consumer
        if self._options.fan_out is not None:
            with contextlib.suppress(ThrottledError):
                await self._register()

    def part(self, *, of_several: bool) -> StreamPart:
        """Return the stream's part for the worker. ``of_several``: lease keys name the stream, as the KCL's do in its
        multi-stream mode.
        """
        return StreamPart(
            stream=self,
            mark=None if of_several else StreamMark(self.facts.arn, self.facts.created_s),
            key=self.key if of_several else None,
        )

    @property
    def key(self) -> StreamKey:
        """The stream's key ``account:stream:creation epoch``. Raises OptionError where the ARN names no account."""
        account = self.facts.arn.split(":")[4:5]
        key = StreamKey.parse(f"{''.join(account)}:{self.facts.arn.rpartition('/')[2]}:{self.facts.created_s}")
        if key is None:
            raise OptionError(
                f"{self.name}: the ARN {self.facts.arn!r} (created {self.facts.created_s}) lacks an account, a name or "
                "a time of creation, by which several streams share one lease table: read this stream with a consumer "
                "of its own"
            )
        return key

    def statistics(self, reader: ShardReader, now_s: float) -> ShardStatistics:
        """Return the figures of one of the stream's shards. ``now_s`` is the loop's clock."""
        retention_s = None if self._facts is None else self._facts.retention_s
        return shard_statistics(reader, now_s, self.source.now_s, retention_s)

    async def list_shards(self) -> Sequence[ListedShard]:
        """Return all shards that the retention still covers."""
        return await self.source.shards()

    def start_ms(self, checkpoint: Checkpoint) -> int | None:
        """Return the time (epoch milliseconds) at which a lease begins that stands at this checkpoint since now; None:
        no time says that, or only the program that made the lease knows it.
        """
        timestamp = self._options.starting_position.timestamp
        if checkpoint == Checkpoint.LATEST:
            return int(latest_s(self.source.now_s) * 1000)
        return epoch_ms(timestamp) if checkpoint.is_timed and timestamp is not None else None

    def open_feed(self, row: LeaseRow) -> PollingFeed:
        """Return a feed that reads a lease's shard from its checkpoint on. Raises OptionError for a lease that begins
        at a time which is not known.
        """
        room = None if self._buffer is None else FetchRoom(self._buffer)
        return self.feed(row, self._options.starting_position, room)

    def feed(self, row: LeaseRow, start: StartingPosition, room: FetchRoom | None = None) -> PollingFeed:
        """Return a feed of a lease's shard, for which the checkpoint AT_TIMESTAMP means the time of ``start``, unless
        the lease has its own. ``room`` bounds the memory of what is fetched.

        Raises OptionError where neither has a time.
        """
        if row.checkpoint == Checkpoint.AT_TIMESTAMP and row.lacks_time and start.timestamp is None:
            raise OptionError(
                f"starting_position: stream {self.name}, shard {shard_id_of(row.key)}: its lease begins AT_TIMESTAMP, "
                "and has no time, because another program made it. Start with StartingPosition.at_timestamp(...) and "
                "the time of that program until each shard has a checkpoint, or move the leases with "
                "`shardway app seek`"
            )
        cursor = FeedCursor(
            ShardView(
                self.name,
                shard_id_of(row.key),
                0 if row.first_hash_key is None else row.first_hash_key,
                HASH_KEY_MAX if row.last_hash_key is None else row.last_hash_key,
                self._options.aggregates_outside_range,
            ),
            row.checkpoint,
            timestamp_s=None if start.timestamp is None else start.timestamp.timestamp(),
            read_until_s=None if row.read_until_ms is None else row.read_until_ms / 1000,
        )
        return PollingFeed(
            self.source,
            cursor,
            rng=self._rng,
            on_event=self._on_event,
            options=self._options.polling,
            retention=self._retention,
            room=room,
        )

    def open_window(self, row: LeaseRow) -> WindowRead | None:
        """Return what reads the window of a shard's duplicates again, where duplicates are left out; else None."""
        choice = self._options.deduplicate
        if choice is None:
            return None

        def feed_since(
            shard_id: str, hash_range: tuple[int | None, int | None], start: StartingPosition
        ) -> PollingFeed:
            first, last = hash_range
            at = Checkpoint.AT_TIMESTAMP
            return self.feed(LeaseRow(key=shard_id, checkpoint=at, first_hash_key=first, last_hash_key=last), start)

        return WindowRead(
            choice,
            self.source,
            shard_id=shard_id_of(row.key),
            row=row,
            starting_position=self._options.starting_position,
            open_feed=feed_since,
            on_event=self._on_event,
        )

    def promote(self, feed: PollingFeed) -> PollingFeed | FanOutFeed:
        """Return a feed that goes on by subscription, where that is wanted, from where a feed that polls has
        come to.
        """
        if self._options.fan_out is None:
            return feed
        return FanOutFeed(feed, Registration(self._consumer_arn, self._gate, self._times, self._find_consumer))

    async def _find_consumer(self) -> str | None:
        """Look for the registered consumer once for all shards that ask in one moment. Raises ThrottledError while
        there is no room.
        """
        return await self._search_work()

    async def _find(self) -> str | None:
        if self._consumer_arn is None:
            return await self._register()
        found = await self.source.registered(self._consumer)
        self._consumer_arn = found or self._consumer_arn
        return found

    async def _register(self) -> str:
        """Register the consumer, at most once in ``return_after_s``: a thousand shards may ask for it."""
        now_s = asyncio.get_running_loop().time()
        if self._refusal is not None and now_s < self._register_at_s:
            raise self._refusal
        self._register_at_s = now_s + self._times.return_after_s
        try:
            self._consumer_arn = await self.source.register(self._consumer)
        except ThrottledError as error:
            self._refusal = error
            raise
        return self._consumer_arn

    async def _describe(self) -> None:
        self._facts = facts = await self.source.describe()
        self._retention.seconds = facts.retention_s

    async def _describe_again(self) -> None:
        """Describe the stream again: its retention can be changed while it is read."""
        await self._describe()

    def _describe_later(self) -> None:
        """Ask again at intervals, also where it fails."""
        self._describing_at = asyncio.get_running_loop().call_later(FACTS_AGE_MAX_S, self._describe_now)

    def _describe_now(self) -> None:
        self._describe_later()
        self._description_work.begin()

    async def close(self) -> None:
        """Close the stream: nothing of it is read any more."""
        if self._describing_at is not None:
            self._describing_at.cancel()
        await self._description_work.close()
        await self._search_work.close()
        await self.source.close()

    def _tell_failed(self, work: str, what_follows: str) -> Heard:
        return emits_failure(self._on_event, (self.name, None), work, what_follows)
