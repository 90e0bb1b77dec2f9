"""A reader has the parts that read one shard in one tenure: the shard is fetched into its ledger, delivered from there,
and checkpointed.

`ShardReader` begins behind what the former owner has settled, and knows where the shard stands. The worker, the
consumer and the listeners know the shard by it; what they do goes to the part that does it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.ledger.ledger import Ledger
from shardway.core.ledger.page import payload_bytes_of
from shardway.core.ledger.policy import LedgerPolicy
from shardway.core.log.user_records import PLAIN_BYTES, RECORD_BYTES
from shardway.core.shard import events, machine
from shardway.core.shard.checkpoints import events as checkpoint_events
from shardway.core.shard.checkpoints.cadence import Riding
from shardway.core.shard.checkpoints.machine import begin
from shardway.core.shard.machine import ShardMachine
from shardway.runtime.shard.checkpointing import Checkpointing
from shardway.runtime.shard.delivery import Delivery
from shardway.runtime.shard.driver import ShardDriver
from shardway.runtime.shard.fetcher import Fetcher
from shardway.runtime.shard.handle import ShardHandle
from shardway.runtime.shard.listener import Origin
from shardway.runtime.shard.listeners import Listeners
from shardway.runtime.shard.pending import choose

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from shardway.core.leases import LeaseRow
    from shardway.core.leases.tenure.state import Loss
    from shardway.core.log.feed_cursor import FeedCursor
    from shardway.core.shard.checkpoints.cadence import Cadence
    from shardway.events import LedgerEvent
    from shardway.model import Record
    from shardway.policies import OnPending, OrderPolicy
    from shardway.runtime.dead_letters.shard_letters import LetterWriter
    from shardway.runtime.feeds.fan_out import FanOutFeed
    from shardway.runtime.feeds.pages import Pages
    from shardway.runtime.feeds.polling import PollingFeed
    from shardway.runtime.shard.listener import ShardListener
    from shardway.runtime.shard.reader_context import ReaderContext
    from shardway.runtime.shard.tenure_keeper import TenureKeeper
    from shardway.runtime.threads.host import Host

BATCH_RECORDS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class ReaderChoices:
    """The choices of a reader. They are checked where they come from: `ConsumerOptions`."""

    ledger: LedgerPolicy = field(default_factory=LedgerPolicy)
    cadence: Cadence = field(default_factory=Riding)
    batch_records_max: int = BATCH_RECORDS_MAX
    checkpoint_manually: bool = False
    """True: what is settled is checkpointed no further than `Checkpointing.checkpoint_to` says."""
    letters_at_once_max: int = machine.LETTERS_AT_ONCE_MAX
    on_pending: OnPending | None = None
    """The function that says what becomes of a checkpoint that the former owner left pending; None: it is abandoned."""


class ShardReader:
    """Reads one shard while its lease is held, and no longer."""

    _settled_before = 0  # The records that were settled in former ledgers.
    _settled_bytes_before = 0

    def __init__(
        self,
        keeper: TenureKeeper,
        pages: Pages,
        choices: ReaderChoices,
        context: ReaderContext,
        *,
        rng: Random,
        on_event: Callable[[LedgerEvent], None],
        letters: LetterWriter | None = None,
    ) -> None:
        """``letters`` writes dead letters; None: none are written."""
        self.stream, self.shard_id = pages.stream, pages.shard_id
        self.origin = Origin.NEW
        """The way in which the shard came to this consumer."""
        self._keeper = keeper
        self._pages = pages
        self._policy = choices.ledger
        self._rng = rng
        row = keeper.row
        begins = begin(
            row,
            choose(row, choices.on_pending, stream=self.stream, shard_id=self.shard_id, on_event=on_event),
            where=f"{self.stream}, {self.shard_id}",
            cadence=choices.cadence,
            bound=row.checkpoint if choices.checkpoint_manually else None,
            now_s=asyncio.get_running_loop().time(),
        )
        shard: ShardMachine[Record] = ShardMachine(
            self._new_ledger(begins.settled),
            begins.checkpoints,
            duplicates=pages.admission.duplicates,
            letters_at_once_max=0 if letters is None else choices.letters_at_once_max,
        )
        self._listeners = Listeners(self)
        self.driver = driver = ShardDriver(
            shard, pages, keeper, self._listeners, context, letters=letters, on_event=on_event
        )
        self.fetcher = Fetcher(pages, driver)
        self.delivery = Delivery(driver, self.fetcher, context, batch_records_max=choices.batch_records_max)
        self.checkpointing = Checkpointing(driver)
        self.handle = ShardHandle(driver)
        pages.begin(begins.wanted)
        if begins.settled > row.checkpoint:
            driver.handle(checkpoint_events.Flush(at_once=True))

    def listen(self, listener: ShardListener) -> None:
        """Add a listener: it hears of the shard."""
        self._listeners.add(listener)
        if listener.holds_end:
            self.driver.handle(events.HoldEnd())

    def unlisten(self, listener: ShardListener) -> None:
        """Remove a listener: it hears nothing more."""
        self._listeners.remove(listener)

    # --- what is known ----------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        """The host in which the reader runs; the callers that read may be on another loop."""
        return self.driver.host

    @property
    def ledger(self) -> Ledger[Record]:
        """The ledger of what was delivered and settled. After each `seek` it is another one."""
        return self.driver.ledger

    @property
    def is_over(self) -> bool:
        """True when nothing more is delivered: the shard is done, or the lease is gone."""
        return self.driver.is_over

    @property
    def over_because(self) -> str:
        """The reason why nothing more is delivered."""
        return self.driver.machine.over_because

    @property
    def has_ended(self) -> bool:
        """True when the shard is done, and stored as ended."""
        return self.driver.machine.has_ended

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the reading: it is raised where records are asked for."""
        return self.driver.failure

    @property
    def lost(self) -> Loss | None:
        """The reason why the tenure ended, where the lease was lost."""
        return self.driver.machine.lost

    @property
    def checkpoint_max(self) -> Checkpoint | None:
        """The furthest checkpoint that may be stored, even if records after it are settled; see
        `Checkpointing.checkpoint_to`. Until it is the shard's end, the shard is not stored as ended. None: there is no
        bound.
        """
        return self.driver.machine.checkpoints.bound

    @property
    def stored(self) -> Checkpoint:
        """The checkpoint that the lease is known to hold."""
        return self.driver.stored

    @property
    def settled(self) -> Checkpoint:
        """The checkpoint up to which all is settled; once that is stored, a new owner goes on behind it."""
        return self.driver.settled

    @property
    def cursor(self) -> FeedCursor:
        """The cursor that says how far the shard is fetched. After each `seek` it is another one."""
        return self._pages.cursor

    @property
    def records_settled(self) -> int:
        """The number of records that are settled in this tenure, wherever they lie."""
        return self._settled_before + self.ledger.progress.done_records

    @property
    def bytes_settled(self) -> int:
        """The data bytes of the records that are settled in this tenure."""
        return self._settled_bytes_before + self.ledger.progress.done_bytes

    @property
    def row(self) -> LeaseRow:
        """The lease as it was last confirmed."""
        return self._keeper.row

    @property
    def token(self) -> int:
        """A number that grows with every owner of the shard."""
        return self._keeper.token

    # --- what the program wants -------------------------------------------------------------------

    def seek(self, feed: PollingFeed | FanOutFeed, after: Checkpoint) -> None:
        """Go on with another feed, which reads what follows ``after``.

        What was fetched is dropped, and settling what is in flight counts for nothing any more. The stored checkpoint
        never goes back: it stands until what is settled passes it. Raises CheckpointError while a checkpoint is
        pending.
        """
        if self.is_over:
            return
        # A word says where reading begins, and not that anything is settled: the word that is before all checkpoints is
        # never stored. A lease that were to stand at LATEST by a seek would begin at the next owner's "now".
        settled_to = after if after.is_position else Checkpoint.AT_TIMESTAMP
        ledger, settled = self._new_ledger(settled_to), (self.records_settled, self.bytes_settled)
        self.driver.handle(events.Seek(ledger))
        self._settled_before, self._settled_bytes_before = settled
        if self._pages.window is not None:
            self._pages.window.forget()
        self._pages.seek(feed, after)

    def use_order(self, order: OrderPolicy | None) -> None:
        """Deliver in this order. What was fetched stays: a seek would pass over what came at LATEST, and forget the
        window of duplicates.
        """
        self._policy = replace(self._policy, order=order)
        self.driver.handle(events.Reorder(order))

    def let_go(self) -> None:
        """Free the shard for any worker."""
        self.host.soon(self._listeners.let_go)

    def _new_ledger(self, after: Checkpoint) -> Ledger[Record]:
        """Return an empty ledger, for what follows ``after``."""
        return Ledger(
            self.stream,
            self.shard_id,
            after,
            self._policy,
            rng=self._rng,
            size_of=held_bytes_of,
            share=None if (room := self._pages.room) is None else room.share,
        )


def held_bytes_of(record: Record) -> int:
    """Return the memory of a record, or of a part of one, that stays when those around it are settled."""
    return payload_bytes_of(record) + PLAIN_BYTES + RECORD_BYTES
