"""A worker among KCL workers keeps to their rules, and writes nothing that they could not read."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.leases import Done, LeaseRow, writes
from shardway.core.leases.conditional_write import Kind
from shardway.core.leases.tenure.state import Loss
from shardway.events import FleetChanged
from shardway.local import LocalKinesis
from shardway.runtime.shard.listener import Origin
from tests.runtime.consumer.fleet_kit import STREAM, Fleet
from tests.runtime.consumer.kcl_kit import Kcl2Worker, KclTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shardway.core.leases import Outcome, Write

F = 3.0
SHARDS = 4
KEYS = [f"shardId-{number:012d}" for number in range(SHARDS)]
STREAMS = {STREAM: SHARDS}


@pytest.fixture
async def table() -> KclTable:
    """Leases as the KCL makes them, with an attribute of a version to come."""
    made = KclTable("leases")
    ranges = [number * 2**128 // SHARDS for number in range(SHARDS + 1)]
    for number, key in enumerate(KEYS):
        row = LeaseRow(key=key, first_hash_key=ranges[number], last_hash_key=ranges[number + 1] - 1, entity="LEASE")
        made.add(row.attributes() | {"fromTheFuture": "kept"})
    return made


@asynccontextmanager
async def fleet_of(local: LocalKinesis, table: KclTable, **settings: Any) -> AsyncIterator[Fleet]:
    fleet = Fleet(local, table, failover_s=F, **settings)
    try:
        yield fleet
        assert fleet.failures() == []
        assert all(table.row(key)["fromTheFuture"] == "kept" for key in KEYS)
    finally:
        await fleet.close()


@asynccontextmanager
async def kcl2(table: KclTable, **more: Any) -> AsyncIterator[Kcl2Worker]:
    worker = Kcl2Worker("kcl", table, F, **more)
    try:
        yield worker
    finally:
        await worker.stop()


def fleets(fleet: Fleet) -> list[str]:
    return [event.fleet for event in fleet.account.events if isinstance(event, FleetChanged)]


async def row_of(table: KclTable, key: str) -> LeaseRow:
    row = await table.get(key)
    assert row is not None
    return row


# --- the KCL 2.x ------------------------------------------------------------------------------------


async def test_beside_a_kcl_2x_worker_it_steals_its_share_and_takes_over_when_that_one_is_silent(
    local: LocalKinesis, table: KclTable
) -> None:
    async with fleet_of(local, table) as fleet:
        async with kcl2(table) as other:
            await fleet.until(lambda: len(other.held) == SHARDS)
            fleet.start("ours")
            both: set[str] = set()

            def has_half() -> bool:
                both.update(fleet.held()["ours"] & other.held.keys())
                return len(fleet.held()["ours"]) == SHARDS // 2

            await fleet.until(has_half)
            assert both == set(), "the victim reads on until its next renewal fails: nothing is delivered before that"
            assert {held.reader.origin for held in fleet.workers["ours"].held.values()} == {Origin.TAKEN}
            await fleet.until(lambda: len(other.held) == SHARDS // 2)
            assert fleets(fleet) == ["kcl 2.x"]
            assert len(other.lost) == SHARDS // 2, "one at a time, and no more than its share"
        await fleet.until(lambda: len(fleet.held()["ours"]) == SHARDS)
        await fleet.until(lambda: fleets(fleet)[-1] == "alone")
        assert table.names() == set(KEYS), "a row without a counter breaks every scan of such a worker"


async def test_a_worker_that_leaves_while_the_victim_of_a_steal_is_waited_for_delivers_nothing_of_it(
    local: LocalKinesis, kinesis: Any, table: KclTable
) -> None:
    put(kinesis, 0, 40)
    async with fleet_of(local, table, kcl_steal_wait_s=100 * F) as fleet, kcl2(table) as other:
        await fleet.until(lambda: len(other.held) == SHARDS)
        fleet.start("ours")
        await fleet.until(lambda: len(other.lost) == 1)
        assert fleet.held()["ours"] == set()
        assert list(table.owners().values()).count("ours") == 1, "one at a time"
        await fleet.stop("ours")
        assert fleet.account.got == []
        assert "ours" not in table.owners().values()


@pytest.mark.slow
async def test_what_a_kcl_2x_worker_steals_is_lost_once_and_not_fought_for(
    local: LocalKinesis, table: KclTable
) -> None:
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: len(fleet.held()["ours"]) == SHARDS)
        readers = {key: held.reader for key, held in fleet.workers["ours"].held.items()}
        async with kcl2(table) as other:
            await fleet.until(lambda: len(other.held) == SHARDS // 2)
            await fleet.until(lambda: len(fleet.held()["ours"]) == SHARDS // 2)
            stolen = set(other.held)
            assert {key for key, reader in readers.items() if reader.lost is Loss.TAKEN} == stolen
            counters = {key: table.row(key)["leaseCounter"] for key in KEYS}
            # All workers renew a few times, and nothing moves.
            await fleet.until(lambda: all(table.row(key)["leaseCounter"] >= counters[key] + 2 for key in KEYS))
            assert set(other.held) == stolen
            assert other.lost == set()


async def test_two_workers_beside_a_kcl_2x_worker_hand_shards_to_each_other_and_free_the_rest(
    local: LocalKinesis, table: KclTable
) -> None:
    async with fleet_of(local, table) as fleet, kcl2(table, takes=False) as other:
        outcome = await table.write(writes.take(await row_of(table, KEYS[0]), "kcl"))
        assert isinstance(outcome, Done)
        assert outcome.row is not None
        other.held[KEYS[0]] = outcome.row
        fleet.start("a")
        await fleet.until(lambda: len(fleet.held()["a"]) == 2)  # half, rounded up: one of four has no owner for now
        fleet.start("b")
        await fleet.until(lambda: len(fleet.held()["b"]) == 1)
        assert set(other.held) == {KEYS[0]}
        await fleet.stop("a")
        await fleet.until(lambda: len(fleet.held()["b"]) > 1)
        await fleet.stop("b")
        assert sorted(map(str, table.owners().values())) == ["None"] * (SHARDS - 1) + ["kcl"]


# --- the KCL 3.x ------------------------------------------------------------------------------------


async def test_in_a_kcl_3x_fleet_it_shows_itself_takes_nothing_and_reads_what_the_leader_assigns(
    local: LocalKinesis, table: KclTable
) -> None:
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: "ours" in table.names())
        assert fleets(fleet) == ["kcl 3.x"]
        shown = table.row("ours")
        assert (shown["entityType"], shown["sts"], shown["sup"]) == ("WORKER_METRIC_STATS", {}, 1)
        await asyncio.sleep(F / 2)  # time in which it would have taken something
        assert set(table.owners().values()) == {None}
        assert fleet.held() == {"ours": set()}
        for key in KEYS[:2]:
            table.add(table.row(key) | {"leaseOwner": "ours", "leaseCounter": 7})
        await fleet.until(lambda: fleet.held()["ours"] == set(KEYS[:2]))
        assert {held.reader.origin for held in fleet.workers["ours"].held.values()} == {Origin.NEW}
        assert set(table.owners().values()) == {"ours", None}
        await fleet.stop("ours")
        assert set(table.owners().values()) == {None}
        assert "ours" not in table.names(), "the leader would assign to it for another minute"
        assert table.row("kcl")["entityType"] == "WORKER_METRIC_STATS"


async def test_what_the_leader_assigns_of_a_worker_that_was_killed_is_taken_not_handed_over(
    local: LocalKinesis, table: KclTable
) -> None:
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    for key in KEYS:
        table.add(table.row(key) | {"leaseOwner": "kcl", "leaseCounter": 7})
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: "ours" in table.names())
        ours = fleet.workers["ours"]
        await fleet.until(lambda: any(lease.unmoved_s > F for lease in ours._sight.views().values()))
        table.add(table.row(KEYS[0]) | {"leaseOwner": "ours", "leaseCounter": 8})
        await fleet.until(lambda: fleet.held()["ours"] == {KEYS[0]})
        assert ours.held[KEYS[0]].reader.origin is Origin.TAKEN


async def test_the_leader_has_a_shard_handed_over_to_a_kcl_worker(
    local: LocalKinesis, kinesis: Any, table: KclTable
) -> None:
    wanted = put(kinesis, 0, 40)
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: "ours" in table.names())
        for key in KEYS:
            table.add(table.row(key) | {"leaseOwner": "ours"})
        await fleet.account.until(wanted)
        asked = await table.write(writes.ask_handoff(await row_of(table, KEYS[0]), "kcl"))
        assert isinstance(asked, Done)
        await fleet.until(lambda: table.owners()[KEYS[0]] == "kcl" and "checkpointOwner" not in table.row(KEYS[0]))
        row = await row_of(table, KEYS[0])
        assert row.checkpoint.is_position, "the last word of the worker that had it"
        await fleet.until(lambda: fleet.held()["ours"] == set(KEYS[1:]))
        got = len(fleet.account.got)
        more = put(kinesis, 100, 200)
        of_others = {data for data in more if not in_first_shard(data)}
        await fleet.account.until(of_others)
        assert {shard_id for _, shard_id, _, _ in fleet.account.got[got:]} == set(KEYS[1:])


async def test_the_leader_has_a_shard_handed_over_by_a_kcl_worker_and_it_is_read_only_then(
    local: LocalKinesis, kinesis: Any, table: KclTable
) -> None:
    wanted = put(kinesis, 0, 100)
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    for key in KEYS:
        table.add(table.row(key) | {"leaseOwner": "kcl"})
    async with fleet_of(local, table) as fleet, kcl2(table, takes=False) as other:
        other.held = {key: await row_of(table, key) for key in KEYS}
        fleet.start("ours")
        await fleet.until(lambda: "ours" in table.names())
        row = other.held.pop(KEYS[0])
        asked = await table.write(writes.ask_handoff(await row_of(table, KEYS[0]), "ours"))
        assert isinstance(asked, Done)
        assert asked.row is not None
        await fleet.until(lambda: KEYS[0] in table.warm("ours"))  # reads ahead, delivers nothing
        assert fleet.account.got == []
        given = await table.write(writes.give(asked.row, "ours"))
        assert isinstance(given, Done), row
        await fleet.until(lambda: fleet.held()["ours"] == {KEYS[0]})
        await fleet.account.until({data for data in wanted if in_first_shard(data)})
        assert {shard_id for _, shard_id, _, _ in fleet.account.got} == {KEYS[0]}
        assert set(other.held) == set(KEYS[1:])


@pytest.mark.slow
async def test_a_handoff_to_oneself_is_ended_by_the_next_renewal(local: LocalKinesis, table: KclTable) -> None:
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    table.add(table.row(KEYS[0]) | {"leaseOwner": "ours", "checkpointOwner": "ours"})
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: fleet.held()["ours"] == {KEYS[0]})
        assert "checkpointOwner" not in table.row(KEYS[0])


@pytest.mark.slow
async def test_a_worker_that_is_asked_to_hand_over_what_it_had_in_a_former_life_passes_it_on(
    local: LocalKinesis, table: KclTable
) -> None:
    table.mode("CLIENT_VERSION_3X")
    table.metrics_of("kcl")
    table.add(table.row(KEYS[0]) | {"leaseOwner": "kcl", "checkpointOwner": "ours"})
    async with fleet_of(local, table) as fleet:
        fleet.start("ours")
        await fleet.until(lambda: "checkpointOwner" not in table.row(KEYS[0]))
        assert table.owners()[KEYS[0]] == "kcl"


def put(kinesis: Any, start: int, stop: int) -> set[bytes]:
    """Records that go round the shards."""
    datas = [b"%d" % number for number in range(start, stop)]
    records = [
        {"Data": data, "PartitionKey": "k", "ExplicitHashKey": str(int(data) % SHARDS * 2**128 // SHARDS)}
        for data in datas
    ]
    assert kinesis.put_records(StreamName=STREAM, Records=records)["FailedRecordCount"] == 0
    return set(datas)


def in_first_shard(data: bytes) -> bool:
    return int(data) % SHARDS == 0


async def test_what_is_being_stolen_counts_as_its_own(local: LocalKinesis, table: KclTable) -> None:
    """Rounds follow each other in no time, and a take has to be answered: it would steal one more in each of them."""

    class Slow(KclTable):
        async def write(self, write: Write) -> Outcome:
            if write.kind is not Kind.TAKE or write.change_of("leaseOwner") != "ours":
                return await super().write(write)
            await asyncio.sleep(0.35)  # some rounds
            outcome = await super().write(write)
            takes.append(outcome)
            return outcome

    takes: list[Outcome] = []
    slow = Slow("leases")
    for key in KEYS:
        slow.add(table.row(key))
    async with fleet_of(local, slow) as fleet, kcl2(slow) as other:
        await fleet.until(lambda: len(other.held) == SHARDS)
        fleet.start("ours")
        await fleet.until(lambda: len(fleet.held()["ours"]) == SHARDS // 2)
        await fleet.until(lambda: len(other.held) == SHARDS // 2)
        assert sum(isinstance(one, Done) for one in takes) == SHARDS // 2
