"""LATEST is one moment for all owners of a lease: what arrives after it is handled, however early a shard moves on."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardway import StartingPosition
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.row import LeaseRow
from shardway.errors import OptionError
from shardway.options import LeaseOptions
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.runtime.consumer.beside import Beside
from tests.runtime.consumer.face_kit import QUICK_RETRIES, STREAM, consumer_of, put, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shardway.local import LocalKinesis

SHARDS = 4
STREAMS = {STREAM: SHARDS, "alone": 1}
DEADLINE_S = 120.0
PROGRAM = Path(__file__).with_name("starting_process.py")


@pytest.fixture(params=["memory", "sqlite", "dynamodb"])
def leases(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Returns the lease table for one more consumer."""
    table = MemoryLeaseTable()
    made: dict[str, Callable[[], Any]] = {
        "memory": lambda: table,
        "sqlite": lambda: SqliteLeaseTable(tmp_path / "leases.db", busy_timeout_s=10.0),
        "dynamodb": lambda: LeaseOptions(request_timeout_s=30.0),
    }
    return made[request.param]


class Load(Beside):
    """Puts numbers, some every few milliseconds, until it is ended."""

    def __init__(self, kinesis: Any, stream: str = STREAM) -> None:
        super().__init__(kinesis, 0.05)
        self.stream = stream
        self.count = 0

    def turn(self) -> None:
        put(self.kinesis, range(self.count, self.count + 10), stream=self.stream)
        self.count += 10


class Reader:
    """One consumer that starts at LATEST, and what its handler was given and has handled."""

    def __init__(self, local: LocalKinesis, leases: Any, *, stream: str = STREAM, handle_s: float = 0.0, **given: Any):
        self.shards: set[str] = set()
        self.given: set[bytes] = set()
        self.handled: set[bytes] = set()
        self.handle_s = handle_s
        self.fails = False
        options = {"starting_position": StartingPosition.LATEST, "batch_records_max": 10, "retry": QUICK_RETRIES}
        self.consumer = consumer_of(
            local, leases, stream=stream, on_shards_assigned=self._assigned, **{**options, **given}
        )
        self._running: asyncio.Task[None] | None = None

    async def _assigned(self, shards: Any) -> None:
        self.shards |= {shard.shard_id for shard in shards}

    async def start(self) -> None:
        await self.consumer.__aenter__()
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self.consumer.run_batches(self._handle)

    async def _handle(self, batch: Any) -> None:
        datas = [record.data for record in batch]
        self.given.update(datas)
        if self.fails:
            raise RuntimeError("the database is away")
        if self.handle_s:
            await asyncio.sleep(self.handle_s)
        self.handled.update(datas)

    async def stop(self) -> None:
        await self.consumer.__aexit__(None, None, None)
        assert self._running is not None
        await self._running


class Readers:
    """Starts consumers, and stops those that are left."""

    def __init__(self, local: LocalKinesis, leases: Callable[[], Any]) -> None:
        self.all: list[Reader] = []
        self._local = local
        self._leases = leases

    async def start(self, **given: Any) -> Reader:
        reader = Reader(self._local, self._leases(), **given)
        await reader.start()
        self.all.append(reader)
        return reader

    def handled(self) -> set[bytes]:
        return set().union(*(one.handled for one in self.all))

    def given(self) -> set[bytes]:
        return set().union(*(one.given for one in self.all))


@contextlib.asynccontextmanager
async def readers_of(local: LocalKinesis, leases: Callable[[], Any]) -> AsyncIterator[Readers]:
    readers = Readers(local, leases)
    async with asyncio.timeout(DEADLINE_S):
        yield readers
        for one in readers.all:
            await one.stop()


def logs_of(kinesis: Any, stream: str = STREAM) -> list[list[bytes]]:
    """All records of each shard, in order."""
    found = []
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        log: list[bytes] = []
        while page := kinesis.get_records(ShardIterator=iterator):
            log += [record["Data"] for record in page["Records"]]
            iterator = page["NextShardIterator"]
            if page["MillisBehindLatest"] == 0:
                break
        found.append(log)
    return found


def wanted_of(logs: list[list[bytes]], given: set[bytes]) -> set[bytes]:
    """All records from the first one on that any handler was given, of each shard."""
    wanted: set[bytes] = set()
    for log in logs:
        first = next((place for place, data in enumerate(log) if data in given), len(log))
        wanted.update(log[first:])
    return wanted


