"""The streams of one consumer: they are opened together, and share the memory for what is read."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from shardway.core.log.buffer import Buffer
from shardway.errors import OptionError
from shardway.events import KeysIgnored
from shardway.options.consumer import FanOutOptions
from shardway.runtime.consumer.concurrency import promised
from shardway.runtime.consumer.counted_source import CountedSource
from shardway.runtime.consumer.streams import OpenStream
from shardway.runtime.feeds.fan_out import SubscriptionGate

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from shardway.ports import RecordSource
    from shardway.runtime.consumer.placement import Placement
    from shardway.runtime.consumer.reporter import Reporter
    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.worker.sharded_stream import StreamPart


class StreamSet:
    """The streams of one consumer, by their names. It is empty before `open`."""

    def __init__(self, spec: ConsumerSpec, placement: Placement, reporter: Reporter) -> None:
        self._spec = spec
        self._placement = placement
        self._reporter = reporter
        self._streams: dict[str, OpenStream] = {}
        self.calls = Counter[str]()
        """How often each call of the sources was made."""

    def __getitem__(self, name: str) -> OpenStream:
        return self._streams[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._streams)

    @property
    def first(self) -> OpenStream:
        """The stream that was named first."""
        return next(iter(self._streams.values()))

    async def open(self, rng: random.Random) -> None:
        """Open all streams. Raises the error that says that one of them cannot be read, or not as the options say."""
        options = self._spec.options
        gate = SubscriptionGate((options.fan_out or FanOutOptions()).subscriptions_per_s)
        bounds, lock = options.buffer, self._placement.host.lock
        buffer = Buffer(bounds.buffer_bytes_max, shard_bytes_max=bounds.shard_buffer_bytes_max, lock=lock)
        emit, meter = self._reporter.emit, self._reporter.metering.meter
        for given in self._spec.streams:
            source = CountedSource(self._source(given), self.calls, meter, self._spec.tracer)
            self._streams[source.stream] = OpenStream(source, options, gate, rng=rng, on_event=emit, buffer=buffer)
        await asyncio.gather(*(stream.open(self._spec.fan_out_name) for stream in self._streams.values()))
        for arn, count in Counter(stream.facts.arn for stream in self._streams.values()).items():
            if count > 1:
                raise OptionError(f"stream: two of the names mean the same stream, {arn}: give it once")
        self.check_keys(promised(options.order))
        for stream in self._streams.values():
            if stream.facts.ignores_keys:
                emit(KeysIgnored(stream.name))

    def parts(self) -> list[StreamPart]:
        """Return each stream's part for the worker."""
        return [stream.part(of_several=self._spec.of_several) for stream in self._streams.values()]

    def check_keys(self, mode: str | None) -> None:
        """Raise OptionError where a mode was chosen for its order, and a stream ignores partition keys. None: no mode
        was.
        """
        ignoring = [name for name, stream in self._streams.items() if stream.facts.ignores_keys]
        if ignoring and mode is not None and not self._spec.options.accept_ignored_keys:
            raise OptionError(
                f"{mode}: {', '.join(ignoring)} ignores partition keys when it chooses a record's shard (record "
                "distribution AUTO), so the records of a key have no order. Choose AnyOrder() or unordered(), or name "
                "no order. With accept_ignored_keys=True the records of each shard are in the shard's order"
            )

    async def close(self) -> None:
        """Close all streams."""
        for stream in self._streams.values():
            await stream.close()

    async def deregister(self) -> None:
        """See `Consumer.deregister`."""
        for given in self._spec.streams:
            source = self._source(given)
            try:
                await source.deregister(self._spec.fan_out_name)
            finally:
                if isinstance(given, str):
                    await source.close()

    def _source(self, given: str | RecordSource) -> RecordSource:
        """Return the stream itself. ``connection`` may be meant for the lease table alone."""
        from shardway.wiring import source_for

        return source_for(given, self._spec.connection if isinstance(given, str) else None)
