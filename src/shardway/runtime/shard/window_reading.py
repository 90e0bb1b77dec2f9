"""The window of duplicates of a shard that begins: what lies before its checkpoint is read again, to know its keys.

The first page behind the checkpoint shows the time at which the window ends. The reading then goes as far back as the
window reaches: it reads this shard up to the checkpoint, and its ancestors to their ends. What was read is an input of
the machine of the duplicates (`shardway.core.shard.duplicates`), as are the keys that the program makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import TYPE_CHECKING, TypeAlias

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger_events import raised_at
from shardway.core.ledger.page import behind
from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import NextStep
from shardway.core.shard.duplicates import Duplicates, KeyedRecord, Window
from shardway.errors import NotFoundError, ShardwayError
from shardway.events import DedupeKeyFailed, DedupeWindowRebuilt
from shardway.model import Position, StartingPosition
from shardway.tasks import spawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardway.core.leases import LeaseRow
    from shardway.core.log.feed_cursor import PageMeaning
    from shardway.core.shard.duplicates import Deduplicate
    from shardway.events import LedgerEvent
    from shardway.model import ListedShard, Record
    from shardway.ports import RecordSource
    from shardway.runtime.feeds.polling import PollingFeed

HashRange: TypeAlias = tuple[int | None, int | None]
LISTING_RETRY_S = 1.0
"""The pause before the shards are listed again, when that failed for a reason that may pass."""
OLDEST = Policy(expects=True)
"""The policy that looks for the oldest record of a shard, or for how far the shard is silent from its beginning on:
either comes, or nothing is known.
"""


class WindowRead:
    """Reads the window of one shard, from the warm-up (or the begin of the tenure) on."""

    def __init__(
        self,
        choice: Deduplicate,
        source: RecordSource,
        *,
        shard_id: str,
        row: LeaseRow,
        starting_position: StartingPosition,
        open_feed: Callable[[str, HashRange, StartingPosition], PollingFeed],
        on_event: Callable[[LedgerEvent], None],
    ) -> None:
        """``row``: the lease as it is when the shard's pages begin to be fetched. ``open_feed`` reads any shard of the
        stream from a time on, and of it this hash range alone: other records were not delivered here, and must not be
        learnt. ``starting_position``: where the application began; what came before was never delivered.
        """
        self.stream, self.shard_id = source.stream, shard_id
        self.duplicates = Duplicates(choice, source.stream, shard_id)
        """The duplicates that are known so far. The shard's machine goes on with them."""
        self._choice = choice
        self._source = source
        self._row = row
        self._starting_position = starting_position
        self._open_feed = open_feed
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._read_task: asyncio.Task[None] | None = None
        self._known_event = asyncio.Event()
        self.failure: BaseException | None = None
        """The error that ended the reading."""
        self._shards = 0
        # Where the application began at the tip, or at a time, nothing before it was delivered; at a shard's beginning
        # only its ancestors' records may have been.
        began = row.checkpoint == Checkpoint.TRIM_HORIZON and row.parents
        if not (row.checkpoint.is_position or began):
            self.forget()

    # --- what is known --------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """True when all of the window is known."""
        return self.duplicates.state is Window.KNOWN

    def check(self) -> None:
        """Raise the error that ended the reading."""
        if self.failure is not None:
            raise self.failure

    async def over(self) -> None:
        """Wait until the window is known, or will not be."""
        await self._known_event.wait()

    # --- pages ----------------------------------------------------------------------------------

    def keys_of(self, records: Sequence[Record]) -> list[KeyedRecord | None]:
        """Return the keys that the program makes of the records."""
        return [self._key_of(record) for record in records]

    def follow(self, records: Sequence[Record]) -> None:
        """Note the next records, which the former owner has delivered."""
        self.duplicates.follow(self.keys_of(records))
        self._emit()

    def saw(self, taken: PageMeaning) -> None:
        """Note that a page behind the checkpoint was fetched: the first one shows how far back to read."""
        if self.duplicates.state is not Window.UNKNOWN:
            return
        if len(taken.records):
            self._begin(taken.records[0].approximate_arrival_timestamp)
        elif not taken.millis_behind_latest or taken.ended:
            self._begin(dt.datetime.fromtimestamp(self._source.now_s, dt.UTC))

    def forget(self) -> None:
        """Forget the window: only what comes after this call counts."""
        if self._read_task is not None:
            self._read_task.cancel()
        self.duplicates.forget()
        self._known_event.set()

    def cancel(self) -> None:
        """Stop the reading: it is not needed any more."""
        if self._read_task is not None:
            self._read_task.cancel()

    async def stop(self) -> None:
        """Stop the reading, and wait until nothing is read any more."""
        self.cancel()
        if self._read_task is not None:
            await asyncio.wait((self._read_task,))

    # --- reading --------------------------------------------------------------------------------

    def _key_of(self, record: Record) -> KeyedRecord | None:
        """Return the record's key; None: it has none, or the user's function failed, and the record is delivered."""
        try:
            key: object = self._choice.key(record)  # It is the user's function, and may return anything.
        except Exception as error:
            kind = type(error).__name__
            self._key_failed(record, kind, f"raised {kind} ({raised_at(error)})")
            return None
        if key is None:
            return None
        if not isinstance(key, str | bytes):
            self._key_failed(record, "TypeError", f"returned {type(key).__name__}, not bytes, str or None")
            return None
        try:
            return KeyedRecord.of(key, record.approximate_arrival_timestamp.timestamp())
        except UnicodeEncodeError:
            self._key_failed(record, "UnicodeEncodeError", "returned a str that UTF-8 cannot encode")
            return None

    def _key_failed(self, record: Record, error_type: str, failure: str) -> None:
        position = Position(record.sequence_number, record.sub_sequence_number)
        self._on_event(DedupeKeyFailed(self.stream, self.shard_id, position, error_type, failure))

    def _emit(self) -> None:
        for event in self.duplicates.take_events():
            self._on_event(event)

    def _begin(self, first: dt.datetime) -> None:
        since = self.duplicates.window.since(first)
        if self._starting_position.timestamp is not None:
            since = max(since, self._starting_position.timestamp)
        self.duplicates.begins()
        self._read_task = spawn(self._read_all(since), self._keep_failure)

    async def _read_all(self, since: dt.datetime) -> None:
        begun_s = self._loop.time()
        until = self._row.checkpoint
        if until.is_position:
            own = self._row.first_hash_key, self._row.last_hash_key
            await self._read(self.shard_id, own, since, until)
        await self._read_ancestors(since)
        self.duplicates.is_read()
        if self._shards:
            known, duration_s = self.duplicates, self._loop.time() - begun_s
            what = len(known.window), self._shards, duration_s, known.delivered_early
            self._on_event(DedupeWindowRebuilt(self.stream, self.shard_id, *what))
        self._known_event.set()

    def _keep_failure(self, error: BaseException) -> None:
        """Keep the error, which is raised where the shard's pages are asked for."""
        self.failure = error
        self._known_event.set()

    async def _read_ancestors(self, since: dt.datetime) -> None:
        if await self._began_before(self.shard_id, since):
            return
        known: dict[str, ListedShard] = {shard.shard_id: shard for shard in await self._list_shards()}
        own = known.get(self.shard_id)
        waiting = list(self._row.parents) if own is None else list(own.parents)
        seen: set[str] = set()
        while waiting:
            shard_id = waiting.pop()
            if shard_id in seen or shard_id not in known:
                continue
            seen.add(shard_id)
            shard = known[shard_id]
            await self._read(shard_id, (shard.first_hash_key, shard.last_hash_key), since, None)
            if not await self._began_before(shard_id, since):
                waiting += shard.parents

    async def _read(self, shard_id: str, hash_range: HashRange, since: dt.datetime, until: Checkpoint | None) -> None:
        """Learn a shard's stretch; ``until`` None: to its end."""
        self._shards += 1
        feed = self._open_feed(shard_id, hash_range, StartingPosition.at_timestamp(since))
        try:
            while True:
                taken = await feed.next()
                records = taken.records
                beyond = 0 if until is None else len(behind(records, until))
                self.duplicates.learn(self.keys_of(records[: len(records) - beyond]))
                self._emit()
                reached = until is not None and taken.ends_at is not None and until.position <= taken.ends_at
                if taken.ended or beyond or reached or (not len(records) and not taken.millis_behind_latest):
                    return
        except NotFoundError:  # The shard was trimmed meanwhile.
            return
        finally:
            await feed.close()

    async def _began_before(self, shard_id: str, since: dt.datetime) -> bool:
        """True when the shard's oldest record came before: then what lies before the shard is out of the window."""
        with contextlib.suppress(ShardwayError):  # It is not known then.
            log = LogCursor(OLDEST)
            iterator: str | None = await self._source.iterator(shard_id, log.ask())
            while iterator is not None:
                asked_s = self._source.now_s
                page = await self._source.read(iterator, 1)
                if page.records:
                    return page.records[0].approximate_arrival_timestamp < since.timestamp()
                behind_ms = page.millis_behind_latest
                step = log.page((), behind_ms=behind_ms, is_last=page.is_last, asked_s=asked_s)
                reached_s = log.silence.reached_s
                if step.does is not NextStep.READ or (reached_s is not None and reached_s >= since.timestamp()):
                    return False
                iterator = page.next_iterator
        return False

    async def _list_shards(self) -> Sequence[ListedShard]:
        while True:
            try:
                return await self._source.shards()
            except ShardwayError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(LISTING_RETRY_S)