async def all_handled(kinesis: Any, readers: Readers, stream: str = STREAM, given: set[bytes] = frozenset()) -> None:  # type: ignore[assignment]
    """Wait until the last records of all shards are handled, and see that none before them is missing."""
    for one in readers.all:
        one.handle_s, one.fails = 0.0, False
    logs = await asyncio.to_thread(logs_of, kinesis, stream)
    await until(lambda: {log[-1] for log in logs if log} <= readers.handled())
    missing = wanted_of(logs, readers.given() | given) - readers.handled()
    assert not missing, f"{len(missing)} of {sum(map(len, logs))} records came to no handler"


async def test_a_first_start_of_three_workers_one_after_another(
    local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]
) -> None:
    async with readers_of(local, leases) as readers:
        with Load(kinesis):
            for _ in range(3):
                given = (await readers.start(handle_s=0.3)).given
                while len(given) < 30:
                    await asyncio.sleep(0.01)
        await all_handled(kinesis, readers)


@pytest.mark.parametrize("in_time", [True, False], ids=["in time", "at the deadline"])
async def test_a_handoff_before_the_first_renewal(
    local: LocalKinesis, kinesis: Any, leases: Callable[[], Any], in_time: bool
) -> None:
    times = {"handle_s": 0.3} if in_time else {"handle_s": 20.0, "drain_deadline_s": 0.5}
    async with readers_of(local, leases) as readers:
        with Load(kinesis, "alone") as load:
            old = await readers.start(stream="alone", **times)
            await until(lambda: old.given and load.count > 200)
            new = await readers.start(stream="alone")
            await old.stop()
            readers.all.remove(old)
            handled, given = old.handled, old.given
            await until(lambda: new.handled)
        new.handled |= handled
        await all_handled(kinesis, readers, "alone", given)


async def test_a_restart_while_the_handler_fails(local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]) -> None:
    async with readers_of(local, leases) as readers:
        with Load(kinesis) as load:
            old = await readers.start()
            old.fails = True
            await until(lambda: len(old.shards) == SHARDS and load.count > 300)
            readers.all.remove(old)
            await old.stop()
            assert not old.handled
            new = await readers.start()
            await until(lambda: new.handled)
        await all_handled(kinesis, readers, given=old.given)


async def test_what_comes_between_a_stop_before_the_first_renewal_and_the_next_start(
    local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]
) -> None:
    put(kinesis, range(100, 150))
    await asyncio.to_thread(local.clock.advance, 60.0)
    async with readers_of(local, leases) as readers:
        old = await readers.start()
        await until(lambda: len(old.shards) == SHARDS)
        readers.all.remove(old)
        await old.stop()
        wanted = set(put(kinesis, range(50)))
        await asyncio.to_thread(local.clock.advance, 60.0)
        await readers.start()
        await until(lambda: wanted <= readers.handled())
        assert readers.given() == wanted, "what came before the first start is not wanted"


async def test_an_owner_that_is_killed_before_its_first_checkpoint(
    local: LocalKinesis, kinesis: Any, tmp_path: Path
) -> None:
    output, at = tmp_path / "output", [local.endpoint_url, str(tmp_path / "leases.db")]

    async def start(how: str) -> asyncio.subprocess.Process:
        command = [sys.executable, str(PROGRAM), *at, str(output), how]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"started\n"
        return process

    def lines() -> set[bytes]:
        return set(output.read_bytes().split()) if output.exists() else set()

    async with asyncio.timeout(DEADLINE_S):
        with Load(kinesis) as load:
            doomed = await start("hangs")
            await until(lambda: lines() and load.count > 300)
            doomed.kill()
            await doomed.wait()
            given = lines()
            output.unlink()
            other = await start("handles")
            await until(lines)
        try:
            logs = await asyncio.to_thread(logs_of, kinesis)
            await until(lambda: {log[-1] for log in logs if log} <= lines())
            assert not wanted_of(logs, given) - lines()
        finally:
            other.kill()
            await other.wait()


# --- leases that another program has made ---------------------------------------------------------------


async def foreign(checkpoint: Checkpoint) -> MemoryLeaseTable:
    """A table whose leases do not say at what time they begin, as a KCL worker makes them."""
    table = MemoryLeaseTable()
    await table.ensure()
    for shard in range(SHARDS):
        await table.create(LeaseRow(key=f"shardId-{shard:012}", checkpoint=checkpoint))
    return table


