"""A simulation has services, Kinesis and a lease table, and a way to them from each simulated process: calls take time,
get lost, come late, are done and not answered.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from shardway.aws.calls.answers import error_class
from shardway.aws.calls.retry import RetryPolicy
from shardway.aws.kinesis import KinesisClient
from shardway.aws.options import ConnectionOptions
from shardway.aws.record_source import KinesisSource
from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.leases import Done, Refused, Unknown
from shardway.core.leases.lease_key import LeaseKey, StreamKey
from shardway.core.leases.listing import Listing
from shardway.core.service_clock import ServiceClock, SteadyEpoch
from shardway.errors import ServiceError, ShardwayError, ThrottledError, TransportError, UnavailableError
from shardway.local import eventstream
from shardway.local.model import KinesisModel, Limits, ModelError
from shardway.model import HASH_KEY_MAX, StreamName
from shardway.runtime.clocks import SteadyClock
from shardway.stores.memory import MemoryLeaseTable
from shardway.testing.sim.history.shard_story import BAD, Put
from shardway.testing.sim.plan import Noise, Way

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.local.model import Subscription
    from shardway.testing.sim.history.history import History
    from shardway.testing.sim.loop import VirtualLoop, VirtualTime
    from shardway.testing.sim.plan import FaultPlan


# --- the network ----------------------------------------------------------------------------------

T = TypeVar("T")

DELAY_S = (0.001, 0.012)
SLOW_CALLS = 0.005
SLOW_DELAY_S = (0.1, 0.8)
"""Seconds that a few calls take, which are much slower, also on the best of days."""
LATE_S = (3.0, 25.0)


class Link:
    """One process's connection to one service. Its faults are ``cut``, and ``noises`` that add up."""

    def __init__(self, name: str, loop: VirtualLoop, rng: random.Random) -> None:
        self.name = name
        self.loop = loop
        self.cut: Way | None = None
        self.noises: list[Noise] = []
        self.arrives_until_s = 0.0
        """The time at which the last of the calls that were sent arrives, also of a process that is gone."""
        self.closed = False
        """True where the process is gone and hears no answer any more; what it sent still arrives."""
        self._time: VirtualTime = loop.virtual
        self._rng = rng

    def reads_at_s(self) -> float:
        """Return the time of the state that a read which is not consistent shows: by chance now, or a moment ago."""
        now_s = self._time.now_s
        frozen = [noise.at_s for noise in self.noises if noise.frozen]
        if frozen:
            return min(*frozen, now_s)
        stale_s = max((noise.stale_s for noise in self.noises), default=0.0)
        return now_s - self._rng.choice([0.0, self._rng.uniform(0.0, stale_s)]) if stale_s else now_s

    async def call(self, do: Callable[[], T], timeout_s: float) -> T:
        """Have ``do`` done on the other side, and its result or error brought back.

        Raises TransportError when no answer comes, and what the service answers.
        """
        future: asyncio.Future[T] = self.loop.create_future()
        self._send(do, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise TransportError(f"no answer from the {self.name} within {timeout_s:g} s") from None

    def _send(self, do: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self.cut is Way.REFUSED:
            refused = TransportError(f"no connection to the {self.name}")
            refused.sent = False
            self._deliver(future, None, refused)
        elif self.cut is Way.SILENT:
            return
        elif self._happens("request_lost"):
            self._lose(future)
        else:
            delay_s = self._delay_s() + (self._rng.uniform(*LATE_S) if self._happens("late") else 0.0)
            self.arrives_until_s = max(self.arrives_until_s, self._time.now_s + delay_s)
            self._time.after(delay_s, lambda: self._arrive(do, future))

    def _arrive(self, do: Callable[[], T], future: asyncio.Future[T]) -> None:
        if self.cut is Way.SILENT:
            return
        result: Any = None
        error: Exception | None = None
        if self._happens("throttled"):
            error = ThrottledError("ThrottlingException", "Rate exceeded")
        else:
            failed = self._happens("failed")
            if not failed or self._rng.random() < 0.5:
                result, error = _done(do)
                if self._happens("twice"):
                    result, error = _done(do)
            if failed:
                error = UnavailableError("InternalServerError", "The service failed", status=500)
        self._time.after(self._delay_s(), lambda: self._answer(future, result, error))

    def _answer(self, future: asyncio.Future[T], result: Any, error: Exception | None) -> None:
        if self.cut in (Way.SILENT, Way.ANSWERS):
            return
        if self._happens("answer_lost"):
            self._lose(future)
        else:
            self._deliver(future, result, error)

    def _lose(self, future: asyncio.Future[T]) -> None:
        """Lose a call or its answer: half of what is lost breaks the connection, which is noticed; the rest is waited
        for.
        """
        if self._rng.random() < 0.5:
            self._deliver(future, None, TransportError(f"the connection to the {self.name} was reset"))

    def _deliver(self, future: asyncio.Future[T], result: Any, error: Exception | None) -> None:
        if not self.closed and not self.loop.is_closed():
            self.loop.call_soon(_settle, future, result, error)

    def _happens(self, what: str) -> bool:
        for noise in self.noises:
            chance = getattr(noise, what)
            if chance and self._rng.random() < chance:
                return True
        return False

    def _delay_s(self) -> float:
        rng = self._rng
        delay_s = rng.uniform(*(SLOW_DELAY_S if rng.random() < SLOW_CALLS else DELAY_S))
        for noise in self.noises:
            delay_s *= noise.slower
        return delay_s


def _done(do: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return do(), None
    except Exception as error:
        return None, error


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


# --- Kinesis --------------------------------------------------------------------------------------
# The stream of a simulation is the local Kinesis's model of the service, which the client's real code reads.

EPOCH_S = 1_700_000_000.0
"""The epoch seconds that wall clocks show at virtual time 0."""
CALL_TIMEOUT_S = 8.0
SILENCE_LOOK_S = 1.0
SUB_RECORDS_MAX = 4


class ServiceTime:
    """The service's clock. ``passed_s``: time that passed while no worker ran; the simulation skips it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.passed_s = 0.0

    def __call__(self) -> float:
        """Return the service's time in epoch seconds."""
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
        """Return the key of a shard's lease."""
        return LeaseKey(shard_id, self._key).text

    def put(self, records: int) -> None:
        """Write ``records`` records, to shards by chance; the history learns where they are."""
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
        # The service stamps a record with the millisecond in which it arrives: a start within that millisecond has it.
        arrived_s = self.model.now_ms() / 1000
        answer = self._ask("PutRecords", StreamName=self.name, Records=entries)
        for result, users in zip(answer["Records"], puts, strict=True):
            if "SequenceNumber" in result:  # else the shard is full, and the record is not put again
                self._history.put(self.key_of(result["ShardId"]), int(result["SequenceNumber"]), users, arrived_s)

    def _drawn(self) -> tuple[list[Put], int]:
        """Draw a record, or those of an aggregate, and where they go."""
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
        """Draw a record that was put before, as a producer puts it that got no answer. The time between the two never
        lies so close to the window that a millisecond decides whether the second is a duplicate.
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
        """Make two of one open shard, in the middle or near it."""
        open_shards = self._open()
        shard = open_shards[int(choice * len(open_shards))]
        first, last = _range(shard)
        if last - first > 16:
            middle = first + int((last - first) * self._rng.uniform(0.25, 0.75))
            self._ask("SplitShard", StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
            self._list()

    def merge(self, choice: float) -> None:
        """Make one of two neighbours."""
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

    def listed_by_key(self) -> dict[str, str]:
        """Return the shards that are listed, by the keys of their leases."""
        listed = self._ask("ListShards", StreamName=self.name)["Shards"]
        return {self.key_of(one["ShardId"]): one["ShardId"] for one in listed}

    def listed(self) -> set[str]:
        """Return the shards of which the retention has left anything, by the keys of their leases."""
        return self._list()

    def _ask(self, operation: str, **request: Any) -> Any:
        answer = self.model.handle(operation, json.dumps(request).encode())
        return json.loads(answer) if answer else None


def _range(shard: Any) -> tuple[int, int]:
    return int(shard["HashKeyRange"]["StartingHashKey"]), int(shard["HashKeyRange"]["EndingHashKey"])


class StreamWire:
    """Stands in for `shardway.aws.wire.Wire` before a client, over a simulated connection."""

    def __init__(self, model: KinesisModel, link: Link, wall: Callable[[], float], rng: random.Random) -> None:
        self.options = ConnectionOptions()
        self.region = model.region
        self.clock = ServiceClock()
        self._now = SteadyEpoch(SteadyClock(link.loop), wall)
        self._model = model
        self._link = link
        self._rng = rng

    @property
    def service_now_s(self) -> float:
        """See `Wire.service_now_s`."""
        return self.clock.near_s(self._now())

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
            sent_s = self._now()
            try:
                answer, date_s = await self._link.call(lambda: self._done(operation, body), CALL_TIMEOUT_S)
            except Exception as error:
                if attempt == policy.attempts_max or not getattr(error, "retryable", False):
                    raise
                await asyncio.sleep(policy.wait_s(attempt, self._rng))
                continue
            self.clock.observe(date_s, sent_s, self._now())
            return answer
        raise AssertionError("the last attempt returns or raises")

    async def stream(
        self, service: str, operation: str, body: bytes, *, stream_arn: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """See `Wire.stream`: a subscription's events. A cut makes it fall silent; what is pushed meanwhile is lost."""
        subscription = await self._link.call(lambda: self._subscribed(body), CALL_TIMEOUT_S)
        loop, wake = self._link.loop, asyncio.Event()

        # The service calls this, whatever runs then; the process hears of it when it runs itself.
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
                    yield eventstream.message(name, payload)
                if subscription.closed:
                    return
                await _wait(wake, SILENCE_LOOK_S)
        finally:
            subscription.close()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def _break_off(self) -> None:
        if self._link.cut is Way.REFUSED or self._rng.random() < 0.3:
            raise TransportError("the connection to the stream was reset")
        await asyncio.Event().wait()  # this is silence, which the reader has to notice

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
    """Return a process's wall clock, in epoch seconds: as fast as its monotonic clock, and wrong by ``jumped_s``. It
    begins with the service's time.
    """
    begin_s = loop.time()
    return lambda: service_s + (loop.time() - begin_s) + jumped_s()


# --- the lease table ------------------------------------------------------------------------------
# The lease table of a simulation has its rows in memory; each process sees them through its own connection.
#
# Writes behave as DynamoDB's do for `shardway.aws.dynamodb`: they are sent once, after a refusal the row is read by a
# call of its own, and no answer in time is an unknown outcome. Reads are repeated.

READS = RetryPolicy()
READ_TIMEOUT_S = 5.0
VERSIONS_MAX_AGE_S = 75.0


class SimulatedTable:
    """The table that all processes share, with the recent past of each row for reads that are not consistent."""

    def __init__(self, time: VirtualTime, history: History) -> None:
        self.rows = MemoryLeaseTable("leases")
        self._time = time
        self._history = history
        self._leases: dict[str, list[tuple[float, LeaseRow | None]]] = {}
        self._workers: dict[str, list[tuple[float, WorkerRow | None]]] = {}

    def now_s(self) -> float:
        """Return the time of the state that a consistent read shows: now."""
        return self._time.now_s

    def create(self, row: LeaseRow) -> Outcome:
        """Create a lease, and tell the history."""
        outcome = now(self.rows.create(row))
        if isinstance(outcome, Done):
            self._history.row_written(None, row, "created")
            self._keep(self._leases, row.key, row)
        return outcome

    def write(self, write: Write) -> Outcome:
        """Write to a lease, and tell the history."""
        before = now(self.rows.get(write.key))
        outcome = now(self.rows.write(write))
        if isinstance(outcome, Done):
            self._history.row_written(before, outcome.row, write.kind.value)
            self._keep(self._leases, write.key, outcome.row)
        return outcome

    def put_worker(self, row: WorkerRow) -> Outcome:
        """Write a worker's row, by which it shows itself."""
        outcome = now(self.rows.put_worker(row))
        if isinstance(outcome, Done):
            self._keep(self._workers, row.worker_id, row)
        return outcome

    def delete_worker(self, worker_id: str, counter: int | None) -> Outcome:
        """Delete a worker's row: the worker is not there any more."""
        outcome = now(self.rows.delete_worker(worker_id, counter=counter))
        if isinstance(outcome, Done):
            self._keep(self._workers, worker_id, None)
        return outcome

    def get(self, key: str) -> LeaseRow | None:
        """Return a lease as it is."""
        return now(self.rows.get(key))

    def scan(self, at_s: Callable[[], float], rng: random.Random) -> Listing:
        """Return all leases, each as it was at a time; in any order."""
        rows = _past(self._leases, at_s)
        rng.shuffle(rows)
        return Listing(rows, {}, {})

    def workers(self, at_s: Callable[[], float], rng: random.Random) -> list[WorkerRow]:
        """Return all workers' rows, each as it was at a time; in any order."""
        rows = _past(self._workers, at_s)
        rng.shuffle(rows)
        return rows

    def _keep(self, kept: dict[str, list[tuple[float, Any]]], key: str, row: Any) -> None:
        versions = kept.setdefault(key, [])
        old_s = self._time.now_s - VERSIONS_MAX_AGE_S
        while len(versions) > 1 and versions[1][0] < old_s:
            versions.pop(0)
        versions.append((self._time.now_s, row))


def _past(kept: dict[str, list[tuple[float, T | None]]], at_s: Callable[[], float]) -> list[T]:
    found = []
    for versions in kept.values():
        then_s = at_s()
        row = next((row for since_s, row in reversed(versions) if since_s <= then_s), None)
        if row is not None:
            found.append(row)
    return found


class TableConnection:
    """The LeaseTable port of one process."""

    name = "leases"

    def __init__(
        self, table: SimulatedTable, leases: Link, workers: Link, rng: random.Random, *, request_timeout_s: float
    ) -> None:
        """``leases`` and ``workers`` are links to the two tables."""
        self._table = table
        self._leases = leases
        self._workers = workers
        self._rng = rng
        self._request_timeout_s = request_timeout_s

    async def ensure(self) -> None:
        """Find out, by a call each, that the tables are there."""
        await asyncio.gather(self._read(self._leases, lambda: None), self._read(self._workers, lambda: None))

    async def create(self, row: LeaseRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._leases, lambda: self._table.create(row), row.key)

    async def write(self, write: Write) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._leases, lambda: self._table.write(write), write.key)

    async def get(self, key: str) -> LeaseRow | None:
        """See `shardway.ports.LeaseTable`."""
        return await self._read(self._leases, lambda: self._table.get(key))

    async def scan(self, *, consistent: bool = False) -> Listing:
        """See `shardway.ports.LeaseTable`."""
        at_s = self._table.now_s if consistent else self._leases.reads_at_s
        return await self._read(self._leases, lambda: self._table.scan(at_s, self._rng))

    async def put_worker(self, row: WorkerRow) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._workers, lambda: self._table.put_worker(row), None)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        """See `shardway.ports.LeaseTable`."""
        at_s = self._table.now_s if consistent else self._workers.reads_at_s
        return await self._read(self._workers, lambda: self._table.workers(at_s, self._rng))

    async def delete_worker(self, worker_id: str, *, counter: int | None = None) -> Outcome:
        """See `shardway.ports.LeaseTable`."""
        return await self._outcome(self._workers, lambda: self._table.delete_worker(worker_id, counter), None)

    async def close(self) -> None:
        """Do nothing: the table stays."""

    async def _outcome(self, link: Link, do: Callable[[], Outcome], key: str | None) -> Outcome:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                outcome = await link.call(do, READ_TIMEOUT_S)
                if isinstance(outcome, Refused):
                    return Refused(None if key is None else await self.get(key))
                return outcome
        except TimeoutError:
            return Unknown(f"no answer within {self._request_timeout_s:g} s")
        except ShardwayError as fault:
            return Unknown(fault.code if isinstance(fault, ServiceError) else type(fault).__name__)

    async def _read(self, link: Link, do: Callable[[], T]) -> T:
        for attempt in range(1, READS.attempts_max + 1):
            try:
                return await link.call(do, READ_TIMEOUT_S)
            except ShardwayError:
                if attempt == READS.attempts_max:
                    raise
            await asyncio.sleep(READS.wait_s(attempt, self._rng))
        raise AssertionError("the last attempt returns or raises")


def now(does: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing."""
    try:
        does.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise RuntimeError("the coroutine waits for something")
