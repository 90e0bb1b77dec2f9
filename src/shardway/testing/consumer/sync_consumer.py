"""`SyncTestConsumer` is a consumer for users' tests that use threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from shardway.runtime.consumer.sync_consumer import SyncConsumer
from shardway.testing.consumer.consumer import TestConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from shardway.core.ledger.letter import Letter
    from shardway.events import RecordsSkipped
    from shardway.model import Position, Record
    from shardway.runtime.consumer.session import ConsumerSession
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.testing.consumer.progress import Retried
    from shardway.testing.streams.controls import Put
    from shardway.testing.streams.given import Given

R = TypeVar("R")
CALLBACKS = ("on_shards_assigned", "on_shards_ended", "on_shards_revoked", "on_shards_lost")


class SyncTestConsumer(SyncConsumer[Any]):
    """A `SyncConsumer` that needs no server. Arguments, what a test may do, and what it may look at are those of
    `TestConsumer`.

    ::

        with SyncTestConsumer([{"order": 17}, {"order": 18}]) as consumer:
            my_program(consumer)
        assert consumer.unsettled == []
    """

    __test__ = False  # no class of tests, for pytest

    def __init__(self, records: Iterable[Given] = (), *, application: str = "test", **options: Any) -> None:
        self._options = {"application": application, **options}
        for name in CALLBACKS:
            if (callback := options.get(name)) is not None:
                options[name] = self._in_thread(callback)
        self.tested = TestConsumer(records, application=application, **options)
        """The consumer on the loop; use it only for what is not here."""
        super().__init__(self.tested.stream.source(), application=application)

    def _session_of(self, _: ConsumerSpec) -> ConsumerSession:
        return self.tested._session

    # --- what a test does -----------------------------------------------------------------------

    def feed(self, *records: Given, key: str | None = None, shard: str | None = None) -> list[Put]:
        """See `TestConsumer.feed`."""
        return self._look(lambda: self.tested.feed(*records, key=key, shard=shard))

    def split(self, shard: str | None = None) -> list[str]:
        """See `TestConsumer.split`."""
        return self._look(lambda: self.tested.split(shard))

    def merge(self, left: str, right: str) -> str:
        """See `TestConsumer.merge`."""
        return self._look(lambda: self.tested.merge(left, right))

    def lose(self, shard: str | None = None) -> None:
        """See `TestConsumer.lose`."""
        self._thread.run(self.tested.lose(shard))

    def hand_over(self, shard: str | None = None) -> None:
        """See `TestConsumer.hand_over`."""
        self._thread.run(self.tested.hand_over(shard))

    def get_back(self, shard: str) -> None:
        """See `TestConsumer.get_back`."""
        self._thread.run(self.tested.get_back(shard))

    def pass_time(self, seconds: float) -> None:
        """See `TestConsumer.pass_time`."""
        self._thread.run(self.tested.pass_time(seconds))

    def settled(self, timeout_s: float | None = None) -> None:
        """See `TestConsumer.settled`."""
        self._thread.run(self.tested.settled(timeout_s))

    def successor(self, records: Iterable[Given] = (), **changes: Any) -> SyncTestConsumer:
        """See `TestConsumer.successor`."""
        place = {"stream": self.tested.stream, "leases": self.tested.lease_table}
        return SyncTestConsumer(records, **{**self._options, **place, **changes})

    # --- what a test looks at -------------------------------------------------------------------

    @property
    def checkpoints(self) -> dict[str, Position | str]:
        """See `TestConsumer.checkpoints`."""
        return self._look(lambda: self.tested.checkpoints)

    @property
    def unsettled(self) -> list[Record]:
        """See `TestConsumer.unsettled`."""
        return self._look(lambda: self.tested.unsettled)

    @property
    def not_checkpointed(self) -> list[Record]:
        """See `TestConsumer.not_checkpointed`."""
        return self._look(lambda: self.tested.not_checkpointed)

    @property
    def retried(self) -> list[Retried]:
        """See `TestConsumer.retried`."""
        return self._look(lambda: self.tested.retried)

    @property
    def skipped(self) -> list[RecordsSkipped]:
        """See `TestConsumer.skipped`."""
        return self._look(lambda: self.tested.skipped)

    @property
    def dead_letters(self) -> list[Letter]:
        """See `TestConsumer.dead_letters`."""
        return self._look(lambda: list(self.tested.dead_letters))

    @property
    def events(self) -> list[Any]:
        """See `TestConsumer.events`."""
        return self._look(lambda: list(self.tested.events))

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """See `TestConsumer.start`."""
        self._thread.run(self.tested.start())

    def close(self) -> None:
        """See `TestConsumer.close`."""
        try:
            self._unless_closed(lambda: self._thread.run(self.tested.close()))
        finally:
            super().close()

    def __enter__(self) -> SyncTestConsumer:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unsettled = self._unless_closed(lambda: self._thread.run(self.tested.end()))
        super().__exit__(kind, error, trace)
        if unsettled is not None and error is None:
            raise unsettled

    def _look(self, work: Callable[[], R]) -> R:
        """Do work on the loop; once that is closed, in the caller's thread."""
        return work() if self._thread.is_closed else self._call(work)
