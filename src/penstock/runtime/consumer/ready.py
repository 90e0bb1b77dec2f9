"""The shards that a consumer holds: which may have records for the program, and which it does not iterate yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.runtime.loops import Here
from penstock.runtime.shard.listener import Asking, ShardListener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.runtime.consumer.lifecycle import Located
    from penstock.runtime.loops import Home
    from penstock.runtime.shard.batch import Batch
    from penstock.runtime.shard.shard_reader import ShardReader

FAILURES_MAX = 100
"""The most errors of shards that wait to be raised; further ones are not kept."""


class Ready(ShardListener):
    """Shards take turns. `stirred` is set whenever it is worth to look again."""

    def __init__(self) -> None:
        self.lives(Here())
        self.asking = Asking()
        """Callers that take records of whichever shard."""
        self.held: dict[ShardReader, bool] = {}
        """True: its records are offered."""
        self.records_before = 0
        """Delivered by shards that are held no more."""
        self.batches_before = 0
        self._turns: dict[ShardReader, None] = {}  # in their order
        self._unread: dict[ShardReader, None] = {}
        self._failures: deque[BaseException] = deque(maxlen=FAILURES_MAX)  # of shards, whose own iterations raise them
        self._errors: deque[BaseException] = deque(maxlen=FAILURES_MAX)

    def lives(self, home: Home) -> None:
        """Say where the shards' readers run, before there are any; the callers that take may be on another loop."""
        self._lock = home.lock
        self.stirred = home.signal()

    def hold(self, reader: ShardReader) -> None:
        """A shard is held from now on; its records are not offered before `add`."""
        self.held[reader] = False
        reader.listen(self)

    def add(self, reader: ShardReader) -> None:
        """Offer its records, and the shard itself."""
        if reader in self.held:
            self.held[reader] = True
            self._unread[reader] = None
            self.stir(reader)

    def failed(self, error: BaseException) -> None:
        """Keep an error, which the next call that asks for records or shards raises."""
        self._errors.append(error)
        self.stirred.set()

    def take(self, records_max: int | None = None) -> Batch[Any] | None:
        """The next batch of whichever shard has one. Raises what ended the reading of a shard, once each."""
        self._raise()
        while True:
            with self._lock:
                reader = next(iter(self._turns), None)
                if reader is None:
                    return None
                del self._turns[reader]
            batch = reader.take(records_max)
            if batch is not None:
                with self._lock:
                    self.stir(reader)  # its turn comes again after the others'
                return batch
            self._raise()

    def _raise(self) -> None:
        with self._lock:
            for waiting in (self._errors, self._failures):
                if waiting:
                    raise waiting.popleft()

    def unread(self) -> ShardReader | None:
        """A shard that the program does not iterate. Raises what is not the failure of one shard."""
        with self._lock:
            if self._errors:
                raise self._errors.popleft()
            reader = next(iter(self._unread), None)
            if reader is not None:
                del self._unread[reader]
            return reader

    def named(self, shards: Sequence[str | Located]) -> list[ShardReader]:
        """Shards by id, or by anything that has a stream and a shard's id: a batch, a record, an `AssignedShard`; all
        where none is named. Raises KeyError.
        """
        if not shards:
            return list(self.held)
        found = []
        for shard in shards:
            readers = [
                reader
                for reader in list(self.held)
                if shard == reader.shard_id
                or (not isinstance(shard, str) and (shard.stream, shard.shard_id) == (reader.stream, reader.shard_id))
            ]
            named = shard if isinstance(shard, str) else f"{shard.stream}, {shard.shard_id}"
            if not readers:
                raise KeyError(f"{named}: this consumer does not hold the shard (any more)")
            if len(readers) > 1:
                raise KeyError(f"{named}: several streams have a shard of this id; name it by a batch or AssignedShard")
            found += readers
        return found

    def closes(self) -> None:
        """The current caller has closed the consumer: it takes nothing more."""
        with self._lock:
            for asking in (self.asking, *(reader.asking for reader in self.held)):
                asking.closes()

    def take_back(self) -> None:
        """The program has left the iteration of all shards: what is in flight is delivered again."""
        for reader in list(self.held):
            reader.take_back()

    @property
    def is_asked(self) -> bool:
        """See `ShardListener`."""
        return bool(self.asking)

    def left(self, reader: ShardReader) -> None:
        """See `ShardListener`: if the shard is still held, it is offered anew."""
        with self._lock:
            if reader in self.held:
                self._unread[reader] = None
                self.stirred.set()

    def stir(self, reader: ShardReader) -> None:
        """See `ShardListener`."""
        is_offered = self.held.get(reader)
        if reader.is_over:
            self._drop(reader)
        elif is_offered:
            self._turns.setdefault(reader)
        if is_offered:
            self.stirred.set()

    def _drop(self, reader: ShardReader) -> None:
        if self.held.pop(reader, None) is not None:
            # A program that takes batches of all shards never comes to `unread`, and one that iterates shards never to
            # `take`: the reader would stay there, with all that it holds.
            self._turns.pop(reader, None)
            self._unread.pop(reader, None)
            self.records_before += reader.records_delivered
            self.batches_before += reader.batches_delivered
            if reader.failure is not None:
                self._failures.append(reader.failure)
                self.stirred.set()
