"""Resharding as a worker meets it: while it runs, while it is stopped, over generations; leases come and go."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Checkpoint, LeaseRow, writes
from shardway.events import CheckpointTrimmed
from shardway.model import HASH_KEY_MAX, StartingPosition
from shardway.stores.memory import MemoryLeaseTable
from tests.runtime.consumer import fleet_kit
from tests.runtime.consumer.fleet_kit import STREAM, Fleet

if TYPE_CHECKING:
    from shardway.local import LocalKinesis

DAY_S = 24 * 3600
MIDDLE = HASH_KEY_MAX // 2 + 1
ZERO = "shardId-000000000000"
STREAMS = {STREAM: 2}


fleet_of = partial(fleet_kit.fleet_of, upkeep_interval_s=0.1)


class Stream:
    """The stream as an operator changes it, with its shards by age."""

    def __init__(self, kinesis: Any) -> None:
        self._kinesis = kinesis
        self._put = 0

    def put(self, count: int = 40) -> set[bytes]:
        """Records over the whole hash range, in the order of their numbers within each shard."""
        numbers = range(self._put, self._put + count)
        self._put += count
        records: list[dict[str, Any]] = [
            {"Data": b"%d" % one, "PartitionKey": "k", "ExplicitHashKey": str(one % 16 * HASH_KEY_MAX // 15)}
            for one in numbers
        ]
        assert self._kinesis.put_records(StreamName=STREAM, Records=records)["FailedRecordCount"] == 0
        return {record["Data"] for record in records}

    def open(self) -> list[dict[str, Any]]:
        """The open shards, in the order of their hash ranges."""
        shards = self._kinesis.list_shards(StreamName=STREAM)["Shards"]
        taking = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(taking, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    async def split(self, at: int) -> None:
        """The ``at``-th open shard, in the middle."""
        shard = self.open()[at]
        first, last = (int(shard["HashKeyRange"][name]) for name in ("StartingHashKey", "EndingHashKey"))
        self._kinesis.split_shard(
            StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2 + 1)
        )
        await self._active()

    async def merge(self, at: int) -> None:
        """The ``at``-th open shard and the next one."""
        left, right = self.open()[at : at + 2]
        self._kinesis.merge_shards(
            StreamName=STREAM, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
        )
        await self._active()

    async def _active(self) -> None:
        async with asyncio.timeout(20):
            while True:
                summary = await asyncio.to_thread(self._kinesis.describe_stream_summary, StreamName=STREAM)
                if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                    return
                await asyncio.sleep(0.02)

    def open_ids(self) -> set[str]:
        return {shard["ShardId"] for shard in self.open()}


@pytest.fixture
def stream(kinesis: Any) -> Stream:
    return Stream(kinesis)


async def leases(fleet: Fleet) -> set[str]:
    return {row.key for row in (await fleet.table.scan()).rows}


async def until_leases_are(fleet: Fleet, wanted: set[str]) -> None:
    async with asyncio.timeout(30):
        while await leases(fleet) != wanted:
            await asyncio.sleep(0.02)


def in_order(fleet: Fleet) -> bool:
    """Of each hash key (the number modulo 16), the records came in the order in which they were put."""
    last: dict[int, int] = {}
    for *_, data in fleet.account.got:
        number = int(data)
        if last.get(number % 16, -1) >= number:
            return False
        last[number % 16] = number
    return True


@pytest.mark.parametrize("workers", [pytest.param(("a",), marks=pytest.mark.slow), ("a", "b")])
async def test_generations_while_they_run_and_what_has_ended_leaves_the_table(
    local: LocalKinesis, stream: Stream, workers: tuple[str, ...]
) -> None:
    async with fleet_of(local) as fleet:
        for name in workers:
            fleet.start(name)
        wanted = stream.put()
        await stream.split(0)
        wanted |= stream.put()
        await stream.merge(1)
        wanted |= stream.put()
        await stream.merge(0)
        wanted |= stream.put()
        await stream.split(0)
        wanted |= stream.put()
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        assert in_order(fleet)
        await until_leases_are(fleet, stream.open_ids())
        await fleet.until(lambda: set().union(*fleet.held().values()) == stream.open_ids())


async def test_generations_while_it_is_stopped(local: LocalKinesis, stream: Stream) -> None:
    async with fleet_of(local) as fleet:
        fleet.start("a")
        wanted = stream.put()
        await fleet.account.until(wanted)
        await fleet.stop("a")
        wanted |= stream.put()
        await stream.split(1)
        wanted |= stream.put()
        await stream.split(0)
        await stream.merge(1)
        wanted |= stream.put()
        fleet.start("b")
        await fleet.account.until(wanted)
        assert set(fleet.account.counts().values()) == {1}
        assert in_order(fleet)
        await until_leases_are(fleet, stream.open_ids())


async def test_a_lease_that_was_lost_is_made_anew_by_the_audit(local: LocalKinesis, stream: Stream) -> None:
    """A row was deleted by hand: no worker would read its hash range."""
    async with fleet_of(local) as fleet:
        fleet.start("a")
        wanted = stream.put()
        await fleet.account.until(wanted)
        row = await fleet.table.get(ZERO)
        assert row is not None
        async with asyncio.timeout(20):
            while (await fleet.table.write(writes.delete(row))) and await fleet.table.get(ZERO) is not None:
                row = await fleet.table.get(ZERO)
                assert row is not None
        await until_leases_are(fleet, stream.open_ids())
        wanted |= stream.put()
        await fleet.account.until(wanted)


async def test_leases_that_a_crash_left_out_are_made_at_the_next_start(local: LocalKinesis, stream: Stream) -> None:
    """The first worker died between two of them: no shard has to wait for the audit."""
    table = MemoryLeaseTable()
    await table.create(LeaseRow(key=ZERO, checkpoint=Checkpoint.TRIM_HORIZON))
    async with fleet_of(local, table, upkeep_interval_s=3600.0) as fleet:
        fleet.start("a")
        await fleet.account.until(stream.put())
        assert set(fleet.account.counts().values()) == {1}


@pytest.mark.parametrize(
    "starting_position", [StartingPosition.TRIM_HORIZON, StartingPosition.LATEST], ids=["oldest", "latest"]
)
async def test_parents_that_retention_has_trimmed_while_it_was_stopped(
    local: LocalKinesis, stream: Stream, starting_position: StartingPosition
) -> None:
    """Their leases say where it stood: the children are read from their beginning, and the loss is told."""
    async with fleet_of(local, starting_position=starting_position) as fleet:
        fleet.start("a")
        await until(fleet, lambda rows: len(rows) == 2 and all(row.read_until_ms for row in rows))
        first = stream.put()
        await fleet.account.until(first)
        await fleet.stop("a")
        stream.put()
        await stream.split(0)
        await stream.split(2)
        local.clock.advance(3 * DAY_S)
        wanted = stream.put()
        fleet.start("b")
        await fleet.account.until(wanted)
        assert {data for *_, data in fleet.account.got} == first | wanted
        lost = [event for event in fleet.account.events if isinstance(event, CheckpointTrimmed)]
        assert {event.shard_id for event in lost} == {ZERO, "shardId-000000000001"}
        assert {(event.resumes_at, event.surely_nothing_lost) for event in lost} == {(None, False)}
        await until_leases_are(fleet, stream.open_ids())


# --- how far it was read, beyond the last record ------------------------------------------------------


async def test_a_shard_that_was_only_silent_beyond_the_retention_is_no_loss(
    local: LocalKinesis, stream: Stream
) -> None:
    async with fleet_of(local) as fleet:
        wanted = stream.put()
        local.clock.advance(0.99 * DAY_S)
        before_ms = int((local.clock.now() - 60) * 1000)
        fleet.start("a")
        await fleet.account.until(wanted)
        await until(fleet, lambda rows: all((row.read_until_ms or 0) > before_ms for row in rows))
        await fleet.stop("a")
        local.clock.advance(0.02 * DAY_S)  # nothing is left of what it read
        wanted |= stream.put()
        fleet.start("b")
        await fleet.account.until(wanted)
        told = [event for event in fleet.account.events if isinstance(event, CheckpointTrimmed)]
        assert {event.shard_id for event in told} == stream.open_ids()
        assert {event.surely_nothing_lost for event in told} == {True}
        assert set(fleet.account.counts().values()) == {1}


@pytest.mark.slow
async def test_how_far_it_was_read_costs_no_write_of_its_own(local: LocalKinesis, stream: Stream) -> None:
    async with fleet_of(local) as fleet:
        fleet.start("a")
        await until(fleet, lambda rows: len(rows) == 2 and all(row.read_until_ms for row in rows))
        rows = (await fleet.table.scan()).rows
        assert {row.checkpoint for row in rows} == {Checkpoint.TRIM_HORIZON}
        await until(fleet, lambda now: all(row.counter >= 4 for row in now))
        held = fleet.workers["a"].held.values()
        assert all(one.keeper.tenure.wish.checkpoint is None for one in held)


async def test_a_start_at_the_latest_is_kept_though_no_record_came_until_the_next_owner(
    local: LocalKinesis, stream: Stream
) -> None:
    """Else what comes between two owners is read by none of them."""
    stream.put()
    local.clock.advance(60.0)
    async with fleet_of(local, starting_position=StartingPosition.LATEST) as fleet:
        fleet.start("a")
        await until(fleet, lambda rows: len(rows) == 2 and all(row.read_until_ms for row in rows))
        await fleet.stop("a")
        assert {row.checkpoint for row in (await fleet.table.scan()).rows} == {Checkpoint.LATEST}
        wanted = stream.put()
        fleet.start("b")
        await fleet.account.until(wanted)
        assert {data for *_, data in fleet.account.got} == wanted


async def until(fleet: Fleet, holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds((await fleet.table.scan()).rows):
            assert fleet.failures() == []
            await asyncio.sleep(0.02)
