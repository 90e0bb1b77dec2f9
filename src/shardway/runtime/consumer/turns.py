"""The turns of a consumer's shards: the shards that may have records for the program are asked one after another."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from shardway.runtime.shard.listener import Callers, ShardListener
from shardway.runtime.threads.host import SameLoop

if TYPE_CHECKING:
    from shardway.runtime.shard.batch import Batch
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.runtime.threads.host import Host


FAILURES_MAX = 100
"""The most errors of shards that wait to be raised; further ones are not kept."""


class Turns(ShardListener):
    """The turns of the shards. `stirred` is set whenever it is worth to look again."""

    def __init__(self) -> None:
        self.move_to(SameLoop())
        self.asking = Callers()
        """The callers that take records of whichever shard."""
        self.held: dict[ShardReader, bool] = {}
        """The shards that are held; True: the shard's records are offered."""
        self.records_before = 0
        """The number of records that were delivered by shards that are held no more."""
        self.batches_before = 0
        self._order: dict[ShardReader, None] = {}  # The shards in the order of their turns.
        self._unread_shards: dict[ShardReader, None] = {}
        self._failures: deque[BaseException] = deque(maxlen=FAILURES_MAX)  # The shards' own iterations raise these.
        self._errors: deque[BaseException] = deque(maxlen=FAILURES_MAX)

    def move_to(self, host: Host) -> None:
        """Set where the shards' readers run, before there are any; the callers that take may be on another loop."""
        self._lock = host.lock
        self.stirred = host.signal()

    def hold(self, reader: ShardReader) -> None:
        """Hold a shard; its records are not offered before `offer`."""
        self.held[reader] = False
        reader.listen(self)

    def offer(self, reader: ShardReader) -> None:
        """Offer a shard's records, and the shard itself."""
        if reader in self.held:
            self.held[reader] = True
            self._unread_shards[reader] = None
            self.stir(reader)

    def fail(self, error: BaseException) -> None:
        """Keep an error, which the next call that asks for records or shards raises."""
        self._errors.append(error)
        self.stirred.set()

    def take(self, records_max: int | None = None) -> Batch[Any] | None:
        """Return the next batch of whichever shard has one; None: no shard has. Raises what ended the reading of a
        shard, once each.
        """
        self._raise()
        while True:
            with self._lock:
                reader = next(iter(self._order), None)
                if reader is None:
                    return None
                del self._order[reader]
            batch = reader.delivery.take(records_max)
            if batch is not None:
                with self._lock:
                    self.stir(reader)  # Its turn comes again after the others'.
                return batch
            self._raise()

    def _raise(self) -> None:
        with self._lock:
            for waiting in (self._errors, self._failures):
                if waiting:
                    raise waiting.popleft()

    def next_unread(self) -> ShardReader | None:
        """Return a shard that the program does not iterate; None: there is none. Raises what is not the failure of one
        shard.
        """
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            reader = next(iter(self._unread_shards), None)
            if reader is not None:
                del self._unread_shards[reader]
            return reader

    def forget_caller(self) -> None:
        """Note that the current caller has closed the consumer: it takes nothing more."""
        with self._lock:
            for asking in (self.asking, *(reader.driver.asking for reader in self.held)):
                asking.closes()

    def take_back(self) -> None:
        """Deliver again what is in flight: the program has left the iteration of all shards."""
        for reader in list(self.held):
            reader.delivery.take_back()

    @property
    def is_asked(self) -> bool:
        """See `ShardListener`."""
        return bool(self.asking)

    def left(self, reader: ShardReader) -> None:
        """See `ShardListener.left`: if the shard is still held, it is offered anew."""
        with self._lock:
            if reader in self.held:
                self._unread_shards[reader] = None
                self.stirred.set()

    def stir(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        is_offered = self.held.get(reader)
        if reader.is_over:
            self._drop(reader)
        elif is_offered:
            self._order.setdefault(reader)
        if is_offered:
            self.stirred.set()

    def _drop(self, reader: ShardReader) -> None:
        if self.held.pop(reader, None) is not None:
            # A program that takes batches of all shards never calls `next_unread`, and one that iterates shards never
            # calls `take`: the reader would stay there, with all that it holds.
            self._order.pop(reader, None)
            self._unread_shards.pop(reader, None)
            self.records_before += reader.delivery.records_delivered
            self.batches_before += reader.delivery.batches_delivered
            if reader.failure is not None:
                self._failures.append(reader.failure)
                self.stirred.set()
