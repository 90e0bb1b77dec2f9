"""The stream of a simulation: the local Kinesis's model of the service, read by the client's real code."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

from penstock.aws.faults import error_class
from penstock.aws.kinesis import KinesisClient
from penstock.aws.record_source import KinesisSource
from penstock.aws.retry import RetryPolicy
from penstock.aws.settings import WireSettings
from penstock.core.aggregation.writer import encode_aggregate
from penstock.core.service_clock import ServiceClock
from penstock.errors import TransportError
from penstock.local import eventstream
from penstock.local.model import KinesisModel, Limits, ModelError
from penstock.model import HASH_KEY_MAX, StreamName
from penstock.testing.sim.plan import Way

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from penstock.local.model import Subscription
    from penstock.testing.sim.history import History
    from penstock.testing.sim.loop import VirtualLoop, VirtualTime
    from penstock.testing.sim.network import Link

STREAM = "orders"
EPOCH_S = 1_700_000_000.0
"""What wall clocks show at virtual time 0."""
CALL_TIMEOUT_S = 8.0
SILENCE_LOOK_S = 1.0
SUB_RECORDS_MAX = 4


class SimulatedStream:
    """The service, what is put into it, and its reshards."""

    def __init__(self, time: VirtualTime, history: History, rng: random.Random, *, shards: int, limits: bool) -> None:
        self.model = KinesisModel(
            clock=lambda: EPOCH_S + time.now_s, rng=rng, limits=Limits(per_shard=limits), shard_quota=1_000
        )
        self._history = history
        self._rng = rng
        self._put = 0
        self._ask("CreateStream", StreamName=STREAM, ShardCount=shards)
        self._list()

    def put(self, records: int, *, aggregates: bool) -> None:
        """Write so many, to shards by chance; the history learns where they are."""
        entries, counts = [], []
        for _ in range(records):
            where = self._rng.randrange(HASH_KEY_MAX + 1)
            count = self._rng.randint(2, SUB_RECORDS_MAX) if aggregates and self._rng.random() < 0.5 else 1
            names = [b"%d" % (self._put + one) for one in range(count)]
            self._put += count
            data = names[0] if count == 1 else encode_aggregate([("k", name, where) for name in names])
            entries.append(
                {"Data": base64.b64encode(data).decode(), "PartitionKey": "k", "ExplicitHashKey": str(where)}
            )
            counts.append(count)
        answer = self._ask("PutRecords", StreamName=STREAM, Records=entries)
        for result, count in zip(answer["Records"], counts, strict=True):
            if "SequenceNumber" in result:  # else the shard is full: nobody waits for it
                self._history.put(result["ShardId"], int(result["SequenceNumber"]), count)

    def split(self, choice: float) -> None:
        """One open shard becomes two, in the middle or near it."""
        open_shards = self._open()
        shard = open_shards[int(choice * len(open_shards))]
        first, last = _range(shard)
        if last - first > 16:
            middle = first + int((last - first) * self._rng.uniform(0.25, 0.75))
            self._ask("SplitShard", StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
            self._list()

    def merge(self, choice: float) -> None:
        """Two neighbours become one."""
        open_shards = self._open()
        if len(open_shards) > 1:
            place = int(choice * (len(open_shards) - 1))
            left, right = open_shards[place : place + 2]
            self._ask(
                "MergeShards",
                StreamName=STREAM,
                ShardToMerge=left["ShardId"],
                AdjacentShardToMerge=right["ShardId"],
            )
            self._list()

    def _open(self) -> list[Any]:
        shards = self._ask("ListShards", StreamName=STREAM)["Shards"]
        taking = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
        return sorted(taking, key=_range)

    def _list(self) -> None:
        for one in self._ask("ListShards", StreamName=STREAM)["Shards"]:
            parents = [one[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in one]
            self._history.shard(one["ShardId"], parents, "EndingSequenceNumber" not in one["SequenceNumberRange"])

    def _ask(self, operation: str, **request: Any) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None


def _range(shard: Any) -> tuple[int, int]:
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])


class StreamWire:
    """What `penstock.aws.wire.Wire` is to a client, over a simulated connection."""

    def __init__(self, model: KinesisModel, link: Link, wall: Callable[[], float], rng: random.Random) -> None:
        self.settings = WireSettings()
        self.region = model.region
        self.clock = ServiceClock()
        self.wall = wall
        self._model = model
        self._link = link
        self._rng = rng

    async def call(
        self,
        service: str,
        operation: str,
        body: bytes,
        *,
        retry: RetryPolicy | None = None,
        stream_arn: str | None = None,
        content_type: str | None = None,
    ) -> bytes:
        """See `Wire.call`."""
        policy = retry or RetryPolicy()
        for attempt in range(1, policy.attempts_max + 1):
            sent_s = self.wall()
            try:
                answer, date_s = await self._link.call(lambda: self._done(operation, body), CALL_TIMEOUT_S)
            except Exception as error:
                if attempt == policy.attempts_max or not getattr(error, "retryable", False):
                    raise
                await asyncio.sleep(policy.wait_s(attempt, self._rng))
                continue
            self.clock.observe(date_s, sent_s, self.wall())
            return answer
        raise AssertionError("the last attempt returns or raises")

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Wire.stream`: a subscription's events. A cut makes it fall silent; what is pushed meanwhile is lost."""
        subscription = await self._link.call(lambda: self._subscribed(body), CALL_TIMEOUT_S)
        loop, wake = self._link.loop, asyncio.Event()

        # Called by the service, whatever runs then; the process hears of it when it runs itself.
        def stir() -> None:
            if not (self._link.closed or loop.is_closed()):
                loop.call_soon(wake.set)

        subscription.wake = stir
        try:
            yield eventstream.event("initial-response", b"{}")
            while True:
                wake.clear()
                for name, payload in subscription.poll():
                    await asyncio.sleep(self._link._delay_s())
                    if self._link.cut is not None or self._link._happens("answer_lost"):
                        await self._break_off()
                    make = eventstream.exception if name.endswith("Exception") else eventstream.event
                    yield make(name, payload)
                if subscription.closed:
                    return
                await _wait(wake, SILENCE_LOOK_S)
        finally:
            subscription.close()

    async def close(self) -> None:
        """There is nothing to close."""

    async def _break_off(self) -> None:
        if self._link.cut is Way.REFUSED or self._rng.random() < 0.3:
            raise TransportError("the connection to the stream was reset")
        await asyncio.Event().wait()  # silence: the reader has to notice

    def _done(self, operation: str, body: bytes) -> tuple[bytes, int]:
        try:
            return self._model.handle(operation, body), int(self._model.clock())
        except ModelError as fault:
            raise _error(fault, operation) from None

    def _subscribed(self, body: bytes) -> Subscription:
        try:
            return self._model.subscribe(body)
        except ModelError as fault:
            raise _error(fault, "SubscribeToShard") from None


class SimulatedSource(KinesisSource):
    """`KinesisSource` over a simulated connection."""

    def __init__(self, wire: StreamWire) -> None:
        self._stream = StreamName(STREAM)
        self._client = KinesisClient(wire)  # type: ignore[arg-type]
        self._arn = None
        self._wire = wire

    @property
    def now_s(self) -> float:
        """The service's time, as far as this process knows it."""
        return self._wire.wall() + self._wire.clock.offset_s


def _error(fault: ModelError, operation: str) -> Exception:
    return error_class(fault.code, fault.status)(
        fault.code, fault.message or "", operation=operation, status=fault.status
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def wall_clock(loop: VirtualLoop, jumped_s: Callable[[], float]) -> Callable[[], float]:
    """A process's wall clock, epoch seconds: as fast as its own clock, and as wrong as somebody set it."""
    begin_s = loop.time()
    at_start_s = EPOCH_S + loop.virtual.now_s
    return lambda: at_start_s + (loop.time() - begin_s) + jumped_s()
