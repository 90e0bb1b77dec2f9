"""`Consumer` reads the records of streams, which it shares with all consumers that have the same application's name."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from shardway.options.consumer import ConsumerOptions
from shardway.runtime.arguments import takes_arguments
from shardway.runtime.consumer.arguments import ConsumerArguments
from shardway.runtime.consumer.collection import collect
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.consumer.shards import Shard
from shardway.runtime.consumer.spec import consumer_spec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from typing_extensions import TypeVar as DefaultedTypeVar  # Python has its own from 3.13 on (PEP 696).

    from shardway.events.consumer_snapshot import ConsumerSnapshot
    from shardway.model import Position, Record, StartingPosition
    from shardway.ports import RecordSource
    from shardway.runtime.consumer.collection import Collection
    from shardway.runtime.consumer.concurrency import Concurrency
    from shardway.runtime.consumer.shards import Located
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.consumer.statistics import ConsumerStatistics
    from shardway.runtime.shard.batch import Batch, Delivered
    from shardway.runtime.shard.pending import PendingCheckpoint

    T = DefaultedTypeVar("T", default=bytes)
else:
    T = TypeVar("T")


class Consumer(Generic[T]):
    """Reads streams' shards beside other consumers of the same ``application``, each shard by one of them.

    ::

        async with Consumer("orders", application="billing") as consumer:
            async for batch in consumer:
                with batch:
                    await handle(batch.records)

    At the end of the ``async with`` block all shards are handed to the other consumers. ``T`` is what the deserializer
    makes of a record; without one, ``bytes``.
    """

    @overload
    def __init__(
        self: Consumer[bytes],
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: None = ...,
        split: None = ...,
        **arguments: Unpack[ConsumerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: None = ...,
        split: Callable[[Record], Iterable[T]],
        **arguments: Unpack[ConsumerArguments],
    ) -> None: ...

    @overload
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: Callable[[bytes], T],
        split: None = ...,
        **arguments: Unpack[ConsumerArguments],
    ) -> None: ...

    @takes_arguments(ConsumerArguments, ConsumerOptions().arguments())
    def __init__(
        self,
        stream: str | RecordSource | Sequence[str | RecordSource],
        *,
        application: str,
        deserializer: Callable[[bytes], T] | None = None,
        split: Callable[[Record], Iterable[T]] | None = None,
        **arguments: Unpack[ConsumerArguments],
    ) -> None:
        """``stream``: a name or ARN, or a RecordSource. With a list of them all are read, with lease keys that name the
        stream, as the KCL's do in its multi-stream mode. ``region``, ``endpoint_url`` and ``profile`` say how AWS is
        reached, and ``connection`` has the rest (`ConnectionOptions`); what is not given is looked up as the AWS SDK
        does.

        ``deserializer`` makes `Batch.values` of the records' data; ``split`` makes several values of one record. The
        other arguments are the fields of `shardway.options.ConsumerOptions`, whose help has the meaning of each
        (``starting_position``, ``retry``, ``leases``, ...), and: ``worker_id``, unique among all that live, which
        `start` makes up by default; ``metrics``, how often an event tells the numbers, and whether by shard;
        ``tracing``, which makes spans (`shardway.telemetry.OpenTelemetryTracing`); callbacks, which are awaited
        (`ShardChange`); and ``on_event``, which is called with every event and returns at once; by default events are
        lines of the log ``shardway``. Raises OptionError.
        """
        spec = consumer_spec(stream, application, deserializer, split, arguments)
        self._session = self._session_of(spec)
        self.application = application
        self.options = spec.options

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        """Return the session that this is a face of. Consumers for tests have others."""
        return ConsumerSession(spec)

    @property
    def worker_id(self) -> str:
        """The consumer's id, unique among all consumers that live. It is empty until `start` makes it up, where none
        was given.
        """
        return self._session.run.worker_id

    async def start(self) -> None:
        """Begin. Raises the error that says that it cannot work: no such stream, no permission, options that fault."""
        await self._session.start()

    async def close(self) -> None:
        """Hand over all shards, within the drain's deadline, and end. Nothing more is delivered, but for the rest of
        what was begun (parts of a record, keys that are behind others), to callers that still ask for it.
        """
        await self._session.close()

    @property
    def closed(self) -> bool:
        """True once the consumer is closed, by `close` or by a signal, and delivers no more. Any thread may ask."""
        return self._session.closing.is_done

    async def deregister(self) -> None:
        """Remove what the application has registered for enhanced fan-out, from each of its streams: AWS bills it for
        as long as it is there. A consumer that still uses it polls after that. It needs no `start`.
        """
        await self._session.streams.deregister()

    def close_on_signals(self, *numbers: int) -> None:
        """Close when the process gets one of these signals, by default SIGTERM and SIGINT: iterations and `run` end,
        and the program goes on behind them. A second signal does what Python does: it ends the process at once, and
        what is not handed over by then is free after ``failover_s``. Call it on the main thread's event loop, on Unix.
        """
        loop, awaited = asyncio.get_running_loop(), numbers or (signal.SIGTERM, signal.SIGINT)

        def close(number: int) -> None:
            for each in awaited:
                loop.remove_signal_handler(each)
            self._session.close_by_signal(signal.Signals(number).name)

        for number in awaited:
            loop.add_signal_handler(number, close, number)

    async def __aenter__(self) -> Self:
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

    def __aiter__(self) -> AsyncGenerator[Batch[T], None]:
        """Iterate over batches of all shards that this consumer holds, each shard's in order. It ends when the consumer
        is closed.

        A program that leaves the iteration early gives back what it did not settle: it is delivered again. Raises the
        error that ended the reading of a shard, or of all: ShardReadError and others.
        """
        return self._session.iterations.batches()

    def records(self) -> AsyncGenerator[Delivered[T], None]:
        """Iterate over the records of all shards, one by one; each is settled by itself: ``with record: ...``."""
        return self._session.iterations.records()

    async def getmany(self, records_max: int = 10_000, wait_s: float | None = None) -> list[Batch[T]]:
        """Return what there is of all shards, as batches of one shard each: at most ``records_max`` records, and more
        only where a larger batch failed and comes again. Waits until there is any, at most ``wait_s``; then the list is
        empty.

        A call that waits while the consumer is closed returns an empty list. A later call raises ConsumerClosedError
        where it has a ``wait_s``; without one, an empty list means nothing else. Raises as the iteration does.
        """
        return await self._session.iterations.getmany(records_max, wait_s)

    async def shards(self) -> AsyncGenerator[Shard[T], None]:
        """Iterate over the shards as this consumer begins to hold them. Iterate each for its batches, in a task of
        its own.

        A shard whose iteration is left while it is held is offered anew. A shard that the program does not iterate is
        offered anew when the program leaves this iteration and begins it again. An error that ends the reading of a
        shard is raised by the iteration of that shard.
        """
        async with contextlib.aclosing(self._session.iterations.readers()) as readers:
            async for reader in readers:
                yield Shard(reader)

    def collect(
        self, key: Callable[[Record], Hashable], *, records: int, age_s: float = math.inf
    ) -> AsyncGenerator[Collection[T], None]:
        """Iterate over collections of ``records`` records with the same ``key(record)``, out of all shards.

        ``age_s``: a collection is delivered, with what it has, when its first record came ``age_s`` seconds ago.
        Nothing blocks while records of a key wait for others: they count as delivered, and are reported when they are
        not settled in time. The shard's buffer bounds them: while it has room for nothing more, the oldest collection
        is delivered with what it has, and then the next one. What waits of a shard that is about to be handed over is
        delivered at once. Leave it with `contextlib.aclosing`: what waits then is delivered again, as with every
        iteration that is left.
        """
        return collect(self, key, records=records, age_s=age_s)

    async def run_batches(
        self,
        handler: Callable[[Batch[T]], object],
        *,
        concurrency: Concurrency | None = None,
        handlers_max: int | None = None,
    ) -> None:
        """Call ``handler`` with each batch, shards side by side, until the consumer is closed; what it returns is
        awaited, where that can be.

        A batch is settled when the handler is done; what it raises is a failure of the batch, and the retry policy says
        what follows.

        ``concurrency`` says what of one shard is with the handler at the same time: ``OneByOne()`` (the default),
        ``by_key(16)``, ``unordered(16)``. ``handlers_max``: calls of all shards together; None: no bound beside the
        shards'. Raises what the iteration raises, and OptionError where an order is named (``OneByOne()``, ``by_key``)
        for a stream that ignores keys.
        """
        await self._session.iterations.run(handler, concurrency, handlers_max, each_record=False)

    async def run_records(
        self,
        handler: Callable[[Delivered[T]], object],
        *,
        concurrency: Concurrency | None = None,
        handlers_max: int | None = None,
    ) -> None:
        """See `run_batches`: this does the same with one record at a time. An error of the handler is a failure of that
        record alone.
        """
        await self._session.iterations.run(handler, concurrency, handlers_max, each_record=True)

    async def prepare(self, batch: Batch[Any], state: bytes | None = None, *, index: int = -1) -> PendingCheckpoint:
        """Store a pending checkpoint that covers all up to the record of the batch at ``index`` (the last one), before
        that is settled; then settle, and `commit`. Nothing else of the shard is checkpointed meanwhile.

        ``state``: bytes for the next owner of the shard, if that is not committed. Raises CheckpointError: for a record
        that is checkpointed already, while another such call is on its way, when the shard is lost, and for a batch of
        another consumer.
        """
        return await self._session.checkpoints.prepare(batch, state, index=index)

    async def commit(self, pending: PendingCheckpoint) -> None:
        """Make a pending checkpoint the shard's checkpoint; return when that is stored.

        Raises CheckpointError when records before it are not settled, when it is not the pending one any more, when the
        shard was lost, and for one of another consumer.
        """
        await self._session.checkpoints.commit(pending)

    async def abandon(self, pending: PendingCheckpoint) -> None:
        """Let a pending checkpoint go: what is settled is checkpointed as usual. Raises CheckpointError like
        `commit`.
        """
        await self._session.checkpoints.abandon(pending)

    def pending(self, shard: str | Located) -> PendingCheckpoint | None:
        """Return the checkpoint of a shard that is stored as pending: prepared in this tenure, or left by a former
        owner and kept; None: there is none. Raises KeyError for a shard that this consumer does not hold.
        """
        return self._session.checkpoints.pending(shard)

    def pause(self, *shards: str | Located) -> None:
        """Deliver nothing of these shards until `resume`; without any: of all shards, also of those that come later.
        They stay held, and reading ahead goes on up to its bounds.
        """
        self._session.shards.pause(*shards)

    def resume(self, *shards: str | Located) -> None:
        """Deliver again: these shards, or all."""
        self._session.shards.resume(*shards)

    def seek(self, shard: str | Located, to: Position | StartingPosition) -> None:
        """Read a shard from another place on: behind a record, or from the oldest, the newest or a time (also as the
        text ``"TRIM_HORIZON"`` or ``"LATEST"``, or an aware datetime).

        It holds for this tenure. What was fetched is dropped, what is with handlers counts for nothing any more, and is
        delivered again where it lies behind that place. The stored checkpoint never goes back: a consumer that gets
        the shard later goes on behind what was settled furthest. To begin an application anew, give it another name.
        LATEST is the moment of the call: whatever arrives later comes, and perhaps what arrived in the two seconds
        before, or while the machine slept. What the retention took at the former place, and what was not missed yet, is
        not told any more (`CheckpointTrimmed`). After a seek to an older place, `prepare` refuses what lies before the
        stored checkpoint: its `CheckpointError` has ``goes_back``.

        Raises KeyError for a shard that this consumer does not hold, and CheckpointError while a checkpoint is pending.
        """
        self._session.seeks.seek(shard, to)

    def position(self, shard: str | Located) -> Position | None:
        """Return the position up to and with which all of a shard is settled; None: nothing is. Raises KeyError for a
        shard that this consumer does not hold.
        """
        return self._session.shards.position(shard)

    def statistics(self) -> ConsumerStatistics:
        """Return which shards the consumer holds, how far each is, and what the consumer did so far. Any thread may
        ask.
        """
        return self._session.figures.statistics()

    def metrics(self) -> ConsumerSnapshot:
        """Return what the consumer did since its start, as numbers that add up. Any thread may ask."""
        return self._session.figures.metrics()
