"""The run of a consumer's worker: the lease table, the task that shares the shards, and how that task ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from shardway.policies import DeadLettersTo
from shardway.ports import ForApplications, UsableOnAnyLoop
from shardway.runtime.consumer.counted_table import counted_table
from shardway.runtime.dead_letters.writers import open_letters
from shardway.runtime.threads.own_thread import OwnThread
from shardway.runtime.worker.holding import Readers
from shardway.runtime.worker.worker import Worker
from shardway.tasks import failure_of, spawn

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shardway.core.leases import LeaseRow
    from shardway.policies import DeadLetterChoice
    from shardway.ports import LeaseTable
    from shardway.runtime.consumer.counted_table import CountedTable
    from shardway.runtime.consumer.held_shards import HeldShards
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.reporter import Reporter
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.stream_set import StreamSet


class WorkerRun:
    """The run of one consumer's worker. It is made once, and run once."""

    def __init__(
        self, spec: ConsumerSpec, placement: Placement, reporter: Reporter, streams: StreamSet, shards: HeldShards
    ) -> None:
        self._spec = spec
        self._placement = placement
        self._reporter = reporter
        self._streams = streams
        self._shards = shards
        self.worker_id = spec.worker_id
        """The worker's id, which the start makes up where none was given."""
        self.table_calls = Counter[str]()
        """How often each call of the lease table was made."""
        self.worker: Worker | None = None
        """The worker. None: there is none before the start."""
        self._task: asyncio.Task[None] | None = None
        self._counted_table: CountedTable | None = None
        self._own_table: LeaseTable | None = None
        self._moved_table: UsableOnAnyLoop | None = None  # The program's table, in the thread of our own.

    def begin(self, rng: random.Random, wake: Callable[[], object]) -> None:
        """Make the worker, of streams that are open, and run it. ``wake`` is called when it has ended."""
        self._counted_table = self._count(self._open_table())
        spec, emit = self._spec, self._reporter.emit
        self.worker = Worker(
            self.worker_id,
            self._counted_table,
            spec.options,
            readers=Readers(
                self._streams.parts(),
                spec.options,
                open_letters(self._letters(), spec.connection),
                context_of=self._shards.context,
                rng=rng,
                on_event=emit,
            ),
            rng=rng,
            on_event=emit,
            on_reader=self._shards.hold,
        )
        follows = "its shards are let go, and the error is raised where records are asked for"
        failed = self._reporter.on_failure("sharing shards with other workers", follows)
        self._task = spawn(self.worker.run(), failed)
        self._task.add_done_callback(lambda _: wake())

    def _open_table(self) -> LeaseTable | ForApplications:
        from shardway.wiring import lease_table_for

        leases = self._spec.options.leases
        table = leases.table
        if table is None or isinstance(table, str):
            own = self._own_table = lease_table_for(self._spec.application, self._spec.connection, leases)
            return own
        if isinstance(self._placement.host, OwnThread) and isinstance(table, UsableOnAnyLoop):
            self._moved_table = table
        return table

    def _count(self, table: LeaseTable | ForApplications) -> CountedTable:
        application = self._spec.application
        knows_application = isinstance(table, ForApplications)
        return counted_table(
            table.of(application) if isinstance(table, ForApplications) else table,
            self.table_calls,
            self._reporter.emit,
            self._reporter.metering.meter,
            stream="" if self._spec.of_several else self._streams.first.facts.arn,
            application="" if knows_application else application,
        )

    def _letters(self) -> DeadLetterChoice | None:
        """Return where dead letters go: a function of the user's is called on the user's loop."""
        choice = self._spec.options.dead_letters
        if not isinstance(choice, DeadLettersTo):
            return choice
        return DeadLettersTo(lambda letter: self._placement.host.outside(partial(choice.write, letter)))

    @property
    def is_begun(self) -> bool:
        """True from the start to the end."""
        return self._task is not None

    @property
    def has_failed(self) -> bool:
        """True when an error has ended the worker; the program may have seen it, or not."""
        return self._task is not None and self._task.done() and failure_of(self._task) is not None

    def raise_failure(self) -> None:
        """Raise the error that ended the worker, if one has."""
        task = self._task
        if task is not None and task.done() and (error := failure_of(task)) is not None:
            raise error

    @property
    def confirmed_s(self) -> float | None:
        """The time at which a write that renews leases was confirmed last. None: none was."""
        return None if self._counted_table is None else self._counted_table.confirmed_s

    def leases(self) -> list[LeaseRow]:
        """Return the leases of the table, as the worker saw them last."""
        return [] if self.worker is None else list(self.worker.leases())

    def leases_free(self) -> int:
        """Return how many leases no worker has."""
        return 0 if self.worker is None else self.worker.leases_without_owner()

    async def stop(self) -> None:
        """Stop the worker: it hands over its shards, within the drain's deadline. Then it ends."""
        worker, task, options = self.worker, self._task, self._spec.options
        grace_s = options.times.close_grace_s
        try:
            if worker is not None and task is not None and not task.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(options.handoff.drain_deadline_s + grace_s):
                        await worker.stop()
        finally:
            if task is not None:
                if not task.done():
                    await asyncio.wait((task,), timeout=grace_s)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._task = None

    async def close_table(self) -> None:
        """Close the lease table, where it is the consumer's own."""
        if self._own_table is not None:
            await self._own_table.close()
        elif self._moved_table is not None:
            await self._moved_table.leave_loop()


def new_worker_id() -> str:
    """Return a worker's id that is unique among all processes: host, process, and chance."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