async def test_an_owner_stores_the_time_that_a_lease_at_latest_lacks_with_its_take(
    local: LocalKinesis, kinesis: Any
) -> None:
    table = await foreign(Checkpoint.LATEST)
    async with readers_of(local, lambda: table) as readers:
        old = await readers.start(starting_position=StartingPosition.TRIM_HORIZON)
        old.fails = True
        await until(lambda: len(old.shards) == SHARDS)
        assert not [row.key for row in (await table.scan()).rows if row.lacks_time]
        wanted = set(put(kinesis, range(50)))
        readers.all.remove(old)
        await old.stop()
        await asyncio.to_thread(local.clock.advance, 60.0)
        await readers.start(starting_position=StartingPosition.TRIM_HORIZON)
        await until(lambda: wanted <= readers.handled())


async def test_a_lease_at_a_time_begins_there_whatever_a_later_deploy_starts_at(
    local: LocalKinesis, kinesis: Any, leases: Callable[[], Any]
) -> None:
    put(kinesis, range(100, 150))
    await asyncio.to_thread(local.clock.advance, 60.0)
    since = StartingPosition.at_timestamp(dt.datetime.fromtimestamp(local.clock.now() - 30.0, dt.UTC))
    wanted = set(put(kinesis, range(50)))
    async with readers_of(local, leases) as readers:
        old = await readers.start(starting_position=since)
        old.fails = True
        await until(lambda: len(old.shards) == SHARDS)
        readers.all.remove(old)
        await old.stop()
        await asyncio.to_thread(local.clock.advance, 60.0)
        new = await readers.start(starting_position=StartingPosition.LATEST)
        await until(lambda: wanted <= new.handled)
        assert new.handled == wanted


async def test_a_lease_at_a_time_that_is_not_known_is_refused_with_advice(local: LocalKinesis) -> None:
    table = await foreign(Checkpoint.AT_TIMESTAMP)
    consumer = consumer_of(local, table, starting_position=StartingPosition.LATEST)

    async def read() -> None:
        async with asyncio.timeout(DEADLINE_S), consumer:
            async for _ in consumer:
                pass

    with pytest.raises(OptionError, match=r"orders, shard shardId-0+\d: its lease begins AT_TIMESTAMP, .*app seek"):
        await read()


# --- seeks -----------------------------------------------------------------------------------------------


async def test_a_seek_to_latest_begins_now_and_not_where_the_lease_does(local: LocalKinesis, kinesis: Any) -> None:
    async with readers_of(local, MemoryLeaseTable) as readers:
        one = await readers.start(stream="alone")
        await until(lambda: one.shards)
        one.fails = True
        early = set(put(kinesis, range(50), stream="alone"))
        await until(lambda: one.given)
        source, put_s = one.consumer._session.streams["alone"].source, local.clock.now()
        await asyncio.to_thread(local.clock.advance, 60.0)  # LATEST may begin two seconds before the call.
        await until(lambda: source.now_s > put_s + 30.0)
        one.consumer.seek(*one.shards, StartingPosition.LATEST)
        one.fails = False
        late = put(kinesis, range(100, 101), stream="alone")
        await until(lambda: set(late) <= one.handled)
        assert not one.handled & early


async def test_a_shard_that_was_sought_is_measured_as_before(local: LocalKinesis, kinesis: Any) -> None:
    """A strategy, and a leader of the KCL, see how much is read; and the time of a silent shard moves on."""
    table = MemoryLeaseTable()
    async with readers_of(local, lambda: table) as readers:
        one = await readers.start(stream="alone", failover_s=4.0, renew_interval_s=0.1)

        async def rate() -> float | None:
            return (await table.scan()).rows[0].throughput_kib_s

        with Load(kinesis, "alone"):
            await until(lambda: one.handled)
            one.consumer.seek(*one.shards, StartingPosition.TRIM_HORIZON)
            for _ in range(8):  # The rate is smoothed: one that is no longer measured is halved each time.
                before = await rate()
                while (now := await rate()) == before:
                    await asyncio.sleep(0.01)
            assert now is not None
            assert now > 0.05
        sought_ms = int(local.clock.now() * 1000)
        await asyncio.to_thread(local.clock.advance, 60.0)
        while ((await table.scan()).rows[0].read_until_ms or 0) < sought_ms + 30_000:
            await asyncio.sleep(0.05)
