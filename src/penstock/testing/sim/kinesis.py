"""The stream of a simulation: the local Kinesis's model of the service, read by the client's real code."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.aws.answers import error_class
from penstock.aws.calls import RetryPolicy
from penstock.aws.kinesis import KinesisClient
from penstock.aws.options import ConnectionOptions
from penstock.aws.record_streams import KinesisSource
from penstock.core.aggregation.writer import encode_aggregate
from penstock.core.leases.row import LeaseKey, StreamKey
from penstock.core.service_clock import ServiceClock
from penstock.errors import TransportError
from penstock.local import eventstream
from penstock.local.model import KinesisModel, Limits, ModelError
from penstock.model import HASH_KEY_MAX, StreamName
from penstock.testing.sim.history import BAD, Put
from penstock.testing.sim.plan import Way

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from penstock.local.model import Subscription
    from penstock.testing.sim.history import History
    from penstock.testing.sim.loop import VirtualLoop, VirtualTime
    from penstock.testing.sim.network import Link
    from penstock.testing.sim.plan import FaultPlan

EPOCH_S = 1_700_000_000.0
"""What wall clocks show at virtual time 0."""
CALL_TIMEOUT_S = 8.0
SILENCE_LOOK_S = 1.0
SUB_RECORDS_MAX = 4


class ServiceTime:
    """What the service's clock shows. ``passed_s``: time that passed while no worker ran; the simulation skips it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.passed_s = 0.0

    def __call__(self) -> float:
        """Epoch seconds."""
        return EPOCH_S + self._time.now_s + self.passed_s


class SimulatedStream:
    """The service, what is put into it, and its reshards."""

    def __init__(
        self, name: str, plan: FaultPlan, shards: int, now_s: ServiceTime, history: History, rng: random.Random
    ) -> None:
        self.name = name
        self.model = KinesisModel(
            clock=now_s, rng=rng, limits=Limits(per_shard=plan.limits, page_span_s=plan.page_span_s), shard_quota=1_000
        )
        self._plan = plan
        self._history = history
        self._rng = rng
        self._put = 0
        self._keys = [(f"k{one}", rng.randrange(HASH_KEY_MAX + 1)) for one in range(plan.keys)]
        self._singles: deque[tuple[Put, int, float]] = deque()
        self._now_s = now_s
        self._ask("CreateStream", StreamName=name, ShardCount=shards)
        arn = self._ask("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]
        account = arn["StreamARN"].split(":")[4]
        several = StreamKey(account, name, int(arn["StreamCreationTimestamp"]))
        self._key = several if plan.streams > 1 else None
        self._list()

    def key_of(self, shard_id: str) -> str:
        """The key of a shard's lease."""
        return LeaseKey(shard_id, self._key).text

    def put(self, records: int) -> None:
        """Write so many, to shards by chance; the history learns where they are."""
        entries, puts = [], []
        for _ in range(records):
            users, where = self._drawn()
            key, data = users[0]
            if len(users) > 1:
                data = encode_aggregate([(one.key, one.data, where) for one in users])
            entries.append(
                {"Data": base64.b64encode(data).decode(), "PartitionKey": key, "ExplicitHashKey": str(where)}
            )
            puts.append(users)
        answer = self._ask("PutRecords", StreamName=self.name, Records=entries)
        for result, users in zip(answer["Records"], puts, strict=True):
            if "SequenceNumber" in result:  # else the shard is full, and the record is not put again
                self._history.put(
                    self.key_of(result["ShardId"]), int(result["SequenceNumber"]), users, round(self._now_s(), 3)
                )

    def _drawn(self) -> tuple[list[Put], int]:
        """A record, or those of an aggregate, and where they go."""
        plan, rng = self._plan, self._rng
        if plan.repeats and rng.random() < plan.repeats and (again := self._again()) is not None:
            return again
        key, where = rng.choice(self._keys) if self._keys else ("k", rng.randrange(HASH_KEY_MAX + 1))
        count = rng.randint(2, SUB_RECORDS_MAX) if plan.aggregates and rng.random() < 0.5 else 1
        users = []
        for _ in range(count):
            bad = plan.bad > 0 and rng.random() < plan.bad
            users.append(Put(key, b"%d" % self._put + (BAD if bad else b"")))
            self._put += 1
        if count == 1 and plan.repeats:
            self._singles.append((users[0], where, self._now_s()))
        return users, where

    def _again(self) -> tuple[list[Put], int] | None:
        """A record that was put before, as by a producer that got no answer. The time between the two never lies so
        close to the window that a millisecond decides whether the second is a duplicate.
        """
        window_s, now_s = self._plan.window_s, self._now_s()
        while self._singles and now_s - self._singles[0][2] > 2 * window_s:
            self._singles.popleft()
        if not self._singles:
            return None
        place = self._rng.randrange(len(self._singles))
        put, where, at_s = self._singles[place]
        if abs(now_s - at_s - window_s) < 1.0:
            return None
        self._singles[place] = put, where, now_s
        return [put], where

    def split(self, choice: float) -> None:
        """One open shard becomes two, in the middle or near it."""
        open_shards = self._open()
        shard = open_shards[int(choice * len(open_shards))]
        first, last = _range(shard)
        if last - first > 16:
            middle = first + int((last - first) * self._rng.uniform(0.25, 0.75))
            self._ask("SplitShard", StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
            self._list()

    def merge(self, choice: float) -> None:
        """Two neighbours become one."""
        open_shards = self._open()
        if len(open_shards) > 1:
            place = int(choice * (len(open_shards) - 1))
            left, right = open_shards[place : place + 2]
            self._ask(
                "MergeShards",
                StreamName=self.name,
                ShardToMerge=left["ShardId"],
                AdjacentShardToMerge=right["ShardId"],
            )
            self._list()

    def _open(self) -> list[Any]:
        shards = self._ask("ListShards", StreamName=self.name)["Shards"]
        taking = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
        return sorted(taking, key=_range)

    def _list(self) -> set[str]:
        found = set()
        for one in self._ask("ListShards", StreamName=self.name)["Shards"]:
            parents = [self.key_of(one[name]) for name in ("ParentShardId", "AdjacentParentShardId") if name in one]
            key = self.key_of(one["ShardId"])
            self._history.shard(key, self.name, parents, "EndingSequenceNumber" not in one["SequenceNumberRange"])
            found.add(key)
        return found

    def listed(self) -> set[str]:
        """Shards of which the retention has left anything, by the keys of their leases."""
        return self._list()

    def _ask(self, operation: str, **request: Any) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None


def _range(shard: Any) -> tuple[int, int]:
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])


class StreamWire:
    """What `penstock.aws.wire.Wire` is to a client, over a simulated connection."""

    def __init__(self, model: KinesisModel, link: Link, wall: Callable[[], float], rng: random.Random) -> None:
        self.settings = ConnectionOptions()
        self.region = model.region
        self.clock = ServiceClock()
        self.wall = wall
        self.steady = link.loop.time
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

        subscription.wakes(stir)
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

    def __init__(self, name: str, wire: StreamWire) -> None:
        self._stream = StreamName(name)
        self._client = KinesisClient(wire)  # type: ignore[arg-type]
        self._arn = None
        self._wall = wire.wall
        self._steady = wire.steady


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


def wall_clock(loop: VirtualLoop, service_s: float, jumped_s: Callable[[], float]) -> Callable[[], float]:
    """A process's wall clock, epoch seconds: as fast as its monotonic clock, and wrong by ``jumped_s``. It begins with
    the service's time.
    """
    begin_s = loop.time()
    return lambda: service_s + (loop.time() - begin_s) + jumped_s()
